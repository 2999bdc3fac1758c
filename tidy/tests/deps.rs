//! `hack/deps` on machines that lack one thing each, made of stand-in programs: it installs what it can, and says what
//! to do where it cannot.

#[path = "deps/machine.rs"]
mod machine;

use std::collections::BTreeSet;

use etcd_operator_tidy::{files, output, read, root, shown};
use machine::{Machine, Outcome};

const MUSL: &str = "x86_64-unknown-linux-musl";

/// What rust-toolchain.toml pins.
fn channel() -> String {
    let text = read(&root().join("rust-toolchain.toml"));
    let line = text.lines().find_map(|line| line.strip_prefix("channel = "));
    line.expect("a channel is pinned").trim_matches('"').to_owned()
}

fn assert_installed(outcome: &Outcome, calls: &[&str]) {
    assert!(outcome.passed, "{}", outcome.said);
    assert_eq!(outcome.calls, calls, "{}", outcome.said);
}

/// Nothing is installed; every one of the texts is part of what is printed.
fn assert_refused(outcome: &Outcome, texts: &[&str]) {
    assert!(!outcome.passed, "{}", outcome.said);
    for text in texts {
        assert!(outcome.said.contains(text), "no {text:?} in:\n{}", outcome.said);
    }
}

#[test]
fn nothing_is_printed_or_changed_when_nothing_is_missing() {
    let outcome = Machine::complete().deps();
    assert_installed(&outcome, &[]);
    assert_eq!(outcome.said, "");
}

#[test]
fn a_missing_target_is_installed() {
    let machine = Machine::complete();
    machine.write("rust", "rustfmt-host\nclippy-host\nrust-std-host\n");
    let outcome = machine.deps();
    assert_installed(&outcome, &[&format!("rustup --quiet target add --toolchain {} {MUSL}", channel())]);
    assert!(outcome.said.contains(&format!("installing with rustup: target {MUSL}")), "{}", outcome.said);
    assert_eq!(machine.deps().said, "", "once is enough");
}

#[test]
fn missing_components_are_installed() {
    let machine = Machine::complete();
    machine.write("rust", &format!("cargo-host\nrust-std-{MUSL}\n"));
    let add = |name| format!("rustup --quiet component add --toolchain {} {name}", channel());
    assert_installed(&machine.deps(), &[&add("rustfmt"), &add("clippy")]);
    assert_eq!(machine.deps().said, "", "once is enough");
}

#[test]
fn a_missing_toolchain_is_installed_with_its_target_and_components() {
    let machine = Machine::complete();
    machine.remove_file("rust");
    let command = format!(
        "rustup --quiet toolchain install --profile minimal --no-self-update {} \
         --component rustfmt,clippy --target {MUSL}",
        channel()
    );
    assert_installed(&machine.deps(), &[&command]);
    assert_eq!(machine.deps().said, "", "once is enough");
}

#[test]
fn a_toolchain_that_rustup_cannot_install_is_named_with_the_command_to_run() {
    let machine = Machine::complete();
    machine.put("rustup", "echo 'no network' >&2; exit 1");
    let command = format!("run: rustup toolchain install --profile minimal --no-self-update {}", channel());
    assert_refused(&machine.deps(), &["no network", &command, "RUSTUP_DIST_SERVER"]);
}

#[test]
fn a_target_that_rustup_cannot_install_is_named_with_the_command_to_run() {
    let machine = Machine::complete();
    machine.put("rustup", "[ $1 = component ] && echo 'cargo-host'");
    assert_refused(&machine.deps(), &[&format!("run: rustup target add --toolchain {} {MUSL}", channel())]);
}

#[test]
fn a_cargo_that_is_not_rustups_is_refused() {
    let machine = Machine::complete();
    machine.put("cargo", "[[ $1 != +* ]]");
    assert_refused(&machine.deps(), &["cargo is not rustup's", "programs/cargo", "first in PATH"]);
}

#[test]
fn a_machine_without_rust_is_sent_to_rustup() {
    let machine = Machine::complete();
    machine.remove("rustup");
    machine.remove("cargo");
    assert_refused(
        &machine.deps(),
        &["Rust is missing", "https://rustup.rs", &format!("Rust {}", channel())],
    );
}

