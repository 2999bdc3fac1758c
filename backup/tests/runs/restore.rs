//! What a restore asks of a copy.

use std::time::Duration;

use etcd_operator_core::backup::report::{Done, Reason};

use crate::cluster::{Cluster, VERSION};
use crate::program::{Place, text};

#[tokio::test]
async fn a_restore_gets_only_what_its_etcd_can_use_and_finds_a_revision() {
    let cluster = Cluster::start(VERSION, 1).await;
    let mut place = Place::local();
    place.set("etcd", cluster.inputs([0]));
    cluster.fill(2).await;
    let first = place.take().await;
    // Names have whole seconds, and the newest copy is the last one by name.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    cluster.fill(2).await;
    let second = place.take().await;
    let output = place.directory.join("restore").join("snapshot.db");
    let beginning = ["fetch", "--output", text(&output), "--for-etcd"];
    let fetch = |more: &[&'static str]| [&beginning[..], more].concat();

    // Without an ID it is the only cluster in the store, and an earlier attempt is replaced.
    for _ in 0..2 {
        assert_eq!(place.done(&fetch(&[VERSION])).await, Done::Fetch { copy: second.clone() });
        assert_eq!(cluster.etcdutl_status(&output)["revision"], second.revision.lowest);
    }
    for (more, reason, part) in [
        (
            vec!["3.5.35"],
            Reason::CopyUnusable,
            "which etcd 3.5.35 cannot read: set the version of the new cluster",
        ),
        (vec!["3.6"], Reason::InvalidConfiguration, "is not a version"),
    ] {
        let message = place.refused(&fetch(&more), reason).await;
        assert!(message.contains(part), "{message}");
    }
    // The revision of a copy needs no replay, and so no etcd.
    let (revision, highest) = (first.revision.lowest.to_string(), place.directory.join("highest"));
    let replay = ["replay", "--to-revision", &revision, "--output", text(&output), "--for-etcd", "3.7.0"];
    let without = ["--etcd", "none", "--etcdutl", "none", "--scratch", "none", "--highest", text(&highest)];
    let done = place.done(&[&replay[..], &without].concat()).await;
    assert_eq!(done, Done::Replay { copy: first.clone(), revision: first.revision.lowest, replayed: 0 });
    assert_eq!(cluster.etcdutl_status(&output)["revision"], first.revision.lowest);
    let found = std::fs::read_to_string(&highest).expect("it is there");
    assert_eq!(found, second.revision.highest.to_string());

    // A volume that is complete is left alone.
    std::fs::remove_file(&output).expect("it is there");
    let complete = place.file("complete", "");
    let all = [&fetch(&[VERSION, "--unless-exists"])[..], &[text(&complete)]].concat();
    assert_eq!(place.done(&all).await, Done::Fetch { copy: second });
    assert!(!output.exists());

    // Several clusters: one has to be named.
    let other = place.directory.join("store/prod/abc/copies");
    std::fs::create_dir_all(&other).expect("a directory");
    std::fs::write(other.join("x.json"), "{}").expect("a file");
    let message = place.refused(&fetch(&[VERSION]), Reason::InvalidConfiguration).await;
    assert!(message.contains("copies of several clusters") && message.contains("abc"), "{message}");
}
