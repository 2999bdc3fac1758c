use serde_json::{Value, json};

use super::super::{Desired, Names};
use super::*;
use crate::api::EtcdCluster;

fn with<T>(spec: Value, look: impl FnOnce(&Desired<'_>) -> T) -> T {
    let mut cluster = EtcdCluster::new("kv", serde_json::from_value(spec).expect("it is a spec"));
    cluster.metadata.uid = Some("7d1c".into());
    let intent = crate::validate::validate(&cluster).expect("it is valid");
    let names = Names::new("shop", "kv", "cluster.local");
    look(&Desired { intent: &intent, names: &names, agent_image: "op:1", operator: None })
}

/// As an API server hands it out: with everything filled in that it has a default for.
fn stored(spec: Value) -> StatefulSet {
    let set = with(spec, |desired| desired.stateful_set(3, &desired.intent.form));
    let mut set = serde_json::to_value(set).expect("it is data");
    let claim = &mut set["spec"]["volumeClaimTemplates"][0];
    claim["status"] = json!({"phase": "Pending"});
    claim["spec"]["volumeMode"] = json!("Filesystem");
    serde_json::from_value(set).expect("it is still a StatefulSet")
}

fn edited(from: Value, to: Value) -> Vec<&'static str> {
    not_applied(&stored(from), &with(to, |desired| desired.claim()))
}

#[test]
fn every_edit_is_named_by_its_field_and_so_is_taking_it_back() {
    let template = |template: Value| json!({"storage": {"volumeClaimTemplate": template}});
    for (spec, field) in [
        (
            template(json!({"spec": {"accessModes": ["ReadWriteOncePod"]}})),
            "spec.storage.volumeClaimTemplate.spec.accessModes",
        ),
        (
            template(json!({"metadata": {"labels": {"team": "shop"}}, "spec": {}})),
            "spec.storage.volumeClaimTemplate.metadata.labels",
        ),
    ] {
        assert_eq!(edited(json!({}), spec.clone()), [field], "{spec}");
        assert_eq!(edited(spec.clone(), json!({})), [field], "taken back: {spec}");
    }
}

#[test]
fn what_takes_effect_is_no_difference() {
    let volumes = json!({"storage": {"size": "20Gi", "storageClassName": "fast"}});
    assert_eq!(edited(json!({}), volumes), Vec::<&str>::new());
    assert_eq!(edited(json!({}), json!({"version": "3.5.22", "debugSidecar": {}})), Vec::<&str>::new());
}
