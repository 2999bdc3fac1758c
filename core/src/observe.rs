//! From what was read to the snapshot that decisions are made from: what the state of an object means is decided here, for
//! the operator and for nobody else.

mod backup;
mod container;
mod etcd;
mod node_loss;
mod nodes;
mod preflight;
mod rejections;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Node, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimStatus,
    Pod, Secret, Service,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};

use crate::agent::Protocol;
use crate::api::{EtcdBackup, EtcdCluster, Quantity};
use crate::auth::{self, RootPassword};
use crate::decide::{Goal, OnStop};
use crate::foreign::{Foreign, NotRead};
use crate::form::{Digest, Form, Record, adopts, member_config};
use crate::intent;
use crate::names::{
    CLUSTER_UID_LABEL, COPIED_ANNOTATION, FINALIZER, MEMBER_ID_LABEL, Names, REPLACED_BY_LABEL,
};
use crate::observed::{
    self, Claim, Cluster, ClusterId, FormRecord, Formed, Handshake, MemberId, Observed, Order, Ordinal,
    Owner, Resize, Seen, Set, Taken, Unread, Versions, VolumeForm,
};
use crate::order::{self, BootstrapOrder};
use crate::recovery::{self, RecoveryOrder};
use crate::request::{Object, Role};
use crate::restores;
use crate::round::{Handshakes, Memory, Unseen};
use crate::tls::{self, Issuance, PeerPort, Purpose, Schemes, Section, Transport};
use crate::validate::validate;
pub(crate) use container::blocked;
pub use container::image;
pub use etcd::{Reply, etcd};
pub use nodes::addresses as node_addresses;

/// The Kubernetes objects of one cluster. They cannot be printed, because private keys are among them.
#[derive(Clone)]
pub struct Objects {
    pub cluster: Arc<EtcdCluster>,
    pub order: Option<Arc<ConfigMap>>,
    pub record: Option<Arc<ConfigMap>>,
    pub set: Option<Arc<StatefulSet>>,
    pub pods: Pods,
    pub preflights: Pods,
    pub claims: BTreeMap<Ordinal, Arc<PersistentVolumeClaim>>,
    /// The claim with what [`restored_names`] names.
    pub restored: Option<Arc<PersistentVolumeClaim>>,
    /// All others with the label of the cluster.
    pub elsewhere: Vec<Arc<PersistentVolumeClaim>>,
    /// With private keys, which nothing in here reads.
    pub secrets: BTreeMap<Purpose, Arc<Secret>>,
    /// What a user gives for the client port; none if the operator issues that certificate.
    pub given: Option<GivenSecrets>,
    /// The user's own, with the password of etcd's root.
    pub root_password: Option<Arc<Secret>>,
    pub listed: Listed,
    pub services: BTreeMap<Role, Arc<Service>>,
    pub budget: Option<Arc<PodDisruptionBudget>>,
    pub network_policy: Option<Arc<NetworkPolicy>>,
    /// In which cert-manager is asked for the certificate of the client port.
    pub certificate: Foreign<Arc<DynamicObject>>,
    /// For the Prometheus operator.
    pub pod_monitor: Foreign<Arc<DynamicObject>>,
    pub taken: BTreeSet<Taken>,
    /// All that there are; they belong to no cluster.
    pub nodes: Seen<Vec<Arc<Node>>, Unread>,
    /// Those that refer to the cluster, from any namespace.
    pub backups: Vec<Arc<EtcdBackup>>,
}

/// The Secrets of a user with a certificate and its authorities. One Secret can have both.
#[derive(Clone)]
pub struct GivenSecrets {
    pub certificate: Option<Arc<Secret>>,
    pub authorities: Option<Arc<Secret>>,
    pub verified: tls::Verified,
}

impl GivenSecrets {
    fn read(&self, names: &Names, issuance: Option<Issuance>) -> tls::Given {
        let is_ours = |name: &str| Purpose::ALL.into_iter().any(|it| names.secret(it) == name);
        let Self { certificate, authorities, verified } = self;
        tls::Given::read(certificate.as_deref(), authorities.as_deref(), verified.clone(), issuance, is_ours)
    }
}

