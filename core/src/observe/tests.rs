use serde_json::{Value, json};

use super::*;
use crate::member::MemberProgress;
use crate::observed::{Answer, Blocked, Member, Members, Process, Seen, Unanswered};
use crate::tls::ClientPort;

const CLUSTER: ClusterId = ClusterId(0xc1);

fn names() -> Names {
    Names::new("ns", "kv", "cluster.local")
}

/// Of a cluster whose pods were created long ago and have these container states.
fn objects(states: &[Value]) -> Objects {
    let pod = |(ordinal, state): (u8, &Value)| {
        let pod = json!({
            "metadata": {"name": format!("kv-{ordinal}"), "namespace": "ns", "uid": format!("uid-{ordinal}")},
            "status": {"podIP": format!("10.0.0.{ordinal}"), "containerStatuses": [{
                "name": "etcd", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
            }]},
        });
        (Ordinal(ordinal), Arc::new(serde_json::from_value(pod).expect("it is a pod")))
    };
    let cluster = json!({
        "apiVersion": "etcd.etcd.io/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": "kv", "namespace": "ns", "uid": "uid"}, "spec": {},
    });
    Objects {
        cluster: Arc::new(serde_json::from_value(cluster).expect("it is a cluster")),
        order: None,
        record: None,
        set: None,
        pods: (0..).zip(states).map(pod).collect(),
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

fn creating() -> Value {
    json!({"waiting": {"reason": "ContainerCreating"}})
}

fn nobody() -> Reply {
    Reply::Nobody("no response".into())
}

fn agent(process: Process) -> Reply {
    Reply::Agent { process, why: Unanswered::AgentWaiting("waits".into()) }
}

fn answer(member: u64, leader: u64) -> Answer {
    Answer {
        cluster: CLUSTER,
        member: MemberId(member),
        leader: Some(MemberId(leader)),
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
        reaches: None,
    }
}

fn list(ordinals: &[u8]) -> Members {
    let member = |it: &u8| {
        let (ordinal, start) = (Some(Ordinal(*it)), MemberProgress::Published);
        let member = Member { ordinal, learner: false, start, schemes: Default::default() };
        (MemberId(0xa0 + u64::from(*it)), member)
    };
    Members { cluster: CLUSTER, leader: None, list: ordinals.iter().map(member).collect() }
}

fn seen(objects: &Objects, replies: &[Reply], memory: &mut Memory, second: i64) -> Observed {
    let replies = (0..).map(Ordinal).zip(replies.iter().cloned()).collect();
    let now = Timestamp::from_second(second).expect("a time");
    observe(objects, &names(), &replies, &BTreeMap::new(), &[], memory, now)
}

fn processes(seen: &Observed) -> Vec<Process> {
    seen.pods.values().map(|pod| pod.etcd.clone()).collect()
}

#[test]
fn a_pod_that_responded_before_counts_as_started_whatever_its_status_reports() {
    let objects = objects(&[creating(), creating(), json!({"waiting": {"reason": "ErrImagePull"}})]);
    let mut memory = Memory::default();
    let slow = Process::CannotStart(Blocked::SlowCreation);
    let (reason, message) = ("ErrImagePull".into(), String::new());
    let no_image = Process::CannotStart(Blocked::Container { reason, message });
    let silent = [nobody(), nobody(), nobody()];
    assert_eq!(processes(&seen(&objects, &silent, &mut memory, 1)), [slow.clone(), slow.clone(), no_image]);
    seen(&objects, &[agent(Process::Waiting), nobody(), agent(Process::Waiting)], &mut memory, 2);
    let after = seen(&objects, &silent, &mut memory, 3);
    assert_eq!(processes(&after), [Process::Started, slow, Process::Started]);
}

#[test]
fn a_pod_that_etcd_lists_counts_as_started_and_what_a_process_responds_goes_first() {
    let objects = objects(&[creating(), json!({"running": {}})]);
    let members = Some(Ok(list(&[0, 2])));
    let etcd = Reply::Etcd { answer: answer(0xa2, 0xa2), members };
    let seen = seen(&objects, &[nobody(), agent(Process::Waiting), etcd], &mut Memory::default(), 1);
    assert_eq!(processes(&seen), [Process::Started, Process::Waiting]);
    assert_eq!(seen.waiting_agents().collect::<Vec<_>>(), [Ordinal(1)]);
}

#[test]
fn the_leaders_list_counts_and_the_next_one_when_it_cannot_be_had() {
    let etcd = |member, members| Reply::Etcd { answer: answer(member, 0xa1), members };
    let broken = || Some(Err("broken".to_owned()));
    let both = [etcd(0xa0, Some(Ok(list(&[0])))), etcd(0xa1, Some(Ok(list(&[0, 1]))))];
    let of = |replies: &[Reply]| etcd_of(replies);
    assert_eq!((of(&both).via, of(&both).members), (Some(Ordinal(1)), Seen::Known(list(&[0, 1]))));
    let one = [etcd(0xa0, Some(Ok(list(&[0])))), etcd(0xa1, broken())];
    assert_eq!((of(&one).via, of(&one).members), (Some(Ordinal(0)), Seen::Known(list(&[0]))));
    let none = [etcd(0xa0, broken()), nobody()];
    assert_eq!(of(&none).members, Seen::Unknown(Unanswered::Unreachable("broken".into())));
}

#[test]
fn without_a_linearizable_read_a_list_is_hearsay() {
    let alone = Answer { linearizable: false, ..answer(0xa0, 0xa0) };
    let etcd = etcd_of(&[Reply::Etcd { answer: alone, members: Some(Ok(list(&[0, 1, 2]))) }]);
    assert_eq!((etcd.members, etcd.via), (Seen::Unknown(Unanswered::NoLinearizableRead), None));
    assert_eq!(etcd.answers[&Ordinal(0)].known().and_then(|answer| answer.listed), Some(3));
    assert_eq!(etcd_of(&[nobody()]).members, Seen::Unknown(Unanswered::NoMember));
}

fn etcd_of(replies: &[Reply]) -> observed::Etcd {
    etcd(&(0..).map(Ordinal).zip(replies.iter().cloned()).collect())
}

#[test]
fn every_member_that_speaks_for_the_cluster_may_be_asked_and_first_the_one_whose_list_was_taken() {
    let mut seen = seen(&objects(&[]), &[], &mut Memory::default(), 1);
    assert_eq!(seen.endpoints(None), []);
    let known = |member, cluster, linearizable| {
        Seen::Known(Answer { cluster: ClusterId(cluster), linearizable, ..answer(member, 10) })
    };
    let answers = [
        known(10, 7, true),
        known(11, 7, false),
        known(12, 8, true),
        Seen::Unknown(Unanswered::NoMember),
        known(14, 7, true),
        known(15, 7, true),
    ];
    seen.etcd.answers = Ordinal::below(6).zip(answers).collect();
    seen.etcd.via = Some(Ordinal(4));
    assert_eq!(seen.endpoints(None), [4, 0, 5].map(Ordinal));
    assert_eq!(seen.endpoints(Some(MemberId(10))), [4, 5, 0].map(Ordinal));
    assert_eq!(seen.endpoints(Some(MemberId(14))), [0, 5, 4].map(Ordinal));
}

#[test]
fn silence_counts_from_the_first_observation_of_it_and_ends_with_a_response() {
    let objects = objects(&[json!({"running": {}}), json!({"running": {}})]);
    let mut memory = Memory::default();
    let leader = || Reply::Etcd { answer: answer(0xa0, 0xa0), members: Some(Ok(list(&[0, 1]))) };
    let other = || Reply::Etcd { answer: answer(0xa1, 0xa0), members: None };
    let since = |seen: Observed| seen.etcd.silent_since.get(&MemberId(0xa1)).map(|it| it.as_second());
    assert_eq!(since(seen(&objects, &[leader(), other()], &mut memory, 10)), None);
    assert_eq!(since(seen(&objects, &[leader(), nobody()], &mut memory, 20)), Some(20));
    // Without a list nothing is known of members, and nothing is forgotten.
    assert_eq!(since(seen(&objects, &[nobody(), nobody()], &mut memory, 25)), Some(20));
    assert_eq!(since(seen(&objects, &[leader(), nobody()], &mut memory, 30)), Some(20));
    // The clock was set back.
    assert_eq!(since(seen(&objects, &[leader(), nobody()], &mut memory, 5)), Some(5));
    assert_eq!(since(seen(&objects, &[leader(), other()], &mut memory, 40)), None);
}

#[test]
fn a_pod_is_published_when_its_name_had_time_to_spread_and_anew_after_it_returned() {
    let mut objects = objects(&[creating()]);
    let mut memory = Memory::default();
    let mut at = |listed: bool, milliseconds: i64| {
        objects.listed = listed.then(|| ("uid-0".to_owned(), Vec::new())).into_iter().collect();
        let now = Timestamp::from_millisecond(milliseconds).expect("a time");
        observe(&objects, &names(), &BTreeMap::new(), &BTreeMap::new(), &[], &mut memory, now).pods
            [&Ordinal(0)]
            .published
    };
    assert_eq!([at(true, 1000), at(true, 1399), at(true, 1400)], [false, false, true]);
    assert_eq!([at(false, 2000), at(true, 2100), at(true, 2500)], [false, false, true]);
}

/// As the API server hands it out.
fn claim_with(status: Value) -> Claim {
    let object = json!({
        "metadata": {"name": "data-kv-0", "uid": "c", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"storageClassName": "fast", "volumeName": "pv", "resources": {"requests": {"storage": "2Gi"}}},
        "status": status,
    });
    let set = json!({
        "metadata": {"name": "kv", "creationTimestamp": "2026-01-01T00:00:01Z"},
        "spec": {"selector": {}, "serviceName": "kv", "template": {}},
    });
    let set: StatefulSet = serde_json::from_value(set).expect("a StatefulSet");
    claim(&serde_json::from_value(object).expect("a claim"), Some(&set))
}

#[test]
fn a_claim_shows_what_it_asks_for_and_what_it_has() {
    let seen = claim_with(json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}));
    assert_eq!((seen.requested_bytes, seen.capacity_bytes), (Some(2 << 30), Some(1 << 30)));
    assert_eq!((seen.class.as_deref(), seen.resize, seen.precedes_set), (Some("fast"), None, true));
    assert_eq!(claim_with(json!({"phase": "Pending"})).capacity_bytes, None);
}

