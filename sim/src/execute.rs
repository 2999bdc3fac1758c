//! Carries out one request. The API server checks what a write depends on, and etcd what it checks by itself; neither knows
//! why it was decided.

use std::fmt::Display;
use std::rc::Rc;

use etcd_operator_core::asked::Accepted;
use etcd_operator_core::decide::{Goal, OnDelete, OnStop};
use etcd_operator_core::form::Digest;
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::request::{self, Change, MemberChange, Object, OnlyIf, Request, Write};
use etcd_operator_core::round::Outcome;
use etcd_operator_core::status::Trouble;
use etcd_operator_core::tls::{Purpose, Section};

use crate::auth;
use crate::etcd::api::{self, Call};
use crate::form::Form;
use crate::gift::Gift;
use crate::kube::{Objects, Order, OrderKind, Pod, Record, Set, SetSpec, Template};
use crate::observe::NODE;
use crate::rolling;
use crate::secrets::{Authorities, Secret};
use crate::volumes::Volumes;
use crate::watch;
use crate::world::World;

/// What users wanted when the operator read it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub cluster: u64,
    pub adopts: Option<u64>,
    /// Whether everything was to stop then.
    pub stopping: bool,
    /// Whether the user had asked for the end of all data. Who did so cannot count on taking it back while it is
    /// under way.
    pub data_may_go: bool,
    pub form: Form,
    pub volumes: Volumes,
    pub recorded: Option<Record>,
    /// What pods were created from.
    pub template: Option<Template>,
    pub authorities: Authorities,
    /// Of the client port.
    pub server: Option<Secret>,
    pub gift: Option<Gift>,
    /// Of etcd's root.
    pub root_password: Option<u64>,
    /// Whether a user had consented to the loss of data.
    pub consented: bool,
    /// It arrives long after it was sent.
    pub late: bool,
}

impl Wanted {
    /// What is created is what was read. What the operator may do is what the user wanted at that time: whether a cache
    /// knew it is no excuse.
    pub fn of(read: &Objects, live: &Objects, goal: &Goal) -> Option<Self> {
        let cluster = read.cluster.as_ref()?;
        let adopts = cluster.goal.adopts.as_deref();
        let wants = |what: fn(&Goal, bool) -> bool| {
            live.cluster.as_ref().is_some_and(|cluster| what(&cluster.goal, cluster.deleting))
        };
        Some(Self {
            cluster: cluster.uid,
            form: cluster.form.with(goal.switch.as_ref()?.form),
            volumes: cluster.volumes,
            recorded: read.record,
            template: read.set.map(|set| set.spec.template),
            authorities: Authorities::of(&read.secrets),
            server: read.secrets.get(&Purpose::Server).copied(),
            gift: cluster.gift,
            root_password: cluster.goal.auth.root_password_secret().and(cluster.root_password),
            late: false,
            adopts: adopts.and_then(|former| former.strip_prefix("cluster-")?.parse().ok()),
            consented: wants(|goal, _| goal.recovery.is_some()),
            stopping: wants(|goal, _| goal.size == 0),
            data_may_go: wants(|goal, deleting| {
                deleting && goal.on_delete == OnDelete::Delete
                    || goal.size == 0 && goal.on_stop == OnStop::Delete
            }),
        })
    }

    /// The form with this digest, of those that were read: the StatefulSet might be gone when the request arrives.
    fn find(self, digest: &Digest) -> Option<Form> {
        let others = [self.recorded.map(|record| record.form), self.template.map(|template| template.form)];
        let mut known = others.into_iter().flatten().chain([self.form]);
        known.find(|form| form.digest() == *digest)
    }
}

pub fn execute(world: &mut World, what: &impl Display, request: &Request, wanted: Wanted) -> Outcome {
    let outcome = send(world, request, wanted);
    world.note(|| match &outcome {
        Outcome::Done => format!("  done: {what}"),
        Outcome::Overtaken => format!("  changed in the meantime: {what}"),
        Outcome::NotDone(trouble) => format!("  not done ({}): {what}", trouble.words()),
        Outcome::Ambiguous(why) => format!("  perhaps done ({why}): {what}"),
    });
    outcome
}

