//! Runs the operator, or replays observations of it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use etcd_operator::controller::{self, Settings};
use etcd_operator::lease::{self, Election};
use etcd_operator::metrics::server::{Protection, Source};
use etcd_operator::metrics::{self, Metrics};
use etcd_operator::reach::Reach;
use etcd_operator::scope::Scope;
use etcd_operator::supervisor::PlantedPanic;
use etcd_operator::{client, environment, http, output, telemetry, traces};
use etcd_operator_core::snapshot::Snapshot;
use futures::FutureExt;
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Runs etcd clusters on Kubernetes
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print what observations in the operator's log mean, and the plan for each
    Replay {
        /// The log or a part of it, or `-` for standard input
        file: PathBuf,
    },
    /// Run the operator
    Run(Box<Run>),
}

#[derive(Args)]
struct Run {
    /// The address of /healthz and /readyz
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,

    /// Who can read /metrics
    #[arg(long, value_enum, default_value = "secure")]
    metrics: Readers,

    /// The address of /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    metrics_listen: SocketAddr,

    /// A directory with tls.crt and tls.key for /metrics [default: a certificate that the operator signs itself]
    #[arg(long, value_name = "DIRECTORY")]
    metrics_certificate: Option<PathBuf>,

    /// The image with the agent for members' pods [default: the image of the operator's own pod]
    #[arg(long, value_name = "IMAGE")]
    agent_image: Option<String>,

    /// The DNS domain of the Kubernetes cluster [default: from resolv.conf in a pod, else cluster.local]
    #[arg(long, value_name = "DOMAIN")]
    cluster_domain: Option<String>,

    /// How to connect to pods [default: direct in a pod, else port-forward]
    #[arg(long, value_enum)]
    reach: Option<Way>,

    /// The namespace of the Lease for leader election [default: the operator's own, else etcd-operator-system]
    #[arg(long, value_name = "NAMESPACE")]
    lease_namespace: Option<String>,

    /// Work only in these namespaces, with rights only there [default: in all]
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    watch_namespaces: Vec<String>,

    /// A collector for traces of rounds by OTLP over HTTP, such as http://localhost:4318 [default: no traces]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,

    /// The log filter, such as `debug` or `info,kube=debug`
    #[arg(long, value_name = "FILTER", default_value = telemetry::DEFAULT_FILTER)]
    log: String,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Way {
    /// Connect to the pods' addresses
    Direct,
    /// Forward ports through the API server
    PortForward,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Readers {
    /// Users that are allowed to get the URL /metrics, over TLS
    Secure,
    /// Everybody, in plain text
    Plain,
    /// Nobody
    Off,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Replay { file } => replay(&file).and_then(|text| output::print(&text)),
        Command::Run(options) => run(*options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", telemetry::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// What each observation in the file means. Other lines of the log are skipped.
fn replay(file: &Path) -> Result<String> {
    let log = match file.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()),
        false => std::fs::read_to_string(file),
    };
    let log = log.with_context(|| format!("cannot read {}", file.display()))?;
    let mut replayed = Vec::new();
    for line in serde_json::Deserializer::from_str(&log).into_iter::<serde_json::Value>() {
        let line =
            line.with_context(|| format!("{} is not the JSON that the operator logs", file.display()))?;
        let Some(snapshot) = line["snapshot"].as_str() else { continue };
        let snapshot: Snapshot = serde_json::from_str(snapshot).with_context(|| {
            let nth = replayed.len() + 1;
            format!(
                "cannot read observation {nth} of {}: another version might have logged it",
                file.display()
            )
        })?;
        let object = line["object"].as_str().unwrap_or_default();
        replayed.push(format!("{object} at {}\n{snapshot}", snapshot.observed.now));
    }
    ensure!(
        !replayed.is_empty(),
        "{} has no observation: the operator logs them with --log=info,etcd_operator::observation=debug",
        file.display()
    );
    Ok(replayed.join("\n"))
}

// One thread is enough: a round waits far more than it computes.
#[tokio::main(flavor = "current_thread")]
async fn run(options: Run) -> Result<()> {
    let (traces, exporter) = match &options.otlp_endpoint {
        Some(endpoint) => {
            traces::to(endpoint, environment::name()).map(|(traces, it)| (Some(traces), Some(it)))?
        }
        None => (None, None),
    };
    telemetry::start(&options.log, traces)?;
    telemetry::log_panics();
    // It ends with the process: what was traced in its last second is lost.
    exporter.map(|exporter| tokio::spawn(exporter.run()));
    let stop = stop_signal()?.shared();
    let config = Config::infer().await.context(
        "cannot find a Kubernetes cluster: set KUBECONFIG, or run in a pod with a service account",
    )?;
    let api_server = config.cluster_url.to_string();
    let client = client::build(config).context("cannot create a client for the API server")?;
    let listener = http::listen(options.listen).await?;
    let metrics = Metrics::default();
    let port = metrics_port(&options, &client).await?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), api_server, address = %options.listen, "started");

