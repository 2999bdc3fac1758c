//! Killed right after every single step, the next one always goes on.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::host_operator::HostOperator;
use crate::install::IMAGE;
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::disturbed::{becomes_whole, move_leader};
use crate::suite::lifecycle::{NAME, judged};

/// How often the whole way is gone at most. A kill comes a moment after its step, in which another one may be taken:
/// then the first was not hit, and is tried again.
const ROUNDS: usize = 3;

/// From birth over three members to one again, where the leader is the first that has to go.
pub async fn every_step(context: &Context) -> Result<()> {
    let operator = context.operator().await?;
    operator.stop().await?;
    let image = format!("{IMAGE}:{}", operator.tag.as_deref().context("an operator without a tag")?);
    let arguments = ["--reach", "direct", "--agent-image", &image];
    let spec = json!({"size": 1, "storage": {"size": "1Gi"}});
    let cluster =
        Operated::create(context.client(), &context.namespace, NAME, spec, context.progress).await?;
    let mut sweep = Sweep {
        context,
        cluster: &cluster,
        arguments: &arguments,
        taken: BTreeSet::new(),
        hit: BTreeSet::new(),
    };
    sweep.until_settled(1).await?;
    let history = context.writers(&cluster).await?;
    for round in 1..=ROUNDS {
        cluster.scale(3).await?;
        sweep.until_settled(3).await?;
        move_leader(context, &cluster, "kv-2").await?;
        cluster.scale(1).await?;
        sweep.until_settled(1).await?;
        if sweep.missed().is_empty() {
            break;
        }
        context.step(format!("steps without a kill after round {round}: {:?}", sweep.missed()));
    }
    ensure!(sweep.missed().is_empty(), "no kill came right after {:?}", sweep.missed());
    context.step(format!("killed after each of {} different steps: {:?}", sweep.hit.len(), sweep.hit));
    operator.start().await?;
    cluster.agrees(&Promised::members(1)).await?;
    judged(context, history).await
}

struct Sweep<'a> {
    context: &'a Context,
    cluster: &'a Operated,
    arguments: &'a [&'a str],
    /// Every step that was taken.
    taken: BTreeSet<String>,
    /// Those that were the last ones of an operator.
    hit: BTreeSet<String>,
}

impl Sweep<'_> {
    /// One operator after the other takes one step, until nothing is left to do.
    async fn until_settled(&mut self, size: u8) -> Result<()> {
        loop {
            let mut operator = HostOperator::start(self.context, self.arguments)?;
            let step = tokio::select! {
                step = operator.next_step(self.cluster) => Some(step?),
                settled = self.settled(size) => settled.map(|()| None)?,
            };
            let Some(step) = step else { return operator.kill().await };
            let mut last = without_ids(&step);
            self.taken.insert(last.clone());
            for step in operator.kill_and_read(self.cluster).await? {
                last = without_ids(&step);
                self.taken.insert(last.clone());
            }
            self.context.step(format!("killed after: {last}"));
            self.hit.insert(last);
        }
    }

    /// The books may be kept for a moment longer than there is something to be seen.
    async fn settled(&self, size: u8) -> Result<()> {
        self.cluster.wait_until_settled(size).await?;
        becomes_whole(self.cluster, size).await
    }

    fn missed(&self) -> Vec<&String> {
        self.taken.difference(&self.hit).collect()
    }
}

/// Members have other IDs each time.
fn without_ids(step: &str) -> String {
    let is_id = |word: &str| word.len() >= 12 && word.chars().all(|it| it.is_ascii_hexdigit());
    let known = |word: &str| !is_id(word.trim_matches(['(', ')']));
    step.split(' ').filter(|word| known(word)).collect::<Vec<_>>().join(" ")
}
