use serde_json::json;

use super::*;
use crate::api::MemberStatus;
use crate::decide::{Goal, decide};
use crate::validate::validate;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time in range")
}

fn cluster(spec: serde_json::Value) -> EtcdCluster {
    let mut cluster = EtcdCluster::new("kv", serde_json::from_value(spec).expect("it is a spec"));
    cluster.metadata.generation = Some(1);
    cluster
}

fn plain() -> EtcdCluster {
    cluster(json!({"security": {"tls": {"enabled": false}}}))
}

/// A look at a cluster of which nothing is there yet.
fn look(cluster: &EtcdCluster, now: Timestamp) -> Option<EtcdClusterStatus> {
    let intent = validate(cluster);
    let names = Names::new("ns", "kv", "cluster.local");
    let seen = Observed { now, ..Observed::nothing_of("uid") };
    let goal = intent.as_ref().map_or_else(|_| Goal::in_effect(&cluster.spec, 0), Goal::from);
    let plan = decide(&goal, &seen);
    let basis = Basis {
        goal: &goal,
        spec: intent.as_ref().map_err(Vec::as_slice),
        names: &names,
        seen: &seen,
        plan: &plan,
        trouble: None,
        failed_writes: &[],
        not_applied: &[],
        edited: &[],
        agents: &BTreeMap::new(),
    };
    of_cluster(cluster, &basis, now)
}

fn settled() -> EtcdCluster {
    let mut cluster = plain();
    cluster.status = look(&cluster, at(0));
    cluster
}

#[test]
fn an_edit_is_acknowledged_without_pretending_that_anything_turned() {
    let mut cluster = settled();
    cluster.metadata.generation = Some(2);
    let next = look(&cluster, at(60)).expect("the generation moved");
    assert_eq!(next.observed_generation, Some(2));
    for condition in &next.conditions {
        assert_eq!(condition.observed_generation, Some(2));
        assert_eq!(condition.last_transition_time, Time(at(0)), "{}", condition.type_);
    }
}

#[test]
fn a_condition_that_turns_gets_a_new_time() {
    let mut cluster = settled();
    let status = cluster.status.as_mut().expect("settled");
    status.conditions[0].status = "True".into();
    let next = look(&cluster, at(60)).expect("somebody claimed that it is ready");
    assert_eq!(next.conditions[0].last_transition_time, Time(at(60)));
    assert_eq!(next.conditions[1].last_transition_time, Time(at(0)));
}

#[test]
fn conditions_of_others_are_left_alone() {
    let mut cluster = settled();
    let status = cluster.status.as_mut().expect("settled");
    let mut foreign = status.conditions[0].clone();
    foreign.type_ = "example.org/Audited".into();
    status.conditions.push(foreign);
    status.conditions.reverse();
    assert_eq!(look(&cluster, at(60)), None);
}

#[test]
fn while_nothing_changes_only_the_time_of_the_last_look_is_renewed_now_and_then() {
    let mut cluster = settled();
    assert_eq!(look(&cluster, at(299)), None);
    let next = look(&cluster, at(300)).expect("it is time");
    assert_eq!((&next.observed_at, &next.last_update_time), (&Some(Time(at(300))), &Some(Time(at(0)))));
    let before = cluster.status.clone().expect("settled");
    assert_eq!(next, EtcdClusterStatus { observed_at: Some(Time(at(300))), ..before });
    assert_eq!(next_heartbeat(&cluster), Some(at(300)));
    cluster.status = Some(next);
    assert_eq!(look(&cluster, at(301)), None);
    assert_eq!(next_heartbeat(&cluster), Some(at(600)));
    assert_eq!(next_heartbeat(&plain()), None);
}

#[test]
fn what_cannot_be_observed_again_is_never_dropped_and_never_changed() {
    let mut cluster = settled();
    let mut status = cluster.status.clone().expect("settled");
    (status.cluster_id, status.formed_at) = (Some("c1".into()), Some(Time(at(10))));
    status.domain = Some("home.arpa".into());
    status.last_backup_time = Some(Time(at(5)));
    status.members = vec![MemberStatus { id: Some("a0".into()), ..MemberStatus::default() }];
    cluster.status = Some(status.clone());
    cluster.spec.size = 12;
    let invalid = look(&cluster, at(30)).expect("the spec became invalid");
    assert_eq!(invalid.members.len(), 1);
    cluster.status = Some(invalid);
    cluster.spec.size = 3;
    let next = look(&cluster, at(40)).expect("the spec became valid");
    assert_eq!(next.cluster_id, status.cluster_id);
    assert_eq!(next.formed_at, status.formed_at);
    assert_eq!(next.domain, status.domain);
    assert_eq!(next.last_backup_time, status.last_backup_time);
}

#[test]
fn others_find_the_pods_and_the_way_in() {
    let status = settled().status.expect("settled");
    assert_eq!(status.selector.as_deref(), Some("app.kubernetes.io/name=etcd,etcd.etcd.io/cluster=kv"));
    assert_eq!(status.client_endpoints, ["http://kv-client.ns.svc.cluster.local:2379"]);
}
