//! What only a real API server can tell: that it takes what we ship, what it refuses, and what our rights
//! allow.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::DynamicObject;
use kube::{Api, Client, Config, Resource};
use testbed::api_only::ApiOnly;
use testbed::shell::run;

mod definitions;
mod lease;
mod lifecycle;
mod manifests;
mod objects;
mod panics;
mod reports;
mod rules;

const SERVICE_ACCOUNT: &str = "system:serviceaccount:etcd-operator-system:etcd-operator";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A control plane with `config/everything` in it. There are no nodes, so no pod of ours runs.
async fn installed() -> ApiOnly {
    let api = ApiOnly::start().await.expect("a control plane starts");
    let config = root().join("config/everything").display().to_string();
    kubectl(&api, &["apply", "--server-side", "-k", &config]).await;
    kubectl(&api, &["wait", "--for=condition=Established", "crd", "--all"]).await;
    api
}

/// What an administrator's kubectl prints.
async fn kubectl(api: &ApiOnly, arguments: &[&str]) -> String {
    let program = api.kubectl().display().to_string();
    let kubeconfig = api.kubeconfig().display().to_string();
    let line = [&[program.as_str(), "--kubeconfig", &kubeconfig], arguments].concat();
    run(&line).await.unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error:#}"))
}

/// A client with the rights that the operator's pod has.
async fn as_operator(api: &ApiOnly) -> Client {
    let kubeconfig = Kubeconfig::read_from(api.kubeconfig()).expect("the kubeconfig is there");
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("it can be used");
    config.auth_info.impersonate = Some(SERVICE_ACCOUNT.into());
    Client::try_from(config).expect("it makes a client")
}

/// As JSON, because the Rust types would not let a wrong object out.
fn untyped<K: Resource<DynamicType = ()>>(client: &Client) -> Api<DynamicObject> {
    let resource = kube::core::ApiResource::erase::<K>(&());
    Api::namespaced_with(client.clone(), "default", &resource)
}
