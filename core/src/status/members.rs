//! Every member that etcd lists, and every pod that waits to become one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::view::{Quorum, View};
use crate::api::{Health, MemberStatus, Role};
use crate::member::MemberProgress;
use crate::observed::{Answer, Blocked, Member, MemberId, Members, Ordinal, Process, Seen};
use crate::plan::{PodCause, WaitingOn};

/// By ordinal, numerically: as text, pod 10 comes before pod 9. Members without a pod of ours come last.
pub(super) fn members(view: &View<'_>) -> Vec<MemberStatus> {
    let mut found = match view.members() {
        Some(members) => listed(view, members),
        None if view.quorum == Quorum::Stopped => Vec::new(),
        None => last_known(view),
    };
    let named: Vec<_> = found.iter().filter_map(|(ordinal, _)| *ordinal).collect();
    let wanted = view.basis.goal.size;
    let others = view
        .seen()
        .pods
        .iter()
        .filter(|(ordinal, pod)| !named.contains(ordinal) && !pod.terminating && ordinal.0 < wanted);
    found.extend(others.map(|(&ordinal, pod)| {
        let Progress { reason, waiting_for } = Progress::of_pod(view, ordinal);
        let name = Some(view.basis.names.pod(ordinal));
        let status = MemberStatus {
            name,
            health: health_of(&pod.etcd),
            reason,
            waiting_for,
            ..MemberStatus::default()
        };
        (Some(ordinal), status)
    }));
    found.sort_by_key(|(ordinal, _)| (ordinal.is_none(), *ordinal));
    found.into_iter().map(|(_, status)| status).collect()
}

type Placed = (Option<Ordinal>, MemberStatus);

fn listed(view: &View<'_>, members: &Members) -> Vec<Placed> {
    let ready = view.ready();
    let status = |(id, member): (MemberId, &Member)| {
        let names = view.basis.names;
        let ordinal = member.ordinal;
        let Progress { reason, waiting_for } = match ordinal {
            _ if view.seen().cluster.deleting => Progress::default(),
            _ if ready.contains(&id) => Progress { reason: alarm(view, id), waiting_for: None },
            Some(ordinal) => Progress::of_member(view, members, ordinal, id, member),
            None => Progress::default(),
        };
        let ready = ready.contains(&id);
        let status = MemberStatus {
            name: ordinal.map(|ordinal| names.pod(ordinal)),
            id: Some(id.to_string()),
            peer_url: ordinal.map(|ordinal| names.peer_url(ordinal)),
            client_url: ordinal
                .filter(|_| member.start == MemberProgress::Published)
                .map(|ordinal| names.client_url(ordinal)),
            ready,
            last_transition_time: Some(since(view, &id.to_string(), ready)),
            role: role(members, id, member),
            health: health(view, members, id, member),
            version: answer_of(view, members, id).and_then(|answer| Some(answer.version?.to_string())),
            reason,
            waiting_for,
        };
        (ordinal, status)
    };
    members.by_ordinal().into_iter().map(status).collect()
}

/// Which member leads, serves or runs what is not known; only which were learners is still of use.
fn last_known(view: &View<'_>) -> Vec<Placed> {
    let kept = view.before.members.iter().filter_map(|member| Some((member, member.id.as_deref()?)));
    kept.map(|(member, id)| {
        let ordinal = member.name.as_deref().and_then(|name| view.basis.names.ordinal_of_pod(name));
        let mut answers = view.seen().etcd.answers.values().filter_map(Seen::known);
        let own = answers.find(|it| !it.linearizable && it.member.to_string() == id);
        let Progress { reason, waiting_for } = match ordinal {
            Some(ordinal) if !view.seen().cluster.deleting => Progress::of_unlisted(view, ordinal, own),
            Some(_) | None => Progress::default(),
        };
        let status = MemberStatus {
            ready: false,
            last_transition_time: Some(since(view, id, false)),
            role: member.role.filter(|role| *role == Role::Learner),
            health: if own.is_some() { Health::Unhealthy } else { Health::Unknown },
            version: None,
            reason,
            waiting_for,
            ..member.clone()
        };
        (ordinal, status)
    })
    .collect()
}

