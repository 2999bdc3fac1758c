//! What holds for every snapshot of a cluster whose members get another form.

use std::collections::BTreeMap;

use etcd_operator_core::assess::assess;
use etcd_operator_core::decide::{Goal, decide};
use etcd_operator_core::form::{Digest, Wanted};
use etcd_operator_core::observed::{
    Backup, CopyResult, Observed, Ordinal, Pod, PreflightState, RequestedCopy,
};
use etcd_operator_core::plan::{Action, Plan};
use etcd_operator_core::quorum::quorum;
use etcd_operator_core::schedule::Opening;
use proptest::prelude::*;

use crate::snapshots::anything;
use crate::{answer_of, configuration};

proptest! {
    #![proptest_config(configuration())]

    #[test]
    fn a_member_is_restarted_only_for_a_reason((goal, seen) in anything()) {
        let plan = decide(&goal, &seen);
        for ordinal in ended(&plan).filter(|it| !seen.cluster.deleting && serves(*it, &seen)) {
            prop_assert!(may_end(ordinal, &goal, &seen), "{plan}");
        }
    }

    #[test]
    fn a_serving_member_is_evicted_where_a_budget_can_allow_it((goal, seen) in anything()) {
        let plan = decide(&goal, &seen);
        for action in &plan.actions {
            if let Action::DeletePod { ordinal, .. } = action
                && serves(*ordinal, &seen)
                && !seen.cluster.deleting
            {
                prop_assert!(!goal.disruption_budget || voters(&seen) < 3, "{plan}");
            }
        }
    }

    /// Where a restart stops writes, the operator's own reasons wait for consent or a window.
    #[test]
    fn a_cluster_of_one_or_two_stops_only_for_its_user_or_in_a_window((goal, seen) in anything()) {
        let plan = decide(&goal, &seen);
        let small = voters(&seen) < 3 && !seen.cluster.deleting;
        for ordinal in ended(&plan).filter(|it| small && serves(*it, &seen)) {
            let edited = goal.form.as_ref().map(|it| &it.form) != seen.pods[&ordinal].form.as_ref();
            prop_assert!(edited || Opening::of(&goal.windows, seen.now) == Opening::Now, "{plan}");
        }
    }

    #[test]
    fn no_serving_member_stops_before_its_form_is_tried_wherever_one_serves((goal, seen) in anything()) {
        let plan = decide(&goal, &seen);
        for ordinal in ended(&plan).filter(|it| !seen.cluster.deleting && serves(*it, &seen)) {
            prop_assert!(is_tried(&goal, &seen), "{ordinal}: {plan}");
        }
    }

    #[test]
    fn no_serving_member_gets_another_version_first_without_a_copy((goal, mut seen) in anything(), backups in backups()) {
        seen.backups = backups;
        let plan = decide(&goal, &seen);
        for ordinal in ended(&plan).filter(|it| !seen.cluster.deleting && serves(*it, &seen)) {
            prop_assert!(!changes_version(ordinal, &goal, &seen) || is_copied(&seen), "{ordinal}: {plan}");
        }
        let enables = plan.actions.iter().any(|it| matches!(it, Action::EnableDowngrade { .. }));
        prop_assert!(!enables || is_copied(&seen) || begun(&goal, &seen), "{plan}");
    }

    #[test]
    fn a_settled_cluster_has_no_preflight_pods((goal, seen) in anything()) {
        let plan = decide(&goal, &seen);
        let judged = plan == Plan::default() && !seen.cluster.deleting && goal.form.is_some();
        prop_assert!(!judged || seen.preflights.values().all(|pod| pod.terminating));
    }

    #[test]
    fn nothing_is_done_while_paused((mut goal, mut seen) in anything()) {
        (goal.paused, seen.cluster.deleting) = (true, false);
        prop_assert!(decide(&goal, &seen).actions.is_empty());
    }

    #[test]
    fn a_cluster_is_settled_only_in_the_wanted_form((goal, seen) in anything()) {
        let plan = decide(&goal, &seen);
        let judged = plan == Plan::default() && !seen.cluster.deleting && goal.size > 0;
        if let (true, Some(wanted)) = (judged, &goal.form) {
            prop_assert!(staying(&seen).all(|(_, pod)| pod.form.as_ref() == Some(&wanted.form)));
            prop_assert!(staying(&seen).all(|(_, pod)| pod.agent >= goal.lowest_agent));
            // What nobody runs yet, and what one of them does not serve in, is not known to work.
            let proven = staying(&seen).filter(|(it, _)| is_proven(*it, wanted, &seen)).count()
                == usize::from(seen.replicas());
            prop_assert!(!proven || template(&seen) == Some(&wanted.form));
        }
    }

    /// Until a form has proved itself, and when it has not, other pods get the recorded one.
    #[test]
    fn a_form_that_has_not_proved_itself_leaves_the_template((goal, seen) in anything()) {
        if let Some((wanted, record)) = on_trial(&goal, &seen) {
            let plan = decide(&goal, &seen);
            let ends = ended(&plan).any(|ordinal| serves(ordinal, &seen));
            let keeps = plan.actions.is_empty() && template(&seen) == Some(&wanted.form);
            prop_assert!(!ends && !keeps, "record {record}: {plan}");
        }
    }
}

