//! What happened, in the words of users: one event for each step, and one for each turn of the status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::{EtcdClusterStatus, Phase};
use crate::names::{Names, condition, event, reason};
use crate::observed::{Observed, Ordinal};
use crate::plan::{Action, Terms};
use crate::status::find;

/// The API server takes notes of up to 1024 bytes.
const LONGEST_NOTE: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub warning: bool,
    /// What happened, in one word.
    pub reason: String,
    /// What the operator did or was doing, in one word.
    pub action: &'static str,
    pub note: String,
}

impl Event {
    fn new(warning: bool, reason: &str, action: &'static str, note: impl Into<String>) -> Self {
        Self { warning, reason: reason.into(), action, note: shortened(note.into()) }
    }

    fn normal(reason: &str, action: &'static str, note: impl Into<String>) -> Self {
        Self::new(false, reason, action, note)
    }
}

fn shortened(note: String) -> String {
    if note.len() <= LONGEST_NOTE {
        return note;
    }
    let end = (0..=LONGEST_NOTE).rev().find(|&end| note.is_char_boundary(end)).unwrap_or(0);
    format!("{} ...", &note[..end])
}

/// What to tell once the action is done. The snapshot is that from which it was decided. Nothing is told of what
/// only keeps the books.
pub fn of_action(action: &Action, names: &Names, seen: &Observed) -> Option<Event> {
    let terms = Terms::Names { names, seen };
    Some(match action {
        Action::AddFinalizer | Action::LabelClaim { .. } => return None,
        Action::RemoveFinalizer => Event::normal(
            event::RELEASED,
            "Delete",
            match seen.claims.is_empty() {
                true => "the cluster is released: no volume is left",
                false => "the cluster is released: its volumes stay",
            },
        ),
        Action::RecordFormed { cluster } => {
            Event::normal(event::CLUSTER_FORMED, "Bootstrap", format!("the cluster has formed as {cluster}"))
        }
        Action::CreateOrder { size } => {
            let pods: Vec<_> = Ordinal::below(*size).collect();
            let note = format!("the order to form a cluster of {} is prepared", terms.pods(&pods));
            Event::normal(event::BOOTSTRAP_PREPARED, "Bootstrap", note)
        }
        Action::ArmOrder { uid: _ } => Event::normal(
            event::BOOTSTRAP_ORDERED,
            "Bootstrap",
            "the pods may form the cluster as soon as they are there",
        ),
        Action::DeleteOrder { uid: _ } => match seen.formed() {
            Some(_) => Event::normal(
                event::BOOTSTRAP_FINISHED,
                "Bootstrap",
                "the order to form a cluster has done its work",
            ),
            None => Event::normal(
                event::BOOTSTRAP_WITHDRAWN,
                "Bootstrap",
                "the order to form a cluster is taken back",
            ),
        },
        Action::SetReplicas { replicas } => replicas_set(*replicas, terms, seen),
        Action::AdoptClaim { ordinal, uid: _ } => Event::normal(
            event::VOLUME_ADOPTED,
            "AdoptVolume",
            format!("volume {} of the former cluster is taken over", names.claim(*ordinal)),
        ),
        Action::DeleteClaim { ordinal, uid: _ } => Event::normal(
            event::VOLUME_DELETED,
            "DeleteVolume",
            format!("volume {} is deleted", names.claim(*ordinal)),
        ),
        Action::DeletePod { ordinal, uid: _ } => {
            let note = format!("{} is deleted, to come back with an empty volume", names.pod(*ordinal));
            Event::normal(event::POD_DELETED, "ReplaceMember", note)
        }
        Action::DeleteSet { uid: _ } => Event::normal(event::PODS_REMOVED, "Delete", "all pods are deleted"),
        Action::AddLearner { ordinal, cluster: _ } => Event::normal(
            event::MEMBER_ADDED,
            "AddMember",
            format!("{} is now a learner", names.pod(*ordinal)),
        ),
        Action::Promote { ordinal, member, cluster: _ } => {
            let note = format!("{} ({member}) is now a voting member", names.pod(*ordinal));
            Event::normal(event::MEMBER_PROMOTED, "PromoteMember", note)
        }
        Action::MoveLeader { from, to, cluster: _ } => {
            let note = format!("leadership moved from {} to {}", terms.member(*from), terms.member(*to));
            Event::normal(event::LEADER_MOVED, "MoveLeader", note)
        }
        Action::RemoveMember { member, cluster: _ } => {
            let note = format!("{} is no longer a member", terms.member(*member));
            Event::normal(event::MEMBER_REMOVED, "RemoveMember", note)
        }
    })
}

fn replicas_set(replicas: u8, terms: Terms<'_>, seen: &Observed) -> Event {
    let before = seen.replicas();
    let between = |from: u8, to: u8| Ordinal::below(to).skip(usize::from(from)).collect::<Vec<_>>();
    if replicas > before {
        let note = format!("pods are created: {}", terms.pods(&between(before, replicas)));
        Event::normal(event::PODS_CREATED, "CreatePods", note)
    } else {
        let note = format!("pods are taken away: {}", terms.pods(&between(replicas, before)));
        Event::normal(event::PODS_REMOVED, "RemovePods", note)
    }
}

