//! Whether the status that operators wrote agrees with etcd at every moment, and not only at the end.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_core::api::{EtcdClusterStatus, Phase, Role};
use etcd_operator_core::names::condition;
use etcd_operator_core::observed::{MemberId, Ordinal};

use crate::etcd::{Peer, Tick, consensus};
use crate::kube::Cluster;
use crate::operator::Operator;
use crate::problem::Violation;
use crate::world::World;

const COMPARE_EVERY: Tick = 5;
/// Five seconds. Something wakes operators at least every other second here, so nothing takes longer.
const LIMIT: Tick = 50;
/// For ten more seconds a quorum can be missing before that is called a failure.
const QUORUM_LIMIT: Tick = LIMIT + 100;

/// What the status reports, and etcd shows otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contradiction {
    /// It reports that a member is ready, and the member does not serve.
    DoesNotServe(MemberId),
    Serves(MemberId),
    /// More voters are counted as ready than serve.
    ReadyCount,
    /// It lists other members than etcd.
    Members,
    /// It reports a learner as a voter, or a voter as a learner.
    Role(MemberId),
    Leader,
    /// Its condition `Available` is true, and no member serves.
    Available,
    /// Its condition `Ready` is true, and not exactly the wanted members serve.
    Ready,
    /// It reports that the cluster is stopped, and a member serves.
    Stopped,
    /// It reports that the cluster is running, and no member serves.
    Running,
    /// It reports that the cluster has failed, and all wanted members serve and can be reached.
    Failed,
}

impl Contradiction {
    fn limit(self) -> Tick {
        if self == Self::Running { QUORUM_LIMIT } else { LIMIT }
    }

    /// Whether it ends as soon as any member serves.
    fn is_about_nobody(self) -> bool {
        matches!(self, Self::Available | Self::Running)
    }

    /// Whether an operator that cannot observe everything must not write this either.
    fn is_false_hope(self) -> bool {
        matches!(self, Self::DoesNotServe(_) | Self::ReadyCount | Self::Available | Self::Running)
    }
}

/// Since when there is each contradiction.
#[derive(Debug, Default)]
pub struct Agreement(BTreeMap<Contradiction, Tick>);

impl Agreement {
    pub fn check(&mut self, world: &mut World, operators: &[Operator]) {
        if !world.now.is_multiple_of(COMPARE_EVERY) {
            // A member can serve for less time than lies between two comparisons.
            if self.0.keys().any(|it| it.is_about_nobody()) && !serving(world).is_empty() {
                self.0.retain(|it, _| !it.is_about_nobody());
            }
            return;
        }
        let runs = operators.iter().any(|operator| operator.is_running(world.now));
        let cluster = world.kube.objects.cluster.as_ref();
        // Of a cluster that is being deleted, no etcd is asked.
        let mut found = match cluster.filter(|cluster| runs && !cluster.deleting) {
            Some(cluster) => Shown::by(world).contradictions(cluster),
            None => BTreeSet::new(),
        };
        if !operators.iter().all(Operator::sees_all) {
            found.retain(|it| it.is_false_hope());
        }
        self.0.retain(|it, _| found.contains(it));
        for contradiction in found {
            let since = *self.0.entry(contradiction).or_insert(world.now);
            if world.now - since > contradiction.limit() {
                world.violate(Violation::StatusContradictsEtcd(contradiction));
            }
        }
    }
}

/// The voters that serve linearizable reads.
fn serving(world: &World) -> BTreeMap<MemberId, Ordinal> {
    let serves = |(id, peer): &(MemberId, Peer)| {
        let runs = world.servers.get(&peer.ordinal).is_some_and(|server| server.id() == *id);
        let sandbox = world.kube.sandboxes.get(&peer.ordinal);
        runs && !peer.learner && sandbox.is_some_and(|sandbox| sandbox.ready)
    };
    world.members().into_iter().filter(serves).map(|(id, peer)| (id, peer.ordinal)).collect()
}

/// What etcd itself shows.
struct Shown {
    members: BTreeMap<MemberId, Peer>,
    /// The voters that serve linearizable reads.
    serving: BTreeSet<MemberId>,
    /// Those of them that operators reach.
    reached: BTreeSet<MemberId>,
    /// As one of those knows it.
    leader: Option<MemberId>,
    replicas: u8,
}

