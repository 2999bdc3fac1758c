//! The command `testbed`: a real Kubernetes with real etcd on this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use testbed::api_only::ApiOnly;
use testbed::cluster::{Config, DnsProfile, Testbed};
use testbed::instance::{self, Condition, Kind, Record};
use testbed::layout::{Layout, MARK};
use testbed::{addons, build, down, fault, image, monitoring, preflight, process, say, store};

/// Runs a real Kubernetes and real etcd on this machine. Builds them from package registries, needs root, and removes
/// everything it created on `down`.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build all missing programs and standard images
    Build,
    /// Start the testbed, unless it is running
    Up {
        /// The number of nodes: this machine and network namespaces, each in its own zone
        #[arg(long, default_value_t = 1)]
        nodes: u8,
        /// How cluster DNS behaves
        #[arg(long, value_enum, default_value_t)]
        dns: DnsProfile,
        /// Start only a control plane on loopback, without nodes; does not need root
        #[arg(long, conflicts_with_all = ["nodes", "dns"])]
        api_only: bool,
        /// The name of the control plane, to run several
        #[arg(long, default_value = "api", requires = "api_only")]
        name: String,
    },
    /// Stop all testbeds and restore the machine
    Down,
    /// Show what is running
    Status,
    /// Print the path of the testbed's kubeconfig
    Kubeconfig,
    /// Create container images that the testbed's nodes can pull
    #[command(subcommand)]
    Image(image::command::Command),
    /// Inject faults and undo them
    #[command(subcommand)]
    Fault(fault::command::Command),
    /// Run a real object store
    #[command(subcommand)]
    Store(store::Command),
    /// Read the operator and all members with a real Prometheus
    #[command(subcommand)]
    Monitoring(monitoring::Command),
    /// Run the registry and the volume provisioner, which `up` starts
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
        Command::Store(command) => store::run(command).await,
        Command::Monitoring(command) => monitoring::run(command).await,
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
    say!("all programs and images are built");
    Ok(())
}

async fn up(config: Config) -> Result<()> {
    let bed = Testbed::up(config).await?;
    say!("The testbed is running: {} node(s), DNS profile {}.", bed.config().nodes, bed.config().dns);
    hint(bed.layout(), &bed.kubectl());
    Ok(())
}

async fn up_api_only(name: &str) -> Result<()> {
    let api = ApiOnly::start_named(name).await?;
    let kubectl = api.kubectl();
    let layout = api.detach()?;
    say!("The control plane {name} is running, without nodes.");
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
        say!("no testbed is running");
    }
    for layout in removed {
        say!("stopped {}", layout.name());
    }
    Ok(())
}

fn status() -> Result<()> {
    let all = Layout::all();
    if all.is_empty() {
        say!("no testbed is running: run `testbed up`");
    }
    for layout in &all {
        let condition = match instance::condition(layout) {
            Condition::Absent => "absent",
            Condition::InUse => "in use by a running process",
            Condition::Running => "running",
            Condition::LeftOver => "broken: run `testbed down` to remove it",
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
            say!("  active fault: {} ({})", injected.fault, injected.id);
        }
    }
    Ok(())
}
