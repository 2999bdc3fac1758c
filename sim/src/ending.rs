//! What is expected at the end of a run, and what two runs must have in common there.

use etcd_operator_core::decide::{OnDelete, OnStop};
use etcd_operator_core::member::MemberProgress;
use etcd_operator_core::observed::{MemberId, Ordinal};
use etcd_operator_core::plan::{Plan, Refusal};
use etcd_operator_core::quorum::quorum;
use etcd_operator_core::tls::Purpose;
use etcd_operator_core::tls::Schemes;

use crate::auth::Store;
use crate::etcd::Peer;
use crate::kube::{Cluster, Volume};
use crate::problem::Wrong;
use crate::volumes::Class;
use crate::world::World;

/// The state at the end, without what differs between two runs: UIDs, times, IDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    pub size: Option<u8>,
    pub formed: bool,
    pub replicas: Option<u8>,
    /// Whether each pod has the wanted form.
    pub pods: Vec<(Ordinal, bool)>,
    /// Whether each claim belongs to the present cluster and is labelled with a member.
    pub claims: Vec<(Ordinal, bool, bool)>,
    pub members: Vec<(Ordinal, bool)>,
    pub volumes: Vec<(Class, u64, u64)>,
    pub secrets: Vec<Purpose>,
    pub auth: Store,
    /// Pods whose etcd serves other data than was written.
    pub rotten: Vec<Ordinal>,
}

impl Ending {
    pub fn of(world: &World) -> Self {
        let objects = &world.kube.objects;
        let cluster = objects.cluster.as_ref();
        let wanted = objects.final_form();
        let foreign = world.kube.foreign_claims();
        let claims = objects.claims.iter();
        let mut members: Vec<_> = world.members().values().map(|peer| (peer.ordinal, peer.learner)).collect();
        members.sort();
        Self {
            size: cluster.map(|cluster| cluster.goal.size),
            formed: cluster.is_some_and(|cluster| cluster.formed.is_some()),
            replicas: objects.set.map(|set| set.spec.replicas),
            pods: objects.pods.iter().map(|(&it, pod)| (it, Some(pod.template.form) == wanted)).collect(),
            claims: claims
                .clone()
                .map(|(&it, claim)| (it, !foreign.contains(&it), claim.member.is_some()))
                .collect(),
            members,
            volumes: claims.clone().map(|(_, it)| (it.class, it.requested, it.capacity)).collect(),
            secrets: objects.secrets.keys().copied().collect(),
            auth: world.formed().and_then(|cluster| world.auth.get(&cluster).cloned()).unwrap_or_default(),
            rotten: world.servers.iter().filter(|(_, it)| it.data.rotten).map(|(&it, _)| it).collect(),
        }
    }
}

