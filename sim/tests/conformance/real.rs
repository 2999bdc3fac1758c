//! Real etcd: processes with an address on loopback and a directory each. They end with the test, however it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use etcd_operator_sim::etcd::Release;
use serde_json::{Value, json};

use crate::gateway;
use crate::script::{Answer, Cluster, Listed, Request};

/// Longer than etcd itself waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(15);

pub struct Real {
    release: Release,
    program: PathBuf,
    directory: PathBuf,
    network: [u8; 3],
    founders: u8,
    processes: BTreeMap<u8, Child>,
    /// Who ended by itself.
    ends: BTreeSet<u8>,
    /// The newest ID that each member had.
    ids: BTreeMap<u8, u64>,
    /// Who was in the newest list.
    listed: Vec<u8>,
}

impl Real {
    pub fn new(program: &Path, release: Release, founders: u8) -> Self {
        static COUNT: AtomicU8 = AtomicU8::new(1);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let network = [127, 230 + u8::try_from(process % 25).expect("it is small"), count];
        let directory = std::env::temp_dir().join(format!("etcd-conformance-{process}-{count}"));
        fs::create_dir_all(&directory).expect("a scratch directory");
        Self {
            release,
            program: program.join("etcd"),
            directory,
            network,
            founders,
            processes: BTreeMap::new(),
            ends: BTreeSet::new(),
            ids: BTreeMap::new(),
            listed: (0..founders).collect(),
        }
    }

    fn host(&self, ordinal: u8) -> Ipv4Addr {
        let [a, b, c] = self.network;
        Ipv4Addr::new(a, b, c, 1 + ordinal)
    }

    fn url(&self, ordinal: u8, port: u16) -> String {
        format!("http://{}:{port}", self.host(ordinal))
    }

    fn data(&self, ordinal: u8) -> PathBuf {
        self.directory.join(format!("data-{ordinal}"))
    }

    /// Whether it starts by the bootstrap order: the first time, and one of those that never were seen in a list.
    fn founds(&self, ordinal: u8) -> bool {
        ordinal < self.founders && !self.ids.contains_key(&ordinal)
    }

    fn flags(&self, ordinal: u8) -> Vec<String> {
        let entries = self.listed.iter().map(|&other| format!("{}={}", name(other), self.url(other, 2380)));
        let cluster: Vec<_> = entries.collect();
        let mut flags = vec![
            format!("--name={}", name(ordinal)),
            format!("--data-dir={}", self.data(ordinal).display()),
            format!("--listen-peer-urls={}", self.url(ordinal, 2380)),
            format!("--initial-advertise-peer-urls={}", self.url(ordinal, 2380)),
            format!("--listen-client-urls={}", self.url(ordinal, 2379)),
            format!("--advertise-client-urls={}", self.url(ordinal, 2379)),
            format!("--initial-cluster={}", cluster.join(",")),
            format!("--initial-cluster-state={}", if self.founds(ordinal) { "new" } else { "existing" }),
            // Nothing here survives the machine.
            "--unsafe-no-fsync".into(),
        ];
        match self.release {
            Release::V3_5 | Release::V3_5_30 => {}
            Release::V3_6 => flags.push("--max-learners=2".into()),
        }
        flags
    }

    fn id(&self, ordinal: u8) -> String {
        self.ids.get(&ordinal).copied().unwrap_or(9).to_string()
    }

    /// Notes who has ended.
    fn reap(&mut self) {
        let Self { processes, ends, .. } = self;
        processes.retain(|&ordinal, child| {
            let status = child.try_wait().expect("it is ours");
            if status.is_some() {
                ends.insert(ordinal);
            }
            status.is_none()
        });
    }

    fn status(&self, at: u8) -> Option<Value> {
        gateway::call(self.host(at), "/v3/maintenance/status", &json!({}), PATIENCE).ok()
    }

    pub fn end_of_logs(&self) -> String {
        let mut text = String::new();
        for ordinal in 0..9 {
            let log = fs::read_to_string(self.log(ordinal)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(4)..] {
                let start: String = line.chars().take(400).collect();
                text.push_str(&format!("    {ordinal}: {start}\n"));
            }
        }
        text
    }

