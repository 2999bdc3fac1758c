//! Measures on the testbed, prints a table and writes `target/bench.json` (see docs/bench.md).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use e2e::FIELD_MANAGER;
use e2e::bench::{Machine, Report, Row};
use e2e::plain::{Plain, VERSION};
use e2e::progress::Progress;
use e2e::turn::Turn;
use e2e::{wait, workspace};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use testbed::cluster::{Config, DnsProfile, Testbed};
use testbed::image;

const NAMESPACE: &str = "bench";
const NAME: &str = "plain";
const SIZES: [usize; 2] = [1, 3];
const LIMIT: Duration = Duration::from_secs(120);

/// How long a plain StatefulSet takes until every member serves: the yardstick for everything else.
#[derive(Parser)]
struct Arguments {
    /// Measured runs of each row, after one that is not counted
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
    runs: u8,
    /// How cluster DNS behaves, if the testbed is not up yet
    #[arg(long, value_enum, default_value_t)]
    dns: DnsProfile,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let _turn = Turn::take()?;
    let progress = Progress::start();
    let (bed, found_up) = match Testbed::attach() {
        Ok(bed) => (bed, true),
        Err(_) => (Testbed::up(Config { nodes: 1, dns: arguments.dns }).await?, false),
    };
    image::ensure_etcd(VERSION).await?;
    let client = bed.client().await?;
    let outcome = measure_all(&client, arguments.runs, progress).await;
    let machine = machine(&bed, &client).await;
    if !found_up {
        Testbed::down().await?;
    }
    let report = Report { machine: machine?, rows: outcome? };
    println!("\n{}", report.table());
    println!("written to {}", workspace::shown(&report.write()?));
    Ok(())
}

async fn measure_all(client: &Client, runs: u8, progress: Progress) -> Result<Vec<Row>> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    namespaces
        .patch(NAMESPACE, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&namespace))
        .await
        .with_context(|| format!("cannot create namespace {NAMESPACE}"))?;
    // An interrupted benchmark may have left one, which would be there at once.
    Plain::new(NAMESPACE, NAME, 0).delete(client, LIMIT).await?;
    let mut rows = Vec::new();
    for size in SIZES {
        let name = format!("create {size}");
        let warm_up = create(client, size).await?;
        progress.step(format!("{name}: {:.2} s (warm-up, not counted)", warm_up.as_secs_f64()));
        let mut times = Vec::new();
        for run in 1..=runs {
            let time = create(client, size).await?;
            progress.step(format!("{name}: {:.2} s ({run} of {runs})", time.as_secs_f64()));
            times.push(time);
        }
        rows.push(Row::plain(&name, &times)?);
    }
    namespaces.delete(NAMESPACE, &DeleteParams::background()).await.context("cannot delete the namespace")?;
    wait::gone(namespaces, NAMESPACE, "the namespace is gone", LIMIT).await?;
    Ok(rows)
}

/// From the first write to the API until each member has served a linearizable read.
async fn create(client: &Client, size: usize) -> Result<Duration> {
    let etcd = Plain::new(NAMESPACE, NAME, size);
    let began = Instant::now();
    etcd.apply(client).await?;
    let served = etcd.serving(client, LIMIT, |_| {}).await.map(|_| began.elapsed());
    etcd.delete(client, LIMIT).await?;
    served
}

async fn machine(bed: &Testbed, client: &Client) -> Result<Machine> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot tell the kernel")?;
    let kubernetes = client.apiserver_version().await?.git_version;
    if kubernetes.is_empty() {
        bail!("Kubernetes does not tell its version");
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
