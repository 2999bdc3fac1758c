//! The only user of etcd's API. A connection leads to one member, and every call has a deadline.
//!
//! A connection that broke stays broken: its owner drops it and opens another one when it wants to. Nothing dials
//! behind anybody's back, and an address that changed hands is not mistaken for the member that had it before.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use etcd_client::{
    Channel, Client, ConnectOptions, GetOptions, MemberAddOptions, ResponseHeader, WatchClient,
};
use etcd_operator_core::member::MemberProgress;
use etcd_operator_core::names::Names;
use etcd_operator_core::observed::{
    Alarm, Answer, ClusterId, DataHash, Member as Listed, MemberId, Members, Space,
};
use etcd_operator_core::tls::Schemes;
use etcd_operator_core::version::Version;
use tracing::Instrument;

pub use self::error::Error;
use crate::credentials::Security;
use crate::reach::{PodAddress, Reach};
use crate::{metrics, traces};

mod auth;
pub(crate) use auth::random_password;
mod connection;
mod downgrade;
mod error;
mod space;

/// A healthy member answers in milliseconds; one that does not is unknown, and nobody waits for it longer.
const DEADLINE: Duration = Duration::from_secs(2);
/// Changes of membership are agreed upon by a quorum, which may have to be found first.
const CHANGE_DEADLINE: Duration = Duration::from_secs(5);
/// How long a learner, which serves no watch, is left alone until it is asked again.
const LEARNER_REST: Duration = Duration::from_secs(2);
/// The same for a member whose authentication rejects the operator.
const DENIED_REST: Duration = Duration::from_secs(30);
/// A key that nobody has: reading it asks for nothing but the quorum's consent.
const PROBE_KEY: &str = "\0";

/// One member, by a connection to its pod.
#[derive(Clone)]
pub struct Member {
    pod: String,
    client: Client,
    /// For what the client has no call for.
    channel: Channel,
    /// Its watches end when the member knows no leader.
    led: WatchClient,
}

/// What a member says of itself. What is asked on request only is none in the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStatus {
    pub answer: Answer,
    pub revision: i64,
    /// Whether it matters or not.
    pub space: Option<Space>,
}

impl Member {
    /// Fails at once if nobody listens.
    pub async fn connect(reach: &Reach, pod: &PodAddress, security: &Security) -> Result<Self, Error> {
        let channel = reach.around(pod, connection::open(reach, pod, security).await?);
        let failed = |error| Error::of(&pod.pod, connection::CALL, &error);
        let client = Client::from_channel(channel.clone(), None).await.map_err(failed)?;
        let options = ConnectOptions::new().with_require_leader(true);
        let led = Client::from_channel(channel.clone(), Some(options)).await.map_err(failed)?.watch_client();
        Ok(Self { pod: pod.pod.clone(), client, channel, led })
    }

    /// What the member says of itself, and whether a quorum stands behind it.
    pub async fn status(&self) -> Result<EndpointStatus, Error> {
        let call = "report its status";
        let mut maintenance = self.client.maintenance_client();
        let asked = self.within(DEADLINE, call, maintenance.status());
        // Neither needs the other's answer, and without a quorum only the read takes the whole time.
        let (status, read) = futures::join!(asked, self.linearizable_read());
        let status = status?;
        let (cluster, member) = self.identity(call, status.header())?;
        let alarms: BTreeSet<_> = status.errors().iter().filter_map(|text| alarm(text)).collect();
        let revision = status.header().map_or(0, ResponseHeader::revision);
        let space = space::reported(&status, revision);
        let answer = Answer {
            space: space.filter(|_| !alarms.is_empty()),
            file: space::file(&status),
            cluster,
            member,
            leader: leader(status.leader()),
            linearizable: read.is_ok() || read.as_ref().is_err_and(Error::follows_read),
            denied: read.as_ref().is_err_and(Error::is_denied),
            applied_index: status.raft_applied_index(),
            commit_index: if status.is_learner() { 0 } else { status.raft_index() },
            term: status.raft_term(),
            version: Version::parse(status.version()),
            storage_version: Version::parse(status.storage_version()),
            downgrade: downgrade::reported(status.downgrade_info()),
            listed: None,
            hash: None,
            alarms,
            reaches: None,
        };
        Ok(EndpointStatus { answer, revision, space })
    }

