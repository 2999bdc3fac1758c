//! What a Job gives the agent to make a member's volume from a snapshot, and what the agent reports.

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use super::Protocol;
use crate::observed::{ClusterId, MemberId};

/// Has a [`Restoration`] as JSON.
pub const VARIABLE: &str = "ETCD_AGENT_RESTORATION";
/// Below the volume: everything that is not complete.
pub const DIRECTORY: &str = "restore";
/// Below [`DIRECTORY`]: what etcd sent.
pub const SNAPSHOT: &str = "snapshot.db";
/// Below [`DIRECTORY`]: the highest revision that is known of the source, as a number.
pub const HIGHEST: &str = "highest-revision";
/// Below [`DIRECTORY`]: where an etcd replays what the archive has.
pub const SCRATCH: &str = "scratch";
/// Below the volume: a [`Restored`], beside the data that it describes.
pub const RESULT: &str = "restored.json";

/// The member that begins with the data of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restoration {
    #[serde(default = "Protocol::first")]
    pub protocol_version: Protocol,
    /// The EtcdCluster.
    pub cluster_uid: String,
    /// The EtcdRestore.
    pub restore_uid: String,
    /// The pod, which is also the member's name.
    pub name: String,
    pub peer_url: String,
    /// By how much revisions rise at least; the previous ones count as compacted. None leaves them as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bump_revision: Option<u64>,
}

/// A snapshot, as `etcdutl snapshot status --write-out=json` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotStatus {
    pub revision: i64,
    pub total_size: u64,
}

/// What is on the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restored {
    #[serde(default = "Protocol::first")]
    pub protocol_version: Protocol,
    pub restore_uid: String,
    /// Of the snapshot.
    pub revision: i64,
    /// The same after the bump.
    pub served_revision: i64,
    /// The size of the database.
    pub bytes: u64,
}

impl Restoration {
    /// etcd derives the IDs of a cluster and its members from their URLs and from this alone, so it never returns.
    pub fn token(&self) -> String {
        format!("{}-{}", self.cluster_uid, self.restore_uid)
    }

    /// The same, with revisions that rise as far above the highest one that is known of the source: clients can have seen it.
    pub fn above(&self, revision: i64, highest: Option<i64>) -> Self {
        let beyond = highest.and_then(|highest| u64::try_from(highest.saturating_sub(revision)).ok());
        let bump_revision = self.bump_revision.map(|bump| bump.saturating_add(beyond.unwrap_or_default()));
        Self { bump_revision, ..self.clone() }
    }

    /// Of `etcdutl`. It verifies the hash at the end of the snapshot.
    pub fn arguments(&self, snapshot: &str, data: &str) -> Vec<String> {
        let Self { name, peer_url, .. } = self;
        let mut arguments = vec!["snapshot".into(), "restore".into(), snapshot.into()];
        arguments.extend([
            format!("--data-dir={data}"),
            format!("--name={name}"),
            format!("--initial-cluster={name}={peer_url}"),
            format!("--initial-cluster-token={}", self.token()),
            format!("--initial-advertise-peer-urls={peer_url}"),
        ]);
        if let Some(bump) = self.bump_revision {
            arguments.extend([format!("--bump-revision={bump}"), "--mark-compacted".into()]);
        }
        arguments
    }

    /// As etcd computes it for the members of a new cluster.
    pub fn member_id(&self) -> MemberId {
        MemberId(id(format!("{}{}", self.peer_url, self.token()).as_bytes()))
    }

    /// As etcd computes it for a new cluster with this one member.
    pub fn cluster_id(&self) -> ClusterId {
        ClusterId(id(&self.member_id().0.to_be_bytes()))
    }
}

fn id(of: &[u8]) -> u64 {
    let hash: [u8; 20] = Sha1::digest(of).into();
    let [a, b, c, d, e, f, g, h, ..] = hash;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restoration() -> Restoration {
        Restoration {
            protocol_version: Protocol::CURRENT,
            cluster_uid: "c".into(),
            restore_uid: "r".into(),
            name: "kv-0".into(),
            peer_url: "https://kv-0.kv-peer.ns.svc.cluster.local:2380".into(),
            bump_revision: Some(7),
        }
    }

    #[test]
    fn revisions_rise_only_with_a_bump_and_the_hash_is_never_skipped() {
        let with = restoration().arguments("s.db", "d").join(" ");
        assert!(with.ends_with("--bump-revision=7 --mark-compacted"), "{with}");
        let without = Restoration { bump_revision: None, ..restoration() }.arguments("s.db", "d").join(" ");
        assert!(!without.contains("revision") && !without.contains("compacted"), "{without}");
        assert!(!with.contains("skip-hash-check") && !without.contains("skip-hash-check"));
    }

    #[test]
    fn revisions_rise_above_everything_that_is_known_of_the_source() {
        let bump = |highest| restoration().above(100, highest).bump_revision;
        assert_eq!((bump(None), bump(Some(90)), bump(Some(100))), (Some(7), Some(7), Some(7)));
        assert_eq!(bump(Some(160)), Some(67));
        let without = Restoration { bump_revision: None, ..restoration() };
        assert_eq!(without.above(100, Some(160)).bump_revision, None);
    }

    /// Those that a first etcd on anybody's machine has.
    #[test]
    fn ids_are_those_that_etcd_computes() {
        let restoration = Restoration {
            cluster_uid: "etcd".into(),
            restore_uid: "cluster".into(),
            peer_url: "http://localhost:2380".into(),
            ..restoration()
        };
        let ids = (restoration.member_id().to_string(), restoration.cluster_id().to_string());
        assert_eq!(ids, ("8e9e05c52164694d".into(), "cdf818194e3a8c32".into()));
    }

    #[test]
    fn a_second_restore_of_the_same_name_is_another_cluster() {
        let first = restoration();
        let second = Restoration { restore_uid: "r2".into(), ..restoration() };
        assert_ne!((first.token(), first.member_id()), (second.token(), second.member_id()));
    }
}
