//! The Secrets of a cluster with TLS.

use std::collections::BTreeSet;

use etcd_operator_core::api::{CERT_MANAGER, IssuerRef};
use etcd_operator_core::decide::Goal;
use etcd_operator_core::names::Names;
use etcd_operator_core::observed::{Handshake, Observed, Ordinal, Process, Secret, Seen};
use etcd_operator_core::tls::{
    Authority, Certificate, Chain, Flaw, Given, Issuance, Key, Lack, Leaf, Profile, Purpose, Root, Scheme,
    Source, Transport, Usage, Verified, profiles,
};

use super::{Result, at, number};

pub fn names() -> Names {
    Names::new("ns", "kv", "cluster.local")
}

/// What is wanted; with `in-effect`, pods are made with it, too.
pub fn read_tls(words: &[&str], goal: &mut Goal, seen: &mut Observed) -> Result<()> {
    let (&which, rest) = words.split_first().ok_or("tls both, clients, peers or none")?;
    let scheme = |used: bool| if used { Scheme::Https } else { Scheme::Http };
    let transport = match which {
        "both" | "clients" | "peers" | "none" => Transport {
            clients: scheme(["both", "clients"].contains(&which)).into(),
            peers: scheme(["both", "peers"].contains(&which)).into(),
        },
        _ => return Err(format!("{which} is not understood")),
    };
    goal.certificates = profiles(&names(), transport);
    seen.transport = rest.contains(&"in-effect").then_some(transport);
    Ok(())
}

/// What the client port and the peer port serve: `ports=both/prepared`.
pub fn ports(word: &str) -> Result<Transport> {
    let (clients, peers) =
        word.trim_start_matches("ports=").split_once('/').ok_or(format!("{word} is not understood"))?;
    let read = serde_json::from_value(serde_json::json!({"clients": clients, "peers": peers}));
    read.map_err(|error| format!("{word}: {error}"))
}

/// `issuer=no-api`: cert-manager is asked for what is given, and this is how far it is.
fn issuance(word: &str) -> Result<Issuance> {
    Ok(match word {
        "no-api" => Issuance::NoApi,
        "forbidden" => Issuance::Unreadable("certificates is forbidden".into()),
        "requested" => Issuance::Requested,
        "not-ready" => Issuance::NotReady("Issuer company is not found".into()),
        "ready" => Issuance::Ready,
        _ => return Err(format!("{word} is not understood")),
    })
}

