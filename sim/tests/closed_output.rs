//! Whoever reads what the simulation prints may leave early, as in `etcd-operator-sim --seed 1 --trace | head`.

use std::process::Command;

#[test]
fn who_reads_no_further_hears_no_complaint() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut sim = Command::new(env!("CARGO_BIN_EXE_etcd-operator-sim"));
    let ran = sim.args(["--seed", "1"]).stdout(writer).output().expect("it runs");
    let complaint = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(1) && complaint.is_empty(), "{}: {complaint}", ran.status);
}