pub type Pods = BTreeMap<Ordinal, Arc<Pod>>;

/// The addresses that the peer Service lists, by the UID of the pod: one that returned under its name may not be listed yet.
pub type Listed = BTreeMap<String, Vec<IpAddr>>;

/// What the pods of a cluster are asked, beside their status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Questions {
    /// How many members each lists, also without a quorum: only while the cluster is not known to have bootstrapped.
    pub listed: bool,
    /// A hash of all data: only while a stop is wanted.
    pub hash: bool,
    /// Which members each reaches: only while a member might be restarted or removed, or leadership moved.
    pub links: bool,
    /// Whether the data of all members is compared. That takes longer than a round, so it happens beside them.
    pub compares: bool,
    /// Its revision and the space that it needs, which it reports while an alarm is active, too.
    pub space: bool,
}

/// The names of the volumes with data that is about to replace that of the cluster, if there is any.
pub fn restored_names(object: &EtcdCluster, names: &Names) -> Option<Names> {
    let Cluster { replacement, formed, .. } = cluster(object);
    let order = replacement.filter(|order| formed.is_some_and(|formed| formed.id == order.replaces))?;
    Some(names.with_volumes(&order.volumes))
}

impl Objects {
    /// As many as [`Observed::replicas`] of them.
    pub fn replicas(&self) -> u8 {
        let pods = self.pods.iter().filter(|(_, pod)| pod.metadata.deletion_timestamp.is_none());
        let claims = self.claims.iter().filter(|(_, claim)| claim.metadata.deletion_timestamp.is_none());
        let last = pods.map(|(ordinal, _)| ordinal).chain(claims.map(|(ordinal, _)| ordinal)).max();
        let there = || last.map_or(0, |last| last.0.saturating_add(1));
        self.set.as_deref().map_or_else(there, replicas)
    }

    /// What pods are made with: as it was recorded, else as the StatefulSet or a pod has it, and before the first pod as the
    /// bootstrap order has its URLs. What a previous cluster left says nothing.
    pub fn transport(&self) -> Option<Transport> {
        let recorded = self.record.as_deref().and_then(Record::parse).map(|it| it.form.transport);
        let of_pod = |pod: &Arc<Pod>| {
            let config = member_config(pod.spec.as_ref()?)?;
            (Some(config.cluster_uid) == self.cluster.uid()).then_some(config.transport)
        };
        recorded
            .or_else(|| self.transport_of_new_pods())
            .or_else(|| self.pods.values().find_map(of_pod))
            .or_else(|| self.transport_of_order())
    }

    fn transport_of_order(&self) -> Option<Transport> {
        let order = BootstrapOrder::parse(self.order.as_ref()?.data.as_ref()?.get(order::KEY)?).ok()?;
        let peers = if Schemes::of(order.members.values().map(String::as_str)).https {
            PeerPort::Https
        } else {
            PeerPort::Http
        };
        let asked_for = Transport::asked_for(&self.cluster.spec.security.tls);
        order.armed.then_some(Transport { peers, ..asked_for })
    }

    fn transport_of_new_pods(&self) -> Option<Transport> {
        let spec = self.set.as_ref()?.spec.as_ref()?.template.spec.as_ref()?;
        Some(member_config(spec)?.transport)
    }

    /// Of the pod with this ordinal. During a switch, pods differ.
    pub fn transport_of(&self, ordinal: Ordinal) -> Option<Transport> {
        self.pods.get(&ordinal).and_then(|pod| transport(pod))
    }