const TOKEN: &str = "uid-1";

fn backups() -> impl Strategy<Value = BTreeMap<String, Backup>> {
    let result = prop_oneof![
        Just(CopyResult::Taken),
        Just(CopyResult::Retrying(String::new())),
        Just(CopyResult::Failed(String::new()))
    ];
    let token = prop_oneof![3 => Just(TOKEN.to_owned()), 1 => Just("uid-0".to_owned())];
    let requested = prop::option::of((token, result))
        .prop_map(|it| it.map(|(token, result)| RequestedCopy { token, result }));
    let backup = (prop::bool::weighted(0.8), requested).prop_map(|(takes_copies, requested)| Backup {
        takes_copies,
        requested,
        ..Backup::default()
    });
    prop::collection::vec(backup, 0..3).prop_map(|all| {
        all.into_iter().enumerate().map(|(number, it)| (format!("ns/b{number}"), it)).collect()
    })
}

/// Whether this member gets another version, and none has it yet.
fn changes_version(ordinal: Ordinal, goal: &Goal, seen: &Observed) -> bool {
    let members = seen.etcd.members.known();
    let version =
        members.and_then(|members| members.at(ordinal)).and_then(|(id, _)| answer_of(seen, id)?.version);
    goal.form.as_ref().is_some_and(|wanted| version != Some(wanted.version)) && !begun(goal, seen)
}

fn begun(goal: &Goal, seen: &Observed) -> bool {
    let Some(wanted) = &goal.form else { return true };
    staying(seen).any(|(it, _)| is_proven(it, wanted, seen))
}

/// Whether an EtcdBackup has the copy, or none takes any.
fn is_copied(seen: &Observed) -> bool {
    let uid: String = seen.cluster.uid.chars().take(8).collect();
    let token = format!("{uid}-{}", seen.cluster.generation.unwrap_or_default());
    let has_it = |it: &RequestedCopy| it.token == token && it.result == CopyResult::Taken;
    let mut active = seen.backups.values().filter(|it| it.takes_copies).peekable();
    active.peek().is_none() || active.any(|it| it.requested.as_ref().is_some_and(has_it))
}

fn template(seen: &Observed) -> Option<&Digest> {
    seen.set.as_ref()?.template.as_ref()
}

/// A running cluster of which some pods have the wanted form, none of them works, and every other pod is there.
fn on_trial<'a>(goal: &'a Goal, seen: &'a Observed) -> Option<(&'a Wanted, &'a Digest)> {
    let (wanted, record) = (goal.form.as_ref()?, &seen.record.as_ref()?.form);
    let facts = assess(seen);
    let members = facts.listed()?;
    let ordinary = seen.cluster.finalizer
        && !seen.cluster.deleting
        && !goal.paused
        && goal.size > 0
        && seen.order.is_none()
        && seen.claims.values().all(|claim| claim.cluster_uid == seen.cluster.uid)
        && seen.cluster.formed.is_some()
        && members.list.values().all(|member| member.ordinal.is_some());
    let mut rolled = staying(seen).filter(|(_, pod)| is_rolled(pod, wanted, goal)).peekable();
    let any = rolled.peek().is_some();
    let none_works = rolled.all(|(ordinal, _)| !is_proven(ordinal, wanted, seen));
    (ordinary && record != &wanted.form && any && none_works).then_some((wanted, record))
}

