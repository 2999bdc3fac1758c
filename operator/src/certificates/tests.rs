use std::collections::BTreeMap;
use std::sync::Arc;

use etcd_operator_core::names::Names;
use etcd_operator_core::observed::{self, Observed, Ordinal, Seen};
use etcd_operator_core::tls::{Purpose, State, Transport, judge, profiles, read, read_next};
use jiff::SignedDuration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::sign::SingleCertAndKey;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use x509_parser::pem::parse_x509_pem;

use super::*;
use crate::credentials::{Credentials, certificates};

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
const BOTH: Transport = Transport::TLS;

type Issued = BTreeMap<Purpose, Secret>;

fn names() -> Names {
    Names::new("ns", "kv", "cluster.local")
}

fn secret(purpose: Purpose, data: Content) -> Secret {
    let mut secret = Secret { data: Some(data), ..Secret::default() };
    secret.metadata.name = Some(names().secret(purpose));
    secret
}

/// All that a cluster needs, issued at this time.
fn all(now: Timestamp) -> Issued {
    let mut issued = Issued::new();
    for (purpose, profile) in profiles(&names(), BOTH) {
        let authority = purpose.issuer().and_then(|it| issued.get(&it));
        let content = issue(&profile, authority, now).expect("it is issued");
        issued.insert(purpose, secret(purpose, content));
    }
    issued
}

fn part<'a>(secret: &'a Secret, key: &str) -> &'a [u8] {
    &secret.data.as_ref().expect("it has data")[key].0
}

#[test]
fn what_is_issued_is_what_the_profile_asks_for() {
    let issued = all(NOW);
    for (purpose, profile) in profiles(&names(), BOTH) {
        let certificate = read(issued[&purpose].data.as_ref()).expect("it is complete");
        assert_eq!(certificate.common_name, profile.common_name);
        assert_eq!(certificate.dns_names, profile.dns_names);
        assert_eq!(certificate.ip_addresses, profile.ip_addresses);
        assert_eq!((certificate.not_before, certificate.not_after), profile.validity(NOW));
        let authority = &issued[&purpose.issuer().unwrap_or(purpose)];
        assert_eq!(part(&issued[&purpose], AUTHORITY_KEY), part(authority, CERTIFICATE_KEY));
        let authority = read(authority.data.as_ref()).expect("it is complete");
        assert!(certificate.signed_by.is_some(), "{purpose:?}");
        assert_eq!(certificate.signed_by, authority.signed_by);
        let trusts: Vec<_> = certificate.trusts.iter().map(|it| it.key.clone()).collect();
        assert_eq!(trusts, certificate.signed_by.into_iter().collect::<Vec<_>>());
        assert!(part(&issued[&purpose], PRIVATE_KEY).starts_with(b"-----BEGIN PRIVATE KEY-----\n"));
    }
}

#[tokio::test]
async fn keys_of_another_algorithm_work_with_the_authority_that_is_there() {
    let mut issued = all(Timestamp::now());
    for purpose in [Purpose::Server, Purpose::Operator] {
        let mut profile = profiles(&names(), BOTH)[&purpose].clone();
        profile.key_algorithm = KeyAlgorithm::ECDSAP384;
        let content = issue(&profile, issued.get(&Purpose::ClientAuthority), Timestamp::now());
        issued.insert(purpose, secret(purpose, content.expect("it is issued")));
    }
    let (client, server) = (&issued[&Purpose::Operator], &issued[&Purpose::Server]);
    assert_eq!(connect(client, server, &names().pod_host(Ordinal(0))).await, Ok(7));
    let length = |purpose| part(&issued[&purpose], PRIVATE_KEY).len();
    assert!(length(Purpose::Server) > length(Purpose::Peer));
}

#[test]
fn what_is_issued_is_valid_and_no_two_are_alike() {
    let issued = all(NOW);
    let mut seen = Observed { now: NOW, ..Observed::nothing_of("uid") };
    for (&purpose, secret) in &issued {
        let certificate = read(secret.data.as_ref()).map_or_else(Seen::Unknown, Seen::Known);
        seen.secrets.insert(
            purpose,
            observed::Secret {
                uid: "uid".into(),
                certificate,
                next: None,
                given: Default::default(),
                copied: None,
            },
        );
    }
    for (purpose, state) in judge(&profiles(&names(), BOTH), &seen) {
        assert!(matches!(state, State::Valid { .. }), "{purpose:?}: {state:?}");
    }
    let keys: std::collections::BTreeSet<_> =
        issued.values().chain(all(NOW).values()).map(|it| part(it, PRIVATE_KEY).to_vec()).collect();
    assert_eq!(keys.len(), 2 * issued.len());
}

