//! Every write as the API server reads it: what it is about, what it depends on, what it changes. `UPDATE_REQUESTS=1` writes
//! them as they are now.

#[path = "scenarios/snapshot.rs"]
mod snapshot;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::asked::Accepted;
use etcd_operator_core::auth::{Step, User};
use etcd_operator_core::desired::Desired;
use etcd_operator_core::form::{self, Digest, Record};
use etcd_operator_core::names::Names;
use etcd_operator_core::observed::{AlarmKind, ClusterId, MemberId, Observed, Ordinal, Versions};
use etcd_operator_core::plan::{Action, DefragmentationCause};
use etcd_operator_core::request::{
    Change, Object, OnlyIf, Request, Role, Target, Write, http, report, request,
};
use etcd_operator_core::restores::Replacement;
use etcd_operator_core::tls::{Cause, Copy, Purpose, Scheme, Schemes, Section, Stage};
use etcd_operator_core::validate::validate;
use etcd_operator_core::version::Version;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

const CLUSTER: ClusterId = ClusterId(0xc1);
const ONE: Ordinal = Ordinal(1);

fn seen(description: &str) -> Observed {
    let (_, mut seen) = snapshot::read(description).expect("it is understood");
    seen.etcd.via = Some(Ordinal(0));
    seen.versions = Versions {
        cluster: Some("101".into()),
        order: Some("102".into()),
        set: Some("103".into()),
        record: Some("104".into()),
        claims: Ordinal::below(3).map(|it| (it, format!("11{it}"))).collect(),
        secrets: BTreeMap::from([
            (Purpose::Peer, "121".into()),
            (Purpose::PeerAuthority, "122".into()),
            (Purpose::Server, "123".into()),
        ]),
    };
    seen
}

