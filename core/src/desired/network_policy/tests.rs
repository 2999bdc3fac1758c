use serde_json::Value;

use super::*;
use crate::api::EtcdCluster;
use crate::names::Names;
use crate::validate::validate;

fn policy(networking: Value, operator: Option<&OperatorPods>) -> Option<NetworkPolicy> {
    let spec = json!({"security": {"networkPolicy": networking}});
    let mut cluster = EtcdCluster::new("kv", serde_json::from_value(spec).expect("a spec"));
    cluster.metadata.uid = Some("7d1c".into());
    let intent = validate(&cluster).expect("it is valid");
    let names = Names::new("shop", "kv", "cluster.local");
    Desired { intent: &intent, names: &names, agent_image: "op:1", operator }.network_policy()
}

fn of_manifests() -> OperatorPods {
    let labels = BTreeMap::from([("app.kubernetes.io/name".into(), "etcd-operator".into())]);
    OperatorPods { namespace: "etcd-operator-system".into(), labels }
}

/// Who is let in to this port.
fn sources(policy: &NetworkPolicy, port: u16) -> Vec<Value> {
    let rules = policy.spec.as_ref().and_then(|spec| spec.ingress.clone()).unwrap_or_default();
    let is_for = |rule: &&NetworkPolicyIngressRule| {
        let mut ports = rule.ports.iter().flatten();
        ports.any(|it| it.port == Some(IntOrString::Int(i32::from(port))))
    };
    rules
        .iter()
        .filter(is_for)
        .flat_map(|rule| rule.from.clone().unwrap_or_default())
        .map(|it| json!(it))
        .collect()
}

fn labelled(label: &str, value: &str) -> Value {
    json!({"podSelector": {"matchLabels": {label: value}}})
}

#[test]
fn without_a_word_about_it_nobody_is_kept_out() {
    assert_eq!(policy(Value::Null, Some(&of_manifests())), None);
}

#[test]
fn each_port_is_open_to_those_that_need_it_and_to_no_others() {
    let policy = policy(json!({}), Some(&of_manifests())).expect("it is asked for");
    let member = json!({"podSelector": {"matchLabels": {"app.kubernetes.io/name": "etcd", "etcd.etcd.io/cluster": "kv"}}});
    let operator = json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "etcd-operator-system"}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "etcd-operator"}},
    });
    let prometheus = json!({
        "namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
    });
    let (client, backup) =
        (labelled("etcd.etcd.io/client-of", "kv"), labelled("etcd.etcd.io/backup-of", "kv"));
    let all = |others: &[&Value]| {
        [&[&member, &operator][..], others].concat().into_iter().cloned().collect::<Vec<_>>()
    };
    assert_eq!(sources(&policy, CLIENT_PORT), all(&[&client, &backup]));
    assert_eq!(sources(&policy, PEER_PORT), all(&[]));
    assert_eq!(sources(&policy, METRICS_PORT), all(&[&prometheus]));
}

#[test]
fn it_selects_members_says_nothing_of_what_goes_out_and_is_deleted_with_the_cluster() {
    let policy = json!(policy(json!({}), None).expect("it is asked for"));
    let members = json!({"matchLabels": {"app.kubernetes.io/name": "etcd", "etcd.etcd.io/cluster": "kv"}});
    assert_eq!(policy["spec"]["podSelector"], members);
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]));
    assert_eq!(policy["spec"].get("egress"), None);
    assert_eq!(policy["metadata"]["name"], "kv");
    assert_eq!(policy["metadata"]["ownerReferences"][0]["uid"], "7d1c");
}

/// A rule without a source would let everybody in.
#[test]
fn every_rule_names_its_sources_and_ports() {
    for operator in [None, Some(of_manifests())] {
        for networking in [json!({}), json!({"clientSelector": {}})] {
            let policy = policy(networking, operator.as_ref()).expect("it is asked for");
            let rules = policy.spec.and_then(|spec| spec.ingress).expect("rules");
            assert_eq!(rules.len(), 3 + usize::from(operator.is_some()));
            for NetworkPolicyIngressRule { from, ports } in rules {
                assert!(from.is_some_and(|it| !it.is_empty()) && ports.is_some_and(|it| !it.is_empty()));
            }
        }
    }
}