    /// What members should have in the end. A spec that breaks rules asks for nothing.
    pub fn target(&self) -> Option<Transport> {
        let tls = &validate(&self.cluster).ok().map(|_| &self.cluster.spec.security.tls)?;
        let (in_effect, applied) = (self.transport(), intent::asked(&self.cluster).0.apply_tls);
        let record = self.record.as_deref().and_then(Record::parse);
        let order = self.order.as_deref().filter(|it| !is_recovery(it));
        let bootstraps = order.is_some() && !Forms::of(self.set.as_deref(), record.as_ref()).unmarked;
        let recorded = record.and_then(|record| record.tls);
        Some(Section::of(tls, applied || bootstraps, in_effect, recorded.as_ref()).target(tls, in_effect))
    }

    /// Everything that pods have, will have or should have: it decides which certificates are needed.
    pub fn transports(&self) -> impl Iterator<Item = Transport> {
        let of_pods = self.pods.values().filter_map(|pod| transport(pod));
        of_pods.chain(self.transport()).chain(self.transport_of_new_pods()).chain(self.target())
    }

    pub fn questions(&self, goal: &Goal, memory: &Memory, now: Timestamp) -> Questions {
        let Cluster { deleting, formed, .. } = cluster(&self.cluster);
        let hash = goal.size == 0 && goal.on_stop == OnStop::Retain && !deleting;
        let rolls = || {
            let in_care = memory.is_space_reclaimed() || memory.consistency.is_in_doubt();
            self.is_rolling(goal) || self.trusts_differ(memory) || in_care
        };
        let recovers = self.order.as_deref().is_some_and(is_recovery);
        let asks = || goal.size < self.replicas() || self.loses_node(now) || rolls();
        let links = formed.is_some() && !deleting && (recovers || asks());
        let compares = formed.is_some() && !deleting && !recovers && self.compares_data(goal, memory, now);
        let space = self.restored.is_some();
        Questions { listed: formed.is_none(), hash, links, compares, space }
    }

    /// Not while members are added, removed or restarted, unless their data is in doubt.
    fn compares_data(&self, goal: &Goal, memory: &Memory, now: Timestamp) -> bool {
        let uid = uid(&*self.cluster);
        let interval = goal.consistency_interval_seconds.filter(|_| goal.size > 0);
        interval.is_some_and(|interval| memory.consistency.is_due(interval, &uid, now))
            && (memory.consistency.is_in_doubt() || goal.size == self.replicas() && !self.is_rolling(goal))
    }

    /// Whether the node of a pod is lost: then the other members are asked whether they reach its member.
    fn loses_node(&self, now: Timestamp) -> bool {
        let claim = |ordinal| self.claims.get(ordinal).map(|it| &**it);
        self.pods.iter().any(|(ordinal, pod)| node_loss::of(pod, claim(ordinal), &self.nodes, now).is_some())
    }

    /// What etcd is asked about its authentication, if anything.
    pub fn auth_questions(&self, goal: &Goal, memory: &Memory, now: Timestamp) -> Option<auth::Questions> {
        let Cluster { deleting, formed, .. } = cluster(&self.cluster);
        let (_, version) = self.root_password(goal);
        let loses_tls = auth::loses_identity(self.transport(), self.target());
        let asked = memory.auth.questions(&goal.auth, loses_tls, version.as_deref(), now);
        asked.filter(|_| formed.is_some() && !deleting)
    }

    /// What there is to give root a password from, and by which version it is known; none if no Secret is named for it.
    pub fn root_password(&self, goal: &Goal) -> (Option<RootPassword>, Option<String>) {
        if goal.auth.root_password_secret().is_none() {
            return (None, None);
        }
        let (secret, state) =
            (self.root_password.as_deref(), RootPassword::of(self.root_password.as_deref()));
        let version = |it: &Secret| Some(format!("{}/{}", it.uid()?, it.resource_version()?));
        (Some(state), secret.and_then(version).filter(|_| state == RootPassword::Given))
    }

