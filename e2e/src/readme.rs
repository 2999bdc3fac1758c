//! Commands of README.md, run as a reader types them: so what the document says is what the tests run.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use crate::runner::Context;
use crate::workspace;

/// When a command that hangs is ended. GNU `timeout` ends the programs that it started, too.
const LIMIT_SECONDS: &str = "240";

/// The first block of this language below a heading of README.md.
pub fn block(heading: &str, language: &str) -> Result<String> {
    let file = workspace::root().join("README.md");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let found = block_of(&text, heading, language);
    found.with_context(|| format!("README.md has no {language} block below {heading:?}"))
}

fn block_of(text: &str, heading: &str, language: &str) -> Option<String> {
    let is_heading = |line: &&str| line.starts_with('#') && line.trim_start_matches('#').trim() == heading;
    let mut lines = text.lines().skip_while(|line| !is_heading(line)).skip(1);
    let opening = format!("```{language}");
    lines
        .by_ref()
        .take_while(|line| !line.starts_with("## ") && !line.starts_with("### "))
        .find(|line| *line == opening)?;
    Some(lines.take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect())
}

/// Runs commands with bash in a folder that holds a copy of `config/`, with `kubectl` for the testbed.
pub async fn run(context: &Context, folder: &Path, commands: &str) -> Result<String> {
    for line in commands.lines() {
        context.step(format!("$ {line}"));
    }
    let kubectl = context.kubectl();
    let programs = kubectl.program().parent().context("kubectl lies in no folder")?;
    let search = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("timeout");
    command.args([LIMIT_SECONDS, "bash", "-euo", "pipefail", "-c", commands]).current_dir(folder);
    command
        .env("PATH", format!("{}:{search}", programs.display()))
        .env("KUBECONFIG", context.bed().kubeconfig());
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.context("cannot run bash")?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    for line in text.lines() {
        context.step(line);
    }
    ensure!(output.status.success(), "{} ({LIMIT_SECONDS} s at most):\n{commands}\n{text}", output.status);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Top\n### One\n```yaml\na: 1\n```\n```sh\nfirst \\\n  more\n```\n```sh\nother\n```\n### Two\n```sh\nlast\n```\n";

    #[test]
    fn a_block_is_found_below_its_heading_and_not_below_the_next() {
        assert_eq!(block_of(TEXT, "One", "sh").as_deref(), Some("first \\\n  more\n"));
        assert_eq!(block_of(TEXT, "Two", "sh").as_deref(), Some("last\n"));
        assert_eq!(block_of(TEXT, "Two", "yaml"), None);
        assert_eq!(block_of(TEXT, "Three", "sh"), None);
    }
}
