//! Asks the other pods what they know.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use etcd_operator_core::agent::{PAGE, Report};
use etcd_operator_core::etcd_config::{METRICS_PORT, PEER_PORT};
use etcd_operator_core::member::MemberProgress;
use etcd_operator_core::start::{Answer, Member, MemberList, Reply};
use etcd_operator_core::tls::{PeerPort, Purpose};

use crate::http::{Failure, Response, get, get_over_tls, knock};
use crate::log;
use crate::metrics::applied_index;
use crate::settings::Settings;
use crate::tls::{self, Tls};

/// A healthy member responds in milliseconds.
const DEADLINE: Duration = Duration::from_millis(700);
/// A member that serves responds at once; any other refuses soon or stays silent for seconds.
const GLANCE: Duration = Duration::from_millis(200);
/// A linearizable read can have to wait for a leader.
const READ_DEADLINE: Duration = Duration::from_secs(2);
const MEMBERS: &str = "/members";
/// What a port with TLS responds to plain text.
const BAD_REQUEST: u16 = 400;
/// A linearizable read of etcd's own, without authentication. An alarm does not make a member list wrong.
const LINEARIZABLE_READ: &str = "/health?exclude=NOSPACE&exclude=CORRUPT";

/// How to ask the other pods.
pub struct Peers<'a> {
    settings: &'a Settings,
    /// Where the last attempt was rejected, so that it is logged once.
    rejected: Mutex<BTreeSet<IpAddr>>,
}

/// How to get at a member list.
enum Access {
    Plain,
    Tls(Tls),
    /// Some members use TLS, and others do not yet or not any more.
    Either(Tls),
    /// The same, while members with TLS could not verify yet who asks.
    PlainFirst,
    /// The members could not verify yet who asks, so they are not asked.
    Later,
}

impl<'a> Peers<'a> {
    pub fn new(settings: &'a Settings) -> Self {
        Self { settings, rejected: Mutex::default() }
    }

    /// All at the same time, each with its own deadline. `published`: DNS has the address of this pod. Before, TLS is not
    /// tried: etcd looks up the names in our certificate to find our address, and what is missing is cached as missing.
    pub fn ask(&self, addresses: &[IpAddr], published: bool) -> Result<Vec<Reply>, tls::Error> {
        let access = self.access(published)?;
        Ok(std::thread::scope(|scope| {
            let access = &access;
            let asking: Vec<_> = addresses
                .iter()
                .map(|&address| (address, scope.spawn(move || self.ask_one(access, address))))
                .collect();
            let silent =
                |address| Reply { address, peer_address: None, ready: false, answer: Answer::Silent };
            asking
                .into_iter()
                .map(|(address, asked)| asked.join().unwrap_or_else(|_| silent(address)))
                .collect()
        }))
    }

    /// Whether etcd responds at each of these, except where an agent waits.
    pub fn all_serve(&self, addresses: &[IpAddr]) -> bool {
        let Ok(access) = &self.access(true) else { return false };
        std::thread::scope(|scope| {
            let asking: Vec<_> = addresses
                .iter()
                .map(|&address| {
                    scope.spawn(move || match self.members(access, address, GLANCE) {
                        Ok(_) => true,
                        Err(Failure::Refused) => agent(address).is_some(),
                        Err(Failure::Silent | Failure::Nonsense | Failure::Rejected(_)) => false,
                    })
                })
                .collect();
            asking.into_iter().all(|asked| asked.join().unwrap_or(false))
        })
    }

    /// What is on disk is read once for all of them. etcd reads the certificates of its client port, too: they are tried
    /// here, because an etcd that cannot start has used its order up.
    fn access(&self, published: bool) -> Result<Access, tls::Error> {
        let Settings { config, local, .. } = self.settings;
        let read = |purpose| Tls::read(&local.tls_dir, purpose, &config.peer_host);
        if config.transport.clients.is_tls() {
            read(Purpose::Server)?;
        }
        let peers = config.transport.peers;
        let tls = peers.has_certificates().then(|| read(Purpose::Peer)).transpose()?;
        let either = peers == PeerPort::Prepared || config.plain_peers;
        Ok(match tls {
            None => Access::Plain,
            Some(tls) if published && either => Access::Either(tls),
            Some(_) if either => Access::PlainFirst,
            Some(tls) if published => Access::Tls(tls),
            Some(_) => Access::Later,
        })
    }

    fn ask_one(&self, access: &Access, address: IpAddr) -> Reply {
        let nameless = |answer| Reply { address, peer_address: None, ready: false, answer };
        match self.members(access, address, DEADLINE) {
            Ok(list) => nameless(Answer::Members(self.confirm(access, address, list))),
            Err(Failure::Silent) => nameless(Answer::Silent),
            Err(Failure::Nonsense | Failure::Rejected(_)) => nameless(Answer::Unknown),
            Err(Failure::Refused) => {
                let ours = |report: &Report| report.cluster_uid == self.settings.config.cluster_uid;
                match agent(address).filter(ours) {
                    Some(report) => report.reply(address),
                    None => nameless(Answer::Refused),
                }
            }
        }
    }

    /// Only a list that we would join by needs to be confirmed. It is read again, after the linearizable read.
    fn confirm(&self, access: &Access, address: IpAddr, list: MemberList) -> MemberList {
        if list.progress_of(&self.settings.peer_address) != Some(MemberProgress::Added) {
            return list;
        }
        let read = get(SocketAddr::new(address, METRICS_PORT), LINEARIZABLE_READ, READ_DEADLINE);
        if !read.is_ok_and(|response| response.status == 200) {
            return list;
        }
        let applied = applied_index(SocketAddr::new(address, METRICS_PORT), DEADLINE);
        self.members(access, address, DEADLINE).map_or(list, |list| MemberList {
            confirmed: true,
            applied,
            ..list
        })
    }

    fn members(&self, access: &Access, ip: IpAddr, deadline: Duration) -> Result<MemberList, Failure> {
        let address = SocketAddr::new(ip, PEER_PORT);
        let response = match access {
            Access::Plain => get(address, MEMBERS, deadline),
            Access::Tls(tls) => get_over_tls(tls, address, MEMBERS, deadline),
            // What speaks for itself comes first.
            Access::Either(tls) => match get_over_tls(tls, address, MEMBERS, deadline) {
                Err(Failure::Rejected(_)) => get(address, MEMBERS, deadline),
                other => other,
            },
            Access::PlainFirst => match get(address, MEMBERS, deadline) {
                Ok(response) if response.status == BAD_REQUEST => Err(Failure::Silent),
                other => other,
            },
            Access::Later => knock(address, deadline).and(Err(Failure::Silent)),
        };
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        match &response {
            Err(Failure::Rejected(why)) if rejected.insert(ip) => {
                log::warn("cannot ask another pod", &[("address", &ip.to_string()), ("error", why)]);
            }
            Ok(_) => _ = rejected.remove(&ip),
            Err(_) => (),
        }
        understand(&response?).ok_or(Failure::Nonsense)
    }
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
