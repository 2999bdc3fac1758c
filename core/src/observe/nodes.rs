//! Which nodes matter to one cluster, and by which addresses clients reach its NodePort.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, Taint, Toleration};
use kube::ResourceExt;

use super::Objects;
use crate::desired::{ZONE_LABEL, is_default_spreading};
use crate::observed::{self, Nodes, Seen, Unread};
use crate::tls::{self, Purpose};

/// Every handshake carries the certificate. Users of larger clusters name the addresses that their clients use.
const MAX_ADDRESSES: usize = 100;
/// Names of nodes are not looked up: clients may not know them.
const ADDRESS_TYPES: [&str; 2] = ["InternalIP", "ExternalIP"];

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

/// The addresses of nodes that the certificate of the client port has to have. While nodes cannot be read for a reason that passes,
/// those that it has stay.
pub fn addresses(objects: &Objects) -> BTreeSet<IpAddr> {
    let external = objects.cluster.spec.external_access.as_ref();
    if external.is_none_or(|external| external.node_port.is_none()) {
        return BTreeSet::new();
    }
    let parsed = |text: &String| text.parse().ok();
    match &objects.nodes {
        Seen::Known(all) => {
            let listed =
                all.iter().flat_map(|node| node.status.iter().flat_map(|it| &it.addresses).flatten());
            let reachable = listed.filter(|it| ADDRESS_TYPES.contains(&it.type_.as_str()));
            let sorted: BTreeSet<_> = reachable.filter_map(|it| parsed(&it.address)).collect();
            sorted.into_iter().take(MAX_ADDRESSES).collect()
        }
        Seen::Unknown(Unread::Forbidden | Unread::NotAsked) => BTreeSet::new(),
        Seen::Unknown(Unread::Failed(_)) => {
            let secret = objects.secrets.get(&Purpose::Server);
            let held = secret.and_then(|secret| tls::read(secret.data.as_ref()).ok());
            held.iter().flat_map(|it| &it.ip_addresses).filter_map(parsed).collect()
        }
    }
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
        let cluster = serde_json::from_value(cluster).expect("a cluster");
        let mut objects = settled(&validate(&cluster).expect("it is valid"));
        objects.cluster = Arc::new(cluster);
        let pod = |node: &str| {
            let pod = json!({"metadata": {"name": "kv"}, "spec": {"containers": [], "nodeName": node}});
            Arc::new(serde_json::from_value(pod).expect("a pod"))
        };
        objects.pods = (0..).map(Ordinal).zip(running_on.map(pod)).collect();
        let node = |it: &Value| Arc::new(serde_json::from_value(it.clone()).expect("a node"));
        objects.nodes = Seen::Known(nodes.iter().map(node).collect());
        objects
    }

    #[test]
    fn a_node_port_is_reached_by_the_addresses_of_nodes() {
        let node = |name: &str, addresses: Value| json!({"metadata": {"name": name}, "status": {"addresses": addresses}});
        let address = |type_: &str, address: &str| json!({"type": type_, "address": address});
        let all = [
            node("n2", json!([address("InternalIP", "10.0.0.2"), address("Hostname", "n2")])),
            node("n1", json!([address("InternalIP", "10.0.0.1"), address("ExternalIP", "2001:db8::1")])),
            json!({"metadata": {"name": "new"}}),
        ];
        let running_on = ["n1", "n2", "n1"];
        let texts = |objects: &Objects| {
            addresses(objects).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(texts(&objects(json!({}), running_on, &all)), "", "nobody comes through nodes");
        let open = json!({"externalAccess": {"nodePort": {}}});
        let mut opened = objects(open.clone(), running_on, &all);
        assert_eq!(texts(&opened), "10.0.0.1 10.0.0.2 2001:db8::1");
        let before = opened.unseen(&addresses(&opened));
        let further = node("n3", json!([address("InternalIP", "10.0.0.3")]));
        let Seen::Known(nodes) = &mut opened.nodes else { panic!("they were read") };
        nodes.push(Arc::new(serde_json::from_value(further).expect("a node")));
        assert_ne!(opened.unseen(&addresses(&opened)), before, "a settled cluster notices it");

        let many: Vec<_> = (0..200)
            .map(|it| node(&format!("n{it}"), json!([address("InternalIP", &format!("10.0.1.{it}"))])))
            .collect();
        assert_eq!(addresses(&objects(open, running_on, &many)).len(), MAX_ADDRESSES);
    }

    #[test]
    fn addresses_stay_in_the_certificate_while_nodes_cannot_be_read_and_not_without_the_right() {
        let mut objects = objects(json!({"externalAccess": {"nodePort": {}}}), ["n1", "n2", "n3"], &[]);
        let part = |text: &str| k8s_openapi::ByteString(text.into());
        let data = BTreeMap::from([
            (tls::CERTIFICATE_KEY.to_owned(), part(include_str!("../tls/testdata/leaf.crt"))),
            (tls::AUTHORITY_KEY.to_owned(), part(include_str!("../tls/testdata/ca.crt"))),
            (tls::PRIVATE_KEY.to_owned(), part("a key")),
        ]);
        let secret = k8s_openapi::api::core::v1::Secret { data: Some(data), ..Default::default() };
        objects.secrets.insert(Purpose::Server, Arc::new(secret));
        for (why, expected) in [
            (Unread::Failed("no answer".into()), vec!["127.0.0.1", "fd00::1"]),
            (Unread::Forbidden, vec![]),
            (Unread::NotAsked, vec![]),
        ] {
            objects.nodes = Seen::Unknown(why.clone());
            let kept: Vec<_> = addresses(&objects).iter().map(ToString::to_string).collect();
            assert_eq!(kept, expected, "{why:?}");
        }
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
