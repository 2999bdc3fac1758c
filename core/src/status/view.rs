//! What one observation means: whether a quorum serves, and whether the members are those that are wanted.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::Basis;
use super::conditions::{History, Value, find};
use crate::api::{EtcdClusterStatus, MemberStatus, Phase, Role};
use crate::names::{condition, reason};
use crate::observed::{MemberId, Members, Observed, Ordinal, Seen};
use crate::plan::{Action, PodCause, Refusal, Terms, WaitingOn};
use crate::quorum::quorum;
use crate::version::Version;

/// How long a quorum can be missing before that is called a failure: elections and restarts take seconds.
const PATIENCE_SECONDS: i64 = 10;
/// How long pods can take to start before that is called a failure: images and volumes take their time.
pub(super) const START_SECONDS: i64 = 120;

pub(super) struct View<'a> {
    pub basis: &'a Basis<'a>,
    pub before: &'a EtcdClusterStatus,
    pub quorum: Quorum,
    history: History<'a>,
}

/// Whether reads and writes work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Quorum {
    /// No cluster has formed yet.
    NotYet,
    /// No member is meant to run.
    Stopped,
    Serves,
    /// No member serves, and it is not known that none can. `long`: it takes longer than elections and restarts do.
    Unclear {
        long: bool,
    },
    /// It is known that too few members can serve.
    Lost {
        able: usize,
        voters: usize,
    },
}

impl<'a> View<'a> {
    pub fn new(basis: &'a Basis<'a>, before: &'a EtcdClusterStatus, history: History<'a>) -> Self {
        let quorum = Quorum::NotYet;
        let mut view = Self { basis, before, quorum, history };
        view.quorum = view.look_for_quorum();
        view
    }

