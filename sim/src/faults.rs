//! What happens to the world: pods killed, nodes down, volumes lost, edits of the spec.

use std::rc::Rc;

use etcd_operator_core::auth::Wanted;
use etcd_operator_core::decide::{Goal, OnDelete, OnStop};
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::quorum::quorum;
use etcd_operator_core::tls::{ClientPort, PeerPort, Purpose, Transport};

use crate::etcd::Tick;
use crate::form::{Edit, Flaw};
use crate::gift::Gift;
use crate::kube::Cluster;
use crate::observe::uid;
use crate::operator::Operator;
use crate::script::with_password;
use crate::volumes::{Class, Volumes};
use crate::world::World;

/// How often each fault strikes, out of a thousand ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub edit: u64,
    /// A user edits what members are made from.
    pub edit_form: u64,
    /// A user edits size or class of the volumes, or storage begins or ends to fail.
    pub edit_volumes: u64,
    /// A user edits which ports use TLS.
    pub edit_transport: u64,
    /// Somebody drains the node of a pod.
    pub drain: u64,
    pub record_deleted: u64,
    /// A user deletes the Secret of a certificate.
    pub leaf_deleted: u64,
    /// A user deletes the Secret of an authority.
    pub authority_deleted: u64,
    /// A user edits authentication, changes it by hand, or changes the password of root.
    pub auth: u64,
    /// A user asks for other authorities.
    pub rotate: u64,
    /// A user gives a certificate for the client port, or none.
    pub give: u64,
    pub kill: u64,
    pub delete_pod: u64,
    pub lose_volume: u64,
    /// A node is down, or returns.
    pub node: u64,
    /// A user forces the deletion of a pod on a node that is down.
    pub force: u64,
    /// Messages from one pod to another are lost, or arrive again.
    pub sever: u64,
    /// No operator reaches a pod, or they reach it again.
    pub hide: u64,
    pub unplaceable: u64,
    pub freeze: u64,
    pub blind: u64,
    pub crash: u64,
    pub order_deleted: u64,
    pub set_deleted: u64,
    pub status_lost: u64,
    /// Volumes are lost also beyond what a quorum can bear: then only a second cluster is forbidden.
    pub unbearable: bool,
    pub delete_cluster: Option<Tick>,
    /// A user creates a deleted cluster again, or does something about volumes that it left.
    pub recreate: u64,
}

impl Faults {
    /// Everything that may happen in this tick.
    pub fn strike(&self, world: &mut World, operators: &mut [Operator]) {
        if world.random.chance(self.edit) {
            edit_spec(world);
        }
        if world.random.chance(self.edit_form) {
            edit_form(world);
        }
        if self.edit_volumes > 0 && world.random.chance(self.edit_volumes) {
            edit_volumes(world);
        }
        if self.edit_transport > 0 && world.random.chance(self.edit_transport) {
            edit_transport(world);
        }
        self.strike_pods(world);
        self.strike_network(world);
        self.strike_operators(world, operators);
        if world.random.chance(self.order_deleted) && world.kube.objects.order.take().is_some() {
            world.note(|| "a user deletes the bootstrap order".into());
        }
        if world.random.chance(self.record_deleted)
            && self.transport_stays_known(world)
            && world.kube.objects.record.take().is_some()
        {
            world.kube.objects.cleared.clear();
            world.kube.objects.section = None;
            world.note(|| "a user deletes the record of the form".into());
        }
        if self.leaf_deleted > 0 && world.random.chance(self.leaf_deleted) {
            delete_secret(world, |it| it.issuer().is_some());
        }
        if self.authority_deleted > 0 && world.random.chance(self.authority_deleted) {
            delete_secret(world, |it| it.issuer().is_none());
        }
        if self.auth > 0 && world.random.chance(self.auth) {
            change_auth(world);
        }
        if self.rotate > 0 && world.random.chance(self.rotate) {
            world.note(|| "a user asks for a rotation of authorities".into());
            world.rotate_authorities();
        }
        if self.give > 0 && world.random.chance(self.give) {
            give(world);
        }
        if world.random.chance(self.set_deleted)
            && self.transport_stays_known(world)
            && world.kube.objects.set.take().is_some()
        {
            world.note(|| "a user deletes the StatefulSet".into());
        }
        if world.random.chance(self.status_lost)
            && self.volumes_tell(world)
            && let Some(cluster) = &mut world.kube.objects.cluster
        {
            (cluster.formed, cluster.status, cluster.rotation) = (None, None, None);
            cluster.version += 1;
            world.note(|| "a user deletes the status".into());
        }
        if self.delete_cluster == Some(world.now) {
            let on_delete = if world.random.chance(300) { OnDelete::Delete } else { OnDelete::Retain };
            world.delete_cluster(on_delete);
        }
        if world.random.chance(self.recreate) {
            recreate(world, self.edit_transport == 0);
        }
    }

