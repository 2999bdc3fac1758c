//! Whatever happens to Jobs, pods and caches, in any order.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Event {
    Minutes(u8),
    Succeeds,
    Fails,
    IsDenied,
    LosesItsPod,
    Edit,
    Suspend,
    ClusterStops,
    /// A decision from what caches had before the last change of the status.
    StaleStatus,
    /// A decision from what caches had before the last Job was created.
    StaleJobs,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (1..90_u8).prop_map(Event::Minutes),
        Just(Event::Succeeds),
        Just(Event::Fails),
        Just(Event::IsDenied),
        Just(Event::LosesItsPod),
        Just(Event::Edit),
        Just(Event::Suspend),
        Just(Event::ClusterStops),
        Just(Event::StaleStatus),
        Just(Event::StaleJobs),
    ]
}

impl World {
    fn happens(&mut self, event: Event) {
        let is_active = self.runs().iter().any(Run::is_active);
        match event {
            Event::Minutes(minutes) => self.now += SignedDuration::from_mins(i64::from(minutes)),
            Event::Succeeds if is_active => {
                self.succeed();
            }
            Event::Fails if is_active => {
                self.fail("StoreUnreachable");
            }
            Event::IsDenied if is_active => {
                self.fail("StoreDenied");
            }
            Event::LosesItsPod if is_active => {
                self.end("Failed", json!([]));
            }
            Event::Edit => self.backup.metadata.generation = self.backup.metadata.generation.map(|it| it + 1),
            Event::Suspend => self.backup.spec.suspend = !self.backup.spec.suspend,
            Event::ClusterStops => {
                let cluster = self.cluster.as_mut().expect("it is there");
                cluster.is_stopped = !cluster.is_stopped;
            }
            Event::Succeeds
            | Event::Fails
            | Event::IsDenied
            | Event::LosesItsPod
            | Event::StaleStatus
            | Event::StaleJobs => {}
        }
    }

    /// What is decided from an older observation is sent as well. A status that is not based on the newest one is rejected, and
    /// nothing is sent after it; a Job that exists is not created again.
    fn stale(&mut self, backup: Option<EtcdBackup>, jobs: Vec<Job>) {
        let (now_there, status) = (std::mem::replace(&mut self.jobs, jobs), self.backup.clone());
        let is_outdated = backup.is_some();
        self.backup = backup.unwrap_or_else(|| self.backup.clone());
        let decision = self.decide();
        (self.jobs, self.backup) = (now_there, status);
        match decision.status {
            Some(_) if is_outdated => return,
            Some(status) => self.backup.status = Some(status),
            None => {}
        }
        for write in decision.writes {
            match write {
                Write::Create(job) if self.jobs.iter().any(|it| it.name_any() == job.name_any()) => {}
                write @ (Write::Create(_) | Write::Token(_) | Write::Delete { .. }) => self.apply(write),
            }
        }
    }
}

/// The same cases every time.
fn configuration() -> ProptestConfig {
    ProptestConfig {
        cases: 500,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(configuration())]

    #[test]
    fn two_runs_never_take_place_at_once_and_a_copy_on_demand_is_the_last(
        is_scheduled in any::<bool>(),
        events in proptest::collection::vec(event(), 1..40),
    ) {
        let schedule = is_scheduled.then_some("0 * * * *");
        let mut world = World::new(backup(json!({"schedule": schedule})));
        let (mut backup_before, mut jobs_before) = (world.backup.clone(), world.jobs.clone());
        let mut completed: Option<Vec<String>> = None;
        for event in events {
            world.happens(event);
            match event {
                Event::StaleStatus => {
                    // The spec is part of the same object: it is as old.
                    let jobs = world.jobs.clone();
                    world.stale(Some(backup_before.clone()), jobs);
                }
                Event::StaleJobs => world.stale(None, jobs_before.clone()),
                Event::Minutes(_)
                | Event::Succeeds
                | Event::Fails
                | Event::IsDenied
                | Event::LosesItsPod
                | Event::Edit
                | Event::Suspend
                | Event::ClusterStops => (backup_before, jobs_before) = (world.backup.clone(), world.jobs.clone()),
            }
            world.settle();
            let active = world.runs().iter().filter(|run| run.is_active()).count();
            prop_assert!(active <= 1);
            let names: Vec<_> = world.jobs.iter().map(ResourceExt::name_any).collect();
            if let Some(before) = completed.as_ref().filter(|_| !is_scheduled) {
                prop_assert!(names.iter().all(|name| before.contains(name)), "{names:?} after {before:?}");
            }
            if world.status().phase == Some(BackupPhase::Completed) {
                completed = Some(names);
            }
            let written = world.statuses;
            world.settle();
            prop_assert_eq!(world.statuses, written, "the same again is written again");
        }
    }
}
