//! Certificates that a user gives for the client port, under clients that write all the time.

use std::time::{Duration, Instant};

use etcd_operator_core::etcd_config::CLIENT_PORT;
use etcd_operator_core::names::{condition, reason};
use etcd_operator_core::tls::{
    self, AUTHORITY_KEY, CERTIFICATE_KEY, ClientPort, PRIVATE_KEY, Profile, Purpose, Transport, profiles,
};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use serde_json::{Value, json};

use crate::access::{Identity, Member, certificates};
use crate::inside;
use crate::recorder::Recorder;
use crate::stage::Stage;
use crate::steps::Until;
use crate::world::{CLUSTER, names, world};

const OWN: &str = "own-certificate";
const OWN_AUTHORITY: &str = "own-authority";
/// What users give is read once a minute, when the cluster is observed: a settled one every half minute.
pub const NOTICED: Duration = Duration::from_secs(110);
/// Six restarts, and twice half a minute for clients to read what they trust.
pub const CHANGED: Duration = Duration::from_secs(240);
/// Of everything between the operator and the files of a pod.
const SOON: Duration = Duration::from_secs(5);

/// An authority of a user.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate and its key.
struct Leaf {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(parameters, key), certificate }
    }

    fn issue(&self, names: &Profile, edit: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(names.dns_names.clone()).expect("names");
        let addresses =
            names.ip_addresses.iter().map(|it| SanType::IpAddress(it.parse().expect("an address")));
        parameters.subject_alt_names.extend(addresses);
        parameters.distinguished_name.push(DnType::CommonName, "of a user");
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        parameters.use_authority_key_identifier_extension = true;
        edit(&mut parameters);
        let certificate = parameters.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Leaf { certificate, key: key.serialize_pem() }
    }
}

pub fn server_names(stage: &Stage) -> Profile {
    let clients = Transport { clients: ClientPort::Https, ..Transport::default() };
    profiles(&names(&stage.namespace), clients)[&Purpose::Server].clone()
}

async fn store(stage: &Stage, name: &str, data: Value) {
    let secrets: Api<Secret> = stage.world.all(&stage.namespace);
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    let user = PatchParams::apply("a-user").force();
    secrets.patch(name, &user, &Patch::Apply(secret)).await.expect("it is accepted");
}

async fn give(stage: &Stage, leaf: &Leaf, authorities: &[&Authority]) {
    let roots: String = authorities.iter().map(|it| it.certificate.as_str()).collect();
    store(stage, OWN_AUTHORITY, json!({AUTHORITY_KEY: roots})).await;
    store(stage, OWN, json!({CERTIFICATE_KEY: leaf.certificate, PRIVATE_KEY: leaf.key})).await;
}

fn sources() -> Value {
    // Clients have half a minute to read what they trust.
    json!({"certificateSecret": OWN, "caSecret": OWN_AUTHORITY, "certificates": {"validitySeconds": 90}})
}

fn holds(recorder: &Recorder, leaf: &Leaf) -> bool {
    let secret = recorder.secret(Purpose::Server);
    let held = secret.and_then(|secret| secret.data?.remove(CERTIFICATE_KEY));
    held.is_some_and(|it| it.0 == leaf.certificate.as_bytes())
}

fn is_rejected(recorder: &Recorder, words: &[&str]) -> bool {
    let found = recorder.condition(condition::TLS_READY);
    let message = found["message"].as_str().unwrap_or_default();
    found["reason"] == reason::CERTIFICATE_REJECTED && words.iter().all(|it| message.contains(it))
}

