//! Whether members may change is judged by the member that is asked, by its own connections.

use std::sync::atomic::{AtomicU8, Ordering};

use etcd_operator::etcd::{Error, Member};
use etcd_operator_core::etcd_config::peer_url;
use etcd_operator_core::observed::MemberId;
use etcd_operator_core::tls::Scheme;

use crate::processes::{Processes, until};
use crate::relay::Relay;
use crate::{VERSIONS, refused};

const UNHEALTHY: &str = "unhealthy cluster";

/// Nobody is there, but to be added is enough. Each is another one, because etcd makes the number of a member of its URL
/// and the second, and takes nobody twice.
fn newcomer() -> String {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    peer_url(Scheme::Http, &format!("10.9.9.{}", COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// Whether it consents to one more member, which is gone again then.
async fn takes_a_learner(member: &Member) -> bool {
    match member.add_learner(newcomer()).await {
        Ok(learner) => {
            member.remove(learner).await.expect("a learner may always go");
            true
        }
        Err(error) => {
            assert_eq!(error.not_yet(), Some(UNHEALTHY), "{error:?}");
            false
        }
    }
}

/// Whether it consents to the removal of a voter.
async fn removes(member: &Member, leaving: MemberId) -> bool {
    match member.remove(leaving).await {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.not_yet(), Some(UNHEALTHY), "{error:?}");
            false
        }
    }
}

async fn consents(what: &str, member: &Member) {
    until(what, async || takes_a_learner(member).await.then_some(())).await;
}

/// Three members of which the leader cannot call the last, while everybody else can call everybody: the log still goes
/// all ways, over connections that the last one has opened.
async fn leader_misses_the_last(version: &str) -> (Processes, Relay) {
    let mut cluster = Processes::new(version).await;
    let detour = cluster.pod(100).address;
    let relay = Relay::open(detour, cluster.pod(2).address).await;
    cluster.form(&[cluster.host(0), cluster.host(1), detour.to_string()]).await;
    let (leading, _) = cluster.leader(3).await;
    let leader = id(&cluster, 0).await;
    if leading != 0 {
        cluster.member(leading).await.move_leader(leader).await.expect("the leader can");
    }
    until("kv-0 to lead", async || (cluster.leader(3).await.0 == 0).then_some(())).await;
    for ordinal in 0..3 {
        let what = format!("kv-{ordinal} to consent while nothing is wrong");
        consents(&what, &cluster.member(ordinal).await).await;
    }
    relay.turn_away(leader);
    (cluster, relay)
}

async fn id(cluster: &Processes, ordinal: u8) -> MemberId {
    cluster.serves(ordinal).await.answer.member
}

/// As the operator tells a wait from a failure.
fn has_to_wait<T>(answer: Result<T, Error>) {
    assert_eq!(answer.as_ref().err().and_then(Error::not_yet), Some(UNHEALTHY));
    refused(answer, UNHEALTHY);
}

#[tokio::test]
async fn who_misses_a_voter_refuses_for_ever_what_others_consent_to() {
    for version in VERSIONS {
        let (cluster, _relay) = leader_misses_the_last(version).await;
        let [leader, second, last] =
            [cluster.member(0).await, cluster.member(1).await, cluster.member(2).await];
        until("the leader to refuse", async || (!takes_a_learner(&leader).await).then_some(())).await;
        consents("the second to consent again, after five seconds", &second).await;
        consents("the last to consent again", &last).await;
        for ordinal in 0..3 {
            let answer = cluster.serves(ordinal).await.answer;
            assert_eq!(answer.leader, Some(id(&cluster, 0).await), "kv-{ordinal} follows another leader");
        }

        let leaving = id(&cluster, 1).await;
        has_to_wait(leader.add_learner(newcomer()).await);
        has_to_wait(leader.remove(leaving).await);
        // A connection that was slow once on a busy machine counts as new for five seconds.
        until("the last to remove the second", async || removes(&last, leaving).await.then_some(())).await;
        has_to_wait(leader.add_learner(newcomer()).await);
        consents("the last to consent after the removal", &last).await;
    }
}
