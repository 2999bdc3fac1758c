use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};

use super::*;
use crate::api::EtcdCluster;
use crate::desired::Desired;
use crate::intent::Intent;
use crate::names::Names;
use crate::observed::MemberId;
use crate::tls::Section;

fn intent(spec: Value) -> Intent {
    let mut cluster = EtcdCluster::new("kv", serde_json::from_value(spec).expect("it is a spec"));
    cluster.metadata.uid = Some("7d1c".into());
    crate::validate::validate(&cluster).expect("it is valid")
}

fn form(spec: Value) -> Form {
    intent(spec).form
}

fn made_from(spec: Value) -> StatefulSet {
    let intent = intent(spec);
    let names = Names::new("shop", "kv", "cluster.local");
    Desired { intent: &intent, names: &names, agent_image: "op:1", operator: None }
        .stateful_set(3, &intent.form)
}

fn read(set: &StatefulSet) -> Form {
    Form::read(&set.spec.as_ref().expect("a spec").template).expect("it is ours")
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
    let (from, to) = (read(&stored(from)), form(to));
    let fields = from.differences(&to);
    assert_eq!(from.digest() == to.digest(), fields.is_empty());
    fields
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
    ] {
        assert_eq!(edited(json!({}), spec.clone()), [field], "{spec}");
        assert_eq!(edited(spec.clone(), json!({})), [field], "reverted: {spec}");
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
fn what_changes_without_a_restart_is_no_part_of_the_form() {
    let metadata = json!({"podTemplate": {"labels": {"team": "shop"}, "annotations": {"a": "b"}}});
    for spec in [metadata, json!({"size": 5}), json!({"storage": {"size": "20Gi"}}), json!({"paused": true})]
    {
        assert_eq!(form(spec.clone()).digest(), form(json!({})).digest(), "{spec}");
    }
}

/// Whoever changes one of these restarts every member of every cluster with the next operator.
#[test]
fn digests_stay_what_they_were() {
    let digest = |spec: Value| form(spec).digest().to_string();
    let plain = json!({"tls": {"enabled": false}});
    assert_eq!(digest(json!({"security": plain})), "cd8094b2e0608627");
    assert_eq!(digest(json!({})), "823a224b0380662e");
    let spec = json!({
        "security": plain,
        "version": "3.6.16", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "debugSidecar": {},
        "podTemplate": {"tolerations": [{"key": "db"}], "securityContext": {"runAsUser": 1000}},
    });
    assert_eq!(digest(spec), "52893506882f52c6");
}

#[test]
fn a_security_context_that_only_repeats_what_every_pod_has_is_no_edit() {
    let context = |context: Value| json!({"podTemplate": {"securityContext": context}});
    let same = json!({"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532, "runAsNonRoot": true});
    assert_eq!(edited(json!({}), context(same)), Vec::<&str>::new());
    assert_eq!(edited(context(json!({})), context(json!({"runAsNonRoot": true}))), Vec::<&str>::new());
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let form = form(json!({"version": "3.6.16", "resources": {"limits": {"cpu": "1"}}, "debugSidecar": {}}));
    let record = Record {
        digest: form.digest(),
        form,
        of_unmarked_pods: true,
        held_generation: Some(3),
        adopts: Some("8d6c".into()),
        cleared: [MemberId(0xa0), MemberId(u64::MAX)].into(),
        tls: Some(Section::Dormant(Box::default())),
    };
    let object = k8s_openapi::api::core::v1::ConfigMap { data: Some(record.data()), ..Default::default() };
    assert_eq!(Record::parse(&object), Some(record));
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
    assert_eq!(read(&there).differences(&form(spec)), Vec::<&str>::new());
}

/// `tests/previous` has what the version before forms wrote. What has landed there never changes.
#[test]
fn what_the_previous_version_wrote_has_the_form_of_its_spec() {
    let previous = include_str!("../../tests/previous/stateful-set.json");
    let set: StatefulSet = serde_json::from_str(previous).expect("it is a StatefulSet");
    let template = &set.spec.as_ref().expect("a spec").template;
    assert_eq!(Digest::on(template.metadata.as_ref().expect("it has metadata")), None);
    assert_eq!(
        read(&set).digest(),
        form(json!({"size": 3, "version": "3.6.16", "security": {"tls": {"enabled": false}}})).digest()
    );
}

#[test]
fn a_preflight_pod_proves_image_and_arguments_and_nothing_that_it_does_not_have() {
    let proof = |spec: Value| form(spec).proof();
    let pod = |template: Value| json!({"podTemplate": template});
    for proved in [
        json!({"version": "3.5.22"}),
        json!({"repository": "registry:5000/etcd"}),
        json!({"options": {"snapshotCount": 5000}}),
        json!({"options": {"extraArguments": {"log-level": "debug"}}}),
        pod(json!({"imagePullSecrets": [{"name": "s"}]})),
        pod(json!({"securityContext": {"runAsUser": 1000}})),
        pod(json!({"priorityClassName": "high"})),
    ] {
        assert_ne!(proof(proved.clone()), proof(json!({})), "{proved}");
    }
    for other in [
        json!({"resources": {"requests": {"cpu": 2}, "limits": {"memory": "1Gi"}}}),
        json!({"debugSidecar": {}}),
        pod(
            json!({"nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "db"}], "labels": {"team": "shop"}}),
        ),
    ] {
        assert_eq!(proof(other.clone()), proof(json!({})), "{other}");
    }
}
