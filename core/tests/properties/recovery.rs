//! What holds while no quorum serves, whatever pods and volumes show, whatever users consent to, and whatever a status says.

use etcd_operator_core::agent::Protocol;
use etcd_operator_core::decide::{Goal, decide};
use etcd_operator_core::form::{Digest, Wanted};
use etcd_operator_core::observed::{
    ClusterId, LossSign, MemberId, NodeLoss, Observed, Ordinal, Process, Recovery, Seen, Unanswered,
};
use etcd_operator_core::plan::Action;
use etcd_operator_core::recovery::{Consent, Survivor};
use etcd_operator_core::version::Version;
use proptest::prelude::*;
use proptest::sample::select;

use super::{configuration, snapshots};

/// What is left of a member.
#[derive(Clone, Debug, PartialEq)]
enum Left {
    Responds(u64),
    Inspected,
    /// Its agent said so before, and does not respond now.
    DataLost,
    Silent,
    Gone,
    GoneWithVolume,
    Ending,
    OnLostNode,
}

fn left() -> impl Strategy<Value = Left> {
    prop_oneof![
        3 => (1..4_u64).prop_map(Left::Responds),
        6 => Just(Left::Inspected),
        1 => select(vec![Left::DataLost, Left::Silent, Left::Gone, Left::GoneWithVolume, Left::Ending, Left::OnLostNode]),
    ]
}

fn consent() -> impl Strategy<Value = Option<Consent>> {
    let survivor = prop_oneof![
        2 => Just(Survivor::Auto),
        1 => (0..9_u8).prop_map(|it| Survivor::Pod(Ordinal(it))),
        1 => Just(Survivor::Unknown("other-0".into())),
    ];
    let given = (prop::option::weighted(0.1, Just(ClusterId(0xdead))), survivor);
    prop::option::weighted(
        0.8,
        given.prop_map(|(other, survivor)| Consent { cluster: other.unwrap_or(ClusterId(0)), survivor }),
    )
}

fn order() -> impl Strategy<Value = Option<Recovery>> {
    let start = prop::option::weighted(0.4, (0..3_u8, prop::bool::weighted(0.6)));
    let order = start.prop_map(|start| {
        let pod = |ordinal: u8, same: bool| if same { format!("pod-{ordinal}") } else { "former".into() };
        let start = start.map(|(it, same)| (Ordinal(it), pod(it, same)));
        Recovery { uid: "recovery".into(), start }
    });
    prop::option::weighted(0.8, order)
}

/// The cluster ID that a consent of zero stands for is that of the cluster.
fn without_quorum() -> impl Strategy<Value = (Goal, Observed, Vec<Left>)> {
    let agent = select(vec![Protocol(4), Protocol(5), Protocol(5), Protocol(5)]);
    (snapshots::settled(), prop::collection::vec(left(), 9), consent(), order(), agent).prop_map(
        |((mut goal, mut seen), left, consent, order, agent)| {
            let cluster = seen.cluster.formed.as_ref().map(|formed| formed.id).unwrap_or(ClusterId(1));
            let chosen =
                |it: Consent| Consent { cluster: if it.cluster.0 == 0 { cluster } else { it.cluster }, ..it };
            goal.recovery = consent.map(chosen);
            let form = Digest("A".into());
            let version = Version::new(3, 6, 11);
            goal.form = Some(Wanted { form: form.clone(), version, proof: None, plain: None });
            seen.etcd.members = Seen::Unknown(Unanswered::NoLinearizableRead);
            seen.recovery = order;
            if let Some(set) = &mut seen.set {
                (set.agent, set.template) = (agent, Some(form.clone()));
            }
            for (ordinal, left) in Ordinal::below(9).zip(&left) {
                leave(&mut seen, ordinal, left, &form);
            }
            (goal, seen, left)
        },
    )
}

