use serde_json::{Value, json};

use super::*;
use crate::api::EtcdCluster;
use crate::order::BootstrapOrder;
use crate::tls::{Purpose, Scheme};

fn intent(spec: Value) -> Intent {
    let mut cluster = EtcdCluster::new("kv", serde_json::from_value(spec).expect("it is a spec"));
    cluster.metadata.namespace = Some("shop".into());
    cluster.metadata.uid = Some("7d1c".into());
    crate::validate::validate(&cluster).expect("it is valid")
}

fn names() -> Names {
    Names::new("shop", "kv", "cluster.local")
}

fn with<T>(spec: Value, look: impl FnOnce(&Desired<'_>) -> T) -> T {
    look(&Desired { intent: &intent(spec), names: &names(), agent_image: "op:1", operator: None })
}

fn set(spec: Value) -> Value {
    serde_json::to_value(with(spec, |desired| desired.stateful_set(3, &desired.intent.form)))
        .expect("it is data")
}

fn pod(spec: Value) -> Value {
    set(spec)["spec"]["template"]["spec"].clone()
}

#[test]
fn pods_come_all_at_once_and_are_restarted_by_us_alone() {
    let set = set(json!({}));
    assert_eq!(set["spec"]["podManagementPolicy"], "Parallel");
    assert_eq!(set["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
    assert_eq!(set["spec"]["serviceName"], "kv-peer");
    assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], "7d1c");
}

#[test]
fn claims_tell_their_cluster_and_belong_to_nobody() {
    let claim = set(json!({"storage": {"size": "2Gi"}}))["spec"]["volumeClaimTemplates"][0].clone();
    assert_eq!(claim["metadata"]["name"], "data");
    assert_eq!(claim["metadata"]["labels"][names::CLUSTER_UID_LABEL], "7d1c");
    assert_eq!(claim["metadata"].get("ownerReferences"), None);
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "2Gi");
}

#[test]
fn a_pod_is_restricted_and_knows_nothing_of_kubernetes() {
    let pod = pod(json!({"debugSidecar": {}}));
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    let containers =
        ["initContainers", "containers"].map(|list| pod[list].as_array().expect("a list").clone());
    assert_eq!(containers.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2]);
    for container in containers.iter().flatten() {
        let security = &container["securityContext"];
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]), "{container}");
        assert_eq!(
            (&security["readOnlyRootFilesystem"], &security["allowPrivilegeEscalation"]),
            (&json!(true), &json!(false))
        );
    }
}

