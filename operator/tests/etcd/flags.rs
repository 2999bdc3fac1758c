//! What `core` says about arguments, and what the programs say.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output};

use etcd_operator_core::etcd_config::{
    InitialState, LocalConfig, MemberConfig, MemberOptions, Problem, arguments, problems,
};
use etcd_operator_core::tls::{Scheme, Transport};
use testbed::build::STANDARD_ETCD;

use crate::processes::program;

fn run(program: &Path, arguments: &[String]) -> Output {
    Command::new(program).args(arguments).env_clear().output().expect("it runs")
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned()
}

fn config(version: &str, extra: &[(&str, &str)]) -> MemberConfig {
    let extra_arguments = extra.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    MemberConfig {
        version: version.into(),
        cluster_uid: "uid".into(),
        peer_host: "kv-peer".into(),
        attempt: None,
        adopts: None,
        transport: Transport::default(),
        plain_peers: false,
        options: MemberOptions { extra_arguments, ..MemberOptions::default() },
    }
}

fn rendered(config: &MemberConfig, compares: bool) -> Vec<String> {
    let local = LocalConfig {
        name: "kv-0".into(),
        host: "kv-0".into(),
        listen: Ipv4Addr::LOCALHOST.into(),
        data_dir: "/nowhere".into(),
        tls_dir: "/nowhere".into(),
    };
    arguments(config, &local, InitialState::Known { compares }).expect("nothing is wrong with it")
}

/// All arguments that a program explains.
fn explained(program: &Path) -> BTreeSet<String> {
    let help = run(program, &["--help".into()]);
    let text = [help.stdout, help.stderr].concat();
    let lines = String::from_utf8_lossy(&text).into_owned();
    let names = lines.lines().filter_map(|line| line.trim().strip_prefix("--"));
    let end = |name: &str| name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(name.len());
    names.map(|name| name[..end(name)].to_owned()).collect()
}

#[tokio::test]
async fn each_version_accepts_what_we_render_and_we_refuse_what_it_does_not_have() {
    let mut programs = BTreeMap::new();
    for version in STANDARD_ETCD {
        programs.insert(version, program(version).await);
    }
    let names: BTreeSet<_> = programs.values().flat_map(|program| explained(program)).collect();
    assert!(names.len() > 140, "{names:?}");
    for (version, program) in &programs {
        for (compares, scheme) in [(true, Scheme::Http), (false, Scheme::Https)] {
            let transport = Transport { clients: scheme.into(), peers: scheme.into() };
            let mut flags = rendered(&MemberConfig { transport, ..config(version, &[]) }, compares);
            flags.push("--version".into());
            let output = run(program, &flags);
            assert!(output.status.success(), "{version}: {}", complaint(&output));
        }
        let mut refused = 0;
        for name in &names {
            let problems = problems(&config(version, &[(name, "1")]));
            if problems.iter().any(|problem| matches!(problem, Problem::Owned(_))) {
                continue;
            }
            let unknown = problems.iter().any(|it| matches!(it, Problem::UnknownArgument { .. }));
            let output = run(program, &[format!("--{name}=1"), "--version".into()]);
            let undefined = complaint(&output).starts_with("flag provided but not defined");
            assert_eq!(unknown, undefined, "{version} {name}: {}", complaint(&output));
            refused += usize::from(unknown);
        }
        assert!(refused > 0 || version.starts_with("v3.6"), "{version}");
    }
}

#[tokio::test]
async fn each_version_has_the_feature_gates_that_we_say() {
    for version in STANDARD_ETCD.into_iter().filter(|version| !version.starts_with("v3.5")) {
        let program = program(version).await;
        for gate in ["LeaseCheckpoint", "SetMemberLocalAddr", "FastLeaseKeepAlive", "PriorityRequest"] {
            let value = format!("{gate}=true");
            let accepted = problems(&config(version, &[("feature-gates", &value)])).is_empty();
            let output = run(&program, &[format!("--feature-gates={value}"), "--version".into()]);
            assert_eq!(accepted, output.status.success(), "{version} {gate}: {}", complaint(&output));
        }
    }
}

#[tokio::test]
async fn only_a_start_shows_that_an_argument_was_given_by_both_its_names() {
    let version = "v3.6.16";
    let program = program(version).await;
    for (first, second) in [
        (("experimental-initial-corrupt-check", "true"), ("feature-gates", "InitialCorruptCheck=true")),
        (("experimental-enable-lease-checkpoint", "true"), ("feature-gates", "LeaseCheckpointPersist=true")),
        (("experimental-corrupt-check-time", "1h"), ("corrupt-check-time", "1h")),
        (("experimental-memory-mlock", "true"), ("memory-mlock", "true")),
        (("experimental-warning-unary-request-duration", "1s"), ("warning-unary-request-duration", "1s")),
    ] {
        let problems = problems(&config(version, &[first, second]));
        assert!(matches!(problems[..], [Problem::Twice { .. }]), "{first:?}: {problems:?}");
        let flags = [first, second].map(|(name, value)| format!("--{name}={value}"));
        let checked = run(&program, &[flags.as_slice(), &["--version".into()]].concat());
        assert!(checked.status.success(), "{}", complaint(&checked));
        // It ends before it uses its directory or a port.
        let started = run(&program, &[flags.as_slice(), &["--data-dir=/dev/null/nowhere".into()]].concat());
        let said = String::from_utf8_lossy(&[started.stdout, started.stderr].concat()).into_owned();
        assert!(!started.status.success() && said.contains("failed to verify flags"), "{first:?}: {said}");
    }
}
