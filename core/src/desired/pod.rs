//! The pod of a member: an init container brings the agent, and the agent becomes etcd.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar,
    EnvVarSource, ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements,
    SeccompProfile, SecretVolumeSource, SecurityContext, Toleration, TopologySpreadConstraint, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use serde_json::json;

use super::contained::contained;
use super::rendering::marked;
use super::{Desired, probes};
use crate::agent::{Protocol, environment, path};
use crate::api::PodTemplate;
use crate::etcd_config::{CLIENT_PORT, METRICS_PORT, MemberConfig, PEER_PORT, client_url, tls_file};
use crate::form::Form;
use crate::names::{AGENT_ANNOTATION, FORM_ANNOTATION};
use crate::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, PeerPort, Purpose};

/// On nodes: the zone that they are in.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// The user of distroless images. Any will do; the volume belongs to its group.
const USER: i64 = 65532;
/// SIGTERM makes etcd hand its leadership over and say good-bye to clients, which takes up to 15 s.
const GRACE_SECONDS: i64 = 30;
/// The container that matters.
pub const ETCD: &str = "etcd";
pub const SIDECAR: &str = "netshoot";
pub const INSTALLER: &str = "install-agent";
/// The first process of a container is deaf to SIGTERM unless it listens, and the pod would wait for it to be killed.
const UNTIL_TOLD_TO_END: &str = "trap 'exit 0' TERM; sleep infinity & wait";
const RUN_VOLUME: &str = "run";
const ORDER_VOLUME: &str = "bootstrap";

