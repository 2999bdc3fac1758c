//! What we depend on is what `deny.toml` allows. The rules are cargo-deny's, and so is their meaning; advisories, which
//! need a database, are left to it.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_tidy::licenses::allows;
use etcd_operator_tidy::{files, output, read, root, shown};

/// Everything that `deny.toml` can say here, and for settings the one value that this test knows the meaning of.
/// Lists, which have no value here, are checked below.
const KNOWN: [(&str, Option<&str>); 14] = [
    ("graph.targets", None),
    ("graph.all-features", Some("false")),
    ("bans.multiple-versions", Some("\"warn\"")),
    ("bans.wildcards", Some("\"deny\"")),
    ("bans.allow-wildcard-paths", Some("true")),
    ("bans.deny", None),
    ("licenses.confidence-threshold", Some("0.9")),
    ("licenses.allow", None),
    ("sources.unknown-registry", Some("\"deny\"")),
    ("sources.unknown-git", Some("\"deny\"")),
    ("sources.allow-registry", None),
    ("sources.allow-git", Some("[]")),
    ("advisories.yanked", Some("\"deny\"")),
    ("advisories.ignore", Some("[]")),
];

/// The settings of `deny.toml` by section and name, as they are written.
fn rules() -> BTreeMap<String, String> {
    let (mut section, mut key, mut rules) = (String::new(), String::new(), BTreeMap::<String, String>::new());
    let text = read(&root().join("deny.toml"));
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some((name, value)) = line.split_once(" = ").filter(|_| !line.starts_with(['{', '"'])) {
            key = format!("{section}.{name}");
            rules.insert(key.clone(), value.to_owned());
        } else {
            rules.get_mut(&key).expect("a list goes on").push_str(line);
        }
    }
    rules
}

/// The texts in quotes, or of a list of tables those behind `crate = `.
fn list(rules: &BTreeMap<String, String>, key: &str) -> Vec<String> {
    let value = rules.get(key).unwrap_or_else(|| panic!("deny.toml has no {key}"));
    let parts: Vec<_> = value.split('"').collect();
    let is_table = value.contains('{');
    let texts =
        parts.chunks(2).filter(|pair| pair.len() == 2 && (!is_table || pair[0].ends_with("crate = ")));
    texts.map(|pair| pair[1].to_owned()).collect()
}

/// Every crate of the build, tests and build scripts included, on the platforms that `deny.toml` names: name and license.
fn crates(rules: &BTreeMap<String, String>) -> BTreeSet<(String, String)> {
    let of_target = |target: String| {
        let target = format!("--target={target}");
        let words =
            ["tree", "--locked", "--offline", "--workspace", "--prefix=none", "--format={p}|{l}", &target];
        output(env!("CARGO"), &words)
    };
    let tree: String = list(rules, "graph.targets").into_iter().map(of_target).collect();
    let entry = |line: &str| {
        let (package, license) = line.trim_end_matches(" (*)").split_once('|')?;
        Some((package.split(' ').next()?.to_owned(), license.to_owned()))
    };
    tree.lines().filter_map(entry).collect()
}

#[test]
fn every_rule_is_one_that_is_checked_here() {
    for (key, value) in rules() {
        let known = KNOWN.iter().find(|(known, _)| *known == key);
        let (_, meaning) = known.unwrap_or_else(|| panic!("deny.toml: {key} is not checked by this test"));
        assert!(meaning.is_none_or(|meaning| meaning == value), "deny.toml: {key} = {value} is not checked");
    }
}

#[test]
fn no_crate_is_forbidden_and_every_license_is_allowed() {
    let rules = rules();
    let (forbidden, allowed) = (list(&rules, "bans.deny"), list(&rules, "licenses.allow"));
    assert!(forbidden.contains(&"ring".to_owned()) && allowed.contains(&"MIT".to_owned()), "misread");
    let crates = crates(&rules);
    assert!(crates.len() > 100, "`cargo tree` lists {crates:?}");
    for (name, license) in &crates {
        assert!(!forbidden.contains(name), "{name} is forbidden by deny.toml: `cargo tree --invert {name}`");
        assert!(
            allows(&allowed, license),
            "{name} is licensed as {license:?}, which deny.toml does not allow"
        );
    }
}

#[test]
fn every_crate_comes_from_a_source_that_is_allowed() {
    let allowed: Vec<_> = list(&rules(), "sources.allow-registry")
        .into_iter()
        .map(|registry| format!("source = \"registry+{registry}\""))
        .collect();
    let lock = read(&root().join("Cargo.lock"));
    let sources: Vec<_> = lock.lines().filter(|line| line.starts_with("source = ")).collect();
    assert!(sources.len() > 100, "Cargo.lock was not read");
    for source in sources {
        assert!(allowed.iter().any(|allowed| allowed == source), "{source} is not allowed by deny.toml");
    }
}

#[test]
fn no_version_is_left_open() {
    for path in files("Cargo.toml") {
        for line in read(&path).lines() {
            assert!(!line.contains("\"*\""), "{}: {line}", shown(&path));
        }
    }
}
