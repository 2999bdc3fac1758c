//! Every member that etcd lists, and every pod that waits to become one.

use super::view::{Service, View};
use crate::api::{Health, MemberStatus, Role};
use crate::assess::{MemberState, PodState};
use crate::member::MemberProgress;
use crate::observed::{Member, MemberId, Members, NodeLoss, Ordinal};
use crate::plan::{Action, Plan, WaitingOn};
use crate::tls::Transport;
use crate::version::Version;

/// By ordinal, numerically: as text, pod 10 comes before pod 9. Members without a pod of ours come last.
pub(super) fn members(view: &View<'_>) -> Vec<MemberStatus> {
    let mut found = match view.facts.listed() {
        Some(members) => listed(view, members),
        None if view.service == Service::Stopped => Vec::new(),
        None => last_known(view),
    };
    let named: Vec<_> = found.iter().filter_map(|(ordinal, _)| *ordinal).collect();
    let joins = |ordinal: Ordinal, state: &PodState| {
        let there = !matches!(state, PodState::Missing | PodState::Rejected(_) | PodState::Terminating);
        there && !named.contains(&ordinal) && ordinal.0 < view.basis.goal.size
    };
    let others = view.facts.pods.iter().filter(|(ordinal, state)| joins(**ordinal, state));
    found.extend(others.map(|(&ordinal, state)| {
        let Progress { reason, waiting_for } = Progress::of_joining(view, ordinal, state);
        let status = MemberStatus {
            name: Some(view.basis.names.pod(ordinal)),
            health: health_of(state),
            agent_version: view.basis.agents.get(&ordinal).map(|agent| agent.version.clone()),
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
    let status = |(id, member): (MemberId, &Member)| {
        let names = view.basis.names;
        let (ordinal, ready) = (member.ordinal, view.facts.serves(id));
        // During a switch, pods differ.
        let own = ordinal.and_then(|ordinal| view.seen().pods.get(&ordinal)?.transport);
        let Transport { clients, peers } = own.unwrap_or_else(|| view.basis.transport());
        let state = view.facts.member(id);
        let pod = ordinal.map_or(&PodState::Missing, |ordinal| view.facts.pod(ordinal));
        let replaced =
            |awaited: &WaitingOn| matches!(awaited, WaitingOn::Recovery { member, .. } if *member == id);
        let Progress { reason, waiting_for } = match ordinal {
            _ if view.seen().cluster.deleting => Progress::default(),
            _ if ready => Progress { reason: alarm(view, id), waiting_for: restart(view, ordinal) },
            Some(_) => match view.facts.node_loss(id) {
                Some(loss) => Progress::of_lost_node(view, id, loss),
                None => Progress::of_member(view, state, pod),
            },
            None => Progress::default(),
        };
        let version = view.facts.answer_of(id).and_then(|answer| answer.version);
        let replaced = view.basis.plan.waiting.iter().any(replaced);
        let then = if replaced { ", before the operator replaces it" } else { "" };
        let status = MemberStatus {
            name: ordinal.map(|ordinal| names.pod(ordinal)),
            id: Some(id.to_string()),
            peer_url: ordinal.map(|ordinal| names.peer_url(peers.scheme(), ordinal)),
            client_url: ordinal
                .filter(|_| member.start == MemberProgress::Published)
                .map(|ordinal| names.client_url(clients.scheme(), ordinal)),
            ready,
            last_transition_time: Some(view.since(&id.to_string(), ready)),
            role: role(members, id, member),
            health: health(state, pod),
            version: version.map(|version| version.to_string()),
            target_version: target_version(view, version),
            agent_version: ordinal.and_then(|it| Some(view.basis.agents.get(&it)?.version.clone())),
            reason,
            waiting_for: waiting_for.map(|awaited| awaited + then),
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
        let pod = ordinal.map_or(&PodState::Missing, |ordinal| view.facts.pod(ordinal));
        let answer = view.facts.answers().find(|answer| answer.member.to_string() == id);
        let state = MemberState::of(answer);
        let loss = ordinal.and_then(|ordinal| view.seen().pods.get(&ordinal)?.loss.as_ref());
        let Progress { reason, waiting_for } = match (ordinal, loss) {
            _ if view.seen().cluster.deleting => Progress::default(),
            (Some(_), Some(loss)) if state == MemberState::Silent => Progress::until_return(loss),
            (Some(_), _) => Progress::of_member(view, &state, pod),
            (None, _) => Progress::default(),
        };
        let status = MemberStatus {
            ready: false,
            last_transition_time: Some(view.since(id, false)),
            role: member.role.filter(|role| *role == Role::Learner),
            health: if state == MemberState::Serving { Health::Unknown } else { health(&state, pod) },
            version: None,
            target_version: target_version(view, None),
            reason,
            waiting_for,
            ..member.clone()
        };
        (ordinal, status)
    })
    .collect()
}

/// Why a member or pod does not serve, and what it waits for.
#[derive(Default)]
struct Progress {
    reason: Option<String>,
    waiting_for: Option<String>,
}

impl Progress {
    fn new(reason: Option<String>, waiting_for: impl Into<String>) -> Self {
        Self { reason, waiting_for: Some(waiting_for.into()) }
    }

    fn of_member(view: &View<'_>, state: &MemberState, pod: &PodState) -> Self {
        let (reason, awaited) = match state {
            MemberState::Silent => return Self::of_pod(view, pod),
            MemberState::Starting if *pod != PodState::Running => return Self::of_pod(view, pod),
            MemberState::Starting => (None, PodState::NotStarted.waits_for()),
            MemberState::CatchingUp { behind } => {
                let behind = behind.map_or_else(|| state.to_string(), |it| view.terms().behind(it));
                return Self::new(None, format!("the leader's data: {behind}"));
            }
            MemberState::CaughtUp => (None, "its promotion to a voter"),
            // Without a list of the members, it is not known to be one.
            MemberState::Serving => (None, "etcd to list the members"),
            MemberState::Lost(_) => (Some(state), "its replacement"),
            MemberState::NoLeader => (Some(state), "a leader to be elected"),
            MemberState::ReadsFailing => (Some(state), "etcd to serve linearizable reads"),
        };
        Self::new(reason.map(ToString::to_string), awaited)
    }

    /// A member whose node is lost. What the plan waits for says when the member is replaced.
    fn of_lost_node(view: &View<'_>, id: MemberId, loss: &NodeLoss) -> Self {
        let Plan { actions, waiting, .. } = view.basis.plan;
        let removes = |it: &Action| matches!(it, Action::RemoveMember { member, .. } if *member == id);
        let awaited = waiting.iter().find(|it| it.member_on_lost_node() == Some(id));
        match awaited {
            Some(awaited) => Self::new(Some(loss.to_string()), view.terms().awaited(awaited)),
            None if actions.iter().any(removes) => Self::new(Some(loss.to_string()), "its replacement"),
            None => Self::until_return(loss),
        }
    }

    fn until_return(loss: &NodeLoss) -> Self {
        Self::new(Some(loss.to_string()), format!("node {} to return", loss.node))
    }

    /// A pod that etcd does not list.
    fn of_joining(view: &View<'_>, ordinal: Ordinal, state: &PodState) -> Self {
        let inspects = |awaited: &WaitingOn| matches!(awaited, WaitingOn::Volumes { ordinals } if ordinals.contains(&ordinal));
        match (state, &view.service) {
            (PodState::NotStarted | PodState::Running, Service::NotBootstrapped) => {
                match view.basis.plan.waiting.iter().any(inspects) {
                    true => Self::new(None, "its agent to inspect the volume"),
                    false => Self::new(None, "the cluster to bootstrap"),
                }
            }
            _ => Self::of_pod(view, state),
        }
    }

    /// As far as the state of its pod shows.
    fn of_pod(view: &View<'_>, state: &PodState) -> Self {
        let fault = matches!(
            state,
            PodState::Rejected(_)
                | PodState::Terminating
                | PodState::DataLost
                | PodState::CertificatesUnusable(_)
        );
        let reason = (fault || state.cannot_start()).then(|| state.text());
        let silent = (*state == PodState::Running).then(|| MemberState::Silent.to_string());
        let quorum = view.facts.listed().is_some() || *state != PodState::DataLost;
        Self::new(reason.or(silent), if quorum { state.waits_for() } else { "a quorum, to be replaced" })
    }
}

/// While a rollout changes the version, and the member does not run it yet.
fn target_version(view: &View<'_>, runs: Option<Version>) -> Option<String> {
    let target = view.rollout()?.new_version()?;
    (runs != Some(target)).then(|| target.to_string())
}

/// What a member that serves waits for before it is restarted.
fn restart(view: &View<'_>, ordinal: Option<Ordinal>) -> Option<String> {
    let (rollout, awaits_consent) = match view.rollout() {
        Some(rollout) => (rollout, false),
        None => (view.awaiting_consent()?, true),
    };
    let reason = rollout.reason_to_restart(ordinal?).filter(|_| !view.basis.goal.paused)?;
    let consent = if awaits_consent { "consent to " } else { "" };
    Some(format!("{consent}its restart {}", reason.words()))
}

/// What this member has raised.
fn alarm(view: &View<'_>, id: MemberId) -> Option<String> {
    let alarms = view.facts.alarms();
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

fn health(state: &MemberState, pod: &PodState) -> Health {
    match state {
        MemberState::Serving | MemberState::CaughtUp | MemberState::CatchingUp { .. } => Health::Healthy,
        MemberState::NoLeader | MemberState::ReadsFailing | MemberState::Lost(_) => Health::Unhealthy,
        MemberState::Starting | MemberState::Silent => health_of(pod),
    }
}

/// Of an etcd that does not respond.
fn health_of(pod: &PodState) -> Health {
    if matches!(pod, PodState::Crashing(_) | PodState::DataLost) {
        Health::Unhealthy
    } else {
        Health::Unknown
    }
}
