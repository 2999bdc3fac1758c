//! Asks the other pods what they know.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use etcd_operator_core::agent::{PAGE, Report};
use etcd_operator_core::etcd_config::{METRICS_PORT, PEER_PORT};
use etcd_operator_core::start::{Answer, Member, MemberList, Peer, Standing};

use crate::http::{Failure, Response, get};
use crate::metrics::applied_index;

/// A healthy member answers in milliseconds.
const DEADLINE: Duration = Duration::from_millis(700);
/// Who serves answers at once; who does not, soon refuses or stays silent for seconds.
const GLANCE: Duration = Duration::from_millis(200);
/// A linearizable read may have to wait for a leader.
const READ_DEADLINE: Duration = Duration::from_secs(2);
/// A linearizable read of etcd's own, open to everybody. An alarm does not make a member list wrong.
const LINEARIZABLE_READ: &str = "/health?exclude=NOSPACE&exclude=CORRUPT";

/// The other pods, as far as we have come to know them.
pub struct Peers {
    cluster_uid: String,
    own_url: String,
    known: BTreeMap<IpAddr, Known>,
}

#[derive(Default)]
struct Known {
    /// Its peer URL, as its agent told. It is remembered while etcd starts there and tells nothing.
    url: Option<String>,
    met: Option<Instant>,
}

struct Heard {
    answer: Answer,
    url: Option<String>,
    ready: bool,
}

impl Peers {
    pub fn new(cluster_uid: &str, own_url: &str) -> Self {
        Self { cluster_uid: cluster_uid.to_owned(), own_url: own_url.to_owned(), known: BTreeMap::new() }
    }

    /// All at the same time, each with its own deadline. Who is not among the addresses any more is forgotten.
    pub fn ask(&mut self, addresses: &[IpAddr]) -> Vec<Peer> {
        let heard: Vec<(IpAddr, Heard)> = std::thread::scope(|scope| {
            let this = &*self;
            let asking: Vec<_> = addresses
                .iter()
                .map(|&address| (address, scope.spawn(move || this.ask_one(address))))
                .collect();
            let silent = || Heard { answer: Answer::Silent, url: None, ready: false };
            asking
                .into_iter()
                .map(|(address, asked)| (address, asked.join().unwrap_or_else(|_| silent())))
                .collect()
        });
        self.known.retain(|address, _| addresses.contains(address));
        heard.into_iter().map(|(address, heard)| self.remember(address, heard)).collect()
    }

    /// Whether etcd answers at each of these, except where an agent waits.
    pub fn all_serve(&self, addresses: &[IpAddr]) -> bool {
        std::thread::scope(|scope| {
            let asking: Vec<_> = addresses
                .iter()
                .map(|&address| {
                    scope.spawn(move || match members(address, GLANCE) {
                        Ok(_) => true,
                        Err(Failure::Refused) => agent(address).is_some(),
                        Err(Failure::Silent | Failure::Nonsense) => false,
                    })
                })
                .collect();
            asking.into_iter().all(|asked| asked.join().unwrap_or(false))
        })
    }

    fn remember(&mut self, address: IpAddr, heard: Heard) -> Peer {
        let known = self.known.entry(address).or_default();
        known.url = heard.url.or(known.url.take());
        if matches!(heard.answer, Answer::Waiting | Answer::Members(_)) {
            known.met.get_or_insert_with(Instant::now);
        }
        let met_for = known.met.map_or(Duration::ZERO, |met| met.elapsed());
        Peer { address, url: known.url.clone(), met_for, ready: heard.ready, answer: heard.answer }
    }

    fn ask_one(&self, address: IpAddr) -> Heard {
        let nameless = |answer| Heard { answer, url: None, ready: false };
        match members(address, DEADLINE) {
            Ok(list) => nameless(Answer::Members(self.confirm(address, list))),
            Err(Failure::Silent) => nameless(Answer::Silent),
            Err(Failure::Nonsense) => nameless(Answer::Unknown),
            Err(Failure::Refused) => {
                match agent(address).filter(|agent| agent.cluster_uid == self.cluster_uid) {
                    Some(Report { waiting, peer_url, .. }) => {
                        Heard { answer: Answer::Waiting, url: Some(peer_url), ready: waiting.is_ready() }
                    }
                    None => nameless(Answer::Refused),
                }
            }
        }
    }

    /// Only a list that we would join by needs to be confirmed. It is read again, after the linearizable read.
    fn confirm(&self, address: IpAddr, list: MemberList) -> MemberList {
        if list.standing_of(&self.own_url) != Some(Standing::Added) {
            return list;
        }
        let read = get(SocketAddr::new(address, METRICS_PORT), LINEARIZABLE_READ, READ_DEADLINE);
        if !read.is_ok_and(|response| response.status == 200) {
            return list;
        }
        let applied = applied_index(SocketAddr::new(address, METRICS_PORT), DEADLINE);
        members(address, DEADLINE).map_or(list, |list| MemberList { confirmed: true, applied, ..list })
    }
}

fn members(address: IpAddr, deadline: Duration) -> Result<MemberList, Failure> {
    let response = get(SocketAddr::new(address, PEER_PORT), "/members", deadline)?;
    understand(&response).ok_or(Failure::Nonsense)
}

/// An etcd that has just started again may know nobody yet. That is no list.
fn understand(response: &Response) -> Option<MemberList> {
    let cluster_id = u64::from_str_radix(response.header("X-Etcd-Cluster-ID")?, 16).ok()?;
    let members: Vec<Member> = serde_json::from_str(&response.body).ok()?;
    (response.status == 200 && !members.is_empty()).then_some(MemberList {
        cluster_id,
        members,
        confirmed: false,
        applied: None,
    })
}

fn agent(address: IpAddr) -> Option<Report> {
    let response = get(SocketAddr::new(address, METRICS_PORT), PAGE, DEADLINE).ok()?;
    serde_json::from_str(&response.body).ok()
}
