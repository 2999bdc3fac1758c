//! What is shipped is compiled together with the demo and the testbed, and must not differ for it.

use std::collections::BTreeSet;

use etcd_operator_tidy::{output, read, root};

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

/// The program for backups is in the image, too, and compiled on its own: the clients of stores would change what the operator
/// is made of.
#[test]
fn the_makefile_compiles_these_together_and_the_program_for_backups_alone() {
    let makefile = read(&root().join("Makefile"));
    let packages = |variable: &str| {
        let line = makefile.lines().find_map(|line| line.strip_prefix(variable)?.strip_prefix(" = "));
        let line = line.unwrap_or_else(|| panic!("the Makefile has no {variable}"));
        line.split("-p ").skip(1).filter_map(|it| it.split(' ').next().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(packages("build_shipped"), [SHIPPED, BESIDE].concat());
    assert_eq!(packages("build_backup"), ["etcd-backup"]);
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
