use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use super::*;
use crate::api::{EtcdCluster, EtcdClusterSpec, KUBERNETES_TYPES};
use crate::decide::Goal;
use crate::intent::Intent;
use crate::names::Names;
use crate::rules;
use crate::surroundings::tests::{settled, writes};
use crate::tls::chosen_profiles;
use crate::validate::validate;

/// The fields of the spec that hold values. Maps, lists and Kubernetes' own types count as one each.
fn fields() -> Vec<String> {
    let versions = EtcdCluster::crd().spec.versions;
    let roots = versions.into_iter().filter_map(|it| it.schema?.open_api_v3_schema);
    let mut fields = Vec::new();
    for root in roots {
        let spec = root.properties.as_ref().and_then(|it| it.get("spec"));
        spec.into_iter().for_each(|spec| add_fields(spec, "", &mut fields));
    }
    fields
}

fn add_fields(schema: &JSONSchemaProps, path: &str, fields: &mut Vec<String>) {
    let known = KUBERNETES_TYPES.iter().any(|(field, _)| *field == path);
    match schema.properties.as_ref().filter(|it| !known && !it.is_empty()) {
        Some(properties) => {
            for (name, field) in properties {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                add_fields(field, &path, fields);
            }
        }
        None => fields.push(path.to_owned()),
    }
}

fn edits() -> BTreeMap<String, Value> {
    serde_saphyr::from_str(include_str!("../../../tests/edits.yaml")).expect("it is YAML")
}

/// The spec before and after an edit.
fn edited(field: &str) -> (EtcdClusterSpec, EtcdClusterSpec) {
    let mut spec = json!({"size": 1, "version": "3.5.21"});
    let before = serde_json::from_value(spec.clone()).expect("a spec");
    let edit =
        edits().remove(field).unwrap_or_else(|| panic!("core/tests/edits.yaml has no edit of {field}"));
    merge(&mut spec, &edit);
    (before, serde_json::from_value(spec).expect("a spec"))
}

fn merge(there: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *there = patch.clone();
        return;
    };
    if !there.is_object() {
        *there = json!({});
    }
    for (name, value) in fields {
        merge(&mut there[name], value);
    }
}

fn intent(spec: EtcdClusterSpec) -> Intent {
    let mut cluster = EtcdCluster::new("kv", spec);
    cluster.metadata.namespace = Some("ns".into());
    cluster.metadata.uid = Some("uid".into());
    validate(&cluster).expect("it is valid")
}

/// The intent before an edit, and that of the cluster that runs then.
fn intents(field: &str) -> (Intent, Intent) {
    let (before, after) = edited(field);
    (intent(before), intent(after))
}

fn with(verdict: Verdict) -> impl Iterator<Item = &'static str> {
    VERDICTS.iter().filter(move |it| it.verdict == verdict).map(|it| it.field)
}

#[test]
fn every_field_has_a_verdict_and_an_edit_and_every_verdict_has_a_field() {
    let judged: Vec<_> = VERDICTS.iter().map(|it| it.field.to_owned()).collect();
    assert_eq!(fields(), judged, "in this order");
    assert_eq!(edits().into_keys().collect::<Vec<_>>(), judged, "in core/tests/edits.yaml");
    for field in &judged {
        let pointer = format!("/{}", field.replace('.', "/"));
        let (before, after) = edited(field);
        assert_ne!(json!(before).pointer(&pointer), json!(after).pointer(&pointer), "{field} is not edited");
    }
}

#[test]
fn a_rolling_field_is_part_of_the_form_and_no_other_is() {
    for FieldVerdict { field, verdict, .. } in VERDICTS {
        let (before, after) = intents(field);
        let changed = before.form.digest() != after.form.digest();
        assert_eq!(changed, verdict == Verdict::Rolling, "{field}");
    }
}

#[test]
fn a_live_field_changes_the_goal_or_leads_to_a_write_beside_the_plan() {
    let pods = ["StatefulSet kv", "Pod kv-0"];
    let expected = BTreeMap::from([
        ("externalAccess.nodePort.port", &["Service kv-nodeport"][..]),
        ("monitoring.podMonitor", &pods),
        ("podDisruptionBudget", &["PodDisruptionBudget kv"]),
        ("podTemplate.annotations", &pods),
        ("podTemplate.labels", &pods),
        ("security.networkPolicy.clientSelector", &["NetworkPolicy kv"]),
        ("size", &["PodDisruptionBudget kv"]),
    ]);
    let names = Names::new("ns", "kv", "cluster.local");
    for field in with(Verdict::Live) {
        let (before, after) = intents(field);
        let objects = settled(&before);
        assert_eq!(writes(&before, &objects), [], "{field}: settled before");
        let written: Vec<_> =
            writes(&after, &objects).iter().map(|write| write.object.title(&names)).collect();
        assert_eq!(written, expected.get(field).copied().unwrap_or_default(), "{field}");
        let goal = |intent: &Intent, spec: EtcdClusterSpec| Goal {
            certificates: chosen_profiles(
                &names,
                intent.form.transport,
                &spec.security.tls,
                &BTreeSet::new(),
            ),
            ..Goal::from(intent)
        };
        let specs = edited(field);
        let goals = (goal(&before, specs.0), goal(&after, specs.1));
        assert!(goals.0 != goals.1 || !written.is_empty(), "{field} has no effect");
    }
}

#[test]
fn a_replaced_field_changes_what_volumes_should_be_like() {
    for FieldVerdict { field, verdict, .. } in VERDICTS {
        let (before, after) = edited(field);
        let (before, after) = (intent(before).storage.volumes(), intent(after).storage.volumes());
        assert_eq!(before.class != after.class, verdict == Verdict::Replaced, "{field}");
    }
}

#[test]
fn a_field_without_effect_changes_neither_the_goal_nor_an_object() {
    for field in with(Verdict::None) {
        let (before, after) = intents(field);
        assert_eq!(before, after, "{field}");
    }
}

#[test]
fn a_rule_refuses_the_edit_of_an_immutable_field_and_of_no_other() {
    for FieldVerdict { field, verdict, .. } in VERDICTS {
        let (before, after) = edited(field);
        let refused = rules::of_cluster_changes().any(|rule| (rule.broken)(&before, &after));
        assert_eq!(refused, verdict == Verdict::Immutable, "{field}");
    }
}
