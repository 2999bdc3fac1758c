//! What a cluster should be like: the checked form of an EtcdCluster, made by [`crate::validate::validate`]
//! alone.
//!
//! Defaults are filled in, ways to say the same thing have become one, and what cannot be asked for cannot be
//! expressed. What has no effect in this version is not in here; [`crate::notices`] tells users about it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaimSpec, ResourceRequirements, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::{Deserialize, Serialize};

use crate::api::{
    self, DeletePolicy, DisruptionBudget, EtcdCluster, PodMonitor, Quantity, RolloutStrategy, StopPolicy,
};
use crate::asked::{Asked, Malformed};
use crate::auth;
use crate::etcd_config::{AutoCompaction, MemberOptions};
use crate::form::Form;
use crate::names::{ADOPT_ANNOTATION, CLIENT_LABEL, Names};
use crate::observed::VolumeForm;
use crate::recovery::Consent;
use crate::rules::options::{DEFAULT_ELECTION_MILLISECONDS, DEFAULT_HEARTBEAT_MILLISECONDS};
use crate::schedule::{Schedule, Window};
use crate::tls::{Switch, Transport};
use crate::version::Version;

#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    pub name: String,
    pub namespace: String,
    /// Told apart by this from an earlier cluster of the same name.
    pub uid: String,
    /// The former cluster of this name whose volumes are taken over, if that was asked for.
    pub adopts: Option<String>,
    /// At most [`MAX_SIZE`](crate::member::MAX_SIZE).
    pub size: u8,
    pub paused: bool,
    pub storage: Storage,
    /// What members are made from. Another one makes them restart.
    pub form: Form,
    /// Additional ones of the pods, which change without a restart.
    pub pod_labels: BTreeMap<String, String>,
    pub pod_annotations: BTreeMap<String, String>,
    pub disruption_budget: bool,
    /// Whether a rollout waits for approval when the first member has proved itself.
    pub supervised: bool,
    /// When members may be restarted for reasons of the operator, where that stops writes.
    pub windows: Vec<Window>,
    /// How often the data of members is compared; none if never.
    pub consistency_interval_seconds: Option<i64>,
    /// When members are defragmented; none if never.
    pub defragmentation: Option<Thresholds>,
    pub node_loss_grace_seconds: i64,
    /// To lose data, if it was given.
    pub recovery: Option<Consent>,
    pub asked: Asked,
    pub auth: auth::Wanted,
    /// How Prometheus finds the members.
    pub pod_monitor: PodMonitor,
    /// The Service for clients outside, if there should be one.
    pub node_port: Option<NodePort>,
    /// The pods that can connect to the client port, if that should be limited.
    pub network_policy: Option<LabelSelector>,
    /// How the transport of the form leads to what the spec asks for.
    pub switch: Switch,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Storage {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Complete: access modes, size and class are in it.
    pub claim: PersistentVolumeClaimSpec,
    pub bytes: u64,
    pub on_stop: OnStop,
    pub on_delete: DeletePolicy,
}

impl Storage {
    pub fn volumes(&self) -> VolumeForm {
        VolumeForm { bytes: self.bytes, class: self.claim.storage_class_name.clone() }
    }
}

/// [`StopPolicy`] without what this version cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnStop {
    /// The last member's volume stays.
    Retain,
    /// All stay, and all members start again as they were.
    RetainAll,
    Delete,
}

/// A database file that has reached both of them is fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    /// How much of it is unused.
    pub percent: u64,
    /// Its size.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePort {
    Allocated,
    Fixed(u16),
}

impl Intent {
    /// What members should have in the end, before it is known which stage of a switch comes next.
    pub fn towards(mut self, target: Option<Transport>) -> Self {
        self.form.transport = target.unwrap_or(self.form.transport);
        self
    }

    /// To change the transport while members run takes more than one restart, so the form depends on what was observed.
    pub fn with_switch(mut self, switch: Switch) -> Self {
        self.form.transport = switch.form;
        Self { switch, ..self }
    }
}