    /// What a port shows once its pod has what its Secret holds, and etcd was started with that.
    fn wanted_handshakes(&self) -> BTreeMap<Purpose, Handshake> {
        let ports = self.secrets.iter().filter(|(purpose, _)| purpose.port().is_some());
        let held =
            ports.filter_map(|(&purpose, secret)| Some((purpose, tls::read(secret.data.as_ref()).ok()?)));
        let handshake = |it: tls::Certificate| Handshake {
            certificate: it.fingerprint,
            trusts: it.trusts.into_iter().map(|authority| authority.subject).collect(),
        };
        held.map(|(purpose, it)| (purpose, handshake(it))).collect()
    }

    /// Whether a pod was seen to trust something else than it would after a restart.
    pub fn trusts_differ(&self, memory: &Memory) -> bool {
        let wanted = self.wanted_handshakes();
        let differs = |pod: &Pod| {
            let shown = memory.handshakes(&uid(pod));
            let known = shown.iter().filter_map(|(it, shown)| Some((it, shown.known()?)));
            known.into_iter().any(|(it, shown)| wanted.get(it).is_some_and(|it| it.trusts != shown.trusts))
        };
        self.pods.values().any(|pod| differs(pod))
    }

    /// The pods that are asked what their ports show, and those ports.
    pub fn asked_ports(&self, memory: &Memory, now: Timestamp) -> BTreeMap<Ordinal, Vec<Purpose>> {
        let Cluster { deleting, formed, .. } = cluster(&self.cluster);
        let wanted = self.wanted_handshakes();
        let pods = self.pods.iter().filter(|(_, pod)| pod.metadata.deletion_timestamp.is_none());
        let asked = pods.filter_map(|(&ordinal, pod)| {
            let mut shown = wanted.clone();
            let transport = transport(pod).or_else(|| self.transport());
            shown.retain(|purpose, _| transport.is_none_or(|it| purpose.is_shown(it)));
            let is_due = !shown.is_empty() && memory.asks_ports(&uid(&**pod), &shown, now);
            is_due.then(|| (ordinal, shown.into_keys().collect()))
        });
        asked.filter(|_| formed.is_some() && !deleting).collect()
    }

    /// Whether a pod is to be replaced, or users ask for something that is not done.
    fn is_rolling(&self, goal: &Goal) -> bool {
        let Cluster { restart, moved_leader, .. } = cluster(&self.cluster);
        let record = self.record.as_deref().and_then(Record::parse);
        let forms = Forms::of(self.set.as_deref(), record.as_ref());
        let wanted = goal.form.as_ref().map(|wanted| &wanted.form);
        let restarts = restart.map(|(_, pods)| pods).unwrap_or_default();
        let is_outdated = |pod: &Pod| {
            restarts.contains(&uid(pod))
                || wanted.is_some() && forms.of_pod(pod).as_ref() != wanted
                || Protocol::on(&pod.metadata) < goal.lowest_agent
        };
        let asked = &goal.asked;
        let moves = asked.move_leader.as_ref().is_some_and(|it| moved_leader.as_ref() != Some(&it.token));
        let class = goal.volumes.as_ref().and_then(|volumes| volumes.class.as_ref());
        let is_replaced = |it: &PersistentVolumeClaim| {
            let Claim { member, class: there, .. } = claim(it, self.set.as_deref());
            asked.replace.is_some() && member == asked.replace || class.is_some() && there.as_ref() != class
        };
        let is_switching = self.transport().is_some_and(|it| self.transports().any(|other| other != it));
        self.pods.values().any(|pod| is_outdated(pod))
            || is_switching
            || self.claims.values().any(|claim| is_replaced(claim))
            || moves
    }

    pub fn is_taken(&self, object: Object) -> bool {
        self.taken.iter().any(|taken| taken.object == object)
    }

