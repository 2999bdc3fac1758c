//! Names that others rely on: once published, they stay.

mod words;

use std::collections::BTreeMap;

use crate::api::EtcdCluster;
use crate::etcd_config::{PEER_PORT, client_url, peer_url};
use crate::member::PeerAddress;
use crate::observed::Ordinal;
use crate::tls::{Purpose, Scheme};
pub use words::{condition, event, reason};

/// Owns the fields that we write by server-side apply.
pub const FIELD_MANAGER: &str = "etcd-operator";

/// What begins the names of our annotations.
pub const ANNOTATION_OF: &str = "etcd.etcd.io/";
pub const FINALIZER: &str = "etcd.etcd.io/finalizer";
/// On an EtcdCluster: the UID of the former cluster of this name whose volumes it is to take over.
pub const ADOPT_ANNOTATION: &str = "etcd.etcd.io/adopt-volumes-of";
/// On everything of the operator, with the name of its program: what selects Jobs and their pods.
pub const NAME_LABEL: &str = "app.kubernetes.io/name";
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// On everything that belongs to a cluster: the cluster's name.
pub const CLUSTER_LABEL: &str = "etcd.etcd.io/cluster";
/// On claims: the EtcdCluster they were made for. Names come back; UIDs do not.
pub const CLUSTER_UID_LABEL: &str = "etcd.etcd.io/cluster-uid";
/// On claims: the member whose data they hold.
pub const MEMBER_ID_LABEL: &str = "etcd.etcd.io/member-id";
/// On pods and their template: the digest of the form that they were made from.
pub const FORM_ANNOTATION: &str = "etcd.etcd.io/form";
/// On pods and their template: the digest of the whole template that they were made from.
pub const RENDERING_ANNOTATION: &str = "etcd.etcd.io/rendering";
/// On pods and their template: the version of the formats that their agent writes.
pub const AGENT_ANNOTATION: &str = "etcd.etcd.io/agent-protocol";
/// On pods and their template: which of their labels and annotations come from the spec.
pub const CHOSEN_ANNOTATION: &str = "etcd.etcd.io/pod-template-metadata";
/// On preflight pods, instead of what is on everything else: the cluster's name. So nobody who selects by
/// [`CLUSTER_LABEL`] takes them for members.
pub const PREFLIGHT_LABEL: &str = "etcd.etcd.io/preflight-of";
/// On pods of users: the cluster whose client port they can connect to, unless its spec selects others.
pub const CLIENT_LABEL: &str = "etcd.etcd.io/client-of";
/// On pods that take backups: the cluster.
pub const BACKUP_LABEL: &str = "etcd.etcd.io/backup-of";
/// On Jobs that take backups and their pods: which EtcdBackup they are for, and which run.
pub const RUN_ANNOTATION: &str = "etcd.etcd.io/backup-run";
/// On Jobs of archivers and their pods: which EtcdBackup they are for, and what they were made from.
pub const ARCHIVE_ANNOTATION: &str = "etcd.etcd.io/archive";
/// On an EtcdCluster that an EtcdRestore creates, and on everything else that it creates: which EtcdRestore it is. Until its data
/// is there, no member of the cluster starts.
pub const RESTORE_ANNOTATION: &str = "etcd.etcd.io/restore";
/// On an EtcdCluster whose data an EtcdRestore replaces: what is restored, and with consent to replace which data.
pub const REPLACE_ANNOTATION: &str = "etcd.etcd.io/replace-data";
/// On claims with data that was replaced: the UID of the EtcdRestore. No member starts on them any more.
pub const REPLACED_BY_LABEL: &str = "etcd.etcd.io/replaced-by";
/// On an EtcdCluster: other namespaces whose EtcdBackups can refer to it, separated by commas; on an EtcdBackup, those whose
/// EtcdRestores can.
pub const ALLOW_FROM_ANNOTATION: &str = "etcd.etcd.io/allow-from-namespaces";
/// On preflight pods: the digest of what they try.
pub const PROOF_ANNOTATION: &str = "etcd.etcd.io/proof";
/// On the Secret of the client port: when the operator wrote it with a certificate that a user has issued.
pub const COPIED_ANNOTATION: &str = "etcd.etcd.io/copied-at";
/// The volume of a pod, and the beginning of its claim's name, unless an EtcdRestore has replaced the data of the cluster.
pub const DATA_VOLUME: &str = "data";
/// Of the UID of an EtcdRestore, in the name of volumes.
const UID_DIGITS: usize = 8;

