use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::names::Names;
use crate::tls::{ClientPort, Purpose, Transport, chosen_profiles};

/// Made with openssl, so that nothing of ours wrote what is read here.
const LEAF: &str = include_str!("../testdata/given.crt");
const AUTHORITY: &str = include_str!("../testdata/given-ca.crt");
/// Without identifiers of keys, and without usages.
const PLAIN_LEAF: &str = include_str!("../testdata/given-plain.crt");
const PLAIN_AUTHORITY: &str = include_str!("../testdata/given-plain-ca.crt");
const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn secret(parts: &[(&str, &str)]) -> Secret {
    let data: BTreeMap<_, _> =
        parts.iter().map(|&(key, text)| (key.to_owned(), ByteString(text.into()))).collect();
    let metadata = ObjectMeta { name: Some("own".into()), ..ObjectMeta::default() };
    Secret { metadata, data: Some(data), ..Secret::default() }
}

fn profile(names: &[&str]) -> Profile {
    let all = Names::new("ns", "kv", "cluster.local");
    let clients = Transport { clients: ClientPort::Https, ..Transport::default() };
    let tls = api::Tls {
        certificate_secret: Some("own".into()),
        certificates: Some(api::Certificates {
            dns_names: names.iter().map(|&it| it.to_owned()).collect(),
            ..api::Certificates::default()
        }),
        ..api::Tls::default()
    };
    chosen_profiles(&all, clients, &tls, &Default::default())[&Purpose::Server].clone()
}

const VERIFIED: Verified = Verified { key: Key::Matches, chain: Chain::Complete };

fn found(leaf: &str, authority: &str, verified: Verified, profile: &Profile) -> Vec<Problem> {
    let secret = secret(&[(CERTIFICATE_KEY, leaf), (PRIVATE_KEY, "a key"), (AUTHORITY_KEY, authority)]);
    let given = Given::read(Some(&secret), Some(&secret), verified, None, |_| false);
    problems(profile, &Observed { now: NOW, given: Some(given), ..Observed::nothing_of("uid") })
}

#[test]
fn a_certificate_with_every_name_and_usage_can_be_used() {
    assert_eq!(found(LEAF, AUTHORITY, VERIFIED, &profile(&[])), []);
    let both = format!("Issuer: somebody\n{AUTHORITY}\n{PLAIN_AUTHORITY}");
    assert_eq!(
        found(LEAF, &both, VERIFIED, &profile(&[])),
        [],
        "with another authority, and text between them"
    );
}

#[test]
fn a_name_that_the_user_asks_for_is_missing_like_any_other() {
    let missing = Problem::MissingNames(vec!["etcd.example.com".into()]);
    let problems = found(LEAF, AUTHORITY, VERIFIED, &profile(&["etcd.example.com"]));
    assert_eq!(problems, [missing]);
    let words = problems[0].words(&profile(&[]).source);
    assert_eq!(words, "tls.crt of Secret own is not for etcd.example.com: issue it for these names, too");
}

#[test]
fn without_identifiers_and_usages_it_is_understood() {
    let problems = found(PLAIN_LEAF, PLAIN_AUTHORITY, VERIFIED, &profile(&[]));
    let [Problem::MissingNames(names)] = &problems[..] else { panic!("{problems:?}") };
    assert!(names.contains(&"127.0.0.1".to_owned()) && names.len() == 16, "{names:?}");
    let leaf =
        read_leaf(&secret(&[(CERTIFICATE_KEY, PLAIN_LEAF), (PRIVATE_KEY, "a key")])).expect("it can be read");
    assert_eq!((leaf.certificate.signed_by, leaf.serves, leaf.connects), (None, true, true));
}

#[test]
fn an_authority_is_no_certificate_and_a_certificate_no_authority() {
    let problems = found(AUTHORITY, LEAF, VERIFIED, &profile(&[]));
    assert!(problems.contains(&Problem::IsAuthority), "{problems:?}");
    assert!(problems.contains(&Problem::NoAuthority("CN=kv".into())), "{problems:?}");
}

#[test]
fn keys_and_signatures_are_judged_elsewhere_and_named_here() {
    let verified = Verified { key: Key::Differs, chain: Chain::Broken("none of them issued it".into()) };
    let expected = [Problem::OtherKey, Problem::Chain("none of them issued it".into())];
    assert_eq!(found(LEAF, AUTHORITY, verified, &profile(&[])), expected);
    let verified = Verified { key: Key::Unreadable, chain: Chain::Complete };
    assert_eq!(found(LEAF, AUTHORITY, verified, &profile(&[])), [Problem::UnreadableKey]);
}

