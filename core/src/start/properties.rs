//! What must hold whatever is seen: each property is stated without the code that it checks.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use super::tests::{address, at, nothing, url};
use super::*;
use crate::agent::Protocol;

const ME: &str = "kv-1";

/// Few names, so that they meet.
fn name() -> impl Strategy<Value = String> {
    (0..5u8).prop_map(|ordinal| format!("kv-{ordinal}"))
}

fn uid() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just("ours"), 1 => Just("theirs")].prop_map(str::to_owned)
}

fn nonce() -> impl Strategy<Value = String> {
    (1..4u8).prop_map(|number| format!("n{number}"))
}

fn order() -> impl Strategy<Value = BootstrapOrder> {
    let armed = prop_oneof![6 => Just(true), 1 => Just(false)];
    (uid(), 1..3u32, armed, nonce(), btree_set(name(), 1..6)).prop_map(
        |(cluster_uid, attempt, armed, nonce, names)| {
            let members = names.into_iter().map(|name| (name.clone(), url(&name))).collect();
            BootstrapOrder {
                protocol_version: Protocol::CURRENT,
                cluster_uid,
                attempt,
                armed,
                nonce,
                members,
            }
        },
    )
}

fn list() -> impl Strategy<Value = MemberList> {
    let members = btree_set(name(), 0..5).prop_flat_map(|names| {
        let names: Vec<String> = names.into_iter().collect();
        (Just(names.clone()), vec(prop_oneof![Just("started"), Just("named"), Just("added")], names.len()))
    });
    let said = (any::<bool>(), option::of(0..300u64));
    (1..3u64, members, said).prop_map(|(cluster_id, (names, standings), (confirmed, applied))| {
        let members = names.iter().zip(standings).zip(1..).map(|((name, standing), id)| Member {
            id,
            name: if standing == "added" { String::new() } else { name.clone() },
            peer_urls: vec![url(name)],
            client_urls: if standing == "started" { vec![url(name)] } else { vec![] },
            is_learner: false,
        });
        MemberList { cluster_id, members: members.collect(), confirmed, applied }
    })
}

fn peer() -> impl Strategy<Value = Peer> {
    let answer = prop_oneof![
        3 => list().prop_map(Answer::Members),
        3 => Just(Answer::Waiting),
        1 => Just(Answer::Refused),
        1 => Just(Answer::Silent),
        1 => Just(Answer::Unknown),
    ];
    let met_for = option::weighted(0.8, (0..20u64).prop_map(Duration::from_secs));
    (option::of(name()), met_for, any::<bool>(), answer).prop_map(|(name, met_for, ready, answer)| Peer {
        address: address(name.as_deref().unwrap_or("somebody")),
        peer_address: name.as_deref().map(at),
        met_for,
        ready,
        answer,
    })
}

fn volume() -> impl Strategy<Value = Volume> {
    let identity =
        (uid(), prop_oneof![4 => Just(ME.to_owned()), 1 => name()], btree_set(nonce(), 0..2)).prop_map(
            |(cluster_uid, name, used_nonces)| Identity { cluster_uid, name, used_nonces, incarnation: None },
        );
    (any::<bool>(), any::<bool>(), option::of(identity)).prop_map(|(has_log, has_remains, identity)| Volume {
        has_log,
        has_remains,
        identity,
    })
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let order = prop_oneof![
        1 => Just(Order::None),
        1 => Just(Order::Malformed("torn".into())),
        6 => order().prop_map(Order::There),
    ];
    let right = prop_oneof![6 => Just(true), 1 => Just(false)];
    let names = vec(right, 5).prop_map(|right| {
        let names = right.into_iter().zip(0..).map(|(right, ordinal)| (right, format!("kv-{ordinal}")));
        names.map(|(right, name)| (name.clone(), [address(if right { &name } else { "nobody" })].into()))
    });
    let rest = (
        option::of(uid()),
        option::of(1..3u32),
        btree_set(nonce(), 0..2),
        btree_set(nonce(), 0..2),
        0..60u64,
    );
    (volume(), order, vec(peer(), 0..6), names, rest).prop_map(
        |(volume, order, peers, names, (adopts, attempt, used, void_nonces, added))| {
            let remembered: BTreeSet<String> = volume
                .identity
                .iter()
                .flat_map(|identity| identity.used_nonces.clone())
                .chain(used)
                .collect();
            let added_for = Duration::from_secs(added);
            Evidence {
                volume,
                order,
                peers,
                names: names.collect(),
                adopts,
                attempt,
                used_nonces: remembered,
                void_nonces,
                added_for,
                ..nothing(ME)
            }
        },
    )
}

