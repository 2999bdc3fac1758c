//! Agents as bare processes: each with a volume and a pod's memory of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etcd_agent::http;
use etcd_operator_core::agent::{News, Protocol, Reason, Report, environment, path};
use etcd_operator_core::etcd_config::{MemberConfig, MemberOptions, peer_url};
use etcd_operator_core::member::MemberProgress;
use etcd_operator_core::order::{self, BootstrapOrder};
use etcd_operator_core::recovery::{self, ForcedStart, RecoveryOrder};
use etcd_operator_core::tls::Transport;
use rustix::process::Signal;
use testbed::stand_in::Processes;

use crate::certificates::Authority;

/// Long enough for the slowest machine; nothing here is expected to take it.
const LIMIT: Duration = Duration::from_secs(60);

/// A machine with two cores does not run several clusters at once and keep time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub struct Cluster {
    pods: Processes,
    pub programs: PathBuf,
    /// What is started as etcd from now on.
    etcd: PathBuf,
    agent: PathBuf,
    /// The user that agents run as from now on, if it is another one than that of the test.
    user: Option<u32>,
    pub config: MemberConfig,
    /// Members that are not called by their address.
    pub names: BTreeMap<usize, String>,
    pub authority: Authority,
    _alone: MutexGuard<'static, ()>,
}

impl Cluster {
    pub fn new(version: &str) -> Self {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let programs = runtime.block_on(testbed::build::ensure_etcd(version)).expect("etcd is built").dir;
        let pods = Processes::new("etcd-agent-test").expect("a scratch directory");
        let config = MemberConfig {
            version: version.into(),
            cluster_uid: format!("uid-{}", pods.address(0)),
            peer_host: pods.address(0).to_string(),
            attempt: None,
            adopts: None,
            transport: Transport::default(),
            plain_peers: false,
            options: MemberOptions::default(),
        };
        fs::create_dir_all(pods.directory().join("order")).expect("a scratch directory");
        let (etcd, agent) = (programs.join("etcd"), env!("CARGO_BIN_EXE_etcd-agent").into());
        let authority = Authority::generate();
        let (names, user) = (BTreeMap::new(), None);
        Self { pods, programs, etcd, agent, user, config, names, authority, _alone: alone }
    }

    pub fn address(&self, ordinal: usize) -> IpAddr {
        self.pods.address(small(ordinal))
    }

    pub fn host(&self, ordinal: usize) -> String {
        self.address(ordinal).to_string()
    }

    pub fn url(&self, ordinal: usize) -> String {
        peer_url(self.config.transport.peers.scheme(), &self.called(ordinal))
    }

    fn called(&self, ordinal: usize) -> String {
        self.names.get(&ordinal).cloned().unwrap_or_else(|| self.host(ordinal))
    }

    pub fn volume(&self, ordinal: usize) -> PathBuf {
        self.directory().join(format!("volume-{ordinal}"))
    }

    fn run_directory(&self, ordinal: usize) -> PathBuf {
        self.directory().join(format!("run-{ordinal}"))
    }

    /// The order as the ConfigMap would bring it into every pod.
    pub fn give_order(&self, nonce: &str, size: usize) {
        let members = (0..size).map(|ordinal| (name(ordinal), self.url(ordinal))).collect();
        let order = BootstrapOrder {
            protocol_version: Protocol::CURRENT,
            cluster_uid: self.config.cluster_uid.clone(),
            attempt: 1,
            armed: true,
            nonce: nonce.into(),
            members,
        };
        fs::write(self.directory().join("order").join(order::KEY), order.render()).expect("an order");
    }

    /// The order for a recovery, with which this pod continues without the others.
    pub fn give_recovery_order(&self, nonce: &str, survivor: usize) {
        let start = ForcedStart { survivor: name(survivor), replaces: "a pod".into() };
        let order = RecoveryOrder {
            protocol_version: Protocol::CURRENT,
            cluster_uid: self.config.cluster_uid.clone(),
            nonce: nonce.into(),
            start: Some(start),
        };
        fs::write(self.directory().join("order").join(recovery::KEY), order.render()).expect("an order");
    }

    pub fn take_order_back(&self) {
        fs::remove_file(self.directory().join("order").join(order::KEY)).expect("it was there");
    }

