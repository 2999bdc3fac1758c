//! `etcd-operator replay`: what the operator logged, read again.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use etcd_operator_core::decide::{Goal, OnDelete};
use etcd_operator_core::observed::Observed;
use etcd_operator_core::snapshot::Snapshot;

fn replay(log: &str) -> Output {
    let mut operator = Command::new(env!("CARGO_BIN_EXE_etcd-operator"));
    operator.args(["replay", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = operator.spawn().expect("it runs");
    running.stdin.take().expect("a pipe").write_all(log.as_bytes()).expect("it reads");
    running.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// A line as the operator logs it.
fn line(snapshot: &str) -> String {
    let (object, message) = ("EtcdCluster ns/kv", "observed");
    serde_json::json!({"level": "DEBUG", "message": message, "object": object, "snapshot": snapshot})
        .to_string()
}

/// Of a cluster that does not exist yet.
fn snapshot() -> String {
    let goal = Goal { on_delete: OnDelete::Delete, ..Goal::of_size(3) };
    let observed = Observed::nothing_of("uid");
    serde_json::to_string(&Snapshot { goal, observed }).expect("plain data")
}

#[test]
fn every_observation_in_a_log_is_assessed_and_planned_again() {
    let other = r#"{"level":"INFO","message":"step done"}"#;
    let log = format!("{other}\n{}\n{other}\n{}\n", line(&snapshot()), line(&snapshot()));
    let replayed = replay(&log);
    let once = "EtcdCluster ns/kv at 1970-01-01T00:00:00Z\n\
                goal: size 3, on stop Retain, on delete Delete\n\
                quorum: the cluster has not bootstrapped\n\
                do: prepare the bootstrap of 3 pods\n";
    assert_eq!(text(&replayed.stdout), format!("{once}\n{once}"), "{}", text(&replayed.stderr));
}

#[test]
fn what_cannot_be_replayed_is_explained() {
    let malformed = line(r#"{"goal":{"size":3}}"#);
    for (log, problem) in [
        ("", "has no observation: the operator logs them with --log="),
        (r#"{"message":"step done"}"#, "has no observation"),
        ("no JSON at all", "is not the JSON that the operator logs"),
        (
            malformed.as_str(),
            "cannot read observation 1 of -: another version might have logged it: missing field",
        ),
    ] {
        let replayed = replay(log);
        let complaint = text(&replayed.stderr);
        assert!(!replayed.status.success() && complaint.contains(problem), "{log}: {complaint}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let replayed = Command::new(env!("CARGO_BIN_EXE_etcd-operator")).args(["replay", "absent.json"]).output();
    let complaint = replayed.expect("it runs").stderr;
    assert!(text(&complaint).starts_with("error: cannot read absent.json: "), "{}", text(&complaint));
}
