//! What holds for the status of every snapshot, whatever the status was before.

#[path = "properties/snapshots.rs"]
mod snapshots;

use std::collections::BTreeMap;

use etcd_operator_core::api::{EtcdCluster, EtcdClusterSpec, EtcdClusterStatus, Health, Phase};
use etcd_operator_core::decide::{Goal, decide};
use etcd_operator_core::events;
use etcd_operator_core::form::{Digest, Wanted};
use etcd_operator_core::names::{Names, condition, event, reason};
use etcd_operator_core::observed::{FormRecord, Node, Nodes, Observed, Seen, Unread};
use etcd_operator_core::plan::{Action, Refusal, WaitingOn};
use etcd_operator_core::status::{Basis, of_cluster};
use etcd_operator_core::validate::validate;
use etcd_operator_core::version::Version;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;
use snapshots::{anything, proof_of, settled};

/// The same cases every time; a longer look is taken with PROPTEST_CASES and PROPTEST_RNG_SEED.
fn configuration() -> ProptestConfig {
    let asked_for = ProptestConfig::default();
    let rng_seed = match asked_for.rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        fixed @ RngSeed::Fixed(_) => fixed,
    };
    ProptestConfig { failure_persistence: None, rng_seed, ..asked_for }
}

/// With any forms, wanted, recorded and in pods.
fn with_forms() -> impl Strategy<Value = (Goal, Observed)> {
    let form = || select(vec!["A", "A", "B"]).prop_map(|form| Digest(form.into()));
    let version = || select(vec![Version::new(3, 6, 11), Version::new(3, 5, 30)]);
    let pods = prop::collection::vec(form(), 13);
    let record = prop::option::weighted(0.9, (form(), version(), prop::bool::weighted(0.1)));
    let world = prop_oneof![2 => anything().boxed(), 1 => settled().boxed()];
    (world, form(), version(), pods, form(), record).prop_map(
        |((mut goal, mut seen), form, version, pods, template, record)| {
            goal.form = Some(Wanted { proof: Some(proof_of(&form)), plain: None, form, version });
            seen.cluster.generation = Some(1);
            for (pod, form) in seen.pods.values_mut().zip(pods) {
                pod.form = Some(form);
            }
            if let Some(set) = &mut seen.set {
                set.template = Some(template);
            }
            seen.record = record.map(|(form, version, held)| FormRecord {
                uid: "record".into(),
                proof: Some(proof_of(&form)),
                form,
                version,
                held_generation: held.then_some(1),
                adopts: None,
                cleared: Default::default(),
                plain: None,
                tls: None,
            });
            (goal, seen)
        },
    )
}

/// Two looks at worlds that have nothing to do with each other, some time apart.
fn two_looks() -> impl Strategy<Value = (Look, Look)> {
    // On the heap: together they are too large for the stack of a test.
    let world = || prop_oneof![1 => anything().boxed(), 1 => with_forms().boxed()];
    (world(), world(), 0..400_i64).prop_map(|((goal, seen), (later_goal, mut later), seconds)| {
        later.now = seen.now.saturating_add(SignedDuration::from_secs(seconds)).expect("no calendar units");
        (Look { goal, seen }, Look { goal: later_goal, seen: later })
    })
}

/// Any nodes, and where the pods run.
fn placed() -> impl Strategy<Value = (Seen<Nodes, Unread>, Vec<Option<String>>)> {
    let name = || select(vec!["n1", "n2", "n3", "n4"]).prop_map(String::from);
    let zone = prop::option::of(select(vec!["a", "b", "c"]).prop_map(String::from));
    let node = (zone, any::<bool>()).prop_map(|(zone, accepts_members)| Node { zone, accepts_members });
    let by_name = prop::collection::btree_map(name(), node, 0..4);
    let known =
        (by_name, any::<bool>()).prop_map(|(by_name, own_rules)| Seen::Known(Nodes { by_name, own_rules }));
    let nodes = prop_oneof![4 => known, 1 => Just(Seen::Unknown(Unread::Forbidden))];
    (nodes, prop::collection::vec(prop::option::weighted(0.9, name()), 13))
}

#[derive(Clone, Debug)]
struct Look {
    goal: Goal,
    seen: Observed,
}

impl Look {
    fn cluster(&self, status: Option<EtcdClusterStatus>) -> EtcdCluster {
        let Goal { size, paused, .. } = self.goal;
        let mut cluster = EtcdCluster::new(
            "kv",
            EtcdClusterSpec { size: size.into(), paused, ..EtcdClusterSpec::default() },
        );
        cluster.metadata.generation = Some(1);
        cluster.status = status;
        cluster
    }