/// What to tell when one status follows another. What has been told before is not told again.
pub fn of_change(before: Option<&EtcdClusterStatus>, after: &EtcdClusterStatus) -> Vec<Event> {
    let nothing = EtcdClusterStatus::default();
    let change = Change { before: before.unwrap_or(&nothing), after };
    [
        change.phase(),
        change.quorum(),
        change.stalled(),
        change.failing_step(),
        change.serving(),
        change.pause(),
    ]
    .into_iter()
    .flatten()
    .chain(change.warnings())
    .collect()
}

struct Change<'a> {
    before: &'a EtcdClusterStatus,
    after: &'a EtcdClusterStatus,
}

impl<'a> Change<'a> {
    /// The condition, if it has this value now and did not say the same before.
    fn news(&self, type_: &str, value: &str) -> Option<&'a Condition> {
        let now = find(&self.after.conditions, type_).filter(|it| it.status == value)?;
        let known = find(&self.before.conditions, type_).is_some_and(|then| {
            then.status == now.status && then.reason == now.reason && then.message == now.message
        });
        (!known).then_some(now)
    }

    /// Whether the condition has just taken this value.
    fn turned(&self, type_: &str, value: &str) -> Option<&'a Condition> {
        let was = find(&self.before.conditions, type_).is_some_and(|it| it.status == value);
        find(&self.after.conditions, type_).filter(|it| it.status == value && !was)
    }

    /// Other phases are told step by step, and a failure by its cause.
    fn phase(&self) -> Option<Event> {
        if self.before.phase == self.after.phase {
            return None;
        }
        match self.after.phase? {
            Phase::Running => {
                let ready = find(&self.after.conditions, condition::READY);
                let note = ready.map_or("the cluster runs", |ready| ready.message.as_str());
                Some(Event::normal(event::RUNNING, "Report", note))
            }
            Phase::Stopped => Some(Event::normal(event::STOPPED, "Report", "no member runs")),
            Phase::Creating | Phase::Scaling | Phase::Upgrading | Phase::Failed | Phase::Deleting => None,
        }
    }

    fn quorum(&self) -> Option<Event> {
        let lost = self.turned(condition::QUORUM_LOST, "True");
        let was_lost =
            find(&self.before.conditions, condition::QUORUM_LOST).is_some_and(|it| it.status == "True");
        let serves = find(&self.after.conditions, condition::AVAILABLE).is_some_and(|it| it.status == "True");
        match lost {
            Some(lost) => Some(Event::new(true, reason::QUORUM_LOST, "Report", &lost.message)),
            None if was_lost && serves => Some(Event::normal(
                event::QUORUM_REGAINED,
                "Report",
                "a quorum serves reads and writes again",
            )),
            None => None,
        }
    }

    /// A lost quorum has been told already.
    fn stalled(&self) -> Option<Event> {
        let stalled = self.news(condition::STALLED, "True").filter(|it| it.reason != reason::QUORUM_LOST)?;
        let before = find(&self.before.conditions, condition::STALLED);
        let same = before.is_some_and(|it| it.status == "True" && it.reason == stalled.reason);
        (!same).then(|| Event::new(true, &stalled.reason, "Reconcile", &stalled.message))
    }

    fn failing_step(&self) -> Option<Event> {
        let failed =
            self.news(condition::RECONCILING, "True").filter(|it| it.reason == reason::STEP_FAILED)?;
        Some(Event::new(true, reason::STEP_FAILED, "Reconcile", &failed.message))
    }

    /// Members that go and come while the cluster runs.
    fn serving(&self) -> Option<Event> {
        if self.before.phase != Some(Phase::Running) || self.after.phase != Some(Phase::Running) {
            return None;
        }
        let away = self.news(condition::READY, "False").filter(|it| it.reason == reason::MEMBERS_NOT_SERVING);
        let was_away = find(&self.before.conditions, condition::READY)
            .is_some_and(|it| it.reason == reason::MEMBERS_NOT_SERVING);
        let back = self.turned(condition::READY, "True").filter(|_| was_away);
        match (away, back) {
            (Some(away), _) => Some(Event::new(true, reason::MEMBERS_NOT_SERVING, "Report", &away.message)),
            (None, Some(back)) => Some(Event::normal(reason::ALL_MEMBERS_SERVE, "Report", &back.message)),
            (None, None) => None,
        }
    }

    fn pause(&self) -> Option<Event> {
        let is = |status: &EtcdClusterStatus| find(&status.conditions, condition::PAUSED).is_some();
        match (is(self.before), is(self.after)) {
            (false, true) => {
                Some(Event::normal(event::PAUSED, "Pause", "the operator only watches from now on"))
            }
            (true, false) => Some(Event::normal(event::RESUMED, "Resume", "the operator acts again")),
            (true, true) | (false, false) => None,
        }
    }

    /// Their texts follow from the spec, so they change only with it.
    fn warnings(&self) -> Vec<Event> {
        [
            (condition::TLS_READY, "False"),
            (condition::SPEC_WARNING, "True"),
            (condition::DRAINS_BLOCKED, "True"),
        ]
        .into_iter()
        .filter_map(|(type_, value)| self.news(type_, value))
        .map(|it| Event::new(true, &it.reason, "Check", &it.message))
        .collect()
    }
}

#[cfg(test)]
mod tests;
