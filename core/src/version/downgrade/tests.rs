use super::*;
use crate::observed::{ClusterId, MemberId};

/// `VERSION`, `VERSION/STORAGE` or `VERSION/STORAGE/TARGET` with the target of an enabled downgrade. `?` is a version
/// that cannot be read.
fn answer(text: &str) -> Answer {
    let mut words = text.split('/');
    let version = words.next().and_then(Version::parse);
    let storage_version = words.next().and_then(Version::parse);
    let downgrade = match (words.next().and_then(Version::parse), storage_version) {
        (Some(target), _) => Downgrade::Enabled(target),
        (None, Some(_)) => Downgrade::Disabled,
        (None, None) => Downgrade::Unreported,
    };
    Answer {
        cluster: ClusterId(1),
        member: MemberId(1),
        leader: None,
        linearizable: true,
        denied: false,
        applied_index: 1,
        commit_index: 0,
        term: 0,
        version,
        storage_version,
        downgrade,
        listed: None,
        hash: None,
        alarms: Default::default(),
        space: None,
        file: None,
        reaches: None,
    }
}

#[test]
fn a_member_goes_back_only_with_data_that_the_older_version_reads() {
    let (to_3_5, to_3_6) = (Version::new(3, 5, 0), Version::new(3, 6, 0));
    for (members, wanted, expected) in [
        // Patch versions and upgrades need nothing.
        ("3.5.21 3.5.21", "3.5.35", Next::Restart),
        ("3.5.35 3.5.35", "3.6.16", Next::Restart),
        ("3.5.35 3.6.16/3.5.0", "3.6.16", Next::Restart),
        ("3.6.16/3.6.0 3.6.16/3.6.0", "3.6.11", Next::Restart),
        // A downgrade from its beginning to its end.
        ("3.6.16/3.6.0 3.6.16/3.6.0", "3.5.35", Next::Enable(to_3_5)),
        ("3.6.16/3.6.0/3.5.0 3.6.16/3.6.0/3.5.0", "3.5.35", Next::Migrate(to_3_5)),
        ("3.6.16/3.5.0/3.5.0 3.6.16/3.6.0/3.5.0", "3.5.35", Next::Migrate(to_3_5)),
        ("3.6.16/3.5.0/3.5.0 3.6.16/3.5.0/3.5.0", "3.5.35", Next::Restart),
        ("3.5.35 3.6.16/3.5.0/3.5.0", "3.5.35", Next::Restart),
        ("3.5.35 3.5.35", "3.5.35", Next::Restart),
        ("3.7.3/3.7.0 3.7.3/3.7.0", "3.6.16", Next::Enable(to_3_6)),
        ("3.6.16/3.6.0/3.6.0 3.7.3/3.6.0/3.6.0", "3.6.16", Next::Restart),
        // One member has not applied it yet.
        ("3.6.16/3.6.0 3.6.16/3.6.0/3.5.0", "3.5.35", Next::Migrate(to_3_5)),
        // Taken back, or another one is wanted.
        ("3.6.16/3.5.0/3.5.0 3.6.16/3.5.0/3.5.0", "3.6.16", Next::Cancel),
        ("3.5.35 3.6.16/3.5.0/3.5.0", "3.6.16", Next::Cancel),
        ("3.7.3/3.6.0/3.6.0 3.7.3/3.6.0/3.6.0", "3.7.3", Next::Cancel),
        ("3.6.16/3.6.0/3.6.0", "3.5.35", Next::Cancel),
        // Finished, and etcd has not ended it yet.
        ("3.6.16/3.6.0/3.6.0", "3.6.16", Next::Restart),
        // An upgrade that is reverted.
        ("3.5.35 3.6.16/3.5.0", "3.5.35", Next::Restart),
        ("3.5.35 3.6.16/3.6.0", "3.5.35", Next::Migrate(to_3_5)),
        ("3.5.35 3.6.16/?", "3.5.35", Next::Migrate(to_3_5)),
        // The last member was just upgraded, and the cluster does not have its version yet.
        ("3.6.16/3.5.0 3.6.16/3.5.0", "3.5.35", Next::Migrate(to_3_6)),
        ("3.6.16/3.6.0 3.6.16/?", "3.5.35", Next::Migrate(to_3_6)),
        ("? 3.6.16/3.6.0", "3.5.35", Next::Unknown),
        ("?", "3.6.16", Next::Unknown),
        ("", "3.6.16", Next::Unknown),
    ] {
        let answers: Vec<_> = members.split_whitespace().map(answer).collect();
        let wanted = Version::parse(wanted).expect("a version");
        assert_eq!(next(&answers, wanted), expected, "{members} -> {wanted}");
    }
}
