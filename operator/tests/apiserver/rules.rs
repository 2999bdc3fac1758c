//! The API server and `validate` give the same answers.

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::validate::{Problem, validate, validate_change};
use kube::api::PostParams;
use kube::core::{DynamicObject, Status};
use kube::{Api, ResourceExt};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{shared, untyped};

/// One entry of `core/tests/specs.yaml`.
#[derive(Deserialize)]
struct Case {
    says: String,
    #[serde(default = "kv")]
    name: String,
    from: Option<Value>,
    spec: Value,
    by: Option<String>,
}

fn kv() -> String {
    "kv".into()
}

pub async fn the_api_server_and_the_operator_agree_on_every_spec_and_the_field_that_is_wrong() {
    let api = shared::bare().await;
    let client = api.client().await.expect("an administrator's client");
    let namespace = shared::namespace(&client).await;
    let clusters = untyped::<EtcdCluster>(&client, &namespace);
    let cases: Vec<Case> =
        serde_saphyr::from_str(include_str!("../../../core/tests/specs.yaml")).expect("the list can be read");
    let mut disagreements = Vec::new();
    for case in &cases {
        if let Err(disagreement) = agree(&clusters, case).await {
            disagreements.push(format!("{}: {disagreement}", case.says));
        }
    }
    assert!(disagreements.is_empty(), "{disagreements:#?}");
    assert!(cases.len() > 100, "the list was not read: {} cases", cases.len());
}

/// Both are asked; what they say differently is the error.
async fn agree(clusters: &Api<DynamicObject>, case: &Case) -> Result<(), String> {
    let mut written = object(&case.name, &case.spec);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let (answer, old) = match &case.from {
        None => (clusters.create(&dry_run, &written).await, None),
        Some(from) => {
            let old = clusters.create(&PostParams::default(), &object(&case.name, from)).await;
            let old = old.map_err(|error| format!("the old one was not accepted: {error}"))?;
            written.metadata.resource_version = old.resource_version();
            let answer = clusters.replace(&case.name, &dry_run, &written).await;
            clusters.delete(&case.name, &Default::default()).await.map_err(|error| error.to_string())?;
            (answer, Some(old))
        }
    };
    let new = typed(answer.as_ref().unwrap_or(&written));
    let edit = old.map(|old| validate_change(&typed(&old).spec, &new.spec));
    let by_us: Vec<_> = edit.into_iter().chain(validate(&new).err()).flatten().collect();
    let by_server = match answer {
        Ok(_) => Vec::new(),
        Err(kube::Error::Api(status)) => problems(&status),
        Err(error) => return Err(error.to_string()),
    };
    let only_we_know = case.by.as_deref() == Some("operator");
    match (by_us.as_slice(), by_server.as_slice(), only_we_know) {
        ([], [], false) | ([_], [], true) => Ok(()),
        ([ours], [_, ..], false) if by_server.iter().all(|theirs| same(ours, theirs)) => Ok(()),
        _ => Err(format!("we say {by_us:?}, the API server says {by_server:?}")),
    }
}

fn object(name: &str, spec: &Value) -> DynamicObject {
    let object = json!({
        "apiVersion": "etcd.etcd.io/v1alpha1",
        "kind": "EtcdCluster",
        "metadata": {"name": name},
        "spec": spec,
    });
    serde_json::from_value(object).expect("it is an object")
}

fn typed(object: &DynamicObject) -> EtcdCluster {
    serde_json::from_value(serde_json::to_value(object).expect("plain data")).expect("our types read it")
}

fn problems(status: &Status) -> Vec<Problem> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .filter(|cause| !cause.message.contains("some validation rules were not checked"))
        .map(|cause| {
            let field = cause.field.trim_start_matches('.').to_owned();
            Problem { field, message: cause.message.clone() }
        })
        .collect()
}

/// The API server names the entry of a map where we name the map, and has its own words for what a schema
/// says. The name of an object has no field in its view: there the words are the same.
fn same(ours: &Problem, theirs: &Problem) -> bool {
    let below = theirs.field.strip_prefix(&ours.field);
    below.is_some_and(|below| below.is_empty() || below.starts_with('.') || below.starts_with('['))
        || ours.field == "metadata.name" && theirs.message.contains(&ours.message)
}