pub fn send(world: &mut World, request: &Request, wanted: Wanted) -> Outcome {
    match request {
        Request::Kube(write) => apply(world, write, wanted),
        Request::Etcd(call) => change_members(world, *call, wanted),
        // Agents find everything out by themselves here.
        Request::Tell(..) => Outcome::Done,
    }
}

fn apply(world: &mut World, write: &Write, wanted: Wanted) -> Outcome {
    let there = world.kube.objects.identity(write.object);
    let holds = match (&write.only_if, there) {
        (OnlyIf::Absent, there) => there.is_none(),
        (OnlyIf::Same(uid), Some((there, _))) => *uid == there,
        (OnlyIf::Unchanged(uid, version), Some(there)) => there == (uid.clone(), version.clone()),
        (OnlyIf::Same(_) | OnlyIf::Unchanged(..), None) => false,
    };
    if !holds {
        return Outcome::Overtaken;
    }
    match write.object {
        Object::Cluster => change_cluster(world, &write.change),
        Object::Order => change_order(world, &write.change, wanted),
        Object::Set => change_set(world, &write.change, wanted),
        Object::Pod(ordinal) => {
            let voters = world.members().values().filter(|peer| !peer.learner).count();
            if write.change == Change::Evict && !world.kube.allows_eviction(ordinal, voters) {
                let why = "it would violate the pod's disruption budget";
                return Outcome::NotDone(Trouble::EvictionNotYet(why.into()));
            }
            if write.change == Change::DeleteWithin(0) {
                watch::end_is_fenced(world, ordinal);
                world.force_deletion(ordinal);
                return Outcome::Done;
            }
            if !wanted.stopping && !wanted.consented && !watch::is_deleting(world) {
                rolling::pod_may_end(world, ordinal, wanted, write.change == Change::Evict);
            }
            world.kube.objects.pods.entry(ordinal).and_modify(|pod| pod.terminating = true);
        }
        Object::Claim(ordinal) => return change_claim(world, ordinal, &write.change, wanted),
        Object::Preflight(ordinal) => change_preflight(world, ordinal, &write.change, wanted),
        Object::Form => record_form(world, &write.change, wanted),
        Object::Secret(purpose) => {
            let issued = world.issue(purpose, &write.change, wanted);
            return issued
                .map_or_else(|why| Outcome::NotDone(Trouble::Failed(why.into())), |()| Outcome::Done);
        }
        Object::Service(_)
        | Object::Budget
        | Object::NetworkPolicy
        | Object::Certificate
        | Object::PodMonitor => {}
    }
    Outcome::Done
}

fn change_cluster(world: &mut World, change: &Change) {
    let there = &mut world.kube.objects.cluster;
    let Some(cluster) = there else { return };
    cluster.version += 1;
    if let Change::RecordFormed(id, _) = change {
        cluster.formed.get_or_insert((*id, world.now));
    } else if let Change::RecordIncarnation(incarnation) = change {
        cluster.incarnation = Some(incarnation.clone());
    } else if let Change::Report(status) = change {
        cluster.status = Some(Rc::new((**status).clone()));
    } else if let Change::Accept(Accepted::Rotation { token, authorities }) = change {
        cluster.rotation = Some((token.clone(), authorities.iter().cloned().collect()));
    } else {
        cluster.finalizer = *change == Change::AddFinalizer && !cluster.deleting;
        there.take_if(|cluster| cluster.deleting && !cluster.finalizer);
    }
}

fn change_order(world: &mut World, change: &Change, wanted: Wanted) {
    world.kube.objects.order = match (change, world.kube.objects.order) {
        (&Change::CreateOrder(size), _) => {
            let (uid, cluster, peers) =
                (world.kube.uid(), wanted.cluster, wanted.form.transport.peers.scheme());
            Some(Order { uid, version: 1, cluster, armed: false, size, peers, kind: OrderKind::Bootstrap })
        }
        (Change::CreateRecovery, _) => {
            let (uid, cluster, peers) =
                (world.kube.uid(), wanted.cluster, wanted.form.transport.peers.scheme());
            let kind = OrderKind::Recovery(None);
            Some(Order { uid, version: 1, cluster, armed: false, size: 0, peers, kind })
        }
        (Change::ArmRecovery(survivor, pod), Some(order)) => {
            let pod = pod.strip_prefix("pod-").and_then(|it| it.parse().ok()).unwrap_or_default();
            let kind = OrderKind::Recovery(Some((*survivor, pod)));
            Some(Order { version: order.version + 1, kind, ..order })
        }
        (Change::ArmOrder(_), Some(order)) => {
            let (version, peers) = (order.version + 1, wanted.form.transport.peers.scheme());
            Some(Order { armed: true, version, peers, ..order })
        }
        _ => None,
    };
}

