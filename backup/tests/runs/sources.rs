//! Which member a snapshot comes from.

use etcd_operator_core::backup::report::Reason;
use serde_json::Value;

use crate::cluster::{Cluster, VERSION};
use crate::program::Place;

async fn member(place: &Place, cluster: &str) -> Value {
    let copy = place.take().await;
    let manifest = std::fs::read_to_string(place.objects(cluster).join(format!("copies/{}.json", copy.name)));
    let manifest: Value = serde_json::from_str(&manifest.expect("a manifest")).expect("JSON");
    manifest["memberId"].clone()
}

#[tokio::test]
async fn a_follower_is_asked_rather_than_the_leader_and_a_learner_never() {
    let mut cluster = Cluster::start(VERSION, 3).await;
    let leader = cluster.leader().await;
    let learner = cluster.add_learner().await;
    let (id, leader_id) = cluster.ids().await;
    let mut place = Place::local();
    place.set("etcd", cluster.inputs(0..4));
    assert_ne!(member(&place, &id).await, leader_id.as_str());
    place.set("etcd", cluster.inputs([learner, leader]));
    assert_eq!(member(&place, &id).await, leader_id.as_str());

    place.set("etcd", cluster.inputs([learner]));
    let message = place.refused(&["take"], Reason::EtcdUnavailable).await;
    assert!(message.contains(&format!("{}: it is a learner", cluster.endpoint(learner))), "{message}");

    // Without a quorum, what a member has might never have been acknowledged.
    let followers: Vec<u8> = (0..3).filter(|it| *it != leader).collect();
    cluster.kill(leader);
    cluster.kill(followers[0]);
    place.set("etcd", cluster.inputs(0..3));
    let message = place.refused(&["take"], Reason::EtcdUnavailable).await;
    assert!(message.contains("it serves no linearizable read"), "{message}");
}

#[tokio::test]
async fn a_snapshot_of_another_cluster_is_refused() {
    let cluster = Cluster::start(VERSION, 1).await;
    let mut place = Place::local();
    place.set("etcd", cluster.inputs([0]));
    place.set("clusterId", "1");
    let message = place.refused(&["take"], Reason::EtcdUnavailable).await;
    assert!(message.contains("not of cluster 1: check the endpoints and the cluster ID"), "{message}");
}
