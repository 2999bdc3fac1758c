//! The real `kubectl`, pointed at one cluster.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    /// `None`: what the user's environment says.
    kubeconfig: Option<PathBuf>,
}

/// How a command ended and what it said.
#[derive(Clone, Debug)]
pub struct Said {
    pub ok: bool,
    pub out: String,
    pub err: String,
}

impl Kubectl {
    pub fn new(program: impl Into<PathBuf>, kubeconfig: Option<PathBuf>) -> Self {
        Self { program: program.into(), kubeconfig }
    }

    pub fn program(&self) -> &PathBuf {
        &self.program
    }

    pub fn kubeconfig(&self) -> Option<&PathBuf> {
        self.kubeconfig.as_ref()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(kubeconfig) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        command.args(arguments).stdin(std::process::Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs it to its end, whatever that is.
    pub async fn ask(&self, arguments: &[&str]) -> Result<Said> {
        let output = self
            .command(arguments)
            .output()
            .await
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        Ok(Said {
            ok: output.status.success(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// What it printed; a failure is an error with its last words.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        let said = self.ask(arguments).await?;
        ensure!(said.ok, "`kubectl {}` failed: {}", arguments.join(" "), said.err.trim());
        Ok(said.out)
    }

    /// Runs it before the user's eyes.
    pub async fn show(&self, arguments: &[&str]) -> Result<()> {
        let status = self
            .command(arguments)
            .status()
            .await
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        ensure!(status.success(), "`kubectl {}` failed ({status})", arguments.join(" "));
        Ok(())
    }
}
