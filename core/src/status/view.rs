//! What one look means: whether a quorum serves, whether the members are those that are wanted, and what stands in
//! the way.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::Round;
use super::conditions::{History, Value, find};
use crate::api::{EtcdClusterStatus, MemberStatus, Phase, Role};
use crate::names::{condition, reason};
use crate::observed::{MemberId, Members, Observed, Ordinal, Process, Seen};
use crate::plan::{Action, Refusal, Terms, WaitingOn};
use crate::quorum::quorum;

/// How long a quorum may be away before that is called a failure: elections and restarts take a moment.
const PATIENCE_SECONDS: i64 = 10;
/// How long pods may take to come up before that is called a failure: images and volumes take their time.
const START_SECONDS: i64 = 120;

pub(super) struct View<'a> {
    pub round: &'a Round<'a>,
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
    /// Nobody serves, and nothing tells that nobody could. `long`: it takes longer than elections and restarts do.
    Unclear {
        long: bool,
    },
    /// It is known that too few can serve.
    Lost {
        able: usize,
        voters: usize,
    },
}

impl<'a> View<'a> {
    pub fn new(round: &'a Round<'a>, before: &'a EtcdClusterStatus, history: History<'a>) -> Self {
        let quorum = Quorum::NotYet;
        let mut view = Self { round, before, quorum, history };
        view.quorum = view.look_for_quorum();
        view
    }