    /// Succeeds if a quorum stands behind this member now. Learners serve none.
    pub async fn linearizable_read(&self) -> Result<(), Error> {
        let mut kv = self.client.kv_client();
        let read = kv.get(PROBE_KEY, Some(GetOptions::new().with_count_only()));
        self.within(DEADLINE, "serve a linearizable read", read).await.map(drop)
    }

    /// The hash of all keys up to a revision, since the last compaction. All of the data is read for it.
    pub async fn hash(&self, revision: i64, deadline: Duration) -> Result<DataHash, Error> {
        let mut maintenance = self.client.maintenance_client();
        let hash = maintenance.hash_kv(revision);
        let hash = self.within(deadline, "return the hash of its data", hash).await?;
        Ok(DataHash { hash: hash.hash(), compacted: hash.compact_version() })
    }

    /// The members as this one lists them. Right after a linearizable read through it, everything that was agreed upon
    /// before is in the list; otherwise it is hearsay.
    pub async fn members(&self, names: &Names, leader: Option<MemberId>) -> Result<Members, Error> {
        let call = "list the members";
        let mut cluster = self.client.cluster_client();
        let response = self.within(DEADLINE, call, cluster.member_list()).await?;
        let (cluster, _) = self.identity(call, response.header())?;
        let listed = response.members().iter().map(|member| {
            let entry = listed(names, member.name(), member.peer_urls(), member.client_urls());
            Ok((self.member_id(call, member.id())?, Listed { learner: member.is_learner(), ..entry }))
        });
        let list = listed.collect::<Result<BTreeMap<_, _>, Error>>()?;
        Ok(Members { cluster, leader, list })
    }

    pub async fn add_learner(&self, peer_url: String) -> Result<MemberId, Error> {
        let call = "add a learner";
        let mut cluster = self.client.cluster_client();
        let added = cluster.member_add([peer_url], Some(MemberAddOptions::new().with_is_learner()));
        let response = self.within(CHANGE_DEADLINE, call, added).await?;
        self.member_id(call, response.member().map_or(0, etcd_client::Member::id))
    }

    pub async fn promote(&self, member: MemberId) -> Result<(), Error> {
        let mut cluster = self.client.cluster_client();
        let promoted = cluster.member_promote(member.0);
        self.within(CHANGE_DEADLINE, "promote a learner", promoted).await.map(drop)
    }

    pub async fn update(&self, member: MemberId, urls: impl Iterator<Item = String>) -> Result<(), Error> {
        let mut cluster = self.client.cluster_client();
        let updated = cluster.member_update(member.0, urls.collect::<Vec<_>>());
        self.within(CHANGE_DEADLINE, "change the peer URLs of a member", updated).await.map(drop)
    }

    pub async fn remove(&self, member: MemberId) -> Result<(), Error> {
        let mut cluster = self.client.cluster_client();
        self.within(CHANGE_DEADLINE, "remove a member", cluster.member_remove(member.0)).await.map(drop)
    }

    /// Only the leader can give its leadership away.
    pub async fn move_leader(&self, to: MemberId) -> Result<(), Error> {
        let mut maintenance = self.client.maintenance_client();
        let moved = maintenance.move_leader(to.0);
        self.within(CHANGE_DEADLINE, "transfer leadership", moved).await.map(drop)
    }

    /// Completes when the member ends, loses its leader or cannot be reached any more; at once if it has no leader.
    ///
    /// Nothing else tells us: Kubernetes notices none of it, or much later.
    pub async fn watch_until_lost(&self) -> Error {
        loop {
            match self.watch().await {
                Ok(never) => match never {},
                Err(error) if error.is_for_learners() => tokio::time::sleep(LEARNER_REST).await,
                Err(error) if error.is_denied() => tokio::time::sleep(DENIED_REST).await,
                Err(error) => return error,
            }
        }
    }

    async fn watch(&self) -> Result<Infallible, Error> {
        let mut client = self.led.clone();
        let mut stream = self.within(DEADLINE, "serve a watch", client.watch(PROBE_KEY, None)).await?;
        let lost = |reason: &str| Error::Lost { pod: self.pod.clone(), reason: reason.to_owned() };
        loop {
            match stream.message().await {
                Ok(Some(response)) if response.canceled() => return Err(lost(response.cancel_reason())),
                Ok(Some(_)) => {}
                Ok(None) => return Err(lost("it closed the watch")),
                Err(error) => {
                    let error = Error::of(&self.pod, "keep a watch open", &error);
                    return Err(if error.is_for_learners() { error } else { lost(error.reason()) });
                }
            }
        }
    }

