//! Whether a program printed what a document shows.
//!
//! A document is written once: ages, times and IDs differ in every run. So words are compared, a word that has the form
//! of a time or of an ID stands for any other, and `...` stands for whatever follows in its line or word.

use anyhow::{Result, bail};

/// Every line that is shown was printed, in this order. Further lines do not matter.
pub fn agrees(shown: &[String], printed: &str) -> Result<()> {
    let mut lines = printed.lines();
    for expected in shown {
        if !lines.any(|line| same_line(expected, line)) {
            bail!("no line {expected:?} (after the ones before it) in:\n{printed}");
        }
    }
    Ok(())
}

fn same_line(shown: &str, printed: &str) -> bool {
    let mut printed = printed.split_whitespace();
    for word in shown.split_whitespace() {
        if word == "..." {
            return true;
        }
        if !printed.next().is_some_and(|printed| same_word(word, printed)) {
            return false;
        }
    }
    printed.next().is_none()
}

fn same_word(shown: &str, printed: &str) -> bool {
    if let Some((begin, end)) = shown.split_once("...") {
        return printed.len() >= begin.len() + end.len()
            && printed.starts_with(begin)
            && printed.ends_with(end);
    }
    shown == printed || form(shown).is_some_and(|form_of_shown| Some(form_of_shown) == form(printed))
}

/// What a word is if its value does not matter, with the sign that follows it.
fn form(word: &str) -> Option<(&'static str, Option<char>)> {
    let sign = word.chars().last().filter(|last| matches!(last, ',' | ':' | ')'));
    let word = word.trim_end_matches([',', ':', ')']).trim_start_matches('(');
    let kind = if is_time(word) {
        "a time"
    } else if is_uuid(word.trim_start_matches("pvc-")) {
        "a UUID"
    } else if is_id(word) {
        "an ID"
    } else {
        return None;
    };
    Some((kind, sign))
}

/// As in `3m20s`, `5.1ms` and `2026-11-16T08:00:00Z`.
fn is_time(word: &str) -> bool {
    let is_stamp = word.len() == 20 && word.ends_with('Z') && word.as_bytes()[10] == b'T';
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut units = word.split(is_number).filter(|unit| !unit.is_empty()).peekable();
    let begins = word.starts_with(|c: char| c.is_ascii_digit());
    let has_unit = units.peek().is_some();
    let of_time = units.all(|unit| matches!(unit, "d" | "h" | "m" | "s" | "ms" | "µs"));
    is_stamp || begins && has_unit && of_time
}

fn is_uuid(word: &str) -> bool {
    let lengths: Vec<_> = word.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

/// Of a member or a cluster, as etcdctl prints it.
fn is_id(word: &str) -> bool {
    (14..=16).contains(&word.len()) && word.chars().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(shown: &str, printed: &str) -> bool {
        agrees(&shown.lines().map(str::to_owned).collect::<Vec<_>>(), printed).is_ok()
    }

    #[test]
    fn values_that_change_from_run_to_run_do_not_matter() {
        assert!(same("kv   Running  3  3  40s", "NAME PHASE\nkv Running 3 3 2m5s\n"));
        assert!(same("f7544416affdd1c, started, kv-1", "8e9e05c52164694d, started, kv-1"));
        assert!(same("took = 3.01ms", "took = 11.1ms"));
        assert!(same("pvc-24219866-cc9a-4b9b-9235-d9ad83ea255d", "pvc-00000000-cc9a-4b9b-9235-d9ad83ea255e"));
        assert!(same("http://kv-1.kv-peer..., false", "http://kv-1.kv-peer.default.svc:2380, false"));
        assert!(same("Stalled ...", "Stalled and much more"));
    }

    #[test]
    fn everything_else_does() {
        assert!(!same("kv Running 3 3 40s", "kv Running 3 2 40s"));
        assert!(!same("kv Running", "kv Running 3"), "a word more");
        assert!(!same("kv Running 3", "kv Running"), "a word less");
        assert!(!same("one\ntwo", "two\none"), "another order");
        assert!(!same("3s", "3"), "a time is not a number");
        assert!(!same("f7544416affdd1c, started", "unstarted, started"));
        assert!(!same("greeting", ""));
    }
}