/// `given A`: what a user gives is the certificate `own-1` of authority A, and can be used, unless the words say otherwise.
pub fn read_given(words: &[&str], goal: &mut Goal, seen: &mut Observed) -> Result<()> {
    let (&signer, rest) = words.split_first().ok_or("given AUTHORITY, or given none")?;
    let server = goal.certificates.get_mut(&Purpose::Server).ok_or("clients do not use TLS")?;
    if signer == "none" {
        (server.source, seen.given) = (Source::Operator, None);
        return Ok(());
    }
    server.source =
        Source::Secrets { certificate: "own".into(), authorities: Some("own-ca".into()), issuer: None };
    let (not_before, not_after) = server.validity(at(0));
    let certificate = Certificate {
        common_name: "etcd.example.com".into(),
        dns_names: server.dns_names.clone(),
        ip_addresses: server.ip_addresses.clone(),
        not_before,
        not_after,
        signed_by: Some(signer.into()),
        trusts: BTreeSet::new(),
        fingerprint: "own-1".into(),
    };
    let mut leaf = Leaf { certificate, serves: true, connects: true, is_authority: false };
    let root = |key: &str| Root { authority: named(key), not_after: at(1 << 36), is_authority: true };
    let (mut roots, mut verified) =
        (vec![root(signer)], Verified { key: Key::Matches, chain: Chain::Complete });
    let (mut own, mut authorities, mut reported) = (None, None, None);
    for word in rest {
        match word.split_once('=').unwrap_or((word, "")) {
            ("issuer", word) => {
                let (name, kind) = ("company".into(), "Issuer".into());
                let issuer = Some(IssuerRef { name, kind, group: CERT_MANAGER.into() });
                let certificate = names().issued();
                server.source = Source::Secrets { certificate, authorities: None, issuer };
                reported = Some(issuance(word)?);
            }
            ("certificate", name) => leaf.certificate.fingerprint = name.into(),
            ("expires", second) => leaf.certificate.not_after = at(number(second)?),
            ("begins", second) => leaf.certificate.not_before = at(number(second)?),
            ("authorities", keys) => roots = keys.split(',').map(root).collect(),
            ("other-names", "") => leaf.certificate.dns_names.truncate(12),
            ("no-addresses", "") => leaf.certificate.ip_addresses.clear(),
            ("no-client-usage", "") => leaf.connects = false,
            ("no-usages", "") => (leaf.serves, leaf.connects) = (false, false),
            ("is-authority", "") => leaf.is_authority = true,
            ("other-key", "") => verified.key = Key::Differs,
            ("unreadable-key", "") => verified.key = Key::Unreadable,
            ("other-chain", "") => verified.chain = Chain::Broken("none of them issued it".into()),
            ("expired-authority", "") => roots[0].not_after = at(50),
            ("no-authority", "") => roots[0].is_authority = false,
            ("same-name", "") => roots[0].authority.subject = named("client-ca").subject,
            ("no-secret", "") => own = Some(Lack::NoSecret),
            ("of-the-operator", "") => own = Some(Lack::OfTheOperator),
            ("malformed", "") => own = Some(Lack::Flaw(Flaw::Malformed("tls.crt".into()))),
            ("no-authorities", "") => authorities = Some(Lack::Flaw(Flaw::Missing("ca.crt".into()))),
            ("one-secret", "") => {
                server.source =
                    Source::Secrets { certificate: "own".into(), authorities: None, issuer: None };
            }
            _ => return Err(format!("{word} is not understood")),
        }
    }
    if server.source.issuer().is_some() && own == Some(Lack::NoSecret) {
        authorities = Some(Lack::NoSecret);
    }
    if own.is_some() || authorities.is_some() {
        verified = Verified { key: Key::Unreadable, chain: Chain::Unknown };
    }
    let certificate = own.map_or(Seen::Known(leaf), Seen::Unknown);
    let authorities = authorities.map_or(Seen::Known(roots), Seen::Unknown);
    seen.given = Some(Given { certificate, authorities, verified, issuance: reported });
    Ok(())
}

pub fn read_secret(which: &str, words: &[&str], goal: &Goal, seen: &mut Observed) -> Result<()> {
    let found = Purpose::ALL.into_iter().filter(|it| which == "all" || it.suffix() == which);
    let purposes: Vec<_> = found.filter(|it| goal.certificates.contains_key(it)).collect();
    if purposes.is_empty() {
        return Err(format!("no Secret {which} is wanted"));
    }
    for purpose in purposes {
        if words == ["gone"] {
            seen.secrets.remove(&purpose);
            continue;
        }
        let secret = secret(purpose, &goal.certificates[&purpose], words)?;
        seen.secrets.insert(purpose, secret);
        seen.versions.secrets.insert(purpose, "7".into());
    }
    Ok(())
}

