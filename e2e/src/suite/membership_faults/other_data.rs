//! Disks that return other bytes than were written, while nothing else shows it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::names::{condition, reason};
use serde_json::json;
use testbed::fault::Fault;

use super::data_lost::Former;
use crate::etcd::Member;
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::disturbed::{holds, leader};
use crate::suite::lifecycle::{Identity, asked_for, judged};

const RIGHT: &str = "the value that all members have";
const WRONG: &str = "the value that one member reads";
/// Of a member, etcd writes a batch into the file after a tenth of a second.
const UNTIL_WRITTEN: Duration = Duration::from_secs(2);

/// Once a follower, once the leader, while clients write. A byte-wise change of the file of the running etcd makes them differ: each
/// reads the wrong value from its own disk, and the operator finds that by comparing hashes.
pub async fn replaced(context: &Context) -> Result<()> {
    let often = json!({"maintenance": {"consistencyCheck": {"intervalSeconds": 10}}});
    let cluster = asked_for(context, 3, often).await?;
    cluster.wait_until_settled(3).await?;
    let before = Identity::of(&cluster).await?;
    let leads = leader(&cluster).await?;
    let follower = cluster.pod_names(3).into_iter().find(|pod| *pod != leads).context("a follower")?;
    for pod in [follower, leads] {
        // Before clients write: pages of the file move with every write. The second one replaces what members have in memory, so
        // that they read the first one from the file.
        let key = format!("other-data/{pod}");
        for key in [&key, "other-data/another"] {
            cluster.members().await?[0].put(key, RIGHT).await?;
            tokio::time::sleep(UNTIL_WRITTEN).await;
        }
        is_consistent(&cluster).await?;
        let former = Former::of(&cluster, &pod).await?;
        let (namespace, claim) = (cluster.namespace.clone(), format!("data-{pod}"));
        let (value, to) = (RIGHT.to_owned(), WRONG.to_owned());
        context.inject(Fault::AlterValue { claim, namespace, value, to }).await?;
        for member in cluster.members().await? {
            let expected = if member.name == pod { WRONG } else { RIGHT };
            reads(&member, &key, expected).await?;
        }
        context.step(format!("{pod} reads another value than the others"));

        let history = context.writers(&cluster).await?;
        former.gets_replaced(context, &cluster, &before).await?;
        is_consistent(&cluster).await?;
        for member in cluster.members().await? {
            reads(&member, &key, RIGHT).await?;
        }
        judged(context, history).await?;
    }
    let events = cluster.events().await?;
    let reported = |it: &str| events.iter().any(|event| event.reason.as_deref() == Some(it));
    ensure!(reported(reason::DATA_MISMATCH), "no event reports that members differ");
    cluster.agrees(&Promised::members(3)).await
}

async fn is_consistent(cluster: &Operated) -> Result<()> {
    let is = |it: &_| holds(it, condition::DATA_CONSISTENT).is_some_and(|it| it.message.contains("all 3 "));
    cluster.wait_for("all three members are compared and equal", is).await.map(drop)
}

/// From its own disk.
async fn reads(member: &Member, key: &str, expected: &str) -> Result<()> {
    let found = member.serializable_read(key).await?;
    ensure!(found.as_deref() == Some(expected), "{} reads {found:?}", member.name);
    Ok(())
}
