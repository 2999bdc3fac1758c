use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use serde_json::Value;

use super::*;
use crate::api::EtcdCluster;
use crate::decide::Goal;
use crate::desired::{PodAgent, agents};
use crate::foreign::{Foreign, NotRead};
use crate::intent::Intent;
use crate::member::MemberProgress;
use crate::names::{CHOSEN_ANNOTATION, FORM_ANNOTATION, Names, RENDERING_ANNOTATION};
use crate::observe::{Listed, observe};
use crate::observed::{Answer, ClusterId, Member, MemberId, Members};
use crate::validate::validate;

const AGENT: &str = "op:1";

pub(crate) fn names() -> Names {
    Names::new("ns", "kv", "cluster.local")
}

pub(crate) fn desired<'a>(intent: &'a Intent, names: &'a Names, agent_image: &'a str) -> Desired<'a> {
    Desired { intent, names, agent_image, operator: None }
}

pub(crate) fn intent(spec: Value) -> Intent {
    let mut cluster = EtcdCluster::new("kv", serde_json::from_value(spec).expect("a spec"));
    cluster.metadata.namespace = Some("ns".into());
    cluster.metadata.uid = Some("uid".into());
    validate(&cluster).expect("it is valid")
}

fn with_labels(labels: Value) -> Intent {
    intent(json!({"size": 1, "podTemplate": {"labels": labels}}))
}

fn read<K: serde::de::DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).expect("it is such an object"))
}

/// A pod as the StatefulSet creates it.
fn pod_of(set: &StatefulSet) -> Arc<Pod> {
    let template = &set.spec.as_ref().expect("a spec").template;
    let mut pod = json!(template);
    pod["metadata"]["uid"] = "pod-uid".into();
    pod["metadata"]["labels"]["controller-revision-hash"] = "kv-1".into();
    pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = "0".into();
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "kv", "uid": "set-uid", "controller": true});
    pod["metadata"]["ownerReferences"] = json!([owner]);
    read(pod)
}

/// A cluster with one pod that needs nothing, as an operator with this agent image left it.
fn left_by(intent: &Intent, agent_image: &str) -> Objects {
    let names = names();
    let desired = desired(intent, &names, agent_image);
    let stored = |object: Value, uid: &str| {
        let mut object = object;
        (object["metadata"]["uid"], object["metadata"]["resourceVersion"]) = (uid.into(), "7".into());
        object
    };
    let set: Arc<StatefulSet> = read(stored(json!(desired.stateful_set(1, &intent.form)), "set-uid"));
    let services = services(&desired).into_iter();
    Objects {
        cluster: read(stored(json!({"metadata": {"name": "kv"}, "spec": {}}), "uid")),
        order: None,
        record: None,
        pods: BTreeMap::from([(Ordinal(0), pod_of(&set))]),
        preflights: BTreeMap::new(),
        set: Some(set),
        claims: BTreeMap::new(),
        restored: None,
        elsewhere: Vec::new(),
        secrets: BTreeMap::new(),
        given: None,
        root_password: None,
        listed: Listed::new(),
        services: services.map(|(role, it)| (role, read(stored(json!(it), "service-uid")))).collect(),
        budget: desired.disruption_budget(1, false).map(|it| read(stored(json!(it), "budget-uid"))),
        network_policy: desired.network_policy().map(|it| read(stored(json!(it), "policy-uid"))),
        certificate: Default::default(),
        pod_monitor: Default::default(),
        taken: BTreeSet::new(),
        nodes: Seen::default(),
        backups: Vec::new(),
    }
}

pub(crate) fn settled(intent: &Intent) -> Objects {
    left_by(intent, AGENT)
}

/// What is written about these objects, which have one member.
pub(crate) fn writes(intent: &Intent, objects: &Objects) -> Vec<Write> {
    let names = names();
    let now = Timestamp::UNIX_EPOCH;
    let mut seen =
        observe(objects, &names, &BTreeMap::new(), &BTreeMap::new(), &[], &mut Default::default(), now);
    let (ordinal, start) = (Some(Ordinal(0)), MemberProgress::Published);
    let member = Member { ordinal, learner: false, start, schemes: Default::default() };
    seen.etcd.members = Seen::Known(Members {
        cluster: ClusterId(0xc1),
        leader: Some(MemberId(0xa0)),
        list: BTreeMap::from([(MemberId(0xa0), member)]),
    });
    let certificates = Goal::of(Ok(intent), objects, &names, &BTreeSet::new()).certificates;
    surroundings(&desired(intent, &names, AGENT), &certificates, objects, &seen)
}