impl Desired<'_> {
    /// What members of this form are made from. Volumes that were adopted keep the name of their previous cluster, so what
    /// a template allows stays allowed, whatever becomes of the annotation of the EtcdCluster.
    pub fn template(&self, form: &Form, adopts: Option<String>) -> PodTemplateSpec {
        let template = &form.pod;
        let spec = PodSpec {
            init_containers: Some(vec![self.installer(form)]),
            containers: std::iter::once(self.etcd(form, adopts)).chain(sidecar(form)).collect(),
            volumes: Some(self.volumes(form)),
            // Not a word to Kubernetes from in here, and its Services are no business of etcd's.
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(GRACE_SECONDS),
            security_context: Some(pod_security(template.security_context.as_ref())),
            tolerations: Some(tolerations(template)),
            affinity: template.affinity.clone(),
            topology_spread_constraints: Some(self.spreading(template))
                .filter(|spreading| !spreading.is_empty()),
            node_selector: Some(template.node_selector.clone()).filter(|selector| !selector.is_empty()),
            priority_class_name: template.priority_class_name.clone(),
            image_pull_secrets: Some(template.image_pull_secrets.clone())
                .filter(|secrets| !secrets.is_empty()),
            ..PodSpec::default()
        };
        let marks = BTreeMap::from([
            (FORM_ANNOTATION.into(), form.digest().to_string()),
            (AGENT_ANNOTATION.into(), Protocol::CURRENT.0.to_string()),
        ]);
        marked(PodTemplateSpec { metadata: Some(self.pod_metadata(marks)), spec: Some(spec) })
    }

    /// Init containers do not run again when just etcd restarts, so this one only brings the program.
    fn installer(&self, form: &Form) -> Container {
        Container {
            name: INSTALLER.into(),
            image: Some(self.agent_image.into()),
            command: Some(vec![format!("/{}", path::PROGRAM), "install".into(), path::RUN.into()]),
            volume_mounts: Some(vec![mount(RUN_VOLUME, path::RUN)]),
            // A ResourceQuota asks this of every container. A pod needs as much as its largest init container or all
            // others together, so the same as etcd's costs nothing, and a pod that is Guaranteed stays so.
            resources: Some(form.resources.clone()),
            security_context: Some(container_security()),
            ..Container::default()
        }
    }

    fn etcd(&self, form: &Form, adopts: Option<String>) -> Container {
        Container {
            name: ETCD.into(),
            image: Some(form.image()),
            command: Some(vec![format!("{}/{}", path::RUN, path::PROGRAM), "start".into()]),
            env: Some(self.environment(form, adopts)),
            ports: Some(vec![
                port("client", CLIENT_PORT),
                port("peer", PEER_PORT),
                port("metrics", METRICS_PORT),
            ]),
            volume_mounts: Some(self.mounts(form)),
            resources: Some(form.resources.clone()),
            liveness_probe: Some(probes::liveness(&form.version)),
            readiness_probe: Some(probes::readiness(&form.version)),
            security_context: Some(container_security()),
            // The status reports the last words of an etcd that crashes.
            termination_message_policy: Some("FallbackToLogsOnError".into()),
            ..Container::default()
        }
    }

    /// `etcdctl` in the container asks this member, as is.
    fn environment(&self, form: &Form, adopts: Option<String>) -> Vec<EnvVar> {
        let own = |name: &str, field: &str| EnvVar {
            name: name.into(),
            value: None,
            value_from: Some(EnvVarSource {
                field_ref: Some(ObjectFieldSelector { api_version: None, field_path: field.into() }),
                ..EnvVarSource::default()
            }),
        };
        let fixed =
            |name: &str, value: String| EnvVar { name: name.into(), value: Some(value), value_from: None };
        let config = serde_json::to_string(&self.member_config(form, adopts))
            .expect("text and numbers are always JSON");
        let mut variables = vec![
            own(environment::POD, "metadata.name"),
            own(environment::ADDRESS, "status.podIP"),
            fixed(environment::CONFIG, config),
            fixed("ETCDCTL_ENDPOINTS", client_url(form.transport.clients.scheme(), "127.0.0.1")),
            fixed("ETCDCTL_API", "3".into()),
        ];
        if form.transport.clients.is_tls() {
            let file = |key| tls_file(path::TLS, Purpose::Operator, key);
            variables.extend([
                fixed("ETCDCTL_CACERT", file(AUTHORITY_KEY)),
                fixed("ETCDCTL_CERT", file(CERTIFICATE_KEY)),
                fixed("ETCDCTL_KEY", file(PRIVATE_KEY)),
            ]);
        }
        variables
    }

    pub(super) fn member_config(&self, form: &Form, adopts: Option<String>) -> MemberConfig {
        MemberConfig {
            version: form.version.to_string(),
            cluster_uid: self.intent.uid.clone(),
            peer_host: self.names.peer_host(),
            attempt: None,
            adopts,
            transport: form.transport,
            plain_peers: self.intent.switch.mixed && form.transport.peers == PeerPort::Https,
            options: form.options.clone(),
        }
    }

    fn mounts(&self, form: &Form) -> Vec<VolumeMount> {
        let read_only = |it: VolumeMount| VolumeMount { read_only: Some(true), ..it };
        let mut mounts = vec![
            mount(&self.names.volumes, path::VOLUME),
            mount(RUN_VOLUME, path::RUN),
            read_only(mount(ORDER_VOLUME, path::ORDER)),
        ];
        let secrets = mounted_secrets(form).map(|(purpose, directory)| {
            read_only(mount(purpose.suffix(), &format!("{}/{directory}", path::TLS)))
        });
        mounts.extend(secrets);
        mounts
    }

    fn volumes(&self, form: &Form) -> Vec<Volume> {
        let named = |name: &str| Volume { name: name.into(), ..Volume::default() };
        let order = ConfigMapVolumeSource {
            name: self.names.order(),
            optional: Some(true),
            ..ConfigMapVolumeSource::default()
        };
        // Where users leave the groups of a volume to the platform, its group might not be etcd's.
        let readable = match pod_security(form.pod.security_context.as_ref()).fs_group {
            Some(_) => 0o440,
            None => 0o444,
        };
        let secret = |purpose: Purpose| {
            let source = SecretVolumeSource {
                secret_name: Some(self.names.secret(purpose)),
                default_mode: Some(readable),
                ..SecretVolumeSource::default()
            };
            Volume { secret: Some(source), ..named(purpose.suffix()) }
        };
        let mut volumes = vec![
            Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..named(RUN_VOLUME) },
            Volume { config_map: Some(order), ..named(ORDER_VOLUME) },
        ];
        volumes.extend(mounted_secrets(form).map(|(purpose, _)| secret(purpose)));
        volumes
    }

    fn spreading(&self, template: &PodTemplate) -> Vec<TopologySpreadConstraint> {
        if !template.topology_spread_constraints.is_empty() {
            return template.topology_spread_constraints.clone();
        }
        if template.affinity.is_some() {
            return Vec::new();
        }
        default_spreading(&self.names.selector())
    }
}

