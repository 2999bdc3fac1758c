use serde_json::{Value, json};

use super::*;
use crate::member::MemberProgress;
use crate::observed::{Answer, Blocked, Member, Members, Process, Seen, Unanswered};

const CLUSTER: ClusterId = ClusterId(0xc1);

fn names() -> Names {
    Names { namespace: "ns".into(), cluster: "kv".into(), domain: "cluster.local".into() }
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
        claims: BTreeMap::new(),
        listed: Listed::new(),
        services: BTreeMap::new(),
        budget: None,
        taken: BTreeSet::new(),
    }
}

fn creating() -> Value {
    json!({"waiting": {"reason": "ContainerCreating"}})
}

fn nobody() -> Reply {
    Reply::Nobody("no response".into())
}

fn agent(process: Process) -> Reply {
    Reply::Agent { process, message: "waits".into() }
}

fn answer(member: u64, leader: u64) -> Answer {
    Answer {
        cluster: CLUSTER,
        member: MemberId(member),
        leader: Some(MemberId(leader)),
        linearizable: true,
        applied_index: 1,
        version: None,
        storage_version: None,
        downgrade: Default::default(),
        listed: None,
        hash: None,
        alarms: Default::default(),
    }
}

fn list(ordinals: &[u8]) -> Members {
    let member = |it: &u8| {
        let member = Member { ordinal: Some(Ordinal(*it)), learner: false, start: MemberProgress::Published };
        (MemberId(0xa0 + u64::from(*it)), member)
    };
    Members { cluster: CLUSTER, leader: None, list: ordinals.iter().map(member).collect() }
}

fn seen(objects: &Objects, replies: &[Reply], memory: &mut Memory, second: i64) -> Observed {
    let replies = (0..).map(Ordinal).zip(replies.iter().cloned()).collect();
    let now = Timestamp::from_second(second).expect("a time");
    observe(objects, &names(), &replies, &[], memory, now)
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
        observe(&objects, &names(), &BTreeMap::new(), &[], &mut memory, now).pods[&Ordinal(0)].published
    };
    assert_eq!([at(true, 1000), at(true, 1399), at(true, 1400)], [false, false, true]);
    assert_eq!([at(false, 2000), at(true, 2100), at(true, 2500)], [false, false, true]);
}