/// Each action, and what was observed when it was decided.
fn actions(form: &Digest) -> Vec<(Action, Observed)> {
    let uid = || "their-uid".to_owned();
    let (nothing, order, running) = (seen(""), seen("order 3 unarmed"), seen("running 3"));
    let secured = seen("running 3\ntls both in-effect\nsecret peer-tls");
    let served = seen("running 3\ntls both in-effect\nsecret server-tls");
    let authority = seen("running 3\ntls both in-effect\nsecret peer-ca");
    let (member, from, to) = (MemberId(0xa1), MemberId(0xa0), MemberId(0xa2));
    vec![
        (Action::AddFinalizer, nothing.clone()),
        (Action::RemoveFinalizer, nothing.clone()),
        (Action::RecordFormed { cluster: CLUSTER }, nothing.clone()),
        (
            Action::IssueCertificate { purpose: Purpose::PeerAuthority, cause: Cause::Missing },
            nothing.clone(),
        ),
        (Action::IssueCertificate { purpose: Purpose::Peer, cause: Cause::Due }, secured.clone()),
        (
            Action::RotateAuthority { purpose: Purpose::PeerAuthority, stage: Stage::Introduce },
            authority.clone(),
        ),
        (
            Action::RotateAuthority { purpose: Purpose::PeerAuthority, stage: Stage::Promote },
            authority.clone(),
        ),
        (Action::RotateAuthority { purpose: Purpose::PeerAuthority, stage: Stage::Withdraw }, authority),
        (Action::CopyCertificate { copy: Copy::First }, nothing.clone()),
        (Action::CopyCertificate { copy: Copy::Given }, served),
        (Action::CreateOrder { size: 3 }, nothing.clone()),
        (Action::ArmOrder { uid: uid() }, order.clone()),
        (Action::PrepareRecovery, nothing.clone()),
        (Action::ArmRecovery { uid: uid(), survivor: ONE, pod: "pod-uid".into() }, order.clone()),
        (Action::RecordIncarnation { incarnation: uid() }, nothing.clone()),
        (Action::EndRecovery { uid: uid() }, order.clone()),
        (Action::RetireClaim { ordinal: ONE, uid: uid(), by: "restore-uid".into() }, running.clone()),
        (Action::ReplaceData { replacement: replacement() }, nothing.clone()),
        (Action::RecordVolumes { volumes: "datanew".into() }, nothing.clone()),
        (Action::DeleteOrder { uid: uid() }, order),
        (Action::SetReplicas { replicas: 3 }, nothing),
        (Action::SetReplicas { replicas: 5 }, running.clone()),
        (Action::AdoptClaim { ordinal: ONE, uid: uid() }, running.clone()),
        (Action::LabelClaim { ordinal: ONE, uid: uid(), member }, running.clone()),
        (Action::DeleteClaim { ordinal: ONE, uid: uid() }, running.clone()),
        (Action::DeletePod { ordinal: ONE, uid: uid() }, running.clone()),
        (Action::ForceDeletePod { ordinal: ONE, uid: uid() }, running.clone()),
        (Action::EvictPod { ordinal: ONE, uid: uid() }, running.clone()),
        (Action::DeleteSet { uid: uid() }, running.clone()),
        (Action::OrphanSet { uid: uid() }, running.clone()),
        (Action::CreatePreflight { ordinal: ONE, node: "n1".into() }, running.clone()),
        (Action::DeletePreflight { ordinal: ONE, uid: uid() }, running.clone()),
        (Action::RecordForm { form: form.clone() }, running.clone()),
        (Action::RecordForm { form: form.clone() }, seen("running 3\nrecord A")),
        (Action::RecordCleared { members: [from, to].into() }, seen("running 3\nrecord A")),
        (Action::SetTemplate { form: form.clone() }, running.clone()),
        (Action::Accept(Accepted::Restart { token: "t".into(), pods: vec![uid()] }), running.clone()),
        (Action::Accept(Accepted::MoveLeader { token: "t".into() }), running.clone()),
        (
            Action::Accept(Accepted::Rotation { token: "t".into(), authorities: vec!["6d3b".into()] }),
            running.clone(),
        ),
        (Action::AddLearner { ordinal: Ordinal(3), cluster: CLUSTER }, running.clone()),
        (Action::AddLearner { ordinal: Ordinal(3), cluster: CLUSTER }, secured),
        (Action::Promote { ordinal: ONE, member, cluster: CLUSTER }, running.clone()),
        (
            Action::UpdatePeerUrls { ordinal: ONE, member, schemes: Schemes::BOTH, cluster: CLUSTER },
            running.clone(),
        ),
        (Action::RecordTls { section: Section::InForce }, seen("running 3\nrecord A")),
        (Action::MoveLeader { from, to, cluster: CLUSTER }, running.clone()),
        (Action::EnableDowngrade { to: Version::new(3, 5, 0), cluster: CLUSTER }, running.clone()),
        (Action::CancelDowngrade { cluster: CLUSTER }, running.clone()),
        (Action::ForceSnapshots { to: Version::new(3, 5, 0), cluster: CLUSTER }, running.clone()),
        (Action::ChangeAuth { step: Step::AddUser(User::Operator), cluster: CLUSTER }, running.clone()),
        (Action::ChangeAuth { step: Step::Enable, cluster: CLUSTER }, running.clone()),
        (Action::ChangeAuth { step: Step::SetRootPassword, cluster: CLUSTER }, running.clone()),
        (Action::Compact { revision: 41, cluster: CLUSTER }, running.clone()),
        (Action::Defragment { member, cause: DefragmentationCause::Full, cluster: CLUSTER }, running.clone()),
        (Action::Disarm { kind: AlarmKind::NoSpace, cluster: CLUSTER }, running.clone()),
        (Action::RemoveMember { member, cluster: CLUSTER }, running),
    ]
}

fn replacement() -> Replacement {
    Replacement {
        restore: "back".into(),
        uid: "restore-uid".into(),
        replaces: CLUSTER,
        cluster: ClusterId(0xc9),
        volumes: "datanew".into(),
        claim: "claim-uid".into(),
        version: Version::new(3, 6, 0),
        peers: Scheme::Https,
        above: Some(100),
    }
}

