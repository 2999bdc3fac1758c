//! Installs the operator into a cluster, or brings it up to date there.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use e2e::install::{self, API_GROUP, IMAGE, NAMESPACE, Operator};
use e2e::progress::Progress;
use e2e::target::Target;
use testbed::say;

/// Installs or updates the CRDs and the operator
#[derive(Parser)]
struct Arguments {
    /// The Kubernetes cluster to use
    #[arg(long, value_enum, default_value = "testbed")]
    target: Target,
    /// Install only what an operator outside the cluster needs: CRDs, namespace and the agent's image
    #[arg(long)]
    outside: bool,
    /// Remove the operator; clusters and CRDs stay
    #[arg(long, conflicts_with_all = ["outside", "programs"])]
    remove: bool,
    /// The directory with the operator's static programs [default: the output of `make image`]
    #[arg(long)]
    programs: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let progress = Progress::start();
    install::config()?;
    let cluster = arguments.target.open().await?;
    progress.step(&cluster.title);
    if arguments.remove {
        install::remove(&cluster).await?;
        progress.step("removed the operator; clusters keep serving, and nothing scales or repairs them");
        return Ok(());
    }
    if arguments.outside {
        let provided = install::for_operator_outside(&cluster, arguments.programs.as_deref()).await?;
        progress.step(match provided {
            Some(image) => format!("applied CRDs and namespace {NAMESPACE}, provided image {image}"),
            None => format!(
                "applied CRDs and namespace {NAMESPACE}; your cluster must be able to pull {IMAGE}:dev, the image with the agent"
            ),
        });
        say!("");
        return cluster.kubectl.show(&["api-resources", "--api-group", API_GROUP]).await;
    }
    let operator = Operator::install(&cluster, arguments.programs.as_deref()).await?;
    progress.step(match &operator.tag {
        Some(tag) => format!("applied CRDs, RBAC and Deployment with image {IMAGE}:{tag}"),
        None => format!("applied CRDs, RBAC and Deployment; your cluster must be able to pull {IMAGE}:dev"),
    });
    let ready = operator.ready().await;
    if ready.is_err() {
        cluster.kubectl.show(&["-n", NAMESPACE, "describe", "pods"]).await?;
    }
    ready.context("the operator did not become ready: see the description of its pods above")?;
    progress.step("the operator runs");
    say!("");
    cluster.kubectl.show(&["-n", NAMESPACE, "get", "deployments,pods", "-o", "wide"]).await?;
    say!("");
    cluster.kubectl.show(&["api-resources", "--api-group", API_GROUP]).await
}