/// `None` if a rule is broken; which one, the rules say themselves.
pub(crate) fn of(cluster: &EtcdCluster) -> Option<Intent> {
    let metadata = &cluster.metadata;
    // Taken apart without `..`: a new field must get its place here or a reason.
    let api::EtcdClusterSpec {
        size,
        version,
        repository,
        paused,
        storage,
        security,
        resources,
        options,
        pod_template,
        pod_disruption_budget,
        rollout,
        maintenance,
        repair,
        recovery,
        monitoring,
        external_access,
        debug_sidecar,
    } = cluster.spec.clone();
    let mut pod = pod_template.unwrap_or_default();
    let pod_labels = std::mem::take(&mut pod.labels);
    let pod_annotations = std::mem::take(&mut pod.annotations);
    let switch = Switch::at_creation(&security.tls);
    let form = Form {
        version: Version::parse(&version)?,
        repository,
        resources: resources_of(resources.unwrap_or_default()),
        options: options_of(options.unwrap_or_default())?,
        pod,
        debug_image: debug_sidecar.map(|sidecar| sidecar.image),
        transport: switch.form,
    };
    let api::Maintenance { windows, consistency_check, defragmentation } = maintenance.unwrap_or_default();
    Some(Intent {
        name: metadata.name.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        adopts: metadata.annotations.as_ref().and_then(|it| it.get(ADOPT_ANNOTATION)).cloned(),
        size: u8::try_from(size).ok()?,
        paused,
        storage: storage_of(storage)?,
        form,
        pod_labels,
        pod_annotations,
        disruption_budget: pod_disruption_budget == DisruptionBudget::Enabled,
        supervised: rollout.unwrap_or_default().strategy == RolloutStrategy::Supervised,
        windows: windows.iter().map(window_of).collect::<Option<_>>()?,
        consistency_interval_seconds: consistency_check.unwrap_or_default().interval(),
        defragmentation: defragmentation.map(thresholds_of),
        node_loss_grace_seconds: repair.unwrap_or_default().node_loss_grace_seconds,
        recovery: match recovery.and_then(|it| it.accept_data_loss) {
            Some(given) => Some(Consent::of(&given, metadata.name.as_deref().unwrap_or_default())?),
            None => None,
        },
        asked: asked(cluster).0,
        auth: auth::Wanted::of(security.auth.as_ref()),
        pod_monitor: monitoring.unwrap_or_default().pod_monitor,
        node_port: match external_access.and_then(|access| access.node_port) {
            Some(api::NodePort { port: Some(port) }) => Some(NodePort::Fixed(u16::try_from(port).ok()?)),
            Some(api::NodePort { port: None }) => Some(NodePort::Allocated),
            None => None,
        },
        network_policy: security
            .network_policy
            .map(|it| it.client_selector.map_or_else(|| labelled_clients(cluster), as_stored)),
        switch,
    })
}

/// The API server drops what is empty.
fn as_stored(selector: LabelSelector) -> LabelSelector {
    let requirement = |it: LabelSelectorRequirement| LabelSelectorRequirement {
        values: it.values.filter(|values| !values.is_empty()),
        ..it
    };
    let expressions = selector.match_expressions.filter(|it| !it.is_empty());
    LabelSelector {
        match_labels: selector.match_labels.filter(|it| !it.is_empty()),
        match_expressions: expressions.map(|it| it.into_iter().map(requirement).collect()),
    }
}

fn labelled_clients(cluster: &EtcdCluster) -> LabelSelector {
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let labels = BTreeMap::from([(CLIENT_LABEL.into(), name)]);
    LabelSelector { match_labels: Some(labels), match_expressions: None }
}

/// What annotations ask for, and those that nobody understands.
pub fn asked(cluster: &EtcdCluster) -> (Asked, Vec<Malformed>) {
    // The domain is no part of the names of pods.
    let annotations = cluster.metadata.annotations.clone().unwrap_or_default();
    Asked::read(&annotations, &Names::of(cluster, ""))
}