#[test]
fn users_select_their_clients_and_an_empty_selector_means_all_pods_of_the_namespace() {
    let own = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["shop", "bank"]}]});
    for selector in [own, json!({})] {
        let policy = policy(json!({"clientSelector": selector}), None).expect("it is asked for");
        assert_eq!(sources(&policy, CLIENT_PORT)[1], json!({"podSelector": selector}));
        assert_eq!(sources(&policy, PEER_PORT).len(), 1, "members alone");
    }
}

/// Otherwise the policy would be written again and again.
#[test]
fn what_is_empty_in_a_selector_is_left_out_as_the_api_server_does() {
    let exists = json!({"key": "app", "operator": "Exists", "values": []});
    for (written, stored) in [
        (json!({"matchLabels": {}, "matchExpressions": []}), json!({})),
        (
            json!({"matchExpressions": [exists]}),
            json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
        ),
    ] {
        let policy = policy(json!({"clientSelector": written}), None).expect("it is asked for");
        assert_eq!(sources(&policy, CLIENT_PORT)[1], json!({"podSelector": stored}));
    }
}

#[test]
fn an_operator_without_labels_is_known_by_its_namespace() {
    let operator = OperatorPods { labels: BTreeMap::new(), ..of_manifests() };
    let policy = policy(json!({}), Some(&operator)).expect("it is asked for");
    let namespace = json!({"matchLabels": {"kubernetes.io/metadata.name": "etcd-operator-system"}});
    assert_eq!(sources(&policy, PEER_PORT)[1], json!({"namespaceSelector": namespace, "podSelector": {}}));
}

#[test]
fn what_opens_or_narrows_it_is_noticed_and_what_has_no_effect_is_not() {
    let wanted = policy(json!({}), Some(&of_manifests())).expect("it is asked for");
    let edited = |edit: &dyn Fn(&mut Value)| {
        let mut there = json!(wanted);
        edit(&mut there);
        let there = serde_json::from_value(there).expect("it is a policy");
        restricts_as_wanted(&wanted, &there)
    };
    assert!(edited(&|_| ()));
    assert!(edited(&|it| it["metadata"]["annotations"] = json!({"example.org/note": "hello"})));
    // What goes out is restricted only by a policy that says so in its types.
    assert!(edited(&|it| it["spec"]["egress"] = json!([])));
    let everybody = json!({"ports": [{"port": 2379, "protocol": "TCP"}]});
    let rules = |it: &mut Value| it["spec"]["ingress"].as_array_mut().expect("rules").len();
    type Edit<'a> = &'a dyn Fn(&mut Value);
    let changes: [(&str, Edit<'_>); 7] = [
        ("a further rule", &|it| {
            let last = rules(it) - 1;
            it["spec"]["ingress"][last] = everybody.clone();
        }),
        ("a rule that is removed", &|it| {
            it["spec"]["ingress"].as_array_mut().expect("rules").pop();
        }),
        ("a further source", &|it| {
            let from = it["spec"]["ingress"][0]["from"].as_array_mut().expect("sources");
            from.push(json!({"podSelector": {}}));
        }),
        ("a source in other namespaces", &|it| {
            it["spec"]["ingress"][0]["from"][0]["namespaceSelector"] = json!({});
        }),
        ("a range of ports", &|it| it["spec"]["ingress"][2]["ports"][0]["endPort"] = json!(2381)),
        ("fewer members", &|it| it["spec"]["podSelector"]["matchLabels"]["tier"] = json!("1")),
        ("what goes out", &|it| it["spec"]["policyTypes"] = json!(["Ingress", "Egress"])),
    ];
    for (says, change) in changes {
        assert!(!edited(change), "{says}");
    }
}
