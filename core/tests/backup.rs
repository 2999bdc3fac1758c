//! The formats that operators, the program `etcd-backup` and stores exchange (ADR 27, ADR 50). `backup/vN` has each of them
//! as format version N writes it; what has landed there never changes, and every later version reads it.
//!
//! After a change of a format: raise `FormatVersion::CURRENT`, and let `UPDATE_WIRE=1` write the new folder.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{env, fs};

use etcd_operator_core::backup::inputs::{Etcd, Inputs, Place, Store, Tls};
use etcd_operator_core::backup::layout::{CopyName, Layout, cluster_id, data_file};
use etcd_operator_core::backup::manifest::{
    Auth, Compression, Data, Encryption, FORMAT, HashKv, Manifest, Member, READABLE_FROM, Revisions,
    Snapshot, Verification,
};
use etcd_operator_core::backup::report::{Done, Failure, Outcome, Problem, Reason, Report, Summary};
use etcd_operator_core::backup::retention::Retention;
use etcd_operator_core::backup::segment::{self, Body, Segment, Times};
use etcd_operator_core::backup::{FormatVersion, Word};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const CURRENT: u32 = FormatVersion::CURRENT.0;
const CLUSTER: &str = "cdf818194e3a8c32";

type Files = BTreeMap<String, String>;

#[expect(clippy::disallowed_methods, reason = "the switch of a test, not an input of a decision")]
fn update() -> bool {
    env::var_os("UPDATE_WIRE").is_some()
}

fn folder(version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/backup/v{version}"))
}

fn recorded(version: u32) -> Files {
    let entries = fs::read_dir(folder(version)).unwrap_or_else(|error| panic!("v{version}: {error}"));
    let read = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path()).expect("a text");
        (entry.file_name().to_string_lossy().into_owned(), text)
    };
    entries.flatten().map(read).collect()
}

fn at(seconds: i64) -> Timestamp {
    let started: Timestamp = "2026-11-18T02:03:04Z".parse().expect("a time");
    started + jiff::SignedDuration::from_secs(seconds)
}

fn name() -> CopyName {
    CopyName::new(at(0), 0x0123_4567_89ab_cdef)
}

fn manifest() -> Manifest {
    Manifest {
        format: FORMAT.into(),
        format_version: FormatVersion::CURRENT,
        readable_from: READABLE_FROM,
        program_version: "0.1.0".into(),
        name: name(),
        cluster_id: CLUSTER.into(),
        started_at: at(0),
        completed_at: at(9),
        etcd_version: "3.6.16".into(),
        member_id: "8e9e05c52164694d".into(),
        members: vec![Member {
            id: "8e9e05c52164694d".into(),
            name: "kv-0".into(),
            peer_urls: vec!["https://kv-0.kv-peer.ns.svc.cluster.local:2380".into()],
            learner: false,
        }],
        auth: Auth::Disabled.into(),
        revision: Revisions { lowest: 1203, highest: 1207 },
        hash_kv: Some(HashKv { hash: 3_735_928_559, revision: 1203, compact_revision: 1000 }),
        snapshot: Snapshot { bytes: 20_512, sha256: "a".repeat(64) },
        data: Data {
            file: data_file(&name(), Compression::Zstd, Encryption::Age),
            bytes: 4711,
            sha256: "b".repeat(64),
            compression: Compression::Zstd.into(),
            encryption: Encryption::Age.into(),
            recipients: vec!["age1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqs0pf4q".into()],
        },
        verification: Verification::ReadBack.into(),
    }
}

fn segment() -> Segment {
    let data = manifest().data;
    Segment {
        format: segment::FORMAT.into(),
        format_version: FormatVersion::CURRENT,
        readable_from: segment::READABLE_FROM,
        program_version: "0.1.0".into(),
        cluster_id: CLUSTER.into(),
        etcd_version: "3.6.16".into(),
        first: 1204,
        last: 1300,
        chain_first: 1000,
        previous: Some("c".repeat(64)),
        tip: "d".repeat(64),
        times: Times { first: at(10), last: at(14), exact_since: Some(at(9)), confirmed: Some(at(15)) },
        body: Body {
            bytes: 4000,
            sha256: "e".repeat(64),
            content_bytes: 5000,
            compression: data.compression,
            encryption: data.encryption,
            recipients: data.recipients,
        },
    }
}

fn inputs(place: Place) -> Inputs {
    let tls = Tls {
        ca_file: "/tls/ca.crt".into(),
        cert_file: "/tls/tls.crt".into(),
        key_file: "/tls/tls.key".into(),
    };
    Inputs {
        format_version: FormatVersion::CURRENT,
        store: Store {
            place,
            path: "prod/etcd".into(),
            ca_file: Some("/ca/ca.crt".into()),
            credentials_directory: Some("/credentials".into()),
            retry_seconds: 60,
        },
        etcd: Some(Etcd { endpoints: vec!["https://kv-0.kv-peer.ns.svc:2379".into()], tls: Some(tls) }),
        cluster_id: Some(CLUSTER.into()),
        compression: Compression::Zstd,
        recipients: manifest().data.recipients,
        verification: Verification::ReadBack,
        retention: Retention {
            max_copies: Some(7),
            max_age_seconds: Some(2_592_000),
            needed: [name()].into(),
            damaged: [name()].into(),
        },
    }
}