#[test]
fn what_is_missing_or_malformed_is_named() {
    let unknown = || Verified { key: Key::Unreadable, chain: Chain::Unknown };
    let flaw = |flaw| Lack::Flaw(flaw);
    let read = |secret: Option<&Secret>, is_ours: bool| {
        let given = Given::read(secret, secret, unknown(), None, |_| is_ours);
        let seen = Observed { now: NOW, given: Some(given), ..Observed::nothing_of("uid") };
        problems(&profile(&[]), &seen)
    };
    let both = |one: Lack, other: Lack| vec![Problem::Certificate(one), Problem::Authorities(other)];
    assert_eq!(read(None, false), both(Lack::NoSecret, Lack::NoSecret));
    let empty = secret(&[]);
    assert_eq!(read(Some(&empty), true), both(Lack::OfTheOperator, Lack::OfTheOperator));
    let missing = |key: &str| flaw(Flaw::Missing(key.into()));
    assert_eq!(read(Some(&empty), false), both(missing(CERTIFICATE_KEY), missing(AUTHORITY_KEY)));
    let cut = &LEAF[..LEAF.len() / 2];
    let malformed = |key: &str| flaw(Flaw::Malformed(key.into()));
    let broken = secret(&[(CERTIFICATE_KEY, cut), (AUTHORITY_KEY, "text")]);
    assert_eq!(read(Some(&broken), false), both(malformed(CERTIFICATE_KEY), malformed(AUTHORITY_KEY)));
    let keyless = secret(&[(CERTIFICATE_KEY, LEAF), (AUTHORITY_KEY, AUTHORITY)]);
    assert_eq!(read(Some(&keyless), false), [Problem::Certificate(missing(PRIVATE_KEY))]);
}

/// An observation is written to logs and files.
#[test]
fn no_key_is_in_what_is_observed() {
    let secret =
        secret(&[(CERTIFICATE_KEY, LEAF), (PRIVATE_KEY, "a very secret key"), (AUTHORITY_KEY, AUTHORITY)]);
    let given = Given::read(Some(&secret), Some(&secret), VERIFIED, None, |_| false);
    let text = serde_json::to_string(&given).expect("JSON") + &format!("{given:?}");
    assert!(!text.contains("very secret"), "{text}");
}

#[test]
fn what_cert_manager_has_not_issued_is_one_problem_and_what_it_has_issued_can_be_used_meanwhile() {
    let all = Names::new("ns", "kv", "cluster.local");
    let (name, kind, group) = ("company".into(), "Issuer".into(), api::CERT_MANAGER.into());
    let tls = api::Tls { issuer_ref: Some(IssuerRef { name, kind, group }), ..api::Tls::default() };
    let clients = Transport { clients: ClientPort::Https, ..Transport::default() };
    let nodes = ["192.0.2.1".parse().expect("an address")].into();
    let asked = chosen_profiles(&all, clients, &tls, &nodes)[&Purpose::Server].clone();
    assert!(asked.ip_addresses.contains(&"192.0.2.1".into()), "it asks for the addresses of nodes");
    assert_eq!(asked.source.secrets(), Some(("kv-server-issued", "kv-server-issued")));

    let profile = Profile { source: asked.source, ..profile(&[]) };
    let issued = secret(&[(CERTIFICATE_KEY, LEAF), (PRIVATE_KEY, "a key"), (AUTHORITY_KEY, AUTHORITY)]);
    let plain =
        secret(&[(CERTIFICATE_KEY, PLAIN_LEAF), (PRIVATE_KEY, "a key"), (AUTHORITY_KEY, PLAIN_AUTHORITY)]);
    let found = |secret: Option<&Secret>, issuance: &Issuance| {
        let given = Given::read(secret, secret, VERIFIED, Some(issuance.clone()), |_| false);
        problems(&profile, &Observed { now: NOW, given: Some(given), ..Observed::nothing_of("uid") })
    };
    let not_ready = Issuance::NotReady("no issuer".into());
    for issuance in
        [Issuance::Requested, not_ready.clone(), Issuance::Unreadable("denied".into()), Issuance::Ready]
    {
        assert_eq!(found(None, &issuance), [Problem::NotIssued(issuance.clone())]);
        assert_eq!(found(Some(&issued), &issuance), [], "{issuance:?}");
    }
    assert_eq!(found(None, &Issuance::NoApi), [Problem::NotIssued(Issuance::NoApi)]);
    assert_eq!(
        found(Some(&issued), &Issuance::NoApi),
        [Problem::NotIssued(Issuance::NoApi)],
        "nobody renews it"
    );
    assert_eq!(found(Some(&plain), &not_ready)[0], Problem::NotIssued(not_ready.clone()));
    assert!(!found(Some(&plain), &Issuance::Ready).contains(&Problem::NotIssued(Issuance::Ready)));
    for (issuance, expected) in [
        (Issuance::NoApi, Rejection::NoCertManager),
        (not_ready, Rejection::NotIssued),
        (Issuance::Ready, Rejection::NotIssued),
    ] {
        assert_eq!(Rejection::of(&found(None, &issuance)), Some(expected));
    }
    assert_eq!(Rejection::of(&found(Some(&plain), &Issuance::Ready)), Some(Rejection::Rejected));
}
