//! Operators and agents of different versions exchange messages and files (ADR 27). `wire/vN` has each of them as protocol
//! version N writes it; what has landed there never changes.
//!
//! After a change of a format, and for a new reason to wait: raise `Protocol::CURRENT`, and let `UPDATE_WIRE=1` write the
//! new folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::{env, fs, iter};

use etcd_operator_core::agent::{News, Protocol, Reason, Report};
use etcd_operator_core::etcd_config::{AutoCompaction, MemberConfig, MemberOptions};
use etcd_operator_core::order::BootstrapOrder;
use etcd_operator_core::recovery::{ForcedStart, RecoveryOrder};
use etcd_operator_core::start::{Identity, Waiting};
use etcd_operator_core::tls::{ClientPort, PeerPort, Transport};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const CURRENT: u32 = Protocol::CURRENT.0;

/// Texts by the name of their file.
type Files = BTreeMap<String, String>;

#[expect(clippy::disallowed_methods, reason = "the switch of a test, not an input of a decision")]
fn update() -> bool {
    env::var_os("UPDATE_WIRE").is_some()
}

fn folder(version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/wire/v{version}"))
}

fn files(version: u32) -> Files {
    let entries = fs::read_dir(folder(version)).unwrap_or_else(|error| panic!("v{version}: {error}"));
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.expect("a directory entry").path();
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).expect("a text"))
    };
    entries.map(read).collect()
}

/// The next reason in the list. A new reason gets its place here.
fn reason_after(waiting: &Waiting) -> Option<Waiting> {
    let (text, list) = (|| "text".to_owned(), || vec!["kv-1".to_owned(), "kv-2".to_owned()]);
    Some(match waiting {
        Waiting::Looking => Waiting::DataLost { member: text() },
        Waiting::DataLost { .. } => Waiting::NeverPublished { member: text() },
        Waiting::NeverPublished { .. } => Waiting::NotAMember,
        Waiting::NotAMember => Waiting::NoQuorum,
        Waiting::NoQuorum => Waiting::ClustersDisagree { clusters: list() },
        Waiting::ClustersDisagree { .. } => Waiting::Turn { before: list() },
        Waiting::Turn { .. } => Waiting::Names { astray: list() },
        Waiting::Names { .. } => Waiting::Fetching { applied: 1, wanted: 2 },
        Waiting::Fetching { .. } => Waiting::NoOrder,
        Waiting::NoOrder => Waiting::MalformedOrder { error: text() },
        Waiting::MalformedOrder { .. } => Waiting::OrderForOthers { why: text() },
        Waiting::OrderForOthers { .. } => Waiting::OrderNotArmed,
        Waiting::OrderNotArmed => Waiting::OrderVoid { nonce: text() },
        Waiting::OrderVoid { .. } => Waiting::OrderUsed { nonce: text() },
        Waiting::OrderUsed { .. } => Waiting::PeersMissing { missing: list() },
        Waiting::PeersMissing { .. } => Waiting::FirstStarter { first: text() },
        Waiting::FirstStarter { .. } => Waiting::OthersNotReady { others: list() },
        Waiting::OthersNotReady { .. } => Waiting::Certificates { error: text() },
        Waiting::Certificates { .. } => return None,
    })
}

fn report(waiting: Waiting) -> Report {
    Report {
        protocol_version: Protocol::CURRENT,
        cluster_uid: "uid-1".into(),
        name: "kv-1".into(),
        peer_url: "http://kv-1.kv-peer.ns.svc.cluster.local:2380".into(),
        ever_started: true,
        message: "text".into(),
        waiting: Reason::Known(waiting),
        since: Timestamp::UNIX_EPOCH,
    }
}

fn order() -> BootstrapOrder {
    let members =
        ["kv-0", "kv-1"].map(|pod| (pod.into(), format!("http://{pod}.kv-peer.ns.svc.cluster.local:2380")));
    BootstrapOrder {
        protocol_version: Protocol::CURRENT,
        cluster_uid: "uid-1".into(),
        attempt: 1,
        armed: true,
        nonce: "uid-2".into(),
        members: members.into(),
    }
}

fn member_config() -> MemberConfig {
    MemberConfig {
        version: "3.6.16".into(),
        cluster_uid: "uid-1".into(),
        peer_host: "kv-peer.ns.svc.cluster.local".into(),
        attempt: Some(1),
        adopts: Some("uid-0".into()),
        transport: Transport::TLS,
        plain_peers: false,
        options: MemberOptions {
            quota_backend_bytes: Some(8_589_934_592),
            auto_compaction: Some(AutoCompaction::Periodic("8h".into())),
            snapshot_count: Some(10_000),
            heartbeat_interval_milliseconds: Some(100),
            election_timeout_milliseconds: Some(1000),
            extra_arguments: [("max-request-bytes".into(), "2097152".into())].into(),
        },
    }
}

