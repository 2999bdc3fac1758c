use std::collections::BTreeMap;

use jiff::Timestamp;

use super::*;
use crate::api::PlainClients;
use crate::auth::Auth;
use crate::form::Digest;
use crate::member::MemberProgress;
use crate::observed::{
    ClusterId, FormRecord, Formed, MemberId, Members, Order, Ordinal, Pod, Process, Seen, Set, Unanswered,
};
use crate::version::Version;

const HTTP: Schemes = Schemes { http: true, https: false };
const HTTPS: Schemes = Schemes { http: false, https: true };

fn tls(enabled: bool) -> Tls {
    Tls { enabled, ..Tls::default() }
}

fn with(peers: PeerPort) -> Transport {
    let clients = if peers == PeerPort::Http { ClientPort::Http } else { ClientPort::Both };
    Transport { clients, peers }
}

/// A cluster of as many members as there are pods, with these ports, of which etcd lists these URLs.
fn seen(in_effect: PeerPort, pods: &[PeerPort], urls: &[Schemes]) -> Observed {
    let mut seen = Observed::nothing_of("uid");
    seen.cluster.formed = Some(Formed { id: ClusterId(1), since: Timestamp::UNIX_EPOCH });
    seen.transport = Some(with(in_effect));
    seen.auth = auth(false);
    seen.record = Some(record(Some(Section::InForce)));
    let transport = Some(with(in_effect));
    seen.set = Some(Set { transport, ..Set::keeping(pods.len() as u8, "set") });
    for (ordinal, port) in (0..).map(Ordinal).zip(pods) {
        seen.pods.insert(ordinal, pod(*port));
    }
    let member = |(ordinal, schemes): (u8, &Schemes)| {
        let (ordinal, start) = (Some(Ordinal(ordinal)), MemberProgress::Published);
        let id = MemberId(u64::from(ordinal.map_or(0, |it| it.0)) + 1);
        (id, Member { ordinal, learner: false, start, schemes: *schemes })
    };
    let list: BTreeMap<_, _> = (0..).zip(urls).map(member).collect();
    if !list.is_empty() {
        seen.etcd.members = Seen::Known(Members { cluster: ClusterId(1), leader: None, list });
    }
    seen
}

fn auth(enabled: bool) -> Option<Auth> {
    Some(Auth { enabled, users: None, root_logs_in: None })
}

fn pod(port: PeerPort) -> Pod {
    Pod {
        uid: "pod".into(),
        terminating: false,
        published: true,
        etcd: Process::Started,
        form: None,
        version: None,
        transport: Some(with(port)),
        handshakes: BTreeMap::new(),
        node: None,
        loss: None,
        was_ready: false,
        agent: crate::agent::Protocol::CURRENT,
        orphaned: false,
        created: None,
    }
}

fn record(tls: Option<Section>) -> FormRecord {
    FormRecord {
        uid: "record".into(),
        form: Digest("A".into()),
        version: Version::new(3, 6, 0),
        proof: None,
        held_generation: None,
        adopts: None,
        cleared: Default::default(),
        plain: None,
        tls,
    }
}

fn next(enabled: bool, seen: &Observed) -> PeerPort {
    Switch::of(&tls(enabled), false, seen).form.peers
}

#[test]
fn peers_get_certificates_then_urls_then_listeners() {
    use PeerPort::{Http, Https, Prepared};
    assert_eq!(next(true, &seen(Http, &[Http; 3], &[HTTP; 3])), Prepared);
    assert_eq!(next(true, &seen(Http, &[Prepared, Http, Http], &[HTTP; 3])), Prepared);
    assert_eq!(next(true, &seen(Prepared, &[Prepared; 3], &[HTTP; 3])), Prepared, "URLs come first");
    let most = [Schemes::BOTH, Schemes::BOTH, HTTP];
    assert_eq!(next(true, &seen(Prepared, &[Prepared; 3], &most)), Prepared, "of every member");
    assert_eq!(next(true, &seen(Prepared, &[Prepared; 3], &[Schemes::BOTH; 3])), Https);
    assert_eq!(next(true, &seen(Https, &[Https; 3], &[Schemes::BOTH; 3])), Https);
    assert_eq!(next(true, &seen(Https, &[Https; 3], &[HTTPS; 3])), Https);
}

#[test]
fn peers_lose_them_in_the_opposite_order() {
    use PeerPort::{Http, Https, Prepared};
    assert_eq!(next(false, &seen(Https, &[Https; 3], &[HTTPS; 3])), Https, "URLs come first");
    assert_eq!(next(false, &seen(Https, &[Https; 3], &[Schemes::BOTH; 3])), Prepared);
    assert_eq!(next(false, &seen(Prepared, &[Prepared; 3], &[Schemes::BOTH; 3])), Prepared);
    let most = [HTTP, HTTP, Schemes::BOTH];
    assert_eq!(next(false, &seen(Prepared, &[Prepared; 3], &most)), Prepared);
    let turned = seen(Prepared, &[Https, Prepared, Prepared], &[HTTP; 3]);
    assert_eq!(next(false, &turned), Prepared, "one still serves TLS");
    assert_eq!(next(false, &seen(Prepared, &[Prepared; 3], &[HTTP; 3])), Http);
    assert_eq!(next(false, &seen(Http, &[Http; 3], &[HTTP; 3])), Http);
}