#[test]
fn what_storage_reports_of_a_resize_is_read_from_the_state_or_from_conditions() {
    let condition = |type_: &str, message: &str| json!({"type": type_, "status": "True", "message": message});
    let with = |state: Option<&str>, conditions: &[Value]| {
        let states = state.map(|state| json!({"storage": state}));
        claim_with(json!({"allocatedResourceStatuses": states, "conditions": conditions})).resize
    };
    let failed = |words: &str| Some(Resize::Failed(words.into()));
    assert_eq!(with(None, &[condition("Resizing", "")]), Some(Resize::InProgress));
    assert_eq!(with(Some("ControllerResizeInProgress"), &[]), Some(Resize::InProgress));
    assert_eq!(with(None, &[condition("FileSystemResizePending", "")]), Some(Resize::FileSystemPending));
    assert_eq!(with(Some("NodeResizePending"), &[]), Some(Resize::FileSystemPending));
    assert_eq!(with(Some("ControllerResizeInfeasible"), &[]), failed("ControllerResizeInfeasible"));
    let error = condition("ControllerResizeError", "no space");
    assert_eq!(with(Some("ControllerResizeInfeasible"), &[error]), failed("no space"));
    let error = condition("NodeResizeError", "cannot resize the file system");
    assert_eq!(with(Some("NodeResizeInProgress"), &[error]), failed("cannot resize the file system"));
}

