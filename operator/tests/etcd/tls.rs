//! Members that serve TLS, and what is reported if a connection cannot be made.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use etcd_operator::certificates::issue;
use etcd_operator::credentials::{Credentials, Security, Unusable};
use etcd_operator::etcd::{Error, Member};
use etcd_operator::reach::Reach;
use etcd_operator_core::etcd_config::tls_file;
use etcd_operator_core::member::MemberProgress;
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::tls::{AUTHORITY_KEY, Purpose, Scheme, Transport, profiles};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use testbed::build::STANDARD_ETCD;

use crate::processes::{Processes, in_time, until};
use crate::{TWO_LEARNERS, names, relied_on};

pub const TLS: Transport = Transport::TLS;

/// All Secrets of a cluster.
pub fn issued() -> BTreeMap<Purpose, Secret> {
    let mut issued = BTreeMap::<Purpose, Secret>::new();
    for (purpose, profile) in profiles(&names(), TLS) {
        let authority = purpose.issuer().and_then(|it| issued.get(&it));
        let content = issue(&profile, authority, Timestamp::now()).expect("it is issued");
        issued.insert(purpose, Secret { data: Some(content), ..Secret::default() });
    }
    issued
}

/// As the kubelet mounts them.
fn mount(secrets: &BTreeMap<Purpose, Secret>, tls_dir: &Path) {
    for (&purpose, secret) in secrets.iter().filter(|(it, _)| it.directory().is_some()) {
        for (key, content) in secret.data.iter().flatten() {
            let file = tls_file(&tls_dir.display().to_string(), purpose, key);
            fs::create_dir_all(Path::new(&file).parent().expect("it has one")).expect("a directory");
            fs::write(&file, &content.0).expect("a file");
        }
    }
}

pub fn security(secret: &Secret, ordinal: u8) -> Security {
    Security::Tls { credentials: Credentials::read(secret), host: names().pod_host(Ordinal(ordinal)) }
}

async fn connect(cluster: &Processes, security: &Security) -> Result<Member, Error> {
    Member::connect(&Reach::Direct, &cluster.pod(0), security).await
}

/// A member alone that is called as in Kubernetes.
pub async fn serving(version: &str, secrets: &BTreeMap<Purpose, Secret>) -> (Processes, Member) {
    let mut cluster = Processes::new(version).await;
    mount(secrets, &cluster.tls_dir());
    cluster.bootstrap(&[names().pod_host(Ordinal(0))], TLS);
    let security = security(&secrets[&Purpose::Operator], 0);
    let member = until("the member to serve", async || {
        let member = connect(&cluster, &security).await.ok()?;
        member.linearizable_read().await.ok().map(|()| member)
    })
    .await;
    (cluster, member)
}

#[tokio::test]
async fn a_member_with_certificates_serves_the_operator() {
    for version in STANDARD_ETCD {
        let secrets = issued();
        let (cluster, member) = serving(version, &secrets).await;
        let learner = member.add_learner(names().peer_url(Scheme::Https, Ordinal(1))).await;
        let learner = learner.expect("it is accepted");
        let members = relied_on(&member).await.expect("it lists");
        let seen: Vec<_> = members.by_ordinal().iter().map(|(_, it)| (it.ordinal, it.start)).collect();
        let (published, added) = (MemberProgress::Published, MemberProgress::Added);
        assert_eq!(seen, [(Some(Ordinal(0)), published), (Some(Ordinal(1)), added)]);
        assert_eq!(members.list[&learner].ordinal, Some(Ordinal(1)));

        // Renewed certificates are used from the next connection on, and those that are open stay.
        mount(&renewed(&secrets), &cluster.tls_dir());
        connect(&cluster, &security(&secrets[&Purpose::Operator], 0))
            .await
            .expect("the authority is the same");
        member.linearizable_read().await.expect("nothing ended");
    }
}

/// With other leafs of the same authorities.
fn renewed(secrets: &BTreeMap<Purpose, Secret>) -> BTreeMap<Purpose, Secret> {
    let profiles = profiles(&names(), TLS);
    let leafs = profiles.iter().filter_map(|(purpose, profile)| Some((purpose, profile, purpose.issuer()?)));
    let issued = leafs.map(|(&purpose, profile, issuer)| {
        let content = issue(profile, secrets.get(&issuer), Timestamp::now()).expect("it is issued");
        (purpose, Secret { data: Some(content), ..Secret::default() })
    });
    issued.collect()
}

async fn refused(cluster: &Processes, security: &Security) -> String {
    let error = connect(cluster, security).await.err().expect("no connection is possible");
    assert!(!error.is_ambiguous(), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_connection_that_cannot_be_trusted_is_not_made_and_the_reason_is_clear() {
    let (secrets, others) = (issued(), issued());
    let (mut cluster, member) = serving(TWO_LEARNERS, &secrets).await;
    let untrusted = "TLS: its certificate is of an authority that the operator does not trust";
    assert_eq!(
        refused(&cluster, &security(&others[&Purpose::Operator], 0)).await,
        format!("cannot connect to kv-0: {untrusted}")
    );
    assert_eq!(
        refused(&cluster, &security(&secrets[&Purpose::Operator], 9)).await,
        "cannot connect to kv-0: TLS: its certificate is not for kv-9.kv-peer.ns.svc.cluster.local"
    );
    let missing = Err(Unusable::Missing("kv-operator-tls".into()));
    assert_eq!(
        refused(&cluster, &Security::Tls { credentials: missing, host: names().pod_host(Ordinal(0)) }).await,
        "cannot connect to kv-0: TLS: the operator has no certificate yet: Secret kv-operator-tls does not exist"
    );

    // The member is trusted, and does not trust us: it says so only after the handshake.
    let mut stranger = others[&Purpose::Operator].clone();
    let trusted = secrets[&Purpose::Operator].data.as_ref().expect("it has data")[AUTHORITY_KEY].clone();
    stranger.data.get_or_insert_default().insert(AUTHORITY_KEY.into(), trusted);
    until("the member to reject the certificate", async || {
        let unknown = connect(&cluster, &security(&stranger, 0)).await.expect("the handshake is done");
        let error = unknown.status().await.expect_err("it is not trusted").to_string();
        // Whether the reason arrives before the connection ends is a matter of luck.
        error.contains(": TLS: it rejected the operator's certificate (").then_some(())
    })
    .await;

    let watch = tokio::spawn(async move { member.watch_until_lost().await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!watch.is_finished());
    cluster.kill(0);
    let error = in_time("the loss to be noticed", watch).await.expect("no panic").to_string();
    assert!(error.starts_with("lost the connection to kv-0: ") && !error.contains("TLS"), "{error}");
}

#[tokio::test]
async fn a_member_in_plain_text_is_not_taken_for_one_with_tls() {
    for version in STANDARD_ETCD {
        let cluster = Processes::named(version, &names().pod_host(Ordinal(0))).await;
        let error = refused(&cluster, &security(&issued()[&Purpose::Operator], 0)).await;
        let problem = "it closed the connection during the handshake: it might serve plain text only";
        assert_eq!(error, format!("cannot connect to kv-0: TLS: {problem}"));
    }
}
