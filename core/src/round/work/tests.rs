use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::Ended;
use super::*;
use crate::api::EtcdCluster;
use crate::decide::decide;
use crate::observe::{Listed, observe};
use crate::observed::{Owner, Seen, Taken, Unanswered};
use crate::plan::WaitingOn;
use crate::request::{Change, Object, OnlyIf, Role, Write};
use crate::status::Trouble;
use crate::validate::validate;

fn names() -> Names {
    Names::new("ns", "kv", "cluster.local")
}

/// Nothing but an EtcdCluster.
fn objects(metadata: &Value) -> Objects {
    let mut cluster = json!({
        "apiVersion": "etcd.etcd.io/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": "kv", "namespace": "ns", "uid": "uid", "resourceVersion": "7"},
        "spec": {"size": 1, "externalAccess": {"nodePort": {}}},
    });
    for (field, value) in metadata.as_object().expect("fields") {
        cluster["metadata"][field] = value.clone();
    }
    Objects {
        cluster: Arc::new(serde_json::from_value(cluster).expect("it is a cluster")),
        order: None,
        record: None,
        set: None,
        pods: BTreeMap::new(),
        preflights: BTreeMap::new(),
        claims: BTreeMap::new(),
        restored: None,
        elsewhere: Vec::new(),
        secrets: BTreeMap::new(),
        given: None,
        root_password: None,
        listed: Listed::new(),
        services: BTreeMap::new(),
        budget: None,
        network_policy: None,
        certificate: Default::default(),
        pod_monitor: Default::default(),
        taken: BTreeSet::new(),
        nodes: Seen::default(),
        backups: Vec::new(),
    }
}

fn with_finalizer() -> Objects {
    objects(&json!({"finalizers": [crate::names::FINALIZER]}))
}

/// What the round sends about these objects, at this second.
fn work(round: &mut Round, objects: &Objects, second: i64) -> Work {
    let now = Timestamp::from_second(second).expect("a time");
    let seen = observe(objects, &names(), &BTreeMap::new(), &BTreeMap::new(), &[], &mut round.memory, now);
    let intent = validate(&objects.cluster).expect("it is valid");
    let (goal, names) = (Goal::from(&intent), names());
    let plan = decide(&goal, &seen);
    let desired = Desired { intent: &intent, names: &names, agent_image: "op:1", operator: None };
    let considered = Considered {
        goal: &goal,
        spec: Ok(&intent),
        names: &names,
        desired: Some(&desired),
        objects,
        seen: &seen,
        plan: &plan,
    };
    round.work(&considered)
}

fn titles(work: &Work) -> Vec<String> {
    work.beside.iter().map(|effect| effect.write.title()).collect()
}

/// The objects that these writes lead to.
fn written(mut objects: Objects, work: &Work) -> Objects {
    for effect in &work.beside {
        if let Request::Kube(Write { object, change: Change::Create(content), .. }) = &effect.request {
            let mut content = content.clone();
            content["metadata"]["uid"] = "their-uid".into();
            if let Object::Service(role) = object {
                let service = serde_json::from_value(content).expect("a Service");
                objects.services.insert(*role, Arc::new(service));
            } else {
                objects.budget = Some(Arc::new(serde_json::from_value(content).expect("a budget")));
            }
        }
    }
    objects
}

