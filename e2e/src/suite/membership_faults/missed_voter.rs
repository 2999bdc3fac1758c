//! A leader that does not see another voter, while all others do: etcd judges a change of members by the connections of
//! the member that is asked, and the operator asks the leader first.

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::reason;
use futures::try_join;
use serde_json::json;
use testbed::fault::Fault;

use crate::etcd::PEER_PORT;
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::disturbed::{log_of, move_leader};
use crate::suite::lifecycle::{born, judged, scaled};
use crate::wait;

const LEADER: &str = "kv-0";
const MISSED: &str = "kv-1";

/// The log goes all ways over connections that the missed voter has opened, so everybody serves, and nothing but the
/// leader's own view is wrong.
pub async fn come_and_go(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    move_leader(context, &cluster, LEADER).await?;
    let cut = Fault::CutCalls {
        pod: LEADER.into(),
        to: MISSED.into(),
        port: PEER_PORT,
        namespace: cluster.namespace.clone(),
    };
    let missed = Missed::of(&cluster).await?;
    let before = missed.losses(context, &cluster).await?;
    let cut = context.inject(cut).await?;
    let lost = async || Ok(missed.losses(context, &cluster).await? > before);
    wait::until(&format!("{LEADER} takes {MISSED} for gone"), LIMIT, lost).await?;

    refused_then_done(context, &cluster, 4, "add").await?;
    refused_then_done(context, &cluster, 2, "remove").await?;
    history.goes_on(LIMIT).await?;
    context.undo(&cut).await?;
    scaled(&cluster, 3).await?;
    judged(context, history).await
}

/// Scales while the leader refuses: before, meanwhile, and still when all is done.
async fn refused_then_done(context: &Context, cluster: &Operated, size: u8, change: &str) -> Result<()> {
    move_leader(context, cluster, LEADER).await?;
    let before = refusals(context, cluster, change).await?;
    // It is told for less than a second, so somebody has to look from the beginning.
    try_join!(
        cluster.wait_for("the status reports that etcd rejected the step", awaits_etcd),
        cluster.scale(size)
    )?;
    cluster.wait_until_settled(size).await?;
    cluster.agrees(&Promised::members(size)).await?;
    let refused = refusals(context, cluster, change).await? - before;
    ensure!(refused > 0, "{LEADER} was not asked to {change} a member, or consented");
    refuses_still(context, cluster).await?;
    context.step(format!("{size} members, although {LEADER} refused to {change} one: {refused} time(s)"));
    Ok(())
}

fn awaits_etcd(cluster: &EtcdCluster) -> bool {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|it| it.reason == reason::STEP_REJECTED)
}

/// How often the leader has refused such a change because it does not see enough voters.
async fn refusals(context: &Context, cluster: &Operated, change: &str) -> Result<usize> {
    let words = format!("rejecting member {change} request; local member has not been connected");
    Ok(log_of(context, cluster, LEADER).await?.lines().filter(|line| line.contains(&words)).count())
}

async fn refuses_still(context: &Context, cluster: &Operated) -> Result<()> {
    let words = ["exec", "--namespace", &cluster.namespace, LEADER, "--container", "etcd", "--", "etcdctl"];
    let add = ["member", "add", "nobody", "--learner", "--peer-urls=http://10.9.9.9:2380"];
    let said = context.kubectl().ask(&[&words[..], &add].concat()).await?;
    ensure!(!said.ok && said.err.contains("unhealthy cluster"), "{LEADER} does not refuse: {said:?}");
    Ok(())
}

/// The voter that is not seen, by its number in hexadecimal as logs have it.
struct Missed {
    id: String,
}

impl Missed {
    async fn of(cluster: &Operated) -> Result<Self> {
        let listed = cluster.member_list().await?.into_iter().find(|member| member.name == MISSED);
        Ok(Self { id: format!("{:x}", listed.with_context(|| format!("{MISSED} is no member"))?.id) })
    }

    /// How often the leader has taken it for gone.
    async fn losses(&self, context: &Context, cluster: &Operated) -> Result<usize> {
        let log = log_of(context, cluster, LEADER).await?;
        let about = |line: &&str| line.contains("peer became inactive") && line.contains(&self.id);
        Ok(log.lines().filter(about).count())
    }
}
