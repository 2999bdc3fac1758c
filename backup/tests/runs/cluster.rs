//! Members of real etcd, as processes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use etcd_client::{Client, MemberAddOptions};
use serde_json::{Value, json};
use testbed::stand_in::Processes;

/// In the certificate of a cluster with TLS.
pub const USER: &str = "rcgen self signed cert";
pub const VERSION: &str = "3.6.16";
const LIMIT: Duration = Duration::from_secs(60);

/// The files of a certificate that is its own authority, for the addresses of a cluster.
struct Tls {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Tls {
    fn new(directory: &Path, addresses: impl IntoIterator<Item = String>) -> Self {
        let made = rcgen::generate_simple_self_signed(addresses.into_iter().collect::<Vec<_>>());
        let made = made.expect("a certificate");
        let write = |name: &str, content: String| {
            let path = directory.join(name);
            std::fs::write(&path, content).expect("a file");
            path
        };
        Self {
            authority: write("ca.crt", made.cert.pem()),
            certificate: write("tls.crt", made.cert.pem()),
            key: write("tls.key", made.signing_key.serialize_pem()),
        }
    }
}

pub struct Cluster {
    members: Processes,
    programs: PathBuf,
    size: u8,
    tls: Option<Tls>,
}

impl Cluster {
    pub async fn start(version: &str, size: u8) -> Self {
        Self::start_with(version, size, false).await
    }

    pub async fn start_with(version: &str, size: u8, with_tls: bool) -> Self {
        let programs = testbed::build::ensure_etcd(version).await.expect("etcd is built").dir;
        let members = Processes::new("etcd-backup-etcd").expect("a scratch directory");
        let addresses = (0..size).map(|ordinal| members.address(ordinal).to_string());
        let tls = with_tls.then(|| Tls::new(members.directory(), addresses));
        let mut cluster = Self { members, programs, size, tls };
        for ordinal in 0..size {
            cluster.run(ordinal, "new");
        }
        if cluster.tls.is_none() {
            for ordinal in 0..size {
                cluster.serves(ordinal).await;
            }
        }
        cluster
    }

    /// One member with the data of a snapshot.
    pub async fn restored(version: &str, snapshot: &Path) -> Self {
        let programs = testbed::build::ensure_etcd(version).await.expect("etcd is built").dir;
        let members = Processes::new("etcd-backup-etcd").expect("a scratch directory");
        let mut cluster = Self { members, programs, size: 1, tls: None };
        let peer = cluster.peer(0);
        let output = Command::new(cluster.programs.join("etcdutl"))
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .arg("--data-dir")
            .arg(cluster.data(0))
            .args(["--name", "m0", "--initial-cluster", &format!("m0={peer}")])
            .args(["--initial-advertise-peer-urls", &peer])
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        cluster.run(0, "existing");
        cluster.serves(0).await;
        cluster
    }

    /// Where etcd and etcdutl are.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    pub fn endpoint(&self, ordinal: u8) -> String {
        format!(
            "{}://{}:2379",
            if self.tls.is_some() { "https" } else { "http" },
            self.members.address(ordinal)
        )
    }

    /// As the inputs of a run have them.
    pub fn inputs(&self, ordinals: impl IntoIterator<Item = u8>) -> Value {
        let endpoints: Vec<_> = ordinals.into_iter().map(|ordinal| self.endpoint(ordinal)).collect();
        let tls = self
            .tls
            .as_ref()
            .map(|tls| json!({"caFile": tls.authority, "certFile": tls.certificate, "keyFile": tls.key}));
        json!({"endpoints": endpoints, "tls": tls})
    }

    pub async fn client(&self, ordinal: u8) -> Client {
        Client::connect([self.endpoint(ordinal)], None).await.expect("it serves")
    }

    /// The ID of the cluster, and that of the leader.
    pub async fn ids(&self) -> (String, String) {
        let status = self.client(0).await.status().await.expect("it serves");
        (format!("{:x}", status.header().expect("it has one").cluster_id()), format!("{:x}", status.leader()))
    }

