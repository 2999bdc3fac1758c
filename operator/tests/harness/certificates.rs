//! Certificates of clusters that run: what each port accepts, and that certificates change without a restart.

use std::time::{Duration, Instant};

use etcd_operator_core::etcd_config::{CLIENT_PORT, PEER_PORT};
use etcd_operator_core::names::{condition, reason};
use etcd_operator_core::tls::{self, CERTIFICATE_KEY, Certificate, Purpose};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use crate::access::{Identity, Member, certificates};
use crate::faults::EVICTION;
use crate::inside;
use crate::recorder::Recorder;
use crate::stage::Stage;
use crate::steps::{Until, is_rotated, part, rotate};
use crate::world::{CLUSTER, names, world};

const SIZE: u8 = 3;
const LEAFS: [Purpose; 4] = [Purpose::Peer, Purpose::Server, Purpose::Operator, Purpose::Client];
/// Of whatever the operator does by itself: it observes a settled cluster every half minute, or a little less often.
const NOTICED: Duration = Duration::from_secs(110);
/// The shortest life of a certificate. It is renewed when a third of it is left.
const SHORT: Duration = Duration::from_secs(60);
/// Six restarts, and the time that clients have to read their certificates.
const ROTATED: Duration = Duration::from_secs(150);
/// Of everything between the operator and the files of a pod.
const SOON: Duration = Duration::from_secs(5);

async fn three_members() -> Stage {
    let stage = Stage::start(world()).await;
    stage.create(json!({"size": SIZE, "version": inside::TWO_LEARNERS})).await;
    stage
}

/// Each port accepts its own authority alone, and nobody in plain text or without a certificate.
pub fn refusals() {
    world().runtime.block_on(async {
        let stage = three_members().await;
        let member = Member::new(&stage.namespace, 0);
        let [peer, server, operator, client] = LEAFS.map(|it| Identity::of(&stage.recorder, it));
        let ports: [(u16, &str, &[&Identity], &[&Identity]); 2] = [
            (PEER_PORT, "/members", &[&peer], &[&client, &operator, &server, &peer.without_certificate()]),
            (CLIENT_PORT, "/version", &[&client, &operator], &[&peer, &client.without_certificate()]),
        ];
        for (port, path, accepted, refused) in ports {
            for identity in accepted {
                let response = member.get(port, identity, path).await;
                assert!(matches!(response, Ok((200, _))), "{port}, {identity:?}: {response:?}");
            }
            for identity in refused {
                // Nothing but the certificate of the caller is wrong.
                let response = member.get(port, &identity.trusting_as(accepted[0]), path).await;
                assert!(response.is_err(), "{port}, {identity:?}: {response:?}");
            }
            let response = member.get(port, &Identity::PLAIN_TEXT, path).await;
            assert!(!matches!(response, Ok((200, _))), "{port}, plain text: {response:?}");
        }
        stage.end().await;
    });
}

/// With a life of a minute, each certificate is renewed after forty seconds. Clients that connect all the time notice nothing,
/// also when the certificate has expired that was there before.
pub fn renewal() {
    world().runtime.block_on(async {
        let mut stage = three_members().await;
        let pods = stage.recorder.members();
        stage.write();
        for edited in [true, false] {
            let (begun, before) = (Instant::now(), versions(&stage.recorder));
            if edited {
                let edit =
                    json!({"security": {"tls": {"certificates": {"validitySeconds": SHORT.as_secs()}}}});
                stage.edit(&edit).await.expect("it is accepted");
            }
            let renewed = |it: &Recorder| versions(it).iter().zip(&before).all(|(now, before)| now > before);
            stage.until_within(NOTICED, "renewed", renewed).await;
            println!("renewed after {:.1} s; edited: {edited}", begun.elapsed().as_secs_f64());
            members_show_what_their_secrets_hold(&stage).await;
            let expires = LEAFS.map(|purpose| certificate(&stage.recorder, purpose).not_after);
            let late = expires.iter().any(|it| it.as_second() - Timestamp::now().as_second() < 40);
            assert!(!late, "they expire at {expires:?}");
        }
        // What was there before the renewal has expired by then.
        tokio::time::sleep(SHORT / 3).await;
        assert_eq!(stage.recorder.members(), pods, "no member restarts");
        stage.end().await;
    });
}

