//! Whatever happened, the machine is afterwards as it was before.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use testbed::cluster::{Config, DnsProfile, Testbed};
use testbed::fault::{self, Direction, Fault};
use testbed::image;
use testbed::instance;
use testbed::layout::Layout;
use testbed::process;
use tokio::process::Command;

use super::LIMIT;
use crate::machine::Snapshot;
use crate::plain::{self, CONTAINER, Plain};
use crate::runner::Context;
use crate::wait;

/// The kernel takes a moment to let go of network namespaces and what is in them.
const SETTLE_LIMIT: Duration = Duration::from_secs(15);

/// Enough to see what kind of thing it is.
const SHOWN_CHANGES: usize = 40;

pub async fn nothing_is_left(context: &Context) -> Result<()> {
    let before = Snapshot::take().await?;
    let bed = Testbed::up(Config { nodes: 3, dns: DnsProfile::Fast }).await?;
    image::ensure_etcd(plain::VERSION).await?;
    context.step("started the testbed");
    let etcd = Plain::new("default", "etcd", 3).spread();
    etcd.create(&bed.client().await?, LIMIT).await?;
    for fault in some_of_each(&etcd) {
        let injected = fault::inject(&bed, fault).await?;
        context.step(format!("injected: {}", injected.id));
    }
    // What would go unnoticed if it stayed could not be missed.
    let during = Snapshot::take().await?;
    for subject in ["processes", "mounts", "loop devices", "cgroups", "/run/netns", "links", "iptables-save"]
    {
        ensure!(during.lines(subject) > before.lines(subject), "the testbed shows no {subject}");
    }
    kill_daemons().await?;
    context.step("killed every daemon");
    Testbed::down().await?;
    context.step("stopped the testbed");
    as_before(&before).await
}

pub async fn up_heals(context: &Context) -> Result<()> {
    let before = Snapshot::take().await?;
    for moment in ["apiserver", "n2-containerd", "coredns"] {
        interrupted_up(moment).await?;
        context.step(format!("killed `testbed up` after it started {moment}"));
    }
    let bed = Testbed::up(Config { nodes: 1, dns: DnsProfile::Fast }).await?;
    bed.client().await?.apiserver_version().await.context("the healed testbed does not answer")?;
    context.step("`testbed up` repaired the testbed");
    Testbed::down().await?;
    Testbed::down().await.context("a second `down` must be fine")?;
    as_before(&before).await
}

/// One fault of each sort that leaves something on the machine.
fn some_of_each(etcd: &Plain) -> Vec<Fault> {
    let namespace = || etcd.namespace.clone();
    vec![
        Fault::PauseProcess {
            pod: etcd.pod(0),
            namespace: namespace(),
            container: Some(CONTAINER.into()),
            process: None,
        },
        Fault::CutPod { pod: etcd.pod(1), namespace: namespace(), direction: Direction::In },
        Fault::FillDisk { claim: etcd.claim(2), namespace: namespace(), leave_bytes: 1 << 20 },
        Fault::DenyNames { names: vec!["kubernetes.default.svc.cluster.local".into()] },
        Fault::CutNode { node: "n3".into(), direction: Direction::Both },
        Fault::CrashNode { node: "n2".into() },
        Fault::StopApiServer,
    ]
}

/// Everything that could have cleaned up after itself or others.
async fn kill_daemons() -> Result<()> {
    let layout = Layout::cluster();
    let ids: Vec<_> =
        instance::daemons(&layout).iter().filter_map(|name| process::running(&layout, name)).collect();
    ensure!(!ids.is_empty(), "no daemon runs");
    process::kill_and_wait(&ids).await
}

/// Starts the command and kills it as soon as it has started a certain daemon.
async fn interrupted_up(moment: &str) -> Result<()> {
    let mut up = Command::new(testbed_program()?)
        .args(["up", "--nodes", "2"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("cannot run `testbed up`")?;
    let layout = Layout::cluster();
    // What an earlier one left is removed first, so only a directory with this owner in it counts.
    let own = up.id().context("`testbed up` ended at once")?;
    let what = format!("`testbed up` starts {moment}");
    let waited = wait::until(&what, LIMIT, async || {
        ensure!(up.try_wait()?.is_none(), "`testbed up` ended before");
        let record = std::fs::read_to_string(layout.dir().join("instance.json")).unwrap_or_default();
        Ok(record.contains(&format!("\"id\": {own}")) && process::running(&layout, moment).is_some())
    })
    .await;
    up.kill().await.context("cannot kill `testbed up`")?;
    waited
}

/// Beside this program, where cargo puts it.
fn testbed_program() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("testbed");
    ensure!(program.is_file(), "no {}: run `cargo build -p etcd-operator-testbed`", program.display());
    Ok(program)
}

async fn as_before(before: &Snapshot) -> Result<()> {
    let mut changes = Vec::new();
    let same = wait::until("the machine is as before", SETTLE_LIMIT, async || {
        changes = before.changes(&Snapshot::take().await?);
        Ok(changes.is_empty())
    });
    let same = same.await;
    same.with_context(|| told(&changes))
}

fn told(changes: &[String]) -> String {
    let shown = changes.iter().take(SHOWN_CHANGES).map(|change| format!("\n  {change}"));
    let more = changes.len().saturating_sub(SHOWN_CHANGES);
    let rest = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    format!("left behind:{}{rest}", shown.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut_short_and_says_so() {
        let changes: Vec<_> = (0..SHOWN_CHANGES + 2).map(|n| n.to_string()).collect();
        assert!(told(&changes).ends_with("\n  and 2 more"));
        assert_eq!(told(&changes[..1]), "left behind:\n  0");
    }
}