    /// What matters of these objects and is not part of the snapshot.
    ///
    /// `nodes` are the addresses of nodes by which clients connect.
    pub fn unseen(&self, nodes: &BTreeSet<IpAddr>) -> Unseen {
        // A budget's status changes by itself.
        let budget = self.budget.as_ref().map(|it| format!("{:?} {:?}", it.uid(), it.metadata.generation));
        let set = self.set.as_ref().and_then(|set| set.metadata.generation).map(|it| it.to_string());
        let services = Role::ALL.map(|role| self.services.get(&role)?.resource_version());
        // Kubelets report statuses of pods all the time.
        let pod = |pod: &Arc<Pod>| Some(format!("{:?} {:?}", pod.metadata.labels, pod.metadata.annotations));
        let policy = self.network_policy.as_ref().and_then(|policy| policy.resource_version());
        let foreign = [&self.certificate, &self.pod_monitor]
            .map(|it| Some(format!("{:?}", it.known().map(|it| it.as_ref()?.resource_version()))));
        let objects = [self.cluster.resource_version(), set, budget, policy, Some(format!("{nodes:?}"))];
        let objects = objects.into_iter().chain(foreign).chain(services);
        objects.chain(self.pods.values().map(pod)).collect()
    }

    /// A pod that is not ready might lack a Secret.
    pub fn pods_are_ready(&self) -> bool {
        self.pods.values().all(|pod| container::is_ready(pod))
    }

    /// Pods that the StatefulSet should have created.
    pub fn missing_pods(&self) -> Vec<Ordinal> {
        Ordinal::below(self.replicas()).filter(|ordinal| !self.pods.contains_key(ordinal)).collect()
    }
}

/// What was found under the name of one of our objects, if it is ours; otherwise its owner is noted. Names come back: a
/// previous cluster can have left it behind, or a user created it.
pub fn ours<K: Resource>(
    object: Object,
    found: Option<Arc<K>>,
    cluster: &EtcdCluster,
    taken: &mut BTreeSet<Taken>,
) -> Option<Arc<K>> {
    let found = found?;
    let controller = found.owner_references().iter().find(|owner| owner.controller == Some(true));
    if controller.is_some_and(|owner| Some(&owner.uid) == cluster.metadata.uid.as_ref()) {
        return Some(found);
    }
    let named = (EtcdCluster::kind(&()), cluster.metadata.name.as_deref().unwrap_or_default());
    let previous =
        controller.is_some_and(|owner| (owner.kind.as_str(), owner.name.as_str()) == (&*named.0, named.1));
    taken.insert(Taken { object, owner: if previous { Owner::PreviousCluster } else { Owner::Other } });
    None
}

/// The snapshot. `now` is the time at which the last pod responded: silence counts from there.
pub fn observe(
    objects: &Objects,
    names: &Names,
    replies: &BTreeMap<Ordinal, Reply>,
    handshakes: &BTreeMap<Ordinal, Handshakes>,
    events: &[Event],
    memory: &mut Memory,
    now: Timestamp,
) -> Observed {
    let rejected = rejections::of(events, names, &objects.missing_pods());
    let set = objects.set.as_deref();
    let record = objects.record.as_deref().and_then(|object| Some((uid(object), Record::parse(object)?)));
    let forms = Forms::of(set, record.as_ref().map(|(_, record)| record));
    let mut seen = Observed {
        now,
        cluster: cluster(&objects.cluster),
        order: objects.order.as_deref().filter(|it| !is_recovery(it)).map(bootstrap_order),
        recovery: objects.order.as_deref().filter(|it| is_recovery(it)).map(|it| recovery_order(it, names)),
        set: set.map(|set| Set {
            uid: uid(set),
            replicas: replicas(set),
            rejected,
            template: forms.template.clone(),
            transport: objects.transport_of_new_pods(),
            unmarked: forms.unmarked,
            followed: is_followed(set),
            agent: agent(set),
            terminating: set.metadata.deletion_timestamp.is_some(),
            volumes: volume_form(set),
            adopts: set.spec.as_ref().and_then(|spec| adopts(&spec.template)),
            other_volumes: volume_name(set).filter(|it| *it != names.volumes),
        }),
        record: record.map(|(uid, record)| FormRecord {
            uid,
            form: record.digest,
            version: record.form.version,
            proof: Some(record.form.proof()),
            held_generation: record.held_generation,
            adopts: record.adopts,
            cleared: record.cleared,
            plain: Some(record.form.in_plain_text().digest()),
            tls: record.tls,
        }),
        pods: BTreeMap::new(),
        preflights: objects.preflights.iter().map(|(&it, pod)| (it, preflight::of(pod, now))).collect(),
        claims: objects.claims.iter().map(|(&ordinal, it)| (ordinal, claim(it, set))).collect(),
        restored: objects.restored.as_deref().map(|it| claim(it, set)),
        elsewhere: objects.elsewhere.iter().map(|it| (it.name_any(), claim(it, set))).collect(),
        secrets: objects.secrets.iter().map(|(&purpose, it)| (purpose, secret(it))).collect(),
        given: objects.given.as_ref().map(|it| it.read(names, Issuance::of(&objects.certificate))),
        transport: objects.transport(),
        etcd: etcd(replies),
        pod_monitor: not_read(&objects.pod_monitor),
        auth: None,
        root_password: None,
        versions: versions(objects),
        taken: objects.taken.clone(),
        nodes: nodes::that_matter(objects),
        backups: objects.backups.iter().map(|it| backup::of(it)).collect(),
    };
    memory.note_replies(&objects.pods, replies);
    memory.note_handshakes(&objects.pods, handshakes, now);
    memory.note_listed(objects.listed.keys(), now);
    seen.pods = objects
        .pods
        .iter()
        .map(|(&it, pod)| (it, see_pod(it, pod, objects, &forms, replies, &seen, memory)))
        .collect();
    memory.note_silence(&mut seen);
    seen
}

