//! What of the cluster matters to a backup, read from its objects.

use k8s_openapi::api::core::v1::{LocalObjectReference, Pod, PodSecurityContext, PodSpec, Toleration};
use kube::ResourceExt;

use crate::api::{AwaitedBackup, EtcdBackup, EtcdCluster};
use crate::backup::layout::cluster_id;
use crate::desired::stay_on_lost_nodes;
use crate::form::member_config;
use crate::names::{ALLOW_FROM_ANNOTATION, Names};
use crate::observed::ClusterId;

#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    pub names: Names,
    pub uid: Option<String>,
    /// None before it has bootstrapped.
    pub id: Option<ClusterId>,
    pub is_stopped: bool,
    pub is_deleting: bool,
    /// Voters that served a linearizable read.
    pub serving: i32,
    /// The client URL of each member whose pod is there.
    pub endpoints: Vec<String>,
    /// Other namespaces whose backups it allows.
    pub allowed: Vec<String>,
    /// The copy that it waits for.
    pub awaited: Option<AwaitedBackup>,
    pub rules: PodRules,
}

/// The rules of the members' pods that hold for pods of backups, too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodRules {
    pub node_selector: Option<std::collections::BTreeMap<String, String>>,
    pub tolerations: Vec<Toleration>,
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    pub security: Option<PodSecurityContext>,
}

impl Cluster {
    /// What members speak is read from their pods: the spec might ask for something else.
    pub fn of<'a>(cluster: &EtcdCluster, pods: impl Iterator<Item = &'a Pod>, default_domain: &str) -> Self {
        let names = Names::of(cluster, default_domain);
        let mut members: Vec<_> = pods
            .filter_map(|pod| Some((names.ordinal_of_pod(&pod.name_any())?, pod.spec.as_ref()?)))
            .filter_map(|(ordinal, spec)| Some((ordinal, spec, member_config(spec)?.transport)))
            .collect();
        members.sort_by_key(|(ordinal, ..)| *ordinal);
        let endpoint = |&(ordinal, _, transport): &(_, _, crate::tls::Transport)| {
            names.client_url(transport.clients.scheme(), ordinal)
        };
        let status = cluster.status.as_ref();
        Self {
            uid: cluster.uid(),
            id: status.and_then(|it| cluster_id(it.cluster_id.as_deref()?)),
            is_stopped: cluster.spec.size == 0,
            is_deleting: cluster.metadata.deletion_timestamp.is_some(),
            serving: status.and_then(|it| it.ready_replicas).unwrap_or_default(),
            endpoints: members.iter().map(endpoint).collect(),
            allowed: allowed(cluster).map(str::to_owned).collect(),
            awaited: status.and_then(|it| it.awaited_backup.clone()),
            rules: members.first().map(|(_, spec, _)| PodRules::of(spec)).unwrap_or_default(),
            names,
        }
    }

    pub fn uses_tls(&self) -> bool {
        self.endpoints.iter().any(|url| url.starts_with("https://"))
    }
}

/// Other namespaces whose objects can refer to this one: EtcdBackups to a cluster, EtcdRestores to an EtcdBackup.
pub(crate) fn allowed(object: &impl ResourceExt) -> impl Iterator<Item = &str> {
    let list = object.annotations().get(ALLOW_FROM_ANNOTATION).map(String::as_str).unwrap_or_default();
    list.split(',').map(str::trim).filter(|namespace| !namespace.is_empty())
}

/// Whether an EtcdBackup that names the cluster is allowed to: otherwise anybody could change what its status reports.
pub fn may_refer(backup: &EtcdBackup, cluster: &EtcdCluster) -> bool {
    let own = backup.namespace();
    own == cluster.namespace() || own.is_some_and(|own| allowed(cluster).any(|it| it == own))
}

impl PodRules {
    /// Members stay on nodes that are lost; a run is repeated elsewhere.
    pub(crate) fn of(spec: &PodSpec) -> Self {
        let of_members = stay_on_lost_nodes();
        let tolerations = spec.tolerations.iter().flatten().filter(|it| !of_members.contains(it));
        Self {
            node_selector: spec.node_selector.clone(),
            tolerations: tolerations.cloned().collect(),
            image_pull_secrets: spec.image_pull_secrets.clone(),
            security: spec.security_context.clone(),
        }
    }
}
