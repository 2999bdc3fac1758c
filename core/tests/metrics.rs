//! The numbers of a cluster, for snapshots in the words of the scenarios.

#[allow(dead_code)]
#[path = "scenarios/snapshot.rs"]
mod snapshot;

use etcd_operator_core::decide::decide;
use etcd_operator_core::metrics::{ALL, Sample, Scope, of_observation};

fn samples(described: &str) -> Vec<Sample> {
    let (goal, seen) = snapshot::read(described).expect("it is a description");
    let plan = decide(&goal, &seen);
    of_observation(&goal, &seen, &plan)
}

/// As in a query, without what all of them begin with, and without what is 0.
fn numbers(described: &str) -> Vec<String> {
    let shown = |it: &Sample| {
        let name = it.metric.name.trim_start_matches("etcd_operator_cluster_");
        let labels: Vec<_> = it.metric.labels.iter().zip(it.values).map(|(_, value)| value).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        format!("{name}{labels} {}", it.value)
    };
    let all = samples(described);
    all.iter().filter(|it| it.value != 0.0 && !it.metric.name.contains("timestamp")).map(shown).collect()
}

#[test]
fn three_members_that_serve_can_spare_one() {
    let expected = ["wanted_members 3", "ready_members 3", "members{serving} 3", "quorum_margin 1"];
    assert_eq!(numbers("running 3"), expected);
}

#[test]
fn a_member_that_is_down_costs_the_margin() {
    let found = numbers("running 3\nmember a2 silent");
    for expected in ["ready_members 2", "members{silent} 1"] {
        assert!(found.contains(&expected.to_owned()), "no {expected}: {found:?}");
    }
    assert!(!found.iter().any(|it| it.starts_with("quorum_margin")), "it is 0: {found:?}");
}

#[test]
fn without_a_proven_quorum_nothing_is_claimed_of_members() {
    let found = samples("running 3\netcd unknown\ngoal 1");
    let names: Vec<_> = found.iter().map(|it| it.metric.name).collect();
    for absent in ["quorum_margin", "cluster_members", "learners", "alarms"] {
        assert!(!names.iter().any(|it| it.ends_with(absent)), "{absent}: {names:?}");
    }
    let ready = found.iter().find(|it| it.metric.name.ends_with("ready_members"));
    assert_eq!(ready.map(|it| it.value), Some(0.0));
    assert!(numbers("running 3\netcd unknown\ngoal 1").contains(&"waits{MembersUnreachable} 1".to_owned()));
}

#[test]
fn learners_alarms_and_refusals_are_counted() {
    let found =
        numbers("running 3\ngoal 4\nset 4\npod 3 started\nclaim 3 member=a3\nmember a3 learner index=10");
    for expected in ["wanted_members 4", "learners 1", "members{catching_up} 1", "waits{CatchingUp} 1"] {
        assert!(found.contains(&expected.to_owned()), "no {expected}: {found:?}");
    }
    for (raised, expected) in [("NOSPACE", "alarms{NOSPACE} 1"), ("SHINY", "alarms{other} 1")] {
        let found = numbers(&format!("running 3\nalarm {raised} a1"));
        assert!(found.contains(&expected.to_owned()), "no {expected}: {found:?}");
    }
    let found = numbers("running 3\npod 1 terminating\ngoal 2");
    assert!(found.contains(&"refusals{QuorumAtRisk} 1".to_owned()), "{found:?}");
}

#[test]
fn every_sample_is_of_a_cluster_and_has_as_many_values_as_labels() {
    for described in
        ["running 3", "running 3\nalarm CORRUPT a0\nmember a2 silent", "order 3\nset 3\npods 0-2 failing"]
    {
        for Sample { metric, values, .. } in samples(described) {
            assert!(ALL.contains(&metric) && metric.scope == Scope::Cluster, "{}", metric.name);
            let given = values.iter().filter(|it| !it.is_empty()).count();
            assert_eq!(given, metric.labels.len(), "{}", metric.name);
        }
    }
}
