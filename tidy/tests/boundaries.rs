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
fn every_manifest_is_installed_by_a_folder_that_the_readme_explains() {
    let config = root().join("config");
    let mut left: BTreeSet<_> = files(".yaml").into_iter().filter(|path| path.starts_with(&config)).collect();
    let there = left.clone();
    let explained = ["everything", "namespaced", "highly-available", "nodes", "prometheus", "grafana"];
    assert!(
        explained.iter().all(|it| read(&root().join("README.md")).contains(&format!("| `config/{it}` |")))
    );
    let mut lists = explained.map(|it| config.join(it).join("kustomization.yaml")).to_vec();
    while let Some(list) = lists.pop() {
        assert!(there.contains(&list), "no {}", shown(&list));
        left.remove(&list);
        for listed in resources(&read(&list)) {
            let folder = list.with_file_name("");
            let listed = listed.split("../").fold(folder, |at, part| match part {
                "" => at.parent().expect("it is inside the tree").to_owned(),
                name => at.join(name),
            });
            match listed.extension() {
                Some(_) => {
                    assert!(there.contains(&listed), "{} lists {}", shown(&list), shown(&listed));
                    left.remove(&listed);
                }
                None => lists.push(listed.join("kustomization.yaml")),
            }
        }
    }
    // For a Prometheus without its operator, which reads files and no objects.
    let plain = ["rules.yaml", "scrape.yaml"].map(|it| config.join("prometheus").join(it));
    left.retain(|it| !plain.contains(it));
    assert!(left.is_empty(), "no kustomization lists {left:?}");
}

fn resources(kustomization: &str) -> impl Iterator<Item = &str> {
    let after = kustomization.lines().skip_while(|line| *line != "resources:").skip(1);
    after.map_while(|line| line.strip_prefix("- "))
}