    pub fn seen(&self) -> &'a Observed {
        self.round.seen
    }

    pub fn terms(&self) -> Terms<'a> {
        Terms::Names { names: self.round.names, seen: self.round.seen }
    }

    pub fn size(&self) -> usize {
        usize::from(self.round.intent.size)
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

    /// Exactly the wanted members are there as voters, as far as is known, whether they serve or not.
    pub fn is_as_wanted(&self) -> bool {
        let size = self.round.intent.size;
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

    /// Whether something is changed or awaited, beyond keeping the books.
    pub fn is_under_way(&self) -> bool {
        let plan = self.round.plan;
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
        self.quorum == Quorum::NotYet && self.round.plan.actions.iter().all(prepares)
    }

    pub fn phase(&self) -> Phase {
        let awaits_only_etcd = self.round.plan.actions.is_empty()
            && self
                .round
                .plan
                .waiting
                .iter()
                .all(|it| matches!(it, WaitingOn::Etcd { .. } | WaitingOn::Unpause));
        let creating = self.quorum == Quorum::NotYet || self.seen().order.is_some();
        if self.seen().cluster.deleting {
            Phase::Deleting
        } else if self.is_stopped() {
            Phase::Stopped
        } else if self.stall().is_some() && !self.all_serve() {
            Phase::Failed
        } else if creating && self.size() > 0 && !self.all_serve() {
            Phase::Creating
        } else if self.is_as_wanted() && (awaits_only_etcd || !self.is_under_way()) {
            Phase::Running
        } else {
            Phase::Scaling
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.quorum == Quorum::Stopped && self.seen().pods.is_empty() && !self.is_under_way()
    }

    /// Why nothing more will happen until somebody changes something, if so.
    pub fn stall(&self) -> Option<(&'static str, String)> {
        let refusals = &self.round.plan.refusals;
        if self.seen().cluster.deleting {
            return None;
        }
        if let Some(first) = refusals.first() {
            let texts: Vec<_> = refusals.iter().map(|refusal| self.terms().refused(refusal)).collect();
            return Some((first.reason(), texts.join("; ")));
        }
        match self.quorum {
            Quorum::Lost { .. } => Some((reason::QUORUM_LOST, self.without_quorum())),
            Quorum::Unclear { long: true } => Some((reason::NO_ANSWER, self.without_quorum())),
            Quorum::NotYet => self.cannot_form(),
            Quorum::Unclear { long: false } | Quorum::Serves | Quorum::Stopped => None,
        }
    }

    /// What is known of a quorum that does not serve.
    pub fn without_quorum(&self) -> String {
        let what = match self.quorum {
            Quorum::Lost { able, voters } if able < quorum(voters) => format!(
                "{able} of {voters} voting members can serve and {} are needed: nothing is changed until members \
                 come back",
                quorum(voters)
            ),
            Quorum::Lost { .. } => "members answer, but find no quorum among themselves".into(),
            Quorum::NotYet | Quorum::Stopped | Quorum::Serves | Quorum::Unclear { .. } => {
                "no member serves a linearizable read: they are away, or the way to them is".into()
            }
        };
        let known: Vec<_> = self.last_known_voters().filter_map(|(_, ordinal)| ordinal).collect();
        let wanted = Ordinal::below(self.round.intent.size);
        let voters = if known.is_empty() { wanted.collect() } else { known };
        let away = voters.into_iter().filter_map(|ordinal| self.why_away(ordinal));
        std::iter::once(what).chain(away).collect::<Vec<_>>().join("; ")
    }

    /// Why the etcd of this pod certainly does not run, if so.
    pub fn why_away(&self, ordinal: Ordinal) -> Option<String> {
        let name = self.round.names.pod(ordinal);
        let why = match self.seen().pods.get(&ordinal) {
            None => "its pod is not there",
            Some(pod) if pod.terminating => "its pod is ending",
            Some(pod) => match &pod.etcd {
                Process::CannotStart(reason) | Process::Failing(reason) => reason,
                Process::Beginning => Process::BEGINNING,
                Process::DataLost => "its data is gone",
                Process::Waiting | Process::Forming => "it has not started",
                Process::Started => return None,
            },
        };
        Some(format!("{name}: {why}"))
    }

    /// Those of the last status; which pods they belong to is told by their names.
    pub fn last_known_voters(&self) -> impl Iterator<Item = (&'a MemberStatus, Option<Ordinal>)> {
        let listed =
            self.before.members.iter().filter(|it| it.id.is_some() && it.role != Some(Role::Learner));
        let names = self.round.names;
        listed.map(|it| (it, it.name.as_deref().and_then(|name| names.ordinal_of_pod(name))))
    }

    fn look_for_quorum(&self) -> Quorum {
        let seen = self.seen();
        if self.size() == 0 && seen.replicas() == 0 {
            return Quorum::Stopped;
        }
        let formed = seen.formed().is_some() || seen.claims_tell_of_members();
        if !formed {
            return Quorum::NotYet;
        }
        if self.members().is_some() {
            return Quorum::Serves;
        }
        let voters: Vec<_> = self.last_known_voters().map(|(_, ordinal)| ordinal).collect();
        let able = voters.iter().flatten().filter(|ordinal| self.why_away(**ordinal).is_none()).count();
        // What is gone for good does not come back with patience.
        let long = self.round.plan.refusals.contains(&Refusal::DataLost)
            || self.was_without_quorum()
            || self.was(condition::AVAILABLE, Value::Unknown, patience(&voters));
        let mut answers = seen.etcd.answers.values().filter_map(Seen::known);
        let answers_alone = answers.any(|it| Some(it.cluster) == seen.formed() && !it.linearizable);
        if long && !voters.is_empty() && (able < quorum(voters.len()) || answers_alone) {
            return Quorum::Lost { able, voters: voters.len() };
        }
        Quorum::Unclear { long }
    }

    /// Once it is said, it stays said until a quorum serves, however little is known in between.
    fn was_without_quorum(&self) -> bool {
        let stalled = find(&self.before.conditions, condition::STALLED).filter(|it| it.status == "True");
        let available = find(&self.before.conditions, condition::AVAILABLE);
        let without = [reason::QUORUM_LOST, reason::NO_ANSWER];
        stalled.is_some_and(|it| without.contains(&it.reason.as_str()))
            || available.is_some_and(|it| it.reason == reason::QUORUM_LOST)
    }

    /// Wanted pods that cannot start as they are, or that nobody makes.
    pub fn hopeless(&self) -> Vec<Ordinal> {
        let hopeless = |ordinal: &Ordinal| match self.seen().pods.get(ordinal) {
            Some(pod) => matches!(pod.etcd, Process::CannotStart(_) | Process::Failing(_)),
            None => ordinal.0 < self.seen().replicas(),
        };
        Ordinal::below(self.round.intent.size).filter(hopeless).collect()
    }

    /// So many pods are hopeless, and have had their time, that no cluster can form.
    fn cannot_form(&self) -> Option<(&'static str, String)> {
        let hopeless = self.hopeless();
        let stalled = find(&self.before.conditions, condition::STALLED);
        let said = stalled.is_some_and(|it| it.reason == reason::PODS_CANNOT_START);
        let long = said || self.was(condition::RECONCILING, Value::True, START_SECONDS);
        if !long || hopeless.is_empty() || self.size() - hopeless.len() >= quorum(self.size()) {
            return None;
        }
        let unmade = hopeless.iter().any(|ordinal| !self.seen().pods.contains_key(ordinal));
        let mut why: Vec<_> = hopeless.into_iter().filter_map(|ordinal| self.why_away(ordinal)).collect();
        why.extend(unmade.then(|| "the StatefulSet's events tell why a pod cannot be made".into()));
        Some((reason::PODS_CANNOT_START, why.join("; ")))
    }

    /// Whether the condition has had this value for so long.
    fn was(&self, type_: &str, value: Value, seconds: i64) -> bool {
        let elapsed = |since: Timestamp| self.history.now.as_second() - since.as_second();
        self.history.since(type_, value).is_some_and(|since| elapsed(since) >= seconds)
    }
}

/// A cluster whose members are not known is one that starts after a stop.
fn patience(voters: &[Option<Ordinal>]) -> i64 {
    if voters.is_empty() { START_SECONDS } else { PATIENCE_SECONDS }
}