    /// The status after it: a new one, or the one before.
    fn after(&self, before: Option<EtcdClusterStatus>) -> EtcdClusterStatus {
        self.written(before.clone()).or(before).expect("the first look is written")
    }

    fn written(&self, before: Option<EtcdClusterStatus>) -> Option<EtcdClusterStatus> {
        let cluster = self.cluster(before);
        let intent = validate(&cluster).expect("it is valid");
        let names = Names::new("ns", "kv", "cluster.local");
        let plan = decide(&self.goal, &self.seen);
        let basis = Basis {
            goal: &self.goal,
            spec: Ok(&intent),
            names: &names,
            seen: &self.seen,
            plan: &plan,
            trouble: None,
            failed_writes: &[],
            not_applied: &[],
            edited: &[],
            agents: &BTreeMap::new(),
        };
        of_cluster(&cluster, &basis, self.seen.now)
    }
}

fn is_true(status: &EtcdClusterStatus, type_: &str) -> bool {
    status.conditions.iter().any(|it| it.type_ == type_ && it.status == "True")
}

/// Whether the members that serve stay as they are.
fn is_bookkeeping(action: &Action) -> bool {
    matches!(
        action,
        Action::AddFinalizer
            | Action::RecordFormed { .. }
            | Action::DeleteOrder { .. }
            | Action::LabelClaim { .. }
            | Action::DeleteClaim { .. }
            | Action::RecordForm { .. }
            | Action::RecordCleared { .. }
            | Action::SetTemplate { .. }
            | Action::DeletePreflight { .. }
    )
}