    fn log(&self, ordinal: u8) -> PathBuf {
        self.directory.join(format!("log-{ordinal}"))
    }
}

impl Cluster for Real {
    fn start(&mut self, ordinal: u8) {
        // Who joins must be told of everybody who is listed.
        if !self.founds(ordinal) && !self.data(ordinal).exists() {
            self.list();
        }
        let log = File::options().create(true).append(true).open(self.log(ordinal)).expect("a log");
        let child = Command::new(&self.program)
            .args(self.flags(ordinal))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("etcd starts");
        self.ends.remove(&ordinal);
        self.processes.insert(ordinal, child);
    }

    fn kill(&mut self, ordinal: u8) {
        let mut child = self.processes.remove(&ordinal).expect("it runs");
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
    }

    fn wipe(&mut self, ordinal: u8) {
        fs::remove_dir_all(self.data(ordinal)).expect("it was there");
    }

    fn write(&mut self, count: u16) {
        let host = self.host(*self.processes.keys().next().expect("somebody runs"));
        for _ in 0..count {
            let put = json!({ "key": "a2V5", "value": "dmFsdWU=" });
            gateway::call(host, "/v3/kv/put", &put, PATIENCE).expect("it is written");
        }
    }

    fn ask(&mut self, via: u8, request: Request, patience: Duration) -> Answer {
        let host = self.host(via);
        let call = |path: &str, body: Value| gateway::call(host, path, &body, patience);
        match request {
            Request::AddLearner(new) | Request::AddVoter(new) => {
                let learner = matches!(request, Request::AddLearner(_));
                let body = json!({ "peerURLs": [self.url(new, 2380)], "isLearner": learner });
                let answer = call("/v3/cluster/member/add", body)?;
                self.ids.insert(new, gateway::number(&answer["member"]["ID"]));
                Ok(())
            }
            Request::Promote(member) => {
                call("/v3/cluster/member/promote", json!({ "ID": self.id(member) })).map(drop)
            }
            Request::Remove(member) => {
                call("/v3/cluster/member/remove", json!({ "ID": self.id(member) })).map(drop)
            }
            Request::MoveLeader(to) => {
                let body = json!({ "targetID": self.id(to) });
                call("/v3/maintenance/transfer-leadership", body).map(drop)
            }
            Request::LinearizableRead => gateway::read(host, false, patience),
            Request::SerializableRead => gateway::read(host, true, patience),
        }
    }

    fn list(&mut self) -> Option<Vec<Listed>> {
        let hosts: Vec<_> = self.running().into_iter().map(|ordinal| self.host(ordinal)).collect();
        let members = hosts.into_iter().find_map(|host| gateway::members(host, PATIENCE))?;
        self.ids.extend(members.iter().map(|(id, member)| (member.ordinal, *id)));
        self.listed = members.iter().map(|(_, member)| member.ordinal).collect();
        Some(members.into_iter().map(|(_, member)| member).collect())
    }

    fn running(&mut self) -> Vec<u8> {
        self.reap();
        self.processes.keys().copied().collect()
    }

    fn leader(&mut self, at: u8) -> Option<u8> {
        let leader = Some(gateway::number(&self.status(at)?["leader"])).filter(|&leader| leader != 0)?;
        self.processes.keys().copied().find(|&other| {
            self.status(other).is_some_and(|status| gateway::number(&status["header"]["member_id"]) == leader)
        })
    }

    fn ended(&mut self, ordinal: u8) -> bool {
        self.reap();
        self.ends.contains(&ordinal)
    }

    fn wait(&mut self, time: Duration) {
        thread::sleep(time);
    }

    fn await_new_second(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        thread::sleep(Duration::from_millis(1005) - Duration::from_millis(u64::from(now.subsec_millis())));
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        for child in self.processes.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn name(ordinal: u8) -> String {
    format!("kv-{ordinal}")
}
