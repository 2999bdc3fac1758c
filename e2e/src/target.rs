//! Which cluster to work on.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use testbed::cluster::{Config, DnsProfile, Testbed};
use testbed::image;
use tokio::process::Command;

use crate::kubectl::Kubectl;
use crate::{plain, workspace};

/// The name of the cluster that we make with kind.
pub const KIND_CLUSTER: &str = "etcd-operator";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// The testbed: a Kubernetes on this machine, started if it is not running
    Testbed,
    /// The cluster of the current kubeconfig context
    Current,
    /// A kind cluster named `etcd-operator`, created if it does not exist (requires docker and kind)
    Kind,
}

/// A cluster that answers.
pub struct Cluster {
    pub target: Target,
    /// For people: which one it is.
    pub title: String,
    pub client: Client,
    pub kubectl: Kubectl,
    /// Only of [`Target::Testbed`].
    pub testbed: Option<Testbed>,
}

impl Target {
    /// Connects, and brings up what may be brought up.
    pub async fn open(self) -> Result<Cluster> {
        match self {
            Self::Testbed => {
                let running = Testbed::attach();
                let bed = match running {
                    Ok(bed) => bed,
                    Err(_) => Testbed::up(Config { nodes: 1, dns: DnsProfile::Fast }).await?,
                };
                image::ensure_etcd(plain::VERSION).await?;
                Cluster::of_testbed(bed).await
            }
            Self::Current => {
                let (client, title) = connect(None).await?;
                Ok(Cluster {
                    target: self,
                    title,
                    client,
                    kubectl: Kubectl::new(users_kubectl(), None),
                    testbed: None,
                })
            }
            Self::Kind => open_kind().await,
        }
    }
}

impl Cluster {
    pub async fn of_testbed(bed: Testbed) -> Result<Self> {
        Ok(Self {
            target: Target::Testbed,
            title: "the testbed".into(),
            client: bed.client().await?,
            kubectl: Kubectl::new(bed.kubectl(), Some(bed.kubeconfig())),
            testbed: Some(bed),
        })
    }
}

/// Not tried where there is no docker: the commands are kind's documented ones.
///
/// The kubeconfig is a file of ours, so that the user's current context stays what it was.
async fn open_kind() -> Result<Cluster> {
    let missing = "TARGET=kind requires a running docker, and kind (https://kind.sigs.k8s.io); TARGET=testbed requires neither";
    if !succeeds("docker", &["info"]).await {
        bail!("docker does not respond: {missing}");
    }
    if !succeeds("kind", &["version"]).await {
        bail!("kind is not installed: {missing}");
    }
    let kubeconfig = workspace::results().join("kind.kubeconfig");
    let path = kubeconfig.display().to_string();
    std::fs::create_dir_all(workspace::results()).context("cannot create target/")?;
    let clusters =
        Command::new("kind").args(["get", "clusters"]).output().await.context("cannot run kind")?;
    if String::from_utf8_lossy(&clusters.stdout).lines().any(|name| name == KIND_CLUSTER) {
        kind(&["export", "kubeconfig", "--name", KIND_CLUSTER, "--kubeconfig", &path]).await?;
    } else {
        kind(&["create", "cluster", "--name", KIND_CLUSTER, "--kubeconfig", &path, "--wait", "120s"]).await?;
    }
    let (client, title) = connect(Some(&kubeconfig)).await?;
    Ok(Cluster {
        target: Target::Kind,
        title,
        client,
        kubectl: Kubectl::new(users_kubectl(), Some(kubeconfig)),
        testbed: None,
    })
}

/// Runs kind before the user's eyes: it has its own progress.
pub async fn kind(arguments: &[&str]) -> Result<()> {
    let status = Command::new("kind").args(arguments).status().await.context("cannot run kind")?;
    if !status.success() {
        bail!("`kind {}` failed ({status})", arguments.join(" "));
    }
    Ok(())
}

async fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let quiet = std::process::Stdio::null;
    let run = Command::new(program).args(arguments).stdout(quiet()).stderr(quiet()).status().await;
    run.is_ok_and(|status| status.success())
}

/// Never in-cluster configuration, which `kube`'s own default would fall back to.
async fn connect(kubeconfig: Option<&PathBuf>) -> Result<(Client, String)> {
    let read = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let kubeconfig = read.context("cannot read a kubeconfig: set KUBECONFIG, or use TARGET=testbed")?;
    let context = kubeconfig.current_context.clone().unwrap_or_default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("cannot use the kubeconfig context {context:?}"))?;
    let title = format!("context {context:?} at {}", config.cluster_url);
    let client = Client::try_from(config)?;
    let version = client.apiserver_version().await;
    version.with_context(|| format!("{title} does not respond as a Kubernetes API"))?;
    Ok((client, title))
}

/// The user's own, else one that was built for the testbed.
fn users_kubectl() -> PathBuf {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let built = std::fs::read_dir(testbed::cache::programs()).into_iter().flatten().flatten();
    let directories = std::env::split_paths(&search).chain(built.map(|entry| entry.path()));
    let mut programs = directories.map(|directory| directory.join("kubectl"));
    programs.find(|program| program.is_file()).unwrap_or_else(|| PathBuf::from("kubectl"))
}
