//! Real object stores for tests of backups: an S3 server that keeps objects as files of a directory.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Subcommand, ValueEnum};
use tokio::net::TcpStream;

use crate::layout::{HOST_ADDRESS, Layout, MARK};
use crate::stand_in::Processes;
use crate::{build, say};

const PORT: u16 = 7070;
const START_LIMIT: Duration = Duration::from_secs(30);
/// Objects in memory of a limited size. They are in a mount namespace that ends with the server.
const IN_MEMORY: &str = r#"mount -t tmpfs -o "size=$1" tmpfs "$2"; mkdir "$2/$3"; shift 3; exec "$@""#;

/// How an S3 server is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether it serves TLS, with the certificate of [`S3::authority`].
    pub tls: bool,
    /// Whether it refuses everything that changes objects.
    pub read_only: bool,
    /// For how many bytes it has room. Objects are in memory then: they end with its process, and [`S3::bucket`] is empty.
    pub room_bytes: Option<u64>,
}

/// An S3 server with one account and one bucket. It ends with this value, and so do its objects.
pub struct S3 {
    processes: Processes,
    program: PathBuf,
    options: Options,
    address: SocketAddr,
    /// Whose `down` ends it, too.
    instance: Option<Layout>,
}

impl S3 {
    pub const BUCKET: &str = "backups";
    pub const REGION: &str = "us-east-1";
    pub const ACCESS_KEY: &str = "testbed";
    pub const SECRET_KEY: &str = "testbed-secret";

    /// On loopback.
    pub async fn start(options: Options) -> Result<Self> {
        let processes = Processes::new("testbed-s3").context("cannot create a directory")?;
        let address = SocketAddr::new(processes.address(0), PORT);
        Self::begin(processes, address, None, options).await
    }

    /// At any address of this machine, and a port that is free there.
    pub async fn start_at(address: impl Into<IpAddr>, options: Options) -> Result<Self> {
        let processes = Processes::new("testbed-s3").context("cannot create a directory")?;
        Self::begin(processes, free_port(address.into())?, None, options).await
    }

    /// Where all pods and nodes of the running testbed reach it. It ends with the testbed at the latest.
    pub async fn start_for_pods(options: Options) -> Result<Self> {
        let cluster = Layout::cluster();
        ensure!(cluster.exists(), "no testbed is running: run `testbed up`");
        let processes = Processes::below(cluster.dir(), "s3").context("cannot create a directory")?;
        Self::begin(processes, free_port(HOST_ADDRESS.into())?, Some(cluster), options).await
    }

    async fn begin(
        processes: Processes,
        address: SocketAddr,
        instance: Option<Layout>,
        options: Options,
    ) -> Result<Self> {
        let program = build::ensure_versitygw().await?;
        let mut store = Self { processes, program, options, address, instance };
        std::fs::create_dir_all(store.bucket()).context("cannot create the bucket")?;
        // Not every file system has extended attributes.
        std::fs::create_dir_all(store.metadata()).context("cannot create a directory")?;
        store.certify()?;
        store.run().await?;
        Ok(store)
    }

    /// Ends it at once, in the middle of whatever it does; its objects stay.
    pub fn kill(&mut self) {
        self.processes.kill(0);
    }

    /// Starts it again after [`Self::kill`], at the same address and with the same objects.
    pub async fn restart(&mut self, options: Options) -> Result<()> {
        self.options = options;
        self.run().await
    }

    pub fn endpoint(&self) -> String {
        let scheme = if self.options.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its objects are, as files.
    pub fn bucket(&self) -> PathBuf {
        self.objects().join(Self::BUCKET)
    }

    /// The file with the certificate that its clients have to trust.
    pub fn authority(&self) -> PathBuf {
        self.processes.directory().join("tls.crt")
    }

    fn key(&self) -> PathBuf {
        self.processes.directory().join("tls.key")
    }

    fn objects(&self) -> PathBuf {
        self.processes.directory().join("objects")
    }

    fn metadata(&self) -> PathBuf {
        self.processes.directory().join("metadata")
    }

    fn certify(&self) -> Result<()> {
        let made = rcgen::generate_simple_self_signed([self.address.ip().to_string()])?;
        std::fs::write(self.authority(), made.cert.pem()).context("cannot write a certificate")?;
        std::fs::write(self.key(), made.signing_key.serialize_pem()).context("cannot write a key")
    }

    async fn run(&mut self) -> Result<()> {
        let mut command = match self.options.room_bytes {
            None => Program::new(&self.program),
            Some(bytes) => in_memory(bytes, &self.objects(), &self.program),
        };
        command.args(["--port", &self.address.to_string(), "--region", Self::REGION, "--quiet"]);
        if self.options.read_only {
            command.arg("--readonly");
        }
        if self.options.tls {
            command.arg("--cert").arg(self.authority()).arg("--key").arg(self.key());
        }
        command.arg("posix").arg("--sidecar").arg(self.metadata()).arg(self.objects());
        command.env("ROOT_ACCESS_KEY", Self::ACCESS_KEY).env("ROOT_SECRET_KEY", Self::SECRET_KEY);
        if let Some(instance) = &self.instance {
            command.env(MARK, instance.dir());
        }
        self.processes.start(0, command).context("cannot run versitygw")?;
        let began = Instant::now();
        while TcpStream::connect(self.address).await.is_err() {
            if let Some(status) = self.processes.ended(0) {
                bail!("versitygw ended ({status}):\n{}", self.processes.log(0));
            }
            if began.elapsed() > START_LIMIT {
                bail!("versitygw does not listen on {}:\n{}", self.address, self.processes.log(0));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

/// One that nothing listens on now.
pub(crate) fn free_port(address: IpAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind((address, 0)).with_context(|| format!("cannot listen on {address}"))?;
    Ok(listener.local_addr()?)
}

/// The beginning of a command whose objects are in memory.
fn in_memory(bytes: u64, objects: &Path, program: &Path) -> Program {
    let mut command = Program::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--", "sh", "-ec", IN_MEMORY, "sh", &bytes.to_string()]).arg(objects).arg(S3::BUCKET);
    command.arg(program);
    command
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a store until it is interrupted; then its objects are deleted
    Up {
        kind: Kind,
        /// Listen where pods of the running testbed reach it, instead of on loopback
        #[arg(long)]
        for_pods: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Kind {
    S3,
}

pub async fn run(command: Command) -> Result<()> {
    let Command::Up { kind: Kind::S3, for_pods } = command;
    let store = match for_pods {
        true => S3::start_for_pods(Options::default()).await?,
        false => S3::start(Options::default()).await?,
    };
    say!("An S3 server is running on {}, until you interrupt this command.", store.endpoint());
    say!("  bucket {}, region {}", S3::BUCKET, S3::REGION);
    say!("  export AWS_ACCESS_KEY_ID={} AWS_SECRET_ACCESS_KEY={}", S3::ACCESS_KEY, S3::SECRET_KEY);
    tokio::signal::ctrl_c().await.context("cannot wait for an interrupt")
}