fn record(form: &Form) -> Arc<ConfigMap> {
    let record = Record {
        digest: form.digest(),
        form: form.clone(),
        of_unmarked_pods: false,
        held_generation: None,
        adopts: None,
        cleared: Default::default(),
        tls: None,
    };
    let metadata = ObjectMeta { uid: Some("record-uid".into()), ..ObjectMeta::default() };
    Arc::new(ConfigMap { metadata, data: Some(record.data()), ..ConfigMap::default() })
}

fn template_write(form: &Form) -> Write {
    let only_if = OnlyIf::Unchanged("set-uid".into(), "7".into());
    Write { object: Object::Set, only_if, change: Change::SetTemplate(form.digest()) }
}

fn pod_write(metadata: Value) -> Write {
    let change = Change::Merge(json!({"metadata": metadata}));
    Write { object: Object::Pod(Ordinal(0)), only_if: OnlyIf::Same("pod-uid".into()), change }
}

/// The mark of a pod with these labels of users. Its annotations are for Prometheus.
fn chosen(labels: &[&str]) -> String {
    let annotations = json!(["prometheus.io/port", "prometheus.io/scrape"]);
    match labels {
        [] => json!({"annotations": annotations}).to_string(),
        labels => json!({"labels": labels, "annotations": annotations}).to_string(),
    }
}

#[test]
fn another_operator_renders_the_template_again_and_leaves_pods_alone() {
    let intent = intent(json!({"size": 1}));
    let before = left_by(&intent, "op:0");
    assert_eq!(writes(&intent, &before), [template_write(&intent.form)]);
    assert_eq!(writes(&intent, &settled(&intent)), []);
}

#[test]
fn pods_that_have_another_agent_than_new_ones_are_known() {
    let intent = intent(json!({"size": 1}));
    let (old, new) = (left_by(&intent, "op:0"), settled(&intent));
    let agent = |outdated| BTreeMap::from([(Ordinal(0), PodAgent { version: "0".into(), outdated })]);
    assert_eq!(agents(&old), agent(false));
    assert_eq!(agents(&Objects { pods: old.pods, ..new }), agent(true));
}

#[test]
fn a_template_keeps_the_form_that_the_plan_gave_it() {
    let (old, new) = (intent(json!({"size": 1})), intent(json!({"size": 1, "version": "3.5.35"})));
    let before = left_by(&old, "op:0");
    assert_eq!(writes(&new, &before), [], "it has a form that nobody knows");
    let recorded = Objects { record: Some(record(&old.form)), ..before };
    assert_eq!(writes(&new, &recorded), [template_write(&old.form)]);
}

#[test]
fn a_template_of_an_operator_without_forms_waits_for_the_record() {
    let intent = intent(json!({"size": 1}));
    let mut before = settled(&intent);
    let set = Arc::make_mut(before.set.as_mut().expect("a set"));
    let template = &mut set.spec.as_mut().expect("a spec").template;
    let annotations = template.metadata.as_mut().and_then(|it| it.annotations.as_mut()).expect("annotations");
    annotations.retain(|key, _| key != FORM_ANNOTATION && key != RENDERING_ANNOTATION);
    assert_eq!(writes(&intent, &before), []);
    let recorded = Objects { record: Some(record(&intent.form)), ..before };
    assert_eq!(writes(&intent, &recorded), [template_write(&intent.form)]);
}

#[test]
fn labels_and_annotations_change_on_running_pods_and_what_is_taken_out_is_removed() {
    let (plain, shop, bank) = (
        with_labels(json!({})),
        with_labels(json!({"team": "shop", "tier": "1"})),
        with_labels(json!({"team": "bank"})),
    );
    let added = pod_write(json!({
        "labels": {"team": "shop", "tier": "1"}, "annotations": {CHOSEN_ANNOTATION: chosen(&["team", "tier"])},
    }));
    assert_eq!(writes(&shop, &settled(&plain)), [template_write(&plain.form), added]);
    let edited = pod_write(json!({
        "labels": {"team": "bank", "tier": null}, "annotations": {CHOSEN_ANNOTATION: chosen(&["team"])},
    }));
    assert_eq!(writes(&bank, &settled(&shop)), [template_write(&plain.form), edited]);
    let removed = pod_write(
        json!({"labels": {"team": null, "tier": null}, "annotations": {CHOSEN_ANNOTATION: chosen(&[])}}),
    );
    assert_eq!(writes(&plain, &settled(&shop)), [template_write(&plain.form), removed]);
}

/// The metadata of the one pod, changed.
fn with_pod(mut objects: Objects, change: impl FnOnce(&mut ObjectMeta)) -> Objects {
    let pod = objects.pods.get_mut(&Ordinal(0)).map(Arc::make_mut).expect("a pod");
    change(&mut pod.metadata);
    objects
}

