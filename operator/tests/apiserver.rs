//! What only a real API server can tell: that it takes what we ship, what it refuses, and what our rights allow.

use std::path::Path;
use std::time::Duration;

use etcd_operator::{controller, http};
use etcd_operator_core::api::{EtcdCluster, Phase};
use etcd_operator_core::names;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Config};
use serde_json::json;
use testbed::api_only::ApiOnly;
use testbed::shell::run;
use tokio::sync::oneshot;

const SERVICE_ACCOUNT: &str = "system:serviceaccount:etcd-operator-system:etcd-operator";

/// A control plane with everything from `config/` in it. There are no nodes, so no pod of ours runs.
async fn installed() -> ApiOnly {
    let api = ApiOnly::start().await.expect("a control plane starts");
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config");
    let line = [
        api.kubectl().display().to_string(),
        "--kubeconfig".into(),
        api.kubeconfig().display().to_string(),
        "apply".into(),
        "--server-side".into(),
        "-k".into(),
        config.display().to_string(),
    ];
    run(&line).await.expect("config/ applies");
    let crd =
        [&line[..3], &["wait".into(), "--for=condition=Established".into(), "crd".into(), "--all".into()]];
    run(&crd.concat()).await.expect("the definitions are established");
    api
}

/// A client with the rights that the operator's pod has.
async fn as_operator(api: &ApiOnly) -> Client {
    let kubeconfig = Kubeconfig::read_from(api.kubeconfig()).expect("the kubeconfig is there");
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("it can be used");
    config.auth_info.impersonate = Some(SERVICE_ACCOUNT.into());
    Client::try_from(config).expect("it makes a client")
}

fn cluster(name: &str, spec: serde_json::Value) -> serde_json::Value {
    json!({"apiVersion": "etcd.etcd.io/v1alpha1", "kind": "EtcdCluster", "metadata": {"name": name}, "spec": spec})
}

/// As JSON, because the Rust types would not let a wrong spec out.
fn untyped(client: &Client) -> Api<kube::core::DynamicObject> {
    let resource = kube::core::ApiResource::erase::<EtcdCluster>(&());
    Api::namespaced_with(client.clone(), "default", &resource)
}

#[tokio::test]
async fn what_is_left_out_gets_its_default_and_what_is_wrong_is_refused_by_name() {
    let api = installed().await;
    let client = api.client().await.expect("an administrator's client");
    let clusters = untyped(&client);
    let create = async |value: serde_json::Value| {
        let object = serde_json::from_value(value).expect("it is an object");
        clusters.create(&PostParams::default(), &object).await
    };

    let made = create(cluster("empty", json!({}))).await.expect("an empty spec is fine");
    assert_eq!(
        made.data["spec"],
        json!({"size": 3, "version": "v3.5.21", "repository": "quay.io/coreos/etcd", "storage": {"size": "10Gi"}})
    );
    for spec in [json!({"version": "3.5.9"}), json!({"size": 0}), json!({"size": 2})] {
        create(cluster("accepted", spec.clone())).await.unwrap_or_else(|error| panic!("{spec}: {error}"));
        clusters.delete("accepted", &Default::default()).await.expect("it can be deleted");
    }
    for (spec, field) in [
        (json!({"size": 10}), "spec.size"),
        (json!({"size": -1}), "spec.size"),
        (json!({"version": "3.5"}), "spec.version"),
        (json!({"version": "latest"}), "spec.version"),
        (json!({"storage": {"size": "ten"}}), "spec.storage.size"),
    ] {
        let error = create(cluster("refused", spec.clone())).await.expect_err("it is wrong");
        assert!(error.to_string().contains(field), "{spec}: {error}");
    }
}

#[tokio::test]
async fn the_operator_reports_with_the_rights_it_ships_with_and_has_no_others() {
    let api = installed().await;
    let client = as_operator(&api).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let ready = http::Ready::default();
    let operator = tokio::spawn(controller::run(client.clone(), ready, async {
        let _ = stopped.await;
    }));

    let admin = api.client().await.expect("an administrator's client");
    let clusters: Api<EtcdCluster> = Api::namespaced(admin, "default");
    let object = serde_json::from_value(cluster("kv", json!({}))).expect("it is a cluster");
    clusters.create(&PostParams::default(), &object).await.expect("it is accepted");
    let reported = await_condition(clusters, "kv", |cluster: Option<&EtcdCluster>| {
        cluster
            .and_then(|cluster| cluster.status.as_ref())
            .is_some_and(|status| !status.conditions.is_empty())
    });
    let seen = tokio::time::timeout(Duration::from_secs(30), reported).await.expect("a status comes");
    let status =
        seen.expect("the watch goes on").and_then(|cluster| cluster.status).expect("it was just seen");
    assert_eq!((status.phase, status.observed_generation), (Some(Phase::Failed), Some(1)));
    assert!(status.conditions.iter().any(|it| it.type_ == names::condition::STALLED && it.status == "True"));

    let secrets = Api::<Secret>::namespaced(client, "default").list(&ListParams::default()).await;
    assert!(matches!(secrets, Err(kube::Error::Api(answer)) if answer.code == 403), "it may read no Secret");

    stop.send(()).expect("the operator still runs");
    tokio::time::timeout(Duration::from_secs(10), operator)
        .await
        .expect("it stops")
        .expect("without a panic");
}
