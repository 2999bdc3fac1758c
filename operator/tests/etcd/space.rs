//! A database that reaches its quota, and what frees space in it.

use etcd_client::{Client, DeleteOptions, KvClient};
use etcd_operator::etcd::EndpointStatus;
use etcd_operator_core::etcd_config::CLIENT_PORT;
use etcd_operator_core::observed::{Alarm, AlarmKind, Space};

use crate::processes::{Processes, until};
use crate::{ONE_LEARNER, TWO_LEARNERS, refused};

const NEWEST: &str = "3.7.3";
const SIZE: u8 = 3;
const QUOTA: u64 = 16 << 20;
const FULL: &str = "database space exceeded";

async fn client(cluster: &Processes) -> KvClient {
    let url = format!("http://{}:{CLIENT_PORT}", cluster.pod(0).address);
    Client::connect([url], None).await.expect("it serves").kv_client()
}

/// Values of a megabyte, until etcd takes no more.
async fn fill(cluster: &Processes, key: impl Fn(usize) -> String) {
    let mut client = client(cluster).await;
    for number in 0..100 {
        if let Err(error) = client.put(key(number), vec![b'x'; 1 << 20], None).await {
            assert!(error.to_string().contains(FULL), "{error}");
            return;
        }
    }
    panic!("it never fills");
}

async fn statuses(cluster: &Processes) -> Vec<EndpointStatus> {
    let mut all = Vec::new();
    for ordinal in 0..SIZE {
        all.push(cluster.serves(ordinal).await);
    }
    all
}

fn space(status: &EndpointStatus) -> Space {
    status.answer.space.expect("the alarm is active")
}

async fn until_alarm(cluster: &Processes) {
    until("every member to know the alarm", async || {
        let all = statuses(cluster).await;
        let knows = |it: &EndpointStatus| it.answer.alarms.iter().any(|alarm| alarm.kind == Alarm::NOSPACE);
        all.iter().all(knows).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_full_database_has_room_again_after_compaction_defragmentation_and_disarming() {
    for version in [ONE_LEARNER, TWO_LEARNERS, NEWEST] {
        let cluster = Processes::with_quota(version, SIZE, QUOTA).await;
        assert_eq!(cluster.serves(0).await.answer.space, None, "nobody asks without an alarm");
        // One key, and many revisions of it.
        fill(&cluster, |_| "key".into()).await;
        until_alarm(&cluster).await;
        let before = statuses(&cluster).await;
        for status in &before {
            let Space { size, quota, revision } = space(status);
            assert!(size > QUOTA / 2 && revision > 5, "{version}: {status:?}");
            assert_eq!(quota, (version != ONE_LEARNER).then_some(QUOTA));
        }
        // The files of members differ, and one that is large enough raises the alarm for all.
        assert!(before.iter().any(|it| space(it).size > QUOTA / 10 * 9), "{version}: {before:?}");
        let member = cluster.member(0).await;
        let revision = before[0].revision;
        member.compact(revision).await.expect("it is the current one");
        member.compact(revision).await.expect("it is compacted already");
        for ordinal in 0..SIZE {
            let large = space(&cluster.serves(ordinal).await).size;
            cluster.member(ordinal).await.defragment().await.expect("it serves");
            let small = space(&cluster.serves(ordinal).await).size;
            assert!(small < QUOTA / 2 && small < large, "{version}: {large} to {small}");
        }
        member.disarm(AlarmKind::NoSpace).await.expect("there is room");
        let after = cluster.serves(0).await;
        assert!(after.answer.alarms.is_empty() && after.answer.space.is_none());
        assert_eq!(after.revision, revision, "the write that is tried leaves no revision");
        client(&cluster).await.put("key", "value", None).await.expect("it takes writes");
    }
}

#[tokio::test]
async fn a_database_that_is_full_of_data_stays_full_until_keys_are_deleted() {
    for version in [ONE_LEARNER, TWO_LEARNERS, NEWEST] {
        let cluster = Processes::with_quota(version, SIZE, QUOTA).await;
        fill(&cluster, |number| format!("key-{number}")).await;
        until_alarm(&cluster).await;
        let member = cluster.member(0).await;
        let revision = cluster.serves(0).await.revision;
        member.compact(revision).await.expect("it is the current one");
        member.defragment().await.expect("it serves");
        assert!(space(&cluster.serves(0).await).size > QUOTA / 2);
        // Keys can be deleted while the alarm is active, which is a new revision.
        let mut client = client(&cluster).await;
        client.delete("key-", Some(DeleteOptions::new().with_prefix())).await.expect("it can be deleted");
        let deleted = cluster.serves(0).await.revision;
        assert!(deleted > revision);
        refused(member.compact(deleted + 1).await, "future revision");
    }
}

#[tokio::test]
async fn a_member_reports_how_much_of_its_file_is_unused() {
    for version in [ONE_LEARNER, TWO_LEARNERS, NEWEST] {
        let cluster = Processes::formed(version, 1).await;
        let mut kv = client(&cluster).await;
        for _ in 0..8 {
            kv.put("key", vec![b'x'; 1 << 20], None).await.expect("it serves");
        }
        kv.put("key", "value", None).await.expect("it serves");
        let member = cluster.member(0).await;
        member.compact(cluster.serves(0).await.revision).await.expect("it is the current one");
        let before = until("most of the file to be unused", async || {
            // What a compaction frees counts as used until the next write.
            kv.put("key", "value", None).await.expect("it serves");
            let file = cluster.serves(0).await.answer.file?;
            (file.unused_percent() > 45).then_some(file)
        })
        .await;
        assert!(before.size > 8 << 20 && before.in_use < before.size / 2, "{version}: {before:?}");
        member.defragment().await.expect("it serves");
        let after = cluster.serves(0).await.answer.file.expect("it reports it");
        assert!(after.size < before.size / 2, "{version}: {before:?} {after:?}");
    }
}