/// What is written beside the steps.
fn beside(cluster: &EtcdCluster) -> Vec<(&'static str, Write)> {
    let same = || OnlyIf::Same("their-uid".into());
    let service = |only_if, change| Write { object: Object::Service(Role::Client), only_if, change };
    let content = || json!({"kind": "Service", "metadata": {"name": "kv-client"}});
    let status = serde_json::from_value(json!({"readyReplicas": 1})).expect("a status");
    let pod = |change| Write { object: Object::Pod(ONE), only_if: same(), change };
    let labels = json!({"metadata": {"labels": {"team": "shop", "tier": null}}});
    let only_if = OnlyIf::Unchanged("their-uid".into(), "111".into());
    let resize = Write { object: Object::Claim(ONE), only_if, change: Change::Resize(20 << 30) };
    vec![
        ("write the status", report(cluster, status).expect("it has a version")),
        ("create a Service", service(OnlyIf::Absent, Change::Create(content()))),
        ("correct a Service", service(same(), Change::Apply(content()))),
        ("delete a Service", service(same(), Change::Delete)),
        ("end a pod of a deleted cluster", pod(Change::DeleteWithin(2))),
        ("change the labels of a pod", pod(Change::Merge(labels))),
        ("let a volume grow", resize),
    ]
}

fn requests() -> String {
    let cluster: EtcdCluster = serde_json::from_value(json!({
        "apiVersion": "etcd.etcd.io/v1alpha1", "kind": "EtcdCluster", "spec": {"size": 3},
        "metadata": {"name": "kv", "namespace": "ns", "uid": "cluster-uid", "resourceVersion": "101", "finalizers": ["example.org/theirs"]},
    }))
    .expect("it is a cluster");
    let names = Names::new("ns", "kv", "cluster.local");
    let intent = validate(&cluster).expect("it is valid");
    let desired = Desired { intent: &intent, names: &names, agent_image: "op:1", operator: None };
    let issued = BTreeMap::from([("tls.crt".into(), ByteString(b"certificate".into()))]);
    let (set, record, issued) = (None, None, Some(&issued));
    let target = Target { cluster: &cluster, names: &names, desired: Some(&desired), set, record, issued };
    let form = intent.form.clone();
    let record = Record {
        digest: form.digest(),
        form,
        of_unmarked_pods: true,
        held_generation: None,
        cleared: Default::default(),
        tls: None,
        adopts: None,
    };
    let mut text = String::from(
        "# Each request: verb, path and query; content type; content, without that of whole objects.\n",
    );
    for (action, seen) in actions(&intent.form.digest()) {
        let request = request(&action, &seen, 0).expect("it can be sent");
        // What it changes is recorded already.
        let there =
            matches!(action, Action::RecordCleared { .. } | Action::RecordTls { .. }).then_some(&record);
        let target = Target { record: there, ..target };
        let lines = match request {
            Request::Kube(write) => lines(&write, target),
            Request::Etcd(call) => format!("{call:?}\n"),
            Request::Tell(..) => unreachable!("no action tells"),
        };
        write!(text, "\n== {action}\n{lines}").expect("strings take everything");
    }
    for (what, write) in beside(&cluster) {
        write!(text, "\n== {what}\n{}", lines(&write, target)).expect("strings take everything");
    }
    text
}

fn lines(write: &Write, target: Target<'_>) -> String {
    let request = http(write, target).expect("the spec is valid");
    let content = request.headers()["content-type"].to_str().expect("text");
    let mut body: Value = serde_json::from_slice(request.body()).expect("JSON");
    let pod = body.pointer_mut("/spec/template/spec").filter(|_| content != "application/json");
    pod.into_iter().for_each(|pod| *pod = "...".into());
    if content == "application/json" && body["spec"].is_object() {
        body["spec"] = "...".into();
    }
    format!("{} {}\n{content}\n{body}\n", request.method(), request.uri())
}

#[expect(clippy::disallowed_methods, reason = "the switch of a test, not an input of a decision")]
fn update() -> bool {
    env::var_os("UPDATE_REQUESTS").is_some()
}

#[test]
fn every_request_is_as_it_is_written_down() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/requests.txt");
    let now = requests();
    if update() {
        fs::write(&file, &now).expect("it can be written");
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    for (written, now) in written.lines().zip(now.lines()) {
        assert_eq!(written, now, "UPDATE_REQUESTS=1 accepts this");
    }
    assert_eq!(written.len(), now.len(), "UPDATE_REQUESTS=1 accepts this");
}

