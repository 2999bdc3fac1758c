//! Shows a three-member etcd on a real Kubernetes, from nothing.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use e2e::FIELD_MANAGER;
use e2e::plain::Plain;
use e2e::progress::Progress;
use e2e::target::{Cluster, Target};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

const NAMESPACE: &str = "demo";
const LIMIT: Duration = Duration::from_secs(300);

/// A three-member etcd on a real Kubernetes, from nothing.
#[derive(Parser)]
struct Arguments {
    /// Which cluster
    #[arg(long, value_enum, default_value = "testbed")]
    target: Target,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let progress = Progress::start();
    let cluster = arguments.target.open().await?;
    let version = cluster.client.apiserver_version().await.context("the cluster does not answer")?;
    progress.step(format!("Kubernetes {}: {}", version.git_version, cluster.title));

    let etcd = Plain::new(NAMESPACE, "etcd", 3);
    create_namespace(&cluster).await?;
    etcd.apply(&cluster.client).await?;
    progress.step(format!("StatefulSet {NAMESPACE}/{}: 3 members of etcd {}", etcd.name, etcd.version));
    etcd.ready(&cluster.client, LIMIT, |pod| progress.step(format!("{pod} is ready"))).await?;

    let pod = etcd.pod(0);
    let status = ["exec", &pod, "--", "etcdctl", "endpoint", "status", "--cluster", "-w", "table"];
    shown(&cluster, &status).await?;
    shown(&cluster, &["exec", &pod, "--", "etcdctl", "put", "greeting", "hello from the demo"]).await?;
    shown(&cluster, &["exec", &etcd.pod(2), "--", "etcdctl", "get", "greeting"]).await?;
    println!("\n{}", next_steps(&cluster));
    Ok(())
}

async fn create_namespace(cluster: &Cluster) -> Result<()> {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    });
    Api::<Namespace>::all(cluster.client.clone())
        .patch(NAMESPACE, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&namespace))
        .await
        .with_context(|| format!("cannot create namespace {NAMESPACE}"))?;
    Ok(())
}

/// Runs `kubectl` the way the user could, and shows the command too.
async fn shown(cluster: &Cluster, arguments: &[&str]) -> Result<()> {
    let words: Vec<_> = arguments.iter().map(|word| quoted(word)).collect();
    println!("\n$ kubectl -n {NAMESPACE} {}", words.join(" "));
    cluster.kubectl.show(&[&["-n", NAMESPACE], arguments].concat()).await
}

fn quoted(word: &str) -> String {
    if word.contains(' ') { format!("'{word}'") } else { word.to_owned() }
}

fn next_steps(cluster: &Cluster) -> String {
    let mut lines = vec!["It runs. Try:".to_owned()];
    if let Some(kubeconfig) = cluster.kubectl.kubeconfig() {
        lines.push(format!("  export KUBECONFIG={}", kubeconfig.display()));
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let unknown = |directory: &&Path| !std::env::split_paths(&search).any(|known| known == **directory);
    if let Some(directory) = cluster.kubectl.program().parent().filter(unknown) {
        lines.push(format!("  export PATH={}:$PATH", directory.display()));
    }
    lines.push(format!("  kubectl -n {NAMESPACE} get pods -o wide"));
    lines.push(format!("  kubectl -n {NAMESPACE} delete pod etcd-1   # and watch it come back"));
    lines.push(match cluster.target {
        Target::Testbed => "To remove everything: make testbed-down".to_owned(),
        Target::Kind => {
            format!("To remove everything: kind delete cluster --name {}", e2e::target::KIND_CLUSTER)
        }
        Target::Current => format!("To remove it: kubectl delete namespace {NAMESPACE}"),
    });
    lines.join("\n")
}
