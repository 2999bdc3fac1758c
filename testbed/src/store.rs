//! Real object stores for tests of backups, on loopback: an S3 server that keeps objects as files of a directory.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Subcommand, ValueEnum};
use tokio::net::TcpStream;

use crate::stand_in::Processes;
use crate::{build, say};

const PORT: u16 = 7070;
const START_LIMIT: Duration = Duration::from_secs(30);
const REGION: &str = "us-east-1";

/// How an S3 server is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Certificate and key, to serve TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Whether it refuses everything that changes objects.
    pub read_only: bool,
}

/// An S3 server with one account and one bucket. It ends with this value, and so do its objects.
pub struct S3 {
    processes: Processes,
    program: PathBuf,
    options: Options,
}

impl S3 {
    pub const BUCKET: &str = "backups";
    pub const ACCESS_KEY: &str = "testbed";
    pub const SECRET_KEY: &str = "testbed-secret";

    pub async fn start(options: Options) -> Result<Self> {
        let program = build::ensure_versitygw().await?;
        let processes = Processes::new("testbed-s3").context("cannot create a directory")?;
        let mut store = Self { processes, program, options };
        std::fs::create_dir_all(store.bucket()).context("cannot create the bucket")?;
        store.run().await?;
        Ok(store)
    }

    /// Ends it at once, in the middle of whatever it does; its objects stay.
    pub fn kill(&mut self) {
        self.processes.kill(0);
    }

    /// Starts it again after [`Self::kill`], with the same objects.
    pub async fn restart(&mut self, options: Options) -> Result<()> {
        self.options = options;
        self.run().await
    }

    pub fn endpoint(&self) -> String {
        let scheme = if self.options.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address())
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.processes.address(0), PORT)
    }

    /// Where its objects are, as files.
    pub fn bucket(&self) -> PathBuf {
        self.objects().join(Self::BUCKET)
    }

    /// Of the server itself, for files that belong to it.
    pub fn directory(&self) -> &Path {
        self.processes.directory()
    }

    fn objects(&self) -> PathBuf {
        self.directory().join("objects")
    }

    async fn run(&mut self) -> Result<()> {
        // Not every file system has extended attributes.
        let metadata = self.directory().join("metadata");
        std::fs::create_dir_all(&metadata).context("cannot create a directory")?;
        let mut command = Program::new(&self.program);
        command.args(["--port", &self.address().to_string(), "--region", REGION, "--quiet"]);
        if self.options.read_only {
            command.arg("--readonly");
        }
        if let Some((certificate, key)) = &self.options.tls {
            command.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        command.arg("posix").arg("--sidecar").arg(metadata).arg(self.objects());
        command.env("ROOT_ACCESS_KEY", Self::ACCESS_KEY).env("ROOT_SECRET_KEY", Self::SECRET_KEY);
        self.processes.start(0, command).context("cannot run versitygw")?;
        let began = Instant::now();
        while TcpStream::connect(self.address()).await.is_err() {
            if let Some(status) = self.processes.ended(0) {
                bail!("versitygw ended ({status}):\n{}", self.processes.log(0));
            }
            if began.elapsed() > START_LIMIT {
                bail!("versitygw does not listen on {}:\n{}", self.address(), self.processes.log(0));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a store until it is interrupted; then its objects are deleted
    Up { kind: Kind },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Kind {
    S3,
}

pub async fn run(command: Command) -> Result<()> {
    let Command::Up { kind: Kind::S3 } = command;
    let store = S3::start(Options::default()).await?;
    say!("An S3 server is running on {}, until you interrupt this command.", store.endpoint());
    say!("  bucket {}, region {REGION}", S3::BUCKET);
    say!("  export AWS_ACCESS_KEY_ID={} AWS_SECRET_ACCESS_KEY={}", S3::ACCESS_KEY, S3::SECRET_KEY);
    tokio::signal::ctrl_c().await.context("cannot wait for an interrupt")
}
