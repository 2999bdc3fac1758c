//! Whoever reads what `testbed` prints may leave early, as in `testbed status | head`.

use std::process::Command;

/// Whatever is up on this machine does not matter here.
const NOTHING_IS_UP: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/no-testbed");

#[test]
fn nobody_has_to_read_what_is_printed() {
    for command in ["status", "kubeconfig"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut testbed = Command::new(env!("CARGO_BIN_EXE_testbed"));
        testbed.arg(command).env("TESTBED_ROOT", NOTHING_IS_UP).stdout(writer);
        let ran = testbed.output().expect("it runs");
        let complaint = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && complaint.is_empty(), "{command}: {}: {complaint}", ran.status);
    }
}
