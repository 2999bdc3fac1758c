//! What one observation means: whether a quorum serves, and the state of each member and pod. [`crate::decide`] and
//! [`crate::status`] both start from these facts, so that a plan and the status beside it cannot contradict each other. No
//! fact depends on a goal or on a condition: a status can be lost or edited.

mod links;
mod member;
mod nodes;
mod pod;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use crate::member::{MAX_SIZE, MemberProgress};
use crate::observed::{
    Alarm, Answer, ClusterId, MemberId, Members, Observed, Ordinal, Pod, Process, Seen, Unanswered,
};
use crate::quorum::quorum;
pub use links::Apart;
pub use member::{Loss, MemberState};
pub use nodes::Isolation;
pub use pod::PodState;

/// The facts of one observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment<'a> {
    pub seen: &'a Observed,
    /// The ID of the cluster that has bootstrapped here, if that is known.
    pub cluster: Option<ClusterId>,
    pub quorum: Quorum<'a>,
    /// Every agent has inspected its volume and found no data, or there is no volume: of a cluster that has bootstrapped,
    /// while no quorum is proven.
    pub data_lost: bool,
    /// Of the members that a quorum lists.
    pub members: BTreeMap<MemberId, MemberState>,
    /// Of every ordinal that has a pod, or that the StatefulSet should have created one for.
    pub pods: BTreeMap<Ordinal, PodState>,
}

/// Whether a quorum serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quorum<'a> {
    /// No cluster has bootstrapped, as far as objects and members show.
    NotBootstrapped,
    /// A member has just served a linearizable read, and listed these members.
    Held(&'a Members),
    /// The members that hold a quorum belong to another cluster than the one that bootstrapped here.
    OtherCluster { expected: ClusterId, found: ClusterId },
    /// A cluster has bootstrapped, and no member proves a quorum, for this reason.
    Unproven(&'a Unanswered),
}

pub fn assess(seen: &Observed) -> Assessment<'_> {
    let cluster = cluster_id(seen);
    let quorum = match (&seen.etcd.members, cluster) {
        (Seen::Known(members), Some(expected)) if expected != members.cluster => {
            Quorum::OtherCluster { expected, found: members.cluster }
        }
        (Seen::Known(members), _) => Quorum::Held(members),
        // Labels of volumes outlive the status.
        (Seen::Unknown(_), None) if seen.claims.values().all(|claim| claim.member.is_none()) => {
            Quorum::NotBootstrapped
        }
        (Seen::Unknown(cause), _) => Quorum::Unproven(cause),
    };
    let data_lost = matches!(quorum, Quorum::Unproven(_)) && nothing_is_left(seen);
    let (members, pods) = (BTreeMap::new(), BTreeMap::new());
    let mut facts = Assessment { seen, cluster, quorum, data_lost, members, pods };
    let listed = facts.listed().into_iter().flat_map(|members| &members.list);
    facts.members = listed.map(|(&id, member)| (id, facts.judge_member(id, member))).collect();
    let ordinals = seen.pods.keys().copied().chain(Ordinal::below(seen.replicas()));
    facts.pods = ordinals.map(|ordinal| (ordinal, facts.judge_pod(ordinal))).collect();
    facts
}

/// Recorded, or observed now: in a list that a quorum agreed on, or in a member that follows a leader or has done so.
fn cluster_id(seen: &Observed) -> Option<ClusterId> {
    let recorded = seen.cluster.formed.as_ref().map(|formed| formed.id);
    let agreed = seen.etcd.members.known().map(|members| members.cluster);
    recorded.or(agreed).or_else(|| {
        let mut answers = seen.etcd.answers.values().filter_map(Seen::known);
        // A bootstrap writes one entry for each member, and nothing else before there is a leader.
        let most_at_bootstrap = u64::from(MAX_SIZE);
        let follows = |answer: &&Answer| answer.leader.is_some() || answer.applied_index > most_at_bootstrap;
        answers.find(follows).map(|answer| answer.cluster)
    })
}

