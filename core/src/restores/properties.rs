//! Whatever happens to Jobs, pods, clusters, volumes and caches, in any order; also an operator that ends between two writes.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::tests::{World, usual};
use super::*;
use crate::decide::{self, Goal};
use crate::names::MEMBER_ID_LABEL;
use crate::observed::{Claim, Observed};
use crate::plan::Action;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A decision is carried out.
    Round,
    /// Only its first writes are, before the operator ends.
    Interrupted(u8),
    /// A decision from what caches had before the last round.
    Stale,
    Minutes(u8),
    Succeeds,
    /// The volume is complete, and the result is lost.
    LosesItsResult,
    Fails,
    IsDenied,
    Edit,
    ClusterIsPrepared,
    ClusterServes,
    ClusterGone,
    VolumeGone,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => Just(Event::Round),
        2 => (0..2_u8).prop_map(Event::Interrupted),
        2 => Just(Event::Stale),
        3 => (1..20_u8).prop_map(Event::Minutes),
        4 => Just(Event::Succeeds),
        1 => Just(Event::LosesItsResult),
        1 => Just(Event::Fails),
        1 => Just(Event::IsDenied),
        1 => Just(Event::Edit),
        4 => Just(Event::ClusterIsPrepared),
        2 => Just(Event::ClusterServes),
        1 => Just(Event::ClusterGone),
        1 => Just(Event::VolumeGone),
    ]
}

/// What the cluster's own worker would do now: it neither bootstraps nor deletes a volume.
fn worker_waits(world: &World) -> bool {
    let Some(cluster) = world.cluster.as_ref().filter(|it| it.finalizers().iter().any(|it| it == FINALIZER))
    else {
        return true;
    };
    let mut seen = Observed::nothing_of(&cluster.uid().unwrap_or_default());
    seen.cluster.restore = Mark::on(cluster).map(|mark| mark.name);
    seen.claims = world
        .claims
        .iter()
        .filter(|(_, claim)| !claim.labels().contains_key(MEMBER_ID_LABEL))
        .map(|(&ordinal, claim)| {
            let cluster_uid = claim.labels().get(CLUSTER_UID_LABEL).cloned().unwrap_or_default();
            let uid = claim.uid().unwrap_or_default();
            (ordinal, Claim { uid, cluster_uid, bound: true, ..Claim::default() })
        })
        .collect();
    [0, 1, 3].into_iter().all(|size| decide::decide(&Goal::of_size(size), &seen).actions.is_empty())
}

