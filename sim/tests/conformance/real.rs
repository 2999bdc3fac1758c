//! Real etcd, as processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use etcd_operator_sim::etcd::Release;
use serde_json::{Value, json};
use testbed::stand_in::Processes;

use crate::gateway;
use crate::script::{Answer, Cluster, Listed, Request};

/// Longer than etcd itself waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(15);

pub struct Real {
    release: Release,
    program: PathBuf,
    processes: Processes,
    founders: u8,
    running: BTreeSet<u8>,
    /// Who ended by itself.
    ends: BTreeSet<u8>,
    /// The newest ID that each member had.
    ids: BTreeMap<u8, u64>,
    /// Who was in the newest list.
    listed: Vec<u8>,
}

impl Real {
    pub fn new(program: &Path, release: Release, founders: u8) -> Self {
        Self {
            release,
            program: program.join("etcd"),
            processes: Processes::new("etcd-conformance").expect("a scratch directory"),
            founders,
            running: BTreeSet::new(),
            ends: BTreeSet::new(),
            ids: BTreeMap::new(),
            listed: (0..founders).collect(),
        }
    }

    pub fn host(&self, ordinal: u8) -> IpAddr {
        self.processes.address(ordinal)
    }

    fn url(&self, ordinal: u8, port: u16) -> String {
        format!("http://{}:{port}", self.host(ordinal))
    }

    fn data(&self, ordinal: u8) -> PathBuf {
        self.processes.directory().join(format!("data-{ordinal}"))
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
            Release::V3_6 | Release::V3_7 => flags.push("--max-learners=2".into()),
        }
        flags
    }

    fn id(&self, ordinal: u8) -> String {
        self.ids.get(&ordinal).copied().unwrap_or(9).to_string()
    }

    /// Notes who has ended.
    fn reap(&mut self) {
        let Self { processes, running, ends, .. } = self;
        ends.extend(running.extract_if(.., |&ordinal| processes.ended(ordinal).is_some()));
    }

    fn status(&self, at: u8) -> Option<Value> {
        gateway::call(self.host(at), "/v3/maintenance/status", &json!({}), PATIENCE).ok()
    }

    pub fn end_of_logs(&self) -> String {
        let mut text = String::new();
        for ordinal in 0..9 {
            let log = self.processes.log(ordinal);
            let lines: Vec<&str> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(4)..] {
                let start: String = line.chars().take(400).collect();
                text.push_str(&format!("    {ordinal}: {start}\n"));
            }
        }
        text
    }
}

impl Cluster for Real {
    fn start(&mut self, ordinal: u8) {
        // Who joins must be told of everybody who is listed.
        if !self.founds(ordinal) && !self.data(ordinal).exists() {
            self.list();
        }
        let mut command = Command::new(&self.program);
        command.args(self.flags(ordinal)).env_clear();
        self.processes.start(ordinal, command).expect("etcd starts");
        self.ends.remove(&ordinal);
        self.running.insert(ordinal);
    }

    fn kill(&mut self, ordinal: u8) {
        self.running.remove(&ordinal);
        self.processes.kill(ordinal);
    }

    fn wipe(&mut self, ordinal: u8) {
        fs::remove_dir_all(self.data(ordinal)).expect("it was there");
    }

    fn write(&mut self, count: u16) {
        let host = self.host(*self.running.first().expect("somebody runs"));
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
        self.running.iter().copied().collect()
    }

    fn leader(&mut self, at: u8) -> Option<u8> {
        let leader = Some(gateway::number(&self.status(at)?["leader"])).filter(|&leader| leader != 0)?;
        self.running.iter().copied().find(|&other| {
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

fn name(ordinal: u8) -> String {
    format!("kv-{ordinal}")
}
