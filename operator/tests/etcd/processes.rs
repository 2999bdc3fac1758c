//! Clusters of bare processes, started as the agent starts them.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use etcd_operator::credentials::Security;
use etcd_operator::etcd::{EndpointStatus, Member};
use etcd_operator::reach::{PodAddress, Reach};
use etcd_operator_core::agent::Protocol;
use etcd_operator_core::etcd_config::{
    InitialState, LocalConfig, MemberConfig, MemberOptions, arguments, peer_url,
};
use etcd_operator_core::observed::MemberId;
use etcd_operator_core::order::BootstrapOrder;
use etcd_operator_core::start::Member as Peer;
use etcd_operator_core::tls::Transport;
use rustix::process::Signal;
use testbed::stand_in;
use tokio::sync::{Mutex, MutexGuard};

/// Long enough for the slowest machine; nothing here is expected to take it.
const LIMIT: Duration = Duration::from_secs(60);

/// A machine with two cores does not run several clusters at once and keep time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

pub struct Processes {
    members: stand_in::Processes,
    program: PathBuf,
    version: String,
    transport: Transport,
    options: MemberOptions,
    _alone: MutexGuard<'static, ()>,
}

impl Processes {
    pub async fn new(version: &str) -> Self {
        let alone = ONE_AT_A_TIME.lock().await;
        let program = program(version).await;
        let members = stand_in::Processes::new("etcd-reach-test").expect("a scratch directory");
        let transport = Transport::default();
        let options = MemberOptions::default();
        Self { members, program, version: version.into(), transport, options, _alone: alone }
    }

    /// A cluster of so many that serves.
    pub async fn formed(version: &str, size: u8) -> Self {
        let mut cluster = Self::new(version).await;
        let hosts: Vec<_> = (0..size).map(|ordinal| cluster.host(ordinal)).collect();
        cluster.form(&hosts).await;
        cluster
    }

    /// The same, with a quota of so many bytes for the database.
    pub async fn with_quota(version: &str, size: u8, bytes: u64) -> Self {
        let mut cluster = Self::new(version).await;
        cluster.options.quota_backend_bytes = Some(bytes);
        let hosts: Vec<_> = (0..size).map(|ordinal| cluster.host(ordinal)).collect();
        cluster.form(&hosts).await;
        cluster
    }

    /// A cluster of one, called as in Kubernetes. The name leads nowhere, but there is nobody to look it up.
    pub async fn named(version: &str, host: &str) -> Self {
        let mut cluster = Self::new(version).await;
        cluster.form(&[host.to_owned()]).await;
        cluster
    }

    /// Members find each other by these hosts, whatever they listen on.
    pub async fn form(&mut self, hosts: &[String]) {
        self.bootstrap(hosts, Transport::default());
        for (ordinal, _) in (0..).zip(hosts) {
            self.serves(ordinal).await;
        }
    }

    /// Starts members that serve like this from now on, with the certificates in [`Self::tls_dir`].
    pub fn bootstrap(&mut self, hosts: &[String], transport: Transport) {
        self.transport = transport;
        let url = |host: &String| peer_url(transport.peers.scheme(), host);
        let order = self.order((0..).zip(hosts).map(|(ordinal, host)| (name(ordinal), url(host))));
        for (ordinal, host) in (0..).zip(hosts) {
            self.start(ordinal, host, InitialState::Bootstraps(&order));
        }
    }

    pub fn tls_dir(&self) -> PathBuf {
        self.members.directory().join("tls")
    }

    pub fn data_dir(&self, ordinal: u8) -> PathBuf {
        self.members.directory().join(name(ordinal))
    }

    fn order(&self, members: impl IntoIterator<Item = (String, String)>) -> BootstrapOrder {
        BootstrapOrder {
            protocol_version: Protocol::CURRENT,
            cluster_uid: "uid".into(),
            attempt: 1,
            armed: true,
            nonce: "n1".into(),
            members: members.into_iter().collect(),
        }
    }

    pub fn host(&self, ordinal: u8) -> String {
        self.pod(ordinal).address.to_string()
    }

