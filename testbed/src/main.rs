//! The command `testbed`: a real Kubernetes with real etcd on this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use testbed::api_only::ApiOnly;
use testbed::cluster::{Config, DnsProfile, Testbed};
use testbed::instance::{self, Condition, Kind, Record};
use testbed::layout::{Layout, MARK};
use testbed::{addons, build, down, fault, image, preflight, process, say};

/// A real Kubernetes with real etcd on this machine: built from package registries, run as root, gone without a trace.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build all programs and standard images; what is built already costs nothing
    Build,
    /// Bring the testbed up; one that runs is left as it is
    Up {
        /// The machine itself and, beyond one, network namespaces; each in a zone of its own
        #[arg(long, default_value_t = 1)]
        nodes: u8,
        /// How cluster DNS behaves
        #[arg(long, value_enum, default_value_t)]
        dns: DnsProfile,
        /// A control plane without nodes, on loopback; needs no root
        #[arg(long, conflicts_with_all = ["nodes", "dns"])]
        api_only: bool,
        /// The name of a control plane without nodes, to have several
        #[arg(long, default_value = "api", requires = "api_only")]
        name: String,
    },
    /// Take everything down and put the machine back as it was
    Down,
    /// Tell what is up
    Status,
    /// Print the path of the testbed's kubeconfig
    Kubeconfig,
    /// Make container images that the testbed's nodes can pull
    #[command(subcommand)]
    Image(image::command::Command),
    /// Break something, and mend it
    #[command(subcommand)]
    Fault(fault::command::Command),
    /// The registry and the provisioner of volumes, as `up` starts them
    #[command(name = addons::SUBCOMMAND, hide = true)]
    ServeAddons,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse().command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<()> {
    match command {
        Command::Build => build_all().await,
        Command::Up { api_only: true, name, .. } => up_api_only(&name).await,
        Command::Up { nodes, dns, .. } => up(Config { nodes, dns }).await,
        Command::Down => down_all().await,
        Command::Status => status(),
        Command::Kubeconfig => {
            say!("{}", Layout::cluster().kubeconfig().display());
            Ok(())
        }
        Command::Image(command) => image::command::run(command).await,
        Command::Fault(command) => fault::command::run(command, &Testbed::attach()?).await,
        Command::ServeAddons => {
            let dir = PathBuf::from(std::env::var_os(MARK).with_context(|| format!("{MARK} is not set"))?);
            addons::serve(Layout::at(dir)).await
        }
    }
}

async fn build_all() -> Result<()> {
    preflight::check(preflight::Need::Build).await?;
    let programs = build::ensure_base().await?;
    image::ensure_base(&programs).await?;
    for version in build::STANDARD_ETCD {
        image::ensure_etcd(version).await?;
    }
    say!("everything is built");
    Ok(())
}

async fn up(config: Config) -> Result<()> {
    let bed = Testbed::up(config).await?;
    say!("The testbed is up: {} node(s), DNS profile {}.", bed.config().nodes, bed.config().dns);
    hint(bed.layout(), &bed.kubectl());
    Ok(())
}

async fn up_api_only(name: &str) -> Result<()> {
    let api = ApiOnly::start_named(name).await?;
    let kubectl = api.kubectl();
    let layout = api.detach()?;
    say!("The control plane {name} is up; it has no nodes.");
    hint(&layout, &kubectl);
    Ok(())
}

fn hint(layout: &Layout, kubectl: &std::path::Path) {
    let programs = kubectl.parent().unwrap_or(kubectl);
    say!("  export KUBECONFIG={} PATH={}:$PATH", layout.kubeconfig().display(), programs.display());
}

async fn down_all() -> Result<()> {
    let removed = down::remove_all().await?;
    if removed.is_empty() {
        say!("nothing is up");
    }
    for layout in removed {
        say!("{} is down", layout.name());
    }
    Ok(())
}

fn status() -> Result<()> {
    let all = Layout::all();
    if all.is_empty() {
        say!("nothing is up: `testbed up` starts a cluster");
    }
    for layout in &all {
        let condition = match instance::condition(layout) {
            Condition::Absent => "absent",
            Condition::InUse => "in use by a running process",
            Condition::Running => "up",
            Condition::LeftOver => "broken; `testbed down` removes it",
        };
        let kind = match Record::load(layout).map(|record| record.kind) {
            Some(Kind::Cluster(config)) => format!("{} node(s), DNS profile {}", config.nodes, config.dns),
            Some(Kind::ApiOnly) => "control plane only".into(),
            None => "unknown".into(),
        };
        say!("{}: {condition} ({kind})\n  kubeconfig: {}", layout.name(), layout.kubeconfig().display());
        for name in instance::daemons(layout) {
            match process::running(layout, &name) {
                Some(id) => say!("  {name:<26} process {id}"),
                None => say!("  {name:<26} not running"),
            }
        }
        for injected in fault::in_effect(layout)? {
            say!("  fault in effect: {} ({})", injected.fault, injected.id);
        }
    }
    Ok(())
}
