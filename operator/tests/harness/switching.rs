//! Another transport while members run, with real etcd: from plain text to TLS and back.

use std::time::{Duration, Instant};

use etcd_operator_core::etcd_config::{CLIENT_PORT, PEER_PORT};
use etcd_operator_core::tls::{ClientPort, PeerPort, Purpose, Transport};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::access::{Identity, Member};
use crate::inside;
use crate::recorder::Recorder;
use crate::stage::Stage;
use crate::steps::Until;
use crate::world::{CLUSTER, world};

const SIZE: u8 = 3;
/// Two rollouts, with a fault in them.
pub const LIMIT: Duration = Duration::from_secs(240);

const PLAIN: Transport = Transport { clients: ClientPort::Http, peers: PeerPort::Http };
const BOTH: Transport = Transport { clients: ClientPort::Both, peers: PeerPort::Https };

async fn in_plain_text(version: &str) -> Stage {
    let stage = Stage::start(world()).await;
    stage.create(json!({"size": SIZE, "version": version, "security": {"tls": {"enabled": false}}})).await;
    stage
}

fn members(namespace: &str) -> impl Iterator<Item = Member> {
    (0..SIZE).map(|ordinal| Member::new(namespace, ordinal))
}

/// The cluster is ready, and all pods are made with this.
pub fn is_done(recorder: &Recorder, namespace: &str, target: Transport) -> bool {
    Until::Ready(SIZE).holds(recorder)
        && members(namespace).all(|member| member.transport(recorder) == Some(target))
}

/// Edits `spec.security.tls`, and waits for the end of it.
async fn switch(stage: &Stage, tls: Value, target: Transport) {
    let begun = Instant::now();
    stage.edit(&json!({"security": {"tls": tls}})).await.expect("it is accepted");
    let what = format!("switched to: {target}");
    stage.until_within(LIMIT, &what, |it| is_done(it, &stage.namespace, target)).await;
    println!("{what}, after {:.1} s", begun.elapsed().as_secs_f64());
    ports_serve(stage, target).await;
}

/// Each port of each member serves exactly what it should, and etcd lists the URLs that go with it.
async fn ports_serve(stage: &Stage, target: Transport) {
    let (client, peer) =
        (Identity::of(&stage.recorder, Purpose::Client), Identity::of(&stage.recorder, Purpose::Peer));
    let tls = target.clients.is_tls();
    for member in members(&stage.namespace) {
        let plain = member.get(CLIENT_PORT, &Identity::PLAIN_TEXT, "/version").await;
        assert_eq!(matches!(plain, Ok((200, _))), target.clients != ClientPort::Https, "{plain:?}");
        if tls {
            let secured = member.get(CLIENT_PORT, &client, "/version").await;
            assert!(matches!(secured, Ok((200, _))), "{secured:?}");
            let stranger = member.get(CLIENT_PORT, &client.without_certificate(), "/version").await;
            assert!(stranger.is_err(), "{stranger:?}");
        }
        let scheme = target.peers.scheme();
        let identity = if scheme.is_tls() { &peer } else { &Identity::PLAIN_TEXT };
        let (status, list) = member.get(PEER_PORT, identity, "/members").await.expect("it responds");
        assert_eq!(status, 200, "{list}");
        let list: Vec<Value> = serde_json::from_str(&list).expect("a list");
        for listed in list {
            let urls = listed["peerURLs"].as_array().cloned().unwrap_or_default();
            let fits = |url: &Value| url.as_str().is_some_and(|it| it.starts_with(&format!("{scheme}://")));
            assert!(urls.len() == 1 && urls.iter().all(fits), "{urls:?}");
        }
    }
}

/// Clients that connect all the time write all the time.
pub fn there_and_back(version: &'static str) {
    world().runtime.block_on(async {
        let mut stage = in_plain_text(version).await;
        stage.write();
        switch(&stage, json!({"enabled": true}), BOTH).await;
        switch(&stage, json!({"plainClients": "Refuse"}), Transport::TLS).await;
        switch(&stage, json!({"plainClients": "Allow"}), BOTH).await;
        switch(&stage, json!({"enabled": false}), PLAIN).await;
        stage.end().await;
    });
}

/// Pods whose peer port serves TLS.
fn secured(stage: &Stage) -> usize {
    let is_secured =
        |member: &Member| member.transport(&stage.recorder).is_some_and(|it| it.peers == PeerPort::Https);
    members(&stage.namespace).filter(is_secured).count()
}

