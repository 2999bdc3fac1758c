//! The Job of a run: one pod that probes the store, takes a copy and deletes outdated ones, without a token of Kubernetes.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec,
    PodTemplateSpec, ResourceRequirements, SecretKeySelector, SecretVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use super::intent::{Intent, STORE_CA_DIRECTORY, VOLUME_DIRECTORY};
use super::seen::Cluster;
use crate::api::EtcdBackup;
use crate::backup::inputs::{Etcd, INPUTS_VARIABLE, Inputs, Tls};
use crate::backup::{FormatVersion, PROGRAM};
use crate::desired::{container_security, pod_security};
use crate::names::{BACKUP_LABEL, FIELD_MANAGER, MANAGED_BY_LABEL, NAME_LABEL, RUN_ANNOTATION};
use crate::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, Purpose};

const PROBE: &str = "probe";
pub const TAKE: &str = "take";
pub const PRUNE: &str = "prune";
const TLS_VOLUME: &str = "etcd-tls";
const TLS_DIRECTORY: &str = "/etc/etcd-backup/tls";
const STORE_CA_VOLUME: &str = "store-ca";
const COPIES_VOLUME: &str = "copies";
/// The largest copy takes an hour or two; what takes longer does not progress.
pub const RUN_DEADLINE: SignedDuration = SignedDuration::from_hours(6);
/// Finished Jobs are deleted much earlier, except those of an EtcdBackup that is gone.
pub(super) const KEEP_SECONDS: i32 = 7 * 24 * 3600;
/// To remove what was uploaded so far.
const GRACE_SECONDS: i64 = 30;
/// Names of Jobs become labels of their pods, which have at most 63 characters.
const LONGEST_NAME: usize = 32;
const UID_DIGITS: usize = 8;
const SECONDS_PER_MINUTE: i64 = 60;

/// What a Job is for, as its annotation and that of its pod say it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// The EtcdBackup.
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub generation: i64,
    /// None on demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_time: Option<Timestamp>,
    /// The token of the cluster that waits for the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Which copy that the continuous archive asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_copy: Option<i64>,
    pub retries: u32,
    /// Where copies of the cluster are stored.
    pub location: String,
}

impl Mark {
    pub fn on(object: &impl ResourceExt) -> Option<Self> {
        serde_json::from_str(object.annotations().get(RUN_ANNOTATION)?).ok()
    }

    /// The same for the same run, so that a repeated creation creates nothing.
    pub fn job_name(&self) -> String {
        let slot = match (&self.request, self.scheduled_time, self.archive_copy) {
            (Some(token), ..) => format!("r{token}"),
            (None, Some(time), _) => (time.as_second() / SECONDS_PER_MINUTE).to_string(),
            (None, None, Some(number)) => format!("a{number}"),
            (None, None, None) => format!("g{}", self.generation),
        };
        format!("{}-{slot}-{}", prefix(&self.name, &self.uid), self.retries)
    }
}

/// What names of the Jobs of an EtcdBackup begin with.
pub(super) fn prefix(name: &str, uid: &str) -> String {
    let name: String = name.replace('.', "-").chars().take(LONGEST_NAME).collect();
    let uid: String = uid.chars().take(UID_DIGITS).collect();
    format!("{}-{uid}", name.trim_end_matches('-'))
}

/// None before the cluster has an ID.
pub fn job(backup: &EtcdBackup, intent: &Intent, cluster: &Cluster, mark: &Mark, image: &str) -> Option<Job> {
    let annotation = serde_json::to_string(mark).expect("text and numbers are always JSON");
    let marked = marked(cluster, RUN_ANNOTATION, annotation);
    let metadata = ObjectMeta {
        name: Some(mark.job_name()),
        namespace: Some(cluster.names.namespace.clone()),
        owner_references: owner(backup, &cluster.names.namespace).map(|owner| vec![owner]),
        ..marked.clone()
    };
    let spec = JobSpec {
        // Whether an attempt is repeated depends on why it failed.
        backoff_limit: Some(0),
        active_deadline_seconds: Some(RUN_DEADLINE.as_secs()),
        ttl_seconds_after_finished: Some(KEEP_SECONDS),
        template: PodTemplateSpec { metadata: Some(marked), spec: Some(runs(intent, cluster, image)?) },
        ..JobSpec::default()
    };
    Some(Job { metadata, spec: Some(spec), status: None })
}

/// What selects and describes a Job and its pod.
pub(super) fn marked(cluster: &Cluster, annotation: &str, value: String) -> ObjectMeta {
    let labels = BTreeMap::from([
        (NAME_LABEL.into(), PROGRAM.into()),
        (MANAGED_BY_LABEL.into(), FIELD_MANAGER.into()),
        (BACKUP_LABEL.into(), cluster.names.cluster.clone()),
    ]);
    ObjectMeta {
        labels: Some(labels),
        annotations: Some(BTreeMap::from([(annotation.into(), value)])),
        ..ObjectMeta::default()
    }
}

/// Kubernetes deletes what an object of another namespace owns.
pub(super) fn owner(backup: &EtcdBackup, namespace: &str) -> Option<OwnerReference> {
    (backup.namespace().as_deref() == Some(namespace)).then(|| OwnerReference {
        api_version: EtcdBackup::api_version(&()).into_owned(),
        kind: EtcdBackup::kind(&()).into_owned(),
        name: backup.name_any(),
        uid: backup.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    })
}

fn runs(intent: &Intent, cluster: &Cluster, image: &str) -> Option<PodSpec> {
    let inputs = inputs(intent, cluster)?;
    let container = |verb: &str| container(verb, intent, cluster, &inputs, image);
    let verbs: &[&str] = if intent.retention.is_some() { &[PROBE, TAKE, PRUNE] } else { &[PROBE, TAKE] };
    let (last, first) = verbs.split_last()?;
    let first = first.iter().map(|verb| container(verb)).collect();
    Some(PodSpec { init_containers: Some(first), ..pod(intent, cluster, container(last)) })
}

