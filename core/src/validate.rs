//! From what users wrote to what the rest of the program may rely on.
//!
//! All problems are told at once. The API server keeps most of the same rules, but not every server does, and
//! an object may be older than a rule.

use std::fmt;

use kube::ResourceExt;

use crate::api::{EtcdBackup, EtcdCluster, EtcdClusterSpec, EtcdRestore};
use crate::intent::{self, Intent};
use crate::rules::{self, Rule, Server};

const EXTRA_ARGUMENTS: &str = "options.extraArguments";

/// Something that cannot be, with the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// As in `spec.storage.size`.
    pub field: String,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// The checked form of the cluster, or every reason why there is none.
pub fn validate(cluster: &EtcdCluster) -> Result<Intent, Vec<Problem>> {
    let mut problems = broken_by_cluster(&cluster.spec, "spec");
    let name = &rules::CLUSTER_NAME;
    if (name.broken)(&cluster.name_any()) {
        problems.insert(0, Problem { field: "metadata.name".into(), message: name.message.into() });
    }
    match intent::of(cluster) {
        Some(intent) if problems.is_empty() => Ok(intent),
        None if problems.is_empty() => Err(vec![Problem {
            field: "spec".into(),
            message: "breaks a rule without a message: report this as a bug, with the spec".into(),
        }]),
        Some(_) | None => Err(problems),
    }
}

/// What an edit may not do, whatever the new spec says by itself.
pub fn validate_change(old: &EtcdClusterSpec, new: &EtcdClusterSpec) -> Vec<Problem> {
    let broken = rules::of_cluster_changes().filter(|rule| (rule.broken)(old, new));
    broken.map(|rule| Problem { field: path("spec", rule.at), message: rule.message.into() }).collect()
}

pub fn validate_backup(backup: &EtcdBackup) -> Vec<Problem> {
    broken(rules::of_backup(), &backup.spec, "spec")
}

/// The template of the new cluster obeys the rules of every cluster.
pub fn validate_restore(restore: &EtcdRestore) -> Vec<Problem> {
    let mut problems = broken(rules::of_restore(), &restore.spec, "spec");
    if let Some(template) = &restore.spec.cluster_template {
        problems.extend(broken_by_cluster(template, "spec.clusterTemplate"));
    }
    problems
}

/// The rules of a cluster that no API server can keep, for the documentation.
pub fn operator_only_rules() -> impl Iterator<Item = Problem> {
    let of_version = Problem {
        field: path("spec", EXTRA_ARGUMENTS),
        message: rules::options::ARGUMENTS_OF_THE_VERSION.into(),
    };
    not_of_the_server(rules::of_cluster()).chain([of_version])
}

/// The same of a backup.
pub fn operator_only_rules_of_backups() -> impl Iterator<Item = Problem> {
    not_of_the_server(rules::of_backup())
}

/// The same of a restore.
pub fn operator_only_rules_of_restores() -> impl Iterator<Item = Problem> {
    not_of_the_server(rules::of_restore())
}

fn not_of_the_server<Spec: 'static>(
    rules: impl Iterator<Item = &'static Rule<Spec>>,
) -> impl Iterator<Item = Problem> {
    let only_ours = rules.filter(|rule| matches!(rule.server, Server::Nothing));
    only_ours.map(|rule| Problem { field: path("spec", rule.at), message: rule.message.into() })
}

fn broken_by_cluster(spec: &EtcdClusterSpec, root: &str) -> Vec<Problem> {
    let mut problems = broken(rules::of_cluster(), spec, root);
    let of_version = rules::options::not_of_the_version(spec);
    problems.extend(
        of_version.into_iter().map(|message| Problem { field: path(root, EXTRA_ARGUMENTS), message }),
    );
    problems
}

fn broken<Spec: 'static>(
    rules: impl Iterator<Item = &'static Rule<Spec>>,
    spec: &Spec,
    root: &str,
) -> Vec<Problem> {
    rules
        .filter(|rule| (rule.broken)(spec))
        .map(|rule| Problem { field: path(root, rule.at), message: rule.message.into() })
        .collect()
}

