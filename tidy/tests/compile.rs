//! `hack/compile` hides cargo's list of crates, and nothing that matters.

use std::process::{Command, Output};

use etcd_operator_tidy::root;

const CARGO: &str = "echo '   Compiling serde v1.0' >&2; echo 'error: no such field' >&2; exit $0";

fn run(status: &str, verbose: &str) -> Output {
    let mut command = Command::new(root().join("hack/compile"));
    command.args(["bash", "-c", CARGO, status]).env("V", verbose);
    command.output().expect("bash runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_compilation_that_succeeds_prints_nothing() {
    let output = run("0", "");
    assert!(output.status.success() && output.stdout.is_empty());
    assert_eq!(said(&output), "");
}

#[test]
fn a_failure_shows_its_errors_without_the_crates_and_keeps_its_status() {
    let output = run("101", "");
    assert_eq!(output.status.code(), Some(101));
    assert_eq!(said(&output), "error: no such field\n");
}

#[test]
fn everything_is_shown_on_request() {
    assert_eq!(said(&run("0", "1")), "   Compiling serde v1.0\nerror: no such field\n");
}
