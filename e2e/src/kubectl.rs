//! The real `kubectl`, pointed at one cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// How long a command that goes on and on may take to say its first word.
const FIRST_WORD: Duration = Duration::from_secs(60);

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
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
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

    /// Starts one that goes on until it is dropped, such as `get --watch`.
    pub fn keep_running(&self, arguments: &[&str]) -> Result<Running> {
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run kubectl")?;
        let told = BufReader::new(child.stdout.take().context("no output")?).lines();
        Ok(Running { child, told })
    }

    /// Leads a port of this machine, which must be left to chance (`:2379`), to a pod or Service.
    pub async fn port_forward(&self, arguments: &[&str]) -> Result<Forward> {
        let mut running = self.keep_running(&[&["port-forward"], arguments].concat())?;
        let said = tokio::time::timeout(FIRST_WORD, running.next_line()).await;
        let said = said.context("port-forward printed nothing")??;
        // Forwarding from 127.0.0.1:40123 -> 2379
        let address = said.split_whitespace().nth(2).and_then(|address| address.parse().ok());
        let address = address.with_context(|| format!("port-forward printed no address: {said:?}"))?;
        Ok(Forward { address, running })
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

/// A command that goes on; it ends when this is dropped.
pub struct Running {
    child: Child,
    told: Lines<BufReader<ChildStdout>>,
}

impl Running {
    pub async fn next_line(&mut self) -> Result<String> {
        self.told.next_line().await?.context("kubectl exited")
    }

    pub async fn stop(mut self) -> Result<()> {
        self.child.kill().await.context("cannot stop kubectl")
    }
}

/// Open as long as this is there: kubectl tells of every connection, and would end if nobody listened.
pub struct Forward {
    pub address: SocketAddr,
    running: Running,
}

impl Forward {
    pub async fn stop(self) -> Result<()> {
        self.running.stop().await
    }
}
