//! Whoever reads what the program prints may leave early, as in `generate crds | head`.

use std::process::Command;

#[test]
fn nobody_has_to_read_what_is_printed() {
    for command in ["crds", "api-reference"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut generate = Command::new(env!("CARGO_BIN_EXE_generate"));
        let ran = generate.arg(command).stdout(writer).output().expect("it runs");
        let complaint = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && complaint.is_empty(), "{command}: {}: {complaint}", ran.status);
    }
}