impl Shown {
    fn by(world: &World) -> Self {
        let (members, serving) = (world.members(), serving(world));
        let reached = serving.iter().filter(|(_, ordinal)| world.reaches(**ordinal));
        let reached: BTreeMap<MemberId, Ordinal> = reached.map(|(&id, &ordinal)| (id, ordinal)).collect();
        let asked = reached.values().next();
        let leader = asked.and_then(|at| consensus::leader_of(&world.servers, &world.network, *at));
        Self {
            leader: leader.and_then(|at| world.servers.get(&at)).map(|server| server.id()),
            serving: serving.into_keys().collect(),
            reached: reached.into_keys().collect(),
            replicas: world.kube.objects.set.map_or(0, |set| set.spec.replicas),
            members,
        }
    }

    fn contradictions(&self, cluster: &Cluster) -> BTreeSet<Contradiction> {
        let none = EtcdClusterStatus::default();
        let status = cluster.status.as_deref().unwrap_or(&none);
        let is_true =
            |type_: &str| status.conditions.iter().any(|it| it.type_ == type_ && it.status == "True");
        let mut found = self.of_members(status);
        let counted = usize::try_from(status.ready_replicas.unwrap_or(0)).unwrap_or(0);
        let (all_serve, none_serves) = (self.is_as_wanted(cluster.goal.size), self.serving.is_empty());
        let all_reached = all_serve && !none_serves && self.reached == self.serving;
        // A status that claims both was written when a member served for a moment, or contradicts etcd in the worse way.
        let running = status.phase == Some(Phase::Running) && !is_true(condition::AVAILABLE);
        let rules = [
            (counted > self.serving.len(), Contradiction::ReadyCount),
            (none_serves && is_true(condition::AVAILABLE), Contradiction::Available),
            (!all_serve && is_true(condition::READY), Contradiction::Ready),
            (!none_serves && status.phase == Some(Phase::Stopped), Contradiction::Stopped),
            (none_serves && running, Contradiction::Running),
            (all_reached && status.phase == Some(Phase::Failed), Contradiction::Failed),
        ];
        found.extend(rules.into_iter().filter(|(wrong, _)| *wrong).map(|(_, contradiction)| contradiction));
        found
    }

    fn of_members(&self, status: &EtcdClusterStatus) -> BTreeSet<Contradiction> {
        let id = |text: Option<&String>| u64::from_str_radix(text?, 16).ok().map(MemberId);
        let reported = status.members.iter().filter_map(|it| Some((id(it.id.as_ref())?, it)));
        let reported: BTreeMap<MemberId, _> = reported.collect();
        let ready = |it: &MemberId| reported.get(it).is_some_and(|member| member.ready);
        let mut found = BTreeSet::new();
        let wrong = reported.keys().filter(|it| ready(it) && !self.serving.contains(it));
        found.extend(wrong.map(|&it| Contradiction::DoesNotServe(it)));
        found.extend(self.reached.iter().filter(|it| !ready(it)).map(|&it| Contradiction::Serves(it)));
        if self.reached.is_empty() {
            return found;
        }
        if !reported.keys().eq(self.members.keys()) {
            found.insert(Contradiction::Members);
        }
        if id(status.leader_id.as_ref()) != self.leader {
            found.insert(Contradiction::Leader);
        }
        let learns = |it: &MemberId| self.members.get(it).is_some_and(|peer| peer.learner);
        let role = reported.iter().filter(|(it, member)| learns(it) != (member.role == Some(Role::Learner)));
        found.extend(role.map(|(&it, _)| Contradiction::Role(it)));
        found
    }

    /// Whether exactly the wanted members serve, with pods of theirs.
    fn is_as_wanted(&self, size: u8) -> bool {
        let serving = self.members.iter().filter(|(id, _)| self.serving.contains(id));
        let mut ordinals: Vec<Ordinal> = serving.map(|(_, peer)| peer.ordinal).collect();
        ordinals.sort();
        let all = size == 0 || self.members.len() == self.serving.len();
        all && ordinals.into_iter().eq(Ordinal::below(size)) && self.replicas == size
    }
}