fn change_set(world: &mut World, change: &Change, wanted: Wanted) {
    let before = world.kube.objects.set;
    // A new StatefulSet adopts orphans, and ends those that it does not keep; a deleted one takes its pods with it.
    let created = if let Change::CreateSet(replicas) = change { Some(*replicas) } else { None };
    let ended = |(ordinal, pod): &(&Ordinal, &Pod)| match created {
        Some(replicas) => pod.set.is_none() && ordinal.0 >= replicas,
        None => *change == Change::Delete,
    };
    let ended: Vec<Ordinal> = world.kube.objects.pods.iter().filter(ended).map(|(&it, _)| it).collect();
    ended.into_iter().for_each(|ordinal| watch::voter_is_left_alone(world, ordinal, wanted));
    world.kube.objects.set = if let Change::CreateSet(replicas) = *change {
        let owner = world.kube.objects.cluster.as_ref().map(|cluster| cluster.uid);
        world.lineage.set_created_late |= owner != Some(wanted.cluster);
        let form = wanted.recorded.map_or(wanted.form, |record| record.form);
        let adopts = wanted.recorded.and_then(|record| record.adopts).or(wanted.adopts);
        let template = Template { cluster: wanted.cluster, adopts, form, agent: world.agent };
        Some(Set::new(world.kube.uid(), SetSpec { replicas, template, volumes: wanted.volumes }))
    } else if *change == Change::Orphan {
        before.map(|set| Set { orphaning: true, version: set.version + 1, ..set })
    } else if let Change::SetTemplate(digest) = change {
        before.map(|set| {
            let form = wanted.find(digest).unwrap_or(wanted.form);
            let template = Template { form, agent: world.agent, ..set.spec.template };
            set.changed(SetSpec { template, ..set.spec })
        })
    } else if let Change::SetReplicas(replicas) = *change {
        for ordinal in (replicas..before.map_or(0, |set| set.spec.replicas)).map(Ordinal) {
            watch::voter_is_left_alone(world, ordinal, wanted);
        }
        before.map(|set| set.changed(SetSpec { replicas, ..set.spec }))
    } else {
        None
    };
}

fn record_form(world: &mut World, change: &Change, wanted: Wanted) {
    if let Change::RecordCleared(members) = change {
        world.kube.objects.cleared.clone_from(members);
        if let Some(record) = &mut world.kube.objects.record {
            record.version += 1;
        }
        return;
    }
    if let Change::RecordTls(section) = change {
        world.kube.objects.section = Some(section.clone());
        if let Some(record) = &mut world.kube.objects.record {
            record.version += 1;
        }
        return;
    }
    let Change::RecordForm(digest) = change else { return };
    let Some(form) = wanted.find(digest) else { return };
    rolling::form_is_run_by_all(world, form);
    world.kube.objects.cleared.clear();
    let before = world.kube.objects.record;
    let adopts = wanted.template.map_or_else(|| before?.adopts, |template| template.adopts);
    world.kube.objects.record = Some(match before {
        Some(record) => Record { version: record.version + 1, form, adopts, ..record },
        None => {
            world.kube.objects.section = Some(Section::InForce);
            Record { uid: world.kube.uid(), version: 1, cluster: wanted.cluster, form, adopts }
        }
    });
}

/// A pod that is deleted is gone at once: nothing confirms its end.
fn change_preflight(world: &mut World, ordinal: Ordinal, change: &Change, wanted: Wanted) {
    let Change::CreatePreflight(node) = change else {
        world.kube.objects.preflights.remove(&ordinal);
        return;
    };
    let node = node.strip_prefix(NODE).and_then(|it| it.strip_prefix('-')?.parse().ok());
    if let Some(node) = node {
        world.kube.create_preflight(ordinal, wanted.cluster, wanted.form, node, world.now);
    }
}

