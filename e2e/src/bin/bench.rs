//! Measures on the testbed, prints a table and writes `target/bench.json` (see docs/bench.md).

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use e2e::bench::{self, Machine, Part, Report, Samples, Stage};
use e2e::install::{self, Operator};
use e2e::plain::VERSION;
use e2e::progress::Progress;
use e2e::target::Cluster;
use e2e::turn::Turn;
use e2e::{evidence, workspace};
use kube::Client;
use testbed::cluster::{Config, DnsProfile, Testbed};
use testbed::{image, say};

/// Measures how long the operator takes, compared with a plain StatefulSet in the same run
#[derive(Parser)]
struct Arguments {
    /// Run only these parts (comma-separated)
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// The number of measured runs per row, after one warm-up run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    runs: u8,
    /// Replace a running testbed with a new one
    #[arg(long)]
    fresh: bool,
    /// The behaviour of cluster DNS, if the testbed is not running yet
    #[arg(long, value_enum, default_value_t)]
    dns: DnsProfile,
    /// The directory with the operator's static programs [default: the output of `make image`]
    #[arg(long)]
    programs: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let _turn = Turn::take()?;
    let progress = Progress::start();
    if arguments.fresh {
        Testbed::down().await?;
    }
    let (bed, found_up) = match Testbed::attach() {
        Ok(bed) => (bed, true),
        Err(_) => (Testbed::up(Config { nodes: 1, dns: arguments.dns }).await?, false),
    };
    let outcome = measure(&bed, &arguments, progress).await;
    if !found_up {
        Testbed::down().await?;
    }
    let report = outcome?;
    say!("\n{}", report.table().trim_end());
    say!("\nwritten to {}", workspace::shown(&report.write()?));
    ensure!(report.failures.is_empty(), "some measurements failed:\n{}", report.failures.join("\n"));
    Ok(())
}

async fn measure(bed: &Testbed, arguments: &Arguments, progress: Progress) -> Result<Report> {
    let parts = if arguments.only.is_empty() { Part::ALL.to_vec() } else { arguments.only.clone() };
    for version in parts.iter().flat_map(|part| part.versions()) {
        image::ensure_etcd(version).await?;
    }
    let cluster = Cluster::of_testbed(bed.clone()).await?;
    let programs = arguments.programs.as_deref();
    let operator = Operator::install(&cluster, programs).await?;
    operator.start().await?;
    progress.step(format!("the operator is running: {}", operator.tag.as_deref().unwrap_or_default()));
    let mut stage = Stage {
        client: cluster.client.clone(),
        operator,
        progress,
        runs: arguments.runs,
        samples: Samples::default(),
        figures: bench::shipped(programs)?,
    };
    if parts.contains(&Part::Crowd) {
        stage.rest().await?;
    }
    let mut failures = Vec::new();
    for part in parts {
        // The other parts can still be measured.
        if let Err(error) = stage.play(part).await {
            failures.push(failed(bed, part, &format!("{error:#}")).await?);
            stage.remove(part.namespace()).await?;
        }
    }
    keep_log(&cluster).await?;
    Ok(Report {
        machine: machine(bed, &cluster.client).await?,
        rows: bench::rows(&stage.samples),
        figures: stage.figures,
        failures,
    })
}

async fn failed(bed: &Testbed, part: Part, error: &str) -> Result<String> {
    let namespace = part.namespace();
    let kept = evidence::collect(namespace, error, Some(bed), Some(namespace)).await?;
    let told = format!("{namespace}: {error} (evidence in {})", workspace::shown(&kept));
    eprintln!("{told}");
    Ok(told)
}

/// Where the time went: every step that the operator took, with its duration.
async fn keep_log(cluster: &Cluster) -> Result<()> {
    let deployment = format!("deployment/{}", install::DEPLOYMENT);
    let log = cluster.kubectl.run(&["-n", install::NAMESPACE, "logs", &deployment]).await?;
    let directory = workspace::results().join("bench");
    std::fs::create_dir_all(&directory).context("cannot create target/bench/")?;
    std::fs::write(directory.join("operator.log"), log).context("cannot save the operator's log")
}

async fn machine(bed: &Testbed, client: &Client) -> Result<Machine> {
    let kernel =
        std::fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot read the kernel version")?;
    let kubernetes = client.apiserver_version().await?.git_version;
    if kubernetes.is_empty() {
        bail!("cannot read the Kubernetes version");
    }
    Ok(Machine {
        cores: std::thread::available_parallelism()?.get(),
        kernel: kernel.trim().into(),
        kubernetes,
        nodes: bed.nodes().len(),
        dns: bed.config().dns.to_string(),
        etcd: VERSION.into(),
    })
}