    /// Without record, StatefulSet and pods nothing shows what the members on volumes are listed with, so pods get what the
    /// spec asks for.
    fn transport_stays_known(&self, world: &World) -> bool {
        let objects = &world.kube.objects;
        self.edit_transport == 0 || objects.record.is_some() && objects.set.is_some()
    }

    /// Without a status and without volumes nothing shows that there was a previous cluster.
    fn volumes_tell(&self, world: &World) -> bool {
        let objects = &world.kube.objects;
        let deletes = |cluster: &Cluster| cluster.goal.on_stop == OnStop::Delete;
        !self.unbearable && !objects.cluster.as_ref().is_some_and(deletes) && !objects.claims.is_empty()
    }

    fn strike_pods(&self, world: &mut World) {
        let pods: Vec<Ordinal> = world.kube.sandboxes.keys().copied().collect();
        let Some(&ordinal) = world.random.pick(&pods) else { return };
        if world.random.chance(self.kill) {
            world.note(|| format!("etcd {ordinal} is killed"));
            let after = world.random.between(1, 30);
            world.restart_container(ordinal, after);
        }
        if world.random.chance(self.delete_pod)
            && let Some(pod) = world.kube.objects.pods.get_mut(&ordinal)
        {
            pod.terminating = true;
            world.note(|| format!("a user deletes pod {ordinal}"));
        }
        let voters = world.members().values().filter(|peer| !peer.learner).count();
        if world.random.chance(self.drain)
            && world.kube.allows_eviction(ordinal, voters)
            && let Some(pod) = world.kube.objects.pods.get_mut(&ordinal)
        {
            pod.terminating = true;
            world.note(|| format!("a drain evicts pod {ordinal}"));
        }
        if world.random.chance(self.lose_volume) {
            let bearable = may_lose(world, ordinal);
            if bearable || self.unbearable {
                world.data_at_risk |= !bearable;
                lose_volume(world, ordinal);
            }
        }
        if world.random.chance(self.node) {
            if world.kube.nodes_down.len() < 2 && world.random.chance(500) {
                world.take_node_down(ordinal);
            } else if world.kube.nodes_down.pop_first().is_some() {
                world.note(|| "a node returns".into());
            }
        }
        if world.random.chance(self.force) && world.network.cut.contains(&ordinal) {
            world.force_deletion(ordinal);
        }
        if world.random.chance(self.unplaceable) {
            let ordinal = Ordinal(world.random.below(9) as u8);
            if !world.kube.unplaceable.remove(&ordinal) {
                world.kube.unplaceable.insert(ordinal);
                world.note(|| format!("no node has room for pod {ordinal}"));
            }
        }
    }

    fn strike_network(&self, world: &mut World) {
        let ordinal = |world: &mut World| Ordinal(world.random.below(5) as u8);
        if world.random.chance(self.sever) {
            let (from, to) = (ordinal(world), ordinal(world));
            if from == to || world.random.chance(400) {
                world.network.severed.clear();
                world.note(|| "all pods are connected again".into());
            } else {
                let both = world.random.chance(500);
                world.network.severed.insert((from, to));
                world.network.severed.extend(both.then_some((to, from)));
                world.note(|| format!("pod {from} does not reach pod {to}; both ways: {both}"));
            }
        }
        if world.random.chance(self.hide) {
            let ordinal = ordinal(world);
            let hidden = world.unreachable.insert(ordinal) || !world.unreachable.remove(&ordinal);
            world.note(|| format!("the operators reach pod {ordinal}: {}", !hidden));
        }
    }

    fn strike_operators(&self, world: &mut World, operators: &mut [Operator]) {
        let objects = Rc::new(world.kube.objects.clone());
        for operator in operators {
            if world.random.chance(self.freeze) {
                let mut kinds = [false; 5];
                kinds.iter_mut().for_each(|kind| *kind = world.random.chance(400));
                world.note(|| format!("operator {} reads stale objects: {kinds:?}", operator.name));
                operator.freeze(&objects, kinds);
            }
            if world.random.chance(self.freeze) {
                operator.thaw();
            }
            if world.random.chance(self.blind) {
                operator.sight.etcd_unreachable ^= true;
                let unreachable = operator.sight.etcd_unreachable;
                world.note(|| format!("operator {} can reach etcd: {}", operator.name, !unreachable));
            }
            if world.random.chance(self.crash) {
                operator.crash(world);
            }
        }
    }
}

