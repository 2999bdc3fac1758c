//! What real members answer, refuse and leave open.

mod auth;
mod corruption;
mod downgrades;
mod flags;
mod judges;
mod metrics;
mod processes;
mod relay;
mod space;
mod tls;

use std::time::Duration;

use etcd_operator::agent::{AgentReply, tell};
use etcd_operator::credentials::Security;
use etcd_operator::etcd::{Error, Member};
use etcd_operator::reach::Reach;
use etcd_operator_core::agent::News;
use etcd_operator_core::etcd_config::peer_url;
use etcd_operator_core::member::MemberProgress;
use etcd_operator_core::names::Names;
use etcd_operator_core::observed::{MemberId, Members, Ordinal};
use etcd_operator_core::tls::Scheme;
use etcd_operator_core::version::Version;
use processes::{Processes, in_time, until};
use testbed::build::STANDARD_ETCD;

/// Of a hash of all data.
const DEADLINE: Duration = Duration::from_secs(20);
const ONE_LEARNER: &str = "3.5.21";
const TWO_LEARNERS: &str = "3.6.16";
const VERSIONS: [&str; 2] = [ONE_LEARNER, TWO_LEARNERS];

fn names() -> Names {
    Names::new("ns", "kv", "cluster.local")
}

/// The list that can be relied on: right after a linearizable read through the same member.
async fn relied_on(member: &Member) -> Result<Members, Error> {
    member.linearizable_read().await?;
    let leader = member.status().await?.answer.leader;
    member.members(&names(), leader).await
}

/// How many members its own list has, whatever others think.
async fn listed(member: &Member) -> Result<usize, Error> {
    member.members(&names(), None).await.map(|members| members.list.len())
}

/// What etcd refuses has no effect, and we know it.
fn refused<T>(answer: Result<T, Error>, reason: &str) {
    let error = answer.err().expect("it refuses");
    assert!(matches!(&error, Error::Refused { reason: said, .. } if said.contains(reason)), "{error:?}");
    assert!(!error.is_ambiguous());
}

#[tokio::test]
async fn a_member_alone_tells_who_it_is_and_changes_its_members_one_by_one() {
    for version in STANDARD_ETCD {
        let cluster = Processes::named(version, &names().pod_host(Ordinal(0))).await;
        let member = cluster.member(0).await;
        let said = member.status().await.expect("it answers");
        assert!(said.answer.linearizable);
        assert_eq!(said.answer.leader, Some(said.answer.member));
        assert_eq!(said.answer.version, Version::parse(version));
        assert_eq!((said.answer.listed, said.answer.hash), (None, None));
        assert_eq!(listed(&member).await.expect("it lists"), 1);
        let hash = member.hash(said.revision, DEADLINE).await.expect("it hashes");
        assert_eq!(member.hash(said.revision, DEADLINE).await.expect("it hashes"), hash);
        refused(member.hash(said.revision + 1000, DEADLINE).await, "future revision");

        let learner =
            member.add_learner(names().peer_url(Scheme::Http, Ordinal(1))).await.expect("one is accepted");
        // By its URL, or, within the same second, by the ID that comes of it.
        refused(member.add_learner(names().peer_url(Scheme::Http, Ordinal(1))).await, "already exist");
        refused(member.promote(learner).await, "in sync with leader");
        refused(member.promote(said.answer.member).await, "can only promote a learner member");
        refused(member.move_leader(MemberId(12345)).await, "bad leader transferee");

        let foreign = member.add_learner("http://10.9.9.9:2380".into()).await;
        match said.answer.accepts_two_learners() {
            false => refused(foreign, "too many learner members"),
            true => {
                let foreign = foreign.expect("two are accepted");
                let members = relied_on(&member).await.expect("it lists");
                assert_eq!(members.list[&foreign].ordinal, None);
                member.remove(foreign).await.expect("it is removed");
            }
        }

        let members = relied_on(&member).await.expect("it lists");
        assert_eq!((members.cluster, members.leader), (said.answer.cluster, said.answer.leader));
        let seen: Vec<_> =
            members.by_ordinal().iter().map(|(id, it)| (*id, it.ordinal, it.learner, it.start)).collect();
        let (own, added) = (said.answer.member, MemberProgress::Added);
        assert_eq!(
            seen,
            [
                (own, Some(Ordinal(0)), false, MemberProgress::Published),
                (learner, Some(Ordinal(1)), true, added)
            ]
        );
        member.remove(learner).await.expect("it is removed");
        refused(member.remove(learner).await, "member not found");
        assert_eq!(listed(&member).await.expect("it lists"), 1);
    }
}

