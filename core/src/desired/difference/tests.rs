use serde_json::{Value, json};

use super::super::{Desired, Intent, Names};
use super::*;
use crate::api::EtcdCluster;

fn made_from(spec: Value) -> StatefulSet {
    let mut cluster = EtcdCluster::new("kv", serde_json::from_value(spec).expect("it is a spec"));
    cluster.metadata.uid = Some("7d1c".into());
    let intent: Intent = crate::validate::validate(&cluster).expect("it is valid");
    let names = Names { namespace: "shop".into(), cluster: "kv".into(), domain: "cluster.local".into() };
    Desired { intent: &intent, names: &names, agent_image: "op:1" }.stateful_set(3)
}

/// As an API server hands it out: with everything filled in that it has a default for, and amounts in its own words.
fn stored(spec: Value) -> StatefulSet {
    let mut set = serde_json::to_value(made_from(spec)).expect("it is data");
    add(
        &mut set["metadata"],
        json!({"creationTimestamp": "2026-01-01T00:00:00Z", "uid": "1", "generation": 1}),
    );
    add(&mut set["spec"], json!({"revisionHistoryLimit": 10}));
    let template = &mut set["spec"]["template"];
    template["metadata"]["creationTimestamp"] = Value::Null;
    let pod = &mut template["spec"];
    add(
        pod,
        json!({"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}),
    );
    for container in list(pod, "containers") {
        let defaults = json!({
            "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        });
        add(container, defaults);
        for port in list(container, "ports") {
            add(port, json!({"protocol": "TCP"}));
        }
        for amounts in ["requests", "limits"] {
            if container["resources"][amounts]["cpu"] == "1000m" {
                container["resources"][amounts]["cpu"] = json!("1");
            }
        }
    }
    for constraint in list(pod, "topologySpreadConstraints") {
        add(constraint, json!({"nodeTaintsPolicy": "Ignore"}));
    }
    let claim = &mut set["spec"]["volumeClaimTemplates"][0];
    add(claim, json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}}));
    add(&mut claim["spec"], json!({"volumeMode": "Filesystem"}));
    serde_json::from_value(set).expect("it is still a StatefulSet")
}

fn list<'a>(parent: &'a mut Value, name: &str) -> Vec<&'a mut Value> {
    parent.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().collect()
}

fn add(object: &mut Value, more: Value) {
    for (name, value) in more.as_object().expect("an object") {
        object[name] = value.clone();
    }
}

fn edited(from: Value, to: Value) -> Vec<&'static str> {
    not_rolled_out(&stored(from), &made_from(to))
}

#[test]
fn what_the_api_server_fills_in_is_no_edit() {
    for spec in [
        json!({}),
        json!({"debugSidecar": {}, "resources": {"requests": {"cpu": "1000m", "memory": "1Gi"}}}),
        json!({"podTemplate": {
            "labels": {"team": "shop"}, "annotations": {"a": "b"}, "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "db", "operator": "Exists"}], "priorityClassName": "high",
            "imagePullSecrets": [{"name": "s"}],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            "securityContext": {"runAsUser": 1000, "supplementalGroups": []},
        }}),
        json!({"options": {"snapshotCount": 5000, "extraArguments": {"log-level": "debug"}}}),
    ] {
        assert_eq!(edited(spec.clone(), spec.clone()), Vec::<&str>::new(), "{spec}");
    }
}

