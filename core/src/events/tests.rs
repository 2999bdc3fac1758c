use std::collections::BTreeMap;

use jiff::Timestamp;

use super::*;
use crate::member::MemberProgress;
use crate::observed::{ClusterId, Formed, Member, MemberId, Members, Observed, Seen, Set};

const CLUSTER: ClusterId = ClusterId(0xc1);

fn names() -> Names {
    Names { namespace: "ns".into(), cluster: "kv".into(), domain: "cluster.local".into() }
}

/// Three members, of which two are known here.
fn seen() -> Observed {
    let member = |ordinal| Member {
        ordinal: Some(Ordinal(ordinal)),
        learner: false,
        start: MemberProgress::Published,
    };
    let list = BTreeMap::from([(MemberId(0xa0), member(0)), (MemberId(0xa1), member(1))]);
    let formed = Formed { id: CLUSTER, since: Timestamp::UNIX_EPOCH };
    let mut seen = Observed::nothing_of("uid");
    seen.cluster.formed = Some(formed);
    seen.set = Some(Set { uid: "set".into(), replicas: 3, rejected: BTreeMap::new() });
    seen.etcd.members = Seen::Known(Members { cluster: CLUSTER, leader: None, list });
    seen
}

fn told(action: Action) -> Option<String> {
    let event = of_action(&action, &names(), &seen())?;
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
            Action::DeletePod { ordinal, uid: uid() },
            "PodDeleted: deleted pod kv-1, to recreate it with an empty volume",
        ),
        (
            Action::AdoptClaim { ordinal, uid: uid() },
            "VolumeAdopted: adopted volume data-kv-1 of the previous cluster",
        ),
        (Action::DeleteClaim { ordinal, uid: uid() }, "VolumeDeleted: deleted volume data-kv-1"),
        (Action::DeleteSet { uid: uid() }, "PodsRemoved: deleting all pods"),
        (Action::RemoveFinalizer, "ClusterDeleted: deleted, with all volumes"),
    ] {
        assert_eq!(told(action).as_deref(), Some(expected));
    }
}

#[test]
fn bookkeeping_has_no_event() {
    assert_eq!(told(Action::AddFinalizer), None);
    let label = Action::LabelClaim { ordinal: Ordinal(1), uid: "uid".into(), member: MemberId(0xa1) };
    assert_eq!(told(label), None);
}

#[test]
fn a_long_note_is_cut_between_characters() {
    let event = Event::normal(event::RUNNING, "Report", "ä".repeat(2000));
    assert!(event.note.len() < 1024 && event.note.ends_with("ä ..."));
}
