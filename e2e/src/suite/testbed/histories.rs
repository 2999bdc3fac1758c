//! What clients see while a member dies, and whether their judge would notice if they saw something else.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::{BACK_OFF_LIMIT, LIMIT, Three, kill, pause};
use crate::history::{Checker, Endpoints, Judgement};
use crate::runner::Context;
use crate::{etcd, wait};

/// For how long clients are left alone.
const WHILE: Duration = Duration::from_secs(3);
/// Older ones may answer a read with what they knew before they stood still (etcd#20418).
const RESUMABLE: &str = "v3.5.35";

pub async fn leader_killed(context: &Context) -> Result<()> {
    let three = Three::create(context).await?;
    let service = &three.plain.name;
    let endpoints = Endpoints::behind_service(context.client().clone(), &context.namespace, service);
    let history = context.history_at(endpoints).await?;
    history.goes_on(LIMIT).await?;
    tokio::time::sleep(WHILE).await;
    let leader = etcd::leader(&three.members).await?;
    let before = wait::restarts(&context.pods().get(&leader.name).await?);
    context.inject(kill(context, &leader.name)).await?;
    history.goes_on(LIMIT).await?;
    let came_back = |pod: &_| wait::restarts(pod) > before && wait::is_ready(pod);
    wait::present(context.pods(), &leader.name, "the member runs again", BACK_OFF_LIMIT, came_back).await?;
    tokio::time::sleep(WHILE).await;
    let file = history.file().to_owned();
    let verdict = history.stop(LIMIT).await?;
    context.step(format!("{verdict:?}"));
    tampering_is_found(context, &file).await?;
    rests_are_no_gaps(context, &three).await
}

/// Two of three stand still in the middle of their work, so that clients learn the end of nothing.
pub async fn quorum_lost(context: &Context) -> Result<()> {
    testbed::image::ensure_etcd(RESUMABLE).await?;
    let plain = context.plain(3).spread().version(RESUMABLE);
    let members = plain.create(context.client(), LIMIT).await?;
    let history = context.history_at(Endpoints::fixed(members.iter().map(|member| member.address))).await?;
    history.goes_on(LIMIT).await?;
    let leader = etcd::leader(&members).await?;
    let follower =
        members.iter().find(|member| member.name != leader.name).context("a leader without followers")?;
    let mut paused = Vec::new();
    for member in [&leader, follower] {
        paused.push(context.inject(pause(context, &member.name)).await?);
    }
    tokio::time::sleep(WHILE).await;
    for pause in &paused {
        context.undo(pause).await?;
    }
    history.goes_on(LIMIT).await?;
    tokio::time::sleep(WHILE).await;
    let verdict = history.stop(LIMIT).await?;
    context.step(format!("{verdict:?}"));
    ensure!(verdict.unknown > 0, "no client was left in doubt: {verdict:?}");
    Ok(())
}

/// Also a second history on the same cluster, to endpoints that do not change.
async fn rests_are_no_gaps(context: &Context, three: &Three) -> Result<()> {
    let endpoints = Endpoints::fixed(three.members.iter().map(|member| member.address));
    let mut history = context.history_at(endpoints).await?;
    history.goes_on(LIMIT).await?;
    history.pause().await;
    tokio::time::sleep(WHILE).await;
    history.resume();
    history.goes_on(LIMIT).await?;
    let verdict = history.stop(LIMIT).await?;
    context.step(format!("{verdict:?}"));
    ensure!(verdict.longest_gap < WHILE, "a rest was taken for a gap: {verdict:?}");
    Ok(())
}

/// Each of these changes one answer in what was really recorded.
async fn tampering_is_found(context: &Context, file: &Path) -> Result<()> {
    let text = std::fs::read_to_string(file).context("cannot read the history")?;
    let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let lies: [(&str, Lie); 4] = [
        ("LOST WRITE", forget_a_write),
        ("INVENTED VALUE", hide_a_write),
        ("REVISION WENT BACK", lower_a_revision),
        ("OTHER CLUSTER", change_the_cluster),
    ];
    let checker = Checker::build().await?;
    for (name, lie) in lies {
        let lied =
            lie(lines.clone()).with_context(|| format!("nothing in the history to make a {name} of"))?;
        let tampered = file.with_extension("tampered.jsonl");
        let text: String = lied.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&tampered, text).context("cannot write the tampered history")?;
        match checker.judge(&tampered).await? {
            Judgement::Violated(said) if said.contains(name) => context.step(format!("found: {name}")),
            other @ (Judgement::Good(_) | Judgement::Violated(_) | Judgement::Undecided(_)) => {
                bail!("{name} was not found in {}: {other:?}", tampered.display())
            }
        }
        std::fs::remove_file(&tampered)?;
    }
    Ok(())
}

/// `None` if there is nothing to lie about.
type Lie = fn(Vec<Value>) -> Option<Vec<Value>>;

fn is_acked_write(line: &Value) -> bool {
    line["outcome"] == "ok" && line["applied"] == true
}

/// A final read shows an older value than it did.
fn forget_a_write(mut lines: Vec<Value>) -> Option<Vec<Value>> {
    let last = lines.iter().rposition(|line| line["final"] == true && line["read"].is_string())?;
    let (key, revision) = (lines[last]["key"].clone(), lines[last]["mod_revision"].as_i64()?);
    let is_older = |line: &&Value| {
        let on_key = line["key"] == key && line["kind"] == "put";
        on_key && is_acked_write(line) && line["revision"].as_i64() < Some(revision)
    };
    let older = lines.iter().find(is_older)?.clone();
    lines[last]["read"] = older["write"].clone();
    lines[last]["mod_revision"] = older["revision"].clone();
    Some(lines)
}

/// The write that a final read shows is left out.
fn hide_a_write(mut lines: Vec<Value>) -> Option<Vec<Value>> {
    let shown = lines.iter().rfind(|line| line["final"] == true && line["read"].is_string())?["read"].clone();
    let write = lines.iter().position(|line| line["write"] == shown)?;
    lines.remove(write);
    Some(lines)
}

/// A write has a revision from before all of them.
fn lower_a_revision(mut lines: Vec<Value>) -> Option<Vec<Value>> {
    let first = lines.iter().find(|line| is_acked_write(line))?["revision"].as_i64()?;
    let last = lines.iter().rposition(is_acked_write)?;
    lines[last]["revision"] = json!(first - 1);
    Some(lines)
}

fn change_the_cluster(mut lines: Vec<Value>) -> Option<Vec<Value>> {
    let last = lines.iter().rposition(is_acked_write)?;
    lines[last]["cluster_id"] = json!("another");
    Some(lines)
}
