//! Which nodes matter to one cluster.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, Taint, Toleration};
use kube::ResourceExt;

use super::Objects;
use crate::desired::{ZONE_LABEL, is_default_spreading};
use crate::observed::{self, Nodes, Seen, Unread};

/// There can be thousands of nodes, and every cluster keeps what it observed. What decides how well members are spread is
/// where they run, and whether another node accepts one: the first by name stands for all such nodes of its zone.
pub fn that_matter(objects: &Objects) -> Seen<Nodes, Unread> {
    let all = match &objects.nodes {
        Seen::Known(all) => all,
        Seen::Unknown(why) => return Seen::Unknown(why.clone()),
    };
    let template = objects.set.as_deref().and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
    // A single member has nothing to be spread with.
    let Some(template) = template.filter(|_| objects.pods.len() > 1) else {
        return Seen::Known(Nodes::default());
    };
    let used: BTreeSet<&str> = objects.pods.values().filter_map(|pod| of_pod(pod)).collect();
    let (mut by_name, mut others) = (BTreeMap::new(), BTreeMap::new());
    for node in all {
        let (name, zone) = (node.metadata.name.as_deref().unwrap_or_default(), node.labels().get(ZONE_LABEL));
        if used.contains(name) {
            by_name.insert(name.to_owned(), see(node, template));
        } else if others.get(&zone).is_none_or(|first| name < *first) && accepts(node, template) {
            others.insert(zone, name);
        }
    }
    let other = |zone: Option<&String>| observed::Node { zone: zone.cloned(), accepts_members: true };
    by_name.extend(others.into_iter().map(|(zone, name)| (name.to_owned(), other(zone))));
    Seen::Known(Nodes { by_name, own_rules: has_own_rules(template) })
}