fn nothing_is_left(seen: &Observed) -> bool {
    if seen.order.is_some() {
        return false;
    }
    let is_empty = |ordinal: Ordinal| {
        seen.pods.get(&ordinal).is_some_and(|pod| matches!(pod.etcd, Process::Waiting | Process::DataLost))
    };
    match seen.replicas().max(seen.span()) {
        0 => seen.claims.is_empty(),
        pods => Ordinal::below(pods).all(is_empty),
    }
}

impl<'a> Assessment<'a> {
    /// The members, while a quorum of this cluster lists them.
    pub fn listed(&self) -> Option<&'a Members> {
        match self.quorum {
            Quorum::Held(members) => Some(members),
            Quorum::NotBootstrapped | Quorum::OtherCluster { .. } | Quorum::Unproven(_) => None,
        }
    }

    pub fn member(&self, id: MemberId) -> &MemberState {
        self.members.get(&id).unwrap_or(&MemberState::Silent)
    }

    pub fn serves(&self, id: MemberId) -> bool {
        *self.member(id) == MemberState::Serving
    }

    /// Voters that have just served a linearizable read, by ordinal.
    pub fn serving(&self) -> impl Iterator<Item = MemberId> {
        let voters = self.listed().into_iter().flat_map(Members::voters);
        voters.map(|(id, _)| id).filter(|&id| self.serves(id))
    }

    /// Whether its pod terminates: if it still serves, it is about to stop.
    pub fn is_ending(&self, id: MemberId) -> bool {
        let ordinal = self.listed().and_then(|members| members.list.get(&id)?.ordinal);
        ordinal.and_then(|it| self.seen.pods.get(&it)).is_some_and(|pod| pod.terminating)
    }

    /// Whether the others have no quorum while this one restarts.
    pub fn restart_stops_writes(&self, ordinal: Ordinal) -> bool {
        let Some(members) = self.listed() else { return false };
        let serves = members.at(ordinal).is_some_and(|(id, _)| self.serves(id));
        serves && self.serving().count() <= quorum(members.voters().count())
    }

    pub fn pod(&self, ordinal: Ordinal) -> &PodState {
        self.pods.get(&ordinal).unwrap_or(&PodState::Missing)
    }

    /// The responses of members of this cluster.
    pub fn answers(&self) -> impl Iterator<Item = &'a Answer> {
        let cluster = self.cluster;
        let answers = self.seen.etcd.answers.values().filter_map(Seen::known);
        answers.filter(move |answer| Some(answer.cluster) == cluster)
    }

    pub fn answer_of(&self, id: MemberId) -> Option<&'a Answer> {
        self.answers().find(|answer| answer.member == id)
    }

    /// The alarms that members of this cluster report.
    pub fn alarms(&self) -> BTreeSet<&'a Alarm> {
        self.answers().flat_map(|answer| &answer.alarms).collect()
    }

    /// Whether an etcd of another cluster responds there.
    fn is_in_another_cluster(&self, ordinal: Ordinal) -> bool {
        let answer = self.seen.etcd.answers.get(&ordinal).and_then(Seen::known);
        answer.is_some_and(|answer| self.cluster.is_some_and(|cluster| cluster != answer.cluster))
    }

    /// Whether the volume holds, or might hold, data that no listed member uses: that of a removed member, of an etcd that was
    /// started on an outdated member list and fails forever, or of one that waits forever for a cluster of its own.
    pub fn has_stale_volume(&self, ordinal: Ordinal) -> bool {
        let Some((claim, members)) = self.seen.claims.get(&ordinal).zip(self.listed()) else { return false };
        let fails = |pod: &Pod| matches!(pod.etcd, Process::Failing(_));
        match members.at(ordinal) {
            // A member that responds uses its volume.
            Some((id, member)) => {
                member.start == MemberProgress::Added
                    && self.answer_of(id).is_none()
                    && claim.member.is_some_and(|holder| holder != id)
            }
            None => {
                claim.member.is_some()
                    || claim.terminating
                    || self.seen.pods.get(&ordinal).is_some_and(fails)
                    || self.is_in_another_cluster(ordinal)
            }
        }
    }
}
