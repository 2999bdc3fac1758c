//! docs/logs.md lists every line that the operator can log: its level, its message and its fields.

use std::collections::BTreeSet;

use etcd_operator_tidy::{files, read, root, shown};

const LEVELS: [&str; 4] = ["error", "warn", "info", "debug"];
const PAGE: &str = "docs/logs.md";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    level: String,
    message: String,
    fields: BTreeSet<String>,
}

/// The text in the parentheses that have just been opened.
fn enclosed(text: &str) -> &str {
    let (mut depth, mut quoted, mut escaped) = (1, false, false);
    for (at, it) in text.char_indices() {
        match it {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    return &text[..at];
                }
            }
            _ => {}
        }
    }
    panic!("no end: {text}");
}

/// What commas separate that are in no parentheses and in no string.
fn arguments(text: &str) -> Vec<&str> {
    let (mut found, mut from, mut depth, mut quoted) = (Vec::new(), 0, 0, false);
    for (at, it) in text.char_indices() {
        match it {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                found.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push(text[from..].trim());
    found.retain(|it| !it.is_empty());
    found
}

fn line(level: &str, text: &str) -> Line {
    let mut arguments = arguments(text);
    let message = arguments.pop().and_then(|it| it.strip_prefix('"')?.strip_suffix('"'));
    let message =
        message.unwrap_or_else(|| panic!("the message comes last and is constant: {text}")).to_owned();
    let name = |it: &str| it.split('=').next().unwrap_or(it).trim().trim_start_matches(['%', '?']).to_owned();
    let fields = arguments.into_iter().filter(|it| !it.starts_with("target:")).map(name).collect();
    Line { level: level.into(), message, fields }
}

fn in_source() -> BTreeSet<Line> {
    let mut found = BTreeSet::new();
    for file in files(".rs").into_iter().filter(|file| shown(file).starts_with("operator/src/")) {
        let text = read(&file);
        let shipped = text.split("#[cfg(test)]\nmod ").next().expect("a text");
        for level in LEVELS {
            for rest in shipped.split(&format!("tracing::{level}!(")).skip(1) {
                found.insert(line(level, enclosed(rest)));
            }
        }
    }
    found
}

fn in_page() -> Vec<Line> {
    let text = read(&root().join(PAGE));
    let row = |row: &str| {
        let cells: Vec<&str> = row.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [message, fields, meaning] = cells[..] else { panic!("{row}") };
        assert!(!meaning.is_empty(), "{row}");
        Some((message.strip_prefix('`')?.strip_suffix('`')?.to_owned(), fields.to_owned()))
    };
    let mut found = Vec::new();
    for level in LEVELS {
        let (_, section) =
            text.split_once(&format!("\n## {level}\n")).unwrap_or_else(|| panic!("no {level}"));
        let section = section.split("\n## ").next().expect("a text");
        for (message, fields) in section.lines().filter_map(row) {
            let fields =
                fields.split(", ").filter_map(|it| Some(it.strip_prefix('`')?.strip_suffix('`')?.into()));
            found.push(Line { level: level.into(), message, fields: fields.collect() });
        }
    }
    found
}

#[test]
fn the_page_of_log_messages_lists_what_the_operator_can_log_and_nothing_else() {
    let (source, page) = (in_source(), in_page());
    assert!(source.len() > 25, "only {} found", source.len());
    let listed: BTreeSet<Line> = page.iter().cloned().collect();
    assert_eq!(listed.len(), page.len(), "a line is listed twice in {PAGE}");
    let missing: Vec<_> = source.difference(&listed).collect();
    let outdated: Vec<_> = listed.difference(&source).collect();
    assert!(
        missing.is_empty() && outdated.is_empty(),
        "{PAGE} lacks {missing:#?}, and no program logs {outdated:#?}"
    );
}

#[test]
fn fields_and_messages_are_read_from_calls() {
    let read = |text: &str| line("info", enclosed(text));
    let fields = |it: &[&str]| -> BTreeSet<String> { it.iter().map(|it| (*it).to_owned()).collect() };
    let found = read("target: \"a\", %action, n = f(1, \"b)\"), ?outcome, \"did, it\");");
    assert_eq!((found.message.as_str(), found.fields), ("did, it", fields(&["action", "n", "outcome"])));
    assert_eq!(read("\"stopped\"), else").fields, fields(&[]));
}

/// What a line says of an error can quote a response, so a Secret has to be kept out where it is made.
#[test]
fn no_line_has_a_field_for_a_secret() {
    for Line { message, fields, .. } in in_source() {
        for wrong in ["token", "password", "key", "secret", "certificate", "authorization"] {
            assert!(!fields.iter().any(|it| it.contains(wrong)), "{message}: {fields:?}");
        }
    }
}