#[test]
fn labels_of_others_and_those_that_controllers_need_stay() {
    let (plain, shop) = (with_labels(json!({})), with_labels(json!({"team": "shop"})));
    let add = |key: &'static str, value: &'static str| {
        move |it: &mut ObjectMeta| {
            it.labels.get_or_insert_default().insert(key.into(), value.into());
        }
    };
    let others = with_pod(settled(&plain), add("injected", "yes"));
    assert_eq!(writes(&plain, &others), []);
    // A mark that somebody wrote removes nothing that is ours or the StatefulSet's.
    let ours = ["app.kubernetes.io/name", "apps.kubernetes.io/pod-index", "controller-revision-hash"];
    let forged = with_pod(settled(&plain), |it| {
        it.annotations.get_or_insert_default().insert(CHOSEN_ANNOTATION.into(), chosen(&ours));
    });
    assert_eq!(
        writes(&plain, &forged),
        [pod_write(json!({"annotations": {CHOSEN_ANNOTATION: chosen(&[])}}))]
    );
    let overwritten = with_pod(settled(&shop), add("team", "theirs"));
    assert_eq!(writes(&shop, &overwritten), [pod_write(json!({"labels": {"team": "shop"}}))]);
}

#[test]
fn pods_that_end_and_pods_of_another_set_are_left_alone() {
    let (plain, shop) = (with_labels(json!({})), with_labels(json!({"team": "shop"})));
    let only_template = [template_write(&plain.form)];
    let terminating = with_pod(settled(&plain), |it| {
        it.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
    });
    assert_eq!(writes(&shop, &terminating), only_template);
    let foreign = with_pod(settled(&plain), |it| it.owner_references = None);
    assert_eq!(writes(&shop, &foreign), only_template);
}

#[test]
fn a_settled_cluster_is_considered_again_when_the_labels_of_a_pod_change_and_not_when_its_status_does() {
    let objects = || settled(&with_labels(json!({})));
    let before = objects().unseen(&BTreeSet::new());
    let labeled = with_pod(objects(), |it| it.labels = None);
    assert_ne!(labeled.unseen(&BTreeSet::new()), before);
    let reported = with_pod(objects(), |it| it.resource_version = Some("9".into()));
    assert_eq!(reported.unseen(&BTreeSet::new()), before);
}

#[test]
fn a_label_more_in_a_selector_is_put_right() {
    let intent = intent(json!({"size": 3}));
    let mut objects = settled(&intent);
    let service = objects.services.get_mut(&Role::Client).map(Arc::make_mut).expect("a Service");
    let selector = service.spec.as_mut().and_then(|spec| spec.selector.as_mut()).expect("a selector");
    selector.insert("team".into(), "shop".into());
    let budget = objects.budget.as_mut().map(Arc::make_mut).expect("a budget");
    let selector = budget.spec.as_mut().and_then(|spec| spec.selector.as_mut()).expect("a selector");
    selector.match_labels.get_or_insert_default().insert("team".into(), "shop".into());
    let written: Vec<_> = writes(&intent, &objects).into_iter().map(|write| write.object).collect();
    assert_eq!(written, [Object::Service(Role::Client), Object::Budget]);
}

fn with_clients(selector: Value) -> Intent {
    intent(json!({"size": 1, "security": {"networkPolicy": {"clientSelector": selector}}}))
}

/// The only write, which is about the network policy.
fn policy_write(intent: &Intent, objects: &Objects) -> (OnlyIf, Change) {
    let [write] = <[Write; 1]>::try_from(writes(intent, objects)).expect("one write");
    assert_eq!(write.object, Object::NetworkPolicy);
    (write.only_if, write.change)
}

#[test]
fn a_network_policy_is_created_follows_edits_and_is_deleted_with_its_field() {
    let (open, shop) = (intent(json!({"size": 1})), with_clients(json!({"matchLabels": {"app": "shop"}})));
    assert!(matches!(policy_write(&shop, &settled(&open)), (OnlyIf::Absent, Change::Create(_))));
    assert_eq!(writes(&shop, &settled(&shop)), []);
    let same = OnlyIf::Same("policy-uid".into());
    let edited = policy_write(&with_clients(json!({})), &settled(&shop));
    assert!(edited.0 == same && matches!(edited.1, Change::Apply(_)), "{edited:?}");
    assert_eq!(policy_write(&open, &settled(&shop)), (same, Change::Delete));
}

