//! Rules for documents: links work, every decision record is in the index, tests run every command, and every word of
//! the status is used.

use std::collections::BTreeSet;
use std::path::Path;

use etcd_operator_tidy::commands::{anchor, blocks};
use etcd_operator_tidy::{files, read, root, shown};

#[test]
fn every_link_leads_somewhere() {
    let mut dead = Vec::new();
    for document in files(".md") {
        let folder = document.parent().unwrap_or(Path::new("."));
        for link in links(&read(&document)) {
            if !leads_somewhere(&document, folder, &link) {
                dead.push(format!("{}: {link}", shown(&document)));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n  {}", dead.join("\n  "));
}

#[test]
fn every_decision_record_is_in_the_index() {
    let folder = root().join("docs/adr");
    let index = read(&folder.join("README.md"));
    let listed = links(&index);
    let numbered = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        (path.parent() == Some(&folder) && name.starts_with(|c: char| c.is_ascii_digit()))
            .then(|| name.to_owned())
    };
    let records: Vec<_> = files(".md").iter().filter_map(|path| numbered(path)).collect();
    assert!(!records.is_empty(), "no decision records found");
    for record in records {
        assert!(listed.contains(&record), "docs/adr/README.md does not list {record}");
    }
}

/// The list of documents whose commands end-to-end tests run.
const RUN_BY: &str = "e2e/src/suite/documents.rs";

#[test]
fn every_command_is_run_by_a_test_or_says_why_not() {
    let mut wrong = Vec::new();
    for document in files(".md") {
        let (name, text) = (shown(&document), read(&document));
        for language in ["bash", "shell", "shell-session"] {
            if text.contains(&format!("\n```{language}")) {
                wrong.push(format!("{name}: write `sh` or `console` instead of `{language}`"));
            }
        }
        for block in blocks(&text).iter().filter(|block| !block.hidden) {
            let explained = block.untested.as_ref().is_some_and(|reason| !reason.is_empty());
            let run = is_run(&name) || name == "README.md" && is_followed(&block.heading);
            if !explained && !run {
                wrong.push(format!("{name}:{}: not in {RUN_BY}, and no `no-test: REASON`", block.line));
            }
        }
    }
    assert!(wrong.is_empty(), "commands that no test runs:\n  {}", wrong.join("\n  "));
}

/// A command in a sentence is a reminder of one that the same page shows in full, and that is therefore run.
#[test]
fn every_command_in_a_sentence_stands_in_a_block_too() {
    let mut wrong = Vec::new();
    for document in files(".md").into_iter().filter(|document| is_run(&shown(document))) {
        let text = read(&document);
        let commands: Vec<String> = blocks(&text)
            .iter()
            .filter(|block| !block.hidden)
            .flat_map(|block| &block.commands)
            .flat_map(|command| command.text.lines().map(single_spaced).collect::<Vec<_>>())
            .collect();
        for code in inline_code(&text) {
            let code = single_spaced(&code);
            let is_command = code.starts_with("kubectl ") && code.split(' ').count() > 2;
            if is_command && !commands.iter().any(|command| command.contains(&code)) {
                wrong.push(format!("{}: {code}", shown(&document)));
            }
        }
    }
    assert!(wrong.is_empty(), "commands that stand in no block:\n  {}", wrong.join("\n  "));
}

fn is_run(document: &str) -> bool {
    read(&root().join(RUN_BY)).contains(&format!("\"{document}\""))
}

/// README.md is not run as a whole: tests of installing and removing name the headings whose commands they run.
fn is_followed(heading: &str) -> bool {
    let folder = root().join("e2e/src/suite");
    let mut tests = files(".rs").into_iter().filter(|path| path.starts_with(&folder));
    tests.any(|test| read(&test).contains(&format!("\"{heading}\"")))
}

fn single_spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What stands in backticks outside fenced code.
fn inline_code(text: &str) -> Vec<String> {
    let inline = |line: &str| line.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    unfenced(text).flat_map(inline).collect()
}

/// The compiler does not warn about an unused public constant, and the manual would still explain it.
#[test]
fn every_word_of_status_and_events_is_used() {
    let (folder, list) = (root().join("core/src"), root().join("core/src/names/words.rs"));
    let code: String = files(".rs")
        .iter()
        .filter(|path| path.starts_with(&folder) && **path != list && !path.ends_with("tests.rs"))
        .map(|path| read(path))
        .collect();
    let names: BTreeSet<_> =
        code.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))).collect();
    let (mut module, mut words) = (String::new(), Vec::new());
    for line in read(&list).lines() {
        if let Some(begun) = line.strip_prefix("pub mod ") {
            module = begun.trim_end_matches(" {").to_owned();
        } else if let Some((name, _)) = line.trim().split_once(" = \"") {
            words.push(format!("{module}::{name}"));
        }
    }
    assert!(words.len() > 50, "not the words: {words:?}");
    words.retain(|word| !names.contains(word.as_str()));
    assert!(words.is_empty(), "nothing says {words:?} any more");
}

fn leads_somewhere(document: &Path, folder: &Path, link: &str) -> bool {
    if ["http://", "https://", "mailto:"].iter().any(|scheme| link.starts_with(scheme)) {
        return true;
    }
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { document.to_owned() } else { folder.join(path) };
    if heading.is_empty() {
        return target.exists();
    }
    target.is_file() && headings(&read(&target)).iter().any(|anchor| anchor == heading)
}

/// Targets of `[text](target)` and `[text]: target`, outside code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else { break };
            found.extend(target.split_whitespace().next().map(str::to_owned));
            rest = after;
        }
        if let Some((_, target)) = line.split_once("]: ")
            && line.starts_with('[')
        {
            found.extend(target.split_whitespace().next().map(str::to_owned));
        }
    }
    found
}

/// Anchors of the headings.
fn headings(text: &str) -> Vec<String> {
    prose(text).filter(|line| line.starts_with('#')).map(|line| anchor(&line)).collect()
}

/// The lines outside fenced code, without inline code.
fn prose(text: &str) -> impl Iterator<Item = String> {
    unfenced(text).map(without_code)
}

fn unfenced(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    })
}

/// The words in code belong to a heading. A link that is written in code is not a link.
fn without_code(line: &str) -> String {
    let mut kept = String::new();
    for (index, part) in line.split('`').enumerate() {
        let in_code = index % 2 == 1;
        if !in_code || !part.contains("](") {
            kept.push_str(part);
        }
    }
    kept
}

#[test]
fn links_and_headings_are_read_as_people_see_them() {
    let text = "# The `run` command!\nSee [a](x.md#y) and [b](../z).\n`[c](no.md)`\n```\n[d](no.md)\n```\n[e]: w.md\n";
    assert_eq!(links(text), ["x.md#y", "../z", "w.md"]);
    assert_eq!(headings(text), ["the-run-command"]);
}
