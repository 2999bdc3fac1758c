//! Killed right after every single step, the next one always goes on.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::host_operator::HostOperator;
use crate::install::IMAGE;
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::lifecycle::{born, judged};

/// How often the whole way is gone at most. A kill comes a moment after its step, in which another one may be taken:
/// then the first was not hit, and is tried again.
const ROUNDS: usize = 3;

pub async fn every_step(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    let operator = context.operator().await?;
    operator.stop().await?;
    let image = format!("{IMAGE}:{}", operator.tag.as_deref().context("an operator without a tag")?);
    let arguments = ["--reach", "direct", "--agent-image", &image];
    let mut sweep = Sweep {
        context,
        cluster: &cluster,
        arguments: &arguments,
        taken: BTreeSet::new(),
        hit: BTreeSet::new(),
    };
    for round in 1..=ROUNDS {
        for size in [3, 1] {
            sweep.scale(size).await?;
        }
        if sweep.missed().is_empty() {
            break;
        }
        context.step(format!("not hit in round {round}: {:?}", sweep.missed()));
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
    async fn scale(&mut self, size: u8) -> Result<()> {
        self.cluster.scale(size).await?;
        loop {
            let mut operator = HostOperator::start(self.context, self.arguments)?;
            let step = tokio::select! {
                step = operator.next_step(self.cluster) => Some(without_ids(&step?)),
                settled = self.cluster.wait_until_settled(size) => settled.map(|_| None)?,
            };
            let Some(mut last) = step else {
                self.cluster.agrees(&Promised::members(size)).await?;
                return operator.kill().await;
            };
            let later = operator.kill_and_read(self.cluster).await?;
            self.taken.insert(last.clone());
            for step in later {
                last = without_ids(&step);
                self.taken.insert(last.clone());
            }
            self.context.step(format!("killed after: {last}"));
            self.hit.insert(last);
        }
    }

    fn missed(&self) -> Vec<&String> {
        self.taken.difference(&self.hit).collect()
    }
}

/// Members have other IDs each time.
fn without_ids(step: &str) -> String {
    let is_id = |word: &&str| word.len() >= 12 && word.chars().all(|it| it.is_ascii_hexdigit());
    step.split(' ').map(|word| if is_id(&word) { "ID" } else { word }).collect::<Vec<_>>().join(" ")
}