fn report(outcome: Outcome) -> Report {
    Report { format_version: FormatVersion::CURRENT, program_version: "0.1.0".into(), outcome }
}

/// The next verb in the list. A new one gets its place here.
fn done_after(done: Option<&Done>) -> Option<Done> {
    let copy = Summary::from(&manifest());
    let names = || vec![name()];
    Some(match done {
        None => Done::Probe { conditional_puts: true },
        Some(Done::Probe { .. }) => Done::Take { copy },
        Some(Done::Take { .. }) => Done::List {
            copies: vec![copy],
            unreadable: vec![Problem { name: name(), message: "text".into() }],
            next: Some(name()),
        },
        Some(Done::List { .. }) => Done::Clusters { cluster_ids: vec![CLUSTER.into()], count: 1 },
        Some(Done::Clusters { .. }) => Done::Verify { name: name(), content: true },
        Some(Done::Verify { .. }) => Done::Delete { deleted: names(), deleted_count: 1 },
        Some(Done::Delete { .. }) => {
            let (deleted, segments_deleted) = (names(), 5);
            Done::Prune {
                deleted,
                deleted_count: 1,
                kept: 2,
                unreadable: 3,
                without_manifest: 4,
                segments_deleted,
            }
        }
        Some(Done::Prune { .. }) => Done::Fetch { copy },
        Some(Done::Fetch { .. }) => Done::Archive { archived: 1300, segments: 5, copy_due: false },
        Some(Done::Archive { .. }) => Done::Replay { copy, revision: 1250, replayed: 46 },
        Some(Done::Replay { .. }) => return None,
    })
}

/// Everything that this version writes.
fn today() -> Files {
    let places = [
        (
            "s3",
            Place::S3 {
                bucket: "b".into(),
                region: Some("eu-central-1".into()),
                endpoint: Some("https://s3.example.com".into()),
                force_path_style: Some(true),
            },
        ),
        ("gcs", Place::Gcs { bucket: "b".into(), endpoint: Some("https://gcs.example.com".into()) }),
        (
            "azure",
            Place::Azure {
                account: "a".into(),
                container: "c".into(),
                endpoint: Some("https://azure.example.com".into()),
            },
        ),
        ("local", Place::Local { directory: "/backup".into() }),
    ];
    let mut files: Files = places
        .into_iter()
        .map(|(kind, place)| (format!("inputs-{kind}.json"), text(&inputs(place))))
        .collect();
    files.insert("manifest.json".into(), manifest().render());
    files.insert("segment.json".into(), segment().render());
    let failure = Failure { reason: Reason::StoreDenied.into(), message: "text".into() };
    files.insert("report-failed.json".into(), text(&report(Outcome::Failed(failure))));
    let mut done = done_after(None);
    while let Some(it) = done {
        let value = serde_json::to_value(&it).expect("JSON");
        let verb = value["verb"].as_str().expect("it has a verb").to_owned();
        done = done_after(Some(&it));
        files.insert(format!("report-{verb}.json"), text(&report(Outcome::Succeeded(it))));
    }
    files
}

fn text(message: &impl Serialize) -> String {
    format!("{}\n", serde_json::to_string(message).expect("text and numbers are always JSON"))
}

/// As this version understands it, as JSON again.
fn understood(file: &str, text: &str) -> Value {
    fn through<T: DeserializeOwned + Serialize>(text: &str) -> Value {
        let message: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        serde_json::to_value(message).expect("it was JSON")
    }
    match file.split(['.', '-']).next() {
        Some("manifest") => through::<Manifest>(text),
        Some("segment") => through::<Segment>(text),
        Some("inputs") => through::<Inputs>(text),
        Some("report") => through::<Report>(text),
        _ => panic!("nothing is called {file}"),
    }
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
    assert_eq!(recorded(CURRENT), today, "see the head of this file");
    assert!(!folder(CURRENT + 1).exists(), "there is a folder for a version that this is not");
}

#[test]
fn what_any_version_wrote_is_read_and_nothing_of_it_is_lost() {
    for version in 1..=CURRENT {
        for (name, text) in recorded(version) {
            let (old, new) = (parsed(&text), understood(&name, &text));
            let fields = old.as_object().expect("an object");
            let lost: Vec<_> = fields.iter().filter(|(field, value)| new.get(field) != Some(value)).collect();
            assert!(lost.is_empty(), "v{version}/{name} loses {lost:?}");
        }
        let layout = Layout::new("", cluster_id(CLUSTER).expect("an ID"));
        let manifest = recorded(version).remove("manifest.json").expect("it has one");
        Manifest::read(manifest.as_bytes(), &name(), &layout)
            .expect("a copy of every version can be restored");
    }
}

#[test]
fn fields_that_a_later_version_adds_do_not_matter() {
    for (name, text) in today() {
        let mut later = parsed(&text);
        later["fieldOfALaterVersion"] = Value::from(["value"].as_slice());
        assert_eq!(understood(&name, &later.to_string()), parsed(&text), "{name}");
    }
}

#[test]
fn a_reason_of_a_later_version_is_a_value_of_its_own() {
    let text = recorded(CURRENT)
        .remove("report-failed.json")
        .expect("it is there")
        .replace("StoreDenied", "StoreTired");
    let report: Report = serde_json::from_str(&text).expect("it is read");
    let Outcome::Failed(failure) = report.outcome else { panic!("{text}") };
    assert_eq!(failure.reason, Word::Unknown("StoreTired".into()));
}