/// One container with the program, for one verb.
pub(super) fn container(
    verb: &str,
    intent: &Intent,
    cluster: &Cluster,
    inputs: &Inputs,
    image: &str,
) -> Container {
    let inputs = serde_json::to_string(inputs).expect("text and numbers are always JSON");
    Container {
        name: verb.into(),
        image: Some(image.into()),
        command: Some(vec![format!("/{PROGRAM}"), verb.into()]),
        env: Some(environment(intent, &inputs)),
        volume_mounts: Some(mounts(intent, cluster)),
        resources: Some(resources()),
        security_context: Some(container_security()),
        // The program writes its result there; a crash leaves the end of its log.
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..Container::default()
    }
}

/// With this container and no token of Kubernetes.
pub(super) fn pod(intent: &Intent, cluster: &Cluster, container: Container) -> PodSpec {
    PodSpec {
        containers: vec![container],
        volumes: Some(volumes(intent, cluster)).filter(|volumes| !volumes.is_empty()),
        restart_policy: Some("Never".into()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        security_context: Some(pod_security(cluster.rules.security.as_ref())),
        node_selector: cluster.rules.node_selector.clone(),
        tolerations: Some(cluster.rules.tolerations.clone()).filter(|it| !it.is_empty()),
        image_pull_secrets: cluster.rules.image_pull_secrets.clone(),
        ..PodSpec::default()
    }
}

/// None before the cluster has an ID.
pub(super) fn inputs(intent: &Intent, cluster: &Cluster) -> Option<Inputs> {
    let file = |key: &str| format!("{TLS_DIRECTORY}/{key}");
    let tls = cluster.uses_tls().then(|| Tls {
        ca_file: file(AUTHORITY_KEY),
        cert_file: file(CERTIFICATE_KEY),
        key_file: file(PRIVATE_KEY),
    });
    Some(Inputs {
        format_version: FormatVersion::CURRENT,
        store: intent.store.clone(),
        etcd: Some(Etcd { endpoints: cluster.endpoints.clone(), tls }),
        cluster_id: Some(cluster.id?.to_string()),
        compression: intent.compression,
        recipients: intent.recipients.clone(),
        verification: intent.verification,
        retention: intent.retention.clone().unwrap_or_default(),
    })
}

/// No secret is in it: credentials are references, which the kubelet resolves.
pub(crate) fn environment(intent: &Intent, inputs: &str) -> Vec<EnvVar> {
    let inputs = EnvVar { name: INPUTS_VARIABLE.into(), value: Some(inputs.into()), value_from: None };
    let credentials = intent.credentials.iter().map(|credential| EnvVar {
        name: credential.variable.into(),
        value: None,
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: credential.secret.clone(),
                key: credential.variable.into(),
                optional: credential.is_optional.then_some(true),
            }),
            ..EnvVarSource::default()
        }),
    });
    std::iter::once(inputs).chain(credentials).collect()
}

fn volumes(intent: &Intent, cluster: &Cluster) -> Vec<Volume> {
    let security = pod_security(cluster.rules.security.as_ref());
    let tls = cluster.uses_tls().then(|| {
        let name = cluster.names.secret(Purpose::Operator);
        secret_volume(TLS_VOLUME, name, &security)
    });
    tls.into_iter().chain(store_volumes(intent, &security)).collect()
}

/// Without a group of their own, files have to be open to the program's user.
pub(crate) fn secret_volume(volume: &str, secret: String, security: &PodSecurityContext) -> Volume {
    let readable = if security.fs_group.is_some() { 0o440 } else { 0o444 };
    Volume {
        name: volume.into(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret),
            default_mode: Some(readable),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

pub(crate) fn claim_volume(volume: &str, claim_name: String) -> Volume {
    Volume {
        name: volume.into(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name, read_only: None }),
        ..Volume::default()
    }
}

/// What the program needs to reach a store.
pub(crate) fn store_volumes(intent: &Intent, security: &PodSecurityContext) -> Vec<Volume> {
    let authorities = intent.authorities.clone().map(|it| secret_volume(STORE_CA_VOLUME, it, security));
    let copies = intent.volume.clone().map(|claim| claim_volume(COPIES_VOLUME, claim));
    authorities.into_iter().chain(copies).collect()
}

fn mounts(intent: &Intent, cluster: &Cluster) -> Vec<VolumeMount> {
    let tls = cluster.uses_tls().then(|| mount(TLS_VOLUME, TLS_DIRECTORY, true));
    tls.into_iter().chain(store_mounts(intent)).collect()
}

pub(crate) fn mount(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.into(),
        mount_path: path.into(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

pub(crate) fn store_mounts(intent: &Intent) -> Vec<VolumeMount> {
    let authorities = intent.authorities.as_ref().map(|_| mount(STORE_CA_VOLUME, STORE_CA_DIRECTORY, true));
    let copies = intent.volume.as_ref().map(|_| mount(COPIES_VOLUME, VOLUME_DIRECTORY, false));
    authorities.into_iter().chain(copies).collect()
}

/// The program stays below 64 MB; what it reads from a mounted volume counts as well until the kernel needs the room.
pub(crate) fn resources() -> ResourceRequirements {
    let amounts = |cpu: &str, memory: &str| {
        Some(BTreeMap::from(
            [("cpu", cpu), ("memory", memory)].map(|(name, it)| (name.into(), Quantity(it.into()))),
        ))
    };
    ResourceRequirements { claims: None, requests: amounts("50m", "96Mi"), limits: amounts("2", "192Mi") }
}