/// What the objects of one cluster are called. The cluster domain is part of peer URLs, so it never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub namespace: String,
    pub cluster: String,
    pub domain: String,
    /// What the volumes of members are called in their pods, and the beginning of the names of their claims.
    pub volumes: String,
}

impl Names {
    /// Those of a cluster whose data was never replaced.
    pub fn new(namespace: &str, cluster: &str, domain: &str) -> Self {
        let volumes = DATA_VOLUME.into();
        Self { namespace: namespace.into(), cluster: cluster.into(), domain: domain.into(), volumes }
    }

    /// Those of a cluster. Its domain stays what it was when it was created.
    pub fn of(cluster: &EtcdCluster, default_domain: &str) -> Self {
        let status = cluster.status.as_ref();
        let recorded = status.and_then(|status| status.domain.clone());
        Self {
            namespace: cluster.metadata.namespace.clone().unwrap_or_default(),
            cluster: cluster.metadata.name.clone().unwrap_or_default(),
            domain: recorded.unwrap_or_else(|| default_domain.to_owned()),
            volumes: status.and_then(|it| it.volume_name.clone()).unwrap_or_else(|| DATA_VOLUME.into()),
        }
    }

    /// The same with other volumes.
    pub fn with_volumes(&self, volumes: &str) -> Self {
        Self { volumes: volumes.into(), ..self.clone() }
    }

    pub fn pod(&self, ordinal: Ordinal) -> String {
        format!("{}-{ordinal}", self.cluster)
    }

    /// As the StatefulSet controller calls it.
    pub fn claim(&self, ordinal: Ordinal) -> String {
        format!("{}-{}-{ordinal}", self.volumes, self.cluster)
    }

    pub fn peer_service(&self) -> String {
        format!("{}-peer", self.cluster)
    }

    pub fn client_service(&self) -> String {
        format!("{}-client", self.cluster)
    }

    pub fn node_port_service(&self) -> String {
        format!("{}-nodeport", self.cluster)
    }

    pub fn order(&self) -> String {
        format!("{}-bootstrap", self.cluster)
    }

    /// The last form that all members ran together.
    pub fn form(&self) -> String {
        format!("{}-form", self.cluster)
    }

    /// The pod that tries a form on the node of this member.
    pub fn preflight(&self, ordinal: Ordinal) -> String {
        format!("{}-preflight-{ordinal}", self.cluster)
    }

    pub fn secret(&self, purpose: Purpose) -> String {
        format!("{}-{}", self.cluster, purpose.suffix())
    }

    /// The Certificate that cert-manager issues, and the Secret in which it stores what it has issued.
    pub fn issued(&self) -> String {
        format!("{}-server-issued", self.cluster)
    }

    /// What selects the members' pods.
    pub fn selector(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("app.kubernetes.io/name".into(), "etcd".into()),
            (CLUSTER_LABEL.into(), self.cluster.clone()),
        ])
    }

    /// Where clients connect.
    pub fn endpoint(&self, scheme: Scheme) -> String {
        client_url(scheme, &self.client_hosts()[0])
    }

    /// Every name of the Service for clients, the full one first.
    pub fn client_hosts(&self) -> [String; 4] {
        let (service, namespace) = (self.client_service(), &self.namespace);
        [
            format!("{service}.{namespace}.svc.{}", self.domain),
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}"),
            service,
        ]
    }

    /// A name that exists as soon as any pod has an address, and lists them all.
    pub fn peer_host(&self) -> String {
        format!("{}.{}.svc.{}", self.peer_service(), self.namespace, self.domain)
    }

    pub fn pod_host(&self, ordinal: Ordinal) -> String {
        format!("{}.{}", self.pod(ordinal), self.peer_host())
    }

    pub fn peer_url(&self, scheme: Scheme, ordinal: Ordinal) -> String {
        peer_url(scheme, &self.pod_host(ordinal))
    }

    pub fn client_url(&self, scheme: Scheme, ordinal: Ordinal) -> String {
        client_url(scheme, &self.pod_host(ordinal))
    }

    /// Which pod a peer URL belongs to, with any scheme; none if it is not one of this cluster.
    pub fn ordinal_of(&self, peer_url: &str) -> Option<Ordinal> {
        let PeerAddress { host, port } = PeerAddress::parse(peer_url)?;
        let (pod, service) = host.split_once('.')?;
        self.ordinal_of_pod(pod).filter(|_| service == self.peer_host() && port == PEER_PORT)
    }

    pub fn ordinal_of_pod(&self, pod: &str) -> Option<Ordinal> {
        ordinal_behind(pod, &self.cluster)
    }

    pub fn ordinal_of_claim(&self, claim: &str) -> Option<Ordinal> {
        ordinal_behind(claim, &format!("{}-{}", self.volumes, self.cluster))
    }

    /// What the volumes are called that this claim would be one of, if it has the name of a member's.
    pub fn volumes_of_claim(&self, claim: &str) -> Option<String> {
        let (volumes, _) = claim.split_once('-')?;
        self.with_volumes(volumes).ordinal_of_claim(claim).map(|_| volumes.to_owned())
    }
}

