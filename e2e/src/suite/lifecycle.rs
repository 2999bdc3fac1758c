//! Clusters that the operator runs, from birth to deletion, with clients that write and read all the time and are
//! judged by what they saw.

mod removal;
mod scaling;
mod stopping;
mod surroundings;
mod truth;
mod versions;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::condition;
use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::LIMIT;
use crate::history::History;
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::test::{Test, Topology};

pub(super) const NAME: &str = "kv";
/// In which no client can write, while members come and go one after the other.
const LONGEST_GAP: Duration = Duration::from_secs(2);

pub fn tests(field: &Topology) -> Vec<Test> {
    vec![
        field.shared("lifecycle::one_member_is_created", |c| scaling::created(c, 1).boxed_local()),
        field
            .shared("lifecycle::three_members_are_created", |c| scaling::created(c, 3).boxed_local())
            .smoke(),
        field.shared("lifecycle::five_members_are_created", |c| scaling::created(c, 5).boxed_local()),
        field.shared("lifecycle::seven_members_are_created", |c| scaling::created(c, 7).boxed_local()),
        field.exclusive("lifecycle::one_to_three_to_five_and_back_over_two", |c| {
            scaling::without_gap(c, 1, &[3, 5, 3, 2, 1]).boxed_local()
        }),
        field.shared("lifecycle::one_to_nine", |c| scaling::through(c, 1, &[9]).boxed_local()),
        field
            .shared("lifecycle::a_change_of_mind_leaves_nothing_behind", |c| {
                scaling::change_of_mind(c).boxed_local()
            })
            .smoke(),
        field
            .shared("lifecycle::stopped_and_started_with_its_data", |c| {
                stopping::one_three_one_none_one(c).boxed_local()
            })
            .smoke(),
        field.shared("lifecycle::three_members_stop_and_start", |c| {
            stopping::three_none_three(c).boxed_local()
        }),
        field.shared("lifecycle::a_stop_that_keeps_all_volumes", |c| stopping::retain_all(c).boxed_local()),
        field.shared("lifecycle::a_stop_that_keeps_no_volume", |c| stopping::delete(c).boxed_local()),
        field
            .shared("lifecycle::kept_volumes_are_not_taken_by_a_cluster_of_the_same_name", |c| {
                removal::recreated(c).boxed_local()
            })
            .smoke(),
        field.shared("lifecycle::deleted_with_its_volumes", |c| removal::with_volumes(c).boxed_local()),
        field.shared("lifecycle::nothing_happens_while_paused", |c| surroundings::paused(c).boxed_local()),
        field.shared("lifecycle::the_disruption_budget_can_be_disabled", |c| {
            surroundings::disruption_budget(c).boxed_local()
        }),
        field.shared("lifecycle::a_network_policy_follows_its_field", |c| {
            surroundings::network_policy(c).boxed_local()
        }),
        field.shared("lifecycle::reached_from_outside_with_tools_beside_it", |c| {
            surroundings::from_outside(c).boxed_local()
        }),
        field.exclusive("lifecycle::pods_come_back_while_the_operator_is_away", |c| {
            surroundings::operator_away(c).boxed_local()
        }),
        field
            .shared("lifecycle::an_invalid_spec_stops_nothing", |c| truth::invalid_spec(c).boxed_local())
            .smoke(),
        field
            .shared("lifecycle::a_taken_node_port_holds_nothing_else_up", |c| {
                truth::taken_node_port(c).boxed_local()
            })
            .smoke(),
        field.shared("lifecycle::an_alarm_is_reported", |c| truth::alarm(c).boxed_local()).smoke(),
        field
            .shared("lifecycle::rejected_pods_are_reported", |c| truth::pods_rejected(c).boxed_local())
            .smoke(),
        field.shared("lifecycle::a_member_that_is_down_is_waited_for", |c| {
            truth::member_down(c).boxed_local()
        }),
        field.shared("lifecycle::a_compute_quota_lets_a_cluster_start", |c| {
            surroundings::compute_quota(c).boxed_local()
        }),
        field.shared("lifecycle::the_smallest_volume_that_is_accepted_works", |c| {
            surroundings::smallest_volume(c).boxed_local()
        }),
        field.shared("lifecycle::etcd_3_6", |c| versions::scaled(c, "v3.6.16").boxed_local()),
        field.shared("lifecycle::etcd_3_7", |c| versions::scaled(c, "v3.7.3").boxed_local()),
        field.shared("lifecycle::an_old_etcd_3_5", |c| versions::old(c).boxed_local()),
        field.shared("lifecycle::learners_serve_no_clients", |c| {
            versions::learner(c, "v3.5.21").boxed_local()
        }),
    ]
}