pub(super) fn tolerations(template: &PodTemplate) -> Vec<Toleration> {
    stay_on_lost_nodes().into_iter().chain(template.tolerations.clone()).collect()
}

/// Nobody but the operator replaces a member, so a node that is down for a while evicts none.
pub fn stay_on_lost_nodes() -> [Toleration; 2] {
    ["not-ready", "unreachable"].map(|taint| Toleration {
        key: Some(format!("node.kubernetes.io/{taint}")),
        operator: Some("Exists".into()),
        effect: Some("NoExecute".into()),
        ..Toleration::default()
    })
}

/// Over nodes and zones as far as there are any; a wish, so that small clusters are not stopped by it. All members count,
/// also those of another form: a member that restarts in a rollout keeps away from the others.
fn default_spreading(members: &BTreeMap<String, String>) -> Vec<TopologySpreadConstraint> {
    let over = |key: &str| TopologySpreadConstraint {
        max_skew: 1,
        topology_key: key.into(),
        when_unsatisfiable: "ScheduleAnyway".into(),
        label_selector: Some(LabelSelector { match_labels: Some(members.clone()), match_expressions: None }),
        ..TopologySpreadConstraint::default()
    };
    vec![over(ZONE_LABEL), over("kubernetes.io/hostname")]
}

/// Whether users left it to us, as the API server keeps it.
pub fn is_default_spreading(spreading: &[TopologySpreadConstraint]) -> bool {
    let members = spreading.first().and_then(|it| it.label_selector.as_ref()?.match_labels.as_ref());
    members.is_some_and(|members| contained(&json!(default_spreading(members)), &json!(spreading)))
}

/// What Pod Security calls restricted. Users who bring their own context choose user and groups, or leave them to
/// the platform.
pub fn pod_security(own: Option<&PodSecurityContext>) -> PodSecurityContext {
    let own = own.cloned().unwrap_or_else(|| PodSecurityContext {
        run_as_user: Some(USER),
        run_as_group: Some(USER),
        fs_group: Some(USER),
        ..PodSecurityContext::default()
    });
    let seccomp = SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None };
    PodSecurityContext {
        run_as_non_root: own.run_as_non_root.or(Some(true)),
        // A large volume is not walked through at every start.
        fs_group_change_policy: own.fs_group_change_policy.or(Some("OnRootMismatch".into())),
        seccomp_profile: own.seccomp_profile.or(Some(seccomp)),
        ..own
    }
}

fn sidecar(form: &Form) -> Option<Container> {
    Some(Container {
        name: SIDECAR.into(),
        image: Some(form.debug_image.clone()?),
        command: Some(["sh", "-c", UNTIL_TOLD_TO_END].map(String::from).to_vec()),
        resources: Some(small_resources()),
        security_context: Some(container_security()),
        ..Container::default()
    })
}

/// Next to nothing while the sidecar sleeps, and enough for a packet capture or a load test from within the pod. A
/// ResourceQuota asks for all four, and a preflight pod has to fit on a node that is almost full.
pub(super) fn small_resources() -> ResourceRequirements {
    let amounts = |cpu: &str, memory: &str| {
        Some(BTreeMap::from(
            [("cpu", cpu), ("memory", memory)].map(|(name, it)| (name.into(), Quantity(it.into()))),
        ))
    };
    ResourceRequirements { claims: None, requests: amounts("10m", "32Mi"), limits: amounts("500m", "256Mi") }
}

pub fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: None }),
        ..SecurityContext::default()
    }
}

/// Each in a directory of its own: a mounted file would not be updated when a certificate is renewed.
fn mounted_secrets(form: &Form) -> impl Iterator<Item = (Purpose, &'static str)> {
    let needed = Purpose::ALL.into_iter().filter(|it| it.is_needed(form.transport));
    needed.filter_map(|purpose| Some((purpose, purpose.directory()?)))
}

fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount { name: volume.into(), mount_path: path.into(), ..VolumeMount::default() }
}

fn port(name: &str, number: u16) -> ContainerPort {
    ContainerPort { name: Some(name.into()), container_port: i32::from(number), ..ContainerPort::default() }
}