    pub fn pod(&self, ordinal: u8) -> PodAddress {
        let address = self.members.address(ordinal);
        PodAddress { namespace: "ns".into(), pod: name(ordinal), uid: format!("uid-{ordinal}"), address }
    }

    pub fn restart(&mut self, ordinal: u8) {
        self.start(ordinal, &self.host(ordinal), InitialState::Known { compares: false });
    }

    /// Starts a member that was added to the members before it.
    pub fn join(&mut self, ordinal: u8) {
        let peers: Vec<_> = (0..=ordinal)
            .map(|n| Peer {
                id: n.into(),
                name: name(n),
                peer_urls: vec![peer_url(self.transport.peers.scheme(), &self.host(n))],
                client_urls: Vec::new(),
                is_learner: n == ordinal,
            })
            .collect();
        self.start(ordinal, &self.host(ordinal), InitialState::Joins(&peers));
    }

    fn start(&mut self, ordinal: u8, host: &str, initial_state: InitialState<'_>) {
        let config = MemberConfig {
            version: self.version.clone(),
            cluster_uid: "uid".into(),
            peer_host: "kv-peer".into(),
            attempt: None,
            adopts: None,
            transport: self.transport,
            plain_peers: false,
            options: self.options.clone(),
        };
        let local = LocalConfig {
            name: name(ordinal),
            host: host.into(),
            listen: self.pod(ordinal).address,
            data_dir: self.data_dir(ordinal).display().to_string(),
            tls_dir: self.tls_dir().display().to_string(),
        };
        let mut command = Command::new(&self.program);
        command
            .args(arguments(&config, &local, initial_state).expect("nothing is wrong with it"))
            .env_clear();
        self.members.start(ordinal, command).expect("etcd starts");
    }

    /// Members that start from now on run this version.
    pub async fn switch_to(&mut self, version: &str) {
        self.program = program(version).await;
        self.version = version.into();
    }

    pub fn kill(&mut self, ordinal: u8) {
        self.members.kill(ordinal);
    }

    pub fn terminate(&self, ordinal: u8) {
        self.members.signal(ordinal, Signal::TERM);
    }

    /// Whether it ended, and not because it was killed.
    pub fn ended(&mut self, ordinal: u8) -> bool {
        self.members.ended(ordinal).is_some()
    }

    /// It stays, holds its connections and does nothing any more, as on a node that hangs.
    /// Returns when the last of its threads has stopped: on a busy machine that takes a moment.
    pub async fn freeze(&self, ordinal: u8) {
        self.members.signal(ordinal, Signal::STOP);
        let threads = format!("/proc/{}/task", self.members.id(ordinal));
        let is_stopped = |thread: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
        };
        until("a member to stop", async || {
            let mut threads = std::fs::read_dir(&threads).expect("it runs").flatten();
            threads.all(is_stopped).then_some(())
        })
        .await;
    }

    pub async fn member(&self, ordinal: u8) -> Member {
        Member::connect(&Reach::Direct, &self.pod(ordinal), &Security::Plain).await.expect("it listens")
    }

    /// Waits until a new connection finds it serving.
    pub async fn serves(&self, ordinal: u8) -> EndpointStatus {
        until("a member to serve", async || {
            let member = Member::connect(&Reach::Direct, &self.pod(ordinal), &Security::Plain).await.ok()?;
            let said = member.status().await.ok()?;
            (said.answer.linearizable && said.answer.leader.is_some()).then_some(said)
        })
        .await
    }

    /// Which of so many leads.
    pub async fn leader(&self, size: u8) -> (u8, MemberId) {
        until("a leader", async || {
            for ordinal in 0..size {
                let answer = self.member(ordinal).await.status().await.ok()?.answer;
                if answer.leader == Some(answer.member) {
                    return Some((ordinal, answer.member));
                }
            }
            None
        })
        .await
    }
}

pub async fn program(version: &str) -> PathBuf {
    testbed::build::ensure_etcd(version).await.expect("etcd is built").dir.join("etcd")
}

fn name(ordinal: u8) -> String {
    format!("kv-{ordinal}")
}

pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("waited too long for {what}"))
}