/// What is not as it should be. The plans are the last ones of the operators.
pub fn differences(world: &World, plans: &[&Plan]) -> Vec<Wrong> {
    let objects = &world.kube.objects;
    let refuses = |what: fn(&Refusal) -> bool| plans.iter().any(|plan| plan.refusals.iter().any(what));
    let Some(cluster) = &objects.cluster else { return after_deletion(world) };
    let foreign = world.kube.foreign_claims();
    if !foreign.is_empty() {
        // Only a user can tell what is to become of them.
        let refused = refuses(|it| matches!(it, Refusal::ForeignVolumes { .. }));
        return wrong([(refused, Wrong::ForeignVolumesNotRefused)]);
    }
    let claims: Vec<Ordinal> = objects.claims.keys().copied().collect();
    // A stop that deletes all data was reverted when all data was gone: a cluster that has formed never forms again.
    let deleted_by_stop = cluster.goal.on_stop == OnStop::Delete && cluster.formed.is_some();
    if deleted_by_stop && refuses(|it| *it == Refusal::DataLost) && !any_data(world) {
        return wrong([(objects.order.is_none(), Wrong::OrderExists)]);
    }
    let size = cluster.goal.size;
    let wanted: Vec<Ordinal> = Ordinal::below(size).collect();
    let mut differences = wrong([
        (objects.order.is_none(), Wrong::OrderExists),
        (objects.preflights.is_empty(), Wrong::Preflights),
        (world.certificates_are_valid(), Wrong::Certificates),
        (objects.set.map_or(0, |set| set.spec.replicas) == size, Wrong::Replicas),
        (objects.pods.keys().copied().eq(wanted.iter().copied()), Wrong::Pods),
        (if size > 0 { claims == wanted } else { stopped_claims(world, cluster, &claims) }, Wrong::Volumes),
    ]);
    if size > 0 {
        let members = world.members();
        let mut ordinals: Vec<Ordinal> = members.values().map(|peer| peer.ordinal).collect();
        ordinals.sort();
        let (form, scheme) = (objects.final_form(), objects.target().peers.scheme());
        let finished = members.values().all(|peer| !peer.learner && peer.start == MemberProgress::Published);
        differences.extend(wrong([
            (ordinals == wanted, Wrong::Members),
            (finished, Wrong::MemberUnfinished),
            (objects.pods.values().all(|pod| Some(pod.template.form) == form), Wrong::Forms),
            (objects.pods.values().all(|pod| pod.template.agent >= world.agent), Wrong::Agents),
            (objects.set.map(|set| set.spec.template.form) == form, Wrong::Template),
            (objects.record.map(|record| record.form) == form, Wrong::Record),
            (members.values().all(|peer| peer.schemes == Schemes::only(scheme)), Wrong::PeerUrls),
            (wanted.iter().all(|ordinal| world.servers.contains_key(ordinal)), Wrong::EtcdNotRunning),
            (world.auth_is_as_wanted(), Wrong::Auth),
            (world.volumes_are_as_wanted(), Wrong::VolumeForms),
            (world.new_volumes_are_as_wanted(), Wrong::VolumeTemplate),
        ]));
    }
    differences
}

fn after_deletion(world: &World) -> Vec<Wrong> {
    let objects = &world.kube.objects;
    let Some(deleted) = &world.lineage.deleted else { return Vec::new() };
    let own = objects.claims.values().any(|claim| claim.cluster_uid == deleted.uid);
    // What a stop was to delete anyway is not missed, and neither is what no quorum could bear to lose.
    let excused = deleted.goal.on_stop == OnStop::Delete || world.data_at_risk || world.formed().is_none();
    let keeps = deleted.goal.on_delete == OnDelete::Retain;
    wrong([
        (objects.set.is_none() && objects.pods.is_empty(), Wrong::PodsOfDeletedCluster),
        (objects.preflights.is_empty(), Wrong::Preflights),
        (keeps || !own || world.lineage.set_created_late, Wrong::VolumesOfDeletedCluster),
        (!keeps || excused || quorum_is_kept(world), Wrong::RetainedVolumesMissing),
    ])
}

fn stopped_claims(world: &World, cluster: &Cluster, claims: &[Ordinal]) -> bool {
    match cluster.goal.on_stop {
        _ if world.formed().is_none() => claims.is_empty(),
        // Nothing is left that shows that the adopted cluster ever was one.
        _ if world.data_at_risk && world.has_adopted() && !any_data(world) => claims.is_empty(),
        OnStop::Retain => claims == [Ordinal(0)],
        OnStop::RetainAll => quorum_is_kept(world),
        OnStop::Delete => claims.is_empty(),
    }
}

fn wrong<const N: usize>(expected: [(bool, Wrong); N]) -> Vec<Wrong> {
    expected.into_iter().filter(|(right, _)| !right).map(|(_, wrong)| wrong).collect()
}

/// Whether the volumes of enough voters still hold their data.
pub fn quorum_is_kept(world: &World) -> bool {
    let members = world.members();
    let voters: Vec<(&MemberId, &Peer)> = members.iter().filter(|(_, peer)| !peer.learner).collect();
    voters.iter().filter(|(id, _)| world.has_data(**id)).count() >= quorum(voters.len())
}

fn any_data(world: &World) -> bool {
    world.kube.volumes.values().any(|volume| volume.data.is_some())
}

/// Whether etcd was killed between the agent's note and its first entry, so that nothing can tell whether it had begun:
/// then the operator waits or refuses until a user deletes the cluster.
pub fn is_doubtful(world: &World) -> bool {
    let begun = |volume: &Volume| !volume.followed.is_empty() && volume.data.is_none();
    world.formed().is_none() && world.kube.volumes.values().any(begun)
}