#[test]
fn a_step_that_changes_the_cluster_object_comes_without_a_status_unless_it_failed() {
    let (mut round, bare) = (Round::default(), objects(&json!({})));
    let first = work(&mut round, &bare, 0);
    assert!(!titles(&first).contains(&"status".into()), "{first:?}");
    assert_eq!(first.steps, [Action::AddFinalizer]);

    round.stepped(&Action::AddFinalizer, Outcome::NotDone(Trouble::Failed("forbidden".into())));
    let second = work(&mut round, &bare, 0);
    assert_eq!((titles(&second)[0].as_str(), &second.steps[..]), ("status", &[][..]));
    let Request::Kube(Write { only_if, change: Change::Report(status), .. }) = &second.beside[0].request
    else {
        panic!("{second:?}")
    };
    assert_eq!(*only_if, OnlyIf::Unchanged("uid".into(), "7".into()));
    assert!(format!("{status:?}").contains("forbidden"), "{status:?}");

    round.sent(
        &second.beside[0],
        Outcome::NotDone(Trouble::Failed("forbidden".into())),
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(work(&mut round, &bare, 0).steps, [Action::AddFinalizer], "it does not wait for the status");

    let mut reported = EtcdCluster::clone(&bare.cluster);
    reported.status = Some((**status).clone());
    let third = work(&mut round, &Objects { cluster: Arc::new(reported), ..bare }, 0);
    assert_eq!(third.steps, [Action::AddFinalizer], "it is reported, so the step is tried again");
    assert!(!titles(&third).contains(&"status".into()), "{third:?}");
}

#[test]
fn other_steps_come_with_a_status() {
    let work = work(&mut Round::default(), &with_finalizer(), 0);
    assert_eq!(work.steps, [Action::CreateOrder { size: 1 }]);
    let expected =
        ["status", "Service kv-peer", "Service kv-client", "Service kv-nodeport", "PodDisruptionBudget kv"];
    assert_eq!(titles(&work), expected);
}

#[test]
fn services_and_the_budget_are_written_only_where_they_differ() {
    let mut round = Round::default();
    let first = work(&mut round, &with_finalizer(), 0);
    let mut complete = written(with_finalizer(), &first);
    assert_eq!(titles(&work(&mut round, &complete, 0)), ["status"]);

    let client = complete.services.get_mut(&Role::Client).map(Arc::make_mut).expect("it is there");
    client.spec.as_mut().expect("a spec").selector = None;
    let corrected = work(&mut round, &complete, 0);
    assert_eq!(titles(&corrected), ["status", "Service kv-client"]);
    let Request::Kube(write) = &corrected.beside[1].request else { panic!("{corrected:?}") };
    assert_eq!(write.only_if, OnlyIf::Same("their-uid".into()));
    assert!(matches!(write.change, Change::Apply(_)));

    let mut inside = EtcdCluster::clone(&complete.cluster);
    inside.spec.external_access = None;
    let inside = Objects { cluster: Arc::new(inside), ..written(with_finalizer(), &first) };
    let removed = work(&mut round, &inside, 0);
    assert_eq!(titles(&removed), ["status", "Service kv-nodeport"]);
    let Request::Kube(write) = &removed.beside[1].request else { panic!("{removed:?}") };
    assert_eq!(write.change, Change::Delete);
}

#[test]
fn a_name_that_is_taken_is_reported_and_not_written_until_it_is_free() {
    let mut round = Round::default();
    let mut objects = with_finalizer();
    objects.taken.insert(Taken { object: Object::Service(Role::Client), owner: Owner::Other });
    for second in [0, 0, 5] {
        let work = work(&mut round, &objects, second);
        assert!(!titles(&work).contains(&"Service kv-client".into()), "{work:?}");
        let text = "Service kv-client exists already and has another owner: delete it, or give the cluster another name";
        assert_eq!(round.writes.failed()[0].error, text);
    }
    let retry = Timestamp::from_second(100).expect("a time");
    assert_eq!(round.begin(retry), super::super::Freshness::Live, "caches do not show what is not ours");
    objects.taken.clear();
    assert!(titles(&work(&mut round, &objects, 100)).contains(&"Service kv-client".into()));
}

#[test]
fn no_step_follows_a_write_that_shows_or_hides_that_the_observation_is_outdated() {
    let failed = Outcome::NotDone(Trouble::Failed("forbidden".into()));
    let silence = Outcome::Ambiguous("no response".into());
    let ends = [(Outcome::Done, None), (failed, None)];
    let ends = ends.into_iter().chain([Outcome::Overtaken, silence].map(|it| (it, Some(Ended::Overtaken))));
    for (outcome, ended) in ends {
        let mut round = Round::default();
        let effect = &work(&mut round, &with_finalizer(), 0).beside[0];
        assert_eq!(round.sent(effect, outcome.clone(), Timestamp::UNIX_EPOCH), ended, "{outcome:?}");
    }
}

#[test]
fn what_is_not_written_any_more_has_not_failed() {
    let mut round = Round::default();
    let first = work(&mut round, &with_finalizer(), 0);
    for effect in &first.beside {
        round.sent(effect, Outcome::Ambiguous("no response".into()), Timestamp::UNIX_EPOCH);
        round.sent(effect, Outcome::Ambiguous("no response".into()), Timestamp::UNIX_EPOCH);
    }
    assert_eq!(round.writes.failed().len(), 5);
    assert_eq!(round.begin(Timestamp::UNIX_EPOCH), super::super::Freshness::Live);
    work(&mut round, &written(with_finalizer(), &first), 0);
    assert_eq!(round.writes.failed().len(), 1, "the status still differs");
}

#[test]
fn pods_of_a_deleted_cluster_end_quickly_once_their_set_is_gone() {
    let deleted =
        json!({"finalizers": [crate::names::FINALIZER], "deletionTimestamp": "1970-01-01T00:00:00Z"});
    let mut objects = objects(&deleted);
    let pod = |grace: Value| {
        let pod = json!({
            "metadata": {"name": "kv-0", "uid": "pod-uid", "deletionGracePeriodSeconds": grace, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "kv", "uid": "set-uid", "controller": true},
            ]},
            "spec": {"containers": [{"name": "etcd", "image": "etcd:v3.6.0"}]},
        });
        BTreeMap::from([(Ordinal(0), Arc::new(serde_json::from_value(pod).expect("a pod")))])
    };
    objects.pods = pod(Value::Null);
    let effect = work(&mut Round::default(), &objects, 0).beside.pop().expect("an effect");
    let Request::Kube(write) = effect.request else { panic!("{effect:?}") };
    assert_eq!(write.change, Change::DeleteWithin(2));
    objects.pods = pod(json!(2));
    assert_eq!(titles(&work(&mut Round::default(), &objects, 0)), [""; 0]);
    objects.pods = pod(Value::Null);
    objects.taken.insert(Taken { object: Object::Set, owner: Owner::Other });
    assert_eq!(titles(&work(&mut Round::default(), &objects, 0)), [""; 0], "these pods are not ours");
}

