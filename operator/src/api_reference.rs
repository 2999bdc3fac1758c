//! The API as a page for people; `docs/api.md` is this text. Everything in it comes from the
//! CustomResourceDefinitions.

use std::collections::BTreeSet;
use std::fmt::Write;

use etcd_operator_core::api::{self, FieldVerdict, KUBERNETES_TYPES, VERDICTS, Verdict};
use etcd_operator_core::validate;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

const HEAD: &str = "<!-- Generated from core/src/api by `make fix`. -->

# API reference

The group and version of all kinds is `etcd.etcd.io/v1alpha1`. `kubectl get etcd` lists clusters, `kubectl get etcd-all`
lists objects of every kind, and `kubectl explain etcdcluster.spec` shows the descriptions on this page.

The API server enforces most rules and rejects an object that breaks one. It cannot check all of them, and before
Kubernetes 1.25 it checks none. The operator therefore checks every rule again and reports broken ones in the condition
`Stalled` with the reason `InvalidSpec`.
";

const KUBERNETES_REFERENCE: &str = "https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.34/";

pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    for crd in api::definitions() {
        text.push_str(&kind(&crd));
    }
    text
}

fn kind(crd: &CustomResourceDefinition) -> String {
    let names = &crd.spec.names;
    let schemas = crd.spec.versions.iter().filter_map(|version| version.schema.as_ref());
    let mut text = format!("\n## {}\n", names.kind);
    for root in schemas.filter_map(|schema| schema.open_api_v3_schema.as_ref()) {
        let description = root.description.as_deref().unwrap_or_default();
        let short_names = names.short_names.iter().flatten().cloned().collect::<Vec<_>>().join("`, `");
        let _ = writeln!(text, "\n{description} Short name: `{short_names}`.");
        let mut page = Page::default();
        page.add("", root);
        for part in ["spec", "status"] {
            let rows = page.rows.iter().filter(|row| row.path.starts_with(&format!("{part}.")));
            // Only an EtcdCluster has a life in which it is edited.
            let edited = names.kind == "EtcdCluster" && part == "spec";
            let (title, line) = if edited { ("| edit ", "|---") } else { ("", "") };
            let _ = writeln!(text, "\n| field | type | default {title}| meaning |\n|---|---|---{line}|---|");
            for Row { path, type_, default, help } in rows {
                let edit = if edited { format!("| {} ", edit_of(path)) } else { String::new() };
                let _ = writeln!(text, "| `{path}` | {type_} | {default} {edit}| {help} |");
            }
            if edited {
                text.push_str(&meaning_of_edits());
            }
        }
        let mut rules = page.rules;
        match names.kind.as_str() {
            "EtcdCluster" => {
                rules.extend(validate::operator_only_rules().map(|rule| (rule.field, rule.message)))
            }
            "EtcdBackup" => {
                rules.extend(
                    validate::operator_only_rules_of_backups().map(|rule| (rule.field, rule.message)),
                );
            }
            "EtcdRestore" => {
                rules.extend(
                    validate::operator_only_rules_of_restores().map(|rule| (rule.field, rule.message)),
                );
            }
            _ => {}
        }
        if !rules.is_empty() {
            rules.sort_by(|(left, _), (right, _)| left.cmp(right));
            let _ = writeln!(text, "\nRules:\n");
            for (path, message) in rules {
                let _ = writeln!(text, "- `{path}`: {}.", message.replace('*', "\\*"));
            }
        }
    }
    text
}

/// What an edit of a field does, or of everything below it.
fn edit_of(path: &str) -> String {
    let field = path.trim_start_matches("spec.");
    if let Some(FieldVerdict { verdict, note, .. }) = VERDICTS.iter().find(|it| it.field == field) {
        return if note.is_empty() { verdict.to_string() } else { format!("{verdict}: {note}") };
    }
    let below = VERDICTS.iter().filter(|it| it.field.starts_with(&format!("{field}.")));
    let verdicts: BTreeSet<Verdict> = below.map(|it| it.verdict).collect();
    verdicts.first().filter(|_| verdicts.len() == 1).map(ToString::to_string).unwrap_or_default()
}

fn meaning_of_edits() -> String {
    let mut text = "\nThe column *edit* says what an edit does to a cluster that runs:\n\n".to_owned();
    let used = |verdict: &Verdict| VERDICTS.iter().any(|it| it.verdict == *verdict);
    for verdict in Verdict::ALL.into_iter().filter(used) {
        let _ = writeln!(text, "- *{verdict}*: {}.", verdict.meaning());
    }
    text
}

