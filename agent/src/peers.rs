//! Asks the other pods what they know.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use etcd_operator_core::agent::{PAGE, Report};
use etcd_operator_core::etcd_config::{METRICS_PORT, PEER_PORT};
use etcd_operator_core::member::{MemberProgress, PeerAddress};
use etcd_operator_core::start::{Answer, Member, MemberList, Reply};

use crate::http::{Failure, Response, get};
use crate::metrics::applied_index;

/// A healthy member responds in milliseconds.
const DEADLINE: Duration = Duration::from_millis(700);
/// A member that serves responds at once; any other refuses soon or stays silent for seconds.
const GLANCE: Duration = Duration::from_millis(200);
/// A linearizable read can have to wait for a leader.
const READ_DEADLINE: Duration = Duration::from_secs(2);
/// A linearizable read of etcd's own, without authentication. An alarm does not make a member list wrong.
const LINEARIZABLE_READ: &str = "/health?exclude=NOSPACE&exclude=CORRUPT";

/// How to ask the other pods.
pub struct Peers {
    cluster_uid: String,
    own: PeerAddress,
}

impl Peers {
    pub fn new(cluster_uid: &str, own: &PeerAddress) -> Self {
        Self { cluster_uid: cluster_uid.to_owned(), own: own.clone() }
    }

    /// All at the same time, each with its own deadline.
    pub fn ask(&self, addresses: &[IpAddr]) -> Vec<Reply> {
        std::thread::scope(|scope| {
            let asking: Vec<_> = addresses
                .iter()
                .map(|&address| (address, scope.spawn(move || self.ask_one(address))))
                .collect();
            let silent =
                |address| Reply { address, peer_address: None, ready: false, answer: Answer::Silent };
            asking
                .into_iter()
                .map(|(address, asked)| asked.join().unwrap_or_else(|_| silent(address)))
                .collect()
        })
    }

    /// Whether etcd responds at each of these, except where an agent waits.
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

    fn ask_one(&self, address: IpAddr) -> Reply {
        let nameless = |answer| Reply { address, peer_address: None, ready: false, answer };
        match members(address, DEADLINE) {
            Ok(list) => nameless(Answer::Members(self.confirm(address, list))),
            Err(Failure::Silent) => nameless(Answer::Silent),
            Err(Failure::Nonsense) => nameless(Answer::Unknown),
            Err(Failure::Refused) => {
                match agent(address).filter(|report| report.cluster_uid == self.cluster_uid) {
                    Some(report) => report.reply(address),
                    None => nameless(Answer::Refused),
                }
            }
        }
    }

    /// Only a list that we would join by needs to be confirmed. It is read again, after the linearizable read.
    fn confirm(&self, address: IpAddr, list: MemberList) -> MemberList {
        if list.progress_of(&self.own) != Some(MemberProgress::Added) {
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

/// An etcd that has just restarted can list no member yet. That is no list.
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