/// What the volumes are called that an EtcdRestore makes for a cluster with data. Without a dash, no claim has the name of one of a
/// cluster with another name.
pub fn volumes_of_restore(uid: &str) -> String {
    let digits = uid.chars().filter(char::is_ascii_alphanumeric).take(UID_DIGITS);
    format!("{DATA_VOLUME}{}", digits.collect::<String>().to_lowercase())
}

/// Reads `3` off `kv-3`, but nothing off `kv-03` or `kv-a-3`.
fn ordinal_behind(name: &str, stem: &str) -> Option<Ordinal> {
    let digits = name.strip_prefix(stem)?.strip_prefix('-')?;
    let ordinal = digits.parse().ok().map(Ordinal)?;
    (ordinal.to_string() == digits).then_some(ordinal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new("ns", "kv", "cluster.local")
    }

    #[test]
    fn a_peer_url_leads_back_to_its_pod_and_others_lead_nowhere() {
        for ordinal in [0, 2, 9, 10, 11, 100].map(Ordinal) {
            for scheme in [Scheme::Http, Scheme::Https] {
                assert_eq!(names().ordinal_of(&names().peer_url(scheme, ordinal)), Some(ordinal));
            }
        }
        for other in [
            "http://kv-1.kv-peer.ns.svc.cluster.local:2379",
            "http://kv-1.kv-peer.other.svc.cluster.local:2380",
            "http://kv-01.kv-peer.ns.svc.cluster.local:2380",
            "http://kv-1.kv-peer.ns.svc.cluster.local.:2380",
            "http://kv-1:2380",
            "http://10.0.0.1:2380",
        ] {
            assert_eq!(names().ordinal_of(other), None, "{other}");
        }
    }

    #[test]
    fn pods_and_claims_of_a_cluster_with_a_longer_name_are_not_ours() {
        assert_eq!(names().ordinal_of_pod("kv-3"), Some(Ordinal(3)));
        assert_eq!(names().ordinal_of_claim("data-kv-10"), Some(Ordinal(10)));
        for other in ["kv-a-3", "kv", "kv-", "kv-03", "kv-300", "kw-3"] {
            assert_eq!(names().ordinal_of_pod(other), None, "{other}");
        }
    }

    #[test]
    fn volumes_of_a_restore_are_nobody_elses() {
        let volumes = volumes_of_restore("FEEDBEEF-1234-5678");
        assert_eq!(volumes, "datafeedbeef");
        let restored = names().with_volumes(&volumes);
        let claim = restored.claim(Ordinal(0));
        assert_eq!(claim, "datafeedbeef-kv-0");
        assert_eq!(
            (restored.ordinal_of_claim(&claim), names().ordinal_of_claim(&claim)),
            (Some(Ordinal(0)), None)
        );
        assert_eq!(names().volumes_of_claim(&claim), Some(volumes));
        for other in ["data-a-kv-0", "datafeedbeef-a-kv-0", "kv-0", "data-kv"] {
            assert_eq!(names().volumes_of_claim(other), None, "{other}");
        }
    }
}
