//! How Prometheus finds the members: annotations that its usual configuration reads, or an object for the Prometheus operator.

use std::collections::BTreeMap;

use kube::core::{ApiResource, DynamicObject, TypeMeta};
use serde_json::json;

use super::Desired;
use crate::api::PodMonitor;
use crate::etcd_config::METRICS_PORT;

/// The API group of the Prometheus operator.
const PROMETHEUS_OPERATOR: &str = "monitoring.coreos.com";
const SCRAPE_ANNOTATION: &str = "prometheus.io/scrape";
const PORT_ANNOTATION: &str = "prometheus.io/port";
/// As service discovery shows the label of the cluster.
const CLUSTER_LABEL_FOUND: &str = "__meta_kubernetes_pod_label_etcd_etcd_io_cluster";

pub fn pod_monitor_resource() -> ApiResource {
    ApiResource {
        group: PROMETHEUS_OPERATOR.into(),
        version: "v1".into(),
        api_version: format!("{PROMETHEUS_OPERATOR}/v1"),
        kind: "PodMonitor".into(),
        plural: "podmonitors".into(),
    }
}

impl Desired<'_> {
    /// None unless the spec asks for one. Alerts and dashboards know a cluster by the label `name`.
    pub fn pod_monitor(&self) -> Option<DynamicObject> {
        let (resource, names) = (pod_monitor_resource(), self.names);
        let relabeling = json!({"sourceLabels": [CLUSTER_LABEL_FOUND], "targetLabel": "name"});
        let spec = json!({
            "selector": {"matchLabels": names.selector()},
            "podMetricsEndpoints": [{"port": "metrics", "relabelings": [relabeling]}],
        });
        (self.intent.pod_monitor == PodMonitor::Enabled).then(|| DynamicObject {
            types: Some(TypeMeta { api_version: resource.api_version, kind: resource.kind }),
            metadata: self.metadata(names.cluster.clone()),
            data: json!({"spec": spec}),
        })
    }

    /// A user who has written whether to scrape has decided; with a PodMonitor each member would be scraped twice.
    pub(super) fn scrape_annotations(&self) -> BTreeMap<String, String> {
        let is_decided = self.intent.pod_annotations.contains_key(SCRAPE_ANNOTATION);
        match self.intent.pod_monitor {
            PodMonitor::Disabled if !is_decided => BTreeMap::from([
                (SCRAPE_ANNOTATION.into(), "true".into()),
                (PORT_ANNOTATION.into(), METRICS_PORT.to_string()),
            ]),
            PodMonitor::Disabled | PodMonitor::Enabled => BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::surroundings::tests::{desired, intent, names};

    #[test]
    fn it_reads_the_same_metrics_with_the_same_labels_as_the_one_for_all_clusters() {
        let (intent, names) = (intent(json!({"size": 1, "monitoring": {"podMonitor": "Enabled"}})), names());
        let own = desired(&intent, &names, "op:1").pod_monitor().expect("it is asked for");
        let shipped = include_str!("../../../config/prometheus/pod-monitor.yaml");
        let shipped: Value = serde_saphyr::from_str(shipped).expect("it is YAML");
        assert_eq!(own.data["spec"]["podMetricsEndpoints"], shipped["spec"]["podMetricsEndpoints"]);
        let types = own.types.expect("a kind");
        assert_eq!(
            [json!(types.api_version), json!(types.kind)],
            [&shipped["apiVersion"], &shipped["kind"]].map(Clone::clone)
        );
    }

    #[test]
    fn a_user_decides_whether_members_are_scraped_by_their_annotations() {
        let annotations = |spec: Value| {
            let (intent, names) = (intent(spec), names());
            desired(&intent, &names, "op:1").scrape_annotations()
        };
        let expected = [("prometheus.io/port", "2381"), ("prometheus.io/scrape", "true")];
        let expected = BTreeMap::from(expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(annotations(json!({"size": 1})), expected);
        assert_eq!(annotations(json!({"size": 1, "monitoring": {}})), expected);
        let own = json!({"prometheus.io/scrape": "false"});
        assert_eq!(annotations(json!({"size": 1, "podTemplate": {"annotations": own}})), BTreeMap::new());
        assert_eq!(annotations(json!({"size": 1, "monitoring": {"podMonitor": "Enabled"}})), BTreeMap::new());
    }
}