fn edit_spec(world: &mut World) {
    let sizes = [0, 1, 1, 2, 3, 3, 3, 4, 5, 5, 7, 9];
    let size = *world.random.pick(&sizes).unwrap_or(&3);
    let Some(cluster) = &mut world.kube.objects.cluster else { return };
    if size == 2 {
        cluster.goal.paused ^= true;
        cluster.version += 1;
    }
    if cluster.goal.size != size && !cluster.deleting {
        cluster.goal.size = size;
        cluster.version += 1;
        world.note(|| format!("a user edits the size: {size}"));
    }
}

/// A container that crashes before the bootstrap may have used the order up, which nobody but a user can mend.
fn edit_form(world: &mut World) {
    let Some(cluster) = world.kube.objects.cluster.as_ref().filter(|cluster| !cluster.deleting) else {
        return;
    };
    let formed = cluster.formed.is_some() && world.kube.objects.order.is_none();
    let flaws = [Flaw::Crashes, Flaw::Crashes, Flaw::Rejected, Flaw::ImageMissing];
    let flaw = if formed { world.random.pick(&flaws) } else { None };
    let flaw = Edit::Flawed(flaw.copied().unwrap_or(Flaw::ImageMissing));
    let edits = [Edit::Harmless, Edit::Arguments, Edit::Upgrade, Edit::Revert, flaw];
    let edit = *world.random.pick(&edits).unwrap_or(&Edit::Harmless);
    world.edit_form(edit);
}

fn edit_volumes(world: &mut World) {
    let Some(cluster) = world.kube.objects.cluster.as_ref().filter(|cluster| !cluster.deleting) else {
        return;
    };
    let before = cluster.volumes;
    let sizes = [1024, 1024, 2048, 3072, before.mebibytes];
    let classes = [Class::Slow, Class::Fast, Class::Default, Class::Missing, before.class, before.class];
    let mebibytes = *world.random.pick(&sizes).unwrap_or(&before.mebibytes);
    let class = *world.random.pick(&classes).unwrap_or(&before.class);
    world.kube.growth_fails ^= world.random.chance(300);
    world.edit_volumes(Volumes { mebibytes, class });
}

/// The API server rejects authentication without TLS for clients. Who adopts volumes keeps the transport of their members until
/// pods exist.
fn edit_transport(world: &mut World) {
    if world.lineage.deleted.is_some() && world.kube.objects.transport().is_none() {
        return;
    }
    let Some(cluster) = world.kube.objects.cluster.as_ref().filter(|cluster| !cluster.deleting) else {
        return;
    };
    let needs_tls = matches!(cluster.goal.auth, Wanted::Enabled { .. });
    let clients = [ClientPort::Http, ClientPort::Both, ClientPort::Https];
    let clients = *world.random.pick(&clients[usize::from(needs_tls)..]).unwrap_or(&ClientPort::Https);
    let peers = if world.random.chance(500) { PeerPort::Http } else { PeerPort::Https };
    world.edit_transport(Transport { clients, peers });
}

fn delete_secret(world: &mut World, which: fn(&Purpose) -> bool) {
    let there: Vec<Purpose> = world.kube.objects.secrets.keys().copied().filter(which).collect();
    if let Some(&purpose) = world.random.pick(&there) {
        world.delete_secret(purpose);
    }
}

fn change_auth(world: &mut World) {
    let cluster = world.kube.objects.cluster.as_ref();
    let has_tls = cluster.is_some_and(|it| Transport::asked_for(&it.tls).clients.is_tls());
    match world.random.below(5) {
        0 if !has_tls => {}
        0 => world.edit_auth(with_password()),
        1 => world.edit_auth(Wanted::Disabled),
        2 => world.toggle_auth(true),
        3 => world.toggle_auth(false),
        _ => {
            let password = world.random.below(1000);
            world.edit_root_password(password);
        }
    }
}

/// Of one of two authorities. What cannot be used is corrected in the end.
fn give(world: &mut World) {
    let gift = Gift::new(world.random.below(2), world.random.below(1000));
    let gifts = [Some(gift), Some(gift), Some(gift.unusable()), None];
    let gift = world.random.pick(&gifts).copied().flatten();
    world.give(gift);
}

