//! The operator outside of the cluster, as `make run` starts it: pods are reached through the API server.

use anyhow::Result;
use serde_json::json;

use crate::host_operator::HostOperator;
use crate::operated::Operated;
use crate::runner::Context;
use crate::suite::lifecycle::{NAME, judged, scaled};

pub async fn on_the_machine(context: &Context) -> Result<()> {
    let installed = context.operator().await?;
    installed.stop().await?;
    let mut operator = HostOperator::start(context, &[])?;
    let spec = json!({"size": 1, "storage": {"size": "1Gi"}});
    let cluster =
        Operated::create(context.client(), &context.namespace, NAME, spec, context.progress).await?;
    let work = async {
        cluster.wait_until_settled(1).await?;
        let history = context.writers(&cluster).await?;
        for size in [3, 1] {
            scaled(&cluster, size).await?;
        }
        judged(context, history).await
    };
    // Somebody has to read what it says.
    let reading = async {
        loop {
            match operator.next_step(&cluster).await {
                Ok(step) => context.step(format!("on this machine: {step}")),
                Err(ended) => return ended,
            }
        }
    };
    tokio::select! {
        done = work => done?,
        ended = reading => return Err(ended),
    }
    operator.kill().await?;
    installed.start().await
}