#[test]
fn nothing_is_signed_without_an_authority_or_with_a_key_that_is_not_its_own() {
    let issued = all(NOW);
    let profile = &profiles(&names(), BOTH)[&Purpose::Server];
    let refused =
        |authority: Option<&Secret>| issue(profile, authority, NOW).expect_err("it is refused").to_string();
    assert_eq!(refused(None), "the authority's Secret is missing");
    let with = |key: &str, value: &[u8]| {
        let mut secret = issued[&Purpose::ClientAuthority].clone();
        secret.data.get_or_insert_default().insert(key.into(), ByteString(value.into()));
        secret
    };
    let other = with(PRIVATE_KEY, part(&issued[&Purpose::PeerAuthority], PRIVATE_KEY));
    let unusable = "Secret kv-client-ca cannot be used to sign: its tls.key does not belong to its tls.crt";
    assert_eq!(refused(Some(&other)), unusable);
    for key in [PRIVATE_KEY, CERTIFICATE_KEY] {
        let malformed = with(key, b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n");
        let unusable =
            format!("Secret kv-client-ca cannot be used to sign: its {key} is missing or malformed");
        assert_eq!(refused(Some(&malformed)), unusable);
    }
}

/// As etcd serves: clients have to have a certificate of the authority.
fn server(secret: &Secret) -> TlsAcceptor {
    let mut trusted = RootCertStore::empty();
    for authority in certificates(part(secret, AUTHORITY_KEY)).expect("certificates") {
        trusted.add(authority).expect("it is an authority");
    }
    let verifier = WebPkiClientVerifier::builder(trusted.into()).build().expect("it has authorities");
    let key = certified_key(part(secret, CERTIFICATE_KEY), part(secret, PRIVATE_KEY)).expect("they match");
    let config = ServerConfig::builder().with_client_cert_verifier(verifier);
    TlsAcceptor::from(Arc::new(config.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)))))
}

/// The client reads the byte only if both accepted each other.
async fn connect(client: &Secret, to: &Secret, host: &str) -> Result<u8, String> {
    let (near, far) = tokio::io::duplex(16 * 1024);
    let acceptor = server(to);
    let serving = tokio::spawn(async move {
        let mut stream = acceptor.accept(far).await?;
        stream.write_u8(7).await?;
        stream.shutdown().await
    });
    let mut stream = Credentials::read(client).expect("they can be used").secure(near, host).await?;
    let read = stream.read_u8().await.map_err(|error| crate::reach::root_cause(&error));
    drop(serving.await);
    read
}

#[tokio::test]
async fn both_ends_accept_each_other_only_with_the_authority_and_the_name() {
    let (issued, others) = (all(Timestamp::now()), all(Timestamp::now()));
    let (client, server) = (&issued[&Purpose::Operator], &issued[&Purpose::Server]);
    for host in [names().pod_host(Ordinal(8)), names().client_hosts()[3].clone(), "127.0.0.1".into()] {
        assert_eq!(connect(client, server, &host).await, Ok(7), "{host}");
    }
    let host = names().pod_host(Ordinal(0));
    // Members are clients of each other.
    let peer = &issued[&Purpose::Peer];
    assert_eq!(connect(peer, peer, &names().peer_host()).await, Ok(7));
    let untrusted = "TLS: its certificate is of an authority that the operator does not trust";
    assert_eq!(connect(client, &others[&Purpose::Server], &host).await, Err(untrusted.into()));
    assert_eq!(connect(client, peer, &host).await, Err(untrusted.into()));
    let other_name = "TLS: its certificate is not for kv-9.kv-peer.ns.svc.cluster.local";
    assert_eq!(connect(client, server, &names().pod_host(Ordinal(9))).await, Err(other_name.into()));
    // It trusts the server, which does not trust it.
    let mut stranger = others[&Purpose::Operator].clone();
    let trusted = ByteString(part(client, AUTHORITY_KEY).into());
    stranger.data.get_or_insert_default().insert(AUTHORITY_KEY.into(), trusted);
    let refused = connect(&stranger, server, &host).await.expect_err("it is not trusted");
    assert!(refused.starts_with("TLS: it rejected the operator's certificate ("), "{refused}");
}

#[tokio::test]
async fn a_certificate_outside_of_its_time_is_reported_as_such() {
    let now = Timestamp::now();
    let host = names().pod_host(Ordinal(0));
    for (at, problem) in [
        (now - SignedDuration::from_hours(24 * 91), "TLS: its certificate has expired"),
        (
            now + SignedDuration::from_hours(1),
            "TLS: its certificate is not valid yet: check the clocks of the nodes",
        ),
    ] {
        let mut issued = all(now);
        let profile = &profiles(&names(), BOTH)[&Purpose::Server];
        let content = issue(profile, issued.get(&Purpose::ClientAuthority), at).expect("it is issued");
        issued.insert(Purpose::Server, secret(Purpose::Server, content));
        let refused = connect(&issued[&Purpose::Operator], &issued[&Purpose::Server], &host).await;
        assert_eq!(refused, Err(problem.into()));
    }
}

