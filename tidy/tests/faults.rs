//! `docs/faults.md` stays true: it has every fault, and every test that it names exists.

use std::collections::BTreeMap;

use etcd_operator_tidy::faults::{DOCUMENT, Row, VERDICTS, exists, rows};
use etcd_operator_tidy::named::Sources;
use etcd_operator_tidy::{read, root};

const FAULTS: u8 = 62;

fn document() -> String {
    read(&root().join(DOCUMENT))
}

fn all() -> Vec<Row> {
    rows(&document()).unwrap_or_else(|error| panic!("{DOCUMENT}: {error}"))
}

#[test]
fn every_fault_has_one_row() {
    let mut numbers: Vec<u8> = all().iter().map(|row| row.fault).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=FAULTS).collect::<Vec<_>>());
}

#[test]
fn every_row_has_a_verdict_of_the_legend_and_a_test_behind_it() {
    let mut wrong = Vec::new();
    for Row { fault, verdict, remark, tests } in all() {
        match VERDICTS.iter().find(|(it, _)| *it == verdict) {
            None => wrong.push(format!("F{fault}: no verdict: {verdict}")),
            Some((_, remarked)) if *remarked && remark.is_empty() => {
                wrong.push(format!("F{fault}: {verdict}, but not what or why"));
            }
            Some(_) => {}
        }
        if tests.is_empty() && !["not handled yet", "does not apply"].contains(&verdict.as_str()) {
            wrong.push(format!("F{fault}: {verdict}, but no test shows it"));
        }
    }
    assert!(wrong.is_empty(), "{DOCUMENT}:\n  {}", wrong.join("\n  "));
}

#[test]
fn every_test_that_proves_a_verdict_exists() {
    let sources = Sources::all();
    let mut wrong = Vec::new();
    for row in all() {
        for test in &row.tests {
            match exists(test, &sources) {
                Ok(true) => {}
                Ok(false) => wrong.push(format!("F{}: there is no test `{test}`", row.fault)),
                Err(error) => wrong.push(format!("F{}: `{test}`: {error}", row.fault)),
            }
        }
    }
    assert!(wrong.is_empty(), "{DOCUMENT}:\n  {}", wrong.join("\n  "));
}

#[test]
fn the_summary_counts_the_rows() {
    let (text, rows) = (document(), all());
    let of_verdict = |wanted: &str| rows.iter().filter(|row| row.verdict == wanted).count();
    let mut counts: BTreeMap<&str, usize> =
        VERDICTS.iter().map(|(verdict, _)| (*verdict, of_verdict(verdict))).collect();
    counts.insert("all", rows.len());
    counts.insert("with an end-to-end test", rows.iter().filter(|row| row.has("e2e")).count());
    let missing: Vec<String> = counts
        .into_iter()
        .map(|(what, count)| format!("| {what} | {count} |"))
        .filter(|line| !text.lines().any(|it| it.starts_with(line.as_str())))
        .collect();
    assert!(missing.is_empty(), "{DOCUMENT} should count:\n  {}", missing.join("\n  "));
}