    /// Starts a pod's etcd container. The pod's own memory is that of the last one of this name.
    pub fn start(&mut self, ordinal: usize) {
        for directory in [self.volume(ordinal), self.run_directory(ordinal)] {
            fs::create_dir_all(directory).expect("a directory");
        }
        if !self.config.transport.is_plain() && !self.tls_directory(ordinal).exists() {
            self.give_right_certificates(ordinal);
        }
        let mut agent = Command::new(&self.agent);
        if let Some(user) = self.user {
            agent.uid(user).gid(user);
        }
        agent
            .arg("start")
            .env_clear()
            .env("ETCD_NAME", "somebody-else")
            .env(environment::CONFIG, serde_json::to_string(&self.config).expect("plain data"))
            .env(environment::POD, name(ordinal))
            .env(environment::ADDRESS, self.host(ordinal))
            .env(environment::HOST, self.called(ordinal))
            .env(environment::LISTEN, self.host(ordinal))
            .env(environment::ETCD, &self.etcd)
            .env(environment::VOLUME, self.volume(ordinal))
            .env(environment::RUN, self.run_directory(ordinal))
            .env(environment::ORDER, self.directory().join("order"))
            .env(environment::TLS, self.tls_directory(ordinal))
            .env(environment::TERMINATION_LOG, self.termination_log(ordinal));
        self.pods.start(small(ordinal), agent).expect("the agent starts");
    }

    /// Agents run as this user from now on, with everything that they need but the content of their volumes.
    pub fn run_as(&mut self, user: u32) {
        let agent = self.directory().join("etcd-agent");
        fs::copy(&self.agent, &agent).expect("it is there");
        (self.agent, self.user) = (agent, Some(user));
        fs::set_permissions(self.directory(), fs::Permissions::from_mode(0o777)).expect("it is ours");
        for ordinal in 0..9 {
            for directory in [self.volume(ordinal), self.run_directory(ordinal)] {
                fs::create_dir_all(&directory).expect("a directory");
                std::os::unix::fs::chown(&directory, Some(user), Some(user)).expect("we are root");
            }
        }
    }