#[test]
fn each_certificate_can_be_used_for_its_purpose_and_nothing_else() {
    let issued = all(NOW);
    for (purpose, profile) in profiles(&names(), BOTH) {
        let (_, pem) = parse_x509_pem(part(&issued[&purpose], CERTIFICATE_KEY)).expect("PEM");
        let certificate = pem.parse_x509().expect("a certificate");
        let constraints = certificate.basic_constraints().expect("one at most").map(|it| it.value);
        let usage = certificate.key_usage().expect("one at most").expect("it is there").value;
        let extended = certificate.extended_key_usage().expect("one at most").map(|it| it.value);
        let extended = extended.map_or((false, false), |it| (it.server_auth, it.client_auth));
        if profile.usage == Usage::Authority {
            let constraints = constraints.expect("it is an authority");
            assert_eq!((constraints.ca, constraints.path_len_constraint), (true, Some(0)));
            assert!(usage.key_cert_sign() && usage.crl_sign() && !usage.digital_signature());
        } else {
            assert!(constraints.is_none() && usage.digital_signature() && !usage.key_cert_sign());
        }
        let expected = match profile.usage {
            Usage::Authority => (false, false),
            Usage::Both => (true, true),
            Usage::Client => (false, true),
        };
        assert_eq!(extended, expected, "{purpose:?}");
    }
}

/// The Secret of an authority after this step.
fn rotated(authority: &Secret, stage: Stage) -> Secret {
    let profile = &profiles(&names(), BOTH)[&Purpose::PeerAuthority];
    secret(
        Purpose::PeerAuthority,
        rotate(profile, authority, stage, None, Timestamp::now()).expect("it is written"),
    )
}

fn leaf(authority: &Secret) -> Secret {
    let content = issue(&profiles(&names(), BOTH)[&Purpose::Peer], Some(authority), Timestamp::now());
    secret(Purpose::Peer, content.expect("it is issued"))
}

/// At every step, members with the certificates and authorities of two steps that follow each other accept each other.
#[tokio::test]
async fn an_authority_gives_way_to_its_successor_while_both_are_trusted() {
    let first = all(Timestamp::now()).remove(&Purpose::PeerAuthority).expect("it is issued");
    let introduced = rotated(&first, Stage::Introduce);
    let promoted = rotated(&introduced, Stage::Promote);
    let withdrawn = rotated(&promoted, Stage::Withdraw);
    let [a, b, c, d] = [&first, &introduced, &promoted, &withdrawn].map(leaf);
    for (one, other) in [(&a, &b), (&b, &c), (&c, &d)] {
        for (client, server) in [(one, other), (other, one)] {
            assert_eq!(connect(client, server, &names().peer_host()).await, Ok(7));
        }
    }
    assert!(connect(&a, &d, &names().peer_host()).await.is_err());

    let held = |secret: &Secret| read(secret.data.as_ref()).expect("it can be read");
    assert_eq!(held(&a).signed_by, held(&b).signed_by, "it signs nothing yet");
    assert_ne!(held(&b).signed_by, held(&c).signed_by);
    assert_eq!([&a, &b, &c, &d].map(|it| held(it).trusts.len()), [1, 2, 2, 1]);
    let subjects: std::collections::BTreeSet<_> = held(&c).trusts.into_iter().map(|it| it.subject).collect();
    assert_eq!(subjects.len(), 2, "they can be told apart: {subjects:?}");
    let next = read_next(introduced.data.as_ref()).expect("it is there");
    assert_eq!(Some(next.key), held(&c).signed_by);
    for secret in [&promoted, &withdrawn] {
        let keys: Vec<_> = secret.data.iter().flat_map(|data| data.keys()).collect();
        assert_eq!(keys, [AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY], "no other key is left");
    }
}

#[test]
fn a_certificate_does_not_outlive_its_authority() {
    let issued = all(NOW);
    let authority = &issued[&Purpose::PeerAuthority];
    let end = read(authority.data.as_ref()).expect("it can be read").not_after;
    let profile = &profiles(&names(), BOTH)[&Purpose::Peer];
    let late = issue(profile, Some(authority), end - SignedDuration::from_hours(1)).expect("it is issued");
    assert_eq!(read(Some(&late)).expect("it can be read").not_after, end);
}