/// A cluster that is settled, and clients that write.
pub(super) async fn born(context: &Context, size: u8, more: Value) -> Result<(Operated, History)> {
    let cluster = asked_for(context, size, more).await?;
    cluster.wait_until_settled(size).await?;
    let history = context.writers(&cluster).await?;
    Ok((cluster, history))
}

/// Only asked for. `more` is what the spec says besides.
pub(super) async fn asked_for(context: &Context, size: u8, more: Value) -> Result<Operated> {
    let mut spec = json!({"size": size, "storage": {"size": "1Gi"}});
    merge(&mut spec, more);
    let cluster = context.operated(NAME, spec).await?;
    context.step(format!("requested {NAME} with {size} member(s)"));
    Ok(cluster)
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// Edits the size, waits until that is done, and looks at everything.
pub(super) async fn scaled(cluster: &Operated, size: u8) -> Result<()> {
    cluster.scale(size).await?;
    cluster.wait_until_settled(size).await?;
    cluster.agrees(&Promised::members(size)).await
}

/// The last word on what clients saw.
pub(super) async fn judged(context: &Context, history: History) -> Result<()> {
    history.goes_on(LIMIT).await?;
    let verdict = history.stop(LIMIT).await?;
    context.step(format!("{verdict:?}"));
    Ok(())
}

/// Such a cluster is never without a voter, and its changes are planned. For exclusive tests: it is a safety net, and load
/// would tear it. `make bench` measures.
pub(super) async fn judged_without_gap(context: &Context, history: History) -> Result<()> {
    history.goes_on(LIMIT).await?;
    let verdict = history.stop(LIMIT).await?;
    context.step(format!("{verdict:?}"));
    ensure!(verdict.longest_gap <= LONGEST_GAP, "clients could not write for {:?}", verdict.longest_gap);
    Ok(())
}

/// What must survive: the identity of the cluster, and everything written.
pub(super) struct Identity {
    cluster_id: u64,
    revision: i64,
}

impl Identity {
    pub(super) async fn of(cluster: &Operated) -> Result<Self> {
        Ok(Self { cluster_id: cluster.cluster_id().await?, revision: cluster.revision().await? })
    }

    pub(super) async fn is_still_that_of(&self, cluster: &Operated) -> Result<()> {
        let now = Self::of(cluster).await.context("the identity of the cluster")?;
        ensure!(
            now.cluster_id == self.cluster_id,
            "another cluster: {:x}, was {:x}",
            now.cluster_id,
            self.cluster_id
        );
        ensure!(
            now.revision >= self.revision,
            "the revision went back from {} to {}",
            self.revision,
            now.revision
        );
        Ok(())
    }
}

/// Why nothing more will happen until somebody acts, if the operator says so of the newest spec.
fn stalled(cluster: &EtcdCluster) -> Option<Condition> {
    let status = cluster.status.as_ref()?;
    let newest = status.observed_generation == cluster.metadata.generation;
    let mut conditions = status.conditions.iter().filter(|_| newest);
    conditions.find(|it| it.type_ == condition::STALLED && it.status == "True").cloned()
}
