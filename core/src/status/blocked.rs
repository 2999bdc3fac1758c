//! What blocks the operator or the clients of a cluster, in words.

use super::conditions::{Value, find};
use super::view::{START_SECONDS, Service, View};
use crate::assess::PodState;
use crate::names::{condition, reason};
use crate::observed::{Alarm, MemberId, NodeLoss, Ordinal};
use crate::plan::Refusal;
use crate::quorum::quorum;
use crate::validate::Problem;

impl View<'_> {
    /// Why nothing more happens until a user or program changes something, if so.
    pub fn stall(&self) -> Option<(&'static str, String)> {
        match self.basis.spec {
            _ if self.seen().cluster.deleting => None,
            Err(problems) => Some((reason::INVALID_SPEC, problems_of(problems))),
            Ok(_) => self.blocked(),
        }
    }

    /// The same, as far as it does not depend on whether the spec is valid.
    pub fn blocked(&self) -> Option<(&'static str, String)> {
        // That an edit is held, fails its trial or lacks a copy concerns no member, and other conditions report it.
        let elsewhere = |it: &&Refusal| {
            matches!(it, Refusal::EditHeld | Refusal::PreflightFailed { .. } | Refusal::NoCopy { .. })
        };
        let refusals = self.basis.plan.refusals.iter().filter(|it| !elsewhere(it));
        let refusals: Vec<_> = refusals.collect();
        if let Some(first) = refusals.first() {
            let texts: Vec<_> = refusals.iter().map(|refusal| self.terms().refused(refusal)).collect();
            return Some((first.reason(), texts.join("; ")));
        }
        match self.service {
            _ if self.recovers() => None,
            Service::Lost { .. } => Some((reason::QUORUM_LOST, self.without_quorum())),
            Service::Unproven { long: true } => Some((reason::MEMBERS_UNREACHABLE, self.without_quorum())),
            Service::NotBootstrapped => self.cannot_form(),
            // The plan refuses to act then.
            Service::Denied | Service::Unproven { long: false } | Service::Available | Service::Stopped => {
                None
            }
        }
    }

    /// Each alarm, the member that raised it and the way out, if there are any.
    pub fn alarms(&self) -> Option<String> {
        let alarms = self.facts.alarms();
        let described: Vec<_> = alarms
            .iter()
            .map(|alarm| format!("{} on {}", alarm.kind, self.known_name(alarm.member)))
            .collect();
        let all = |kind: &str| alarms.iter().all(|alarm| alarm.kind == kind);
        let about_data = |it: &Refusal| matches!(it, Refusal::NoMajority { .. } | Refusal::CorruptAgain);
        let refusals = &self.basis.plan.refusals;
        let way_out = if all(Alarm::NOSPACE) {
            match refusals.iter().any(|it| matches!(it, Refusal::DatabaseFull { .. })) {
                true => "etcd rejects writes: see condition Stalled",
                false => "etcd rejects writes until the operator has reclaimed space",
            }
        } else if all(Alarm::CORRUPT) && refusals.iter().any(about_data) {
            "etcd rejects requests: see condition Stalled"
        } else if all(Alarm::CORRUPT) && self.is_compared() {
            "etcd rejects requests until the operator has replaced the members whose data differs from that of a majority"
        } else {
            "etcd rejects requests: remove the cause, then run etcdctl alarm disarm"
        };
        (!alarms.is_empty()).then(|| format!("alarm {}; {way_out}", described.join(", ")))
    }

    fn is_compared(&self) -> bool {
        let voters = self.facts.listed().map_or(0, |members| members.voters().count());
        self.basis.goal.consistency_interval_seconds.is_some() && !self.basis.goal.paused && voters > 1
    }

    /// With its pod, also while no quorum lists the members.
    fn known_name(&self, id: MemberId) -> String {
        let mut before = self.before.members.iter();
        let name = before.find(|it| it.id == Some(id.to_string())).and_then(|it| it.name.clone());
        match self.facts.listed() {
            Some(_) => self.terms().member(id),
            None => name.map_or_else(|| id.to_string(), |name| format!("{name} ({id})")),
        }
    }

    /// What is known of a quorum that does not serve.
    pub fn without_quorum(&self) -> String {
        let what = match self.service {
            _ if self.recovers() => "one member is about to continue alone, with consent".into(),
            Service::Lost { able, voters } if able < quorum(voters) => format!(
                "{able} of {voters} voting members can serve and quorum needs {}: {}",
                quorum(voters),
                match self.rollout().map(|rollout| rollout.stalled().0) {
                    Some(Value::True) => "see condition RolloutStalled",
                    _ => "the operator makes no changes until members return",
                }
            ),
            Service::Lost { .. } => {
                "members respond but cannot elect a leader: check the network on port 2380".into()
            }
            Service::NotBootstrapped
            | Service::Stopped
            | Service::Available
            | Service::Denied
            | Service::Unproven { .. } => {
                "no member serves linearizable reads: members are down or unreachable from the operator"
                    .into()
            }
        };
        let known: Vec<_> = self.last_known_voters().filter_map(|(_, ordinal)| ordinal).collect();
        let wanted = Ordinal::below(self.basis.goal.size);
        let voters = if known.is_empty() { wanted.collect() } else { known };
        let (lost, others): (Vec<_>, Vec<_>) =
            voters.into_iter().partition(|it| self.node_loss(*it).is_some());
        let down = others.into_iter().filter_map(|ordinal| self.why_down(ordinal));
        std::iter::once(what)
            .chain(self.alarms())
            .chain(down)
            .chain(self.on_lost_nodes(&lost))
            .chain(self.recovery_offer())
            .collect::<Vec<_>>()
            .join("; ")
    }

    fn node_loss(&self, ordinal: Ordinal) -> Option<&NodeLoss> {
        self.seen().pods.get(&ordinal)?.loss.as_ref()
    }

    /// Without a quorum no member can be replaced.
    fn on_lost_nodes(&self, pods: &[Ordinal]) -> Option<String> {
        let lost = pods.iter().filter_map(|&it| {
            let loss = self.node_loss(it)?;
            Some(format!("{}: {loss}", self.basis.names.pod(it)))
        });
        let lost: Vec<_> = lost.collect();
        (!lost.is_empty()).then(|| {
            format!(
                "{}; bring these nodes back, because members on lost nodes are replaced only while a quorum serves; if they are lost \
                 for good, restore a backup into a new cluster",
                lost.join("; ")
            )
        })
    }

    /// Why etcd does not run in this pod, if so.
    pub fn why_down(&self, ordinal: Ordinal) -> Option<String> {
        let state = self.facts.pod(ordinal);
        (*state != PodState::Running).then(|| format!("{}: {}", self.basis.names.pod(ordinal), state.text()))
    }

    /// Wanted pods that cannot start as they are, or that the StatefulSet does not create.
    pub fn hopeless(&self) -> Vec<Ordinal> {
        let hopeless = |ordinal: &Ordinal| {
            let state = self.facts.pod(*ordinal);
            let missing = matches!(state, PodState::Missing | PodState::Rejected(_));
            state.cannot_start() || missing && ordinal.0 < self.seen().replicas()
        };
        Ordinal::below(self.basis.goal.size).filter(hopeless).collect()
    }

    /// So many pods are hopeless, and have had their time, that no cluster can bootstrap.
    fn cannot_form(&self) -> Option<(&'static str, String)> {
        let hopeless = self.hopeless();
        let stalled = find(&self.before.conditions, condition::STALLED);
        let reported = stalled.is_some_and(|it| it.status == "True" && it.reason == reason::POD_START_FAILED);
        let long = reported || self.was(condition::RECONCILING, Value::True, START_SECONDS);
        if !long || hopeless.is_empty() || self.size() - hopeless.len() >= quorum(self.size()) {
            return None;
        }
        let unexplained = hopeless.iter().any(|&ordinal| *self.facts.pod(ordinal) == PodState::Missing);
        let mut why: Vec<_> = hopeless.into_iter().filter_map(|ordinal| self.why_down(ordinal)).collect();
        why.extend(
            unexplained.then(|| format!("see kubectl describe statefulset {}", self.basis.names.cluster)),
        );
        Some((reason::POD_START_FAILED, why.join("; ")))
    }
}

/// All rules that the spec breaks.
pub(super) fn problems_of(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; ")
}
