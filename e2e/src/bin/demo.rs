//! Shows the operator and a three-member etcd that it runs on a real Kubernetes, from nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use e2e::install::Operator;
use e2e::operated::{Operated, is_settled};
use e2e::progress::{Progress, Stages};
use e2e::target::{Cluster, Target};
use e2e::{FIELD_MANAGER, plain, wait, workspace};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::condition;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::json;
use testbed::cluster::Testbed;
use testbed::preflight::{self, Need};
use testbed::{build, say};

const NAMESPACE: &str = "demo";
/// Its name and size are what is waited for below.
const EXAMPLE: &str = "examples/minimal.yaml";
const CLUSTER: &str = "minimal";
const SIZE: u8 = 3;
const LIMIT: Duration = Duration::from_secs(300);

/// The operator and a three-member etcd that it runs on a real Kubernetes, from nothing.
#[derive(Parser)]
struct Arguments {
    /// Which cluster
    #[arg(long, value_enum, default_value = "testbed")]
    target: Target,
    /// The directory of the operator's static programs [default: where `make image` puts them]
    #[arg(long)]
    programs: Option<PathBuf>,
    /// For how long `make demo` has been compiling
    #[arg(long, default_value_t = 0)]
    elapsed_seconds: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    // The first stage is the compilation of this program, which `make demo` prints.
    let stages = if arguments.target == Target::Testbed { 5 } else { 4 };
    let mut stages = Stages::after(1, Duration::from_secs(arguments.elapsed_seconds), stages);
    if arguments.target == Target::Testbed {
        stages.begin("building Kubernetes, CoreDNS and etcd (most of it is compiled by now)");
        build_for_testbed().await?;
    }

    let progress = stages.begin(match arguments.target {
        Target::Testbed => "starting Kubernetes on this machine",
        Target::Kind => "starting Kubernetes with kind",
        Target::Current => "connecting to your cluster",
    });
    let cluster = arguments.target.open().await?;
    let version = cluster.client.apiserver_version().await.context("the cluster does not answer")?;
    progress.step(format!("Kubernetes {}: {}", version.git_version, cluster.title));

    let progress = stages.begin("installing the operator");
    let operator = Operator::install(&cluster, arguments.programs.as_deref()).await?;
    operator.ready().await.context("the operator does not become ready (`make deploy-test` shows why)")?;
    progress.step("the operator runs");

    let progress = stages.begin("creating an etcd cluster with three members");
    create_namespace(&cluster).await?;
    apply_example(&cluster).await?;
    let etcd = Operated::existing(&cluster.client, NAMESPACE, CLUSTER, progress);
    tell_until_settled(&etcd, progress).await?;

    shown(&cluster, &["get", "etcd"]).await?;
    let status = ["exec", "minimal-0", "--", "etcdctl", "endpoint", "status", "--cluster", "-w", "table"];
    shown(&cluster, &status).await?;
    shown(&cluster, &["exec", "minimal-0", "--", "etcdctl", "put", "greeting", "hello from the demo"])
        .await?;
    shown(&cluster, &["exec", "minimal-2", "--", "etcdctl", "get", "greeting"]).await?;
    say!("\n{}", next_steps(&cluster));
    Ok(())
}

async fn build_for_testbed() -> Result<()> {
    if Testbed::attach().is_err() {
        preflight::check(Need::Cluster).await?;
        build::ensure_base().await?;
    }
    build::ensure_etcd(plain::VERSION).await.map(drop)
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

/// Tells what the status says, whenever it says something else, and of each member when it serves.
async fn tell_until_settled(etcd: &Operated, progress: Progress) -> Result<()> {
    let named = watcher::Config::default().fields(&format!("metadata.name={}", etcd.name));
    let mut followed = wait::follow(etcd.api::<EtcdCluster>(), named);
    let mut said = BTreeSet::new();
    let telling = async {
        loop {
            followed.changed().await.context("the watch ended")?;
            let seen = followed.borrow_and_update().as_ref().and_then(|seen| seen.get(CLUSTER)).cloned();
            let Some(cluster) = seen else { continue };
            for line in told(&cluster) {
                if said.insert(line.clone()) {
                    progress.step(line);
                }
            }
            if is_settled(&cluster, SIZE) {
                return anyhow::Ok(());
            }
        }
    };
    match tokio::time::timeout(LIMIT, telling).await {
        Ok(told) => told,
        Err(_) => {
            bail!("{CLUSTER} does not run after {LIMIT:?}: `kubectl -n {NAMESPACE} describe etcd` says why")
        }
    }
}

fn told(cluster: &EtcdCluster) -> Vec<String> {
    let Some(status) = &cluster.status else { return vec![format!("{CLUSTER} is asked for")] };
    let phase = status.phase.map(|phase| format!("{phase:?}")).unwrap_or_default();
    let said = |type_: &str| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|condition| condition.type_ == type_ && condition.status == "True")?;
        // Details follow, pod by pod.
        found.message.split(';').next()
    };
    // What is being done is more than that it is not done yet.
    let what = said(condition::RECONCILING).or_else(|| said(condition::READY));
    let serving = status.members.iter().filter(|member| member.ready).filter_map(|member| {
        let role = member.role.map(|role| format!("{role:?}").to_lowercase()).unwrap_or_default();
        Some(format!("{} serves, as {role}", member.name.as_deref()?))
    });
    serving.chain(what.map(|what| format!("{phase}: {what}"))).collect()
}

/// Runs `kubectl` the way the user could, and shows the command too.
async fn shown(cluster: &Cluster, arguments: &[&str]) -> Result<()> {
    let words: Vec<_> = arguments.iter().map(|word| quoted(word)).collect();
    say!("\n$ kubectl -n {NAMESPACE} {}", words.join(" "));
    cluster.kubectl.show(&[&["-n", NAMESPACE], arguments].concat()).await
}

/// As typed in the tree, from wherever this is run.
async fn apply_example(cluster: &Cluster) -> Result<()> {
    say!("\n$ kubectl -n {NAMESPACE} apply -f {EXAMPLE}");
    let file = workspace::root().join(EXAMPLE).display().to_string();
    cluster.kubectl.show(&["-n", NAMESPACE, "apply", "-f", &file]).await
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
    let suggestions = [
        ("describe etcd minimal", "members, conditions, and an event for every step"),
        ("scale etcd minimal --replicas=5", "then watch it: kubectl -n demo get etcd -w"),
        ("delete pod minimal-1", "comes back with its data"),
        ("scale etcd minimal --replicas=0", "stops it; with 3 it is back, and so is the greeting"),
    ];
    for (command, what) in suggestions {
        lines.push(format!("  {:<48} # {what}", format!("kubectl -n {NAMESPACE} {command}")));
    }
    lines.push(match cluster.target {
        Target::Testbed => "To remove everything: make testbed-down".to_owned(),
        Target::Kind => {
            format!("To remove everything: kind delete cluster --name {}", e2e::target::KIND_CLUSTER)
        }
        Target::Current => {
            format!(
                "To remove the cluster with its data: kubectl delete namespace {NAMESPACE}\n\
                 To remove the operator after that: kubectl delete -k config/operator (README.md, Uninstall)"
            )
        }
    });
    lines.join("\n")
}