/// Why it is not known, if somebody wanted to know.
fn not_read<T>(object: &Foreign<T>) -> Option<NotRead> {
    match object {
        Seen::Known(_) | Seen::Unknown(NotRead::NotAsked) => None,
        Seen::Unknown(why) => Some(why.clone()),
    }
}

fn versions(objects: &Objects) -> Versions {
    let Objects { cluster, order, record, set, claims, secrets, .. } = objects;
    Versions {
        cluster: cluster.resource_version(),
        order: order.as_ref().and_then(|order| order.resource_version()),
        set: set.as_ref().and_then(|set| set.resource_version()),
        record: record.as_ref().and_then(|record| record.resource_version()),
        claims: claims.iter().filter_map(|(&it, claim)| Some((it, claim.resource_version()?))).collect(),
        secrets: secrets.iter().filter_map(|(&it, secret)| Some((it, secret.resource_version()?))).collect(),
    }
}

fn see_pod(
    ordinal: Ordinal,
    pod: &Pod,
    objects: &Objects,
    forms: &Forms,
    replies: &BTreeMap<Ordinal, Reply>,
    seen: &Observed,
    memory: &Memory,
) -> observed::Pod {
    let uid = uid(pod);
    // A pod that responded before, or that etcd lists by now, may run although the kubelet has not reported it yet.
    let is_member = seen.etcd.members.known().is_some_and(|members| members.at(ordinal).is_some());
    let ran = container::Ran { responded: memory.has_responded(&uid), is_member };
    observed::Pod {
        terminating: pod.metadata.deletion_timestamp.is_some(),
        orphaned: !pod.owner_references().iter().any(|owner| owner.controller == Some(true)),
        form: forms.of_pod(pod),
        version: container::version(pod),
        transport: transport(pod),
        agent: Protocol::on(&pod.metadata),
        created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
        published: memory.is_found_by_name(&uid, seen.now),
        etcd: container::process(pod, replies.get(&ordinal), ran, seen.now),
        node: nodes::of_pod(pod).map(str::to_owned),
        loss: node_loss::of(pod, objects.claims.get(&ordinal).map(|it| &**it), &objects.nodes, seen.now),
        was_ready: node_loss::was_ready(pod),
        handshakes: memory.handshakes(&uid),
        uid,
    }
}

fn transport(pod: &Pod) -> Option<Transport> {
    Some(member_config(pod.spec.as_ref()?)?.transport)
}

