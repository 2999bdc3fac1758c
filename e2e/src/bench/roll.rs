//! Every member restarts, one after the other, while clients write.

use std::time::Instant;

use anyhow::Result;
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::condition;
use serde_json::json;

use super::operation::{Operation, Subject};
use super::samples::Sample;
use super::stage::{LIMIT, REST, Stage, judged};
use crate::history::Endpoints;
use crate::operated::{Operated, is_settled};
use crate::plain::{self, Plain};

const SIZES: [u8; 2] = [3, 5];

impl Stage {
    pub(super) async fn roll(&mut self, namespace: &str) -> Result<()> {
        for size in SIZES {
            let subject = Subject::operated(Operation::Roll { size }, plain::VERSION);
            self.roll_plain(namespace, size, subject.plain()).await?;
            let (cluster, _) = self.born(namespace, size, subject).await?;
            tokio::time::sleep(REST).await;
            let writers = self.writers(self.endpoints(&cluster), subject).await?;
            let sample = restarted(&cluster, size).await?;
            let sample = judged(sample, writers).await?;
            self.keep(subject, sample);
            self.gone(&cluster).await?;
        }
        Ok(())
    }

    /// As `kubectl rollout restart` does it: from the highest ordinal to the lowest, whichever leads.
    async fn roll_plain(&mut self, namespace: &str, size: u8, subject: Subject) -> Result<()> {
        let plain = Plain::new(namespace, "plain", usize::from(size));
        plain.create(&self.client, LIMIT).await?;
        tokio::time::sleep(REST).await;
        let endpoints = Endpoints::behind_service(self.client.clone(), namespace, &plain.name);
        let writers = self.writers(endpoints, subject).await?;
        let began = Instant::now();
        plain.restart(&self.client, LIMIT).await?;
        let sample = judged(Sample { time: began.elapsed(), ..Sample::default() }, writers).await?;
        self.keep(subject, sample);
        plain.delete(&self.client, LIMIT).await
    }
}

/// From an edit that needs a restart until nothing is left to do.
async fn restarted(cluster: &Operated, size: u8) -> Result<Sample> {
    let began = Instant::now();
    cluster.edit(json!({"spec": {"options": {"snapshotCount": 20_000}}})).await?;
    let is_ready = |it: &EtcdCluster| {
        let conditions = it.status.iter().flat_map(|status| &status.conditions);
        let mut ready = conditions.filter(|it| it.type_ == condition::READY);
        is_settled(it, size) && ready.any(|it| it.status == "True")
    };
    cluster.wait_for("every member has restarted and serves", is_ready).await?;
    Ok(Sample { time: began.elapsed(), ..Sample::default() })
}