#[test]
fn rust_without_rustup_will_do_if_it_has_everything() {
    let machine = Machine::complete();
    machine.rust_of_a_distribution(&channel(), Some(MUSL));
    assert_installed(&machine.deps(), &[]);

    let machine = Machine::complete();
    machine.rust_of_a_distribution("1.1000.0", Some(MUSL));
    assert_installed(&machine.deps(), &[]);
}

#[test]
fn rust_without_rustup_is_told_what_it_lacks() {
    let machine = Machine::complete();
    machine.rust_of_a_distribution(&channel(), Some("x86_64-unknown-linux-gnu"));
    let way_out = "install rustup from https://rustup.rs";
    assert_refused(&machine.deps(), &[&format!("Rust lacks target {MUSL}"), way_out]);

    let machine = Machine::complete();
    machine.rust_of_a_distribution("1.85.0", Some(MUSL));
    machine.remove("cargo-clippy");
    let outcome = machine.deps();
    let version = format!("Rust lacks version {} (found 1.85.0)", channel());
    assert_refused(&outcome, &[&version, "Rust lacks component clippy"]);
}

#[test]
fn a_go_that_is_too_old_is_refused() {
    for (version, toolchain) in [("go1.25.9", "local"), ("go1.25.9", "path"), ("go1.20.3", "auto")] {
        let machine = Machine::complete();
        machine.go(version, toolchain);
        let found = format!("Go is too old: found {version}, need 1.26");
        assert_refused(&machine.deps(), &[&found, "https://go.dev/dl/"]);
    }
}

#[test]
fn a_go_that_fetches_a_newer_one_will_do() {
    for (version, toolchain) in [("go1.21.0", "auto"), ("go1.24.4", "go1.24.4+auto"), ("go1.27rc1", "local")]
    {
        let machine = Machine::complete();
        machine.go(version, toolchain);
        assert_installed(&machine.deps(), &[]);
    }
}

#[test]
fn a_machine_without_go_is_sent_to_it() {
    for program in ["go", "gofmt"] {
        let machine = Machine::complete();
        machine.remove(program);
        assert_refused(&machine.deps(), &["missing", "Install Go 1.26 or newer from https://go.dev/dl/"]);
    }
}

#[test]
fn without_apt_everything_that_is_missing_is_listed_at_once() {
    let machine = Machine::complete();
    machine.remove("conntrack");
    machine.remove("debugfs");
    machine.remove_file("usr/include/stdio.h");
    machine.go("go1.19", "");
    let outcome = machine.deps();
    assert_refused(
        &outcome,
        &["- conntrack\n", "- debugfs\n", "- the C library's headers\n", "Go is too old"],
    );
    let packages = "Debian calls the packages: conntrack e2fsprogs libc6-dev\n";
    assert!(outcome.said.contains(packages), "{}", outcome.said);
}

#[test]
fn each_file_that_a_build_or_a_testbed_reads_is_checked() {
    for (file, package) in [
        ("usr/include/stdio.h", "libc6-dev"),
        ("usr/include/google/protobuf/descriptor.proto", "libprotobuf-dev"),
        ("etc/ssl/certs/ca-certificates.crt", "ca-certificates"),
        ("usr/lib/cni/portmap", "containernetworking-plugins"),
        ("bin/busybox", "busybox-static"),
    ] {
        let machine = Machine::complete();
        machine.remove_file(file);
        assert_refused(&machine.deps(), &[&format!("packages: {package}\n")]);
    }
    let machine = Machine::complete();
    machine.put("ldd", "");
    assert_refused(&machine.deps(), &["a static busybox", "packages: busybox-static\n"]);
}

/// Of the package prometheus only promtool is needed, and Debian starts what it installs.
#[test]
fn prometheus_does_not_run_because_its_package_was_installed() {
    let install = "apt-get install -qq --yes --no-install-recommends prometheus";
    for systemd in [false, true] {
        let machine = Machine::complete();
        machine.remove("promtool");
        machine.apt("", &["promtool"]);
        machine.put("systemctl", "");
        if systemd {
            machine.write("run/systemd/system/private", "");
        }
        let stop: &[&str] = if systemd { &["systemctl --quiet disable --now prometheus"] } else { &[] };
        assert_installed(&machine.deps(), &[&[install][..], stop].concat());
        assert_eq!(machine.deps().said, "", "once is enough");
    }
}

