//! etcd as a client sees it: each member asked on its own, over its pod's address, with a deadline.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use etcd_client::{Client, ConnectOptions, GetOptions};

use crate::access::Access;

pub const CLIENT_PORT: u16 = 2379;
pub const PEER_PORT: u16 = 2380;
/// Longer than an election, so that an answer in time means that the member works and none means that it does not.
pub const DEADLINE: Duration = Duration::from_secs(3);
/// No client of ours writes it: reading it asks the cluster a question without depending on anyone's data.
const ABSENT_KEY: &str = "e2e/absent";

/// One member, by the name of its pod.
#[derive(Clone, Debug)]
pub struct Member {
    pub name: String,
    pub address: SocketAddr,
    pub access: Access,
}

/// What a member says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub version: String,
    pub member_id: u64,
    pub leader_id: u64,
    pub is_learner: bool,
    pub cluster_id: u64,
    /// Of the newest write that it has applied.
    pub revision: i64,
}

/// A member as etcd lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub id: u64,
    /// Empty until it has started.
    pub name: String,
    pub is_learner: bool,
    pub peer_urls: Vec<String>,
}

impl Member {
    pub fn of_pod(name: impl Into<String>, address: IpAddr, access: Access) -> Self {
        Self { name: name.into(), address: SocketAddr::new(address, CLIENT_PORT), access }
    }

    /// A read that a majority has to agree to.
    pub async fn linearizable_read(&self, key: &str) -> Result<Option<String>> {
        self.read(key, GetOptions::new(), DEADLINE).await
    }

    /// A read that this member answers alone, from what it has.
    pub async fn serializable_read(&self, key: &str) -> Result<Option<String>> {
        self.read(key, GetOptions::new().with_serializable(), DEADLINE).await
    }

    /// Whether the member takes part in a cluster that works, asked briefly.
    pub async fn serves(&self, deadline: Duration) -> Result<()> {
        self.read(ABSENT_KEY, GetOptions::new(), deadline).await.map(drop)
    }

    pub async fn put(&self, key: &str, value: impl Into<Vec<u8>>) -> Result<()> {
        let value = value.into();
        self.ask("put", DEADLINE, async |client| client.put(key, value, None).await).await.map(drop)
    }

    pub async fn status(&self) -> Result<Status> {
        let answer = self.ask("status", DEADLINE, async |client| client.status().await).await?;
        let header = answer.header().context("the status has no header")?;
        Ok(Status {
            version: answer.version().to_owned(),
            member_id: header.member_id(),
            leader_id: answer.leader(),
            is_learner: answer.is_learner(),
            cluster_id: header.cluster_id(),
            revision: header.revision(),
        })
    }

    /// Who belongs to the cluster, as a majority has it: this member serves a linearizable read first.
    pub async fn list(&self) -> Result<Vec<Listed>> {
        self.serves(DEADLINE).await?;
        let answer = self.ask("member list", DEADLINE, async |client| client.member_list().await).await?;
        let listed = answer.members().iter().map(|member| Listed {
            id: member.id(),
            name: member.name().to_owned(),
            is_learner: member.is_learner(),
            peer_urls: member.peer_urls().to_vec(),
        });
        Ok(listed.collect())
    }

    /// Of the newest write that the cluster has acknowledged.
    pub async fn revision(&self) -> Result<i64> {
        let options = GetOptions::new().with_count_only();
        let answer =
            self.ask("get", DEADLINE, async |client| client.get(ABSENT_KEY, Some(options)).await).await?;
        Ok(answer.header().context("the response has no header")?.revision())
    }

    async fn read(&self, key: &str, options: GetOptions, deadline: Duration) -> Result<Option<String>> {
        let answer = self.ask("get", deadline, async |client| client.get(key, Some(options)).await).await?;
        answer.kvs().first().map(|pair| Ok(pair.value_str()?.to_owned())).transpose()
    }

    /// A connection per question: after a fault, an old one would tell of the past.
    async fn ask<T>(
        &self,
        what: &str,
        deadline: Duration,
        call: impl AsyncFnOnce(&mut Client) -> Result<T, etcd_client::Error>,
    ) -> Result<T> {
        let asking = async {
            let mut client = self.access.client(self.address, ConnectOptions::new()).await?;
            Ok(call(&mut client).await?)
        };
        tokio::time::timeout(deadline, asking)
            .await
            .unwrap_or_else(|_| Err(anyhow!("no response within {deadline:?}")))
            .with_context(|| format!("{what} at {} ({})", self.name, self.address))
    }
}

/// The member that all the others call leader.
pub async fn leader(members: &[Member]) -> Result<Member> {
    for member in members {
        let status = member.status().await?;
        if status.leader_id == status.member_id {
            return Ok(member.clone());
        }
    }
    Err(anyhow!("no member reports that it is the leader"))
}
