//! Documents stay connected: no dead link, no decision record that nobody can find, no word that nothing says.

use std::collections::BTreeSet;
use std::path::Path;

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

/// The compiler does not miss a constant of a library that nothing uses, and the manual would explain it for ever.
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
    assert!(words.len() > 50, "expected more than 50 words, found {words:?}");
    words.retain(|word| !names.contains(word.as_str()));
    assert!(words.is_empty(), "no code uses {words:?}: delete them");
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

/// Anchors of the headings, as they are formed from the text: lower case, dashes for spaces, no other signs.
fn headings(text: &str) -> Vec<String> {
    prose(text)
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            words.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
        })
        .collect()
}

/// The lines outside fenced code, without inline code.
fn prose(text: &str) -> impl Iterator<Item = String> {
    let mut fenced = false;
    text.lines().filter_map(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fence && !fenced).then(|| without_code(line))
    })
}

/// In a heading the words in code count, in a link's text they do not matter; only a whole link in code is none.
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
