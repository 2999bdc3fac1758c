//! Listings in pages, deletion by name and by retention.

use std::collections::BTreeSet;

use etcd_operator_core::backup::layout::CopyName;
use etcd_operator_core::backup::report::Done;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::{Cluster, VERSION};
use crate::program::Place;

/// A store with copies of different ages, all with the data of one that was taken.
async fn aged(ages_in_hours: impl IntoIterator<Item = i64>) -> (Place, std::path::PathBuf, Vec<CopyName>) {
    let cluster = Cluster::start(VERSION, 1).await;
    let id = cluster.ids().await.0;
    let mut place = Place::local();
    place.set("etcd", cluster.inputs([0]));
    place.set("clusterId", id.as_str());
    let taken = place.take().await.name;
    let objects = place.objects(&id);
    let (data, manifest) = (objects.join("data"), objects.join("copies"));
    let text = std::fs::read_to_string(manifest.join(format!("{taken}.json"))).expect("a manifest");
    let names = ages_in_hours.into_iter().map(|hours| {
        let completed = Timestamp::now() - SignedDuration::from_hours(hours);
        let name = CopyName::new(completed, hours.unsigned_abs());
        let mut value: Value = serde_json::from_str(&text).expect("JSON");
        value["name"] = json!(name);
        value["completedAt"] = json!(completed);
        value["data"]["file"] = json!(format!("{name}.db"));
        std::fs::write(manifest.join(format!("{name}.json")), value.to_string()).expect("written");
        std::fs::copy(data.join(format!("{taken}.db")), data.join(format!("{name}.db"))).expect("copied");
        name
    });
    let names = names.collect();
    assert!(matches!(place.done(&["delete", taken.as_str()]).await, Done::Delete { deleted_count: 1, .. }));
    (place, objects, names)
}

#[tokio::test]
async fn a_long_list_comes_in_pages_newest_first() {
    let (place, _, names) = aged(1..=50).await;
    let (mut found, mut before, mut pages) = (Vec::new(), None::<CopyName>, 0);
    loop {
        let arguments = before.as_ref().map_or(vec!["list"], |name| vec!["list", "--before", name.as_str()]);
        let Done::List { copies, next, .. } = place.done(&arguments).await else { panic!("no list") };
        found.extend(copies.into_iter().map(|it| it.name));
        pages += 1;
        before = next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(found, names);
    assert!((2..10).contains(&pages), "{pages} pages");
}

#[tokio::test]
async fn retention_deletes_the_oldest_and_nothing_that_is_not_a_copy() {
    let (mut place, objects, names) = aged([1, 2, 3, 4, 5, 6]).await;
    // None of these is a copy of ours.
    let data = objects.join("data");
    let foreign = [
        data.join("photo.jpg"),
        objects.join("copies/index.json"),
        data.join("20200101T000000Z-0123456789abcdef.db"),
        objects.join("copies/20200101T000000Z-00000000000000ff.json"),
        objects.join("notes.txt"),
    ];
    for file in &foreign {
        std::fs::write(file, "{}").expect("a file");
    }
    let needed = &names[5];
    place.set("retention", json!({"maxCopies": 2, "needed": [needed]}));
    let done = place.done(&["prune"]).await;
    let expected = Done::Prune {
        deleted: vec![names[4].clone(), names[3].clone(), names[2].clone()],
        deleted_count: 3,
        kept: 3,
        unreadable: 1,
        without_manifest: 1,
        segments_deleted: 0,
    };
    assert_eq!(done, expected);
    assert!(foreign.iter().all(|file| file.exists()));
    let files: BTreeSet<_> = std::fs::read_dir(&data)
        .expect("a directory")
        .flatten()
        .map(|it| it.file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(files.len(), 5, "{files:?}");

    // The data of the newest one is gone, so it is not the last good copy.
    std::fs::remove_file(data.join(format!("{}.db", names[0]))).expect("removed");
    place.set("retention", json!({"maxCopies": 0, "maxAgeSeconds": 0}));
    let Done::Prune { deleted, kept, .. } = place.done(&["prune"]).await else { panic!("not pruned") };
    assert_eq!((deleted, kept), (vec![names[5].clone(), names[0].clone()], 1));
}

#[tokio::test]
async fn a_copy_can_be_deleted_twice() {
    let (place, objects, names) = aged([1, 2]).await;
    let both = [names[0].as_str(), names[1].as_str()];
    for _ in 0..2 {
        let done = place.done(&["delete", both[0], both[1]]).await;
        assert_eq!(done, Done::Delete { deleted: names.clone(), deleted_count: 2 });
    }
    assert_eq!(std::fs::read_dir(objects.join("data")).expect("a directory").count(), 0);
}
