//! What a status reports of one observation: the facts, what is wanted, and since when.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Basis;
use super::conditions::{History, Value, find};
use crate::api::{EtcdClusterStatus, MemberStatus, Phase, Role};
use crate::assess::{Assessment, PodState, Quorum, assess};
use crate::names::{condition, reason};
use crate::observed::{Observed, Ordinal, Unanswered};
use crate::plan::{Action, Terms, WaitingOn};
use crate::quorum::quorum;
use crate::tls::Stage;
use crate::version::Version;

/// How long a quorum can be missing before that is called a failure: elections and restarts take seconds.
const PATIENCE_SECONDS: i64 = 10;
/// How long pods can take to start before that is called a failure: images and volumes take their time.
pub(super) const START_SECONDS: i64 = 120;

pub(super) struct View<'a> {
    pub basis: &'a Basis<'a>,
    pub before: &'a EtcdClusterStatus,
    pub facts: Assessment<'a>,
    pub service: Service,
    history: History<'a>,
}

/// Whether reads and writes work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Service {
    NotBootstrapped,
    /// No member is meant to run.
    Stopped,
    Available,
    /// No member serves, and it is not known that none can. `long`: it takes longer than elections and restarts do.
    Unproven {
        long: bool,
    },
    /// It is known that too few members can serve.
    Lost {
        able: usize,
        voters: usize,
    },
    /// etcd's authentication rejects the operator, which therefore does not know the members.
    Denied,
}

