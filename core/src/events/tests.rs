use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::*;
use crate::agent::Protocol;
use crate::form::{Digest, Wanted};
use crate::member::MemberProgress;
use crate::observed::{
    Answer, Claim, ClusterId, FormRecord, Formed, Member, MemberId, Members, Observed, Pod, Process, Seen,
    Set,
};
use crate::tls::Schemes;
use crate::version::Version;
use crate::version::downgrade::Downgrade;

const CLUSTER: ClusterId = ClusterId(0xc1);

fn names() -> Names {
    Names::new("ns", "kv", "cluster.local")
}

fn goal() -> Goal {
    let form = Wanted { form: Digest("B".into()), version: Version::new(3, 6, 0), proof: None, plain: None };
    Goal { form: Some(form), lowest_agent: Protocol(2), ..Goal::of_size(3) }
}

/// Three members, of which two are known here.
fn seen() -> Observed {
    let member = |ordinal| Member {
        ordinal: Some(Ordinal(ordinal)),
        learner: false,
        start: MemberProgress::Published,
        schemes: Schemes::default(),
    };
    let list = BTreeMap::from([(MemberId(0xa0), member(0)), (MemberId(0xa1), member(1))]);
    let formed = Formed { id: CLUSTER, since: Timestamp::UNIX_EPOCH };
    let mut seen = Observed::nothing_of("uid");
    seen.cluster.formed = Some(formed);
    seen.set = Some(Set::keeping(3, "set"));
    seen.etcd.members = Seen::Known(Members { cluster: CLUSTER, leader: None, list });
    seen
}

fn told(action: Action) -> Option<String> {
    let event = of_action(&action, &goal(), &names(), &seen())?;
    assert!(!event.warning && event::ALL.contains(&event.reason.as_str()), "{event:?}");
    Some(format!("{}: {}", event.reason, event.note))
}

#[test]
fn every_step_has_an_event_in_the_words_of_users() {
    let uid = || "uid".to_owned();
    let (ordinal, member, cluster) = (Ordinal(1), MemberId(0xa1), CLUSTER);
    for (action, expected) in [
        (Action::CreateOrder { size: 2 }, "BootstrapPrepared: prepared the bootstrap of kv-0, kv-1"),
        (
            Action::ArmOrder { uid: uid() },
            "BootstrapAllowed: allowed the pods to bootstrap as soon as they run",
        ),
        (Action::RecordFormed { cluster }, "ClusterBootstrapped: bootstrapped as cluster c1"),
        (Action::DeleteOrder { uid: uid() }, "BootstrapFinished: bootstrap finished"),
        (
            Action::PrepareRecovery,
            "MajorityLost: a majority of the members has lost its data: condition QuorumLost describes the way out",
        ),
        (
            Action::ArmRecovery { uid: uid(), survivor: ordinal, pod: uid() },
            "RecoveryStarted: kv-1 continues without the other members, with consent",
        ),
        (
            Action::RecordIncarnation { incarnation: uid() },
            "RecoveryCompleted: one member serves alone; what only others had is lost (incarnation uid)",
        ),
        (Action::EndRecovery { uid: uid() }, "RecoveryEnded: the order for the recovery is deleted"),
        (Action::SetReplicas { replicas: 5 }, "PodsCreated: creating pods: kv-3, kv-4"),
        (Action::SetReplicas { replicas: 2 }, "PodsRemoved: removing pods: kv-2"),
        (Action::AddLearner { ordinal, cluster }, "MemberAdded: added kv-1 as a learner"),
        (Action::Promote { ordinal, member, cluster }, "MemberPromoted: promoted kv-1 (a1) to a voter"),
        (
            Action::MoveLeader { from: MemberId(0xa0), to: member, cluster },
            "LeaderMoved: moved leadership from kv-0 (a0) to kv-1 (a1)",
        ),
        (Action::RemoveMember { member, cluster }, "MemberRemoved: removed kv-1 (a1) from the members"),
        (
            Action::RemoveMember { member: MemberId(0xb1), cluster },
            "MemberRemoved: removed b1 from the members",
        ),
        (
            Action::ForceDeletePod { ordinal, uid: uid() },
            "PodDeleted: deleted pod kv-1 by force, after its member was removed",
        ),
        (
            Action::DeletePod { ordinal, uid: uid() },
            "PodDeleted: deleted pod kv-1, to recreate it with an empty volume",
        ),
        (
            Action::AdoptClaim { ordinal, uid: uid() },
            "VolumeAdopted: adopted volume data-kv-1 of the previous cluster",
        ),
        (Action::DeleteClaim { ordinal, uid: uid() }, "VolumeDeleted: deleted volume data-kv-1"),
        (Action::DeleteSet { uid: uid() }, "PodsRemoved: deleting all pods"),
        (
            Action::CreatePreflight { ordinal, node: "n1".into() },
            "PreflightStarted: trying the new image and arguments on node n1, before a member restarts",
        ),
        (Action::RemoveFinalizer, "ClusterDeleted: deleted, with all volumes"),
    ] {
        assert_eq!(told(action).as_deref(), Some(expected));
    }
}