#[test]
fn every_edit_is_named_by_its_field_and_so_is_taking_it_back() {
    let pod = |template: Value| json!({"podTemplate": template});
    for (spec, field) in [
        (json!({"version": "3.5.22"}), "spec.version"),
        (json!({"repository": "registry:5000/etcd"}), "spec.repository"),
        (json!({"resources": {"requests": {"cpu": 2}}}), "spec.resources.requests"),
        (json!({"resources": {"limits": {"memory": "1Gi"}}}), "spec.resources.limits"),
        (json!({"options": {"snapshotCount": 5000}}), "spec.options.snapshotCount"),
        (json!({"options": {"quotaBackendBytes": 1 << 30}}), "spec.options.quotaBackendBytes"),
        (json!({"options": {"extraArguments": {"log-level": "debug"}}}), "spec.options.extraArguments"),
        (
            json!({"options": {"autoCompactionMode": "Revision", "autoCompactionRetention": "9"}}),
            "spec.options.autoCompactionMode",
        ),
        (pod(json!({"labels": {"team": "shop"}})), "spec.podTemplate.labels"),
        (pod(json!({"annotations": {"a": "b"}})), "spec.podTemplate.annotations"),
        (pod(json!({"nodeSelector": {"kubernetes.io/arch": "arm64"}})), "spec.podTemplate.nodeSelector"),
        (pod(json!({"tolerations": [{"key": "db"}]})), "spec.podTemplate.tolerations"),
        (pod(json!({"affinity": {"podAntiAffinity": {}}})), "spec.podTemplate.affinity"),
        (pod(json!({"priorityClassName": "high"})), "spec.podTemplate.priorityClassName"),
        (pod(json!({"imagePullSecrets": [{"name": "s"}]})), "spec.podTemplate.imagePullSecrets"),
        (pod(json!({"securityContext": {}})), "spec.podTemplate.securityContext"),
        (
            pod(json!({"securityContext": {"runAsUser": 1000, "fsGroup": 65532}})),
            "spec.podTemplate.securityContext",
        ),
        (json!({"debugSidecar": {}}), "spec.debugSidecar"),
        (json!({"storage": {"size": "20Gi"}}), "spec.storage.size"),
        (json!({"storage": {"storageClassName": "fast"}}), "spec.storage.storageClassName"),
    ] {
        assert_eq!(edited(json!({}), spec.clone()), [field], "{spec}");
        assert_eq!(edited(spec.clone(), json!({})), [field], "taken back: {spec}");
    }
}

#[test]
fn an_entry_that_is_changed_in_its_place_is_an_edit() {
    let tolerates = |key: &str| json!({"podTemplate": {"tolerations": [{"key": "db"}, {"key": key}]}});
    assert_eq!(edited(tolerates("a"), tolerates("b")), ["spec.podTemplate.tolerations"]);
    let image = |image: &str| json!({"debugSidecar": {"image": image}});
    assert_eq!(edited(image("a:1"), image("a:2")), ["spec.debugSidecar"]);
}

#[test]
fn the_same_amount_in_other_words_is_no_edit() {
    let cpu = |amount: &str| json!({"resources": {"limits": {"cpu": amount}}});
    assert_eq!(edited(cpu("1000m"), cpu("1")), Vec::<&str>::new());
    assert_eq!(edited(cpu("0.5"), cpu("500m")), Vec::<&str>::new());
    assert_eq!(edited(cpu("1"), cpu("2")), ["spec.resources.limits"]);
}

#[test]
fn the_mark_of_kubectl_rollout_restart_is_not_ours_to_tell_of() {
    let mut there = serde_json::to_value(stored(json!({}))).expect("it is data");
    let mark = json!({"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"});
    there["spec"]["template"]["metadata"]["annotations"] = mark;
    let there = serde_json::from_value(there).expect("it is a StatefulSet");
    assert_eq!(not_rolled_out(&there, &made_from(json!({}))), Vec::<&str>::new());
}

#[test]
fn a_statefulset_of_an_operator_that_gave_only_etcd_resources_shows_no_edit() {
    let spec = json!({"debugSidecar": {}, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}});
    let mut there = serde_json::to_value(stored(spec.clone())).expect("it is data");
    let pod = &mut there["spec"]["template"]["spec"];
    for (containers, name) in [("initContainers", "install-agent"), ("containers", "netshoot")] {
        let mut found = list(pod, containers).into_iter().filter(|it| it["name"] == name);
        found.next().and_then(Value::as_object_mut).expect("a container").remove("resources");
    }
    let there = serde_json::from_value(there).expect("it is a StatefulSet");
    assert_eq!(not_rolled_out(&there, &made_from(spec)), Vec::<&str>::new());
}