fn ended(plan: &Plan) -> impl Iterator<Item = Ordinal> {
    plan.actions.iter().filter_map(|action| match action {
        Action::DeletePod { ordinal, .. } | Action::EvictPod { ordinal, .. } => Some(*ordinal),
        _ => None,
    })
}

/// Whether a pod of a voter may be ended: it gets another form or agent, which the StatefulSet creates by now, and enough others serve. If
/// it serves itself, every pod that has the form works, and no other pod is missing.
pub fn may_end(ordinal: Ordinal, goal: &Goal, seen: &Observed) -> bool {
    let (Some(wanted), Some(set)) = (&goal.form, &seen.set) else { return false };
    let outdated = seen.pods.get(&ordinal).is_some_and(|pod| !is_rolled(pod, wanted, goal));
    let created =
        set.template.as_ref() == Some(&wanted.form) && set.followed && set.agent >= goal.lowest_agent;
    let mut rolled = staying(seen).filter(|(_, pod)| is_rolled(pod, wanted, goal));
    let proven = rolled.all(|(it, _)| is_proven(it, wanted, seen));
    let all_there = staying(seen).count() == usize::from(set.replicas);
    let others = Ordinal::below(u8::MAX).filter(|it| *it != ordinal && serves(*it, seen)).count();
    // A member that does not respond to the operator might serve others.
    let enough = voters(seen) < 3 || others >= quorum(voters(seen));
    outdated && created && enough && (!serves(ordinal, seen) || proven && all_there)
}

fn is_rolled(pod: &Pod, wanted: &Wanted, goal: &Goal) -> bool {
    pod.form.as_ref() == Some(&wanted.form) && pod.agent >= goal.lowest_agent
}

/// Whether nothing is left to try of the wanted form: it is what all members ran, a member serves in it, or a pod has passed
/// on every node of a member that serves.
fn is_tried(goal: &Goal, seen: &Observed) -> bool {
    let (Some(wanted), Some(record)) = (&goal.form, &seen.record) else { return true };
    let has_it = |pod: &Pod| pod.form.as_ref() == Some(&wanted.form);
    let passed = |node: &String| {
        let mut pods =
            seen.preflights.values().filter(|pod| !pod.terminating && pod.node.as_ref() == Some(node));
        pods.any(|pod| pod.state == PreflightState::Passed && pod.proof == wanted.proof)
    };
    record.proof == wanted.proof
        || staying(seen).any(|(it, pod)| has_it(pod) && is_proven(it, wanted, seen))
        || staying(seen)
            .filter(|(it, pod)| !has_it(pod) && serves(*it, seen))
            .all(|(_, pod)| pod.node.as_ref().is_some_and(passed))
}

/// The pods that the StatefulSet keeps.
fn staying(seen: &Observed) -> impl Iterator<Item = (Ordinal, &Pod)> {
    let pods = seen.pods.iter().map(|(&ordinal, pod)| (ordinal, pod));
    pods.filter(|(ordinal, pod)| ordinal.0 < seen.replicas() && !pod.terminating)
}

fn voters(seen: &Observed) -> usize {
    seen.etcd.members.known().map_or(0, |members| members.voters().count())
}

/// Whether the voter of a pod has just served a linearizable read.
fn serves(ordinal: Ordinal, seen: &Observed) -> bool {
    let members = seen.etcd.members.known();
    let Some((id, member)) = members.and_then(|members| members.at(ordinal)) else { return false };
    !member.learner && answer_of(seen, id).is_some_and(|answer| answer.linearizable)
}

fn is_proven(ordinal: Ordinal, wanted: &Wanted, seen: &Observed) -> bool {
    let member = seen.etcd.members.known().and_then(|members| members.at(ordinal));
    let version = member.and_then(|(id, _)| answer_of(seen, id)?.version);
    serves(ordinal, seen) && version == Some(wanted.version)
}
