use k8s_openapi::ByteString;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use super::*;

struct Signer {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// An authority; one that another one signed is between that one and a certificate.
fn authority(name: &str, above: Option<&Signer>) -> Signer {
    let key = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = match above {
        None => parameters.self_signed(&key),
        Some(above) => parameters.signed_by(&key, &above.issuer),
    };
    let certificate = certificate.expect("a certificate").pem();
    Signer { issuer: Issuer::new(parameters, key), certificate }
}

fn leaf(signer: &Signer, edit: impl FnOnce(&mut CertificateParams)) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::new(vec!["kv.example.com".to_owned()]).expect("a name");
    parameters.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    edit(&mut parameters);
    let certificate = parameters.signed_by(&key, &signer.issuer).expect("a certificate").pem();
    (certificate, key.serialize_pem())
}

fn secret(parts: &[(&str, &str)]) -> Secret {
    let data = parts.iter().map(|&(key, text)| (key.to_owned(), ByteString(text.into())));
    Secret { data: Some(data.collect()), ..Secret::default() }
}

fn verified(certificate: &str, key: &str, roots: &str) -> Verified {
    let own = secret(&[(CERTIFICATE_KEY, certificate), (PRIVATE_KEY, key)]);
    verify(Some(&own), Some(&secret(&[(AUTHORITY_KEY, roots)])), Timestamp::now())
}

const GOOD: Verified = Verified { key: Key::Matches, chain: Chain::Complete };

#[test]
fn a_certificate_leads_to_its_authority_also_over_others() {
    let root = authority("root", None);
    let between = authority("between", Some(&root));
    let (certificate, key) = leaf(&root, |_| {});
    assert_eq!(verified(&certificate, &key, &root.certificate), GOOD);
    let (certificate, key) = leaf(&between, |_| {});
    let chain = format!("{certificate}{}", between.certificate);
    assert_eq!(verified(&chain, &key, &root.certificate), GOOD);
    assert_eq!(verified(&certificate, &key, &between.certificate), GOOD, "it is trusted itself");
    let broken = Verified { key: Key::Matches, chain: Chain::Broken("none of them issued it".into()) };
    assert_eq!(verified(&certificate, &key, &root.certificate), broken, "the one between is missing");
}

#[test]
fn another_authority_of_the_same_name_issued_something_else() {
    let (certificate, key) = leaf(&authority("root", None), |_| {});
    let Verified { chain, .. } = verified(&certificate, &key, &authority("root", None).certificate);
    assert!(matches!(chain, Chain::Broken(_)), "{chain:?}");
}

#[test]
fn a_key_belongs_to_one_certificate() {
    let root = authority("root", None);
    let ((certificate, _), (_, other)) = (leaf(&root, |_| {}), leaf(&root, |_| {}));
    let key_of = |key: &str| verified(&certificate, key, &root.certificate).key;
    assert_eq!(
        (key_of(&other), key_of(""), key_of("text")),
        (Key::Differs, Key::Unreadable, Key::Unreadable)
    );
    let malformed = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
    assert_eq!(key_of(malformed), Key::Unreadable);
}

/// Each problem has its own words, so one does not hide another.
#[test]
fn dates_and_usages_do_not_hide_who_issued_it() {
    let (root, other) = (authority("root", None), authority("other", None));
    let expired = |it: &mut CertificateParams| it.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let future = |it: &mut CertificateParams| it.not_before = rcgen::date_time_ymd(2090, 1, 1);
    let for_clients = |it: &mut CertificateParams| drop(it.extended_key_usages.remove(0));
    for (certificate, key) in [leaf(&root, expired), leaf(&root, future), leaf(&root, for_clients)] {
        assert_eq!(verified(&certificate, &key, &root.certificate), GOOD);
        let Verified { chain, .. } = verified(&certificate, &key, &other.certificate);
        assert!(matches!(chain, Chain::Broken(_)), "{chain:?}");
    }
    let unusable =
        |it: &mut CertificateParams| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    let (certificate, key) = leaf(&root, unusable);
    assert_eq!(verified(&certificate, &key, &root.certificate).chain, Chain::Unknown);
    let itself = authority("root", None);
    assert_eq!(verified(&itself.certificate, &key, &itself.certificate).chain, Chain::Unknown);
}

#[test]
fn a_certificate_between_that_has_expired_breaks_the_chain() {
    let root = authority("root", None);
    let key = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, "between");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let certificate = parameters.signed_by(&key, &root.issuer).expect("a certificate").pem();
    let between = Signer { issuer: Issuer::new(parameters, key), certificate };
    let (certificate, key) = leaf(&between, |_| {});
    let Verified { chain, .. } =
        verified(&format!("{certificate}{}", between.certificate), &key, &root.certificate);
    assert_eq!(chain, Chain::Broken("a certificate between them has expired".into()));
}

fn part(content: &Content, key: &str) -> String {
    String::from_utf8(content[key].0.clone()).expect("text")
}

fn subjects(content: &Content, key: &str) -> usize {
    part(content, key).matches("BEGIN CERTIFICATE").count()
}

/// From the operator to an authority of a user, to another one, and back: nothing is trusted less before it is withdrawn.
#[test]
fn authorities_of_users_join_those_of_the_operator_and_leave_them() {
    let (ours, one, two) = (authority("ours", None), authority("one", None), authority("two", None));
    let mut content = Content::new();
    for (key, text) in [(CERTIFICATE_KEY, &ours.certificate), (AUTHORITY_KEY, &ours.certificate)] {
        content.insert(key.into(), ByteString(text.clone().into_bytes()));
    }
    let given = |text: &str| secret(&[(AUTHORITY_KEY, text)]);
    // As people store them: with text, twice, and without the last line break.
    let untidy = format!("subject=one\n{0}\n{0}", one.certificate.trim_end());
    accept(&mut content, Some(&given(&untidy)));
    assert_eq!((subjects(&content, AUTHORITY_KEY), subjects(&content, GIVEN_AUTHORITIES_KEY)), (2, 1));
    assert!(!part(&content, AUTHORITY_KEY).contains("subject="));
    let before = content.clone();
    accept(&mut content, Some(&given(&untidy)));
    assert_eq!(content, before, "a repeated write is the same");
    accept(&mut content, Some(&given(&two.certificate)));
    assert_eq!((subjects(&content, AUTHORITY_KEY), subjects(&content, GIVEN_AUTHORITIES_KEY)), (3, 1));
    content.insert(AUTHORITY_KEY.into(), needed(&content));
    assert_eq!(part(&content, AUTHORITY_KEY), format!("{}{}", ours.certificate, two.certificate));
    accept(&mut content, None);
    assert!(!content.contains_key(GIVEN_AUTHORITIES_KEY) && subjects(&content, AUTHORITY_KEY) == 2);
    content.insert(AUTHORITY_KEY.into(), needed(&content));
    assert_eq!(part(&content, AUTHORITY_KEY), ours.certificate);
}

#[test]
fn a_copy_has_the_certificate_of_the_user_and_every_authority() {
    let own = secret(&[(CERTIFICATE_KEY, "certificate"), (PRIVATE_KEY, "key"), (AUTHORITY_KEY, "theirs")]);
    let copy = copied(&own, &secret(&[(AUTHORITY_KEY, "all")])).expect("all is there");
    let parts = [CERTIFICATE_KEY, PRIVATE_KEY, AUTHORITY_KEY].map(|key| part(&copy, key));
    assert_eq!(parts, ["certificate", "key", "all"]);
    assert_eq!(copied(&secret(&[(CERTIFICATE_KEY, "certificate")]), &own), None);
}
