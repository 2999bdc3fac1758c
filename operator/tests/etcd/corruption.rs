//! Members with different data, and what works while etcd reports that.

use std::time::Duration;

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client, KvClient};
use etcd_operator_core::etcd_config::{CLIENT_PORT, peer_url};
use etcd_operator_core::observed::{Alarm, AlarmKind, DataHash, MemberId};
use etcd_operator_core::tls::Scheme;
use testbed::fault::alter_value;

use crate::processes::{Processes, until};
use crate::{DEADLINE, ONE_LEARNER, TWO_LEARNERS};

const NEWEST: &str = "3.7.3";
const SIZE: u8 = 3;
const RIGHT: &[u8] = b"the value that all members have";
const WRONG: &[u8] = b"the value that one member reads";
/// etcd writes a batch into its file after a tenth of a second.
const UNTIL_WRITTEN: Duration = Duration::from_secs(1);

async fn client(cluster: &Processes, ordinal: u8) -> Client {
    let url = format!("http://{}:{CLIENT_PORT}", cluster.pod(ordinal).address);
    Client::connect([url], None).await.expect("it listens")
}

async fn kv(cluster: &Processes) -> KvClient {
    client(cluster, 0).await.kv_client()
}

fn rot(cluster: &Processes, ordinal: u8) {
    alter_value(&cluster.data_dir(ordinal), RIGHT, WRONG).expect("the value is written");
}

async fn hashes(cluster: &Processes, revision: i64) -> Vec<DataHash> {
    let mut all = Vec::new();
    for ordinal in 0..SIZE {
        all.push(cluster.member(ordinal).await.hash(revision, DEADLINE).await.expect("it has this revision"));
    }
    all
}

async fn id(cluster: &Processes, ordinal: u8) -> MemberId {
    cluster.serves(ordinal).await.answer.member
}

/// As etcd does when it finds that the hashes of members differ after a compaction.
async fn raise(cluster: &Processes, member: MemberId) {
    let mut of_member = AlarmOptions::new();
    of_member.with_member(member.0);
    let mut maintenance = client(cluster, 0).await.maintenance_client();
    maintenance
        .alarm(AlarmAction::Activate, AlarmType::Corrupt, Some(of_member))
        .await
        .expect("it is raised");
    until("every member to know the alarm", async || {
        for ordinal in 0..SIZE {
            let known = cluster.member(ordinal).await.status().await.ok()?.answer.alarms;
            known.contains(&Alarm { member, kind: Alarm::CORRUPT.into() }).then_some(())?;
        }
        Some(())
    })
    .await;
}

#[tokio::test]
async fn hashes_differ_by_data_and_by_compaction() {
    for version in [ONE_LEARNER, TWO_LEARNERS, NEWEST] {
        let cluster = Processes::formed(version, SIZE).await;
        let mut kv = kv(&cluster).await;
        for _ in 0..3 {
            kv.put("key", RIGHT, None).await.expect("it serves");
        }
        tokio::time::sleep(UNTIL_WRITTEN).await;
        let revision = cluster.serves(0).await.revision;
        let before = hashes(&cluster, revision).await;
        assert!(before.iter().all(|it| it == &before[0]), "{version}: {before:?}");
        // For the revision of a compaction, members return the hash that they computed then.
        cluster.member(0).await.compact(revision - 1).await.expect("it is not compacted yet");
        let after = until("all members to compact", async || {
            let after = hashes(&cluster, revision).await;
            after.iter().all(|it| it == &after[0]).then_some(after)
        })
        .await;
        assert_eq!(after[0].compacted, revision - 1, "{version}");
        assert!(
            after[0].hash != before[0].hash && before[0].compacted < revision - 1,
            "{version}: {before:?}"
        );

        rot(&cluster, 2);
        let [first, second, third] = hashes(&cluster, revision).await[..] else { panic!("three members") };
        assert_eq!(first, second, "{version}");
        assert_ne!(first.hash, third.hash, "{version}");
        assert_eq!(first.compacted, third.compacted, "{version}");
        assert!(cluster.serves(2).await.answer.linearizable, "{version}: nothing else shows it");
    }
}

#[tokio::test]
async fn while_etcd_reports_corruption_members_can_be_compared_and_replaced_and_the_alarm_disarmed() {
    for version in [ONE_LEARNER, TWO_LEARNERS, NEWEST] {
        let mut cluster = Processes::formed(version, SIZE).await;
        kv(&cluster).await.put("key", RIGHT, None).await.expect("it serves");
        tokio::time::sleep(UNTIL_WRITTEN).await;
        let (leader, _) = cluster.leader(SIZE).await;
        let rotten = (0..SIZE).rev().find(|it| *it != leader).expect("a follower");
        let asked = (0..SIZE).find(|it| *it != rotten).expect("another one");
        rot(&cluster, rotten);
        let member = id(&cluster, rotten).await;
        raise(&cluster, member).await;
        let error = kv(&cluster).await.put("key", "value", None).await.expect_err("it rejects writes");
        assert!(error.to_string().contains("corrupt cluster"), "{version}: {error}");
        let status = cluster.member(asked).await.status().await.expect("it responds");
        assert!(status.answer.linearizable, "{version}: what a quorum is does not change");
        let revision = status.revision;
        let found = hashes(&cluster, revision).await;
        assert_eq!(found.iter().filter(|it| **it == found[usize::from(asked)]).count(), 2, "{version}");

        let member_asked = cluster.member(asked).await;
        until("etcd to accept the removal", async || match member_asked.remove(member).await {
            Ok(()) => Some(()),
            Err(error) => {
                assert!(error.not_yet().is_some(), "{version}: {error:?}");
                None
            }
        })
        .await;
        cluster.kill(rotten);
        until("the learner to be added", async || {
            member_asked.add_learner(peer_url(Scheme::Http, &cluster.host(SIZE))).await.ok()
        })
        .await;
        member_asked.disarm(AlarmKind::Corrupt).await.expect("it is disarmed");
        let status = cluster.serves(asked).await;
        assert!(status.answer.alarms.is_empty() && status.answer.linearizable, "{version}");
        assert_eq!(status.revision, revision, "{version}: the write that is tried leaves no revision");
    }
}