/// Everything that this version writes.
fn today() -> Files {
    let addresses = vec!["10.0.0.1".parse().expect("an address"), "fd00::1".parse().expect("an address")];
    let identity = Identity {
        cluster_uid: "uid-1".into(),
        name: "kv-1".into(),
        used_nonces: BTreeSet::from(["uid-2".into()]),
        incarnation: Some("uid-2".into()),
    };
    let recovery = RecoveryOrder {
        protocol_version: Protocol::CURRENT,
        cluster_uid: "uid-1".into(),
        nonce: "uid-2".into(),
        start: Some(ForcedStart { survivor: "kv-1".into(), replaces: "uid-3".into() }),
    };
    let mut by_revision = member_config();
    by_revision.options.auto_compaction = Some(AutoCompaction::Revision("1000".into()));
    let (clients, peers) = (ClientPort::Both, PeerPort::Prepared);
    let switching = MemberConfig { transport: Transport { clients, peers }, ..member_config() };
    let mixed = MemberConfig { plain_peers: true, ..member_config() };
    let mut files = BTreeMap::from([
        ("config-prepared.json".into(), text(&switching)),
        ("config-mixed.json".into(), text(&mixed)),
        ("news.json".into(), text(&News { addresses, ..News::default() })),
        ("order.json".into(), format!("{}\n", order().render())),
        ("recovery.json".into(), format!("{}\n", recovery.render())),
        ("identity.json".into(), text(&identity)),
        ("config.json".into(), text(&member_config())),
        ("config-revision.json".into(), text(&by_revision)),
    ]);
    let reasons = iter::successors(Some(Waiting::Looking), reason_after);
    files.extend(reasons.map(|it| (format!("report-{}.json", it.reason()), text(&report(it)))));
    files
}

fn text(message: &impl Serialize) -> String {
    format!("{}\n", serde_json::to_string(message).expect("text and numbers are always JSON"))
}

/// The message as this version understands it, as JSON again.
fn read(file: &str, text: &str) -> Value {
    fn as_value<T: DeserializeOwned + Serialize>(file: &str, text: &str) -> Value {
        let message: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        serde_json::to_value(message).expect("it was JSON")
    }
    match file.split(['.', '-']).next() {
        Some("report") => as_value::<Report>(file, text),
        Some("news") => as_value::<News>(file, text),
        Some("order") => as_value::<BootstrapOrder>(file, text),
        Some("recovery") => as_value::<RecoveryOrder>(file, text),
        Some("identity") => as_value::<Identity>(file, text),
        Some("config") => as_value::<MemberConfig>(file, text),
        _ => panic!("no message is called {file}"),
    }
}

/// Fields of `old` that `new` lacks or has with another value.
fn lost(old: &Value, new: &Value) -> Vec<String> {
    let all = old.as_object().expect("an object").iter();
    all.filter(|(name, value)| new.get(name) != Some(value)).map(|(name, _)| name.clone()).collect()
}

/// The paths of all fields.
fn fields(value: &Value) -> BTreeSet<String> {
    let below = |(name, value): (&String, &Value)| {
        let inner = fields(value).into_iter().map(|inner| format!("{name}.{inner}")).collect::<Vec<_>>();
        iter::once(name.clone()).chain(inner).collect::<Vec<_>>()
    };
    value.as_object().into_iter().flatten().flat_map(below).collect()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("it is JSON")
}

#[test]
fn what_is_written_today_is_on_record() {
    let today = today();
    if update() && !folder(CURRENT).exists() {
        fs::create_dir(folder(CURRENT)).expect("a writable tree");
        for (name, text) in &today {
            fs::write(folder(CURRENT).join(name), text).expect("a writable tree");
        }
    }
    let recorded = files(CURRENT);
    let differing: Vec<&String> =
        today.iter().filter(|(name, text)| recorded.get(*name) != Some(text)).map(|(name, _)| name).collect();
    assert!(
        differing.is_empty(),
        "wire/v{CURRENT} has other texts or none for {differing:?}: see the head of this file"
    );
    assert!(
        recorded.keys().all(|name| today.contains_key(name)),
        "wire/v{CURRENT} has files that nothing writes"
    );
    assert!(!folder(CURRENT + 1).exists(), "there is a folder for a version that this is not");
}

#[test]
fn what_any_version_wrote_is_read_and_nothing_of_it_is_lost() {
    for version in 1..=CURRENT {
        for (name, text) in files(version) {
            let understood = read(&name, &text);
            let lost = lost(&parsed(&text), &understood);
            assert!(lost.is_empty(), "v{version}/{name} loses {lost:?}");
            let of_version = understood.get("protocolVersion").is_none_or(|number| *number == version);
            assert!(of_version, "v{version}/{name} is read as {understood}");
        }
    }
}

#[test]
fn no_reason_of_any_version_is_unknown() {
    for version in 1..=CURRENT {
        for (name, text) in files(version).into_iter().filter(|(name, _)| name.starts_with("report")) {
            let report: Report = serde_json::from_str(&text).expect("a report");
            assert!(matches!(report.waiting, Reason::Known(_)), "v{version}/{name}");
        }
    }
}

/// An agent that requires a field takes a message without it for malformed.
#[test]
fn no_version_drops_a_message_or_a_field() {
    for version in 2..=CURRENT {
        let later = files(version);
        for (name, text) in files(version - 1) {
            let now = later.get(&name).unwrap_or_else(|| panic!("v{version} has no {name}"));
            let dropped: Vec<_> = fields(&parsed(&text)).difference(&fields(&parsed(now))).cloned().collect();
            assert!(dropped.is_empty(), "v{version}/{name} has no {dropped:?}");
        }
    }
}

#[test]
fn fields_that_a_later_version_adds_do_not_matter() {
    for (name, text) in today() {
        let mut later = parsed(&text);
        later["fieldOfALaterVersion"] = Value::from(["value"].as_slice());
        assert_eq!(read(&name, &later.to_string()), parsed(&text), "{name}");
    }
}
