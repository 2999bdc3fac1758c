//! The program that judges, and what it says.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use tokio::process::Command;

macro_rules! sources {
    ($($file:literal),+) => { &[$(($file, include_str!(concat!("../../history-checker/", $file)))),+] };
}

const PROGRAM: &str = "history-checker";
const SOURCES: &[(&str, &str)] = sources!(
    "go.mod",
    "go.sum",
    "history.go",
    "main.go",
    "register.go",
    "revisions.go",
    "statistics.go",
    "values.go",
    "violation.go"
);

/// How a cluster served its clients that broke no promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub operations: usize,
    pub acked_writes: usize,
    /// Without effect, as their clients were told.
    pub failed: usize,
    /// With or without effect: their clients do not know.
    pub unknown: usize,
    /// The longest time in which no write of any client was acknowledged, from the first such write to the end,
    /// without rests.
    pub longest_gap: Duration,
    /// When that began, since the start.
    pub longest_gap_began: Duration,
}

#[derive(Clone, Debug)]
pub enum Judgement {
    Good(Verdict),
    /// With the operations that prove it.
    Violated(String),
    /// With what is missing.
    Undecided(String),
}

#[derive(Deserialize)]
struct Statistics {
    operations: usize,
    acked_writes: usize,
    failed: usize,
    unknown: usize,
    longest_gap_ns: u64,
    longest_gap_began_ns: u64,
}

#[derive(Clone, Debug)]
pub struct Checker {
    program: PathBuf,
}

impl Checker {
    /// Compiles it unless that was done before.
    pub async fn build() -> Result<Self> {
        Ok(Self { program: testbed::build::ensure_program(PROGRAM, SOURCES).await? })
    }

    pub async fn judge(&self, history: &Path) -> Result<Judgement> {
        let output = Command::new(&self.program)
            .arg(history)
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        match output.status.code() {
            Some(0) => Ok(Judgement::Good(verdict(&output.stdout)?)),
            Some(1) => Ok(Judgement::Violated(said)),
            Some(2) => Ok(Judgement::Undecided(said)),
            _ => bail!("{} ended with {}: {said}", self.program.display(), output.status),
        }
    }
}

fn verdict(json: &[u8]) -> Result<Verdict> {
    let Statistics { operations, acked_writes, failed, unknown, longest_gap_ns, longest_gap_began_ns } =
        serde_json::from_slice(json).context("cannot parse the checker's statistics")?;
    Ok(Verdict {
        operations,
        acked_writes,
        failed,
        unknown,
        longest_gap: Duration::from_nanos(longest_gap_ns),
        longest_gap_began: Duration::from_nanos(longest_gap_began_ns),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_of_the_checker_but_its_tests_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(PROGRAM);
        let names = std::fs::read_dir(folder).expect("it is there").flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let there: BTreeSet<_> = names.filter(|name| !name.ends_with("_test.go")).collect();
        let embedded: BTreeSet<_> = SOURCES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(embedded, there);
    }

    const PUT: &str = r#"{"client":1,"kind":"put","key":"k","write":"a","call":1,"return":2,"outcome":"ok","applied":true,"revision":2,"cluster_id":"c"}"#;
    const FINAL: &str = r#"{"client":1,"kind":"get","key":"k","read":"a","call":3,"return":4,"outcome":"ok","revision":2,"mod_revision":2,"cluster_id":"c","final":true}"#;

    #[tokio::test]
    async fn the_program_says_good_bad_and_undecided() {
        let checker = Checker::build().await.expect("it can be built");
        let file = std::env::temp_dir().join(format!("history-judged-{}.jsonl", std::process::id()));
        let lost = FINAL.replace("\"read\":\"a\",", "");
        let mut judgements = Vec::new();
        for text in [[PUT, FINAL].join("\n"), [PUT, &lost].join("\n"), PUT.to_owned()] {
            std::fs::write(&file, text).expect("it can be written");
            judgements.push(checker.judge(&file).await.expect("it runs"));
        }
        std::fs::remove_file(&file).expect("it can be removed");
        let [Judgement::Good(verdict), Judgement::Violated(bad), Judgement::Undecided(open)] =
            &judgements[..]
        else {
            panic!("{judgements:?}");
        };
        assert_eq!((verdict.operations, verdict.acked_writes, verdict.unknown), (2, 1, 0));
        assert!(bad.contains("LOST WRITE"), "{bad}");
        assert!(open.contains("no final read"), "{open}");
    }
}