async fn until_some_are(stage: &Stage, is_meant: impl Fn(PeerPort) -> bool) {
    let begun = Instant::now();
    let is = |member: &Member| member.transport(&stage.recorder).is_some_and(|it| is_meant(it.peers));
    while !(1..usize::from(SIZE)).contains(&members(&stage.namespace).filter(is).count()) {
        assert!(begun.elapsed() < LIMIT, "no pod changes");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A user reverts the edit when some members, and not all, have reached a stage.
pub fn reverted(version: &'static str) {
    world().runtime.block_on(async {
        let mut stage = in_plain_text(version).await;
        stage.write();
        let edit = async |enabled: bool| {
            stage.edit(&json!({"security": {"tls": {"enabled": enabled}}})).await.expect("it is accepted");
        };
        edit(true).await;
        until_some_are(&stage, PeerPort::has_certificates).await;
        switch(&stage, json!({"enabled": false}), PLAIN).await;
        edit(true).await;
        until_some_are(&stage, |it| it == PeerPort::Https).await;
        switch(&stage, json!({"enabled": false}), PLAIN).await;
        switch(&stage, json!({"enabled": true}), BOTH).await;
        edit(false).await;
        until_some_are(&stage, |it| it == PeerPort::Https).await;
        switch(&stage, json!({"enabled": true}), BOTH).await;
        edit(false).await;
        until_some_are(&stage, |it| it == PeerPort::Http).await;
        switch(&stage, json!({"enabled": true}), BOTH).await;
        stage.end().await;
    });
}

/// All members end while some serve peers with TLS and others do not, in both directions.
pub fn outage(version: &'static str) {
    world().runtime.block_on(async {
        let stage = in_plain_text(version).await;
        for (enabled, target) in [(true, BOTH), (false, PLAIN)] {
            stage.edit(&json!({"security": {"tls": {"enabled": enabled}}})).await.expect("it is accepted");
            until_some_are(&stage, |it| it == PeerPort::Https).await;
            let pods: Api<Pod> = stage.world.all(&stage.namespace);
            let mut failed = Vec::new();
            for ordinal in 0..SIZE {
                let pod = pods.get_opt(&format!("{CLUSTER}-{ordinal}")).await.expect("it is asked");
                failed.extend(pod.and_then(|pod| pod.uid()));
            }
            failed.iter().for_each(|uid| stage.world.stand_in.set_node_failed(uid, true));
            tokio::time::sleep(Duration::from_secs(2)).await;
            println!("an outage, with {} of {SIZE} pods with TLS for peers", secured(&stage));
            failed.iter().for_each(|uid| stage.world.stand_in.set_node_failed(uid, false));
            let what = format!("switched to: {target}");
            stage.until_within(LIMIT, &what, |it| is_done(it, &stage.namespace, target)).await;
            ports_serve(&stage, target).await;
        }
        stage.end().await;
    });
}

/// A member loses its data in the middle, so a learner joins while URLs and ports differ.
pub fn replaced() {
    world().runtime.block_on(async {
        let mut stage = in_plain_text(inside::TWO_LEARNERS).await;
        stage.write();
        for (enabled, target) in [(true, BOTH), (false, PLAIN)] {
            stage.edit(&json!({"security": {"tls": {"enabled": enabled}}})).await.expect("it is accepted");
            until_some_are(&stage, |it| it == PeerPort::Https).await;
            lose_volume(&stage, 0).await;
            let what = format!("switched to: {target}");
            stage.until_within(LIMIT, &what, |it| is_done(it, &stage.namespace, target)).await;
            ports_serve(&stage, target).await;
        }
        stage.end().await;
    });
}

async fn lose_volume(stage: &Stage, ordinal: u8) {
    let pods: Api<Pod> = stage.world.all(&stage.namespace);
    let claims: Api<PersistentVolumeClaim> = stage.world.all(&stage.namespace);
    let uid = pods.get(&format!("{CLUSTER}-{ordinal}")).await.expect("it is there").uid().unwrap_or_default();
    let claim = claims.get(&format!("data-{CLUSTER}-{ordinal}")).await.expect("it is there");
    stage.world.stand_in.set_node_failed(&uid, true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.world.stand_in.empty_volume(&claim).expect("it was there");
    stage.world.stand_in.set_node_failed(&uid, false);
}