fn happens(world: &mut World, before: &mut Option<(EtcdRestore, Vec<Run>)>, event: Event) {
    let is_active = world.runs().iter().any(Run::is_active);
    match event {
        Event::Round => {
            *before = Some((world.restore.clone(), world.runs()));
            let decision = world.decide();
            world.carry_out(decision);
        }
        Event::Interrupted(writes) => {
            let mut decision = world.decide();
            if decision.status.is_some() && writes == 0 {
                decision.writes.clear();
            }
            decision.writes.truncate(usize::from(writes));
            world.carry_out(decision);
        }
        Event::Stale => {
            let Some((restore, runs)) = before.clone() else { return };
            let seen = Seen {
                restore: &restore,
                backup: world.backup.as_ref(),
                cluster: world.cluster.as_ref(),
                claims: &world.claims,
                replaced: &world.replaced,
                runs: &runs,
                image: "operator",
                domain: "cluster.local",
                trouble: None,
                now: world.now,
            };
            let Decision { status, writes, .. } = decide(&seen);
            // The write of a status fails, because the object has changed, and then nothing else is sent.
            if status.is_none() || restore == world.restore {
                for write in writes {
                    world.apply(write);
                }
            }
        }
        Event::Minutes(minutes) => world.now += jiff::SignedDuration::from_mins(i64::from(minutes)),
        Event::Succeeds if is_active => drop(world.succeed()),
        Event::LosesItsResult if is_active => {
            world.prepare();
            world.end("Complete", serde_json::json!([]));
        }
        Event::Fails if is_active => drop(world.fail("StoreUnreachable")),
        Event::IsDenied if is_active => drop(world.fail("StoreDenied")),
        Event::Succeeds | Event::LosesItsResult | Event::Fails | Event::IsDenied => {}
        Event::Edit => world.restore.metadata.generation = world.restore.metadata.generation.map(|it| it + 1),
        Event::ClusterIsPrepared => {
            if let Some(cluster) = world.cluster.as_mut().filter(|it| it.status.is_none()) {
                cluster.metadata.finalizers = Some(vec![FINALIZER.into()]);
                let status = serde_json::json!({"domain": "cluster.local"});
                cluster.status = serde_json::from_value(status).ok();
            }
        }
        Event::ClusterServes => {
            let is_labelled = world.claims.values().any(|claim| claim.labels().contains_key(MEMBER_ID_LABEL));
            if let Some(cluster) = world.cluster.as_mut().filter(|_| is_labelled) {
                let status =
                    serde_json::json!({"domain": "cluster.local", "clusterID": "abc", "readyReplicas": 1});
                cluster.status = serde_json::from_value(status).ok();
            }
        }
        Event::ClusterGone => {
            world.cluster = None;
            world.claims.clear();
        }
        Event::VolumeGone => world.claims.clear(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(55), ..ProptestConfig::default() })]

    /// No member starts without its data or beside a Job (asserted where the label is written), no cluster is created twice, no more
    /// attempts than allowed, and what is over stays over.
    #[test]
    fn a_restore_is_carried_out_at_most_once(events in prop::collection::vec(event(), 1..60)) {
        let (mut world, mut before, mut over, mut incarnation) = (World::new(usual()), None, None, None);
        for event in events {
            happens(&mut world, &mut before, event);
            prop_assert!(worker_waits(&world), "the cluster bootstraps without its data");
            let active = world.runs().iter().filter(|run| run.is_active()).count();
            prop_assert!(active <= 1, "two Jobs on one volume");
            incarnation = incarnation.or(world.status().incarnation);
            prop_assert_eq!(&incarnation, &world.status().incarnation, "data for another cluster");
            if let Some(over) = over {
                prop_assert_eq!(over, (world.clusters_created, world.jobs_created));
            } else if is_over(&world.status()) {
                over = Some((world.clusters_created, world.jobs_created));
            }
        }
        let retries = u32::try_from(world.jobs_created).unwrap_or(u32::MAX);
        prop_assert!(retries <= 2 * (MAX_RETRIES + 1), "{retries} attempts");
    }

    /// Nothing that passes keeps a restore from its end.
    #[test]
    fn a_restore_ends_when_everything_works(events in prop::collection::vec(event(), 0..30)) {
        let (mut world, mut before) = (World::new(usual()), None);
        for event in events {
            happens(&mut world, &mut before, event);
        }
        for _ in 0..60 {
            for event in [Event::Round, Event::ClusterIsPrepared, Event::Round, Event::Succeeds, Event::Minutes(19), Event::ClusterServes] {
                happens(&mut world, &mut before, event);
            }
        }
        prop_assert!(is_over(&world.status()), "{:?}", world.status());
    }
}

/// With the mark no plan bootstraps a cluster or deletes a claim, whatever else is there, until it has served.
#[test]
fn a_cluster_that_is_restored_is_not_bootstrapped_and_loses_no_volume() {
    let mut seen = Observed::nothing_of("uid");
    seen.cluster.restore = Some("back".into());
    for claims in [0, 1] {
        for on_stop in [decide::OnStop::Retain, decide::OnStop::Delete] {
            for size in [0, 1, 5] {
                let claim =
                    Claim { uid: "c".into(), cluster_uid: "uid".into(), bound: true, ..Claim::default() };
                seen.claims = Ordinal::below(claims).map(|it| (it, claim.clone())).collect();
                let goal = Goal { on_stop, ..Goal::of_size(size) };
                assert_eq!(decide::decide(&goal, &seen).actions, [], "{goal:?}");
                // With its data it starts as after a stop, with one pod for the one volume.
                let labelled = Claim { member: Some(crate::observed::MemberId(7)), ..claim };
                seen.claims = [(Ordinal(0), labelled)].into();
                let plan = decide::decide(&goal, &seen);
                assert_eq!(plan.actions, [Action::SetReplicas { replicas: 1 }], "{goal:?}");
                let bare = Observed {
                    cluster: crate::observed::Cluster { restore: None, ..seen.cluster.clone() },
                    ..seen.clone()
                };
                assert!(
                    size == 0 || decide::decide(&goal, &bare).actions == plan.actions,
                    "the same as after a stop"
                );
            }
        }
    }
}