#[test]
fn a_missing_stateful_set_is_never_read_as_zero_replicas() {
    let mut objects = objects(&[creating(), creating(), creating()]);
    assert_eq!(objects.replicas(), 3);
    let observed = seen(&objects, &[nobody(), nobody(), nobody()], &mut Memory::default(), 100);
    assert_eq!((observed.replicas(), observed.keeps_no_pods()), (3, false));
    objects.pods.clear();
    assert_eq!(objects.replicas(), 0);
}

/// Of a cluster that has bootstrapped, with this many pods.
fn formed(replicas: u8, annotations: Value) -> Objects {
    let running: Vec<Value> = (0..replicas).map(|_| json!({"running": {}})).collect();
    let cluster = json!({
        "apiVersion": "etcd.etcd.io/v1alpha1", "kind": "EtcdCluster", "spec": {},
        "metadata": {"name": "kv", "namespace": "ns", "uid": "uid"},
        "status": {"clusterID": "c1", "requests": {"restart": {"token": "done", "pods": []}, "moveLeader": "done"}},
    });
    let set = json!({"metadata": {"name": "kv", "uid": "set"}, "spec": {
        "replicas": replicas, "serviceName": "kv-peer", "selector": {}, "template": {},
    }});
    let mut objects = Objects {
        cluster: Arc::new(serde_json::from_value(cluster).expect("it is a cluster")),
        set: Some(Arc::new(serde_json::from_value(set).expect("it is a StatefulSet"))),
        ..objects(&running)
    };
    for pod in objects.pods.values_mut() {
        Arc::make_mut(pod).metadata.annotations = serde_json::from_value(annotations.clone()).ok();
    }
    objects
}

