//! What has to hold at every moment of a run, as etcd itself and a client see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etcd_operator_core::etcd_config::{METRICS_PORT, PEER_PORT};
use etcd_operator_core::tls::Purpose;
use serde_json::Value;
use testbed::stand_in::get;
use tokio::task::JoinSet;

use crate::access::Member;
use crate::recorder::Recorder;
use crate::world::CLUSTER;

/// For so long the status may say something else than etcd, when nothing keeps the operator from its work.
pub const CONTRADICTION: Duration = Duration::from_secs(5);
/// The same in runs with faults: a hung request has a deadline, and what failed is tried again after a pause.
pub const CONTRADICTION_DISTURBED: Duration = Duration::from_secs(15);
/// For so long a client may be unable to write while members come and go as planned.
const WRITE_GAP: Duration = Duration::from_secs(2);
/// Scenarios have no more members.
const ORDINALS: std::ops::Range<u8> = 0..3;
const SAMPLE_EVERY: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(20);
const WRITES_OF_A_CONNECTION: usize = 50;

pub struct Oracles {
    findings: Arc<Mutex<Findings>>,
    namespace: String,
    recorder: Arc<Recorder>,
    contradiction: Duration,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Findings {
    /// What is not so now, and since when.
    wrong: BTreeMap<String, Instant>,
    /// For how long each was not so, at the longest.
    longest: BTreeMap<String, Duration>,
    last_write: Option<Instant>,
    write_gap: Duration,
}

impl Oracles {
    pub fn start(namespace: &str, recorder: &Arc<Recorder>, contradiction: Duration) -> Self {
        let (findings, mut tasks) = (Arc::<Mutex<Findings>>::default(), JoinSet::new());
        tasks.spawn(compare(namespace.to_owned(), Arc::clone(recorder), Arc::clone(&findings)));
        let (namespace, recorder) = (namespace.to_owned(), Arc::clone(recorder));
        Self { findings, namespace, recorder, contradiction, tasks }
    }

    /// From now on a client writes.
    pub fn write(&mut self) {
        let (recorder, findings) = (Arc::clone(&self.recorder), Arc::clone(&self.findings));
        self.tasks.spawn(write(self.namespace.clone(), recorder, findings));
    }

    /// For how long the client could not write, at the longest; none without one.
    pub fn longest_gap(&self) -> Option<Duration> {
        lock(&self.findings).longest_gap()
    }

    pub fn verdict(&self) -> Result<(), String> {
        let findings = lock(&self.findings);
        let long = |(what, time): (&String, &Duration)| {
            (*time > self.contradiction).then(|| format!("for {:.1} s: {what}", time.as_secs_f64()))
        };
        let mut wrong: Vec<String> = findings.longest.iter().filter_map(long).collect();
        if let Some(gap) = findings.longest_gap().filter(|gap| *gap > WRITE_GAP) {
            wrong.push(format!("a client could not write for {:.1} s", gap.as_secs_f64()));
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }
}

impl Findings {
    fn note(&mut self, wrong: BTreeSet<String>) {
        self.wrong.retain(|what, _| wrong.contains(what));
        for what in wrong {
            let time = self.wrong.entry(what.clone()).or_insert_with(Instant::now).elapsed();
            let longest = self.longest.entry(what).or_default();
            *longest = time.max(*longest);
        }
    }

    fn longest_gap(&self) -> Option<Duration> {
        self.last_write.map(|last| self.write_gap.max(last.elapsed()))
    }

    fn wrote(&mut self) {
        let gap = self.last_write.replace(Instant::now()).map_or(Duration::ZERO, |last| last.elapsed());
        self.write_gap = self.write_gap.max(gap);
    }
}

fn lock(findings: &Mutex<Findings>) -> MutexGuard<'_, Findings> {
    findings.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn compare(namespace: String, recorder: Arc<Recorder>, findings: Arc<Mutex<Findings>>) {
    loop {
        let wrong = contradictions(&namespace, &recorder).await;
        lock(&findings).note(wrong);
        tokio::time::sleep(SAMPLE_EVERY).await;
    }
}

/// What the status reports and etcd does not, and the other way round.
async fn contradictions(namespace: &str, recorder: &Recorder) -> BTreeSet<String> {
    let mut healthy = BTreeSet::new();
    let mut listed: Vec<Value> = Vec::new();
    for member in ORDINALS.map(|ordinal| Member::new(namespace, ordinal)) {
        // A linearizable read, as etcd itself makes it.
        // A member whose database is full or that has raised an alarm serves reads.
        if matches!(
            get((member.address, METRICS_PORT), "/health?exclude=NOSPACE&exclude=CORRUPT").await,
            Ok((200, _))
        ) {
            healthy.insert(format!("{CLUSTER}-{}", member.ordinal));
            if let Ok((_, body)) =
                member.get(PEER_PORT, &member.identity(recorder, Purpose::Peer), "/members").await
            {
                listed = serde_json::from_str(&body).unwrap_or(listed);
            }
        }
    }
    let name = |member: &Value| member["name"].as_str().unwrap_or_default().to_owned();
    let voters = listed.iter().filter(|member| member["isLearner"] != true).map(name);
    let serving: BTreeSet<String> = voters.filter(|voter| healthy.contains(voter)).collect();
    // Of a cluster that is being deleted, no etcd is asked.
    let cluster = recorder.object("EtcdCluster", CLUSTER).unwrap_or_default();
    let Value::Array(reported) = &cluster["status"]["members"] else { return BTreeSet::new() };
    if !cluster["metadata"]["deletionTimestamp"].is_null() {
        return BTreeSet::new();
    }
    let ready = |member: &&Value| member["ready"] == true;
    let ready: BTreeSet<String> = reported.iter().filter(ready).map(name).collect();
    let mut wrong: BTreeSet<String> =
        ready.difference(&serving).map(|it| format!("{it} does not serve, but is reported to")).collect();
    wrong.extend(serving.difference(&ready).map(|it| format!("{it} serves, but is not reported to")));
    let known: BTreeSet<String> =
        reported.iter().filter_map(|member| Some(member["id"].as_str()?.to_owned())).collect();
    // In hexadecimal, as the status has them.
    let ids: BTreeSet<String> =
        listed.iter().filter_map(|member| Some(format!("{:x}", member["id"].as_u64()?))).collect();
    if !ids.is_empty() && ids != known {
        wrong.insert(format!("etcd lists {ids:?}, the status {known:?}"));
    }
    wrong
}

/// To one member as long as it takes writes, then to the next, and with a new connection every second.
async fn write(namespace: String, recorder: Arc<Recorder>, findings: Arc<Mutex<Findings>>) {
    lock(&findings).wrote();
    let mut members = ORDINALS.map(|ordinal| Member::new(&namespace, ordinal)).cycle();
    let mut member = members.next();
    while let Some(current) = &member {
        let mut serves = false;
        if let Ok(mut client) = current.client(&recorder).await {
            for _ in 0..WRITES_OF_A_CONNECTION {
                serves = client.put("key", "value", None).await.is_ok();
                if !serves {
                    break;
                }
                lock(&findings).wrote();
                tokio::time::sleep(PAUSE).await;
            }
        }
        if !serves {
            member = members.next();
            tokio::time::sleep(PAUSE).await;
        }
    }
}
