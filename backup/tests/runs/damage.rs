//! Copies that are not what their manifest says, and copies that cannot be used like this: each is refused with the reason, and
//! no file is left.

use std::path::{Path, PathBuf};

use etcd_operator_core::backup::report::{Done, Reason};
use serde_json::{Value, json};
use testbed::store::{Options, S3};

use crate::cluster::{Cluster, VERSION};
use crate::program::{Place, identity, text};

struct Copy {
    place: Place,
    name: String,
    /// Where data and manifest are, as files.
    objects: PathBuf,
    suffix: &'static str,
}

impl Copy {
    /// Takes one with these inputs.
    async fn of(
        cluster: &Cluster,
        mut place: Place,
        objects: PathBuf,
        suffix: &'static str,
        inputs: Value,
    ) -> Self {
        for (field, value) in inputs.as_object().expect("an object") {
            place.set(field, value.clone());
        }
        let id = cluster.ids().await.0;
        place.set("etcd", cluster.inputs([0]));
        place.set("clusterId", id.as_str());
        let name = place.take().await.name.to_string();
        Self { place, name, objects: objects.join("prod").join(id), suffix }
    }

    async fn local(cluster: &Cluster) -> Self {
        let place = Place::local();
        let objects = place.directory.join("store");
        Self::of(cluster, place, objects, "", json!({})).await
    }

    fn data(&self) -> PathBuf {
        self.objects.join(format!("data/{}.db{}", self.name, self.suffix))
    }

    fn manifest(&self) -> PathBuf {
        self.objects.join(format!("copies/{}.json", self.name))
    }

    fn edit_manifest(&self, change: impl FnOnce(&mut Value)) {
        let text = std::fs::read_to_string(self.manifest()).expect("a manifest");
        let mut value = serde_json::from_str(&text).expect("JSON");
        change(&mut value);
        std::fs::write(self.manifest(), value.to_string()).expect("written");
    }

    /// Neither verified nor fetched, for the same reason; its message.
    async fn refused(&self, reason: Reason, more: &[&str]) -> String {
        let output = self.place.directory.join("snapshot.db");
        let verify: Vec<_> = ["verify", &self.name].into_iter().chain(more.iter().copied()).collect();
        let fetch: Vec<_> = ["fetch", &self.name, "--output", text(&output)]
            .into_iter()
            .chain(more.iter().copied())
            .collect();
        let message = self.place.refused(&fetch, reason).await;
        assert_eq!(self.place.refused(&verify, reason).await, message);
        assert!(!output.exists() && !output.with_extension("db.partial").exists(), "a file is left");
        message
    }
}

fn flip(file: &Path) {
    let mut data = std::fs::read(file).expect("data");
    let middle = data.len() / 2;
    data[middle] ^= 1;
    std::fs::write(file, data).expect("written");
}

fn truncate(file: &Path) {
    let length = std::fs::metadata(file).expect("data").len();
    std::fs::File::options().write(true).open(file).and_then(|it| it.set_len(length - 1)).expect("truncated");
}

#[tokio::test]
async fn damaged_data_is_found_in_every_form() {
    let cluster = Cluster::start(VERSION, 1).await;
    cluster.fill(1).await;
    let store = S3::start(Options::default()).await.expect("a store");
    let place = || Place::s3(&store.endpoint());
    let keys = place();
    let (private, public) = identity(&keys, "identity");
    let with_identity = ["--identity", text(&private)];
    for (inputs, suffix, more) in [
        (json!({}), "", &[][..]),
        (json!({"compression": "Zstd"}), ".zst", &[]),
        (json!({"recipients": [public]}), ".age", &with_identity),
        (json!({"recipients": [public], "compression": "Zstd"}), ".zst.age", &with_identity),
    ] {
        for (damage, words) in
            [(flip as fn(&Path), "the SHA-256 of what the store has is "), (truncate, "the store has ")]
        {
            let copy = Copy::of(&cluster, place(), store.bucket(), suffix, inputs.clone()).await;
            damage(&copy.data());
            let message = copy.refused(Reason::CopyDamaged, more).await;
            let expected = format!("copy {} is damaged: {words}", copy.name);
            assert!(message.starts_with(&expected) && message.ends_with(": use another copy"), "{message}");
        }
    }
}

