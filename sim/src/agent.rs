//! The agent that guards every start of etcd, as far as it decides something: a stand-in for the one in the pods.

use etcd_operator_core::observed::{ClusterId, MemberId, Ordinal, Process, Start};
use etcd_operator_core::quorum::quorum;

use crate::etcd::Data;
use crate::kube::{Order, Volume};

/// What the agent sees.
pub struct Situation<'a> {
    pub own: Ordinal,
    pub volume: &'a Volume,
    pub order: Option<Order>,
    /// What peers that run etcd answer to `GET /members`.
    pub lists: Vec<List>,
    /// How many of the ordered pods have an address, and for how long a quorum of them has had one.
    pub addresses: usize,
    pub quorum_for: u64,
    pub bugs: Bugs,
}

/// One peer's list, as far as it matters.
#[derive(Clone, Copy, Debug)]
pub struct List {
    pub cluster: ClusterId,
    /// What it says of the pod that asks.
    pub own: Option<(MemberId, Start)>,
    /// Whether anybody in it has published itself.
    pub formed: bool,
    /// Whether it lists the peer that sent it as a voter. A learner that still catches up tells of the past.
    pub from_voter: bool,
    pub voters: usize,
}

/// What an agent may get wrong, to see whether it is found out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bugs {
    /// It follows an order although it did so before, and although a formed cluster answers.
    pub follows_old_orders: bool,
}

pub enum Verdict {
    Wait(Process),
    Start(Data),
    Found(Order),
    Join(ClusterId, MemberId),
}

/// Ten seconds.
const PATIENCE: u64 = 100;

pub fn judge(situation: &Situation<'_>) -> Verdict {
    let Situation { own, volume, order, lists, addresses, quorum_for, bugs } = situation;
    if let Some(data) = &volume.data {
        return Verdict::Start(data.clone());
    }
    let formed: Vec<&List> = lists.iter().filter(|list| list.formed).collect();
    if !formed.is_empty() && !bugs.follows_old_orders {
        return among_members(&formed);
    }
    let Some(order) = order.filter(|order| order.armed && own.0 < order.size) else {
        let lost = volume.followed.is_some();
        return Verdict::Wait(if lost { Process::DataLost } else { Process::Waiting });
    };
    if volume.followed.is_some() && !bugs.follows_old_orders {
        return Verdict::Wait(Process::DataLost);
    }
    let size = usize::from(order.size);
    let ready = *addresses == size || *addresses >= quorum(size) && *quorum_for >= PATIENCE;
    if ready { Verdict::Found(order) } else { Verdict::Wait(Process::Forming) }
}

/// A formed cluster answers. Only what a majority of its voters agrees upon is good enough to start from: fewer may
/// all lag behind, and a member that has started since would start once more without its data.
fn among_members(lists: &[&List]) -> Verdict {
    let lists: Vec<&List> = lists.iter().copied().filter(|list| list.from_voter).collect();
    let Some(first) = lists.first() else { return Verdict::Wait(Process::Waiting) };
    let started = |list: &&List| matches!(list.own, Some((_, Start::Published)));
    if lists.iter().any(started) {
        return Verdict::Wait(Process::DataLost);
    }
    let agree = lists.iter().all(|list| list.own == first.own && list.cluster == first.cluster);
    if !agree || lists.len() < quorum(first.voters) {
        return Verdict::Wait(Process::Waiting);
    }
    match first.own {
        Some((id, Start::Added)) => Verdict::Join(first.cluster, id),
        Some((_, Start::Listed | Start::Published)) | None => Verdict::Wait(Process::Waiting),
    }
}