fn change_claim(world: &mut World, ordinal: Ordinal, change: &Change, wanted: Wanted) -> Outcome {
    if *change == Change::Adopt {
        watch::volume_is_adoptable(world, ordinal, wanted);
    }
    let Some(claim) = world.kube.objects.claims.get_mut(&ordinal) else { return Outcome::Overtaken };
    if let Change::Resize(bytes) = change {
        let resized = claim.resize(*bytes);
        return resized.map_or_else(|why| Outcome::NotDone(Trouble::Failed(why.into())), |()| Outcome::Done);
    }
    claim.version += 1;
    if let Change::Label(member) = change {
        claim.member = Some(*member);
    } else if *change == Change::Adopt {
        let former = std::mem::replace(&mut claim.cluster_uid, wanted.cluster);
        // A volume that a user has deleted carries nothing on.
        if !claim.terminating {
            world.adopted(wanted.cluster, former);
        }
    } else {
        claim.terminating = true;
        watch::volume_may_go(world, ordinal, wanted);
        if wanted.data_may_go {
            world.adopted_in_vain(wanted.cluster);
        }
    }
    Outcome::Done
}

/// Through this pod, if it runs a member of the right cluster that serves.
fn change_members(
    world: &mut World,
    request::Call { via, cluster, change }: request::Call,
    wanted: Wanted,
) -> Outcome {
    let serves = world.servers.get(&via).is_some_and(|server| server.data.cluster == cluster)
        && world.reaches(via)
        && api::linearizable_revision(&world.servers, &world.network, via).is_some();
    if !serves {
        return refused(&api::Error::Unavailable);
    }
    if world.denies_operators(cluster) {
        return failed(&auth::Error::PermissionDenied);
    }
    let World { servers, network, truth, now, strict, .. } = world;
    let mut call = Call { servers, network, truth, now: *now, strict: *strict };
    let result = match change {
        MemberChange::AddLearner(ordinal, scheme) => call.add_learner(via, ordinal, scheme).map(drop),
        MemberChange::UpdatePeerUrls(member, _, schemes) => call.update(via, member, schemes),
        MemberChange::Promote(member) => call.promote(via, member),
        MemberChange::MoveLeader { from, to } => call.move_leader(from, to),
        MemberChange::Remove(member) => call.remove(via, member),
        MemberChange::EnableDowngrade(to) => {
            world.enable_downgrade(to);
            Ok(())
        }
        MemberChange::CancelDowngrade => {
            world.downgrade = None;
            Ok(())
        }
        // No database is ever full here.
        MemberChange::Compact(_) | MemberChange::Defragment(_) | MemberChange::Disarm(_) => Ok(()),
        MemberChange::Auth(step) => {
            let changed = world.change_auth(cluster, step, wanted.root_password);
            return changed.map_or_else(|error| failed(&error), |()| Outcome::Done);
        }
    };
    if wanted.late && matches!(change, MemberChange::UpdatePeerUrls(..)) {
        world.urls_changed_late();
    }
    if result.is_ok() && matches!(change, MemberChange::Remove(_)) {
        watch::quorum_is_left(world);
    }
    result.map_or_else(|error| refused(&error), |()| Outcome::Done)
}

fn failed(error: &auth::Error) -> Outcome {
    Outcome::NotDone(Trouble::Failed(format!("{error:?}")))
}

/// As `etcd/error.rs` of the operator reads it.
fn refused(error: &api::Error) -> Outcome {
    let text = format!("{error:?}");
    let not_yet = matches!(
        error,
        api::Error::UnhealthyCluster
            | api::Error::NotEnoughStartedMembers
            | api::Error::TooManyLearners
            | api::Error::LearnerNotReady
    );
    if matches!(error, api::Error::Timeout | api::Error::NoLeader) {
        return Outcome::Ambiguous(text);
    }
    Outcome::NotDone(if not_yet { Trouble::EtcdNotYet(text) } else { Trouble::Failed(text) })
}