    let ready = http::Ready::default();
    let settings = settings(&options, &client, metrics.clone()).await?;
    let namespace = options.lease_namespace.unwrap_or_else(environment::namespace);
    let election = Election::new(client.clone(), &namespace, lease::NAME, &environment::name());
    let controller = controller::run(client, settings, election, ready.clone(), stop.clone());
    let health = http::serve(listener, ready, stop.clone());
    // A standby is scraped, too.
    let scraped = async {
        if let Some((listener, protection)) = port {
            metrics::server::serve(listener, metrics, protection, stop).await;
        }
    };
    futures::try_join!(controller.map(Ok), health, scraped.map(Ok))?;
    tracing::info!("stopped");
    Ok(())
}

/// Where metrics are served and to whom, if at all.
async fn metrics_port(options: &Run, client: &Client) -> Result<Option<(TcpListener, Protection)>> {
    let protection = match options.metrics {
        Readers::Off => return Ok(None),
        Readers::Plain => Protection::None,
        Readers::Secure => {
            let host = || format!("etcd-operator-metrics.{}.svc", environment::namespace());
            let files = options.metrics_certificate.clone().map(Source::Files);
            Protection::tls(files.unwrap_or_else(|| Source::SelfSigned(host())), client.clone())?
        }
    };
    Ok(Some((http::listen(options.metrics_listen).await?, protection)))
}

async fn settings(options: &Run, client: &Client, metrics: Metrics) -> Result<Settings> {
    let direct = match options.reach {
        Some(Way::Direct) => true,
        Some(Way::PortForward) => false,
        None => environment::is_in_a_pod(),
    };
    let own_pod = environment::own_pod(client).await?;
    Ok(Settings {
        scope: Scope::of(&options.watch_namespaces),
        reach: if direct { Reach::Direct } else { Reach::PortForward(client.clone()) },
        agent_image: match &options.agent_image {
            Some(image) => image.clone(),
            None => environment::image(own_pod.as_ref())?,
        },
        operator: own_pod.as_ref().map(environment::operator_pods),
        metrics,
        planted_panic: planted_panic()?,
        domain: options.cluster_domain.clone().unwrap_or_else(environment::domain),
    })
}

fn planted_panic() -> Result<PlantedPanic> {
    let Some(cluster) = std::env::var_os(PlantedPanic::VARIABLE) else { return Ok(PlantedPanic::default()) };
    let planted = cluster.to_str().and_then(PlantedPanic::of);
    let planted = planted.with_context(|| format!("{} is not NAMESPACE/NAME", PlantedPanic::VARIABLE))?;
    tracing::warn!(object = %cluster.display(), "every round of this cluster panics, as the environment asks for");
    Ok(planted)
}

/// Completes when the kubelet (SIGTERM) or somebody at a terminal (SIGINT) asks us to stop.
fn stop_signal() -> Result<impl Future<Output = ()> + Send + 'static> {
    let listen = |kind| signal(kind).context("cannot handle signals");
    let (mut terminate, mut interrupt): (Signal, Signal) =
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        let _ = futures::future::select(terminate.recv().boxed(), interrupt.recv().boxed()).await;
        tracing::info!("stopping");
    })
}