fn thresholds_of(defragmentation: api::Defragmentation) -> Thresholds {
    let api::Defragmentation { min_fragmentation_percent, min_size_bytes } = defragmentation;
    Thresholds {
        percent: u64::try_from(min_fragmentation_percent).unwrap_or(0),
        bytes: u64::try_from(min_size_bytes).unwrap_or(0),
    }
}

fn window_of(window: &api::MaintenanceWindow) -> Option<Window> {
    let api::MaintenanceWindow { schedule, time_zone, duration_minutes } = window;
    let minutes = u16::try_from(*duration_minutes).ok()?;
    Some(Window { schedule: Schedule::new(schedule, time_zone)?, minutes })
}

fn storage_of(storage: api::Storage) -> Option<Storage> {
    let size = storage.size_in_effect();
    let template = storage.volume_claim_template.unwrap_or_default();
    let api::TemplateMetadata { labels, annotations } = template.metadata.unwrap_or_default();
    let requests = BTreeMap::from([("storage".into(), amount(&size))]);
    let claim = PersistentVolumeClaimSpec {
        access_modes: template.spec.access_modes.or_else(|| Some(vec!["ReadWriteOnce".into()])),
        // Every member needs a volume of its own, and an empty one.
        data_source: None,
        data_source_ref: None,
        volume_name: None,
        resources: Some(VolumeResourceRequirements { limits: None, requests: Some(requests) }),
        selector: template.spec.selector,
        storage_class_name: storage.storage_class_name.or(template.spec.storage_class_name),
        volume_attributes_class_name: template.spec.volume_attributes_class_name,
        volume_mode: template.spec.volume_mode,
    };
    let on_stop = match storage.on_stop {
        StopPolicy::Retain => OnStop::Retain,
        StopPolicy::RetainAll => OnStop::RetainAll,
        StopPolicy::Delete => OnStop::Delete,
        StopPolicy::Archive => return None,
    };
    Some(Storage { labels, annotations, claim, bytes: size.bytes()?, on_stop, on_delete: storage.on_delete })
}

fn resources_of(resources: api::Resources) -> ResourceRequirements {
    let amounts = |amounts: BTreeMap<String, Quantity>| {
        let amounts: BTreeMap<_, _> = amounts.iter().map(|(name, it)| (name.clone(), amount(it))).collect();
        (!amounts.is_empty()).then_some(amounts)
    };
    ResourceRequirements {
        claims: None,
        limits: amounts(resources.limits),
        requests: amounts(resources.requests),
    }
}

fn options_of(options: api::Options) -> Option<MemberOptions> {
    let api::Options {
        quota_backend_bytes,
        auto_compaction_mode,
        auto_compaction_retention,
        snapshot_count,
        heartbeat_interval_milliseconds,
        election_timeout_milliseconds,
        extra_arguments,
    } = options;
    let auto_compaction = match auto_compaction_mode.zip(auto_compaction_retention) {
        Some((api::AutoCompactionMode::Periodic, retention)) => Some(AutoCompaction::Periodic(retention)),
        Some((api::AutoCompactionMode::Revision, retention)) => Some(AutoCompaction::Revision(retention)),
        None => None,
    };
    let heartbeat = heartbeat_interval_milliseconds.unwrap_or(DEFAULT_HEARTBEAT_MILLISECONDS);
    let election = election_timeout_milliseconds.unwrap_or(DEFAULT_ELECTION_MILLISECONDS);
    Some(MemberOptions {
        quota_backend_bytes: quota_backend_bytes.map(u64::try_from).transpose().ok()?,
        auto_compaction,
        snapshot_count: snapshot_count.map(u64::try_from).transpose().ok()?,
        heartbeat_interval_milliseconds: Some(u32::try_from(heartbeat).ok()?),
        election_timeout_milliseconds: Some(u32::try_from(election).ok()?),
        extra_arguments,
    })
}