/// Issued by the authority of its purpose at second 0, unless the words say otherwise.
fn secret(purpose: Purpose, profile: &Profile, words: &[&str]) -> Result<Secret> {
    let authority = purpose.issuer().unwrap_or(purpose).suffix();
    let (not_before, not_after) = profile.validity(at(0));
    let mut certificate = Certificate {
        common_name: profile.common_name.clone(),
        dns_names: profile.dns_names.clone(),
        ip_addresses: profile.ip_addresses.clone(),
        not_before,
        not_after,
        signed_by: Some(authority.into()),
        trusts: BTreeSet::from([named(authority)]),
        fingerprint: format!("{}-held", purpose.suffix()),
    };
    let (mut next, mut given, mut copied) = (None, BTreeSet::new(), None);
    let uid = format!("{}-uid", purpose.suffix());
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("expires", second) => certificate.not_after = at(number(second)?),
            ("foreign", "") if profile.usage == Usage::Authority => {
                certificate.signed_by = Some("another".into());
                certificate.trusts = BTreeSet::from([named("another")]);
            }
            ("issued", second) => {
                (certificate.not_before, certificate.not_after) = profile.validity(at(number(second)?));
            }
            ("signer", key) => certificate.signed_by = Some(key.into()),
            ("trusts", keys) => certificate.trusts = keys.split(',').map(named).collect(),
            ("next", key) => next = Some(named(key)),
            ("given", keys) => given = keys.split(',').map(named).collect(),
            ("copied", second) => copied = Some(at(number(second)?)),
            ("certificate", name) => certificate.fingerprint = name.into(),
            ("foreign", "") => certificate.signed_by = Some("another".into()),
            ("other-names", "") => certificate.dns_names = vec!["kv.example.com".into()],
            ("malformed", "") => {
                let certificate = Seen::Unknown(Flaw::Malformed("tls.crt".into()));
                return Ok(Secret { uid, certificate, next, given, copied });
            }
            _ => return Err(format!("{word} is not understood")),
        }
    }
    Ok(Secret { uid, certificate: Seen::Known(certificate), next, given, copied })
}

fn named(key: &str) -> Authority {
    Authority { key: key.into(), subject: format!("CN={key}"), fingerprint: key.into() }
}

/// `peer-tls old`, `peer-tls trusts=A,B`, `peer-tls silent`: what a port of a pod shows instead of what its Secret holds.
pub fn read_port(ordinal: Ordinal, words: &[&str], seen: &mut Observed) -> Result<()> {
    let (&which, rest) = words.split_first().ok_or("port ORDINAL peer-tls or server-tls")?;
    let served = Purpose::ALL.into_iter().filter(|it| it.port().is_some());
    let purpose = served.into_iter().find(|it| it.suffix() == which).ok_or("no such port")?;
    let held = shown(seen, purpose).ok_or("there is no such Secret")?;
    let pod = seen.pods.get_mut(&ordinal).ok_or("there is no such pod")?;
    let Seen::Known(mut handshake) = held else { return Ok(()) };
    for word in rest {
        match word.split_once('=').unwrap_or((word, "")) {
            ("held", "") => {
                pod.handshakes.remove(&purpose);
                return Ok(());
            }
            ("silent", "") => {
                pod.handshakes.insert(purpose, Seen::Unknown("connection refused".into()));
                return Ok(());
            }
            ("old", "") => handshake.certificate = format!("{which}-old"),
            ("trusts", keys) => handshake.trusts = keys.split(',').map(|it| named(it).subject).collect(),
            _ => return Err(format!("{word} is not understood")),
        }
    }
    pod.handshakes.insert(purpose, Seen::Known(handshake));
    Ok(())
}

/// Ports show what their Secrets hold, unless a line says otherwise.
pub fn show_secrets(seen: &mut Observed) {
    for purpose in Purpose::ALL.into_iter().filter(|it| it.port().is_some()) {
        let Some(held) = shown(seen, purpose) else { continue };
        let running = seen.pods.values_mut().filter(|pod| pod.etcd == Process::Started);
        for pod in running {
            pod.handshakes.entry(purpose).or_insert_with(|| held.clone());
        }
    }
}

fn shown(seen: &Observed, purpose: Purpose) -> Option<Seen<Handshake, String>> {
    let held = seen.secrets.get(&purpose)?.certificate.known()?;
    let trusts = held.trusts.iter().map(|it| it.subject.clone()).collect();
    Some(Seen::Known(Handshake { certificate: held.fingerprint.clone(), trusts }))
}
