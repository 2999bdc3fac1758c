//! Everything that can change a key, and what etcd itself reports of it.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_client::{
    Client, DeleteOptions, EventType, GetOptions, LeaseGrantOptions, PutOptions, Txn, TxnOp, WatchOptions,
};
use etcd_operator_core::backup::layout::{Layout, cluster_id, first_in_segment_file};
use etcd_operator_core::backup::segment::Segment;
use prost::Message;
use prost::bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::cluster::{Cluster, until};

/// As etcd's events have it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    pub key: Vec<u8>,
    /// None for a delete.
    pub put: Option<Put>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Put {
    /// Values are compared by length and hash, which keeps failures readable.
    pub value: (usize, Vec<u8>),
    pub lease: i64,
    pub version: i64,
    pub create_revision: i64,
}

/// The changes of each revision, in order.
pub type Revisions = BTreeMap<i64, Vec<Change>>;

/// Numbers that look random, and are the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn digest(value: &[u8]) -> (usize, Vec<u8>) {
    (value.len(), Sha256::digest(value).to_vec())
}

/// Some changes of every kind. Returns when etcd has acknowledged them.
pub async fn write(client: &mut Client, random: &mut Random, count: usize) {
    // A leader that is lost takes requests with it.
    let lease = loop {
        match client.lease_grant(3600, None).await {
            Ok(granted) => break granted.id(),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    for _ in 0..count {
        let key = format!("key-{:02}", random.below(40));
        let value = vec![b'v'; random.below(2_000) as usize];
        let result = match random.below(10) {
            0 => client.delete(key, None).await.map(drop),
            1 => {
                let end = format!("key-{:02}", random.below(40));
                client.delete(key, Some(DeleteOptions::new().with_range(end))).await.map(drop)
            }
            2 => {
                let other = format!("other-{:02}", random.below(40));
                let operations = [
                    TxnOp::put(key, value.clone(), None),
                    TxnOp::put(other.clone(), value, Some(PutOptions::new().with_lease(lease))),
                    TxnOp::delete(format!("{other}-"), Some(DeleteOptions::new().with_prefix())),
                ];
                client.txn(Txn::new().and_then(operations)).await.map(drop)
            }
            3 => client.put(key, value, Some(PutOptions::new().with_lease(lease))).await.map(drop),
            _ => client.put(key, value, None).await.map(drop),
        };
        if result.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// What is large or takes time: values of 1.5 MB, a delete of 10,000 keys, and a lease that expires.
pub async fn write_extremes(client: &mut Client) {
    for number in 0..3 {
        client.put(format!("large-{number}"), vec![b'0' + number; 1_500_000], None).await.expect("written");
    }
    for chunk in 0..100 {
        let puts = (0..100).map(|it| TxnOp::put(format!("many-{chunk:02}-{it:02}"), "x", None));
        client.txn(Txn::new().and_then(puts.collect::<Vec<_>>())).await.expect("written");
    }
    let short = client.lease_grant(2, None).await.expect("a lease").id();
    for number in 0..5 {
        let with = PutOptions::new().with_lease(short);
        client.put(format!("short-{number}"), "x", Some(with)).await.expect("written");
    }
    let all = DeleteOptions::new().with_prefix();
    assert_eq!(client.delete("many-", Some(all)).await.expect("deleted").deleted(), 10_000);
    let prefix = || Some(GetOptions::new().with_prefix().with_count_only());
    let client = client.clone();
    until("a lease to expire", async || {
        client.clone().get("short-", prefix()).await.is_ok_and(|found| found.count() == 0)
    })
    .await;
}

/// A lease that outlives the test, with an ID of its own.
pub async fn grant(client: &mut Client, id: i64, ttl: i64) {
    client.lease_grant(ttl, Some(LeaseGrantOptions::new().with_id(id))).await.expect("a lease");
}

/// As etcd reports it, up to its current revision.
pub async fn history(cluster: &Cluster, ordinal: u8) -> Revisions {
    let mut client = cluster.client(ordinal).await;
    let last = client.get("x", None).await.expect("it serves").header().expect("it has one").revision();
    let options = WatchOptions::new().with_all_keys().with_start_revision(2);
    let mut watching = client.watch_client().max_decoding_message_size(1 << 30);
    let mut watch = watching.watch("", Some(options)).await.expect("a watch");
    let mut revisions = Revisions::new();
    while revisions.last_key_value().is_none_or(|(revision, _)| *revision < last) && last > 1 {
        let response = watch.message().await.expect("a response").expect("it goes on");
        assert!(!response.canceled(), "{}", response.cancel_reason());
        for event in response.events() {
            let pair = event.kv().expect("a key");
            let put = (event.event_type() == EventType::Put).then(|| Put {
                value: digest(pair.value()),
                lease: pair.lease(),
                version: pair.version(),
                create_revision: pair.create_revision(),
            });
            let changes = revisions.entry(pair.mod_revision()).or_default();
            changes.push(Change { key: pair.key().to_vec(), put });
        }
    }
    revisions
}

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(int64, tag = "1")]
    revision: i64,
    #[prost(int64, tag = "2")]
    received: i64,
    #[prost(message, repeated, tag = "3")]
    changes: Vec<RecordedChange>,
    #[prost(message, repeated, tag = "4")]
    leases: Vec<RecordedLease>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RecordedChange {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
    #[prost(bool, tag = "3")]
    is_delete: bool,
    #[prost(int64, tag = "4")]
    lease: i64,
    #[prost(int64, tag = "5")]
    pub version: i64,
    #[prost(int64, tag = "6")]
    create_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
struct RecordedLease {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(int64, tag = "2")]
    ttl: i64,
}

/// What a store has, if it is neither compressed nor encrypted.
#[derive(Default)]
pub struct Archived {
    pub segments: Vec<Segment>,
    pub revisions: Revisions,
    pub leases: BTreeMap<i64, i64>,
    /// When each revision was received, in milliseconds.
    pub received: BTreeMap<i64, i64>,
}

/// Reads every segment of a folder, and checks that it is what its head says.
pub fn archived(folder: &std::path::Path, cluster: &str) -> Archived {
    let layout = Layout::new("prod", cluster_id(cluster).expect("an ID"));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .filter_map(|it| Some((first_in_segment_file(&it.file_name().to_string_lossy())?, it.path())))
        .collect();
    files.sort();
    let (mut all, mut previous) = (Archived::default(), None::<(i64, String)>);
    for (first, path) in files {
        let object = std::fs::read(path).expect("a segment");
        let (segment, head) = Segment::read(&object, first, &layout).expect("it is one of ours");
        if segment.chain_first != segment.first {
            let (last, sha256) = previous.expect("a chain begins before");
            assert_eq!((segment.first, &segment.previous), (last + 1, &Some(sha256)));
        }
        let mut content = Bytes::from(object[head..].to_vec());
        let mut expected = segment.first;
        while !content.is_empty() {
            let record = Record::decode_length_delimited(&mut content).expect("a record");
            all.leases.extend(record.leases.iter().map(|lease| (lease.id, lease.ttl)));
            if record.revision == 0 {
                continue;
            }
            assert_eq!(record.revision, expected);
            expected += 1;
            all.received.insert(record.revision, record.received);
            let changes = record.changes.into_iter().map(|it| Change {
                key: it.key.to_vec(),
                put: (!it.is_delete).then(|| Put {
                    value: digest(&it.value),
                    lease: it.lease,
                    version: it.version,
                    create_revision: it.create_revision,
                }),
            });
            all.revisions.insert(record.revision, changes.collect());
        }
        assert_eq!(expected, segment.last + 1);
        previous = Some((segment.last, object_hash(&object)));
        all.segments.push(segment);
    }
    all
}

/// Changes what a segment has, and adapts its head, as somebody could who can write to the store.
pub fn tamper(path: &std::path::Path, change: impl Fn(&mut Vec<RecordedChange>)) {
    let object = std::fs::read(path).expect("a segment");
    let end = object.iter().position(|byte| *byte == b'\n').expect("it has a head");
    let mut head: serde_json::Value = serde_json::from_slice(&object[..end]).expect("JSON");
    let (mut content, mut body) = (Bytes::from(object[end + 1..].to_vec()), Vec::new());
    while !content.is_empty() {
        let mut record = Record::decode_length_delimited(&mut content).expect("a record");
        change(&mut record.changes);
        record.encode_length_delimited(&mut body).expect("a vector has room");
    }
    head["body"]["bytes"] = body.len().into();
    head["body"]["sha256"] = object_hash(&body).into();
    head["tampered"] = true.into();
    let mut object = format!("{head}\n").into_bytes();
    object.extend_from_slice(&body);
    std::fs::write(path, object).expect("written");
}

fn object_hash(object: &[u8]) -> String {
    Sha256::digest(object).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub struct Keys {
    pub revision: i64,
    /// With the revision of the last change of each.
    pub keys: Vec<(Vec<u8>, i64, Put)>,
}

/// All keys as they were at a revision; 0 is now.
pub async fn keys(client: &mut Client, revision: i64) -> Keys {
    let options = GetOptions::new().with_all_keys().with_revision(revision);
    let mut reading = client.kv_client().max_decoding_message_size(1 << 30);
    let all = reading.get("", Some(options)).await.expect("all keys");
    let key = |pair: &etcd_client::KeyValue| {
        let put = Put {
            value: digest(pair.value()),
            lease: pair.lease(),
            version: pair.version(),
            create_revision: pair.create_revision(),
        };
        (pair.key().to_vec(), pair.mod_revision(), put)
    };
    let revision = all.header().expect("it has one").revision();
    Keys { revision, keys: all.kvs().iter().map(key).collect() }
}
