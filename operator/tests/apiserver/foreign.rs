//! APIs that other programs bring. The tests define what the operator uses of them, and play the part of those programs.

use std::time::{Duration, Instant};

use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::operated::Workplace;

const LIMIT: Duration = Duration::from_secs(180);

/// What an API server has to know of it for the operator. A selector is applied as a whole, as in every definition that is
/// generated from Go.
fn definition(resource: &ApiResource) -> Value {
    let anything = |more: Value| {
        let mut schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        schema
            .as_object_mut()
            .into_iter()
            .for_each(|it| it.extend(more.as_object().cloned().unwrap_or_default()));
        schema
    };
    let selector = anything(json!({"x-kubernetes-map-type": "atomic"}));
    let spec = anything(json!({"properties": {"selector": selector}}));
    let schema = anything(json!({"properties": {"spec": spec}}));
    let (kind, plural) = (&resource.kind, &resource.plural);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{}", resource.group),
            // The API server asks for it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": resource.group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": resource.version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
            }],
        },
    })
}

pub async fn define(admin: &Client, resource: &ApiResource) {
    let definitions = ApiResource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
    };
    let definition: DynamicObject = serde_json::from_value(definition(resource)).expect("it is an object");
    let definitions = Api::<DynamicObject>::all_with(admin.clone(), &definitions);
    definitions.create(&PostParams::default(), &definition).await.expect("it is accepted");
}

pub fn all(there: &Workplace, resource: &ApiResource) -> Api<DynamicObject> {
    Api::namespaced_with(there.on.admin.clone(), &there.namespace, resource)
}

/// Waits until the object is as it should be, or not there.
pub async fn until(
    objects: &Api<DynamicObject>,
    name: &str,
    what: &str,
    holds: impl Fn(Option<&DynamicObject>) -> bool,
) {
    let begun = Instant::now();
    loop {
        let found = objects.get_opt(name).await.ok().flatten();
        if holds(found.as_ref()) {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "never: {what}; last: {found:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
