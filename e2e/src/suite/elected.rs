//! Which of the operator's pods leads.

use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use testbed::fault::Fault;

use crate::install::{DEPLOYMENT, NAMESPACE};
use crate::operated::LIMIT;
use crate::runner::Context;
use crate::wait;

/// Of the operator's pod.
pub const CONTAINER: &str = "operator";

/// Kills the operator that leads. The kubelet starts it again.
pub async fn kill_operator(context: &Context) -> Result<()> {
    let fault = Fault::KillProcess {
        pod: leader(context).await?,
        namespace: NAMESPACE.into(),
        container: Some(CONTAINER.into()),
        process: None,
    };
    context.inject(fault).await.map(drop)
}

/// The pod of the operator that leads.
pub async fn leader(context: &Context) -> Result<String> {
    let mut found = None;
    let somebody = async || {
        found = holder(&leases(context).get(DEPLOYMENT).await?);
        Ok(found.is_some())
    };
    wait::until("an operator leads", LIMIT, somebody).await?;
    found.context("nobody leads")
}

pub async fn next_leader(context: &Context, former: &str) -> Result<String> {
    let what = format!("another operator than {former} leads");
    let another = |lease: &Lease| holder(lease).is_some_and(|it| it != former);
    let lease = wait::present(leases(context), DEPLOYMENT, &what, LIMIT, another).await?;
    holder(&lease).context("nobody leads")
}

fn leases(context: &Context) -> Api<Lease> {
    Api::namespaced(context.client().clone(), NAMESPACE)
}

/// What stands behind the pod's name makes every run of it another holder.
fn holder(lease: &Lease) -> Option<String> {
    let identity = lease.spec.as_ref()?.holder_identity.as_deref().filter(|it| !it.is_empty())?;
    Some(identity.rsplit_once('_').map_or(identity, |(pod, _)| pod).to_owned())
}