/// What is said about one kind, in the order of its fields.
#[derive(Default)]
struct Page {
    rows: Vec<Row>,
    rules: Vec<(String, String)>,
}

struct Row {
    path: String,
    type_: String,
    default: String,
    help: String,
}

impl Page {
    fn add(&mut self, path: &str, schema: &JSONSchemaProps) {
        for rule in schema.x_kubernetes_validations.iter().flatten() {
            let path = if path.is_empty() { "metadata.name" } else { path };
            self.rules.push((path.into(), rule.message.clone().unwrap_or_default()));
        }
        for (name, field) in schema.properties.iter().flatten() {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let required = schema.required.iter().flatten().any(|required| required == name);
            let elsewhere = described_elsewhere(&path).map(|it| match field.items {
                Some(_) => format!("list of {it}"),
                None => it,
            });
            self.rows.push(Row {
                type_: elsewhere.clone().unwrap_or_else(|| type_of(field)),
                default: if required { "required".into() } else { default_of(field) },
                help: field.description.as_deref().unwrap_or_default().replace('|', "\\|"),
                path: path.clone(),
            });
            if elsewhere.is_none() {
                let (path, inner) = match &field.items {
                    Some(JSONSchemaPropsOrArray::Schema(items)) => (format!("{path}[]"), items.as_ref()),
                    Some(JSONSchemaPropsOrArray::Schemas(_)) | None => (path, field),
                };
                self.add(&path, inner);
            }
        }
    }
}

/// Kubernetes' own types, and the one that stands on this page already.
fn described_elsewhere(path: &str) -> Option<String> {
    let known = KUBERNETES_TYPES.iter().find(|(field, _)| path == format!("spec.{field}"));
    match (known, path) {
        (Some((_, name @ "LabelSelector")), _) => Some(kubernetes_type(name, "meta")),
        (Some((_, name)), _) => Some(kubernetes_type(name, "core")),
        (None, "status.conditions") => Some(kubernetes_type("Condition", "meta")),
        (None, "spec.clusterTemplate") => Some("[spec of an EtcdCluster](#etcdcluster)".into()),
        (None, _) => None,
    }
}

fn kubernetes_type(name: &str, group: &str) -> String {
    format!("[{name}]({KUBERNETES_REFERENCE}#{}-v1-{group})", name.to_lowercase())
}

fn type_of(schema: &JSONSchemaProps) -> String {
    if schema.x_kubernetes_int_or_string == Some(true) {
        return "quantity".into();
    }
    if let Some(values) = &schema.enum_ {
        let values: Vec<_> = values.iter().map(|value| format!("`{}`", plain(&value.0))).collect();
        return values.join(", ");
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        return format!("list of {}", plural(&type_of(items)));
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        return format!("map of {}", plural(&type_of(values)));
    }
    let name = match (schema.type_.as_deref(), schema.format.as_deref()) {
        (_, Some("date-time")) => "time",
        (Some("object"), _) => "object",
        (Some(name), _) => name,
        (None, _) => "anything",
    };
    match (schema.minimum, schema.maximum) {
        (Some(least), Some(most)) => format!("{name}, {least} to {most}"),
        (Some(least), None) => format!("{name}, {least} or more"),
        (None, _) => name.into(),
    }
}

fn plural(name: &str) -> String {
    name.strip_suffix('y').map_or_else(|| format!("{name}s"), |stem| format!("{stem}ies"))
}

fn default_of(schema: &JSONSchemaProps) -> String {
    match &schema.default {
        // The defaults of its fields say the same.
        Some(default) if default.0.is_object() => String::new(),
        Some(default) => format!("`{}`", plain(&default.0)),
        None => String::new(),
    }
}

fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_tells_fields_defaults_limits_and_rules() {
        let page = markdown();
        for line in [
            "| `spec.size` | integer, 0 to 9 | `3` | live: the operator adds or removes members one at a time | The number",
            "| `spec.storage.onDelete` | `Retain`, `Delete` | `Retain` | live: at the deletion | What happens",
            "| `spec.podTemplate.tolerations` | list of [Toleration](https://",
            "| `spec.version` | string | `v3.5.21` | rolling | ",
            "| `spec.options` | object |  | rolling | ",
            "| `spec.storage` | object |  |  | ",
            "- *immutable*: the API server rejects the edit",
            "| `status.members[].waitingFor` | string |  | What the member waits for",
            "- `metadata.name`: must be at most 52",
            "- `spec.resources`: a request cannot exceed",
            "| `spec.clusterName` | string | required |",
        ] {
            assert!(page.contains(line), "{line}");
        }
    }
}