fn lists_of(evidence: &Evidence) -> impl Iterator<Item = (&MemberList, Option<&Member>)> {
    let me = format!("//{ME}:2380");
    evidence.lists().map(move |list| (list, list.members.iter().find(|it| it.peer_urls[0].ends_with(&me))))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_cluster_is_formed_beside_a_formed_one(evidence in evidence()) {
        if let Start::Bootstrap { .. } = decide_start(&evidence) {
            for member in evidence.lists().flat_map(|list| &list.members) {
                prop_assert!(member.client_urls.is_empty(), "somebody has published itself");
                prop_assert!(!member.name.is_empty(), "somebody was added to it");
            }
        }
    }

    #[test]
    fn an_order_is_followed_once_by_those_it_names_and_with_a_quorum(evidence in evidence()) {
        if let Start::Bootstrap { order } = decide_start(&evidence) {
            prop_assert!(order.armed);
            prop_assert!(!evidence.used_nonces.contains(&order.nonce));
            prop_assert!(!evidence.void_nonces.contains(&order.nonce));
            prop_assert_eq!(&order.cluster_uid, "ours");
            prop_assert!(order.members[ME].ends_with("://kv-1:2380"));
            prop_assert!(evidence.attempt.is_none_or(|attempt| attempt == order.attempt));
            let met = evidence.peers.iter().filter(|peer| match &peer.peer_address {
                _ if peer.met_for.is_none() => false,
                Some(address) => order.members.contains_key(&address.host),
                None => matches!(peer.answer, Answer::Members(_)),
            });
            prop_assert!((met.count() + 1) * 2 > order.members.len());
        }
    }

    #[test]
    fn without_a_log_nothing_starts_that_has_started_before(evidence in evidence()) {
        if evidence.volume.has_log {
            return Ok(());
        }
        let somebody_knows_better = evidence.lists().any(|list| list.confirmed);
        let listed_as_started = lists_of(&evidence).any(|(list, me)| {
            (list.confirmed || !somebody_knows_better) && me.is_some_and(|me| !me.client_urls.is_empty())
        });
        if listed_as_started {
            let start = decide_start(&evidence);
            prop_assert!(matches!(start, Start::Wait(_) | Start::Refuse(_)), "{start:?}");
        }
    }

    #[test]
    fn who_joins_was_added_and_a_quorum_says_so(evidence in evidence()) {
        if let Start::Join { members, fetch_until } = decide_start(&evidence) {
            let matching = lists_of(&evidence).find(|(list, me)| {
                list.confirmed && list.members == members && me.is_some_and(|me| me.name.is_empty())
            });
            prop_assert!(matching.is_some());
            if let Some(index) = fetch_until {
                let said_so = evidence.lists().any(|list| list.confirmed && list.applied == Some(index));
                prop_assert!(said_so, "nobody may ever have so many entries");
            }
        }
    }

    #[test]
    fn who_joins_early_finds_one_of_them_by_its_name(evidence in evidence()) {
        if let Start::Join { members, .. } = decide_start(&evidence) {
            let started = || members.iter().filter(|member| !member.client_urls.is_empty());
            let by_name = started().flat_map(|member| &evidence.names[&member.name]);
            let lists_one = |peer: &Peer| matches!(&peer.answer, Answer::Members(_));
            let there = |at: &IpAddr| evidence.peers.iter().any(|peer| peer.address == *at && lists_one(peer));
            let in_time = evidence.added_for < Duration::from_secs(30);
            prop_assert!(!in_time || started().count() == 0 || by_name.into_iter().any(there));
        }
    }

    #[test]
    fn a_restart_depends_on_the_volume_alone(evidence in evidence(), other in evidence()) {
        let start = decide_start(&evidence);
        let (restarts, refuses) = (matches!(start, Start::Restart { .. }), matches!(start, Start::Refuse(_)));
        prop_assert!(evidence.volume.has_log || !restarts);
        if evidence.volume.has_log {
            prop_assert!(restarts || refuses);
            let elsewhere = Evidence { volume: evidence.volume, adopts: evidence.adopts, ..other };
            prop_assert_eq!(decide_start(&elsewhere), start);
        }
    }

    #[test]
    fn nothing_starts_on_a_volume_of_others(evidence in evidence()) {
        let start = decide_start(&evidence);
        let Some(identity) = &evidence.volume.identity else { return Ok(()) };
        let foreign = identity.cluster_uid != "ours" && evidence.adopts.as_ref() != Some(&identity.cluster_uid);
        if foreign || identity.name != ME {
            prop_assert!(matches!(start, Start::Refuse(_)), "{start:?}");
        }
    }
}