/// When `ready` took the value that it has.
fn since(view: &View<'_>, id: &str, ready: bool) -> Time {
    let before = view.before.members.iter().find(|it| it.id.as_deref() == Some(id) && it.ready == ready);
    before.and_then(|it| it.last_transition_time.clone()).unwrap_or(Time(view.seen().now))
}

/// Why a member or pod does not serve, and what it waits for.
#[derive(Default)]
struct Progress {
    reason: Option<String>,
    waiting_for: Option<String>,
}

impl Progress {
    fn new(reason: Option<&str>, waiting_for: &str) -> Self {
        Self { reason: reason.map(Into::into), waiting_for: Some(waiting_for.into()) }
    }

    fn of_cause(view: &View<'_>, cause: &PodCause) -> Self {
        let awaited = match cause {
            PodCause::Missing | PodCause::Rejected(_) => "its pod to be created",
            PodCause::Terminating => "its pod to return",
            PodCause::Blocked(Blocked::Unschedulable(_)) => "a node that takes its pod",
            PodCause::Blocked(Blocked::Container { .. } | Blocked::SlowCreation) | PodCause::Creating => {
                "its containers to start"
            }
            PodCause::Crashing(_) => "etcd to keep running",
            PodCause::DataLost if view.members().is_some() => "its replacement",
            PodCause::DataLost => "a quorum, to be replaced",
            PodCause::NotStarted => "etcd to start",
            PodCause::VolumePending => "a new volume",
            PodCause::AddressNotPublished => "the peer Service to list its address",
            PodCause::PreviousMemberRunning => "the previous etcd process to exit",
            PodCause::BootstrapResultPending => "the bootstrap result",
        };
        let reason = match cause {
            PodCause::Rejected(_)
            | PodCause::Terminating
            | PodCause::Blocked(_)
            | PodCause::Crashing(_)
            | PodCause::DataLost => Some(cause.text()),
            PodCause::Missing
            | PodCause::Creating
            | PodCause::NotStarted
            | PodCause::VolumePending
            | PodCause::AddressNotPublished
            | PodCause::PreviousMemberRunning
            | PodCause::BootstrapResultPending => None,
        };
        Self { reason, waiting_for: Some(awaited.into()) }
    }

    /// A pod that etcd does not list.
    fn of_pod(view: &View<'_>, ordinal: Ordinal) -> Self {
        let cause = PodCause::of(view.seen(), ordinal).filter(|it| *it != PodCause::NotStarted);
        let next = match view.quorum {
            Quorum::NotYet => "the cluster to bootstrap",
            Quorum::Stopped | Quorum::Serves | Quorum::Unclear { .. } | Quorum::Lost { .. } => {
                "the operator to add it as a learner"
            }
        };
        let known = cause.map(|cause| Self::of_cause(view, &cause));
        known.or_else(|| Self::of_plan(view, ordinal)).unwrap_or_else(|| Self::new(None, next))
    }

    /// A member that etcd lists and that is not a serving voter.
    fn of_member(
        view: &View<'_>,
        members: &Members,
        ordinal: Ordinal,
        id: MemberId,
        member: &Member,
    ) -> Self {
        if let Some(answer) = answer_of(view, members, id) {
            let planned = Self::of_plan(view, ordinal);
            return planned.unwrap_or_else(|| match (member.learner, answer.leader) {
                (true, _) => Self::new(None, "its promotion to a voter"),
                (false, None) => Self::new(Some("no leader"), "a leader to be elected"),
                (false, Some(_)) => {
                    Self::new(Some("linearizable reads fail"), "etcd to serve linearizable reads")
                }
            });
        }
        Self::of_silent(view, ordinal)
    }

    /// A member of the last list, while no list can be had.
    fn of_unlisted(view: &View<'_>, ordinal: Ordinal, own: Option<&Answer>) -> Self {
        match own {
            Some(answer) if answer.leader.is_none() => Self::new(Some("no leader"), "a leader to be elected"),
            Some(_) => Self::new(Some("linearizable reads fail"), "etcd to serve linearizable reads"),
            None => Self::of_silent(view, ordinal),
        }
    }