#[test]
fn a_network_policy_that_somebody_opened_is_put_right_and_noticed_in_a_settled_cluster() {
    let shop = with_clients(json!({"matchLabels": {"app": "shop"}}));
    let mut objects = settled(&shop);
    let before = objects.unseen(&BTreeSet::new());
    let policy = objects.network_policy.as_mut().map(Arc::make_mut).expect("a policy");
    let rules = policy.spec.as_mut().and_then(|spec| spec.ingress.as_mut()).expect("rules");
    rules[1].from.get_or_insert_default().push(Default::default());
    policy.metadata.resource_version = Some("8".into());
    assert!(matches!(policy_write(&shop, &objects).1, Change::Apply(_)));
    assert_ne!(objects.unseen(&BTreeSet::new()), before);
}

/// How many pods a drain has to leave, if each of three members reports that it reaches these.
fn least_available(reaches: Option<&[u64]>) -> Option<Value> {
    let intent = intent(json!({"size": 3}));
    let (objects, names) = (Objects { budget: None, ..settled(&intent) }, names());
    let now = Timestamp::UNIX_EPOCH;
    let mut seen =
        observe(&objects, &names, &BTreeMap::new(), &BTreeMap::new(), &[], &mut Default::default(), now);
    let member = |it: u8| Member {
        ordinal: Some(Ordinal(it)),
        learner: false,
        start: MemberProgress::Published,
        schemes: Default::default(),
    };
    let id = |it: u8| MemberId(0xa0 + u64::from(it));
    let cluster = ClusterId(0xc1);
    let list = (0..3).map(|it| (id(it), member(it))).collect();
    seen.etcd.members = Seen::Known(Members { cluster, leader: Some(id(0)), list });
    let answer = |it: u8| Answer {
        cluster,
        member: id(it),
        leader: Some(id(0)),
        linearizable: true,
        denied: false,
        applied_index: 1,
        commit_index: 0,
        term: 0,
        version: None,
        storage_version: None,
        downgrade: Default::default(),
        listed: None,
        hash: None,
        alarms: Default::default(),
        space: None,
        file: None,
        reaches: reaches.map(|ids| ids.iter().copied().map(MemberId).collect()),
    };
    seen.etcd.answers = (0..3).map(|it| (Ordinal(it), Seen::Known(answer(it)))).collect();
    let writes = surroundings(&desired(&intent, &names, AGENT), &Profiles::new(), &objects, &seen);
    let budget = writes.into_iter().find(|write| write.object == Object::Budget)?;
    if let Change::Create(budget) = budget.change {
        Some(budget["spec"]["minAvailable"].clone())
    } else {
        None
    }
}

#[test]
fn a_drain_waits_while_voters_do_not_reach_each_other() {
    assert_eq!(least_available(None), Some(json!(2)), "nobody was asked");
    assert_eq!(least_available(Some(&[0xa0, 0xa1, 0xa2])), Some(json!(2)));
    assert_eq!(least_available(Some(&[0xa0, 0xa1])), Some(json!(3)));
}

/// What is written about the Certificate of a cluster with this issuer, if one is there.
fn certificate_write(issuer: Value, there: Foreign<Arc<DynamicObject>>) -> Option<Write> {
    let spec = json!({"size": 1, "security": {"tls": {"issuerRef": issuer}}});
    let intent = intent(spec.clone());
    let mut objects = settled(&intent);
    Arc::make_mut(&mut objects.cluster).spec = serde_json::from_value(spec).expect("a spec");
    objects.certificate = there;
    writes(&intent, &objects).into_iter().find(|write| write.object == Object::Certificate)
}

#[test]
fn cert_manager_is_asked_once_it_is_there_for_what_the_issuer_and_the_names_are_and_not_without_the_field() {
    let company = json!({"name": "company"});
    for unknown in [NotRead::NotAsked, NotRead::NoApi, NotRead::Failed("denied".into())] {
        assert_eq!(certificate_write(company.clone(), Seen::Unknown(unknown)), None);
    }
    let created = certificate_write(company.clone(), Seen::Known(None)).expect("it is created");
    let (OnlyIf::Absent, Change::Create(wanted)) = (created.only_if, created.change) else {
        panic!("not created")
    };
    assert_eq!(
        wanted["spec"]["issuerRef"],
        json!({"name": "company", "kind": "Issuer", "group": "cert-manager.io"})
    );
    assert_eq!(wanted["spec"]["secretName"], "kv-server-issued");
    assert_eq!(wanted["spec"]["usages"], json!(["digital signature", "server auth", "client auth"]));
    assert_eq!(wanted["metadata"]["ownerReferences"][0]["name"], "kv");

    let mut stored = wanted;
    (stored["metadata"]["uid"], stored["status"]) = ("certificate-uid".into(), json!({"revision": 1}));
    let there = Seen::Known(Some(read(stored)));
    let (same, expected) =
        (certificate_write(company, there.clone()), OnlyIf::Same("certificate-uid".into()));
    assert_eq!(same, None, "it is as it should be");
    let other =
        certificate_write(json!({"name": "other", "kind": "ClusterIssuer"}), there.clone()).expect("a write");
    assert!(other.only_if == expected && matches!(other.change, Change::Apply(_)), "{other:?}");
    let gone = certificate_write(Value::Null, there).expect("a write");
    assert_eq!((gone.only_if, gone.change), (expected, Change::Delete));
    assert_eq!(certificate_write(Value::Null, Seen::Known(None)), None);
}

