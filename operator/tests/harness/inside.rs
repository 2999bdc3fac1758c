//! Into namespaces of our own: the same program again, once everything is built that it needs.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Set inside.
const MARK: &str = "ETCD_OPERATOR_HARNESS";
/// All of it leads to this machine inside. The API server takes no loopback addresses for pods.
const NETWORK: &str = "10.128.0.0/9";
/// In memory, private to us, and gone with us.
const SCRATCH: &str = "/var/tmp";
/// Before 3.6, one learner is accepted at a time.
pub const ONE_LEARNER: &str = "3.5.21";
pub const TWO_LEARNERS: &str = "3.6.16";
/// The newest patch of the first.
pub const PATCHED: &str = "3.5.35";
pub const NEWEST: &str = "3.7.3";
pub const VERSIONS: [&str; 4] = [ONE_LEARNER, PATCHED, TWO_LEARNERS, NEWEST];

pub fn is() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Builds what needs the network of the machine, and runs this program again inside.
pub fn enter(needs_cert_manager: bool) -> ExitCode {
    build(needs_cert_manager);
    let program = std::env::current_exe().expect("a program has a path");
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let status = command.arg("--").arg(program).args(std::env::args_os().skip(1)).env(MARK, "1").status();
    match status.expect("unshare runs").success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn build(needs_cert_manager: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(testbed::build::ensure_base()).expect("Kubernetes is built");
    runtime.block_on(testbed::build::ensure_versitygw()).expect("the S3 server is built");
    for version in VERSIONS {
        runtime.block_on(testbed::build::ensure_etcd(version)).expect("etcd is built");
    }
    if needs_cert_manager {
        runtime.block_on(testbed::build::ensure_cert_manager()).expect("cert-manager is built");
    }
    let mut cargo = Command::new(env!("CARGO"));
    // The same selection of packages as in the Makefile, so that nothing is compiled twice.
    cargo.args([
        "build",
        "--quiet",
        "--locked",
        "--workspace",
        "--bin",
        "etcd-agent",
        "--bin",
        "etcd-backup",
    ]);
    cargo.arg("--target-dir");
    let built = cargo.arg(target()).current_dir(root()).status().expect("cargo runs");
    assert!(built.success(), "agent or backup program are not built");
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// This program is `target/debug/deps/harness-...`.
fn target() -> PathBuf {
    let program = std::env::current_exe().expect("a program has a path");
    program.ancestors().nth(3).expect("it is three folders below").to_owned()
}

/// One of ours.
pub fn program(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

/// Addresses, scratch space and a file of names.
pub fn furnish() {
    run(&["ip", "link", "set", "lo", "up"]);
    run(&["ip", "route", "add", "local", NETWORK, "dev", "lo"]);
    run(&["mount", "-t", "tmpfs", "tmpfs", SCRATCH]);
    let hosts = hosts();
    std::fs::write(&hosts, "127.0.0.1 localhost\n").expect("a file");
    run(&["mount", "--bind", &hosts.display().to_string(), "/etc/hosts"]);
}

fn hosts() -> PathBuf {
    Path::new(SCRATCH).join("hosts")
}

/// The address of a pod, by the number of its run: always the same, and known by its name from the beginning.
pub fn address(run: u16, ordinal: u8) -> Ipv4Addr {
    let [high, low] = run.to_be_bytes();
    Ipv4Addr::new(10, 128 + high, low, 1 + ordinal)
}

/// Pods are known by these names before they start: etcd reads the file only every few seconds. The agent puts a dot
/// behind them, and the C library takes that for another name.
pub fn add_names(names: &[(Ipv4Addr, String)]) {
    let mut text = std::fs::read_to_string(hosts()).expect("it was written");
    for (address, name) in names {
        text.push_str(&format!("{address} {name} {name}.\n"));
    }
    std::fs::write(hosts(), text).expect("it can be written");
}

fn run(words: &[&str]) {
    let status = Command::new(words[0]).args(&words[1..]).status().expect("the program is installed");
    assert!(status.success(), "{words:?} failed");
}
