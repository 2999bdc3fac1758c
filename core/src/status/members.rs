//! Every member that etcd lists, and every pod that waits to become one.

use super::view::{Quorum, View};
use crate::api::{Health, MemberStatus, Role};
use crate::observed::{Answer, Member, MemberId, Members, Ordinal, Process, Seen, Start};
use crate::plan::WaitingOn;

/// By ordinal, numerically: as text, pod 10 comes before pod 9. Strangers come last.
pub(super) fn members(view: &View<'_>) -> Vec<MemberStatus> {
    let mut found = match view.members() {
        Some(members) => listed(view, members),
        None if view.quorum == Quorum::Stopped => Vec::new(),
        None => last_known(view),
    };
    let named: Vec<_> = found.iter().filter_map(|(ordinal, _)| *ordinal).collect();
    let wanted = view.round.intent.size;
    let next_step = |ordinal: Ordinal, process: &Process| match view.quorum {
        _ if *process == Process::DataLost => coming_back(view, ordinal),
        Quorum::NotYet => "the cluster to form".into(),
        Quorum::Stopped | Quorum::Serves | Quorum::Unclear { .. } | Quorum::Lost { .. } => {
            "to be added to the cluster".into()
        }
    };
    let others = view
        .seen()
        .pods
        .iter()
        .filter(|(ordinal, pod)| !named.contains(ordinal) && !pod.terminating && ordinal.0 < wanted);
    found.extend(others.map(|(&ordinal, pod)| {
        let status = MemberStatus {
            name: Some(view.round.names.pod(ordinal)),
            health: health_of(&pod.etcd),
            waiting_for: waiting_for(view, ordinal).or_else(|| Some(next_step(ordinal, &pod.etcd))),
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
    let deleting = view.seen().cluster.deleting;
    let status = |(id, member): (MemberId, &Member)| {
        let names = view.round.names;
        let ordinal = member.ordinal;
        let status = MemberStatus {
            name: ordinal.map(|ordinal| names.pod(ordinal)),
            id: Some(id.to_string()),
            peer_url: ordinal.map(|ordinal| names.peer_url(ordinal)),
            client_url: ordinal
                .filter(|_| member.start == Start::Published)
                .map(|ordinal| names.client_url(ordinal)),
            ready: ready.contains(&id),
            role: role(members, id, member),
            health: health(view, members, id, member),
            version: answer_of(view, members, id).and_then(|answer| Some(answer.version?.to_string())),
            waiting_for: ordinal
                .filter(|_| !ready.contains(&id) && !deleting)
                .map(|it| lacks(view, members, it, id, member)),
        };
        (ordinal, status)
    };
    members.by_ordinal().into_iter().map(status).collect()
}

fn lacks(view: &View<'_>, members: &Members, ordinal: Ordinal, id: MemberId, member: &Member) -> String {
    waiting_for(view, ordinal).unwrap_or_else(|| match answer_of(view, members, id) {
        Some(_) if member.learner => "its promotion to a voter".into(),
        Some(_) => "etcd to serve linearizable reads".into(),
        None => coming_back(view, ordinal),
    })
}

/// Nobody says who leads, serves or runs what; only who was a learner is still of use.
fn last_known(view: &View<'_>) -> Vec<Placed> {
    let kept = view.before.members.iter().filter(|member| member.id.is_some());
    kept.map(|member| {
        let ordinal = member.name.as_deref().and_then(|name| view.round.names.ordinal_of_pod(name));
        let lacks = |ordinal| waiting_for(view, ordinal).unwrap_or_else(|| coming_back(view, ordinal));
        let ends = view.seen().cluster.deleting;
        let waiting_for = ordinal.filter(|_| !ends).map(lacks);
        let answers = view.seen().etcd.answers.values().filter_map(Seen::known);
        let own = answers.filter(|it| !it.linearizable).find(|it| Some(it.member.to_string()) == member.id);
        let health = if own.is_some() { Health::Unhealthy } else { Health::Unknown };
        (ordinal, MemberStatus { waiting_for, health, ..unseen(member) })
    })
    .collect()
}

/// A member that was not asked, or did not answer.
pub(super) fn unseen(member: &MemberStatus) -> MemberStatus {
    MemberStatus {
        ready: false,
        role: member.role.filter(|role| *role == Role::Learner),
        health: Health::Unknown,
        version: None,
        waiting_for: None,
        ..member.clone()
    }
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

/// A learner serves no linearizable reads; that it answers and follows a leader is all that it can show.
fn health(view: &View<'_>, members: &Members, id: MemberId, member: &Member) -> Health {
    let pod = member.ordinal.and_then(|ordinal| view.seen().pods.get(&ordinal));
    match answer_of(view, members, id) {
        Some(answer) if answer.linearizable => Health::Healthy,
        Some(answer) if member.learner && answer.leader.is_some() => Health::Healthy,
        Some(_) => Health::Unhealthy,
        None => pod.map_or(Health::Unknown, |pod| health_of(&pod.etcd)),
    }
}

/// What a pod tells of an etcd that does not.
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

/// What its pod lacks comes first: the plan may wait for more than one thing.
fn waiting_for(view: &View<'_>, ordinal: Ordinal) -> Option<String> {
    let pod = view.seen().pods.get(&ordinal);
    if let Some(Process::CannotStart(reason) | Process::Failing(reason)) = pod.map(|pod| &pod.etcd) {
        return Some(reason.clone());
    }
    view.round.plan.waiting.iter().find_map(|awaited| match awaited {
        WaitingOn::Pod { ordinal: at, reason } => (*at == ordinal).then(|| reason.clone()),
        WaitingOn::CatchUp { ordinal: at, behind } => {
            let behind = behind.map_or("it does not say how far it is".into(), |it| view.terms().behind(it));
            (*at == ordinal).then(|| format!("the rest of the data: {behind}"))
        }
        WaitingOn::Start { ordinal: at } => (*at == ordinal).then(|| "etcd to start".into()),
        WaitingOn::Recovery { ordinal: at, .. } => {
            (*at == ordinal).then(|| "an answer from etcd, before it is replaced".into())
        }
        WaitingOn::Formation { missing } => missing.contains(&ordinal).then(|| "the cluster to form".into()),
        WaitingOn::Volumes { ordinals } => {
            ordinals.contains(&ordinal).then(|| "a look into its volume".into())
        }
        WaitingOn::Unpause
        | WaitingOn::Etcd { .. }
        | WaitingOn::Voters { .. }
        | WaitingOn::Hashes { .. }
        | WaitingOn::PodsGone { .. }
        | WaitingOn::ClaimsGone { .. } => None,
    })
}

/// What can be told of a silent member from its pod alone.
fn coming_back(view: &View<'_>, ordinal: Ordinal) -> String {
    let replaced = view.members().is_some();
    let text = match view.seen().pods.get(&ordinal) {
        None => "its pod to come back",
        Some(pod) if pod.terminating => "its pod to come back",
        Some(pod) => match pod.etcd {
            Process::DataLost if replaced => "its replacement, because its data is gone",
            Process::DataLost => "its data, which is gone",
            Process::Beginning | Process::Waiting | Process::Forming => "etcd to start",
            Process::Started | Process::CannotStart(_) | Process::Failing(_) => "an answer from etcd",
        },
    };
    text.into()
}
