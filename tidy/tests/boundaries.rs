//! What a folder may touch is what it may depend on, and what is shipped is what is listed.

use std::collections::BTreeSet;

use etcd_operator_tidy::{files, output, read, root, shown};

/// Runtimes, clients, servers and sources of randomness, with the crates that they come through.
const NOT_IN_PURE_CODE: [&str; 14] = [
    "async-std",
    "axum",
    "etcd-client",
    "fastrand",
    "getrandom",
    "hyper",
    "kube-client",
    "kube-runtime",
    "rand",
    "rustls",
    "smol",
    "tokio",
    "tonic",
    "tower",
];

/// What would make the agent large, or let it do more than it should.
const NOT_IN_AGENT: [&str; 10] = [
    "axum",
    "clap",
    "etcd-client",
    "hyper",
    "kube-client",
    "kube-runtime",
    "tokio",
    "tonic",
    "tower",
    "tracing-subscriber",
];

#[test]
fn core_depends_on_no_runtime_no_client_and_no_randomness() {
    let found = forbidden("etcd-operator-core", &NOT_IN_PURE_CODE);
    assert!(found.is_empty(), "core must not depend on {found:?}");
}

/// Only its tests run real etcd, to hold the simulated one against it.
#[test]
fn the_simulation_depends_on_no_runtime_no_client_and_no_randomness() {
    let found = forbidden("etcd-operator-sim", &NOT_IN_PURE_CODE);
    assert!(found.is_empty(), "the simulation must not depend on {found:?}");
}

#[test]
fn the_agent_depends_on_no_runtime_and_no_client() {
    let found = forbidden("etcd-agent", &NOT_IN_AGENT);
    assert!(found.is_empty(), "the agent must not depend on {found:?}");
}

fn forbidden(package: &str, crates: &[&'static str]) -> Vec<&'static str> {
    let package = format!("--package={package}");
    let tree = output(
        env!("CARGO"),
        &["tree", "--locked", "--offline", &package, "--edges=normal", "--prefix=none"],
    );
    let names: BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains("serde_json"), "`cargo tree` did not list the dependencies of {package}:\n{tree}");
    crates.iter().copied().filter(|name| names.contains(name)).collect()
}

#[test]
fn every_manifest_is_installed_by_config_everything_or_is_the_optional_right() {
    let config = root().join("config");
    let mut there: BTreeSet<_> =
        files(".yaml").into_iter().filter(|path| path.starts_with(&config)).collect();
    let mut lists = ["everything", "nodes"].map(|it| config.join(it).join("kustomization.yaml")).to_vec();
    while let Some(list) = lists.pop() {
        assert!(there.remove(&list), "no {}", shown(&list));
        let text = read(&list);
        for listed in text.lines().filter_map(|line| line.strip_prefix("- ")) {
            match listed.strip_prefix("../") {
                Some(folder) => lists.push(config.join(folder).join("kustomization.yaml")),
                None => {
                    let manifest = list.with_file_name(listed);
                    assert!(there.remove(&manifest), "{} lists {listed}, which is missing", shown(&list));
                }
            }
        }
    }
    assert!(there.is_empty(), "no kustomization lists {there:?}");
}