    pub async fn leader(&self) -> u8 {
        for ordinal in 0..self.size {
            let status = self.client(ordinal).await.status().await.expect("it serves");
            if status.leader() == status.header().expect("it has one").member_id() {
                return ordinal;
            }
        }
        panic!("no member leads")
    }

    /// Writes what does not compress.
    pub async fn fill(&self, mebibytes: usize) {
        let mut client = self.client(0).await;
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut value = vec![0; 1 << 20];
        for number in 0..mebibytes {
            for bytes in value.chunks_exact_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                bytes.copy_from_slice(&state.to_le_bytes());
            }
            client.put(format!("key-{number}"), value.clone(), None).await.expect("it is written");
        }
    }

    /// Adds one more member as a learner. etcd accepts it when the voters have been connected for some seconds.
    pub async fn add_learner(&mut self) -> u8 {
        let (ordinal, url) = (self.size, self.peer(self.size));
        let mut client = self.client(0).await;
        until("the learner to be accepted", async || {
            let options = MemberAddOptions::new().with_is_learner();
            client.member_add([url.clone()], Some(options)).await.is_ok()
        })
        .await;
        self.size += 1;
        self.run(ordinal, "existing");
        until("the learner to start", async || {
            let Ok(mut client) = Client::connect([self.endpoint(ordinal)], None).await else { return false };
            client.status().await.is_ok_and(|status| status.is_learner())
        })
        .await;
        ordinal
    }

    pub fn kill(&mut self, ordinal: u8) {
        self.members.kill(ordinal);
    }

    /// Starts one again after [`Self::kill`], with its data.
    pub async fn restart(&mut self, ordinal: u8) {
        self.run(ordinal, "existing");
        self.serves(ordinal).await;
    }

    /// Starts one again after [`Self::kill`], without its data: a cluster of the same ID, with another history.
    pub async fn restart_empty(&mut self, ordinal: u8) {
        std::fs::remove_dir_all(self.data(ordinal)).expect("it was its own");
        self.run(ordinal, "new");
        self.serves(ordinal).await;
    }

    /// What etcd's own program says of a snapshot.
    pub fn etcdutl_status(&self, snapshot: &Path) -> Value {
        let output = Command::new(self.programs.join("etcdutl"))
            .args(["snapshot", "status", "--write-out=json"])
            .arg(snapshot)
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Runs etcd's own client with the certificate of the cluster, if it has one; None if it fails.
    pub fn etcdctl(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new(self.programs.join("etcdctl"));
        command.env_clear().args(["--endpoints", &self.endpoint(0)]).args(arguments);
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.authority);
            command.arg("--cert").arg(&tls.certificate).arg("--key").arg(&tls.key);
        }
        let output = command.output().expect("it runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn data(&self, ordinal: u8) -> PathBuf {
        self.members.directory().join(format!("data-{ordinal}"))
    }

    fn peer(&self, ordinal: u8) -> String {
        format!("http://{}:2380", self.members.address(ordinal))
    }

    fn run(&mut self, ordinal: u8, state: &str) {
        let (client, peer) = (self.endpoint(ordinal), self.peer(ordinal));
        let all: Vec<_> = (0..self.size).map(|it| format!("m{it}={}", self.peer(it))).collect();
        let mut command = Command::new(self.programs.join("etcd"));
        command.env_clear().args(["--name", &format!("m{ordinal}"), "--unsafe-no-fsync"]);
        command.arg("--data-dir").arg(self.data(ordinal));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &all.join(","), "--initial-cluster-state", state]);
        command.args(["--quota-backend-bytes", "8589934592"]);
        if let Some(tls) = &self.tls {
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&tls.authority);
            command.arg("--cert-file").arg(&tls.certificate).arg("--key-file").arg(&tls.key);
        }
        self.members.start(ordinal, command).expect("etcd starts");
    }

    async fn serves(&self, ordinal: u8) {
        until("a member to serve", async || {
            let Ok(mut client) = Client::connect([self.endpoint(ordinal)], None).await else { return false };
            client.get("x", None).await.is_ok()
        })
        .await;
    }
}

pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < LIMIT, "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