/// The event of an action while these voters serve.
fn told_while_serving(action: &Action, voters: u8, change: impl FnOnce(&mut Observed)) -> Option<String> {
    let mut seen = seen();
    seen.set = Some(Set::keeping(voters, "set"));
    if let Seen::Known(members) = &mut seen.etcd.members {
        members.list.retain(|_, member| member.ordinal.is_some_and(|ordinal| ordinal.0 < voters));
    }
    for ordinal in Ordinal::below(voters) {
        let member = MemberId(0xa0 + u64::from(ordinal.0));
        let answer = Answer {
            cluster: CLUSTER,
            member,
            leader: None,
            linearizable: true,
            denied: false,
            applied_index: 1,
            commit_index: 0,
            term: 0,
            version: None,
            storage_version: None,
            downgrade: Downgrade::Unreported,
            listed: None,
            hash: None,
            alarms: BTreeSet::new(),
            space: None,
            file: None,
            reaches: None,
        };
        seen.etcd.answers.insert(ordinal, Seen::Known(answer));
        let claim = Claim {
            uid: "claim".into(),
            terminating: false,
            cluster_uid: "uid".into(),
            bound: true,
            member: Some(member),
            ..Claim::default()
        };
        seen.claims.insert(ordinal, claim);
        let (uid, form) = (format!("pod-{ordinal}"), Some(Digest("A".into())));
        let (terminating, orphaned, published) = (false, false, true);
        let (etcd, node, agent, created, version) = (Process::Started, None, Protocol(2), None, None);
        let handshakes = BTreeMap::new();
        let transport = None;
        let pod = Pod {
            uid,
            terminating,
            published,
            etcd,
            form,
            version,
            transport,
            node,
            loss: None,
            was_ready: false,
            agent,
            orphaned,
            created,
            handshakes,
        };
        seen.pods.insert(ordinal, pod);
    }
    change(&mut seen);
    of_action(action, &goal(), &names(), &seen).map(|event| format!("{}: {}", event.reason, event.note))
}

#[test]
fn a_restart_that_stops_writes_announces_it() {
    let restart = Action::DeletePod { ordinal: Ordinal(0), uid: "uid".into() };
    for voters in [1, 2] {
        let expected = "MemberRestarted: restarting kv-0 with the changed spec: writes stop until it returns";
        assert_eq!(told_while_serving(&restart, voters, |_| ()).as_deref(), Some(expected));
    }
    let plain = "MemberRestarted: restarting kv-0 with the changed spec";
    let down = |seen: &mut Observed| {
        seen.etcd.answers.remove(&Ordinal(0));
    };
    assert_eq!(told_while_serving(&restart, 2, down).as_deref(), Some(plain), "it stopped them already");
    let third = |seen: &mut Observed| {
        if let Seen::Known(members) = &mut seen.etcd.members {
            let member = members.list[&MemberId(0xa1)].clone();
            members.list.insert(MemberId(0xa2), Member { ordinal: Some(Ordinal(2)), ..member });
        }
        let answer = seen.etcd.answers[&Ordinal(1)].known().cloned().expect("it serves");
        let third = Answer { member: MemberId(0xa2), ..answer };
        seen.etcd.answers.insert(Ordinal(2), Seen::Known(third));
    };
    assert_eq!(told_while_serving(&restart, 2, third).as_deref(), Some(plain));
}

#[test]
fn a_restart_names_its_reason() {
    let restart = Action::DeletePod { ordinal: Ordinal(0), uid: "uid".into() };
    let told = |change: fn(&mut Observed)| {
        let told = told_while_serving(&restart, 1, |seen| {
            seen.pods.values_mut().for_each(|pod| pod.form = Some(Digest("B".into())));
            change(seen);
        });
        told.and_then(|it| Some(it.split_once("kv-0 ")?.1.split_once(": writes stop")?.0.to_owned()))
    };
    let requested = |seen: &mut Observed| seen.cluster.restart = Some(("t".into(), ["pod-0".into()].into()));
    assert_eq!(told(requested).as_deref(), Some("as requested"));
    let agent = |seen: &mut Observed| seen.pods.values_mut().for_each(|pod| pod.agent = Protocol(1));
    assert_eq!(told(agent).as_deref(), Some("with the agent that this operator requires"));
}

#[test]
fn a_rollout_ends_with_a_record_and_the_first_record_ends_none() {
    let record = Action::RecordForm { form: Digest("B".into()) };
    assert_eq!(told_while_serving(&record, 2, |_| ()), None);
    let recorded = |seen: &mut Observed| {
        let (form, version) = (Digest("A".into()), Version::new(3, 6, 0));
        seen.record = Some(FormRecord {
            uid: "record".into(),
            form,
            version,
            proof: None,
            held_generation: None,
            adopts: None,
            cleared: BTreeSet::new(),
            plain: None,
            tls: None,
        });
    };
    let expected = "RolloutFinished: all 2 members run with the changed spec";
    assert_eq!(told_while_serving(&record, 2, recorded).as_deref(), Some(expected));
}

#[test]
fn bookkeeping_has_no_event() {
    assert_eq!(told(Action::AddFinalizer), None);
    assert_eq!(told(Action::SetTemplate { form: Digest("B".into()) }), None);
    let label = Action::LabelClaim { ordinal: Ordinal(1), uid: "uid".into(), member: MemberId(0xa1) };
    assert_eq!(told(label), None);
}

#[test]
fn a_long_note_is_cut_between_characters() {
    let event = Event::normal(event::RUNNING, "Report", "ä".repeat(2000));
    assert!(event.note.len() < 1024 && event.note.ends_with("ä ..."));
}