    /// What its pod lacks comes first: the plan may wait for more than one thing.
    fn of_silent(view: &View<'_>, ordinal: Ordinal) -> Self {
        let cause = PodCause::of(view.seen(), ordinal);
        match cause {
            Some(PodCause::NotStarted) | None => Self::of_plan(view, ordinal),
            Some(cause) => Some(Self::of_cause(view, &cause)),
        }
        .unwrap_or_else(|| match PodCause::of(view.seen(), ordinal) {
            Some(_) => Self::new(None, "etcd to start"),
            None => Self::new(Some("no response from etcd"), "a response from etcd"),
        })
    }

    fn of_plan(view: &View<'_>, ordinal: Ordinal) -> Option<Self> {
        view.basis.plan.waiting.iter().find_map(|awaited| match awaited {
            WaitingOn::Pod { ordinal: at, cause } => (*at == ordinal).then(|| Self::of_cause(view, cause)),
            WaitingOn::CatchUp { ordinal: at, behind } => {
                let behind = behind.map_or("applied index unknown".into(), |it| view.terms().behind(it));
                (*at == ordinal).then(|| Self::new(None, &format!("the leader's data: {behind}")))
            }
            WaitingOn::Start { ordinal: at } => (*at == ordinal).then(|| Self::new(None, "etcd to start")),
            WaitingOn::Recovery { ordinal: at, .. } => (*at == ordinal).then(|| {
                Self::new(
                    Some("no response from etcd"),
                    "a response from etcd, before the operator replaces it",
                )
            }),
            WaitingOn::Formation { missing } => {
                missing.contains(&ordinal).then(|| Self::new(None, "the cluster to bootstrap"))
            }
            WaitingOn::Volumes { ordinals } => {
                ordinals.contains(&ordinal).then(|| Self::new(None, "its agent to inspect the volume"))
            }
            WaitingOn::Unpause
            | WaitingOn::Quorum { .. }
            | WaitingOn::Leader
            | WaitingOn::Voters { .. }
            | WaitingOn::Hashes { .. }
            | WaitingOn::PodsGone { .. }
            | WaitingOn::ClaimsGone { .. } => None,
        })
    }
}

/// What this member has raised.
fn alarm(view: &View<'_>, id: MemberId) -> Option<String> {
    let alarms = view.seen().alarms();
    let own: Vec<_> = alarms.iter().filter(|it| it.member == id).map(|it| it.kind.as_str()).collect();
    (!own.is_empty()).then(|| format!("alarm {}", own.join(", ")))
}

fn role(members: &Members, id: MemberId, member: &Member) -> Option<Role> {
    match members.leader {
        _ if member.learner => Some(Role::Learner),
        Some(leader) if leader == id => Some(Role::Leader),
        Some(_) => Some(Role::Follower),
        None => None,
    }
}

fn answer_of<'a>(view: &View<'a>, members: &Members, id: MemberId) -> Option<&'a Answer> {
    view.seen().answer_of(id).filter(|answer| answer.cluster == members.cluster)
}

/// A learner serves no linearizable reads; that it responds and follows a leader is all that it can show.
fn health(view: &View<'_>, members: &Members, id: MemberId, member: &Member) -> Health {
    let pod = member.ordinal.and_then(|ordinal| view.seen().pods.get(&ordinal));
    match answer_of(view, members, id) {
        Some(answer) if answer.linearizable => Health::Healthy,
        Some(answer) if member.learner && answer.leader.is_some() => Health::Healthy,
        Some(_) => Health::Unhealthy,
        None => pod.map_or(Health::Unknown, |pod| health_of(&pod.etcd)),
    }
}

/// What a pod tells of an etcd that does not respond.
fn health_of(process: &Process) -> Health {
    match process {
        Process::Failing(_) | Process::DataLost => Health::Unhealthy,
        Process::CannotStart(_)
        | Process::Beginning
        | Process::Waiting
        | Process::Forming
        | Process::Started => Health::Unknown,
    }
}