#[test]
fn members_are_asked_whom_they_reach_only_while_one_might_end_or_another_lead() {
    use crate::asked::{Asked, MoveLeader};
    let wanted = |form: &str| Goal {
        form: Some(crate::form::Wanted {
            form: Digest(form.into()),
            version: crate::version::Version::new(3, 6, 0),
            proof: None,
            plain: None,
        }),
        ..Goal::of_size(3)
    };
    let pods = formed(3, json!({"etcd.etcd.io/form": "A"}));
    assert!(!asks(&pods, &wanted("A")), "all is settled");
    assert!(asks(&pods, &wanted("B")), "an edit");
    assert!(asks(&pods, &Goal { size: 2, ..wanted("A") }), "a smaller size");
    assert!(!asks(&pods, &Goal::of_size(3)), "what is wanted is not known");
    assert!(asks(&formed(3, json!({})), &wanted("A")), "nobody knows what runs");
    let moves = |token: &str| Asked {
        move_leader: Some(MoveLeader { token: token.into(), to: Ordinal(1) }),
        ..Asked::default()
    };
    assert!(asks(&pods, &Goal { asked: moves("new"), ..wanted("A") }));
    assert!(!asks(&pods, &Goal { asked: moves("done"), ..wanted("A") }));
    let asked = Asked { replace: Some(MemberId(0xa1)), ..Asked::default() };
    let replaced = Goal { asked, ..wanted("A") };
    assert!(!asks(&pods, &replaced), "no volume has its data any more");
    let claim = json!({"metadata": {"name": "data-kv-1", "labels": {"etcd.etcd.io/member-id": "a1"}}});
    let claim = Arc::new(serde_json::from_value(claim).expect("it is a claim"));
    let with_claim = Objects { claims: BTreeMap::from([(Ordinal(1), claim)]), ..pods.clone() };
    assert!(asks(&with_claim, &replaced));
    let mut lost = pods.clone();
    let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "lastTransitionTime": "1969-12-31T23:59:00Z"});
    let status = json!({"conditions": [condition("Ready", "False"), condition("ContainersReady", "True")]});
    for pod in lost.pods.values_mut() {
        let pod = Arc::make_mut(pod);
        pod.status = serde_json::from_value(status.clone()).ok();
        pod.spec = serde_json::from_value(json!({"containers": [], "nodeName": "n1"})).ok();
    }
    assert!(asks(&lost, &wanted("A")), "a node is lost");
    let mut restarted = pods;
    let status = json!({"clusterID": "c1", "requests": {"restart": {"token": "t", "pods": ["uid-2"]}}});
    Arc::make_mut(&mut restarted.cluster).status = serde_json::from_value(status).ok();
    assert!(asks(&restarted, &wanted("A")), "a restart is not over");
}

fn asks(objects: &Objects, goal: &Goal) -> bool {
    objects.questions(goal, &Memory::default(), Timestamp::UNIX_EPOCH).links
}

#[test]
fn a_cluster_that_stays_in_plain_text_or_keeps_plain_clients_is_settled() {
    let links = |spec: Value, transport: Transport| {
        let mut cluster = formed(3, json!({})).cluster;
        Arc::make_mut(&mut cluster).spec = serde_json::from_value(spec).expect("it is a spec");
        let mut form = validate(&cluster).expect("it is valid").form;
        form.transport = transport;
        let mut objects = Objects { cluster, ..formed(3, json!({"etcd.etcd.io/form": form.digest()})) };
        let digest = form.digest();
        let (of_unmarked_pods, held_generation, adopts, cleared, tls) = Default::default();
        let record = Record { digest, form, of_unmarked_pods, held_generation, adopts, cleared, tls };
        objects.record = Some(Arc::new(ConfigMap { data: Some(record.data()), ..ConfigMap::default() }));
        let checked = validate(&objects.cluster).map(|intent| intent.towards(objects.target()));
        let goal = Goal::of(checked.as_ref().map_err(Vec::as_slice), &objects, &names(), &BTreeSet::new());
        asks(&objects, &goal)
    };
    let clients = ClientPort::Both;
    assert!(!links(json!({"size": 3}), Transport::default()), "of an older operator");
    assert!(!links(json!({"size": 3}), Transport { clients, ..Transport::TLS }), "after a switch");
    assert!(!links(json!({"size": 3}), Transport::TLS));
}