fn cluster(cluster: &EtcdCluster) -> Cluster {
    let status = cluster.status.as_ref();
    let id = status.and_then(|status| hexadecimal(status.cluster_id.as_deref()?)).map(ClusterId);
    let requests = status.and_then(|status| status.requests.as_ref());
    let since = status.and_then(|status| status.formed_at.as_ref()).map(|time| time.0);
    Cluster {
        uid: uid(cluster),
        generation: cluster.metadata.generation,
        deleting: cluster.metadata.deletion_timestamp.is_some(),
        finalizer: cluster.finalizers().iter().any(|finalizer| finalizer == FINALIZER),
        restart: requests
            .and_then(|it| it.restart.as_ref())
            .map(|it| (it.token.clone(), it.pods.iter().cloned().collect())),
        moved_leader: requests.and_then(|it| it.move_leader.clone()),
        rotation: requests
            .and_then(|it| it.rotate_ca.as_ref())
            .map(|it| (it.token.clone(), it.authorities.iter().cloned().collect())),
        restore: restores::Mark::on(cluster).map(|mark| mark.name),
        replacement: restores::Replacement::on(cluster),
        names_volumes: status.is_some_and(|status| status.volume_name.is_some()),
        incarnation: status.and_then(|status| status.incarnation.clone()),
        // Without a time it bootstrapped long ago.
        formed: id.map(|id| Formed { id, since: since.unwrap_or(Timestamp::UNIX_EPOCH) }),
    }
}

/// What pods are and will be made from.
struct Forms {
    template: Option<Digest>,
    unmarked: bool,
    of_unmarked_pods: Option<Digest>,
}

impl Forms {
    fn of(set: Option<&StatefulSet>, record: Option<&Record>) -> Self {
        let template = set.and_then(|set| Some(&set.spec.as_ref()?.template));
        let mark = template.and_then(|template| Digest::on(template.metadata.as_ref()?));
        let unmarked = template.is_some() && mark.is_none();
        let template = mark.or_else(|| Some(Form::read(template?)?.digest()));
        let recorded = record.filter(|record| record.of_unmarked_pods).map(|record| record.digest.clone());
        let of_unmarked_pods = recorded.or_else(|| template.clone().filter(|_| unmarked));
        Self { template, unmarked, of_unmarked_pods }
    }

    fn of_pod(&self, pod: &Pod) -> Option<Digest> {
        Digest::on(&pod.metadata).or_else(|| self.of_unmarked_pods.clone())
    }
}

fn is_followed(set: &StatefulSet) -> bool {
    let observed = set.status.as_ref().and_then(|status| status.observed_generation);
    observed.is_some() && observed == set.metadata.generation
}

/// Of the pods that it creates.
fn agent(set: &StatefulSet) -> Protocol {
    let metadata = set.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    metadata.map_or_else(Protocol::first, Protocol::on)
}

/// An order that cannot be read is not armed: the agents conclude the same.
fn bootstrap_order(object: &ConfigMap) -> Order {
    let text = object.data.as_ref().and_then(|data| data.get(order::KEY));
    let order = text.and_then(|text| BootstrapOrder::parse(text).ok());
    Order {
        uid: uid(object),
        armed: order.as_ref().is_some_and(|order| order.armed),
        size: order.map_or(0, |order| u8::try_from(order.members.len()).unwrap_or(u8::MAX)),
    }
}

/// Both kinds of orders have the same name.
fn is_recovery(object: &ConfigMap) -> bool {
    object.data.as_ref().is_some_and(|data| data.contains_key(recovery::KEY))
}

/// One that cannot be read is not armed: the agents conclude the same.
fn recovery_order(object: &ConfigMap, names: &Names) -> observed::Recovery {
    let text = object.data.as_ref().and_then(|data| data.get(recovery::KEY));
    let start = text.and_then(|text| RecoveryOrder::parse(text).ok()?.start);
    let start = start.and_then(|it| Some((names.ordinal_of_pod(&it.survivor)?, it.replaces)));
    observed::Recovery { uid: uid(object), start }
}