#[tokio::test]
async fn a_learner_serves_no_reads_until_it_is_promoted() {
    for version in VERSIONS {
        let mut cluster = Processes::formed(version, 1).await;
        let founder = cluster.member(0).await;
        let learner =
            founder.add_learner(peer_url(Scheme::Http, &cluster.host(1))).await.expect("it is accepted");
        cluster.join(1);
        let joined = until("the learner to answer", async || {
            let member = Member::connect(&Reach::Direct, &cluster.pod(1), &Security::Plain).await.ok()?;
            member.status().await.is_ok().then_some(member)
        })
        .await;
        let answer = joined.status().await.expect("it answers").answer;
        assert_eq!((answer.member, answer.linearizable), (learner, false));
        refused(joined.linearizable_read().await, "not supported for learner");
        refused(listed(&joined).await, "not supported for learner");

        let watched = joined.clone();
        let watch = tokio::spawn(async move { watched.watch_until_lost().await });
        until("the learner to be promoted", async || founder.promote(learner).await.ok()).await;
        until("it to serve", async || joined.linearizable_read().await.ok()).await;
        assert_eq!(relied_on(&founder).await.expect("it lists").learners().count(), 0);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!watch.is_finished(), "{:?}", watch.await);
        cluster.kill(1);
        in_time("the loss to be noticed", watch).await.expect("no panic");
    }
}

#[tokio::test]
async fn three_members_follow_one_leader_and_only_that_one_can_hand_over() {
    for version in VERSIONS {
        let cluster = Processes::formed(version, 3).await;
        let (leading, leader) = cluster.leader(3).await;
        let follower = (leading + 1) % 3;
        let next = cluster.serves(follower).await.answer.member;
        for ordinal in 0..3 {
            let member = cluster.member(ordinal).await;
            let members = relied_on(&member).await.expect("it lists");
            assert_eq!((members.leader, members.list.len()), (Some(leader), 3));
        }
        refused(cluster.member(follower).await.move_leader(next).await, "not leader");
        cluster.member(leading).await.move_leader(next).await.expect("the leader can");
        until("the new leader to be known", async || {
            let answer = cluster.member(leading).await.status().await.ok()?.answer;
            (answer.leader == Some(next)).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn without_a_quorum_a_member_answers_and_serves_no_read() {
    for version in VERSIONS {
        let mut cluster = Processes::formed(version, 3).await;
        let survivor = cluster.member(0).await;
        let (gone, left) = (cluster.member(2).await, survivor.clone());
        let watch_gone = tokio::spawn(async move { gone.watch_until_lost().await });
        let watch_left = tokio::spawn(async move { left.watch_until_lost().await });
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!watch_gone.is_finished() && !watch_left.is_finished());

        cluster.kill(2);
        let lost = in_time("the loss to be noticed", watch_gone).await.expect("no panic");
        assert!(
            matches!(lost, Error::Lost { .. })
                && lost.to_string().starts_with("lost the connection to kv-2: "),
            "{lost}"
        );
        cluster.kill(1);
        let lost = in_time("the leader's loss to be noticed", watch_left).await.expect("no panic");
        assert_eq!(lost.to_string(), "lost the connection to kv-0: no leader");

        let said = survivor.status().await.expect("it answers");
        assert!(!said.answer.linearizable);
        assert_eq!(said.answer.leader, None);
        assert_eq!(listed(&survivor).await.expect("it has a list"), 3);
        let error = relied_on(&survivor).await.expect_err("nobody agrees");
        assert!(error.to_string().starts_with("kv-0 "), "{error}");
        let error = survivor.remove(MemberId(1)).await.expect_err("nobody agrees");
        assert!(!matches!(error, Error::Reach(_)), "{error}");
    }
}

#[tokio::test]
async fn a_connection_that_broke_stays_broken_and_the_next_one_works() {
    let mut cluster = Processes::formed(TWO_LEARNERS, 1).await;
    let before = cluster.member(0).await;
    cluster.kill(0);
    let connected = Member::connect(&Reach::Direct, &cluster.pod(0), &Security::Plain).await;
    let error = connected.err().expect("nobody listens");
    assert_eq!(error.to_string(), "cannot connect to kv-0: connection refused");
    cluster.restart(0);
    cluster.serves(0).await;
    for _ in 0..3 {
        let error = before.status().await.expect_err("its connection is gone");
        assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_member_that_hangs_is_noticed_although_its_connection_stays() {
    let cluster = Processes::formed(ONE_LEARNER, 1).await;
    let member = cluster.member(0).await;
    let watched = member.clone();
    let watch = tokio::spawn(async move { watched.watch_until_lost().await });
    // Longer than three pings: etcd hangs up on who pings too often.
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert!(!watch.is_finished(), "{:?}", watch.await);
    cluster.freeze(0).await;
    let error = member.status().await.expect_err("it hangs");
    assert_eq!(error.to_string(), "kv-0 did not report its status within 2 s");
    let error = in_time("the silence to be noticed", watch).await.expect("no panic");
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
}

#[tokio::test]
async fn etcd_is_not_taken_for_an_agent() {
    for version in VERSIONS {
        let cluster = Processes::formed(version, 1).await;
        let heard = tell(&Reach::Direct, &cluster.pod(0), &News::default()).await;
        assert_eq!(heard.expect("etcd answers there"), AgentReply::SomethingElse);
    }
}