    /// From now on an etcd that only receives does this instead, as a shell says it.
    pub fn receive_by(&mut self, script: &str) {
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *--version*) ;; *--listen-client-urls=http://127.0.0.1:*) {script} ;; esac\n\
             exec {} \"$@\"\n",
            self.programs.join("etcd").display()
        );
        self.etcd = self.directory().join("etcd");
        fs::write(&self.etcd, text).expect("a script");
        fs::set_permissions(&self.etcd, fs::Permissions::from_mode(0o755)).expect("it was just written");
    }

    pub fn directory(&self) -> &Path {
        self.pods.directory()
    }

    /// Another pod of the same name and volume.
    pub fn forget_pod(&self, ordinal: usize) {
        fs::remove_dir_all(self.run_directory(ordinal)).expect("it was there");
    }

    pub fn wipe_volume(&self, ordinal: usize) {
        fs::remove_dir_all(self.volume(ordinal)).expect("it was there");
    }

    pub fn wipe_data(&self, ordinal: usize) {
        fs::remove_dir_all(self.volume(ordinal).join(path::DATA)).expect("it was there");
    }

    /// As if a volume were attached to another pod.
    pub fn rename_volume(&self, from: usize, to: usize) {
        fs::rename(self.volume(from), self.volume(to)).expect("it was there");
    }

    pub fn kill(&mut self, ordinal: usize) {
        self.pods.kill(small(ordinal));
    }

    pub fn terminate(&mut self, ordinal: usize) -> ExitStatus {
        self.pods.signal(small(ordinal), Signal::TERM);
        self.ended(ordinal)
    }

    pub fn ended(&mut self, ordinal: usize) -> ExitStatus {
        until("it to end", || self.pods.ended(small(ordinal)))
    }

    pub fn termination_message(&self, ordinal: usize) -> String {
        fs::read_to_string(self.termination_log(ordinal)).expect("it left a message")
    }

    /// What the waiting agent says of itself.
    pub fn report(&self, ordinal: usize) -> Option<Report> {
        let (status, body) = get(&self.host(ordinal), 2381, "/agent")?;
        (status == 200).then(|| serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    /// Waits until the agent waits for this.
    pub fn waits(&self, ordinal: usize, reason: &str) -> Report {
        let what = format!("{} to wait for {reason}", name(ordinal));
        until(&what, || {
            assert!(!self.runs_etcd(ordinal), "{what}: etcd runs already");
            self.report(ordinal)
                .filter(|it| matches!(&it.waiting, Reason::Known(it) if it.reason() == reason))
        })
    }

    /// Tells waiting pods where the others are, as the operator does.
    pub fn tell(&self, waiting: &[usize], all: &[usize]) {
        let addresses = all.iter().map(|&ordinal| self.address(ordinal)).collect();
        let news = serde_json::to_string(&News { addresses, ..News::default() }).expect("plain data");
        for &ordinal in waiting {
            until("the agent to listen", || post(&self.host(ordinal), 2381, "/agent", &news));
        }
    }

    pub fn probe(&self, ordinal: usize, path: &str) -> Option<u16> {
        get(&self.host(ordinal), 2381, path).map(|(status, _)| status)
    }

    /// What this port says there; nothing if it does not respond.
    pub fn page(&self, ordinal: usize, path: &str) -> String {
        get(&self.host(ordinal), 2381, path).map(|(_, page)| page).unwrap_or_default()
    }

    /// Waits until every one of these serves reads and lists so many started members.
    pub fn serves(&self, ordinals: &[usize]) {
        for &ordinal in ordinals {
            until(&format!("{} to serve", name(ordinal)), || {
                let members = self.members(ordinal)?;
                let all = members.len() == ordinals.len()
                    && members.iter().all(|member| member.progress() == MemberProgress::Published);
                (all && self.probe(ordinal, "/health") == Some(200)).then_some(())
            });
        }
    }

    pub fn etcdctl(&self, ordinal: usize, words: &[&str]) -> String {
        let output = self.client(ordinal).args(words).output().expect("etcdctl runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "etcdctl {words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Asks again while etcd refuses: before a membership change it wants everybody connected for five seconds.
    pub fn add_learner(&self, ordinal: usize) {
        let url = format!("--peer-urls={}", self.url(ordinal));
        until("the learner to be added", || {
            let mut command = self.client(0);
            command.args(["member", "add", &name(ordinal), "--learner", &url]);
            command.output().expect("etcdctl runs").status.success().then_some(())
        });
    }

    /// Asks again until the learner has caught up.
    pub fn promote(&self, ordinal: usize) {
        until("the learner to be promoted", || {
            let mut command = self.client(0);
            command.args(["member", "promote", &self.member_id(0, ordinal)]);
            command.output().expect("etcdctl runs").status.success().then_some(())
        });
    }

    /// As one member lists another.
    pub fn member_id(&self, from: usize, ordinal: usize) -> String {
        let url = self.url(ordinal);
        let members = self.members(from).expect("it answers");
        let member = members.iter().find(|member| member.peer_urls == [url.as_str()]);
        format!("{:x}", member.expect("it is listed").id)
    }

    pub fn is_listed_as_started(&self, ordinal: usize) {
        until(&format!("{} to be listed as started", name(ordinal)), || {
            let members = self.members(0)?;
            let member = members.iter().find(|member| member.peer_urls == [self.url(ordinal)])?;
            (member.progress() == MemberProgress::Published).then_some(())
        });
    }

    pub fn is_healthy(&self, ordinal: usize) {
        until("it to be healthy", || (self.probe(ordinal, "/readyz") == Some(200)).then_some(()));
    }

    pub fn cluster_id(&self, ordinal: usize) -> String {
        let status = self.etcdctl(ordinal, &["endpoint", "status", "--write-out=fields"]);
        let line = status.lines().find(|line| line.contains("ClusterID")).expect("it has one");
        line.to_owned()
    }

    pub fn log(&self, ordinal: usize) -> String {
        self.pods.log(small(ordinal))
    }

    /// Whether the process in the pod is etcd by now.
    pub fn runs_etcd(&self, ordinal: usize) -> bool {
        let id = self.pods.id(small(ordinal));
        fs::read_link(format!("/proc/{id}/exe")).is_ok_and(|program| program == self.programs.join("etcd"))
    }

    fn termination_log(&self, ordinal: usize) -> PathBuf {
        self.directory().join(format!("termination-{ordinal}"))
    }
}

pub fn name(ordinal: usize) -> String {
    format!("kv-{ordinal}")
}

/// Long enough to see that something does not happen.
pub fn a_while() {
    std::thread::sleep(Duration::from_secs(2));
}

pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn small(ordinal: usize) -> u8 {
    u8::try_from(ordinal).expect("few members")
}

fn get(host: &str, port: u16, path: &str) -> Option<(u16, String)> {
    let address = SocketAddr::new(host.parse().expect("an address"), port);
    let response = http::get(address, path, Duration::from_secs(5)).ok()?;
    Some((response.status, response.body))
}

fn post(host: &str, port: u16, path: &str, body: &str) -> Option<()> {
    let mut stream = TcpStream::connect((host, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let head = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200 ").then_some(())
}
