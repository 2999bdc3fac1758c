//! The commands in a document: what its readers type, what it shows as the answer, and what prepares them in a test.
//!
//! A fenced block in `sh` is one script. A fenced block in `console` holds commands behind `$ `, continued behind `> `,
//! each followed by its output. A comment that begins with `<!-- test` holds a script that only tests run.
//! A block that no test can run gives its reason behind its language: `sh no-test: it needs docker`.

/// Commands that stand together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The heading of the second level above it; empty before the first one.
    pub section: String,
    /// The nearest heading above it, of any level.
    pub heading: String,
    /// The line of its fence, counted from 1.
    pub line: usize,
    /// Why no test runs it.
    pub untested: Option<String>,
    /// Only tests run it.
    pub hidden: bool,
    pub commands: Vec<Command>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// As a shell takes it; it can have several lines.
    pub text: String,
    /// The lines that the document shows below it.
    pub output: Vec<String>,
}

const HIDDEN: &str = "<!-- test";
const NO_TEST: &str = "no-test:";

/// What ends a block, and what it is.
enum Open {
    Script {
        hidden: bool,
    },
    Console,
    /// Another language, or a comment for readers of the source.
    Other,
}

pub fn blocks(document: &str) -> Vec<Block> {
    let mut found = Vec::<Block>::new();
    let (mut section, mut heading) = (String::new(), String::new());
    let (mut open, mut indent): (Option<(Open, &str, Vec<&str>)>, _) = (None, "");
    for (index, line) in document.lines().enumerate() {
        let Some((kind, end, body)) = &mut open else {
            if line.starts_with('#') {
                heading = line.trim_start_matches('#').trim().to_owned();
                section = if line.starts_with("## ") { heading.clone() } else { section };
            }
            let Some((kind, end, untested)) = begun(line) else { continue };
            let hidden = matches!(kind, Open::Script { hidden: true });
            if !matches!(kind, Open::Other) {
                let (section, heading) = (section.clone(), heading.clone());
                let (line, commands) = (index + 1, Vec::new());
                found.push(Block { section, heading, line, untested, hidden, commands });
            }
            indent = &line[..line.len() - line.trim_start().len()];
            open = Some((kind, end, Vec::new()));
            continue;
        };
        if line.trim() != *end {
            // A block in a list is indented as a whole.
            body.push(line.strip_prefix(indent).unwrap_or(line));
            continue;
        }
        let commands = match kind {
            Open::Script { .. } => script(body),
            Open::Console => console(body),
            Open::Other => Vec::new(),
        };
        if !matches!(kind, Open::Other)
            && let Some(block) = found.last_mut()
        {
            block.commands = commands;
        }
        open = None;
    }
    found
}

/// The anchor of a heading, as links name it: lower case, dashes for spaces, no other signs.
pub fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    words.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

fn begun(line: &str) -> Option<(Open, &'static str, Option<String>)> {
    if line.trim() == HIDDEN {
        return Some((Open::Script { hidden: true }, "-->", None));
    }
    let about = line.trim_start().strip_prefix("```")?;
    let (language, rest) = about.split_once(' ').unwrap_or((about, ""));
    let untested = rest.trim().strip_prefix(NO_TEST).map(|reason| reason.trim().to_owned());
    let kind = match language {
        "sh" => Open::Script { hidden: false },
        "console" => Open::Console,
        _ => Open::Other,
    };
    Some((kind, "```", untested))
}

fn script(lines: &[&str]) -> Vec<Command> {
    vec![Command { text: lines.join("\n"), output: Vec::new() }]
}

fn console(lines: &[&str]) -> Vec<Command> {
    let mut commands = Vec::<Command>::new();
    for line in lines {
        if let Some(text) = line.strip_prefix("$ ") {
            commands.push(Command { text: text.to_owned(), output: Vec::new() });
            continue;
        }
        let Some(command) = commands.last_mut() else { continue };
        let unfinished = command.output.is_empty() && command.text.ends_with('\\');
        match line.strip_prefix("> ") {
            Some(more) if command.output.is_empty() => command.text = format!("{}\n{more}", command.text),
            _ if unfinished => command.text = format!("{}\n{line}", command.text),
            _ if line.trim().is_empty() => {}
            _ => command.output.push((*line).to_owned()),
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "\
# Title
```sh no-test: it needs docker
kind create cluster
```
## First
<!-- test
echo prepared
-->
```console
$ echo one \\
    two   # as you like
one two

$ cat <<END
> three
> END
three
$ true
```
```json
{}
```
## Second
### Part
1. Do this:

   ```sh
   echo a
     echo b
   ```
";

    #[test]
    fn commands_come_with_their_section_their_output_and_their_reason() {
        let blocks = blocks(DOCUMENT);
        let shape: Vec<_> =
            blocks.iter().map(|it| (it.section.as_str(), it.line, it.hidden, it.commands.len())).collect();
        assert_eq!(
            shape,
            [("", 2, false, 1), ("First", 6, true, 1), ("First", 9, false, 3), ("Second", 27, false, 1)]
        );
        assert_eq!(blocks[0].untested.as_deref(), Some("it needs docker"));
        let [first, second, third] = &blocks[2].commands[..] else { panic!("three commands") };
        assert_eq!(first.text, "echo one \\\n    two   # as you like");
        assert_eq!(first.output, ["one two"]);
        assert_eq!((second.text.as_str(), second.output.len()), ("cat <<END\nthree\nEND", 1));
        assert_eq!(third.output, [""; 0]);
        assert_eq!((blocks[2].heading.as_str(), blocks[3].heading.as_str()), ("First", "Part"));
        assert_eq!(blocks[3].commands[0].text, "echo a\n  echo b");
    }

    #[test]
    fn an_anchor_is_what_a_link_to_the_heading_says() {
        assert_eq!(anchor("## The `run` command!"), "the-run-command");
    }
}