#[test]
fn without_a_list_of_members_a_stage_that_has_begun_goes_on_and_no_other_begins() {
    use PeerPort::{Http, Https, Prepared};
    for (in_effect, pods, enabled, expected) in [
        (Prepared, [Prepared, Prepared], true, Prepared),
        (Prepared, [Https, Prepared], true, Https),
        (Https, [Https, Https], false, Https),
        (Https, [Prepared, Https], false, Prepared),
        (Prepared, [Prepared, Prepared], false, Prepared),
        (Prepared, [Http, Prepared], false, Http),
    ] {
        let mut seen = seen(in_effect, &pods, &[]);
        seen.etcd.members = Seen::Unknown(Unanswered::NoLinearizableRead);
        assert_eq!(next(enabled, &seen), expected, "{in_effect:?} {pods:?} {enabled}");
    }
}

#[test]
fn clients_change_with_the_first_roll_and_plain_ones_stay_until_they_are_refused() {
    let asked = |plain_clients, clients| {
        let in_effect = Transport { clients, peers: PeerPort::Http };
        Transport::towards(&Tls { plain_clients, ..Tls::default() }, Some(in_effect)).clients
    };
    use ClientPort::{Both, Http, Https};
    assert_eq!([Http, Both, Https].map(|it| asked(None, it)), [Both, Both, Https]);
    assert_eq!([Http, Both, Https].map(|it| asked(Some(PlainClients::Refuse), it)), [Https; 3]);
    assert_eq!([Http, Both, Https].map(|it| asked(Some(PlainClients::Allow), it)), [Both; 3]);
    assert_eq!(Transport::towards(&tls(false), Some(Transport::TLS)), Transport::default());
    let mut seen = seen(PeerPort::Https, &[PeerPort::Https; 3], &[HTTPS; 3]);
    seen.transport = Some(Transport::TLS);
    let back = Switch::of(&tls(false), false, &seen);
    assert_eq!(back.form, Transport { clients: Http, peers: PeerPort::Https });
}

#[test]
fn what_no_operator_put_into_effect_waits_for_an_edit() {
    let plain = Some(Transport::default());
    let dormant = Section::Dormant(Box::new(tls(true)));
    let of = |asked: &Tls, applied, recorded| Section::of(asked, applied, plain, recorded);
    assert_eq!(of(&tls(true), false, None), dormant, "an operator sees it for the first time");
    assert_eq!(of(&tls(false), false, None), Section::InForce, "it is what is asked for");
    assert_eq!(of(&tls(true), false, Some(&dormant)), dormant);
    assert_eq!(of(&tls(true), true, Some(&dormant)), Section::InForce, "the annotation");
    let edited = Tls { plain_clients: Some(PlainClients::Allow), ..tls(true) };
    assert_eq!(of(&edited, false, Some(&dormant)), Section::InForce, "any edit of the section");
    assert_eq!(of(&tls(true), false, Some(&Section::InForce)), Section::InForce, "an edit");
    let begun = Some(with(PeerPort::Prepared));
    assert_eq!(Section::of(&tls(true), false, begun, None), Section::InForce, "a switch has begun");
    assert_eq!(Section::of(&tls(true), false, None, None), Section::InForce, "a new cluster");
    let mut seen = seen(PeerPort::Http, &[PeerPort::Http; 3], &[HTTP; 3]);
    seen.record = Some(record(None));
    assert_eq!(Switch::of(&tls(true), false, &seen).form, Transport::default());
}

#[test]
fn an_edit_while_the_cluster_bootstraps_takes_effect_afterwards() {
    let mut seen = seen(PeerPort::Http, &[PeerPort::Http; 3], &[HTTP; 3]);
    seen.record = None;
    seen.order = Some(Order { uid: "order".into(), armed: true, size: 3 });
    let section = |seen: &Observed| Switch::of(&tls(true), false, seen).section;
    assert_eq!(section(&seen), Section::InForce);
    if let Some(set) = &mut seen.set {
        set.unmarked = true;
    }
    assert_ne!(section(&seen), Section::InForce, "an older operator bootstrapped it");
}

#[test]
fn before_the_bootstrap_nothing_changes() {
    let mut seen = seen(PeerPort::Http, &[PeerPort::Http; 3], &[]);
    seen.cluster.formed = None;
    assert_eq!(Switch::of(&tls(true), true, &seen).form, Transport::default());
}

#[test]
fn clients_keep_tls_until_authentication_is_known_to_be_disabled() {
    let clients = |seen: &Observed, enabled: bool| Switch::of(&tls(enabled), false, seen).form.clients;
    let mut cluster = seen(PeerPort::Https, &[PeerPort::Https; 3], &[HTTPS; 3]);
    assert_eq!(clients(&cluster, false), ClientPort::Http);
    for unsafe_now in [auth(true), None] {
        cluster.auth = unsafe_now;
        assert_eq!((clients(&cluster, false), clients(&cluster, true)), (ClientPort::Both, ClientPort::Both));
    }
    cluster.auth = auth(false);
    let unknown = Seen::Unknown(Unanswered::NoLinearizableRead);
    let members = std::mem::replace(&mut cluster.etcd.members, unknown);
    assert_eq!(clients(&cluster, false), ClientPort::Both, "what is remembered proves nothing");
    (cluster.auth, cluster.etcd.members) = (None, members);
    // It was known when this pod was created.
    cluster.pods.insert(Ordinal(2), pod(PeerPort::Http));
    assert_eq!(clients(&cluster, false), ClientPort::Http);
    cluster.auth = auth(true);
    assert_eq!(clients(&cluster, false), ClientPort::Both);
}
