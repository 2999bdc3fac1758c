//! The CustomResourceDefinitions, complete with the rules.
//!
//! What the derive macros make of the Rust types is not yet what should be installed: it allows `null`
//! wherever Rust has an `Option`, repeats the documentation of Kubernetes' own types, and knows no rule that
//! spans fields.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    ValidationRule,
};
use kube::CustomResourceExt;

use super::{EtcdBackup, EtcdCluster, EtcdRestore};
use crate::rules::{self, ChangeRule, NameRule, Rule, Server};

/// Fields of an EtcdCluster's spec that are Kubernetes' own types. Their schema is checked as everywhere, but
/// its documentation is not repeated here.
pub const KUBERNETES_TYPES: [(&str, &str); 7] = [
    ("podTemplate.affinity", "Affinity"),
    ("podTemplate.imagePullSecrets", "LocalObjectReference"),
    ("podTemplate.securityContext", "PodSecurityContext"),
    ("podTemplate.tolerations", "Toleration"),
    ("podTemplate.topologySpreadConstraints", "TopologySpreadConstraint"),
    ("security.networkPolicy.clientSelector", "LabelSelector"),
    ("storage.volumeClaimTemplate.spec", "PersistentVolumeClaimSpec"),
];

/// All kinds of the API, in the order in which they are installed.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![cluster(), backup(), restore()]
}

fn cluster() -> CustomResourceDefinition {
    finished(EtcdCluster::crd(), |root| {
        add_name_rule(root, &rules::CLUSTER_NAME);
        // A manifest without a spec means a cluster with every default.
        root.required = None;
        let spec = at(root, "spec");
        spec.default = Some(JSON(serde_json::json!({})));
        finish_cluster_spec(spec);
        rules::of_cluster_changes().for_each(|rule| add_change_rule(spec, rule));
    })
}

fn backup() -> CustomResourceDefinition {
    finished(EtcdBackup::crd(), |root| {
        let spec = at(root, "spec");
        rules::of_backup().for_each(|rule| add_rule(spec, rule));
    })
}

fn restore() -> CustomResourceDefinition {
    finished(EtcdRestore::crd(), |root| {
        let spec = at(root, "spec");
        finish_cluster_spec(at(spec, "clusterTemplate"));
        rules::of_restore().for_each(|rule| add_rule(spec, rule));
    })
}

fn finish_cluster_spec(spec: &mut JSONSchemaProps) {
    for (field, _) in KUBERNETES_TYPES {
        for_all_below(at(spec, field), &mut |schema| schema.description = None);
    }
    rules::of_cluster().for_each(|rule| add_rule(spec, rule));
}

fn finished(
    mut crd: CustomResourceDefinition,
    finish: impl Fn(&mut JSONSchemaProps),
) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            for_all_below(root, &mut |schema| {
                forbid_null(schema);
                join_lines(schema);
            });
            finish(root);
        }
    }
    crd
}

/// The API server drops a null where none is allowed and fills in the default. Where one is allowed it keeps
/// it, and then neither our types nor the rules could read the field.
fn forbid_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
}

/// Where a comment breaks its lines is no matter of its readers.
fn join_lines(schema: &mut JSONSchemaProps) {
    if let Some(text) = &mut schema.description {
        *text = text.replace('\n', " ");
    }
}

fn add_rule<Spec>(spec: &mut JSONSchemaProps, rule: &Rule<Spec>) {
    match rule.server {
        Server::Cel(cel) => add_cel(at(spec, rule.at), cel.into(), rule.message),
        Server::CelFrom(cel) => add_cel(at(spec, rule.at), cel(), rule.message),
        Server::Schema | Server::Nothing => {}
    }
}

fn add_change_rule<Spec>(spec: &mut JSONSchemaProps, rule: &ChangeRule<Spec>) {
    add_cel(at(spec, rule.at), rule.cel.into(), rule.message);
}

fn add_name_rule(root: &mut JSONSchemaProps, rule: &NameRule) {
    add_cel(root, rule.cel.into(), rule.message);
}

fn add_cel(schema: &mut JSONSchemaProps, rule: String, message: &str) {
    let rule = ValidationRule { rule, message: Some(message.into()), ..ValidationRule::default() };
    schema.x_kubernetes_validations.get_or_insert_default().push(rule);
}