#[test]
fn user_and_groups_are_ours_unless_a_security_context_is_given() {
    let context = |spec: Value| pod(spec)["securityContext"].clone();
    let given = |own: Value| context(json!({"podTemplate": {"securityContext": own}}));
    let restricted = json!({
        "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}, "fsGroupChangePolicy": "OnRootMismatch",
    });
    let with = |more: Value| {
        let mut expected = restricted.clone();
        for (name, value) in more.as_object().expect("an object") {
            expected[name] = value.clone();
        }
        expected
    };
    assert_eq!(context(json!({})), with(json!({"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532})));
    assert_eq!(given(json!({})), restricted);
    let own = json!({"runAsUser": 1000, "fsGroup": 2000, "fsGroupChangePolicy": "Always"});
    assert_eq!(given(own.clone()), with(own));
}

#[test]
fn every_container_has_requests_and_limits_where_etcd_has_them() {
    let amounts = json!({"cpu": "1", "memory": "1Gi"});
    let pod = pod(json!({"debugSidecar": {}, "resources": {"requests": amounts, "limits": amounts}}));
    let resources = |list: &str, index: usize| pod[list][index]["resources"].clone();
    let of_etcd = json!({"requests": amounts, "limits": amounts});
    assert_eq!(resources("containers", 0), of_etcd);
    assert_eq!(resources("initContainers", 0), of_etcd, "or a Guaranteed pod would be Burstable");
    for kind in ["requests", "limits"] {
        for name in ["cpu", "memory"] {
            assert!(resources("containers", 1)[kind][name].is_string(), "{pod}");
        }
    }
}

#[test]
fn a_node_that_is_away_evicts_no_member_and_users_may_tolerate_more() {
    let tolerations = pod(json!({"podTemplate": {"tolerations": [{"key": "db"}]}}))["tolerations"].clone();
    let keys: Vec<_> = tolerations.as_array().expect("a list").iter().map(|it| it["key"].clone()).collect();
    assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "db"]);
    assert!(tolerations[0].get("tolerationSeconds").is_none(), "for ever");
}

#[test]
fn members_are_spread_as_far_as_possible_unless_users_know_better() {
    let spread = pod(json!({}))["topologySpreadConstraints"].clone();
    assert!(spread.as_array().expect("a list").iter().all(|it| it["whenUnsatisfiable"] == "ScheduleAnyway"));
    let own = json!([{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]);
    let template = json!({"podTemplate": {"topologySpreadConstraints": own}});
    assert_eq!(pod(template)["topologySpreadConstraints"], own);
}

#[test]
fn old_members_are_probed_by_what_they_have() {
    let etcd = |version: &str| pod(json!({"version": version}))["containers"][0].clone();
    let new = etcd("3.5.21");
    assert_eq!(new["livenessProbe"]["httpGet"]["path"], "/livez");
    assert_eq!(new["readinessProbe"]["httpGet"]["path"], "/readyz");
    let old = etcd("3.5.9");
    assert_eq!(old["livenessProbe"]["httpGet"]["path"], "/health?serializable=true&exclude=NOSPACE");
    assert_eq!(old["readinessProbe"]["exec"]["command"][0], "etcdctl");
}

#[test]
fn peers_see_pods_that_are_not_ready_and_clients_do_not() {
    let services = with(json!({"externalAccess": {"nodePort": {"port": 30379}}}), services);
    let named: BTreeMap<_, _> = services
        .into_values()
        .map(|service| (service.metadata.name.clone(), service.spec.expect("it has a spec")))
        .collect();
    let of = |name: &str| &named[&Some(name.to_owned())];
    assert_eq!(of("kv-peer").publish_not_ready_addresses, Some(true));
    assert_eq!(of("kv-client").publish_not_ready_addresses, None);
    let outside = of("kv-nodeport").ports.as_ref().expect("a port");
    assert_eq!(outside[0].node_port, Some(30379));
    assert_eq!(with(json!({}), services_count), 2, "no port is opened unasked");
}

fn services_count(desired: &Desired<'_>) -> usize {
    services(desired).len()
}

#[test]
fn a_drain_leaves_a_quorum_of_what_is_there_and_of_what_is_wanted() {
    let least = |spec, voters| {
        let budget = with(spec, |desired| desired.disruption_budget(voters, false));
        budget.and_then(|budget| budget.spec?.min_available)
    };
    assert_eq!(least(json!({"size": 3}), 5), Some(IntOrString::Int(3)));
    assert_eq!(least(json!({"size": 5}), 3), Some(IntOrString::Int(3)));
    assert_eq!(least(json!({"size": 1}), 1), Some(IntOrString::Int(1)));
    assert_eq!(least(json!({"size": 3, "podDisruptionBudget": "Disabled"}), 3), None);
}

#[test]
fn the_order_can_be_deleted_for_good() {
    let order = BootstrapOrder {
        protocol_version: crate::agent::Protocol::CURRENT,
        cluster_uid: "7d1c".into(),
        attempt: 1,
        nonce: "n".into(),
        armed: true,
        members: BTreeMap::from([(
            "kv-0".into(),
            names().peer_url(Scheme::Https, crate::observed::Ordinal(0)),
        )]),
    };
    let map = with(json!({}), |desired| desired.order(&order));
    assert_eq!((map.metadata.name.as_deref(), map.immutable), (Some("kv-bootstrap"), None));
    let text = &map.data.expect("it has data")[order::KEY];
    assert_eq!(BootstrapOrder::parse(text).expect("it is an order"), order);
}

/// The volumes name their previous cluster for ever, so without this no member that adopted one starts again.
#[test]
fn volumes_that_were_adopted_stay_so_when_the_annotation_is_removed() {
    let adopting = Intent { adopts: Some("8d6c".into()), ..intent(json!({})) };
    let (later, names) = (intent(json!({"version": "3.5.35"})), names());
    let of = |intent| Desired { intent, names: &names, agent_image: "op:1", operator: None };
    let set = of(&adopting).stateful_set(3, &adopting.form);
    let adopted = |set: &StatefulSet| crate::form::adopts(&set.spec.as_ref().expect("a spec").template);
    assert_eq!(adopted(&set).as_deref(), Some("8d6c"));
    assert!(of(&later).is_rendered(&set, &adopting.form), "the template keeps what it says");
    let record = |adopts: Option<&str>| Record {
        digest: adopting.form.digest(),
        form: adopting.form.clone(),
        of_unmarked_pods: false,
        held_generation: None,
        adopts: adopts.map(str::to_owned),
        cleared: Default::default(),
        tls: None,
    };
    let recreated = of(&later).recreated_set(3, &record(Some("8d6c")));
    assert_eq!(adopted(&recreated).as_deref(), Some("8d6c"), "also when the StatefulSet is created again");
    assert_eq!(adopted(&of(&later).recreated_set(3, &record(None))), None);
}

fn preflight(spec: Value) -> Value {
    let pod = with(spec, |desired| desired.preflight(crate::observed::Ordinal(1), "n1"));
    serde_json::to_value(pod.expect("the spec is valid")).expect("it is data")
}

#[test]
fn a_preflight_pod_runs_etcd_with_the_arguments_of_its_member_and_starts_nothing() {
    let pod = preflight(json!({
        "version": "3.6.16", "options": {"snapshotCount": 5000, "extraArguments": {"max-txn-ops": "256"}},
    }));
    let etcd = &pod["spec"]["containers"][0];
    assert_eq!((&etcd["image"], &etcd["command"]), (&json!("quay.io/coreos/etcd:v3.6.16"), &json!(["etcd"])));
    let arguments = etcd["args"].as_array().expect("a list");
    for argument in [
        "--name=kv-1",
        "--data-dir=/var/lib/etcd/data",
        "--listen-client-urls=https://0.0.0.0:2379",
        "--peer-cert-file=/etc/etcd-tls/peer/tls.crt",
        "--initial-advertise-peer-urls=https://kv-1.kv-peer.shop.svc.cluster.local:2380",
        "--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true",
        "--snapshot-count=5000",
        "--max-txn-ops=256",
    ] {
        assert!(arguments.contains(&argument.into()), "{argument} in {arguments:?}");
    }
    assert_eq!(arguments.last(), Some(&json!("--version")));
    assert_eq!((&pod["spec"]["nodeName"], &pod["spec"]["restartPolicy"]), (&json!("n1"), &json!("Never")));
}

#[test]
fn a_preflight_pod_has_what_its_member_needs_on_a_node_and_is_as_restricted() {
    let template = json!({
        "tolerations": [{"key": "db"}], "imagePullSecrets": [{"name": "s"}], "priorityClassName": "high",
        "securityContext": {"runAsUser": 1000},
    });
    let spec = json!({"podTemplate": template, "resources": {"requests": {"memory": "8Gi"}}});
    let (tried, member) = (preflight(spec.clone())["spec"].clone(), pod(spec));
    for same in [
        "tolerations",
        "imagePullSecrets",
        "priorityClassName",
        "securityContext",
        "automountServiceAccountToken",
        "enableServiceLinks",
    ] {
        assert_eq!(tried[same], member[same], "{same}");
    }
    let (tried, member) = (&tried["containers"][0], &member["containers"][0]);
    assert_eq!(tried["securityContext"], member["securityContext"]);
    assert_eq!(tried["terminationMessagePolicy"], member["terminationMessagePolicy"]);
    assert_eq!(tried["resources"]["requests"], json!({"cpu": "10m", "memory": "32Mi"}));
    assert_eq!(tried["volumeMounts"], Value::Null);
}

#[test]
fn nothing_that_selects_members_selects_a_preflight_pod() {
    let pod = preflight(json!({}));
    let labels = pod["metadata"]["labels"].as_object().expect("there are some");
    assert!(
        names().selector().keys().all(|key| labels.get(key) != set(json!({}))["metadata"]["labels"].get(key))
    );
    assert!(!labels.contains_key(names::CLUSTER_LABEL) && !labels.contains_key("app.kubernetes.io/instance"));
    assert_eq!(labels[names::PREFLIGHT_LABEL], "kv");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "7d1c");
    let proof = with(json!({}), |desired| desired.intent.form.proof());
    assert_eq!(pod["metadata"]["annotations"][names::PROOF_ANNOTATION], json!(proof));
}

/// The names of volumes, and where etcd has each of the Secrets.
fn secrets(spec: Value) -> Vec<(String, String)> {
    let pod = pod(spec);
    let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("a list").clone();
    let volumes = pod["volumes"].as_array().expect("a list").iter();
    let secret = |volume: &Value| {
        let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]).expect("it is mounted");
        assert_eq!((&mount["readOnly"], mount.get("subPath")), (&json!(true), None), "it has to be updated");
        Some((volume["secret"]["secretName"].as_str()?.to_owned(), mount["mountPath"].as_str()?.to_owned()))
    };
    volumes.filter(|volume| !volume["secret"].is_null()).filter_map(secret).collect()
}

