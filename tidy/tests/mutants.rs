//! No mutant is lost by an edit: each still applies, and the test that has to find it exists.

use etcd_operator_tidy::mutants::all;
use etcd_operator_tidy::named::Sources;
use etcd_operator_tidy::{read, root};

#[test]
fn every_mutant_applies() {
    let mutants = all();
    assert!(mutants.len() >= 9, "only {} mutants were found", mutants.len());
    let mut wrong = Vec::new();
    for mutant in &mutants {
        for edit in &mutant.edits {
            let applied = edit.apply(&read(&root().join(&edit.file)));
            wrong.extend(applied.map_err(|error| format!("{}: {error}", mutant.name)).err());
        }
    }
    assert!(
        wrong.is_empty(),
        "change these mutants in test/mutants as you changed the code:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_test_that_has_to_find_a_mutant_exists() {
    let sources = Sources::all();
    for mutant in all() {
        let name = mutant.test.last().and_then(|test| test.rsplit("::").next()).unwrap_or_default();
        assert!(sources.declare("", name), "{}: there is no test {name}", mutant.name);
    }
}
