//! The Job of an archiver, and the Secret with what the operator shows when it asks it.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, ObjectFieldSelector, PodTemplateSpec, Secret, SecretKeySelector,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::api::{EtcdBackup, EtcdCluster};
use crate::backup::inputs::Inputs;
use crate::backup::progress::{ADDRESS_VARIABLE, TOKEN_VARIABLE};
use crate::names::{ARCHIVE_ANNOTATION, FIELD_MANAGER, MANAGED_BY_LABEL};
use crate::runs::job::{KEEP_SECONDS, container, inputs, marked, owner, pod, prefix};
use crate::runs::{Cluster, Intent};

const ARCHIVE: &str = "archive";
/// Of the Secret.
pub const TOKEN_KEY: &str = "token";
const DIGEST_BYTES: usize = 16;
/// Of the digest, in the name of a Job.
const NAME_BYTES: usize = 3;

/// What a Job is for, as its annotation and that of its pod say it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveMark {
    /// The EtcdBackup.
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub generation: i64,
    /// Of what it was made from, without the endpoints.
    pub digest: String,
    pub endpoints: Vec<String>,
}

impl ArchiveMark {
    pub fn on(object: &impl ResourceExt) -> Option<Self> {
        serde_json::from_str(object.annotations().get(ARCHIVE_ANNOTATION)?).ok()
    }

    /// Members that are not there at the moment are no reason for another archiver; one that it does not know is.
    pub(super) fn fits(&self, digest: &str, endpoints: &[String]) -> bool {
        self.digest == digest && endpoints.iter().all(|it| self.endpoints.contains(it))
    }
}

/// Of everything that a new archiver is needed for when it changes. Where pods run is read from those of members, which come and go.
pub(super) fn digest(intent: &Intent, cluster: &Cluster, image: &str) -> String {
    let inputs = inputs(intent, cluster).map(|inputs| Inputs { etcd: None, ..inputs });
    let credentials: Vec<_> =
        intent.credentials.iter().map(|it| (it.variable, &it.secret, it.is_optional)).collect();
    let all =
        json!([inputs, credentials, intent.authorities, intent.volume, intent.flush_interval_seconds, image]);
    hex(&Sha256::digest(all.to_string())[..DIGEST_BYTES])
}

/// `number`: how many have ended before. None before the cluster has an ID.
pub(super) fn archiver(
    backup: &EtcdBackup,
    intent: &Intent,
    cluster: &Cluster,
    number: i64,
    image: &str,
) -> Option<Job> {
    let mark = ArchiveMark {
        namespace: backup.namespace().unwrap_or_default(),
        name: backup.name_any(),
        uid: backup.uid().unwrap_or_default(),
        generation: backup.metadata.generation.unwrap_or_default(),
        digest: digest(intent, cluster, image),
        endpoints: cluster.endpoints.clone(),
    };
    // The same for the same archiver, so that a repeated creation creates nothing.
    let distinct = Sha256::digest(json!([mark.digest, mark.endpoints]).to_string());
    let name =
        format!("{}-{ARCHIVE}-{number}-{}", prefix(&mark.name, &mark.uid), hex(&distinct[..NAME_BYTES]));
    let annotation = serde_json::to_string(&mark).expect("text and numbers are always JSON");
    let marked = marked(cluster, ARCHIVE_ANNOTATION, annotation);
    let namespace = &cluster.names.namespace;
    let metadata = ObjectMeta {
        name: Some(name),
        namespace: Some(namespace.clone()),
        owner_references: owner(backup, namespace).map(|owner| vec![owner]),
        ..marked.clone()
    };
    let container = following(backup, intent, cluster, &inputs(intent, cluster)?, image);
    let template = PodTemplateSpec { metadata: Some(marked), spec: Some(pod(intent, cluster, container)) };
    let spec = JobSpec {
        // When the next one starts depends on why it ended.
        backoff_limit: Some(0),
        ttl_seconds_after_finished: Some(KEEP_SECONDS),
        template,
        ..JobSpec::default()
    };
    Some(Job { metadata, spec: Some(spec), status: None })
}

fn following(
    backup: &EtcdBackup,
    intent: &Intent,
    cluster: &Cluster,
    inputs: &Inputs,
    image: &str,
) -> Container {
    let mut container = container(ARCHIVE, intent, cluster, inputs, image);
    let interval = intent.flush_interval_seconds.unwrap_or_default();
    container.command.get_or_insert_default().push(format!("--flush-interval-seconds={interval}"));
    let from = |name: &str, source: EnvVarSource| EnvVar {
        name: name.into(),
        value: None,
        value_from: Some(source),
    };
    let field = ObjectFieldSelector { api_version: None, field_path: "status.podIP".into() };
    let key = SecretKeySelector { name: token_name(backup), key: TOKEN_KEY.into(), optional: None };
    container.env.get_or_insert_default().extend([
        from(ADDRESS_VARIABLE, EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        from(TOKEN_VARIABLE, EnvVarSource { secret_key_ref: Some(key), ..EnvVarSource::default() }),
    ]);
    container
}

/// The Secret in the namespace of the cluster.
pub fn token_name(backup: &EtcdBackup) -> String {
    format!("{}-{ARCHIVE}", prefix(&backup.name_any(), &backup.uid().unwrap_or_default()))
}

/// Without its content, which is not made in here. It is deleted with the EtcdBackup, or where that is in another namespace, with the
/// cluster.
pub(super) fn token(backup: &EtcdBackup, cluster: &Cluster) -> Option<Secret> {
    let namespace = cluster.names.namespace.clone();
    let owner = owner(backup, &namespace).or_else(|| {
        Some(OwnerReference {
            api_version: EtcdCluster::api_version(&()).into_owned(),
            kind: EtcdCluster::kind(&()).into_owned(),
            name: cluster.names.cluster.clone(),
            uid: cluster.uid.clone()?,
            controller: None,
            block_owner_deletion: None,
        })
    })?;
    let metadata = ObjectMeta {
        name: Some(token_name(backup)),
        namespace: Some(namespace),
        labels: Some([(MANAGED_BY_LABEL.to_owned(), FIELD_MANAGER.to_owned())].into()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    Some(Secret { metadata, ..Secret::default() })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