    /// Who answers. etcd gives nobody the number zero.
    fn identity(
        &self,
        call: &'static str,
        header: Option<&ResponseHeader>,
    ) -> Result<(ClusterId, MemberId), Error> {
        match header.map(|header| (header.cluster_id(), header.member_id())) {
            Some((cluster, member)) if cluster != 0 => {
                Ok((ClusterId(cluster), self.member_id(call, member)?))
            }
            _ => Err(Error::Nonsense { pod: self.pod.clone(), call }),
        }
    }

    fn member_id(&self, call: &'static str, id: u64) -> Result<MemberId, Error> {
        match id {
            0 => Err(Error::Nonsense { pod: self.pod.clone(), call }),
            id => Ok(MemberId(id)),
        }
    }

    async fn within<T>(
        &self,
        deadline: Duration,
        call: &'static str,
        answer: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, Error> {
        let (counted, span) = (metrics::ETCD.begin(call), traces::etcd(call, &self.pod));
        match tokio::time::timeout(deadline, answer).instrument(span.clone()).await {
            Ok(answer) => {
                let answer = answer.map_err(|error| Error::of(&self.pod, call, &error));
                let outcome = answer.as_ref().map_or_else(Error::outcome, |_| "ok");
                span.record("outcome", outcome);
                counted.end(outcome);
                answer
            }
            Err(_) => {
                span.record("outcome", "no_response");
                Err(Error::NoAnswer { pod: self.pod.clone(), call, seconds: deadline.as_secs() })
            }
        }
    }
}

/// An alarm among the errors of a status, in the text form of its message: `memberID:1234 alarm:NOSPACE`.
fn alarm(error: &str) -> Option<Alarm> {
    let field = |name: &str| error.split_whitespace().find_map(|word| word.strip_prefix(name));
    let member = MemberId(field("memberID:")?.parse().ok()?);
    Some(Alarm { member, kind: field("alarm:")?.into() })
}

fn leader(id: u64) -> Option<MemberId> {
    Some(id).filter(|&id| id != 0).map(MemberId)
}

fn listed(names: &Names, name: &str, peer_urls: &[String], client_urls: &[String]) -> Listed {
    let ordinal = peer_urls.iter().find_map(|url| names.ordinal_of(url));
    let schemes = Schemes::of(peer_urls.iter().map(String::as_str));
    Listed { ordinal, learner: false, start: MemberProgress::of(name, client_urls), schemes }
}

#[cfg(test)]
mod tests {
    use etcd_operator_core::observed::Ordinal;
    use etcd_operator_core::tls::Scheme;

    use super::*;

    #[test]
    fn an_alarm_is_read_from_the_errors_of_a_status() {
        let expected = Alarm { member: MemberId(10276657743932975437), kind: "NOSPACE".into() };
        assert_eq!(alarm("memberID:10276657743932975437 alarm:NOSPACE "), Some(expected));
        assert_eq!(alarm("etcdserver: no leader"), None);
        assert_eq!(alarm("alarm:NOSPACE"), None);
    }

    #[test]
    fn a_listed_member_is_known_by_its_peer_address_and_its_progress_by_what_it_published() {
        let names = Names::new("ns", "kv", "cluster.local");
        let (ours, secure) =
            (names.peer_url(Scheme::Http, Ordinal(2)), names.peer_url(Scheme::Https, Ordinal(2)));
        let (client, foreign) =
            (names.client_url(Scheme::Http, Ordinal(2)), "http://10.0.0.1:2380".to_owned());
        for (name, peer, clients, ordinal, start) in [
            ("", &ours, vec![], Some(Ordinal(2)), MemberProgress::Added),
            ("kv-2", &ours, vec![], Some(Ordinal(2)), MemberProgress::Listed),
            ("kv-2", &ours, vec![client.clone()], Some(Ordinal(2)), MemberProgress::Published),
            ("kv-2", &secure, vec![client.clone()], Some(Ordinal(2)), MemberProgress::Published),
            ("", &ours, vec![client.clone()], Some(Ordinal(2)), MemberProgress::Published),
            // Its name does not make it ours.
            ("kv-2", &foreign, vec![client], None, MemberProgress::Published),
        ] {
            let schemes = Schemes::of([peer.as_str()].into_iter());
            let expected = Listed { ordinal, learner: false, start, schemes };
            assert_eq!(listed(&names, name, std::slice::from_ref(peer), &clients), expected, "{name} {peer}");
        }
    }
}