#[test]
fn agents_are_told_only_when_nothing_is_left_to_do() {
    let objects = with_finalizer();
    let now = Timestamp::UNIX_EPOCH;
    let mut seen =
        observe(&objects, &names(), &BTreeMap::new(), &BTreeMap::new(), &[], &mut Default::default(), now);
    let waits = || Seen::Unknown(Unanswered::AgentWaiting("for an order".into()));
    let silent = Seen::Unknown(Unanswered::Unreachable("no response".into()));
    seen.etcd.answers = Ordinal::below(3).zip([silent, waits(), waits()]).collect();
    let told = |plan: &Plan| {
        let intent = validate(&objects.cluster).expect("it is valid");
        let goal = Goal::from(&intent);
        let effects = messages(&Considered {
            goal: &goal,
            spec: Ok(&intent),
            names: &names(),
            desired: None,
            objects: &objects,
            seen: &seen,
            plan,
        });
        effects.iter().map(|effect| effect.write.title()).collect::<Vec<_>>()
    };
    let start = Plan::wait(WaitingOn::Start { ordinal: Ordinal(1) });
    let both = ["message to the agent in kv-1", "message to the agent in kv-2"];
    assert_eq!(told(&start), both);
    assert_eq!(told(&Plan::act(Action::AddFinalizer).then(start)), [""; 0]);
}

#[test]
fn what_the_plan_writes_is_not_written_beside_it() {
    let labels = |labels: Value| {
        let mut cluster = EtcdCluster::clone(&with_finalizer().cluster);
        let spec = json!({"size": 1, "podTemplate": {"labels": labels}});
        cluster.spec = serde_json::from_value(spec).expect("a spec");
        validate(&cluster).expect("it is valid")
    };
    let (before, after) = (labels(json!({})), labels(json!({"team": "shop"})));
    let (objects, names) = (crate::surroundings::tests::settled(&before), names());
    let now = Timestamp::UNIX_EPOCH;
    let seen =
        observe(&objects, &names, &BTreeMap::new(), &BTreeMap::new(), &[], &mut Default::default(), now);
    let (goal, desired) =
        (Goal::from(&after), Desired { intent: &after, names: &names, agent_image: "op:1", operator: None });
    let beside = |plan: &Plan| {
        let considered = Considered {
            goal: &goal,
            spec: Ok(&after),
            names: &names,
            desired: Some(&desired),
            objects: &objects,
            seen: &seen,
            plan,
        };
        titles(&Round::default().work(&considered))
    };
    assert_eq!(beside(&Plan::default()), ["status", "StatefulSet kv", "Pod kv-0"]);
    let scale = Plan::act(Action::SetReplicas { replicas: 2 });
    assert_eq!(beside(&scale), ["status", "Pod kv-0"]);
    let end = Plan::act(Action::EvictPod { ordinal: Ordinal(0), uid: "pod-uid".into() });
    assert_eq!(beside(&end), ["status", "StatefulSet kv"]);
}

/// A growth that the API server rejects is retried by and by, and members go on meanwhile.
#[test]
fn a_claim_that_cannot_be_resized_holds_nothing_else_up() {
    let claim = json!({
        "metadata": {"name": "data-kv-0", "uid": "claim-uid", "resourceVersion": "5",
            "labels": {crate::names::CLUSTER_UID_LABEL: "uid"}},
        "spec": {"volumeName": "pv", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    });
    let mut objects = with_finalizer();
    let claim = Arc::new(serde_json::from_value(claim).expect("a claim"));
    objects.claims.insert(Ordinal(0), claim);
    let mut round = Round::default();
    let resize = |work: &Work| {
        let is_it = |effect: &&Effect| effect.write.title() == "PersistentVolumeClaim data-kv-0";
        work.beside.iter().find(is_it).cloned()
    };
    let first = work(&mut round, &objects, 0);
    let effect = resize(&first).expect("it is resized");
    let only_if = OnlyIf::Unchanged("claim-uid".into(), "5".into());
    let expected = Write { object: Object::Claim(Ordinal(0)), only_if, change: Change::Resize(10 << 30) };
    assert_eq!(effect.request, Request::Kube(expected));
    assert!(!first.steps.is_empty(), "the bootstrap goes on");
    let rejected = Outcome::NotDone(Trouble::Failed("the storageclass must support resize".into()));
    assert_eq!(round.sent(&effect, rejected, Timestamp::UNIX_EPOCH), None, "and it does then");
    let second = work(&mut round, &objects, 0);
    assert_eq!(resize(&second), None, "not at once");
    assert!(!second.steps.is_empty());
    assert!(resize(&work(&mut round, &objects, 60)).is_some(), "but later");
}