proptest! {
    #![proptest_config(configuration())]

    #[test]
    fn the_same_look_gives_the_same_status((first, second) in two_looks()) {
        let before = first.after(None);
        prop_assert_eq!(second.written(Some(before.clone())), second.written(Some(before)));
    }

    #[test]
    fn what_was_written_says_it_all((first, second) in two_looks()) {
        let written = second.after(Some(first.after(None)));
        prop_assert_eq!(second.written(Some(written.clone())), None);
        prop_assert_eq!(events::of_change(Some(&written), &written), []);
    }

    #[test]
    fn nothing_is_called_healthy_that_did_not_answer((first, second) in two_looks()) {
        let status = second.after(Some(first.after(None)));
        for member in status.members.iter().filter(|it| it.ready || it.health == Health::Healthy) {
            let mut answers = second.seen.etcd.answers.values().filter_map(Seen::known);
            prop_assert!(answers.any(|it| Some(it.member.to_string()) == member.id), "{:?}", member);
        }
    }

    #[test]
    fn no_more_members_are_ready_than_vote((first, second) in two_looks()) {
        let status = second.after(Some(first.after(None)));
        let voters = second.seen.etcd.members.known().map_or(0, |members| members.voters().count());
        let ready = status.members.iter().filter(|it| it.ready).count();
        prop_assert!(ready <= voters);
        prop_assert_eq!(status.ready_replicas, Some(ready as i32));
    }

    #[test]
    fn what_is_set_at_birth_never_goes((first, second) in two_looks()) {
        let before = first.after(None);
        let after = second.after(Some(before.clone()));
        prop_assert!(before.cluster_id.is_none() || after.cluster_id == before.cluster_id);
        prop_assert!(before.formed_at.is_none() || after.formed_at == before.formed_at);
        prop_assert_eq!(&after.domain, &before.domain);
    }

    #[test]
    fn phases_and_conditions_agree((first, second) in two_looks()) {
        let status = second.after(Some(first.after(None)));
        let is = |type_| is_true(&status, type_);
        prop_assert!(!(is(condition::STALLED) && is(condition::RECONCILING)));
        prop_assert!(!(is(condition::AVAILABLE) && is(condition::QUORUM_LOST)));
        match status.phase {
            Some(Phase::Failed) => prop_assert!(is(condition::STALLED) && !is(condition::READY)),
            Some(Phase::Running) => prop_assert!(!is(condition::STALLED) || is(condition::READY)),
            Some(Phase::Stopped) => prop_assert!(is(condition::READY)),
            Some(Phase::Deleting) => prop_assert!(!is(condition::READY) && is(condition::RECONCILING)),
            Some(Phase::Creating | Phase::Scaling | Phase::Upgrading) => prop_assert!(!is(condition::STALLED)),
            None => prop_assert!(false, "every look has a phase"),
        }
    }

    #[test]
    fn where_members_run_is_reported_and_changes_nothing_else((first, second) in two_looks(), placed in placed()) {
        let before = first.after(None);
        let (nodes, running_on) = placed;
        let mut second = second;
        // A form that has to be tried is tried where members run.
        second.goal.form.iter_mut().for_each(|wanted| wanted.proof = None);
        let mut elsewhere = second.clone();
        elsewhere.seen.nodes = nodes;
        for (pod, node) in elsewhere.seen.pods.values_mut().zip(running_on) {
            pod.node = node;
        }
        prop_assert_eq!(decide(&second.goal, &second.seen), decide(&second.goal, &elsewhere.seen));
        let mut status = elsewhere.after(Some(before.clone()));
        status.conditions.retain(|it| it.type_ != condition::MEMBERS_SPREAD);
        // That only the condition is new is news, too.
        status.last_update_time = None;
        let expected = EtcdClusterStatus { last_update_time: None, ..second.after(Some(before)) };
        prop_assert_eq!(status, expected);
    }

    #[test]
    fn a_status_does_not_contradict_its_plan((first, second) in two_looks()) {
        let plan = decide(&second.goal, &second.seen);
        let status = second.after(Some(first.after(None)));
        let serves = status.conditions.iter().any(|it| it.reason == reason::QUORUM_AVAILABLE);
        let misses_quorum = plan.waiting.iter().any(|it| matches!(it, WaitingOn::Quorum { .. }))
            || plan.refusals.iter().any(|it| matches!(it, Refusal::StopNeedsQuorum { .. }));
        prop_assert!(!(serves && misses_quorum), "{plan}{:#?}", status);
        if is_true(&status, condition::READY) {
            prop_assert!(plan.actions.iter().all(is_bookkeeping), "{plan}{:#?}", status);
        }
    }

    #[test]
    fn a_pod_that_a_plan_waits_for_has_the_same_cause_in_the_status((first, second) in two_looks()) {
        let status = second.after(Some(first.after(None)));
        for awaited in decide(&second.goal, &second.seen).waiting {
            let WaitingOn::Pod { ordinal, state } = awaited else { continue };
            let name = format!("kv-{ordinal}");
            let line = status.members.iter().find(|it| it.name.as_ref() == Some(&name));
            if let Some(line) = line {
                prop_assert_eq!(line.waiting_for.as_deref(), Some(state.waits_for()));
            }
            let reconciling = status.conditions.iter().find(|it| it.type_ == condition::RECONCILING);
            let message = reconciling.map(|it| it.message.as_str()).unwrap_or_default();
            let told = message.contains(&format!("{name}: {}", state.text()));
            prop_assert!(told || is_true(&status, condition::STALLED), "{awaited} in {message}", awaited = state.text());
        }
    }

    #[test]
    fn every_word_is_one_of_the_published_ones((first, second) in two_looks()) {
        let before = first.after(None);
        let status = second.after(Some(before.clone()));
        for Condition { type_, reason, .. } in &status.conditions {
            prop_assert!(condition::ALL.contains(&type_.as_str()), "{}", type_);
            prop_assert!(reason::ALL.contains(&reason.as_str()), "{}", reason);
        }
        for told in events::of_change(Some(&before), &status) {
            let reason = told.reason.as_str();
            prop_assert!(reason::ALL.contains(&reason) || event::ALL.contains(&reason), "{}", reason);
            prop_assert!(told.note.len() < 1024);
        }
    }

    #[test]
    fn a_cluster_with_an_edit_that_a_member_does_not_have_is_not_ready(
        (goal, seen) in with_forms(),
        (_, before) in two_looks(),
    ) {
        let wanted = goal.form.as_ref().map(|wanted| wanted.form.clone());
        let edited = seen.pods.values().any(|pod| pod.form != wanted);
        let status = Look { goal, seen }.after(Some(before.after(None)));
        prop_assert!(!(edited && is_true(&status, condition::READY)), "{:#?}", status);
        let ready = status.conditions.iter().find(|it| it.type_ == condition::READY);
        let rolls = ready.is_some_and(|it| it.reason == reason::ROLLING_OUT);
        let stalled = status.conditions.iter().any(|it| it.type_ == condition::ROLLOUT_STALLED);
        prop_assert!(!rolls || stalled, "a rollout reports whether it is stalled: {:#?}", status);
        prop_assert!(status.phase != Some(Phase::Upgrading) || rolls || !is_true(&status, condition::AVAILABLE));
    }

    #[test]
    fn a_settled_cluster_runs_and_is_ready((goal, seen) in settled()) {
        let status = Look { goal, seen }.after(None);
        prop_assert_eq!(status.phase, Some(Phase::Running));
        prop_assert!(is_true(&status, condition::READY) && !is_true(&status, condition::RECONCILING));
    }
}