#[tokio::test]
async fn missing_and_exchanged_data_is_found() {
    let cluster = Cluster::start(VERSION, 1).await;
    cluster.fill(1).await;
    let copy = Copy::local(&cluster).await;
    std::fs::remove_file(copy.data()).expect("removed");
    let message = copy.refused(Reason::CopyDamaged, &[]).await;
    assert!(message.contains("the store does not have its data"), "{message}");

    // If data and manifest are exchanged together, the hash of etcd is left.
    let copy = Copy::local(&cluster).await;
    std::fs::write(copy.data(), "not a snapshot").expect("written");
    copy.edit_manifest(|it| {
        it["data"]["bytes"] = 14.into();
        it["data"]["sha256"] = "8c1ac5c25da73d7f222758a5d17c6004bc0a34d3a572f6501580e25d4c0fec6e".into();
    });
    let message = copy.refused(Reason::CopyDamaged, &[]).await;
    assert!(message.contains("it does not end with the hash that etcd sends"), "{message}");
}

#[tokio::test]
async fn a_manifest_that_is_not_ours_is_neither_used_nor_deleted() {
    let cluster = Cluster::start(VERSION, 1).await;
    let copy = Copy::local(&cluster).await;
    let other = Copy::local(&cluster).await;
    for (field, value, words) in [
        ("format", json!("another"), "it is not a manifest of this program"),
        ("clusterId", json!("1"), "it names another cluster"),
        ("name", json!(other.name), "it names another copy"),
        ("readableFrom", json!(99), "in a format of version 99"),
        ("data", json!(1), "the manifest is damaged"),
    ] {
        let before = std::fs::read(copy.manifest()).expect("a manifest");
        copy.edit_manifest(|it| it[field] = value);
        let message = copy.refused(Reason::CopyUnusable, &[]).await;
        assert!(message.contains(words), "{message}");
        let message = copy.place.refused(&["delete", &copy.name], Reason::CopyUnusable).await;
        assert!(
            message.contains("is not deleted") && copy.data().exists() && copy.manifest().exists(),
            "{message}"
        );
        let Done::List { copies, unreadable, .. } = copy.place.done(&["list"]).await else {
            panic!("not a list");
        };
        assert!(copies.is_empty() && unreadable[0].message.contains(words));
        std::fs::write(copy.manifest(), before).expect("written");
    }
    let absent = "20200101T000000Z-0123456789abcdef";
    let message = copy.place.refused(&["verify", absent], Reason::CopyNotFound).await;
    assert!(message.contains(&format!("has no copy {absent} of cluster")), "{message}");
}

#[tokio::test]
async fn an_encrypted_copy_needs_its_identity_and_an_expected_encryption_is_insisted_on() {
    let cluster = Cluster::start(VERSION, 1).await;
    let place = Place::local();
    let ((_, public), (other, _)) = (identity(&place, "identity"), identity(&place, "other"));
    let objects = place.directory.join("store");
    let inputs = json!({"recipients": [public]});
    let copy = Copy::of(&cluster, place, objects, ".age", inputs).await;
    let output = copy.place.directory.join("snapshot.db");
    let message = copy.place.refused(&["fetch", "--output", text(&output)], Reason::CopyUnusable).await;
    assert!(
        message.contains(&format!("is encrypted: give the file with the identity of one of {public}")),
        "{message}"
    );
    let message = copy.refused(Reason::CopyUnusable, &["--identity", text(&other)]).await;
    assert!(message.contains("is encrypted for other keys than that of the identity"), "{message}");
    let wrong = copy.place.file("wrong", "no identity");
    let message = copy.refused(Reason::InvalidConfiguration, &["--identity", text(&wrong)]).await;
    assert!(message.contains("give a file as `age-keygen` writes it"), "{message}");

    let plain = Copy::local(&cluster).await;
    let message = plain.refused(Reason::CopyUnusable, &["--identity", text(&other)]).await;
    assert!(message.contains("is not encrypted, but an identity was given"), "{message}");
    copy.edit_manifest(|it| it["data"]["encryption"] = "Later".into());
    let message = copy.refused(Reason::CopyUnusable, &[]).await;
    assert!(message.contains("has the encryption Later, which this version cannot read"), "{message}");
}