fn replicas(set: &StatefulSet) -> u8 {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    u8::try_from(replicas).unwrap_or(u8::MAX)
}

fn claim(claim: &PersistentVolumeClaim, set: Option<&StatefulSet>) -> Claim {
    let label = |name: &str| claim.labels().get(name).cloned();
    let created = |metadata: &ObjectMeta| metadata.creation_timestamp.as_ref().map(|time| time.0);
    let set_created = set.and_then(|set| created(&set.metadata));
    Claim {
        uid: uid(claim),
        terminating: claim.metadata.deletion_timestamp.is_some(),
        cluster_uid: label(CLUSTER_UID_LABEL).unwrap_or_default(),
        bound: claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some()),
        member: label(MEMBER_ID_LABEL).and_then(|id| hexadecimal(&id)).map(MemberId),
        requested_bytes: requested(claim.spec.as_ref()),
        capacity_bytes: bytes(claim.status.as_ref().and_then(|status| status.capacity.as_ref())),
        class: claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()),
        resize: claim.status.as_ref().and_then(resize),
        precedes_set: set_created.is_some_and(|set| created(&claim.metadata).is_some_and(|it| it < set)),
        replaced_by: label(REPLACED_BY_LABEL),
    }
}

fn secret(secret: &Secret) -> observed::Secret {
    let certificate = match tls::read(secret.data.as_ref()) {
        Ok(certificate) => Seen::Known(certificate),
        Err(flaw) => Seen::Unknown(flaw),
    };
    let copied = secret.annotations().get(COPIED_ANNOTATION).and_then(|at| at.parse().ok());
    let data = secret.data.as_ref();
    let (next, given) = (tls::read_next(data), tls::read_given(data));
    observed::Secret { uid: uid(secret), certificate, next, given, copied }
}

fn volume_name(set: &StatefulSet) -> Option<String> {
    set.spec.as_ref()?.volume_claim_templates.as_ref()?.first()?.metadata.name.clone()
}

fn volume_form(set: &StatefulSet) -> Option<VolumeForm> {
    let claim = set.spec.as_ref()?.volume_claim_templates.as_ref()?.first()?.spec.as_ref()?;
    Some(VolumeForm { bytes: requested(Some(claim))?, class: claim.storage_class_name.clone() })
}

fn requested(claim: Option<&PersistentVolumeClaimSpec>) -> Option<u64> {
    bytes(claim?.resources.as_ref()?.requests.as_ref())
}

fn bytes(amounts: Option<&BTreeMap<String, Amount>>) -> Option<u64> {
    Quantity::Text(amounts?.get("storage")?.0.clone()).bytes()
}

/// Kubernetes keeps the state in `allocatedResourceStatuses`, older versions only in conditions. What failed is in words only
/// there.
fn resize(status: &PersistentVolumeClaimStatus) -> Option<Resize> {
    let states = status.allocated_resource_statuses.as_ref();
    let state = states.and_then(|it| it.get("storage")).map_or("", String::as_str);
    let conditions = || status.conditions.iter().flatten().filter(|it| it.status == "True");
    let error = conditions().find(|it| it.type_.ends_with("ResizeError"));
    if error.is_some() || state.ends_with("Infeasible") {
        let words = error.and_then(|it| it.message.clone()).filter(|words| !words.is_empty());
        return Some(Resize::Failed(words.unwrap_or_else(|| state.into())));
    }
    let waits = conditions().any(|it| it.type_ == "FileSystemResizePending");
    if waits || state.starts_with("NodeResize") {
        return Some(Resize::FileSystemPending);
    }
    let begun = !state.is_empty() || conditions().any(|it| it.type_ == "Resizing");
    begun.then_some(Resize::InProgress)
}

fn uid(object: &impl ResourceExt) -> String {
    object.uid().unwrap_or_default()
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests;