#[test]
fn the_transport_of_a_cluster_is_that_of_its_record_its_set_or_a_pod() {
    use crate::desired::Desired;

    let made_from = |enabled: bool| {
        let spec = json!({"security": {"tls": {"enabled": enabled}}});
        let mut cluster = EtcdCluster::new("kv", serde_json::from_value(spec).expect("it is a spec"));
        cluster.metadata.uid = Some("uid".into());
        let intent = validate(&cluster).expect("it is valid");
        Desired { intent: &intent, names: &names(), agent_image: "op:1", operator: None }
            .stateful_set(1, &intent.form)
    };
    let pod = |set: &StatefulSet| {
        let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.clone());
        BTreeMap::from([(Ordinal(0), Arc::new(Pod { spec, ..Pod::default() }))])
    };
    let tls = Some(Transport::TLS);
    let plain = Some(Transport::default());
    let mut there = objects(&[]);
    assert_eq!(there.transport(), None, "there is nothing yet");
    let order = |armed: bool, scheme: &str| {
        let members =
            BTreeMap::from([("kv-0".into(), format!("{scheme}://kv-0.kv-peer.ns.svc.cluster.local:2380"))]);
        let (protocol_version, cluster_uid, nonce) = (Protocol::CURRENT, "uid".into(), "nonce".into());
        let order = BootstrapOrder { protocol_version, cluster_uid, attempt: 1, armed, nonce, members };
        let data = BTreeMap::from([(order::KEY.to_owned(), order.render())]);
        Some(Arc::new(ConfigMap { data: Some(data), ..ConfigMap::default() }))
    };
    there.order = order(false, "http");
    assert_eq!(there.transport(), None, "no pod uses an order that is not armed");
    there.order = order(true, "http");
    let peers = PeerPort::Http;
    assert_eq!(there.transport(), Some(Transport { peers, ..Transport::TLS }), "of the order");
    there.order = order(true, "https");
    assert_eq!(there.transport(), tls, "of the order");
    there.order = order(true, "http");
    there.pods = pod(&made_from(true));
    assert_eq!(there.transport(), tls, "of a pod");
    there.set = Some(Arc::new(made_from(false)));
    assert_eq!(there.transport(), plain, "of the StatefulSet");
    let form = Form::read(&made_from(true).spec.expect("a spec").template).expect("it is ours");
    let record = Record {
        digest: form.digest(),
        form,
        of_unmarked_pods: false,
        held_generation: None,
        adopts: None,
        cleared: BTreeSet::new(),
        tls: None,
    };
    there.record = Some(Arc::new(ConfigMap { data: Some(record.data()), ..ConfigMap::default() }));
    assert_eq!(there.transport(), tls, "as it was recorded");
    let mut other = objects(&[]);
    other.pods = pod(&made_from(true));
    Arc::make_mut(&mut other.cluster).metadata.uid = Some("another".into());
    assert_eq!(other.transport(), None, "a previous cluster left this pod");
}

/// Secrets of the operator are read more often while one might be missing.
#[test]
fn pods_are_ready_when_the_kubelet_reports_it_of_each() {
    let ready = |statuses: [&str; 2]| {
        let mut objects = objects(&[creating(), creating()]);
        for (pod, status) in objects.pods.values_mut().zip(statuses) {
            let conditions = json!({"conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": status}]});
            Arc::make_mut(pod).status = serde_json::from_value(conditions).expect("it is a status");
        }
        objects.pods_are_ready()
    };
    assert!(ready(["True", "True"]));
    assert!(!ready(["True", "False"]) && !ready(["Unknown", "True"]));
    assert!(!objects(&[creating()]).pods_are_ready() && objects(&[]).pods_are_ready());
}