#[test]
fn a_pod_has_the_secrets_of_the_ports_that_use_tls_and_no_authority() {
    let at = |name: &str, path: &str| (name.to_owned(), format!("/etc/etcd-tls/{path}"));
    let (peer, server, operator) =
        (at("kv-peer-tls", "peer"), at("kv-server-tls", "server"), at("kv-operator-tls", "operator"));
    let tls = |tls: Value| secrets(json!({"security": {"tls": tls}}));
    assert_eq!(tls(json!({})), [peer.clone(), server.clone(), operator.clone()]);
    assert_eq!(tls(json!({"clientTLSEnabled": false})), [peer]);
    assert_eq!(tls(json!({"peerTLSEnabled": false})), [server, operator]);
    assert_eq!(tls(json!({"enabled": false})), []);
}

#[test]
fn only_the_group_of_etcd_reads_keys_where_it_has_one() {
    let mode = |spec: Value| pod(spec)["volumes"][2]["secret"]["defaultMode"].clone();
    assert_eq!(mode(json!({})), 0o440);
    assert_eq!(mode(json!({"podTemplate": {"securityContext": {}}})), 0o444);
}

#[test]
fn etcdctl_in_the_container_needs_no_arguments() {
    let variables = |spec: Value| {
        let variables = pod(spec)["containers"][0]["env"].as_array().expect("a list").clone();
        let own = variables
            .into_iter()
            .filter(|it| it["name"].as_str().is_some_and(|it| it.starts_with("ETCDCTL")));
        own.map(|it| format!("{}={}", it["name"], it["value"]).replace('"', "")).collect::<Vec<_>>()
    };
    let expected = [
        "ETCDCTL_ENDPOINTS=https://127.0.0.1:2379",
        "ETCDCTL_API=3",
        "ETCDCTL_CACERT=/etc/etcd-tls/operator/ca.crt",
        "ETCDCTL_CERT=/etc/etcd-tls/operator/tls.crt",
        "ETCDCTL_KEY=/etc/etcd-tls/operator/tls.key",
    ];
    assert_eq!(variables(json!({})), expected);
    let plain = ["ETCDCTL_ENDPOINTS=http://127.0.0.1:2379", "ETCDCTL_API=3"];
    assert_eq!(variables(json!({"security": {"tls": {"clientTLSEnabled": false}}})), plain);
}

#[test]
fn a_secret_belongs_to_its_cluster_and_has_the_type_that_others_know() {
    let secret = json!(secret(Purpose::Client, &names(), "7d1c", BTreeMap::new()));
    assert_eq!(secret["metadata"]["name"], "kv-client-tls");
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], "7d1c");
    assert_eq!(secret["metadata"]["labels"][names::CLUSTER_LABEL], "kv");
    assert_eq!(secret["type"], "kubernetes.io/tls");
}