/// Of peers and of clients at once: each member restarts twice. Certificates are valid for a minute and a half, so clients have half
/// a minute to read theirs.
pub fn rotation() {
    world().runtime.block_on(async {
        let mut stage = Stage::start(world()).await;
        let certificates = json!({"validitySeconds": 90});
        let security = json!({"tls": {"certificates": certificates}});
        stage.create(json!({"size": SIZE, "version": inside::TWO_LEARNERS, "security": security})).await;
        stage.write();
        let authorities = [Purpose::PeerAuthority, Purpose::ClientAuthority];
        let before = authorities.map(|it| part(&stage.recorder, it, CERTIFICATE_KEY));
        let (pods, previous) = (stage.recorder.members(), Identity::of(&stage.recorder, Purpose::Client));
        let begun = Instant::now();
        rotate(&stage.clusters, "first").await;
        let rotated = |it: &Recorder| {
            let all = authorities.iter().zip(&before);
            all.into_iter().all(|(purpose, before)| is_rotated(it, *purpose, before.as_ref()))
                && Until::Ready(SIZE).holds(it)
        };
        stage.until_within(ROTATED, "rotated", rotated).await;
        println!("rotated after {:.1} s", begun.elapsed().as_secs_f64());
        let now = stage.recorder.members();
        assert!(pods.iter().all(|(pod, before)| now.get(pod) != Some(before)), "every member restarts");
        // Another operator might have changed what they hold.
        let evictions = stage.faults.effects().into_iter().filter(|it| it.what.starts_with(EVICTION));
        let on_old_secrets: Vec<_> = evictions.filter(|it| !it.read_secrets).collect();
        assert!(on_old_secrets.is_empty(), "Secrets were not read again before these: {on_old_secrets:?}");
        members_show_what_their_secrets_hold(&stage).await;
        // Members do not accept what the previous authority signed.
        let current = Identity::of(&stage.recorder, Purpose::Client);
        for ordinal in 0..SIZE {
            let member = Member::new(&stage.namespace, ordinal);
            let response = member.get(CLIENT_PORT, &current, "/version").await;
            assert!(matches!(response, Ok((200, _))), "{response:?}");
            let response = member.get(CLIENT_PORT, &previous.trusting_as(&current), "/version").await;
            assert!(response.is_err(), "{response:?}");
        }
        // The same annotation again has no effect.
        let resource_versions = versions(&stage.recorder);
        rotate(&stage.clusters, "first").await;
        tokio::time::sleep(SOON).await;
        assert_eq!(versions(&stage.recorder), resource_versions);
        stage.end().await;
    });
}

/// It is issued again by the same authority. An operator that begins reads every Secret at once.
pub fn deleted_leaf() {
    world().runtime.block_on(async {
        let mut stage = three_members().await;
        stage.write();
        let (pods, before) = (stage.recorder.members(), LEAFS.map(|it| certificate(&stage.recorder, it)));
        stage.recorder.begin();
        stage.end_operator().await;
        for purpose in [Purpose::Peer, Purpose::Server] {
            delete(&stage, purpose).await;
        }
        stage.start_operator();
        let begun = Instant::now();
        let issued = |it: &Recorder| LEAFS.into_iter().all(|purpose| it.has_secret(purpose));
        stage.until_within(NOTICED, "issued again", issued).await;
        println!("issued again after {:.1} s", begun.elapsed().as_secs_f64());
        for (purpose, before) in LEAFS.into_iter().zip(before) {
            let now = certificate(&stage.recorder, purpose);
            assert_eq!((now.signed_by, now.trusts), (before.signed_by, before.trusts), "{purpose:?}");
        }
        // Deleted and created.
        let changes: Vec<_> = stage.recorder.changes().into_iter().collect();
        assert_eq!(changes, [("Secret kv-peer-tls".into(), 2), ("Secret kv-server-tls".into(), 2)]);
        members_show_what_their_secrets_hold(&stage).await;
        assert_eq!(stage.recorder.members(), pods, "no member restarts");
        stage.end().await;
    });
}