#[test]
fn without_a_version_that_was_read_nothing_is_sent() {
    let unversioned = Observed { versions: Versions::default(), ..seen("running 3") };
    for (action, _) in actions(&Digest("form".into())) {
        let sent = match request(&action, &unversioned, 0) {
            Some(Request::Kube(write)) => matches!(write.only_if, OnlyIf::Absent | OnlyIf::Same(_)),
            Some(Request::Etcd(_)) | None => true,
            Some(Request::Tell(..)) => false,
        };
        assert!(sent, "{action}");
    }
}

#[test]
fn a_form_that_is_not_known_is_not_written() {
    let cluster: EtcdCluster = serde_json::from_value(json!({
        "apiVersion": "etcd.etcd.io/v1alpha1", "kind": "EtcdCluster", "spec": {},
        "metadata": {"name": "kv", "namespace": "ns", "uid": "cluster-uid"},
    }))
    .expect("it is a cluster");
    let names = Names::new("ns", "kv", "cluster.local");
    let intent = validate(&cluster).expect("it is valid");
    let desired = Desired { intent: &intent, names: &names, agent_image: "op:1", operator: None };
    let set = desired.stateful_set(3, &intent.form);
    let (set, record, issued) = (Some(&set), None, None);
    let target = Target { cluster: &cluster, names: &names, desired: Some(&desired), set, record, issued };
    let write = |form: Digest| Write {
        object: Object::Set,
        only_if: OnlyIf::Same("set-uid".into()),
        change: Change::SetTemplate(form),
    };
    assert!(http(&write(intent.form.digest()), target).is_some());
    assert!(http(&write(Digest("another".into())), target).is_none());
}

/// The StatefulSet is created again from the record alone.
#[test]
fn a_record_has_whose_volumes_were_adopted_and_stays_what_it_was_otherwise() {
    let adopting: EtcdCluster = serde_json::from_value(json!({
        "apiVersion": "etcd.etcd.io/v1alpha1", "kind": "EtcdCluster", "spec": {},
        "metadata": {"name": "kv", "namespace": "ns", "uid": "cluster-uid",
            "annotations": {"etcd.etcd.io/adopt-volumes-of": "former-uid"}},
    }))
    .expect("it is a cluster");
    let mut cluster = adopting.clone();
    cluster.metadata.annotations = None;
    let names = Names::new("ns", "kv", "cluster.local");
    let (before, after) = (validate(&adopting).expect("valid"), validate(&cluster).expect("valid"));
    let desired = |intent| Desired { intent, names: &names, agent_image: "op:1", operator: None };
    let set = desired(&before).stateful_set(3, &before.form);
    let digest = before.form.digest();
    let earlier = Record {
        digest: digest.clone(),
        form: before.form.clone(),
        of_unmarked_pods: true,
        held_generation: Some(4),
        adopts: None,
        cleared: Default::default(),
        tls: None,
    };
    let desired = desired(&after);
    let target = |set, record| Target {
        cluster: &cluster,
        names: &names,
        desired: Some(&desired),
        set,
        record,
        issued: None,
    };
    let body = |object, change, target| -> Value {
        let write = Write { object, only_if: OnlyIf::Absent, change };
        serde_json::from_slice(http(&write, target).expect("it can be written").body()).expect("JSON")
    };
    let recorded = |set, record| -> Record {
        let object = body(Object::Form, Change::RecordForm(digest.clone()), target(set, record));
        let text = object["data"]["form.json"].as_str().expect("text");
        serde_json::from_str(text).expect("a record")
    };
    let adopts = Some("former-uid".to_owned());
    let expected = Record { adopts: adopts.clone(), ..earlier.clone() };
    assert_eq!(recorded(Some(&set), Some(&earlier)), expected);
    assert_eq!(recorded(None, Some(&expected)), expected, "the StatefulSet is missing");
    let created = body(Object::Set, Change::CreateSet(3), target(None, Some(&expected)));
    let template = serde_json::from_value(created["spec"]["template"].clone()).expect("a template");
    assert_eq!(form::adopts(&template), adopts);
}
