//! One run of `go build`.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::part::Part;
use super::progress::{LINE_EVERY, Progress};

/// The last one is for the compiler itself: it collects garbage less often, which saves a sixth of its time.
pub const ENVIRONMENT: [(&str, &str); 3] = [("CGO_ENABLED", "0"), ("GOWORK", "off"), ("GOGC", "400")];

/// How much of a failed build's output is shown.
const LAST_LINES: usize = 20;

/// Builds the module in `sources` into the directory `programs`; all else that is written goes to `scratch`.
pub async fn compile(
    part: &Part,
    sources: &Path,
    programs: &Path,
    scratch: &Path,
    progress: &Progress,
) -> Result<()> {
    let mut command = Command::new("go");
    command
        .args(["build", "-v"])
        .args(&part.flags)
        .arg("-o")
        // The slash at the end makes it a directory.
        .arg(programs.join(""))
        .args(part.packages)
        .current_dir(sources)
        .envs(ENVIRONMENT)
        .env("GOTMPDIR", scratch)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if part.summed {
        command.env("GOFLAGS", "-mod=readonly");
    } else {
        // There is nothing yet to hold the modules against, and the public database may be out of reach.
        command.env("GOFLAGS", "-mod=mod").env("GOSUMDB", "off");
    }
    let mut child = command.spawn().context("cannot run go")?;
    let stderr = child.stderr.take().context("cannot read the output of go")?;
    let output = follow(BufReader::new(stderr).lines(), progress).await?;
    let status = child.wait().await.context("cannot wait for go")?;
    if !status.success() {
        bail!("go build failed ({status}):\n{}", output.last_words());
    }
    Ok(())
}

/// Copies the files of a folder of a module that the part is built from.
pub async fn copy_data((module, folder): (&str, &str), sources: &Path, programs: &Path) -> Result<()> {
    let output = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", module])
        .current_dir(sources)
        .envs(ENVIRONMENT)
        .env("GOFLAGS", "-mod=readonly")
        .kill_on_drop(true)
        .output()
        .await
        .context("cannot run go")?;
    if !output.status.success() {
        bail!("`go list -m {module}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let folder = Path::new(String::from_utf8_lossy(&output.stdout).trim()).join(folder);
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        std::fs::copy(entry.path(), programs.join(entry.file_name()))
            .with_context(|| format!("cannot copy {}", entry.path().display()))?;
    }
    Ok(())
}

async fn follow(
    mut lines: tokio::io::Lines<impl tokio::io::AsyncBufRead + Unpin>,
    progress: &Progress,
) -> Result<Output> {
    let mut output = Output::default();
    let mut now_and_then = tokio::time::interval_at(tokio::time::Instant::now() + LINE_EVERY, LINE_EVERY);
    loop {
        tokio::select! {
            line = lines.next_line() => match line.context("cannot read the output of go")? {
                Some(line) => {
                    output.add(line);
                    progress.at(&output.state());
                }
                None => return Ok(output),
            },
            _ = now_and_then.tick() => progress.still_at(&output.state()),
        }
    }
}

/// What `go build -v` has said so far.
#[derive(Debug, Default)]
struct Output {
    packages: usize,
    modules: usize,
    complaints: VecDeque<String>,
}

impl Output {
    fn add(&mut self, line: String) {
        if line.starts_with("go: downloading ") {
            self.modules += 1;
        } else if !line.is_empty() && !line.contains(char::is_whitespace) {
            // With -v, a package's bare path says that its compilation begins.
            self.packages += 1;
        } else {
            if self.complaints.len() == LAST_LINES {
                self.complaints.pop_front();
            }
            self.complaints.push_back(line);
        }
    }

    fn state(&self) -> String {
        match (self.packages, self.modules) {
            (0, 0) => String::new(),
            (0, modules) => format!("{modules} modules fetched"),
            (packages, _) => format!("{packages} packages compiled"),
        }
    }

    fn last_words(&self) -> String {
        self.complaints.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(lines: &str) -> Output {
        let mut output = Output::default();
        lines.lines().for_each(|line| output.add(line.to_owned()));
        output
    }

    #[test]
    fn packages_are_counted_and_nothing_else_is() {
        let output = output(
            "go: downloading k8s.io/api v0.34.12\ngo: downloading k8s.io/kms v0.34.12\ninternal/unsafeheader\n\
             k8s.io/api/core/v1\ntestbed/pause\n# testbed/pause\n./main.go:3:8: \"oz\" is not in std\n",
        );
        assert_eq!((output.packages, output.modules, output.complaints.len()), (3, 2, 2));
        assert_eq!(output.state(), "3 packages compiled");
    }

    #[test]
    fn fetching_is_told_until_compiling_begins() {
        assert_eq!(output("").state(), "");
        assert_eq!(output("go: downloading k8s.io/api v0.34.12").state(), "1 modules fetched");
    }

    #[test]
    fn the_last_words_are_the_last_complaints() {
        let lines: String = (1..=30).map(|number| format!("complaint {number}\nsome/package\n")).collect();
        let words = output(&lines).last_words();
        assert_eq!(words.lines().count(), LAST_LINES);
        assert!(words.starts_with("complaint 11\n") && words.ends_with("complaint 30"), "{words}");
    }
}
