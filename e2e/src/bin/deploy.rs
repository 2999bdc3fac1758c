//! Installs the operator into a cluster, or brings it up to date there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use e2e::progress::Progress;
use e2e::target::{Cluster, KIND_CLUSTER, Target, kind};
use e2e::workspace;
use testbed::image::{Name, Written, standard};

const IMAGE: &str = "ghcr.io/etcd-k8s-operator/etcd-operator";
const NAMESPACE: &str = "etcd-operator-system";
const DEPLOYMENT: &str = "deployment/etcd-operator";
const API_GROUP: &str = "etcd.etcd.io";
/// Where `make image` has cargo put the static programs, below its target directory.
const STATIC: &str = "x86_64-unknown-linux-musl/release";
const PROGRAMS: [&str; 2] = ["etcd-operator", "etcd-agent"];

/// Install the CRDs and the operator; once more brings them up to date.
#[derive(Parser)]
struct Arguments {
    /// Which cluster
    #[arg(long, value_enum, default_value = "testbed")]
    target: Target,
    /// Only the CRDs: the operator runs elsewhere
    #[arg(long)]
    crds_only: bool,
    /// The directory of the operator's static programs [default: where `make image` puts them]
    #[arg(long)]
    programs: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let progress = Progress::start();
    let config = workspace::root().join("config");
    ensure!(config.is_dir(), "no {}: run this from the project's tree", config.display());
    let cluster = arguments.target.open().await?;
    progress.step(&cluster.title);
    if arguments.crds_only {
        apply(&cluster, &["-f", &shown(&config.join("crd"))]).await?;
        progress.step("CRDs installed");
        return cluster.kubectl.show(&["api-resources", "--api-group", API_GROUP]).await;
    }
    let what = match arguments.target {
        Target::Testbed | Target::Kind => {
            let programs = programs(arguments.programs)?;
            let tag = provide_image(&cluster, &programs).await?;
            progress.step(format!("image {IMAGE}:{tag}"));
            overlay(&config, &tag)?
        }
        Target::Current => {
            progress.step(format!("your cluster must be able to pull {IMAGE}:dev"));
            config
        }
    };
    apply(&cluster, &["-k", &shown(&what)]).await?;
    progress.step("CRDs, RBAC and Deployment applied");
    let rolled_out =
        cluster.kubectl.show(&["-n", NAMESPACE, "rollout", "status", DEPLOYMENT, "--timeout=180s"]).await;
    if rolled_out.is_err() {
        cluster.kubectl.show(&["-n", NAMESPACE, "describe", "pods"]).await?;
    }
    rolled_out.context("the operator does not become ready; its pods are described above")?;
    progress.step("the operator runs");
    println!();
    cluster.kubectl.show(&["-n", NAMESPACE, "get", "deployments,pods", "-o", "wide"]).await?;
    println!();
    cluster.kubectl.show(&["api-resources", "--api-group", API_GROUP]).await
}

async fn apply(cluster: &Cluster, what: &[&str]) -> Result<()> {
    let words = [&["apply", "--server-side", "--force-conflicts"], what].concat();
    cluster.kubectl.run(&words).await.map(drop)
}

fn programs(given: Option<PathBuf>) -> Result<Vec<PathBuf>> {
    let directory = match given {
        Some(directory) => directory,
        None => {
            let this = std::env::current_exe().context("this program's own path is unknown")?;
            this.ancestors().nth(2).context("this program lies in no target directory")?.join(STATIC)
        }
    };
    let programs: Vec<_> = PROGRAMS.iter().map(|name| directory.join(name)).collect();
    for program in &programs {
        ensure!(program.is_file(), "no {}: `make image` builds it", program.display());
    }
    Ok(programs)
}

/// Makes the image available to the cluster's nodes, and returns its tag.
///
/// The tag tells the content. So an unchanged image restarts nothing, and a changed one is pulled and rolled out
/// without being told to.
async fn provide_image(cluster: &Cluster, programs: &[PathBuf]) -> Result<String> {
    let archive = workspace::results().join("deploy/operator.tar");
    let unnamed = write(vec![format!("{IMAGE}:dev")], programs, &archive)?;
    let tag = format!("dev-{}", &unnamed.digest.hex()[..12]);
    let names = vec![format!("{IMAGE}:dev"), format!("{IMAGE}:{tag}")];
    match &cluster.testbed {
        Some(bed) => {
            write(names, programs, &bed.layout().images().join("operator.tar"))?;
        }
        None => {
            write(names, programs, &archive)?;
            kind(&["load", "image-archive", &shown(&archive), "--name", KIND_CLUSTER]).await?;
        }
    }
    Ok(tag)
}

fn write(names: Vec<String>, programs: &[PathBuf], path: &Path) -> Result<Written> {
    let names = names.iter().map(|name| name.parse()).collect::<Result<Vec<Name>>>()?;
    standard::operator(names, programs)?.write(path)
}

/// `config/` with the image's tag set, which stays as it is for those who use it directly.
fn overlay(config: &Path, tag: &str) -> Result<PathBuf> {
    let directory = workspace::results().join("deploy");
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    std::fs::write(directory.join("kustomization.yaml"), kustomization(tag))
        .with_context(|| format!("cannot write into {}", directory.display()))?;
    ensure!(
        directory.join("../../config").canonicalize()? == config.canonicalize()?,
        "target/ is not in the tree"
    );
    Ok(directory)
}

fn kustomization(tag: &str) -> String {
    format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- ../../config\n\
         images:\n- name: {IMAGE}\n  newTag: {tag}\n"
    )
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deployment_uses_the_image_that_we_provide() {
        let path = workspace::root().join("config/manager/deployment.yaml");
        let deployment = std::fs::read_to_string(path).expect("config/ has a Deployment");
        assert!(deployment.contains(&format!("image: {IMAGE}:dev")), "{deployment}");
        assert!(deployment.contains(&format!("namespace: {NAMESPACE}")), "{deployment}");
    }

    #[test]
    fn the_overlay_changes_nothing_but_the_tag() {
        assert!(kustomization("dev-1").ends_with(&format!("images:\n- name: {IMAGE}\n  newTag: dev-1\n")));
    }
}
