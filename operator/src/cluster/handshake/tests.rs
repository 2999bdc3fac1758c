use std::net::{IpAddr, Ipv4Addr};

use etcd_operator_core::desired::secret;
use etcd_operator_core::names::Names;
use etcd_operator_core::tls::{self, ClientPort, Transport, profiles};
use jiff::Timestamp;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::sign::SingleCertAndKey;

use super::*;
use crate::certificates::issue;

fn names() -> Names {
    Names::new("ns", "kv", "cluster.local")
}

/// Of one cluster: what its client port has, and what the operator has.
fn issued() -> [Secret; 2] {
    let clients = Transport { clients: ClientPort::Https, ..Transport::default() };
    let profiles = profiles(&names(), clients);
    let of = |purpose: Purpose, authority: Option<&Secret>| {
        let content = issue(&profiles[&purpose], authority, Timestamp::now()).expect("it is issued");
        secret(purpose, &names(), "uid", content)
    };
    let authority = of(Purpose::ClientAuthority, None);
    [Purpose::Server, Purpose::Operator].map(|it| of(it, Some(&authority)))
}

fn part<'a>(secret: &'a Secret, key: &str) -> &'a [u8] {
    &secret.data.as_ref().expect("it has data")[key].0
}

/// What is seen of a port of a member with this Secret, which something serves with this chain and key, and trusts this.
async fn seen(held: &Secret, chain: &[u8], key: &[u8], trusts: &[u8]) -> Result<Handshake, String> {
    let verifier = WebPkiClientVerifier::builder_with_provider(
        Arc::new(authorities(trusts).expect("authorities")),
        Arc::clone(&PROVIDER),
    );
    let config = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_safe_default_protocol_versions()
        .expect("ciphers")
        .with_client_cert_verifier(verifier.build().expect("it has authorities"))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified_key(chain, key).expect("they match"))));
    let (near, far) = tokio::io::duplex(16 * 1024);
    let serving =
        tokio::spawn(async move { TlsAcceptor::from(Arc::new(config)).accept(far).await.map(drop) });
    let pod = PodAddress {
        namespace: "ns".into(),
        pod: "kv-0".into(),
        uid: "uid-0".into(),
        address: IpAddr::from(Ipv4Addr::LOCALHOST),
    };
    let host = names().pod_host(Ordinal(0));
    let port = Port {
        ordinal: Ordinal(0),
        purpose: Purpose::Server,
        pod,
        number: 2379,
        host,
        trusted: Arc::new(held.clone()),
        own: None,
    };
    let seen = shown(near, &port).await;
    drop(serving.await);
    seen
}

#[tokio::test]
async fn a_port_shows_what_its_secret_holds_although_it_refuses_the_operator() {
    let [server, _] = issued();
    let [chain, key, trusts] = [CERTIFICATE_KEY, PRIVATE_KEY, AUTHORITY_KEY].map(|key| part(&server, key));
    let held = tls::read(server.data.as_ref()).expect("it can be read");
    let expected = Handshake {
        certificate: held.fingerprint,
        trusts: held.trusts.into_iter().map(|it| it.subject).collect(),
    };
    assert_eq!(seen(&server, chain, key, trusts).await, Ok(expected));
}

#[tokio::test]
async fn a_chain_is_another_certificate_than_its_first_one_alone() {
    let [server, _] = issued();
    let [chain, key, trusts] = [CERTIFICATE_KEY, PRIVATE_KEY, AUTHORITY_KEY].map(|key| part(&server, key));
    let longer = [chain, trusts].concat();
    let [one, two] = [seen(&server, chain, key, trusts).await, seen(&server, &longer, key, trusts).await];
    assert_ne!(one.expect("it is seen").certificate, two.expect("it is seen").certificate);
}

#[tokio::test]
async fn an_impostor_shows_nothing() {
    let ([server, operator], [other, _]) = (issued(), issued());
    let trusts = part(&server, AUTHORITY_KEY);
    let with = async |secret: &Secret| {
        seen(&server, part(secret, CERTIFICATE_KEY), part(secret, PRIVATE_KEY), trusts).await
    };
    let foreign = with(&other).await.expect_err("another authority issued it");
    assert_eq!(foreign, "TLS: its certificate is of an authority that the operator does not trust");
    let client = with(&operator).await.expect_err("it is for no member");
    assert!(client.starts_with("TLS: its certificate "), "{client}");
}
