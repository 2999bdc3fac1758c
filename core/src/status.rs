//! The status of each kind: the facts of an observation, what is wanted, and since when. What is not known is not claimed.
//! `docs/status.md` explains it to users.

mod auth;
mod backup;
mod blocked;
mod conditions;
mod consistency;
mod copy;
mod facts;
mod members;
mod panicked;
mod preflight;
mod recovery;
mod rollout;
mod spread;
mod tls;
mod trouble;
mod unobserved;
mod view;
mod volumes;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{EtcdCluster, EtcdClusterStatus};
use crate::decide::Goal;
use crate::desired::PodAgent;
use crate::intent::Intent;
use crate::names::Names;
use crate::observed::{Observed, Ordinal};
use crate::plan::Plan;
use crate::tls::Transport;
use crate::validate::Problem;
use crate::version::Version;
pub(crate) use conditions::{Fact, History, Value, find, ours};
pub use panicked::after_panic;
pub use trouble::{FailedWrite, Trouble};
pub use unobserved::after_denied_read;
use view::View;

/// How old `observedAt` can become while nothing changes.
const HEARTBEAT_SECONDS: i64 = 300;

/// What a status is computed from: what was observed and decided in one round.
pub struct Basis<'a> {
    pub goal: &'a Goal,
    /// What the spec asks for, or the rules that it breaks; then the goal is what is in effect.
    pub spec: Result<&'a Intent, &'a [Problem]>,
    pub names: &'a Names,
    pub seen: &'a Observed,
    pub plan: &'a Plan,
    /// Why the last step was not done, if nothing has been done since.
    pub trouble: Option<&'a Trouble>,
    pub failed_writes: &'a [FailedWrite],
    /// Fields whose edit the volumes do not have, from [`crate::desired::not_applied`].
    pub not_applied: &'a [&'static str],
    /// Fields in which the form that members should have differs from the last one that all of them had.
    pub edited: &'a [&'static str],
    /// Of each pod.
    pub agents: &'a BTreeMap<Ordinal, PodAgent>,
}

impl Basis<'_> {
    /// What is in effect, or will be.
    fn transport(&self) -> Transport {
        let asked_for = || self.spec.ok().map(|intent| intent.form.transport);
        self.seen.transport.or_else(asked_for).unwrap_or_default()
    }
}

/// The status to write, or nothing when the one that is there says the same and is fresh enough.
///
/// Its writer replaces all of it. So it has to be computed from the newest status, and the write has to fail if that
/// one was replaced.
pub fn of_cluster(cluster: &EtcdCluster, basis: &Basis<'_>, now: Timestamp) -> Option<EtcdClusterStatus> {
    let before = cluster.status.clone().unwrap_or_default();
    let history = History { before: &before.conditions, generation: cluster.metadata.generation, now };
    let next = EtcdClusterStatus {
        observed_generation: cluster.metadata.generation,
        ..seen(cluster, &before, basis, history)
    };
    let unchanged = next == EtcdClusterStatus { conditions: ours(&before.conditions), ..before.clone() };
    let age = before.observed_at.as_ref().map(|time| now.as_second() - time.0.as_second());
    let observed_at = Some(Time(now));
    match (unchanged, age) {
        (true, Some(age)) if age < HEARTBEAT_SECONDS => None,
        (true, _) => Some(EtcdClusterStatus { observed_at, ..next }),
        (false, _) => Some(EtcdClusterStatus { observed_at, last_update_time: Some(Time(now)), ..next }),
    }
}

/// When the status has to be written again although it says nothing new, if it was ever written.
pub fn next_heartbeat(cluster: &EtcdCluster) -> Option<Timestamp> {
    let Time(observed_at) = cluster.status.as_ref()?.observed_at.as_ref()?;
    observed_at.checked_add(SignedDuration::from_secs(HEARTBEAT_SECONDS)).ok()
}

/// Times and recorded facts are those of before.
fn seen(
    cluster: &EtcdCluster,
    before: &EtcdClusterStatus,
    basis: &Basis<'_>,
    history: History<'_>,
) -> EtcdClusterStatus {
    let view = View::new(basis, before, history);
    let formed = basis.seen.cluster.formed.as_ref();
    let selector: Vec<_> =
        basis.names.selector().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    EtcdClusterStatus {
        phase: Some(view.phase()),
        replicas: view.member_count().or(before.replicas),
        ready_replicas: Some(i32::try_from(view.ready()).unwrap_or(i32::MAX)),
        version: view.lowest_version().map(|version| in_the_form_of(&cluster.spec.version, version)),
        members: members::members(&view),
        leader_id: view.facts.listed().and_then(|members| members.leader).map(|leader| leader.to_string()),
        cluster_id: before.cluster_id.clone().or_else(|| formed.map(|formed| formed.id.to_string())),
        formed_at: before.formed_at.clone().or_else(|| formed.map(|formed| Time(formed.since))),
        domain: before.domain.clone().or_else(|| Some(basis.names.domain.clone())),
        client_endpoints: vec![basis.names.endpoint(basis.transport().clients.scheme())],
        selector: Some(selector.join(",")),
        conditions: history.conditions(facts::of(&view, cluster)),
        awaited_backup: copy::awaited(&view),
        last_backup_time: backup::last_success(&basis.seen.backups)
            .map(Time)
            .or(before.last_backup_time.clone()),
        ..before.clone()
    }
}

/// With the leading `v` if users write it.
fn in_the_form_of(written: &str, version: Version) -> String {
    if written.starts_with('v') { format!("v{version}") } else { version.to_string() }
}

#[cfg(test)]
mod tests;