/// The UID of no cluster.
const NOBODY: u64 = 0;

/// A deleted cluster is created again, with or without the volumes that it left. Where those block it, a user names their
/// owner in the annotation, or deletes them. A user who asked for an adoption does not revoke it: agents accept a volume only
/// while the annotation names its owner, so an adoption that is half done would stay so. Nobody adopts the volumes of a cluster that
/// was deleted in the middle of a switch: their members are listed with different schemes.
fn recreate(world: &mut World, may_adopt: bool) {
    let objects = &world.kube.objects;
    let left = objects.claims.values().next().map(|claim| claim.cluster_uid);
    let deleted = world.lineage.deleted.clone();
    if let (None, Some(Cluster { uid: former, goal, form, tls, .. })) = (&objects.cluster, deleted) {
        let choices = [None, Some(former), left, left, Some(NOBODY)];
        let adopts = world.random.pick(&choices).copied().flatten().filter(|_| may_adopt);
        let adopts = adopts.map(|former| uid("cluster", former));
        world.create_cluster(Goal { adopts, on_delete: OnDelete::Retain, ..goal }, form, tls);
        return;
    }
    let foreign = world.kube.foreign_claims();
    let adopted = |cluster: &Cluster| cluster.goal.adopts.clone().filter(|it| *it != uid("cluster", NOBODY));
    if foreign.is_empty() || objects.cluster.as_ref().and_then(adopted).is_some() {
        return;
    }
    if world.random.chance(500) || !may_adopt {
        world.note(|| "a user deletes the volumes of the previous cluster".into());
        for ordinal in foreign {
            if let Some(claim) = world.kube.objects.claims.get_mut(&ordinal) {
                claim.terminating = true;
                claim.version += 1;
            }
        }
    } else if let Some(cluster) = &mut world.kube.objects.cluster {
        cluster.goal.adopts = left.map(|former| uid("cluster", former));
        cluster.version += 1;
        world.note(|| format!("a user asks to adopt the volumes of {left:?}"));
    }
}

/// Whether a quorum bears the loss, also if the operator is about to take one more voter away or to promote this
/// learner. A volume that is lost while the order is still there is more than is promised: its pod may follow the order
/// once more.
fn may_lose(world: &World, ordinal: Ordinal) -> bool {
    if world.kube.objects.order.is_some() || world.formed().is_none() {
        return false;
    }
    let members = world.members();
    let lost =
        members.iter().filter(|(id, peer)| peer.ordinal == ordinal || !peer.learner && !world.has_data(**id));
    let voters = members.values().filter(|peer| !peer.learner).count();
    let Some(here) = members.values().find(|peer| peer.ordinal == ordinal) else { return true };
    let voters = if here.learner { voters + 1 } else { voters.saturating_sub(1) };
    voters >= lost.count() + quorum(voters)
}

/// Either the whole volume with its claim and pod, or what was on it.
fn lose_volume(world: &mut World, ordinal: Ordinal) {
    let recorded = world.kube.objects.cluster.as_ref().is_some_and(|cluster| cluster.formed.is_some());
    world.order_at_risk |= world.kube.objects.order.is_some() || !recorded;
    if world.random.chance(500) {
        world.note(|| format!("volume {ordinal} is lost"));
        world.stop(ordinal);
        world.kube.lose_claim(ordinal);
        world.kube.sandboxes.remove(&ordinal);
        world.kube.objects.pods.remove(&ordinal);
    } else {
        wipe(world, ordinal);
    }
}

/// The volume stays, and what etcd wrote to it is gone.
pub fn wipe(world: &mut World, ordinal: Ordinal) {
    world.note(|| format!("the data directory {ordinal} is wiped"));
    let volume = world.kube.sandboxes.get(&ordinal).map(|sandbox| sandbox.volume);
    if let Some(volume) = volume.and_then(|volume| world.kube.volumes.get_mut(&volume)) {
        volume.data = None;
    }
    let after = world.random.between(1, 10);
    world.restart_container(ordinal, after);
}

/// Nothing but a comparison with other members shows it.
pub fn rot(world: &mut World, ordinal: Ordinal) {
    world.note(|| format!("the disk of pod {ordinal} returns other data"));
    if let Some(server) = world.servers.get_mut(&ordinal) {
        server.data.rotten = true;
    }
}