/// What is written about the PodMonitor of a cluster, if one is there.
fn monitor_write(asked: &str, there: Foreign<Arc<DynamicObject>>) -> Option<Write> {
    let intent = intent(json!({"size": 1, "monitoring": {"podMonitor": asked}}));
    let objects = Objects { pod_monitor: there, ..settled(&intent) };
    let written = writes(&intent, &objects);
    assert!(written.iter().all(|write| write.object == Object::PodMonitor), "{written:?}");
    written.into_iter().next()
}

#[test]
fn a_pod_monitor_is_created_once_its_api_is_there_put_right_and_deleted_with_its_field() {
    for unknown in [NotRead::NotAsked, NotRead::NoApi, NotRead::Failed("denied".into())] {
        assert_eq!(monitor_write("Enabled", Seen::Unknown(unknown)), None);
    }
    let created = monitor_write("Enabled", Seen::Known(None)).expect("it is created");
    let (OnlyIf::Absent, Change::Create(wanted)) = (created.only_if, created.change) else {
        panic!("not created")
    };
    assert_eq!(
        wanted["spec"]["selector"]["matchLabels"],
        json!({"app.kubernetes.io/name": "etcd", "etcd.etcd.io/cluster": "kv"})
    );
    assert_eq!(wanted["metadata"]["ownerReferences"][0]["name"], "kv");

    let mut stored = wanted;
    stored["metadata"]["uid"] = "monitor-uid".into();
    // The API server fills that in.
    stored["spec"]["podMetricsEndpoints"][0]["relabelings"][0]["action"] = "replace".into();
    let there = || Seen::Known(Some(read(stored.clone())));
    assert_eq!(monitor_write("Enabled", there()), None, "it is as it should be");
    let same = OnlyIf::Same("monitor-uid".into());
    let gone = monitor_write("Disabled", there()).expect("a write");
    assert_eq!((gone.only_if, gone.change), (same.clone(), Change::Delete));
    assert_eq!(monitor_write("Disabled", Seen::Known(None)), None);
    stored["spec"]["selector"]["matchLabels"]["team"] = "shop".into();
    let edited = monitor_write("Enabled", Seen::Known(Some(read(stored)))).expect("a write");
    assert!(edited.only_if == same && matches!(edited.change, Change::Apply(_)), "{edited:?}");
}

#[test]
fn a_pod_monitor_that_changes_is_noticed_in_a_settled_cluster() {
    let intent = intent(json!({"size": 1, "monitoring": {"podMonitor": "Enabled"}}));
    let unseen = |version: &str| {
        let monitor = json!({"metadata": {"name": "kv", "resourceVersion": version}});
        Objects { pod_monitor: Seen::Known(Some(read(monitor))), ..settled(&intent) }.unseen(&BTreeSet::new())
    };
    assert_ne!(unseen("1"), unseen("2"));
}

#[test]
fn running_pods_get_annotations_for_prometheus_and_lose_them_when_a_pod_monitor_is_asked_for() {
    let (annotated, monitored) =
        (intent(json!({"size": 1})), intent(json!({"size": 1, "monitoring": {"podMonitor": "Enabled"}})));
    let added = pod_write(json!({"annotations": {
        "prometheus.io/scrape": "true", "prometheus.io/port": "2381", CHOSEN_ANNOTATION: chosen(&[]),
    }}));
    // As a previous operator created it.
    assert_eq!(writes(&annotated, &settled(&monitored)), [template_write(&annotated.form), added]);
    let removed = pod_write(json!({"annotations": {
        "prometheus.io/scrape": null, "prometheus.io/port": null, CHOSEN_ANNOTATION: null,
    }}));
    assert_eq!(writes(&monitored, &settled(&annotated)), [template_write(&annotated.form), removed]);
    assert_eq!(annotated.form.digest(), monitored.form.digest(), "no member restarts");
}
