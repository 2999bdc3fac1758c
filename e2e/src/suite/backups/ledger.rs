//! Keys that all have the value of one round, so that a single one shows which data a cluster has.

use anyhow::{Context as _, Result, ensure};

use super::restored::value;
use crate::operated::Operated;

pub struct Ledger {
    pub prefix: &'static str,
    pub keys: usize,
}

impl Ledger {
    /// The revision of the cluster then.
    pub async fn write(&self, cluster: &Operated, round: usize) -> Result<i64> {
        let members = cluster.members().await?;
        let member = members.first().context("no member")?;
        for key in self.names() {
            member.put(&key, value(round)).await?;
        }
        cluster.revision().await
    }

    /// Every member.
    pub async fn is_of(&self, cluster: &Operated, round: usize) -> Result<()> {
        for member in cluster.members().await? {
            for key in self.names() {
                let found = member.linearizable_read(&key).await?;
                ensure!(
                    found == Some(value(round)),
                    "{key} of {}: {found:?}, not of round {round}",
                    member.name
                );
            }
        }
        Ok(())
    }

    fn names(&self) -> impl Iterator<Item = String> {
        (0..self.keys).map(|key| format!("{}/{key}", self.prefix))
    }
}