fn leave(seen: &mut Observed, ordinal: Ordinal, left: &Left, form: &Digest) {
    let Some(pod) = seen.pods.get_mut(&ordinal) else { return };
    pod.form = Some(form.clone());
    let waits = Seen::Unknown(Unanswered::AgentWaiting("this".into()));
    let silent = Seen::Unknown(Unanswered::Unreachable("silent".into()));
    let answer = seen.etcd.answers.remove(&ordinal);
    match left {
        Left::Responds(index) => {
            let Some(Seen::Known(mut answer)) = answer else { return };
            (answer.linearizable, answer.leader, answer.commit_index) = (false, None, *index);
            answer.reaches = Some((0..600).map(MemberId).collect());
            seen.etcd.answers.insert(ordinal, Seen::Known(answer));
        }
        Left::Inspected => {
            pod.etcd = Process::DataLost;
            seen.etcd.answers.insert(ordinal, waits);
        }
        Left::DataLost => {
            pod.etcd = Process::DataLost;
            seen.etcd.answers.insert(ordinal, silent);
        }
        Left::Silent => _ = seen.etcd.answers.insert(ordinal, silent),
        Left::Gone => {
            seen.claims.remove(&ordinal);
            seen.pods.remove(&ordinal);
        }
        Left::GoneWithVolume => _ = seen.pods.remove(&ordinal),
        Left::Ending => pod.terminating = true,
        Left::OnLostNode => {
            let sign = LossSign::EndOverdue;
            pod.loss = Some(NodeLoss { node: "n1".into(), since: seen.now, sign });
            pod.terminating = true;
        }
    }
}

fn touches_data(action: &Action) -> bool {
    matches!(
        action,
        Action::DeleteClaim { .. }
            | Action::DeletePod { .. }
            | Action::ForceDeletePod { .. }
            | Action::ArmRecovery { .. }
    )
}

proptest! {
    #![proptest_config(configuration())]

    #[test]
    fn without_quorum_nothing_is_touched_unless_a_user_consents_after_the_loss_was_recorded(
        (goal, seen, _) in without_quorum()
    ) {
        let plan = decide(&goal, &seen);
        let ours = seen.cluster.formed.as_ref().map(|formed| formed.id);
        let consented = goal.recovery.as_ref().is_some_and(|it| Some(it.cluster) == ours);
        if !consented || seen.recovery.is_none() {
            prop_assert!(!plan.actions.iter().any(touches_data), "{plan}");
        }
    }

    #[test]
    fn no_volume_is_deleted_that_does_not_belong_to_a_member_that_responds_beside_the_survivor(
        (goal, seen, left) in without_quorum()
    ) {
        let plan = decide(&goal, &seen);
        let responds = |it: &Ordinal| matches!(left[usize::from(it.0)], Left::Responds(_)) && seen.pods.contains_key(it);
        let deleted: Vec<Ordinal> = plan.actions.iter().filter_map(|it| match it {
            Action::DeleteClaim { ordinal, .. } => Some(*ordinal),
            _ => None,
        }).collect();
        prop_assert!(deleted.iter().all(responds), "{plan}");
        let kept = seen.pods.keys().filter(|it| responds(it) && !deleted.contains(it));
        prop_assert!(deleted.is_empty() || kept.count() >= 1, "{plan}");
    }

    #[test]
    fn nobody_continues_alone_while_another_pod_might_have_data((goal, seen, left) in without_quorum()) {
        let plan = decide(&goal, &seen);
        let survivor = plan.actions.iter().find_map(|it| match it {
            Action::ArmRecovery { survivor, .. } => Some(*survivor),
            Action::DeletePod { ordinal, .. } => {
                seen.recovery.as_ref()?.start.as_ref().filter(|(it, _)| it == ordinal).map(|(it, _)| *it)
            }
            _ => None,
        });
        let Some(survivor) = survivor else { return Ok(()) };
        for (ordinal, left) in Ordinal::below(9).zip(&left).filter(|(it, _)| *it != survivor) {
            let there = seen.pods.contains_key(&ordinal) || seen.claims.contains_key(&ordinal);
            prop_assert!(!there || *left == Left::Inspected, "{ordinal} {left:?}: {plan}");
        }
    }

    #[test]
    fn the_survivor_has_the_most_of_those_that_respond_or_is_the_one_that_is_named((goal, seen, left) in without_quorum()) {
        let plan = decide(&goal, &seen);
        for action in &plan.actions {
            let Action::ArmRecovery { survivor, .. } = action else { continue };
            let index = |it: Ordinal| match left[usize::from(it.0)] { Left::Responds(index) => Some(index), _ => None };
            let own = index(*survivor);
            prop_assert!(own.is_some());
            match goal.recovery.as_ref().map(|it| &it.survivor) {
                Some(Survivor::Pod(named)) => prop_assert_eq!(named, survivor),
                _ => prop_assert!(seen.pods.keys().all(|it| index(*it) <= own)),
            }
        }
    }
}