/// The schema of a field, by the names on the way to it; an empty path is the schema itself.
fn at<'a>(schema: &'a mut JSONSchemaProps, path: &str) -> &'a mut JSONSchemaProps {
    path.split('.').filter(|name| !name.is_empty()).fold(schema, |schema, name| {
        let field = schema.properties.as_mut().and_then(|properties| properties.get_mut(name));
        field.unwrap_or_else(|| panic!("a rule or type is about the field {path}, which does not exist"))
    })
}

fn for_all_below(schema: &mut JSONSchemaProps, change: &mut dyn FnMut(&mut JSONSchemaProps)) {
    let properties = schema.properties.iter_mut().flat_map(BTreeMap::values_mut);
    let values = match &mut schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some(values.as_mut()),
        Some(JSONSchemaPropsOrBool::Bool(_)) | None => None,
    };
    let items = match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => Some(items.as_mut()),
        Some(JSONSchemaPropsOrArray::Schemas(_)) | None => None,
    };
    for below in properties.chain(values).chain(items) {
        change(below);
        for_all_below(below, change);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;

    use super::*;

    fn root(crd: &CustomResourceDefinition) -> JSONSchemaProps {
        let schema = crd.spec.versions[0].schema.clone().and_then(|schema| schema.open_api_v3_schema);
        schema.expect("every kind has a schema")
    }

    #[test]
    fn no_field_may_be_null_so_that_null_means_the_default() {
        for crd in definitions() {
            let text = serde_json::to_string(&crd).expect("plain data");
            assert!(!text.contains("nullable") && !text.contains("null"), "{}", crd.spec.names.kind);
        }
    }

    #[test]
    fn every_field_of_ours_is_documented() {
        for crd in definitions() {
            let kind = &crd.spec.names.kind;
            let mut root = root(&crd);
            let cluster_spec = match kind.as_str() {
                "EtcdCluster" => Some("spec"),
                "EtcdRestore" => Some("spec.clusterTemplate"),
                _ => None,
            };
            for (field, _) in cluster_spec.map_or(&[][..], |_| &KUBERNETES_TYPES) {
                let foreign = at(at(&mut root, cluster_spec.unwrap_or_default()), field);
                (foreign.properties, foreign.items) = (None, None);
            }
            assert_documented(&root, kind);
        }
    }

    fn assert_documented(schema: &JSONSchemaProps, path: &str) {
        for (name, field) in schema.properties.iter().flatten() {
            let path = format!("{path}.{name}");
            assert!(field.description.is_some(), "{path} has no documentation");
            assert_documented(field, &path);
        }
    }

    /// A category wins over a short name: were every kind in `etcd`, `kubectl get etcd` would list backups
    /// too.
    #[test]
    fn kubectl_finds_each_kind_by_the_names_that_people_type() {
        let names: Vec<_> = definitions()
            .into_iter()
            .map(|crd| crd.spec.names)
            .map(|names| {
                (names.plural, names.short_names.unwrap_or_default(), names.categories.unwrap_or_default())
            })
            .collect();
        let expected: [(&str, &str, &[&str]); 3] = [
            ("etcdclusters", "etcd", &["etcd", "etcd-all"]),
            ("etcdbackups", "etcdbackup", &["etcd-all"]),
            ("etcdrestores", "etcdrestore", &["etcd-all"]),
        ];
        for ((plural, short_names, categories), expected) in names.iter().zip(expected) {
            assert_eq!((plural.as_str(), short_names[0].as_str()), (expected.0, expected.1));
            assert_eq!(categories, expected.2, "{plural}");
        }
    }

    #[test]
    fn kubectl_get_shows_the_columns_that_people_know() {
        let titles: Vec<Vec<_>> = definitions()
            .into_iter()
            .map(|mut crd| crd.spec.versions.remove(0).additional_printer_columns)
            .map(|columns| {
                let title = |column: CustomResourceColumnDefinition| match column.priority {
                    Some(1..) => format!("{} (wide)", column.name),
                    Some(_) | None => column.name,
                };
                columns.into_iter().flatten().map(title).collect()
            })
            .collect();
        let wide = ["Leader (wide)", "Endpoint (wide)", "Reason (wide)"];
        let shown = [&["Phase", "Size", "Ready", "Version"], &wide[..], &["Age"]].concat();
        assert_eq!(titles[0], shown);
        assert_eq!(titles[1], ["Phase", "Cluster", "Storage", "Size", "Last", "Next", "Archived", "Age"]);
        assert_eq!(titles[2], ["Phase", "Backup", "Cluster", "Type", "Age"]);
    }
}