    pub fn seen(&self) -> &'a Observed {
        self.basis.seen
    }

    pub fn terms(&self) -> Terms<'a> {
        Terms::Names { names: self.basis.names, seen: self.basis.seen }
    }

    pub fn size(&self) -> usize {
        usize::from(self.basis.goal.size)
    }

    /// What etcd lists, unless it is another cluster's list.
    pub fn members(&self) -> Option<&'a Members> {
        let members = self.seen().etcd.members.known()?;
        self.seen().formed().is_none_or(|formed| formed == members.cluster).then_some(members)
    }

    /// Voters that have just served a linearizable read.
    pub fn ready(&self) -> BTreeSet<MemberId> {
        let Some(members) = self.members() else { return BTreeSet::new() };
        let serving = self.seen().serving();
        members.voters().map(|(id, _)| id).filter(|id| serving.contains(id)).collect()
    }

    /// How many members exist, if that is known.
    pub fn member_count(&self) -> Option<i32> {
        match self.quorum {
            Quorum::NotYet | Quorum::Stopped => Some(0),
            Quorum::Serves | Quorum::Unclear { .. } | Quorum::Lost { .. } => {
                self.members().map(|members| i32::try_from(members.list.len()).unwrap_or(i32::MAX))
            }
        }
    }

    /// Of the members that respond.
    pub fn lowest_version(&self) -> Option<Version> {
        let ours = self.seen().formed();
        let answers = self.seen().etcd.answers.values().filter_map(Seen::known);
        answers.filter(|answer| Some(answer.cluster) == ours).filter_map(|answer| answer.version).min()
    }

    /// Exactly the wanted members are there as voters, as far as is known, whether they serve or not.
    pub fn is_as_wanted(&self) -> bool {
        let size = self.basis.goal.size;
        let members_are = match self.members() {
            Some(members) => {
                let wanted =
                    |ordinal: Ordinal| members.at(ordinal).is_some_and(|(_, member)| !member.learner);
                members.list.len() == self.size() && Ordinal::below(size).all(wanted)
            }
            None => self.last_known_voters().count() == self.size(),
        };
        members_are && size > 0 && self.seen().replicas() == size
    }

    pub fn all_serve(&self) -> bool {
        self.is_as_wanted() && self.ready().len() == self.size()
    }

    /// Whether something is changed or awaited, beyond bookkeeping.
    pub fn is_under_way(&self) -> bool {
        let plan = self.basis.plan;
        let keeps_books = |action: &Action| {
            let bookkeeping = matches!(
                action,
                Action::RecordFormed { .. } | Action::LabelClaim { .. } | Action::DeleteOrder { .. }
            );
            bookkeeping && (self.is_as_wanted() || self.size() == 0)
        };
        !plan.actions.iter().all(keeps_books) || plan.waiting.iter().any(|it| *it != WaitingOn::Unpause)
    }

    /// Steps that follow each other within milliseconds. Each has its event; to write a status for each would take longer
    /// than they do.
    pub fn prepares_formation(&self) -> bool {
        let prepares = |action: &Action| {
            matches!(
                action,
                Action::AddFinalizer
                    | Action::CreateOrder { .. }
                    | Action::ArmOrder { .. }
                    | Action::SetReplicas { .. }
            )
        };
        self.quorum == Quorum::NotYet && self.basis.plan.actions.iter().all(prepares)
    }

    pub fn phase(&self) -> Phase {
        let awaits_only_quorum =
            self.basis.plan.actions.is_empty()
                && self.basis.plan.waiting.iter().all(|it| {
                    matches!(it, WaitingOn::Quorum { .. } | WaitingOn::Leader | WaitingOn::Unpause)
                });
        let creating = self.quorum == Quorum::NotYet || self.seen().order.is_some();
        let cannot_begin = self.basis.spec.is_err() && self.quorum == Quorum::NotYet;
        if self.seen().cluster.deleting {
            Phase::Deleting
        } else if self.is_stopped() {
            Phase::Stopped
        } else if cannot_begin || self.blocked().is_some() && !self.all_serve() {
            Phase::Failed
        } else if creating && self.size() > 0 && !self.all_serve() {
            Phase::Creating
        } else if self.is_as_wanted() && (awaits_only_quorum || !self.is_under_way()) {
            Phase::Running
        } else {
            Phase::Scaling
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.quorum == Quorum::Stopped && self.seen().pods.is_empty() && !self.is_under_way()
    }

    /// Since when a member has not served, if that is recorded.
    pub fn not_ready_since(&self, id: MemberId) -> Option<Timestamp> {
        let id = id.to_string();
        let mut known = self.before.members.iter();
        let member = known.find(|it| it.id.as_ref() == Some(&id) && !it.ready);
        member.map_or(Some(self.seen().now), |it| it.last_transition_time.as_ref().map(|time| time.0))
    }

    /// Those of the last status; which pods they belong to is told by their names.
    pub fn last_known_voters(&self) -> impl Iterator<Item = (&'a MemberStatus, Option<Ordinal>)> {
        let listed =
            self.before.members.iter().filter(|it| it.id.is_some() && it.role != Some(Role::Learner));
        let names = self.basis.names;
        listed.map(|it| (it, it.name.as_deref().and_then(|name| names.ordinal_of_pod(name))))
    }

    fn look_for_quorum(&self) -> Quorum {
        let seen = self.seen();
        let formed = seen.formed().is_some() || seen.claims_tell_of_members();
        // While the spec is invalid, a cluster without pods may as well be one that never bootstrapped.
        if self.size() == 0 && seen.replicas() == 0 && (formed || self.basis.spec.is_ok()) {
            return Quorum::Stopped;
        }
        if !formed {
            return Quorum::NotYet;
        }
        if self.members().is_some() {
            return Quorum::Serves;
        }
        let voters: Vec<_> = self.last_known_voters().map(|(_, ordinal)| ordinal).collect();
        let able = voters.iter().flatten().filter(|ordinal| PodCause::of(seen, **ordinal).is_none()).count();
        // Lost data does not return with patience.
        let long = self.basis.plan.refusals.contains(&Refusal::DataLost)
            || self.was_without_quorum()
            || self.was(condition::AVAILABLE, Value::Unknown, patience(&voters));
        let mut answers = seen.etcd.answers.values().filter_map(Seen::known);
        let answers_alone = answers.any(|it| Some(it.cluster) == seen.formed() && !it.linearizable);
        if long && !voters.is_empty() && (able < quorum(voters.len()) || answers_alone) {
            return Quorum::Lost { able, voters: voters.len() };
        }
        Quorum::Unclear { long }
    }

    /// Once it is reported, it stays reported until a quorum serves, however little is known in between.
    fn was_without_quorum(&self) -> bool {
        let stalled = find(&self.before.conditions, condition::STALLED).filter(|it| it.status == "True");
        let available = find(&self.before.conditions, condition::AVAILABLE);
        let without = [reason::QUORUM_LOST, reason::MEMBERS_UNREACHABLE];
        stalled.is_some_and(|it| without.contains(&it.reason.as_str()))
            || available.is_some_and(|it| it.reason == reason::QUORUM_LOST)
    }

    /// Whether the condition has had this value for so long.
    pub fn was(&self, type_: &str, value: Value, seconds: i64) -> bool {
        let elapsed = |since: Timestamp| self.history.now.as_second() - since.as_second();
        self.history.since(type_, value).is_some_and(|since| elapsed(since) >= seconds)
    }
}

/// A cluster whose members are not known is one that starts after a stop.
fn patience(voters: &[Option<Ordinal>]) -> i64 {
    if voters.is_empty() { START_SECONDS } else { PATIENCE_SECONDS }
}
