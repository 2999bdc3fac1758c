//! How etcd goes back to the previous minor version, and what its members report meanwhile. The decisions of `core` are
//! carried out as they come.

use std::time::Duration;

use etcd_client::DowngradeOptions;
use etcd_operator_core::etcd_config::CLIENT_PORT;
use etcd_operator_core::observed::Answer;
use etcd_operator_core::version::Version;
use etcd_operator_core::version::downgrade::{Downgrade, Next, next};
use etcd_operator_core::version::path::{Verdict, judge};

use crate::processes::{Processes, until};
use crate::refused;

/// From, to.
const PAIRS: [(&str, &str); 2] = [("3.6.16", "3.5.35"), ("3.7.3", "3.6.16")];
const SIZE: u8 = 3;

fn version(text: &str) -> Version {
    Version::parse(text).expect("a version")
}

async fn answers(cluster: &Processes) -> Vec<Answer> {
    let mut answers = Vec::new();
    for ordinal in 0..SIZE {
        answers.push(cluster.serves(ordinal).await.answer);
    }
    answers
}

async fn until_next(cluster: &Processes, wanted: Version, expected: Next) {
    until(&format!("{expected:?}"), async || {
        (next(&answers(cluster).await, wanted) == expected).then_some(())
    })
    .await;
}

/// Whether etcd would accept a downgrade to this minor version now.
async fn accepts(cluster: &Processes, to: Version) -> Result<(), etcd_client::Error> {
    let url = format!("http://{}:{CLIENT_PORT}", cluster.pod(0).address);
    let mut client = etcd_client::Client::connect([url], None).await?.maintenance_client();
    client.downgrade(DowngradeOptions::Validate(to.minor().to_string())).await.map(drop)
}

fn judged(answers: &[Answer], wanted: Version) -> Verdict {
    judge(answers.iter().map(|answer| answer.version), wanted)
}

/// As a kubelet does: etcd is asked to end. The storage version that a member reports is on its disk at the next commit,
/// up to 100 ms later. Killed before that, it cannot go back.
async fn restart_with(cluster: &mut Processes, ordinal: u8, version: &str) {
    cluster.switch_to(version).await;
    cluster.terminate(ordinal);
    until("a member to end", async || cluster.ended(ordinal).then_some(())).await;
    cluster.restart(ordinal);
    cluster.serves(ordinal).await;
}

#[tokio::test]
async fn members_go_back_one_by_one_after_their_data_was_rewritten() {
    for (from, to) in PAIRS {
        let (high, low) = (version(from), version(to));
        let mut cluster = Processes::formed(from, SIZE).await;
        until_next(&cluster, low, Next::Enable(low.minor())).await;
        assert_eq!(judged(&answers(&cluster).await, low), Verdict::Downgrade);
        let member = cluster.member(0).await;
        member.enable_downgrade(low).await.expect("it is one below");
        // etcd notices at any moment of the next four seconds.
        let soon = next(&answers(&cluster).await, low);
        assert!([Next::Migrate(low.minor()), Next::Restart].contains(&soon), "{soon:?}");
        until_next(&cluster, low, Next::Restart).await;
        for answer in answers(&cluster).await {
            assert_eq!((answer.version, answer.storage_version), (Some(high), Some(low.minor())));
            assert_eq!(answer.downgrade, Downgrade::Enabled(low.minor()));
        }
        // Not because it is in progress: the cluster has the version of the target already.
        refused(member.enable_downgrade(low).await, "invalid downgrade target version");

        let (leader, _) = cluster.leader(SIZE).await;
        let followers = (0..SIZE).filter(|&ordinal| ordinal != leader);
        for ordinal in followers.chain([leader]) {
            let before = answers(&cluster).await;
            assert_eq!((judged(&before, low), next(&before, low)), (Verdict::Downgrade, Next::Restart));
            restart_with(&mut cluster, ordinal, to).await;
        }
        let after = answers(&cluster).await;
        assert_eq!((judged(&after, low), next(&after, low)), (Verdict::Nothing, Next::Restart));
        // 3.5 does not report it, but no other one would be valid meanwhile.
        let below = Version::new(3, low.minor - 1, 0);
        until("etcd to end the downgrade", async || accepts(&cluster, below).await.ok()).await;
        for answer in answers(&cluster).await {
            let reported = match low.minor {
                5 => (None, Downgrade::Unreported),
                _ => (Some(low.minor()), Downgrade::Disabled),
            };
            assert_eq!((answer.storage_version, answer.downgrade), reported);
        }
    }
}

#[tokio::test]
async fn a_downgrade_is_cancelled_before_and_after_a_member_went_back() {
    let (from, to) = PAIRS[0];
    let (high, low) = (version(from), version(to));
    let mut cluster = Processes::formed(from, SIZE).await;
    let member = cluster.member(0).await;
    for other in [Version::new(3, low.minor - 1, 0), high, Version::new(3, high.minor + 1, 0)] {
        refused(member.enable_downgrade(other).await, "invalid downgrade target version");
    }
    member.cancel_downgrade().await.expect("etcd reports success although there is none");

    member.enable_downgrade(low).await.expect("it is one below");
    until_next(&cluster, low, Next::Restart).await;
    assert_eq!(next(&answers(&cluster).await, high), Next::Cancel);
    member.cancel_downgrade().await.expect("there is one");
    // The data gets its format back first.
    until_next(&cluster, low, Next::Enable(low.minor())).await;

    member.enable_downgrade(low).await.expect("it is one below");
    until_next(&cluster, low, Next::Restart).await;
    restart_with(&mut cluster, 1, to).await;
    let mixed = answers(&cluster).await;
    assert_eq!((judged(&mixed, high), next(&mixed, high)), (Verdict::Upgrade, Next::Cancel));
    let member = cluster.member(0).await;
    member.cancel_downgrade().await.expect("there is one");
    until_next(&cluster, high, Next::Restart).await;
    restart_with(&mut cluster, 1, from).await;
    assert_eq!(judged(&answers(&cluster).await, high), Verdict::Nothing);
    until_next(&cluster, low, Next::Enable(low.minor())).await;
}

#[tokio::test]
async fn an_upgrade_is_taken_back_without_a_call_while_an_old_member_is_left() {
    let (high, low) = PAIRS[0];
    let mut cluster = Processes::formed(low, SIZE).await;
    for ordinal in [0, 1] {
        restart_with(&mut cluster, ordinal, high).await;
    }
    // Longer than etcd takes to notice the versions of its members.
    tokio::time::sleep(Duration::from_secs(6)).await;
    for ordinal in [0, 1] {
        let before = answers(&cluster).await;
        assert_eq!(judged(&before, version(low)), Verdict::Downgrade);
        assert_eq!(next(&before, version(low)), Next::Restart, "{before:?}");
        restart_with(&mut cluster, ordinal, low).await;
    }
    assert_eq!(judged(&answers(&cluster).await, version(low)), Verdict::Nothing);
}

#[tokio::test]
async fn a_member_that_went_back_too_early_ends_and_starts_again_with_its_own_version() {
    for (from, to) in PAIRS {
        let mut cluster = Processes::formed(from, SIZE).await;
        until_next(&cluster, version(to), Next::Enable(version(to).minor())).await;
        cluster.switch_to(to).await;
        cluster.kill(2);
        cluster.restart(2);
        until("the old version to end", async || cluster.ended(2).then_some(())).await;
        cluster.switch_to(from).await;
        cluster.restart(2);
        cluster.serves(2).await;
        assert_eq!(judged(&answers(&cluster).await, version(from)), Verdict::Nothing);
    }
}
