//! Every manifest that we show to people works, also with the strict check of unknown fields, and what installs the
//! operator can be removed without its clusters.

use std::collections::BTreeSet;
use std::path::PathBuf;

use etcd_operator_core::api::{EtcdBackup, EtcdCluster, EtcdRestore};
use etcd_operator_core::intent::NodePort;
use etcd_operator_core::names::FINALIZER;
use etcd_operator_core::validate::{validate, validate_backup, validate_restore};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testbed::build;
use testbed::shell::run;

use crate::{installed, kubectl, root, shared};

/// The manifest that the user guide scales up and down.
const SCALING: &str = "test/testdata/test-scaling-scenarios.yaml";

/// Of `config/operator`.
const OPERATOR_NAMESPACE: &str = "etcd-operator-system";

fn manifests() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(root().join("examples")).expect("there are examples");
    let examples = folder.flatten().map(|entry| entry.path());
    let mut all: Vec<_> = examples.chain([root().join(SCALING)]).collect();
    all.sort();
    all
}

fn objects(path: &PathBuf) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("it can be read");
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub async fn every_example_is_accepted_by_the_api_server() {
    let api = shared::bare().await;
    for path in manifests() {
        kubectl(&api, &["apply", "--validate=strict", "-f", &path.display().to_string()]).await;
    }
}

pub async fn every_example_is_valid_and_says_only_what_our_types_know() {
    for path in manifests() {
        for object in objects(&path) {
            let (again, problems) = match object["kind"].as_str() {
                Some("EtcdCluster") => {
                    let cluster: EtcdCluster = read(&object);
                    (serde_json::to_value(&cluster), validate(&cluster).err().unwrap_or_default())
                }
                Some("EtcdBackup") => {
                    let backup: EtcdBackup = read(&object);
                    (serde_json::to_value(&backup), validate_backup(&backup))
                }
                Some("EtcdRestore") => {
                    let restore: EtcdRestore = read(&object);
                    (serde_json::to_value(&restore), validate_restore(&restore))
                }
                // The API server checks these.
                Some("Namespace" | "Deployment" | "Secret") => (Ok(object.clone()), Vec::new()),
                _ => panic!("{}: an example of another kind: {object}", path.display()),
            };
            assert_eq!(problems, [], "{}", path.display());
            assert_contains(&again.expect("plain data"), &object, &path.display().to_string());
        }
    }
}

pub async fn the_manifest_of_the_user_guide_is_what_the_guide_speaks_of() {
    let objects = objects(&root().join(SCALING));
    assert_eq!(objects[0]["metadata"]["name"], "test-scaling");
    let intent = validate(&read(&objects[1])).expect("it is valid");
    assert_eq!((intent.namespace.as_str(), intent.name.as_str()), ("test-scaling", "test-scaling-cluster"));
    assert_eq!((intent.size, intent.form.image().as_str()), (1, "quay.io/coreos/etcd:v3.5.21"));
    assert_eq!(intent.node_port, Some(NodePort::Fixed(30379)));
    assert!(intent.form.debug_image.is_some_and(|image| image.contains("netshoot")));
}

pub async fn crds_and_operator_together_are_everything() {
    let programs = build::ensure_base().await.expect("kubectl is built");
    let program = programs.kubernetes.join("kubectl").display().to_string();
    let rendered = async |name: &str| -> Vec<Value> {
        let folder = root().join("config").join(name).display().to_string();
        let text = run(&[program.as_str(), "kustomize", &folder]).await.expect("kustomize takes it");
        serde_saphyr::from_multiple(&text).expect("YAML")
    };
    let (crds, operator) = (rendered("crd").await, rendered("operator").await);
    let is_definition = |object: &Value| object["kind"] == "CustomResourceDefinition";
    let is_for_users = |object: &Value| {
        let labels = object["metadata"]["labels"].as_object();
        labels.is_some_and(|labels| labels.keys().any(|it| it.contains("/aggregate-to-")))
    };
    assert!(crds.iter().all(|it| is_definition(it) || is_for_users(it)), "{crds:?}");
    assert!(!operator.iter().any(is_definition));
    let by_text =
        |objects: Vec<Value>| -> BTreeSet<String> { objects.iter().map(Value::to_string).collect() };
    assert_eq!(by_text(rendered("everything").await), by_text([crds, operator].concat()));
}

/// No operator runs here, so nothing would remove the finalizer of a cluster that is deleted.
pub async fn removing_the_operator_changes_no_cluster() {
    let api = installed().await;
    let client = api.client().await.expect("a client");
    kubectl(&api, &["apply", "-f", &root().join("examples/minimal.yaml").display().to_string()]).await;
    let clusters = Api::<EtcdCluster>::namespaced(client.clone(), "default");
    let finalizer = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}}));
    let before =
        clusters.patch("minimal", &PatchParams::default(), &finalizer).await.expect("an EtcdCluster");

    let operator = root().join("config/operator").display().to_string();
    kubectl(&api, &["delete", "-k", &operator, "--ignore-not-found"]).await;

    let after = clusters.get("minimal").await.expect("it is still there");
    assert_eq!(after.resource_version(), before.resource_version(), "it changed: {after:?}");
    let namespace = Api::<Namespace>::all(client.clone()).get_opt(OPERATOR_NAMESPACE).await;
    assert!(namespace.expect("an answer").is_none(), "the operator's namespace is left");
    let role = Api::<ClusterRole>::all(client).get_opt("etcd-operator").await;
    assert!(role.expect("an answer").is_none(), "rights of the operator are left");
}

/// Removing the operator deletes its namespace, with everything in it.
pub async fn the_operators_namespace_accepts_no_cluster() {
    let api = shared::bare().await;
    let client = api.client().await.expect("a client");
    let cluster: EtcdCluster = read(&objects(&root().join("examples/minimal.yaml"))[0]);
    let clusters = Api::<EtcdCluster>::namespaced(client, OPERATOR_NAMESPACE);
    let refused = clusters.create(&PostParams::default(), &cluster).await.expect_err("it must be refused");
    let message = refused.to_string();
    assert!(message.contains("create-etcd-clusters-in-another-namespace"), "{message}");
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).expect("our types read it")
}

/// A field that was lost on the way through our types is one that they do not know.
fn assert_contains(all: &Value, some: &Value, path: &str) {
    match (all, some) {
        (Value::Object(all), Value::Object(some)) => {
            for (name, value) in some {
                let path = format!("{path}: {name}");
                assert_contains(all.get(name).unwrap_or_else(|| panic!("{path} is unknown")), value, &path);
            }
        }
        (Value::Array(all), Value::Array(some)) => {
            assert_eq!(all.len(), some.len(), "{path}");
            all.iter().zip(some).for_each(|(all, some)| assert_contains(all, some, path));
        }
        (all, some) => assert_eq!(all, some, "{path}"),
    }
}