impl<'a> View<'a> {
    pub fn new(basis: &'a Basis<'a>, before: &'a EtcdClusterStatus, history: History<'a>) -> Self {
        let (facts, service) = (assess(basis.seen), Service::NotBootstrapped);
        let mut view = Self { basis, before, facts, service, history };
        view.service = view.service();
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

    /// How many voters serve.
    pub fn ready(&self) -> usize {
        self.facts.serving().count()
    }

    /// How many members exist, if that is known.
    pub fn member_count(&self) -> Option<i32> {
        match self.service {
            Service::NotBootstrapped | Service::Stopped => Some(0),
            Service::Available | Service::Unproven { .. } | Service::Lost { .. } | Service::Denied => {
                self.facts.listed().map(|members| i32::try_from(members.list.len()).unwrap_or(i32::MAX))
            }
        }
    }

    /// Of the members that respond.
    pub fn lowest_version(&self) -> Option<Version> {
        self.facts.answers().filter_map(|answer| answer.version).min()
    }

    /// Exactly the wanted members are there as voters, as far as is known, whether they serve or not.
    pub fn is_as_wanted(&self) -> bool {
        let size = self.basis.goal.size;
        let members_are = match self.facts.listed() {
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
        self.is_as_wanted() && self.ready() == self.size()
    }

    /// Whether something is changed or awaited, beyond bookkeeping.
    pub fn is_under_way(&self) -> bool {
        let plan = self.basis.plan;
        let keeps_books = |action: &Action| {
            let bookkeeping = matches!(
                action,
                Action::RecordFormed { .. }
                    | Action::IssueCertificate { .. }
                    | Action::CopyCertificate { .. }
                    | Action::RotateAuthority { .. }
                    | Action::LabelClaim { .. }
                    | Action::DeleteOrder { .. }
                    | Action::PrepareRecovery
                    | Action::EndRecovery { .. }
                    | Action::RecordIncarnation { .. }
                    | Action::RecordVolumes { .. }
                    | Action::DeletePreflight { .. }
                    | Action::ChangeAuth { .. }
            );
            let about_forms = matches!(action, Action::RecordForm { .. } | Action::SetTemplate { .. });
            let bookkeeping = bookkeeping || about_forms && self.rollout().is_none();
            bookkeeping && (self.is_as_wanted() || self.size() == 0)
        };
        !plan.actions.iter().all(keeps_books) || plan.waiting.iter().any(|it| !it.is_for_users())
    }

    /// Steps that follow each other within milliseconds. Each has its event; to write a status for each would take longer
    /// than they do.
    pub fn prepares_formation(&self) -> bool {
        let prepares = |action: &Action| {
            matches!(
                action,
                Action::AddFinalizer
                    | Action::IssueCertificate { .. }
                    | Action::CopyCertificate { .. }
                    | Action::RotateAuthority { stage: Stage::Accept, .. }
                    | Action::CreateOrder { .. }
                    | Action::ArmOrder { .. }
                    | Action::SetReplicas { .. }
            )
        };
        self.service == Service::NotBootstrapped && self.basis.plan.actions.iter().all(prepares)
    }

    pub fn phase(&self) -> Phase {
        let awaits_only_quorum = self.basis.plan.actions.is_empty()
            && self.basis.plan.waiting.iter().all(|it| {
                let quorum = matches!(it, WaitingOn::Quorum { .. } | WaitingOn::Leader);
                let by_itself = matches!(it, WaitingOn::Unpause | WaitingOn::Comparison { .. })
                    || it.member_on_lost_node().is_some();
                quorum || by_itself || it.is_rotation()
            });
        // Members stay as they are.
        let reclaims_space = self.basis.plan.actions.iter().any(|action| {
            matches!(action, Action::Compact { .. } | Action::Defragment { .. } | Action::Disarm { .. })
        });
        let creating = self.service == Service::NotBootstrapped || self.seen().order.is_some();
        let rollout = self.rollout();
        let rolling_out = rollout.is_some() && self.is_as_wanted() && !self.basis.goal.paused;
        let cannot_begin = self.basis.spec.is_err() && self.service == Service::NotBootstrapped;
        if self.seen().cluster.deleting {
            Phase::Deleting
        } else if self.is_stopped() {
            Phase::Stopped
        } else if cannot_begin || self.blocked().is_some() && !self.all_serve() {
            Phase::Failed
        } else if creating && self.size() > 0 && !self.all_serve() {
            Phase::Creating
        } else if rolling_out {
            if rollout.is_some_and(|it| it.new_version().is_some()) {
                Phase::Upgrading
            } else {
                Phase::Scaling
            }
        } else if self.is_as_wanted() && (awaits_only_quorum || reclaims_space || !self.is_under_way()) {
            Phase::Running
        } else {
            Phase::Scaling
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.service == Service::Stopped && self.seen().pods.is_empty() && !self.is_under_way()
    }

    /// When `ready` of this member took the value that it has.
    pub fn since(&self, id: &str, ready: bool) -> Time {
        let mut before = self.before.members.iter();
        let member = before.find(|it| it.id.as_deref() == Some(id) && it.ready == ready);
        member.and_then(|it| it.last_transition_time.clone()).unwrap_or(Time(self.seen().now))
    }

    /// Those of the last status, and the pods that their names belong to.
    pub fn last_known_voters(&self) -> impl Iterator<Item = (&'a MemberStatus, Option<Ordinal>)> {
        let listed =
            self.before.members.iter().filter(|it| it.id.is_some() && it.role != Some(Role::Learner));
        let names = self.basis.names;
        listed.map(|it| (it, it.name.as_deref().and_then(|name| names.ordinal_of_pod(name))))
    }

    fn service(&self) -> Service {
        let stopped = self.size() == 0 && self.seen().keeps_no_pods();
        match self.facts.quorum {
            // While the spec is invalid, a cluster without pods might be one that never bootstrapped.
            Quorum::NotBootstrapped if stopped && self.basis.spec.is_ok() => Service::Stopped,
            Quorum::NotBootstrapped => Service::NotBootstrapped,
            Quorum::Held(_) | Quorum::OtherCluster { .. } | Quorum::Unproven(_) if stopped => {
                Service::Stopped
            }
            Quorum::Held(_) => Service::Available,
            Quorum::Unproven(Unanswered::AccessDenied) => Service::Denied,
            Quorum::OtherCluster { .. } | Quorum::Unproven(_) => self.without_service(),
        }
    }

    fn without_service(&self) -> Service {
        // The members stop on request, and start with other data.
        if crate::decide::is_replacing(self.basis.goal, &self.facts) {
            return Service::Unproven { long: false };
        }
        let voters: Vec<_> = self.last_known_voters().map(|(_, ordinal)| ordinal).collect();
        let runs = |ordinal: &&Ordinal| *self.facts.pod(**ordinal) == PodState::Running;
        let able = voters.iter().flatten().filter(runs).count();
        // Lost data does not return with patience.
        let long = self.facts.data_lost
            || self.was_without_quorum()
            || self.was(condition::AVAILABLE, Value::Unknown, patience(&voters));
        let cannot_elect = self.facts.answers().any(|answer| !answer.linearizable);
        if long && !voters.is_empty() && (able < quorum(voters.len()) || cannot_elect) {
            return Service::Lost { able, voters: voters.len() };
        }
        Service::Unproven { long }
    }

    /// Once it is reported, it stays reported until a quorum serves, however little is known in between.
    fn was_without_quorum(&self) -> bool {
        let stalled = find(&self.before.conditions, condition::STALLED).filter(|it| it.status == "True");
        let available = find(&self.before.conditions, condition::AVAILABLE);
        let without = [reason::QUORUM_LOST, reason::MEMBERS_UNREACHABLE];
        stalled.is_some_and(|it| without.contains(&it.reason.as_str()))
            || available.is_some_and(|it| it.reason == reason::QUORUM_LOST)
    }

    /// Whether the spec has not been edited since the last status.
    pub fn is_of_same_generation(&self) -> bool {
        self.before.observed_generation == self.history.generation
    }

    /// Whether the condition has had this value for so long.
    pub fn was(&self, type_: &str, value: Value, seconds: i64) -> bool {
        let elapsed = |since: Timestamp| self.history.now.as_second() - since.as_second();
        self.history.since(type_, value).is_some_and(|since| elapsed(since) >= seconds)
    }
}

/// A cluster without known members starts after a stop.
fn patience(voters: &[Option<Ordinal>]) -> i64 {
    if voters.is_empty() { START_SECONDS } else { PATIENCE_SECONDS }
}
