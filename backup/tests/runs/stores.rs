//! Copies go into each kind of store, and come back as they were.

use etcd_operator_core::backup::report::{Done, Reason, Summary};
use serde_json::json;
use testbed::build::STANDARD_ETCD;
use testbed::store::{Options, S3};

use crate::cluster::{Cluster, VERSION};
use crate::program::{Place, identity, text};

/// Takes a copy of three values, compressed and encrypted, and gets it back.
pub async fn comes_back(place: &mut Place, cluster: &Cluster) -> Summary {
    cluster.fill(3).await;
    let (private, public) = identity(place, "identity");
    place.set("etcd", cluster.inputs([0]));
    place.set("clusterId", cluster.ids().await.0);
    place.set("compression", "Zstd");
    place.set("recipients", json!([public]));
    let copy = place.take().await;
    assert_eq!(place.list().await, std::slice::from_ref(&copy));
    assert_eq!((copy.revision.lowest, copy.revision.highest), (4, 4));

    let (name, output) = (copy.name.as_str(), place.directory.join("snapshot.db"));
    let sealed = place.done(&["verify", name]).await;
    assert_eq!(sealed, Done::Verify { name: copy.name.clone(), content: false });
    let opened = place.done(&["verify", name, "--identity", text(&private)]).await;
    assert_eq!(opened, Done::Verify { name: copy.name.clone(), content: true });
    let fetch = ["fetch", "--output", text(&output), "--identity", text(&private)];
    assert_eq!(place.done(&fetch).await, Done::Fetch { copy: copy.clone() });
    assert_eq!(cluster.etcdutl_status(&output)["revision"], 4);
    let message = place.refused(&fetch, Reason::OutputFailed).await;
    assert!(message.ends_with("it exists: remove it, or choose another name"), "{message}");
    copy
}

#[tokio::test]
async fn a_copy_of_every_version_is_taken_compressed_and_encrypted_and_comes_back() {
    let store = S3::start(Options::default()).await.expect("a store");
    for version in STANDARD_ETCD {
        let cluster = Cluster::start(version, 1).await;
        let mut place = Place::s3(&store.endpoint());
        let copy = comes_back(&mut place, &cluster).await;
        assert_eq!(copy.etcd_version, version.trim_start_matches('v'));
        // The suffixes of the file say how to read it without this program.
        let data = format!("prod/{}/data/{}.db.zst.age", cluster.ids().await.0, copy.name);
        assert_eq!(std::fs::metadata(store.bucket().join(data)).expect("it is there").len(), copy.bytes);
        assert_eq!(place.done(&["clusters"]).await, clusters(&store));
    }
}

/// As the store's directory has them.
fn clusters(store: &S3) -> Done {
    let entries = std::fs::read_dir(store.bucket().join("prod")).expect("a directory").flatten();
    let mut cluster_ids: Vec<_> = entries.map(|it| it.file_name().to_string_lossy().into_owned()).collect();
    cluster_ids.sort();
    Done::Clusters { count: cluster_ids.len(), cluster_ids }
}

#[tokio::test]
async fn a_mounted_volume_is_a_store_too() {
    let cluster = Cluster::start(VERSION, 1).await;
    cluster.fill(1).await;
    let (id, _) = cluster.ids().await;
    let mut place = Place::local();
    place.set("etcd", cluster.inputs([0]));
    assert_eq!(place.done(&["probe"]).await, Done::Probe { conditional_puts: true });
    let copy = place.take().await;
    let message = place.refused(&["list"], Reason::InvalidConfiguration).await;
    assert!(message.contains("clusterId is missing: give the cluster whose copies to use"), "{message}");
    place.set("clusterId", id.as_str());
    assert_eq!(place.list().await, std::slice::from_ref(&copy));
    let verified = place.done(&["verify", copy.name.as_str()]).await;
    assert_eq!(verified, Done::Verify { name: copy.name.clone(), content: true });
    // Neither compressed nor encrypted, it is what etcd sent.
    let data = place.objects(&id).join(format!("data/{}.db", copy.name));
    assert_eq!(cluster.etcdutl_status(&data)["totalKey"], 1);
    let names =
        |folder: &str| std::fs::read_dir(place.objects(&id).join(folder)).expect("a directory").count();
    assert_eq!((names("copies"), names("data")), (1, 1), "nothing else stays");

    let manifest = std::fs::read_to_string(place.objects(&id).join(format!("copies/{}.json", copy.name)));
    let manifest: serde_json::Value = serde_json::from_str(&manifest.expect("a manifest")).expect("JSON");
    assert_eq!((&manifest["auth"], &manifest["members"][0]["name"]), (&json!("Disabled"), &json!("m0")));
    let mut client = cluster.client(0).await;
    let hash = client.hash_kv(copy.revision.lowest).await.expect("a hash");
    assert_eq!(manifest["hashKv"]["hash"], hash.hash());
}

#[tokio::test]
async fn etcd_and_the_store_are_reached_by_tls_and_only_with_the_right_authority() {
    let cluster = Cluster::start_with(VERSION, 1, true).await;
    let store = S3::start(Options { tls: true, ..Options::default() }).await.expect("a store");
    let authority = store.authority();
    let mut place = Place::s3(&store.endpoint());
    place.set("etcd", cluster.inputs([0]));
    let message = place.refused(&["probe"], Reason::StoreUnreachable).await;
    assert!(message.contains("certificate") && message.contains("store.caFile"), "{message}");
    place.set_store("caFile", text(&authority));
    assert_eq!(place.done(&["probe"]).await, Done::Probe { conditional_puts: true });
    place.set("verification", "Checksum");
    place.take().await;

    let mut wrong = cluster.inputs([0]);
    wrong["tls"]["caFile"] = json!(authority);
    place.set("etcd", wrong);
    let message = place.refused(&["take"], Reason::EtcdUnavailable).await;
    assert!(message.contains("no healthy voter") && message.contains("certificate"), "{message}");
}

#[tokio::test]
async fn credentials_can_be_files_of_a_mounted_secret() {
    let store = S3::start(Options::default()).await.expect("a store");
    let mut place = Place::s3(&store.endpoint());
    place.set_environment("AWS_SECRET_ACCESS_KEY", "stale");
    let secret = place.directory.join("secret");
    std::fs::create_dir_all(secret.join("..data")).expect("as the kubelet has it");
    std::fs::write(secret.join("AWS_SECRET_ACCESS_KEY"), format!("{}\n", S3::SECRET_KEY)).expect("a file");
    place.refused(&["probe"], Reason::StoreDenied).await;
    place.set_store("credentialsDirectory", text(&secret));
    place.done(&["probe"]).await;
    std::fs::write(secret.join("password"), "x").expect("a file");
    let message = place.refused(&["probe"], Reason::InvalidConfiguration).await;
    assert!(message.contains("a file password, which is no credential"), "{message}");
}