/// It is reported, and nothing is issued before it is back, not even a certificate without which a pod cannot start. An operator
/// that begins reads every Secret at once.
pub fn deleted_authority() {
    world().runtime.block_on(async {
        let mut stage = three_members().await;
        stage.write();
        let mut pods = stage.recorder.members();
        let authority = stage.recorder.secret(Purpose::PeerAuthority).expect("it is there");
        stage.end_operator().await;
        for purpose in [Purpose::PeerAuthority, Purpose::Peer] {
            delete(&stage, purpose).await;
        }
        let waiting = format!("{CLUSTER}-{}", SIZE - 1);
        let live: Api<Pod> = stage.world.all(&stage.namespace);
        live.delete(&waiting, &DeleteParams::default()).await.expect("it is there");
        let waits = |it: &Recorder| {
            let pod = it.object("Pod", &waiting).unwrap_or_default();
            let state = pod["status"]["containerStatuses"][0]["state"].clone();
            !it.has_secret(Purpose::Peer) && state["waiting"]["reason"] == "ContainerCreating"
        };
        stage.until("created without its certificate", waits).await;
        stage.recorder.begin();
        stage.start_operator();
        let is = |status: &'static str, reason: &'static str| {
            move |it: &Recorder| {
                let found = it.condition(condition::TLS_READY);
                found["status"] == status && found["reason"] == reason
            }
        };
        stage.until("reported", is("False", reason::AUTHORITY_LOST)).await;
        // Everything that an operator does after it begins is done by then.
        tokio::time::sleep(SOON).await;
        assert_eq!(stage.recorder.changes(), Default::default(), "nothing is touched");
        assert!(waits(&stage.recorder), "it does not start");

        // As from a backup.
        stage.end_operator().await;
        let metadata = ObjectMeta { resource_version: None, uid: None, ..authority.metadata };
        let restored = Secret { metadata, ..authority };
        secrets(&stage).create(&PostParams::default(), &restored).await.expect("it is accepted");
        stage.start_operator();
        let is_valid = is("True", reason::CERTIFICATES_VALID);
        stage.until("restored", |it| is_valid(it) && Until::Ready(SIZE).holds(it)).await;
        let [leaf, signer] =
            [Purpose::Peer, Purpose::PeerAuthority].map(|it| certificate(&stage.recorder, it));
        assert_eq!(leaf.signed_by, signer.signed_by);
        members_show_what_their_secrets_hold(&stage).await;
        let mut members = stage.recorder.members();
        assert_ne!(members.remove(&waiting), pods.remove(&waiting), "it was created again");
        assert_eq!(members, pods, "no other member restarts");
        stage.end().await;
    });
}

fn secrets(stage: &Stage) -> Api<Secret> {
    stage.world.all(&stage.namespace)
}

async fn delete(stage: &Stage, purpose: Purpose) {
    let name = names(&stage.namespace).secret(purpose);
    secrets(stage).delete(&name, &DeleteParams::default()).await.expect("it is there");
}

fn certificate(recorder: &Recorder, purpose: Purpose) -> Certificate {
    let secret = recorder.secret(purpose).expect("it is there");
    tls::read(secret.data.as_ref()).expect("it holds a certificate")
}

/// Resource versions, which only grow here.
fn versions(recorder: &Recorder) -> [u64; 4] {
    LEAFS.map(|purpose| {
        let secret = recorder.secret(purpose).expect("it is there");
        secret.metadata.resource_version.and_then(|it| it.parse().ok()).expect("a number")
    })
}

/// On both ports of every member, as soon as its kubelet has brought the Secrets into its pod.
async fn members_show_what_their_secrets_hold(stage: &Stage) {
    let begun = Instant::now();
    for (port, serves, calls) in
        [(PEER_PORT, Purpose::Peer, Purpose::Peer), (CLIENT_PORT, Purpose::Server, Purpose::Client)]
    {
        let secret = stage.recorder.secret(serves).expect("it is there");
        let expected = certificates(&secret, CERTIFICATE_KEY);
        for ordinal in 0..SIZE {
            let member = Member::new(&stage.namespace, ordinal);
            let caller = Identity::of(&stage.recorder, calls);
            while member.shows(port, &caller).await.ok().as_ref() != expected.first() {
                assert!(begun.elapsed() < SOON, "{member:?} shows another certificate on port {port}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
