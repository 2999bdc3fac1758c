//! What is shipped is compiled together with the demo and the testbed, and must not differ for it.

use std::collections::BTreeSet;

use etcd_operator_tidy::output;

const SHIPPED: [&str; 2] = ["etcd-operator", "etcd-agent"];
const BESIDE: [&str; 2] = ["etcd-operator-testbed", "etcd-operator-e2e"];
/// Their further features add nothing: `std` adds one trait to an error type, and `aws_lc_rs` asks for what rustls
/// has anyway.
const HARMLESS: [&str; 2] = ["bitflags ", "tokio-rustls "];

#[test]
fn the_programs_beside_the_operator_give_its_dependencies_no_further_features() {
    let together = dependencies(&[SHIPPED, BESIDE].concat());
    let mut changed: Vec<_> = dependencies(&SHIPPED).difference(&together).cloned().collect();
    changed.retain(|line| !HARMLESS.iter().any(|name| line.starts_with(name)));
    assert!(changed.is_empty(), "compiled with other features in the image: {changed:#?}");
}

/// Each crate with its version and features.
fn dependencies(packages: &[&str]) -> BTreeSet<String> {
    let selected: Vec<_> = packages.iter().map(|package| format!("--package={package}")).collect();
    let mut arguments =
        vec!["tree", "--locked", "--offline", "--edges=normal", "--prefix=none", "--no-dedupe"];
    arguments.extend(["--target=x86_64-unknown-linux-musl", "--format={p} {f}"]);
    arguments.extend(selected.iter().map(String::as_str));
    let lines: BTreeSet<_> = output(env!("CARGO"), &arguments).lines().map(str::to_owned).collect();
    assert!(lines.len() > 100, "not the dependencies: {lines:?}");
    lines
}
