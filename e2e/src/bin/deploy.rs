//! Installs the operator into a cluster, or brings it up to date there.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use e2e::install::{self, API_GROUP, IMAGE, NAMESPACE, Operator};
use e2e::progress::Progress;
use e2e::target::Target;
use testbed::say;

/// Install the CRDs and the operator; once more brings them up to date.
#[derive(Parser)]
struct Arguments {
    /// Which cluster
    #[arg(long, value_enum, default_value = "testbed")]
    target: Target,
    /// Only what an operator outside of the cluster needs: CRDs, namespace and the agent's image
    #[arg(long)]
    outside: bool,
    /// The directory of the operator's static programs [default: where `make image` puts them]
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
    if arguments.outside {
        let provided = install::for_operator_outside(&cluster, arguments.programs.as_deref()).await?;
        progress.step(match provided {
            Some(image) => format!("CRDs and namespace {NAMESPACE} applied, image {image} provided"),
            None => format!(
                "CRDs and namespace {NAMESPACE} applied; members' pods take the agent from {IMAGE}:dev, which your \
                 cluster must be able to pull"
            ),
        });
        say!("");
        return cluster.kubectl.show(&["api-resources", "--api-group", API_GROUP]).await;
    }
    let operator = Operator::install(&cluster, arguments.programs.as_deref()).await?;
    progress.step(match &operator.tag {
        Some(tag) => format!("CRDs, RBAC and Deployment applied, with image {IMAGE}:{tag}"),
        None => format!("CRDs, RBAC and Deployment applied; your cluster must be able to pull {IMAGE}:dev"),
    });
    let ready = operator.ready().await;
    if ready.is_err() {
        cluster.kubectl.show(&["-n", NAMESPACE, "describe", "pods"]).await?;
    }
    ready.context("the operator does not become ready; its pods are described above")?;
    progress.step("the operator runs");
    say!("");
    cluster.kubectl.show(&["-n", NAMESPACE, "get", "deployments,pods", "-o", "wide"]).await?;
    say!("");
    cluster.kubectl.show(&["api-resources", "--api-group", API_GROUP]).await
}
