//! Scenarios as text, and what must hold whatever is seen.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::*;
use crate::agent::Protocol;
use crate::recovery::ForcedStart;

const SCENARIOS: &str = include_str!("scenarios.txt");

#[test]
fn scenarios() {
    let mut wrong = Vec::new();
    let blocks: Vec<&str> = SCENARIOS.split("\n== ").skip(1).collect();
    for block in &blocks {
        let (title, rest) = block.split_once('\n').expect("a title");
        let (seen, expected) = rest.split_once("-> ").expect("a verdict");
        let verdict = told(&decide_start(&evidence(seen)));
        if verdict != expected.trim() {
            wrong.push(format!("{title}\n  expected {}\n  but was  {verdict}", expected.trim()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(blocks.len() > 60, "only {} scenarios were read", blocks.len());
}

#[test]
fn an_order_is_void_once_a_cluster_of_its_pods_is_seen_and_no_stranger_makes_it_so() {
    let voided = |peers: &str| {
        let evidence = evidence(&format!("order: n1 for kv-0 kv-1 kv-2\n{peers}"));
        voided_order(&evidence).map(str::to_owned)
    };
    assert_eq!(voided("peer kv-0: lists kv-0 started, kv-1 named, kv-2 started"), Some("n1".into()));
    assert_eq!(voided("peer kv-0: lists kv-0 started"), Some("n1".into()));
    assert_eq!(voided("peer kv-0: lists kv-0 named, kv-1 named, kv-2 named"), None);
    assert_eq!(voided("peer ?: lists other-0 started"), None);
    assert_eq!(voided("peer kv-0: waiting"), None);
}

#[test]
fn members_are_read_as_etcd_writes_them() {
    let text = r#"[{"id":10501334649042878790,"peerURLs":["http://kv-0:2380"],"name":"kv-0","clientURLs":["http://kv-0:2379"]},
        {"id":1,"peerURLs":["http://kv-1:2380"],"isLearner":true}]"#;
    let members: Vec<Member> = serde_json::from_str(text).expect("it is a list");
    assert_eq!(members[0].id, 10501334649042878790);
    assert_eq!(
        members.iter().map(Member::progress).collect::<Vec<_>>(),
        [MemberProgress::Published, MemberProgress::Added]
    );
    assert!(members[1].is_learner);
}

fn told(start: &Start) -> String {
    match start {
        Start::Restart { adopt: false } => "restart".into(),
        Start::Restart { adopt: true } => "restart, adopting".into(),
        Start::Join { members, fetch_until } => {
            let first = fetch_until.map(|index| format!("fetch {index}, then ")).unwrap_or_default();
            let words = members.iter().map(|member| {
                let name = member.peer_addresses().next().expect("an address").host;
                let progress = match member.progress() {
                    MemberProgress::Added => "added",
                    MemberProgress::Listed => "named",
                    MemberProgress::Published => "started",
                };
                format!("{name} {progress}")
            });
            format!("{first}join {}", words.collect::<Vec<_>>().join(", "))
        }
        Start::Force { order } => format!("force {}", order.nonce),
        Start::Bootstrap { order } => format!("bootstrap {}", order.nonce),
        Start::Wait(waiting) => format!("wait {}: {waiting}", waiting.reason()),
        Start::Refuse(refusal) => format!("refuse {}: {refusal}", refusal.reason()),
    }
}

pub fn url(name: &str) -> String {
    format!("http://{name}:2380")
}

pub fn at(name: &str) -> PeerAddress {
    PeerAddress { host: name.into(), port: 2380 }
}

pub fn nothing(me: &str) -> Evidence {
    Evidence {
        name: me.into(),
        peer_address: at(me),
        cluster_uid: "ours".into(),
        adopts: None,
        attempt: None,
        volume: Volume::default(),
        used_nonces: BTreeSet::new(),
        void_nonces: BTreeSet::new(),
        order: Order::None,
        recovery: None,
        peers: Vec::new(),
        names: BTreeMap::new(),
        added_for: Duration::ZERO,
        whole_log_until: 100,
    }
}

/// Where a pod is, by the number in its name.
pub fn address(name: &str) -> IpAddr {
    let number: String = name.chars().filter(char::is_ascii_digit).collect();
    Ipv4Addr::new(10, 0, 0, number.parse().unwrap_or(255)).into()
}

pub fn evidence(text: &str) -> Evidence {
    let mut evidence = nothing("kv-1");
    evidence.names =
        (0..3).map(|n| format!("kv-{n}")).map(|it| (it.clone(), [address(&it)].into())).collect();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (key, value) = line.split_once(": ").unwrap_or_else(|| panic!("no key: {line}"));
        match key {
            "me" => (evidence.name, evidence.peer_address) = (value.into(), at(value)),
            "adopts" => evidence.adopts = Some(value.into()),
            "attempt" => evidence.attempt = value.parse().ok(),
            "used" => evidence.used_nonces = [value.to_owned()].into(),
            "void" => evidence.void_nonces = [value.to_owned()].into(),
            "whole log until" => evidence.whole_log_until = value.parse().expect("a number"),
            "added for" => evidence.added_for = duration(value),
            "order" => evidence.order = order(value),
            _ if key.starts_with("name ") => {
                let found = value.split(' ').filter(|pod| *pod != "nowhere").map(address).collect();
                evidence.names.insert(key["name ".len()..].into(), found);
            }
            "volume" => {
                evidence.volume = volume(value);
                evidence
                    .used_nonces
                    .extend(evidence.volume.identity.iter().flat_map(|it| it.used_nonces.clone()));
            }
            _ => {
                let name = key.strip_prefix("peer ").unwrap_or_else(|| panic!("unknown key: {line}"));
                evidence.peers.push(peer(name, value));
            }
        }
    }
    evidence
}

fn volume(text: &str) -> Volume {
    let mut words = text.split(", ");
    let (has_log, has_remains) = match words.next() {
        Some("log") => (true, true),
        Some("remains") => (false, true),
        Some("empty") => (false, false),
        other => panic!("{other:?} is no volume"),
    };
    let identity = words.next().and_then(|word| word.strip_prefix("of ")).map(|whose| {
        let (uid, name) = whose.split_once(' ').expect("a cluster and a pod");
        let used = words.next().and_then(|word| word.strip_prefix("used "));
        Identity {
            cluster_uid: uid.into(),
            name: name.into(),
            used_nonces: used.map(str::to_owned).into_iter().collect(),
            incarnation: None,
        }
    });
    Volume { has_log, has_remains, identity }
}

fn order(text: &str) -> Order {
    let Some((nonce, rest)) = text.split_once(" for ") else {
        return Order::Malformed("torn".into());
    };
    let (rest, armed) = rest.strip_suffix("; not armed").map_or((rest, true), |rest| (rest, false));
    let (names, uid) = rest.split_once("; of ").unwrap_or((rest, "ours"));
    let (names, scheme) = names.strip_suffix(" with TLS").map_or((names, "http"), |names| (names, "https"));
    Order::There(BootstrapOrder {
        protocol_version: Protocol::CURRENT,
        cluster_uid: uid.into(),
        attempt: 1,
        armed,
        nonce: nonce.into(),
        members: names.split(' ').map(|name| (name.to_owned(), format!("{scheme}://{name}:2380"))).collect(),
    })
}

fn peer(name: &str, text: &str) -> Peer {
    let (text, met) = text.split_once(", met ").unwrap_or((text, "0s"));
    let (text, ready) = text.strip_suffix(", ready").map_or((text, false), |text| (text, true));
    let answer = match text {
        "waiting" => Answer::Waiting,
        "refused" => Answer::Refused,
        "silent" => Answer::Silent,
        "unknown" => Answer::Unknown,
        _ => {
            Answer::Members(list(text.strip_prefix("lists ").unwrap_or_else(|| panic!("no answer: {text}"))))
        }
    };
    let met_for = (met != "never").then(|| duration(met));
    Peer { address: address(name), peer_address: (name != "?").then(|| at(name)), met_for, ready, answer }
}

pub fn list(text: &str) -> MemberList {
    let mut parts = text.split("; ");
    let names = parts.next().unwrap_or_default();
    let mut list = MemberList { cluster_id: 1, members: Vec::new(), confirmed: false, applied: None };
    for part in parts {
        match part.split_once(' ') {
            Some(("cluster", id)) => list.cluster_id = id.parse().expect("a number"),
            Some(("applied", index)) => list.applied = index.parse().ok(),
            _ => list.confirmed = part == "confirmed",
        }
    }
    for member in names.split(", ").filter(|names| *names != "nobody") {
        let (name, progress) = member.split_once(' ').expect("a name and its progress");
        let (progress, scheme) =
            progress.strip_suffix(" with TLS").map_or((progress, "http"), |progress| (progress, "https"));
        let (progress, host) = progress.split_once(" at ").unwrap_or((progress, name));
        let number: String = name.chars().filter(char::is_ascii_digit).collect();
        list.members.push(Member {
            id: 0x10 + number.parse::<u64>().expect("names end in a number"),
            name: if progress == "added" { String::new() } else { name.into() },
            peer_urls: vec![format!("{scheme}://{host}:2380")],
            client_urls: if progress == "started" { vec![format!("http://{name}:2379")] } else { vec![] },
            is_learner: false,
        });
    }
    list
}

fn duration(text: &str) -> Duration {
    let milliseconds = match text.strip_suffix("ms") {
        Some(number) => number.parse().ok(),
        None => {
            text.strip_suffix('s').and_then(|number| number.parse::<u64>().ok()).map(|seconds| seconds * 1000)
        }
    };
    Duration::from_millis(milliseconds.unwrap_or_else(|| panic!("no duration: {text}")))
}

#[test]
fn a_recovery_order_is_used_once_by_the_pod_that_it_names_on_a_volume_with_its_own_log() {
    let order = |cluster_uid: &str, survivor: Option<&str>| RecoveryOrder {
        protocol_version: Protocol::CURRENT,
        cluster_uid: cluster_uid.into(),
        nonce: "r1".into(),
        start: survivor.map(|it| ForcedStart { survivor: it.into(), replaces: "uid".into() }),
    };
    let decided = |described: &str, recovery: RecoveryOrder| {
        told(&decide_start(&Evidence { recovery: Some(recovery), ..evidence(described) }))
    };
    let log = "volume: log, of ours kv-1";
    assert_eq!(decided(log, order("ours", Some("kv-1"))), "force r1");
    // Once, as the volume or the pod remembers it.
    assert_eq!(decided("volume: log, of ours kv-1, used r1", order("ours", Some("kv-1"))), "restart");
    assert_eq!(decided("volume: log, of ours kv-1\nused: r1", order("ours", Some("kv-1"))), "restart");
    // Not armed, for another pod, for another cluster.
    for other in [order("ours", None), order("ours", Some("kv-0")), order("theirs", Some("kv-1"))] {
        assert_eq!(decided(log, other), "restart");
    }
    // Never in place of a refusal, and never without a log.
    for described in ["volume: log, of theirs kv-1", "volume: log, of ours kv-0", "volume: remains"] {
        let start = decided(described, order("ours", Some("kv-1")));
        assert!(start.starts_with("refuse"), "{described}: {start}");
    }
    for described in
        ["volume: empty", "volume: empty, of ours kv-1", "volume: empty\npeer kv-0: lists kv-1 started"]
    {
        let start = decided(described, order("ours", Some("kv-1")));
        assert!(start.starts_with("wait"), "{described}: {start}");
    }
}