pub fn of_pod(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn see(node: &Node, template: &PodSpec) -> observed::Node {
    let zone = node.labels().get(ZONE_LABEL).cloned();
    observed::Node { zone, accepts_members: accepts(node, template) }
}

fn has_own_rules(template: &PodSpec) -> bool {
    let spreading = template.topology_spread_constraints.as_deref().unwrap_or_default();
    template.affinity.is_some() || !is_default_spreading(spreading)
}

/// As the scheduler filters, without what it knows of capacity and volumes.
fn accepts(node: &Node, template: &PodSpec) -> bool {
    let spec = node.spec.as_ref();
    let cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let mut selector = template.node_selector.iter().flatten();
    let selected = selector.all(|(key, value)| node.labels().get(key) == Some(value));
    let tolerations = template.tolerations.as_deref().unwrap_or_default();
    let mut taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default().iter();
    let repelled = taints.any(|taint| {
        taint.effect != "PreferNoSchedule" && !tolerations.iter().any(|it| tolerates(it, taint))
    });
    !cordoned && selected && !repelled
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let Toleration { key, operator, value, effect, toleration_seconds: _ } = toleration;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let same_key = given(key).is_none_or(|key| key == taint.key);
    let same_effect = given(effect).is_none_or(|effect| effect == taint.effect);
    let same_value = match given(operator).as_deref() {
        Some("Exists") => true,
        None | Some("Equal") => {
            given(key).is_some()
                && value.clone().unwrap_or_default() == taint.value.clone().unwrap_or_default()
        }
        // Of a later Kubernetes: what is not understood counts as not tolerated.
        Some(_) => false,
    };
    same_key && same_effect && same_value
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::observed::Ordinal;
    use crate::surroundings::tests::settled;
    use crate::validate::validate;

    /// A cluster of three on these nodes, among all of these.
    fn objects(spec: Value, running_on: [&str; 3], nodes: &[Value]) -> Objects {
        let mut cluster = json!({"metadata": {"name": "kv", "namespace": "ns", "uid": "uid"}, "spec": spec});
        cluster["spec"]["security"] = json!({"tls": {"enabled": false}});
        let intent = validate(&serde_json::from_value(cluster).expect("a cluster")).expect("it is valid");
        let mut objects = settled(&intent);
        let pod = |node: &str| {
            let pod = json!({"metadata": {"name": "kv"}, "spec": {"containers": [], "nodeName": node}});
            Arc::new(serde_json::from_value(pod).expect("a pod"))
        };
        objects.pods = (0..).map(Ordinal).zip(running_on.map(pod)).collect();
        let node = |it: &Value| Arc::new(serde_json::from_value(it.clone()).expect("a node"));
        objects.nodes = Seen::Known(nodes.iter().map(node).collect());
        objects
    }

    fn node(name: &str, zone: &str, spec: Value) -> Value {
        let labels = json!({ZONE_LABEL: zone, "disk": if zone == "b" { "fast" } else { "slow" }});
        json!({"metadata": {"name": name, "labels": labels}, "spec": spec})
    }

    fn matter(objects: &Objects) -> (Vec<(String, bool)>, bool) {
        let Seen::Known(nodes) = that_matter(objects) else { panic!("they were read") };
        let seen = nodes.by_name.iter().map(|(name, node)| (name.clone(), node.accepts_members));
        (seen.collect(), nodes.own_rules)
    }

    fn named(expected: &[(&str, bool)]) -> Vec<(String, bool)> {
        expected.iter().map(|(name, accepts)| ((*name).to_owned(), *accepts)).collect()
    }

    #[test]
    fn the_nodes_of_members_matter_and_one_more_of_each_zone() {
        let all = ["n1", "n2", "n3", "n4", "n5", "n6"].map(|name| {
            let zone = if name < "n4" { "a" } else { "b" };
            node(name, zone, json!({}))
        });
        let objects = objects(json!({}), ["n2", "n5", "n9"], &all);
        let (seen, own_rules) = matter(&objects);
        assert_eq!(seen, named(&[("n1", true), ("n2", true), ("n4", true), ("n5", true)]));
        assert!(!own_rules);
    }

    #[test]
    fn nodes_that_keep_members_away_accept_none() {
        let taint = |effect: &str| json!({"taints": [{"key": "dedicated", "value": "db", "effect": effect}]});
        let not_ready = json!({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]});
        let all = [
            node("cordoned", "a", json!({"unschedulable": true})),
            node("dedicated", "b", taint("NoSchedule")),
            node("evicting", "c", taint("NoExecute")),
            node("not-ready", "d", not_ready),
            node("unpopular", "e", taint("PreferNoSchedule")),
        ];
        let accepting = |template: Value| {
            let (seen, _) = matter(&objects(json!({"podTemplate": template}), ["x", "y", "z"], &all));
            seen.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(accepting(json!({})), "unpopular");
        for (toleration, accepts) in [
            (json!({"operator": "Exists"}), "dedicated evicting not-ready unpopular"),
            (json!({"key": "dedicated", "operator": "Exists"}), "dedicated evicting unpopular"),
            (json!({"key": "dedicated", "value": "db", "effect": "NoSchedule"}), "dedicated unpopular"),
            (json!({"key": "dedicated", "value": "web"}), "unpopular"),
        ] {
            assert_eq!(accepting(json!({"tolerations": [toleration]})), accepts, "{toleration}");
        }
        assert_eq!(accepting(json!({"nodeSelector": {"disk": "fast"}})), "");
        let both = json!({"nodeSelector": {"disk": "fast"}, "tolerations": [{"operator": "Exists"}]});
        assert_eq!(accepting(both), "dedicated");
    }

    #[test]
    fn rules_of_users_are_told_from_ours() {
        let own_rules =
            |template: Value| matter(&objects(json!({"podTemplate": template}), ["x", "y", "z"], &[])).1;
        assert!(!own_rules(json!({"nodeSelector": {"disk": "fast"}})));
        assert!(own_rules(json!({"affinity": {"nodeAffinity": {}}})));
        let constraint = json!({
            "maxSkew": 1, "topologyKey": ZONE_LABEL, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"etcd.etcd.io/cluster": "kv"}},
        });
        assert!(own_rules(json!({"topologySpreadConstraints": [constraint]})));
    }
}
