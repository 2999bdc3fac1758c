//! Machines that crash, and an API server that is away.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use testbed::fault::Fault;

use super::{BACK_OFF_LIMIT, LIMIT, Three, all_serve};
use crate::runner::{Context, node_is_ready};
use crate::wait;

pub async fn crashed(context: &Context) -> Result<()> {
    let three = Three::create(context).await?;
    let victim = three.on("n2")?;
    let before = wait::restarts(&context.pods().get(&victim.name).await?);
    let crash = context.inject(Fault::CrashNode { node: "n2".into() }).await?;
    ensure!(victim.status().await.is_err(), "a member on a crashed node answers");
    let others = || three.others(victim);
    wait::until("the others serve", LIMIT, async || all_serve(others()).await.map(|()| true)).await?;
    context.step("the member is down, the others serve");
    let nodes = Api::<Node>::all(context.client().clone());
    wait::present(nodes.clone(), "n2", "n2 is not ready", LIMIT, |node| !node_is_ready(node)).await?;
    context.step("the node is not ready");

    context.undo(&crash).await?;
    wait::present(nodes, "n2", "n2 is ready", LIMIT, node_is_ready).await?;
    context.step("the node is ready");
    let came_back = |pod: &_| wait::restarts(pod) > before && wait::is_ready(pod);
    wait::present(context.pods(), &victim.name, "the member runs again", BACK_OFF_LIMIT, came_back).await?;
    // Pods get new addresses after a reboot.
    let members = three.plain.serving(context.client(), LIMIT, |_| {}).await?;
    all_serve(&members).await?;
    context.step("all members serve, no data is lost");
    Ok(())
}

pub async fn api_stopped(context: &Context) -> Result<()> {
    let three = Three::create(context).await?;
    let stop = context.inject(Fault::StopApiServer).await?;
    ensure!(!api_answers(context).await, "a stopped API server answers");
    all_serve(&three.members).await?;
    three.members[2].put("e2e/meanwhile", "written without an API server").await?;
    context.step("the API server is down, etcd serves");
    context.undo(&stop).await?;
    ensure!(api_answers(context).await, "the API server is not back");
    for member in &three.members {
        let pod = context.pods().get(&member.name).await?;
        ensure!(wait::restarts(&pod) == 0, "{} was started anew", member.name);
    }
    three.whole_again(context, LIMIT).await
}

async fn api_answers(context: &Context) -> bool {
    let asking = context.client().apiserver_version();
    matches!(tokio::time::timeout(Duration::from_secs(5), asking).await, Ok(Ok(_)))
}