/// Of every member, as soon as its kubelet has brought it into the pod.
pub async fn members_show(stage: &Stage, size: u8) {
    let begun = Instant::now();
    let expected =
        certificates(&stage.recorder.secret(Purpose::Server).expect("it is there"), CERTIFICATE_KEY);
    for ordinal in 0..size {
        let (member, caller) =
            (Member::new(&stage.namespace, ordinal), Identity::of(&stage.recorder, Purpose::Client));
        while member.shows(CLIENT_PORT, &caller).await.ok().as_ref() != expected.first() {
            assert!(begun.elapsed() < SOON, "{member:?} shows another certificate");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The subjects of what the client port trusts after its next start.
pub fn trusted(recorder: &Recorder) -> Vec<String> {
    let secret = recorder.secret(Purpose::Server).expect("it is there");
    let held = tls::read(secret.data.as_ref()).expect("it can be read");
    held.trusts.into_iter().map(|it| it.subject).collect()
}

/// A cluster begins with it; what cannot be used changes nothing and is reported; a renewed one restarts nobody.
pub fn checked() {
    world().runtime.block_on(async {
        let mut stage = Stage::start(world()).await;
        let (authority, other, profile) =
            (Authority::new("one"), Authority::new("two"), server_names(&stage));
        let first = authority.issue(&profile, |_| {});
        let unnamed = authority.issue(&profile, |it| it.subject_alt_names.truncate(3));
        give(&stage, &unnamed, &[&authority]).await;
        let spec = json!({"size": 1, "version": inside::TWO_LEARNERS, "security": {"tls": sources()}});
        let cluster =
            etcd_operator_core::api::EtcdCluster::new(CLUSTER, serde_json::from_value(spec).expect("a spec"));
        stage.clusters.create(&Default::default(), &cluster).await.expect("it is accepted");
        stage.until("rejected", |it| is_rejected(it, &["no pod starts without it", "is not for"])).await;
        assert!(stage.recorder.object("StatefulSet", CLUSTER).is_none(), "it waits");
        give(&stage, &first, &[&authority]).await;
        stage.until_within(NOTICED, "created", |it| Until::Ready(1).holds(it) && holds(it, &first)).await;
        members_show(&stage, 1).await;
        stage.write();
        let pods = stage.recorder.members();

        let expired = authority.issue(&profile, |it| it.not_after = rcgen::date_time_ymd(2020, 1, 1));
        let mixed = Leaf { key: first.key.clone(), certificate: expired.certificate };
        give(&stage, &mixed, &[&authority]).await;
        let all =
            ["valid until", "expired at 2020-01-01", "tls.key of Secret own-certificate does not belong"];
        stage.until_within(NOTICED, "rejected", |it| is_rejected(it, &all)).await;
        let strange = other.issue(&profile, |it| it.extended_key_usages.truncate(1));
        give(&stage, &strange, &[&authority]).await;
        let all = ["none of them issued it", "is not for clientAuth"];
        stage.until_within(NOTICED, "rejected", |it| is_rejected(it, &all)).await;
        assert!(holds(&stage.recorder, &first), "the one before stays");
        members_show(&stage, 1).await;
        let cluster = stage.recorder.object("EtcdCluster", CLUSTER).unwrap_or_default();
        assert!(!cluster.to_string().contains("PRIVATE KEY"), "no key in the status");

        let renewed = authority.issue(&profile, |_| {});
        give(&stage, &renewed, &[&authority]).await;
        let begun = Instant::now();
        stage.until_within(NOTICED, "renewed", |it| holds(it, &renewed)).await;
        println!("renewed after {:.1} s", begun.elapsed().as_secs_f64());
        members_show(&stage, 1).await;
        assert_eq!(stage.recorder.members(), pods, "no member restarts");
        stage.end().await;
    });
}

/// From the operator to one authority of a user, to another one, and back.
pub fn changed() {
    world().runtime.block_on(async {
        let mut stage = Stage::start(world()).await;
        let certificates = json!({"tls": {"certificates": {"validitySeconds": 90}}});
        stage.create(json!({"size": 3, "version": inside::TWO_LEARNERS, "security": certificates})).await;
        stage.write();
        let (profile, ours) = (server_names(&stage), trusted(&stage.recorder));
        let is_quiet = |it: &Recorder| {
            let tls = it.condition(condition::TLS_READY);
            Until::Ready(3).holds(it) && tls["reason"] == reason::CERTIFICATES_VALID
        };
        for (name, edited) in [("one", true), ("two", false)] {
            let authority = Authority::new(name);
            let (leaf, begun) = (authority.issue(&profile, |_| {}), Instant::now());
            give(&stage, &leaf, &[&authority]).await;
            if edited {
                stage.edit(&json!({"security": {"tls": sources()}})).await.expect("it is accepted");
            }
            let trusts: Vec<_> = [format!("CN={name}")].into_iter().chain(ours.clone()).collect();
            let is_changed = |it: &Recorder| {
                let mut trusted = trusted(it);
                trusted.sort();
                let mut trusts = trusts.clone();
                trusts.sort();
                holds(it, &leaf) && trusted == trusts && is_quiet(it)
            };
            stage.until_within(NOTICED + CHANGED, "changed", is_changed).await;
            println!("certificate of {name} after {:.1} s", begun.elapsed().as_secs_f64());
            members_show(&stage, 3).await;
            // A client of the user's authority is accepted, too.
            let own = authority.issue(&profile, |it| it.subject_alt_names.clear());
            store(&stage, "client", json!({
                CERTIFICATE_KEY: own.certificate, PRIVATE_KEY: own.key, AUTHORITY_KEY: authority.certificate,
            })).await;
            let secrets: Api<Secret> = stage.world.all(&stage.namespace);
            let identity = Identity::with(secrets.get("client").await.expect("it is there"));
            let response = Member::new(&stage.namespace, 0).get(CLIENT_PORT, &identity, "/version").await;
            assert!(matches!(response, Ok((200, _))), "{response:?}");
        }
        let begun = Instant::now();
        let back = json!({"security": {"tls": {"certificateSecret": null, "caSecret": null}}});
        stage.edit(&back).await.expect("it is accepted");
        stage.until_within(CHANGED, "back", |it| trusted(it) == ours && is_quiet(it)).await;
        println!("back after {:.1} s", begun.elapsed().as_secs_f64());
        members_show(&stage, 3).await;
        stage.end().await;
    });
}