#[test]
fn apt_installs_missing_packages_and_each_of_them_once() {
    let machine = Machine::complete();
    machine.remove("iptables");
    machine.remove("iptables-save");
    machine.remove("musl-gcc");
    machine.apt("", &["iptables", "iptables-save", "musl-gcc"]);
    let install = "apt-get install -qq --yes --no-install-recommends iptables musl-tools";
    assert_installed(&machine.deps(), &[install]);
    assert_eq!(machine.deps().said, "", "once is enough");
}

#[test]
fn what_apt_cannot_install_is_listed() {
    let machine = Machine::complete();
    machine.remove("conntrack");
    machine.apt("", &[]);
    assert_refused(&machine.deps(), &["- conntrack\n", "Run as root: apt-get install conntrack"]);

    machine.put("id", "echo 1000");
    let outcome = machine.deps();
    assert_refused(&outcome, &["- conntrack\n", "Run as root: apt-get install conntrack"]);
    assert_eq!(outcome.calls, [""; 0]);
    assert!(!outcome.said.contains("sudo"), "there is none: {}", outcome.said);
}

#[test]
fn apt_installs_go_and_rustup_where_it_has_good_ones() {
    let machine = Machine::complete();
    machine.remove("go");
    machine.remove("rustup");
    machine.remove("cargo");
    machine.apt("golang-go) echo '  Candidate: 2:1.19~1' ;; rustup) echo '  Candidate: (none)' ;;", &[]);
    let outcome = machine.deps();
    assert_refused(&outcome, &["Go is missing", "Rust is missing"]);
    assert_eq!(outcome.calls, [""; 0], "Debian 12 has a Go that is too old, and no rustup");

    machine.apt("golang-go) echo '  Candidate: 2:1.24~2' ;; rustup) echo '  Candidate: 1.27.1-3' ;;", &[]);
    let outcome = machine.deps();
    assert_eq!(outcome.calls, ["apt-get install -qq --yes --no-install-recommends golang-go rustup"]);
}

#[test]
fn every_program_that_is_called_is_checked() {
    let list = read(&root().join("hack/programs"));
    let listed = list.lines().filter(|line| !line.starts_with('#')).flat_map(|line| line.split(' ').skip(2));
    // Go has a check of its own; docker, kind and nft are optional; the rest comes with coreutils and bash.
    let others = ["go", "docker", "kind", "nft", "bash", "sh", "cat", "sleep", "timeout"];
    let known: BTreeSet<&str> = listed.chain(others).collect();
    let mut unknown = Vec::new();
    for file in files(".rs").iter().filter(|file| !file.ends_with(file!())) {
        let text = read(file);
        // `run` is the testbed's way to call a program, and elsewhere it calls kubectl or git.
        let in_testbed = file.starts_with(root().join("testbed"));
        let callers = ["Command::new(\"", "shell::run(&[\"", " run(&[\""];
        for caller in &callers[..if in_testbed { 3 } else { 2 }] {
            let names = text.split(caller).skip(1).filter_map(|call| call.split('"').next());
            let unlisted = names.filter(|name| !known.contains(name));
            unknown.extend(unlisted.map(|name| format!("{}: {name}", shown(file))));
        }
    }
    assert!(unknown.is_empty(), "not in hack/programs:\n  {}", unknown.join("\n  "));
}

#[test]
fn every_target_that_compiles_checks_the_machine_first() {
    let makefile = read(&root().join("Makefile"));
    let targets =
        makefile.lines().filter(|line| line.contains(" ## ")).filter_map(|line| line.split(':').next());
    let mut compiling = 0;
    for target in targets.filter(|target| *target != "clean") {
        let recipe = output("make", &["--dry-run", "--always-make", target]);
        let position = |text: &str| recipe.lines().position(|line| line.contains(text));
        if let Some(cargo) = position("cargo ") {
            compiling += 1;
            assert!(
                position("hack/deps") < Some(cargo) && position("hack/deps").is_some(),
                "{target}:\n{recipe}"
            );
        }
    }
    assert!(compiling > 10, "not the targets: {compiling}");
}