fn path(root: &str, field: &str) -> String {
    if field.is_empty() { root.into() } else { format!("{root}.{field}") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::member::MAX_SIZE;

    /// One entry of `tests/specs.yaml`.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Case {
        says: String,
        #[serde(default = "kv")]
        name: String,
        from: Option<Value>,
        spec: Value,
        refused: Option<String>,
        by: Option<String>,
    }

    fn kv() -> String {
        "kv".into()
    }

    impl Case {
        fn problems(&self) -> Vec<Problem> {
            let new = cluster(&self.name, &self.spec);
            let old = self.from.as_ref().map(|spec| cluster("kv", spec));
            let edit = old.map(|old| validate_change(&old.spec, &new.spec));
            edit.into_iter().chain(validate(&new).err()).flatten().collect()
        }
    }

    fn cases() -> Vec<Case> {
        serde_saphyr::from_str(include_str!("../tests/specs.yaml")).expect("the list can be read")
    }

    /// As the API server hands it out: a null is dropped where none is allowed.
    fn cluster(name: &str, spec: &Value) -> EtcdCluster {
        EtcdCluster::new(name, serde_json::from_value(without_null(spec)).expect("it is a spec"))
    }

    fn without_null(value: &Value) -> Value {
        let Some(fields) = value.as_object() else { return value.clone() };
        let kept = fields.iter().filter(|(_, field)| !field.is_null());
        kept.map(|(name, field)| (name.clone(), without_null(field))).collect()
    }

    #[test]
    fn good_specs_pass_and_bad_ones_are_refused_for_one_reason_by_the_right_field() {
        for case in cases() {
            let problems = case.problems();
            let fields: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
            assert_eq!(fields, Vec::from_iter(case.refused.as_deref()), "{}: {problems:?}", case.says);
            assert!(case.by.is_none_or(|by| by == "operator"), "{}: by whom?", case.says);
        }
    }

    #[test]
    fn every_rule_is_broken_by_some_spec_in_the_list() {
        let told: BTreeSet<_> =
            cases().iter().flat_map(Case::problems).map(|it| (it.field, it.message)).collect();
        let rules = rules::of_cluster().map(|rule| (rule.at, rule.message));
        let rules = rules.chain(rules::of_cluster_changes().map(|rule| (rule.at, rule.message)));
        let mut never = Vec::new();
        for (at, message) in rules {
            if !told.contains(&(path("spec", at), message.to_owned())) {
                never.push(format!("{at}: {message}"));
            }
        }
        // A list of 65 labels would only make the file long.
        never.retain(|rule| !rule.contains("at most 64 annotations"));
        assert!(never.is_empty(), "{never:#?}");
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let wrong = json!({"size": 12, "version": "3.4.1", "storage": {"size": "ten", "onStop": "Archive"}});
        let problems = validate(&cluster("a.b", &wrong)).expect_err("nothing in it is right");
        let fields: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(
            fields,
            ["metadata.name", "spec.size", "spec.version", "spec.storage.size", "spec.storage.onStop"]
        );
        assert_eq!(
            problems[1].to_string(),
            format!("spec.size: must be 0 to {MAX_SIZE}: 0 stops the cluster, 3 or 5 members are usual")
        );
    }

    #[test]
    fn the_template_of_a_restore_obeys_the_rules_of_a_cluster() {
        let restore = |template: Value| {
            let spec = json!({"backupName": "b", "clusterName": "kv", "clusterTemplate": template});
            EtcdRestore::new("r", serde_json::from_value(spec).expect("it is a spec"))
        };
        assert_eq!(validate_restore(&restore(json!({}))), []);
        let problems = validate_restore(&restore(json!({"version": "3.5.1"})));
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].field, "spec.clusterTemplate.version");
    }

    #[test]
    fn a_backup_to_s3_has_to_name_the_bucket() {
        let backup = |spec: Value| EtcdBackup::new("b", serde_json::from_value(spec).expect("it is a spec"));
        let without = json!({"clusterName": "kv", "storageType": "S3"});
        assert_eq!(validate_backup(&backup(without)).len(), 1);
        let with = json!({"clusterName": "kv", "storageType": "S3", "s3": {"bucket": "b"}});
        assert_eq!(validate_backup(&backup(with)), []);
        let local = json!({"clusterName": "kv", "storageType": "Local", "local": {"claimName": "c"}});
        assert_eq!(validate_backup(&backup(local)), []);
    }
}