fn amount(quantity: &Quantity) -> Amount {
    Amount(quantity.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn intent(spec: serde_json::Value) -> Intent {
        let mut cluster = EtcdCluster::new("kv", serde_json::from_value(spec).expect("it is a spec"));
        cluster.metadata.namespace = Some("shop".into());
        cluster.metadata.uid = Some("7d1c".into());
        crate::validate::validate(&cluster).expect("it is valid")
    }

    #[test]
    fn an_empty_spec_is_complete_once_it_is_checked() {
        let intent = intent(json!({}));
        assert_eq!(
            (intent.name.as_str(), intent.namespace.as_str(), intent.uid.as_str()),
            ("kv", "shop", "7d1c")
        );
        assert_eq!((intent.size, intent.form.image().as_str()), (3, "quay.io/coreos/etcd:v3.5.21"));
        assert!(intent.disruption_budget && !intent.paused);
        assert_eq!((intent.node_port, &intent.form.debug_image), (None, &None));
        assert_eq!(intent.storage.bytes, 10 << 30);
        assert_eq!(
            (intent.storage.on_stop, intent.storage.on_delete),
            (OnStop::Retain, DeletePolicy::Retain)
        );
        assert_eq!(
            serde_json::to_value(intent.storage.claim).expect("plain data"),
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}})
        );
        let options = intent.form.options;
        assert_eq!(
            (options.heartbeat_interval_milliseconds, options.election_timeout_milliseconds),
            (Some(100), Some(1000))
        );
        assert_eq!((options.quota_backend_bytes, options.auto_compaction), (None, None));
    }

    #[test]
    fn the_tag_of_the_image_has_a_v_whether_the_version_was_written_with_one_or_not() {
        for version in ["3.5.9", "v3.5.9"] {
            assert_eq!(intent(json!({"version": version, "repository": "r/e"})).form.image(), "r/e:v3.5.9");
        }
    }

    #[test]
    fn a_claim_takes_from_its_template_what_a_member_can_use() {
        let storage = intent(json!({"storage": {"volumeClaimTemplate": {
            "metadata": {"labels": {"team": "shop"}},
            "spec": {
                "accessModes": ["ReadWriteOncePod"], "storageClassName": "fast", "volumeName": "pv-1",
                "dataSource": {"kind": "PersistentVolumeClaim", "name": "old"},
                "resources": {"requests": {"storage": "20Gi"}, "limits": {"storage": "30Gi"}},
            },
        }}}))
        .storage;
        assert_eq!(storage.bytes, 20 << 30);
        assert_eq!(storage.labels, BTreeMap::from([("team".into(), "shop".into())]));
        assert_eq!(
            serde_json::to_value(storage.claim).expect("plain data"),
            json!({
                "accessModes": ["ReadWriteOncePod"], "storageClassName": "fast",
                "resources": {"requests": {"storage": "20Gi"}},
            })
        );
    }

    #[test]
    fn what_is_switched_on_is_there_with_its_details() {
        let intent = intent(json!({
            "externalAccess": {"nodePort": {"port": 30379}}, "debugSidecar": {},
            "podDisruptionBudget": "Disabled",
            "resources": {"requests": {"cpu": 2}},
            "options": {"autoCompactionMode": "Revision", "autoCompactionRetention": "1000"},
        }));
        assert_eq!(intent.node_port, Some(NodePort::Fixed(30379)));
        assert_eq!(intent.form.debug_image.as_deref(), Some("nicolaka/netshoot:latest"));
        assert!(!intent.disruption_budget);
        assert_eq!(
            intent.form.resources.requests,
            Some(BTreeMap::from([("cpu".into(), Amount("2".into()))]))
        );
        assert_eq!(intent.form.options.auto_compaction, Some(AutoCompaction::Revision("1000".into())));
    }
}
