//! An etcd that runs only while something is replayed into it, on loopback, for clients with a certificate that exists nowhere else.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, KvClient, LeaseGrantOptions,
    ResponseHeader,
};
use rcgen::{CertificateParams, DnType, KeyPair};
use tokio::process::{Child, Command};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::Options;
use super::keep_alive::Leases;
use crate::error::Error;
use crate::etcd::{connect, words};

const NAME: &str = "replay";
const ADDRESS: &str = "127.0.0.1";
const START_LIMIT: Duration = Duration::from_secs(120);
/// The user with all rights, if the copy has authentication enabled.
const USER: &str = "root";
/// As much as a segment can have, and what a transaction adds to it.
const MAX_REQUEST_BYTES: &str = "536870912";
const MAX_OPERATIONS: &str = "10000000";
const MAX_RESPONSE_BYTES: usize = 512 << 20;
const QUOTA_BYTES: &str = "1099511627776";
const LOG_LINES: usize = 5;

/// Removed with everything in it.
pub struct Directory(PathBuf);

impl Directory {
    pub fn create(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Output { doing: format!("create {}", path.display()), source };
        std::fs::create_dir(path).map_err(failed)?;
        Ok(Self(path.to_owned()))
    }

    /// What an attempt that was killed has left.
    pub fn remove(path: &Path) -> Result<(), Error> {
        match std::fs::remove_dir_all(path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::Output { doing: format!("remove {}", path.display()), source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub struct Scratch {
    pub client: Client,
    /// For responses of any size.
    pub keys: KvClient,
    /// The revision of the copy.
    pub begin: i64,
    pub leases: Leases,
    _process: Child,
    _directory: Directory,
}

impl Scratch {
    /// With the data of a copy, whose file is removed.
    pub async fn start(options: &Options, directory: Directory, copy: &Path) -> Result<Self, Error> {
        let [client_port, peer_port] = free_ports()?;
        let (client_url, peer_url) =
            (format!("https://{ADDRESS}:{client_port}"), format!("http://{ADDRESS}:{peer_port}"));
        let (data, cluster) = (directory.file("data"), format!("{NAME}={peer_url}"));
        let begin = copy_revision(&options.etcdutl, copy).await?;
        let mut restore = Command::new(&options.etcdutl);
        restore.args(["snapshot", "restore"]).arg(copy).arg("--data-dir").arg(&data);
        restore.args([
            "--name",
            NAME,
            "--initial-cluster",
            &cluster,
            "--initial-advertise-peer-urls",
            &peer_url,
        ]);
        run(restore, &options.etcdutl).await?;
        let _ = std::fs::remove_file(copy);

        let (certificate, key) = certificate()?;
        let (certificate_file, key_file) = (directory.file("tls.crt"), directory.file("tls.key"));
        write(&certificate_file, &certificate)?;
        write(&key_file, &key)?;
        let log_file = directory.file("etcd.log");
        let failed = |source| Error::Output { doing: format!("write {}", log_file.display()), source };
        let log = std::fs::File::create(&log_file).map_err(failed)?;
        let mut etcd = Command::new(&options.etcd);
        // Nothing of the environment is a setting of etcd, except where programs are.
        etcd.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        etcd.args(["--name", NAME, "--unsafe-no-fsync"]).arg("--data-dir").arg(&data);
        etcd.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
        etcd.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
        etcd.args(["--initial-cluster", &cluster, "--snapshot-count", "5000"]);
        etcd.args(["--max-request-bytes", MAX_REQUEST_BYTES, "--max-txn-ops", MAX_OPERATIONS]);
        etcd.args(["--quota-backend-bytes", QUOTA_BYTES]);
        etcd.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&certificate_file);
        etcd.arg("--cert-file").arg(&certificate_file).arg("--key-file").arg(&key_file);
        etcd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        let mut process = etcd
            .spawn()
            .map_err(|source| Error::Output { doing: format!("run {}", options.etcd.display()), source })?;
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&certificate))
            .identity(Identity::from_pem(&certificate, &key));
        let began = Instant::now();
        let (mut client, channel) = loop {
            let ended = process.try_wait().ok().flatten();
            match serving(&client_url, tls.clone()).await {
                Ok(serving) => break serving,
                Err(words) if ended.is_some() || began.elapsed() > START_LIMIT => {
                    let log = last_lines(&log_file);
                    return Err(Error::Scratch(format!("it does not start: {words}: {log}")));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        };
        let leases = Leases::keep_alive(channel, &mut client).await?;
        let keys = client.kv_client().max_decoding_message_size(MAX_RESPONSE_BYTES);
        let mut scratch = Self { client, keys, begin, leases, _process: process, _directory: directory };
        scratch.disarm().await?;
        let found = scratch.revision().await?;
        if found != begin {
            let why = scratch.leases.why();
            return Err(Error::Scratch(format!("it starts at revision {found} instead of {begin}, {why}")));
        }
        Ok(scratch)
    }

    async fn revision(&mut self) -> Result<i64, Error> {
        let read = self.client.get("\0", None).await;
        let read = read.map_err(|error| Error::Scratch(words(&error)))?;
        Ok(read.header().map_or(0, ResponseHeader::revision))
    }

    /// Grants one that neither the copy nor the replay has.
    pub async fn ensure_lease(&mut self, id: i64) -> Result<(), Error> {
        let Some(ttl) = self.leases.missing(id) else { return Ok(()) };
        let granted = self.client.lease_grant(ttl, Some(LeaseGrantOptions::new().with_id(id))).await;
        granted.map_err(|error| Error::Scratch(format!("lease {id:x}: {}", words(&error))))?;
        self.leases.granted(id, ttl);
        Ok(())
    }

    pub async fn compact(&mut self, revision: i64) -> Result<(), Error> {
        let options = CompactionOptions::new().with_physical();
        let compacted = self.client.compact(revision, Some(options)).await;
        compacted.map(drop).map_err(|error| Error::Scratch(format!("compaction: {}", words(&error))))
    }

    /// An alarm of the source would refuse writes.
    async fn disarm(&mut self) -> Result<(), Error> {
        let failed = |error: etcd_client::Error| Error::Scratch(format!("alarms: {}", words(&error)));
        let alarms = self.client.alarm(AlarmAction::Get, AlarmType::None, None).await.map_err(failed)?;
        for alarm in alarms.alarms() {
            let mut options = AlarmOptions::new();
            options.with_member(alarm.member_id());
            self.client.alarm(AlarmAction::Deactivate, alarm.alarm(), Some(options)).await.map_err(failed)?;
        }
        Ok(())
    }
}

async fn serving(url: &str, tls: ClientTlsConfig) -> Result<(Client, etcd_client::Channel), String> {
    let channel = connect(url, Some(tls)).await?;
    let mut client = Client::from_channel(channel.clone(), None).await.map_err(|error| words(&error))?;
    client.get("\0", None).await.map_err(|error| words(&error))?;
    Ok((client, channel))
}

/// As etcd's own program reads it from the file.
async fn copy_revision(etcdutl: &Path, copy: &Path) -> Result<i64, Error> {
    let mut status = Command::new(etcdutl);
    status.args(["snapshot", "status", "--write-out=json"]).arg(copy);
    let output = run(status, etcdutl).await?;
    let status: serde_json::Value = serde_json::from_slice(&output).unwrap_or_default();
    let none = || Error::Scratch(format!("{} reports no revision of the copy", etcdutl.display()));
    // Without any key it reports 0, and etcd starts at 1.
    status["revision"].as_i64().map(|revision| revision.max(1)).ok_or_else(none)
}

/// What it prints.
async fn run(mut command: Command, program: &Path) -> Result<Vec<u8>, Error> {
    let ran = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output =
        ran.map_err(|source| Error::Output { doing: format!("run {}", program.display()), source })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = text.lines().last().unwrap_or_default().to_owned();
    Err(Error::Scratch(format!("{} fails: {last}", program.display())))
}

/// Its own authority, for server and client: its name is that of the user.
fn certificate() -> Result<(String, String), Error> {
    let failed = |error: rcgen::Error| Error::Scratch(format!("no certificate: {error}"));
    let mut params = CertificateParams::new(vec![ADDRESS.to_owned()]).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, USER);
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn free_ports() -> Result<[u16; 2], Error> {
    let failed = |source| Error::Output { doing: format!("listen on {ADDRESS}"), source };
    let listen = || TcpListener::bind((ADDRESS, 0)).map_err(failed);
    let (one, other) = (listen()?, listen()?);
    let port = |listener: &TcpListener| Ok(listener.local_addr().map_err(failed)?.port());
    Ok([port(&one)?, port(&other)?])
}

fn write(file: &Path, content: &str) -> Result<(), Error> {
    let failed = |source| Error::Output { doing: format!("write {}", file.display()), source };
    std::fs::write(file, content).map_err(failed)
}

fn last_lines(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("; ")
}
