//! The continuous archive: when its archiver runs, and when it gets a copy.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::backup::progress::Progress;
use crate::backup::report::{Failure, Reason};
use crate::runs::archive::{ArchiverState, TOKEN_KEY};

fn continuous() -> EtcdBackup {
    backup(json!({"continuous": {}}))
}

fn later(world: &mut World, seconds: i64) -> &mut World {
    world.now += SignedDuration::from_secs(seconds);
    world
}

impl World {
    /// Until the first copy is there and the archiver has been created.
    fn archiving(backup: EtcdBackup) -> Self {
        let mut world = Self::new(backup);
        world.settle().succeed().settle();
        assert_eq!(world.active().len(), 1);
        world
    }

    /// Archivers that run or start.
    fn active(&self) -> Vec<String> {
        let archivers = self.archivers();
        archivers.into_iter().filter(Archiver::is_active).map(|it| it.job).collect()
    }

    fn archiver(&self) -> String {
        self.active().pop().expect("there is one")
    }

    fn copies_started(&self) -> usize {
        self.jobs.iter().filter(|job| Mark::on(*job).is_some()).count()
    }

    fn runs_now(&mut self) -> &mut Self {
        let running = json!([{"name": "archive", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {}}}]);
        let pod =
            json!({"metadata": {"name": "p"}, "status": {"phase": "Running", "containerStatuses": running}});
        let name = self.archiver();
        self.pods.push((name, serde_json::from_value(pod).expect("it is a pod")));
        self
    }

    fn answers(&mut self, change: impl FnOnce(&mut Progress)) -> &mut Self {
        let mut progress = Progress {
            archived_revision: Some(9),
            chain_first: Some(6),
            copy_revision: Some(5),
            confirmed: Some(self.now),
            ..Progress::default()
        };
        change(&mut progress);
        self.heard = Some(Heard { progress: Some((self.now, progress)), error: None });
        self
    }

    fn archiver_fails(&mut self, reason: &str) -> &mut Self {
        let name = self.archiver();
        self.heard = None;
        self.end_of(&name, "Failed", json!([ended("archive", 1, &failed(reason).to_string())]))
    }

    fn archive(&self) -> crate::api::ArchiveStatus {
        self.status().archive.expect("it is there")
    }

    fn archives(&self) -> (String, String) {
        let (value, reason, _) = self.condition(condition::ARCHIVING);
        (value, reason)
    }
}

type Change = fn(&mut World);

fn is(value: &str, reason: &str) -> (String, String) {
    (value.to_owned(), reason.to_owned())
}

#[test]
fn the_archive_begins_with_a_copy_and_needs_no_schedule() {
    let mut world = World::new(continuous());
    world.settle();
    assert_eq!(world.jobs.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["nightly-0123abcd-a1-0"]);
    assert_eq!(world.archives(), is("False", "CopyNeeded"));
    world.succeed().settle();
    assert_eq!((world.copies_started(), world.active().len(), world.tokens), (1, 1, 1));
    assert_eq!(world.archives(), is("Unknown", "ArchiverStarting"));
    world.runs_now().answers(|_| ()).settle();
    assert_eq!(world.archives(), is("True", "ArchiveCurrent"));
    let archive = world.archive();
    assert_eq!(
        (archive.archived_revision, archive.recovery_point.map(|it| it.0)),
        (Some(9), Some(world.now))
    );
    assert_eq!(world.condition(condition::READY).1, "BackupCompleted");
    assert_eq!(world.reconciling(), "UpToDate");
    // An idle archive stays as it is for ever.
    later(&mut world, 86_400).answers(|_| ()).settle();
    assert_eq!((world.copies_started(), world.active().len()), (1, 1));
}

#[test]
fn the_archiver_has_no_token_of_kubernetes_and_no_secret_in_it() {
    let world = World::archiving(continuous());
    let job = world.jobs.iter().find(|job| job.name_any() == world.archiver()).expect("it is there");
    let spec = job.spec.clone().expect("a spec");
    assert_eq!((spec.backoff_limit, spec.active_deadline_seconds), (Some(0), None));
    let pod = spec.template.spec.expect("a pod");
    assert_eq!(pod.automount_service_account_token, Some(false));
    assert_eq!(pod.security_context.and_then(|it| it.run_as_non_root), Some(true));
    let [container] = &pod.containers[..] else { panic!("one container") };
    let command = container.command.clone().unwrap_or_default();
    assert_eq!(command, ["/etcd-backup", "archive", "--flush-interval-seconds=5"]);
    assert!(container.resources.as_ref().is_some_and(|it| it.limits.is_some()));
    let variables = container.env.clone().unwrap_or_default();
    let by_reference: Vec<_> =
        variables.iter().filter(|it| it.value.is_none()).map(|it| it.name.as_str()).collect();
    assert_eq!(
        by_reference,
        [
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "ETCD_BACKUP_ADDRESS",
            "ETCD_BACKUP_PROGRESS_TOKEN"
        ]
    );
    let token = variables.last().and_then(|it| it.value_from.clone()?.secret_key_ref).expect("a reference");
    assert_eq!((token.name, token.key), (token_name(&world.backup), TOKEN_KEY.to_owned()));
    let mounted: Vec<_> =
        pod.volumes.iter().flatten().filter_map(|it| it.secret.clone()?.secret_name).collect();
    assert_eq!(mounted, ["kv-operator-tls"]);
    assert!(job.name_any().len() <= 63, "{}", job.name_any());
}

#[test]
fn a_gap_is_reported_and_healed_by_a_copy() {
    let mut world = World::archiving(continuous());
    let first = world.archiver();
    later(&mut world, 3600).archiver_fails("ChainBroken").settle();
    assert_eq!((world.copies_started(), world.active().len()), (2, 0), "nothing is archived before the copy");
    assert_eq!(world.archives(), is("False", "ChainBroken"));
    assert!(
        world
            .condition(condition::ARCHIVING)
            .2
            .starts_with("archive: the store responded 403; the archive begins")
    );
    assert!(world.archive().copy_needed);
    world.succeed().settle();
    assert!(!world.archive().copy_needed);
    later(&mut world, 10).settle();
    assert_eq!((world.copies_started(), world.active().len()), (2, 1));
    assert_ne!(world.archiver(), first);
    assert_eq!(world.archive().ended, 1);
}

#[test]
fn an_archive_that_breaks_again_and_again_costs_fewer_and_fewer_copies() {
    let mut world = World::archiving(continuous());
    for _ in 0..(24 * 60) {
        if !world.active().is_empty() {
            world.archiver_fails("ChainBroken").settle();
        }
        if world.runs().iter().any(Run::is_active) {
            world.succeed().settle();
        }
        later(&mut world, 60).settle();
    }
    assert!((7..=12).contains(&world.archive().copies_requested), "{}", world.archive().copies_requested);
}

#[test]
fn a_copy_that_the_archive_needs_is_tried_until_it_succeeds() {
    for reason in ["StoreUnreachable", "StoreDenied"] {
        let mut world = World::new(continuous());
        for _ in 0..20 {
            world.settle();
            if world.runs().iter().any(Run::is_active) {
                world.fail(reason).settle();
            }
            later(&mut world, 1800);
        }
        world.settle();
        let last = world.jobs.last().map(ResourceExt::name_any);
        assert!(last.is_some_and(|name| name == "nightly-0123abcd-a1-20"), "{reason}: {:?}", world.status());
        world.succeed().settle();
        assert_eq!(world.active().len(), 1, "{reason}");
    }
}

#[test]
fn a_replay_that_would_take_too_long_gets_one_copy_while_the_archiver_goes_on() {
    let mut world = World::archiving(continuous());
    world.runs_now().answers(|it| it.copy_due = true).settle();
    assert_eq!((world.copies_started(), world.active().len()), (2, 1));
    assert_eq!(world.archives(), is("True", "ArchiveCurrent"));
    let newer =
        taken().to_string().replace("\"lowest\":5,\"highest\":6", "\"highest\":3000000,\"lowest\":3000000");
    let newer = newer.replace("\"highest\":6,\"lowest\":5", "\"highest\":3000000,\"lowest\":3000000");
    world.end("Complete", json!([ended("take", 0, &newer)])).settle();
    assert_eq!(world.status().copies[0].revision, 3_000_000);
    // It has not noticed the copy yet.
    later(&mut world, 30).answers(|it| it.copy_due = true).settle();
    assert_eq!(world.copies_started(), 2);
    later(&mut world, 30).answers(|it| it.copy_revision = Some(3_000_000)).settle();
    assert_eq!((world.copies_started(), world.active().len()), (2, 1));
}

#[test]
fn a_schedule_goes_on_beside_the_archive() {
    let mut world = World::archiving(backup(json!({"schedule": "0 2 * * *", "continuous": {}})));
    world.at("2026-11-18T02:00:00Z").settle();
    assert_eq!((world.copies_started(), world.active().len()), (2, 1));
    world.succeed().settle();
    assert_eq!((world.copies_started(), world.active().len()), (2, 1));
    assert_eq!(world.status().next_run_time.map(|it| it.0), Some(at("2026-11-19T02:00:00Z")));
}

#[test]
fn an_archiver_that_is_not_wanted_any_more_ends() {
    let ends: [(&str, Change); 5] = [
        ("Suspended", |world| world.backup.spec.suspend = true),
        ("Stopped", |world| world.cluster.as_mut().expect("it is there").is_stopped = true),
        ("Deleting", |world| world.cluster.as_mut().expect("it is there").is_deleting = true),
        ("ClusterNotFound", |world| world.cluster = None),
        ("", |world| world.backup.spec.continuous = None),
    ];
    for (reason, end) in ends {
        let mut world = World::archiving(continuous());
        world.runs_now().answers(|_| ()).settle();
        end(&mut world);
        world.settle();
        assert_eq!(world.active(), [""; 0], "{reason}");
        let conditions = world.status().conditions;
        let found = find(&conditions, condition::ARCHIVING).map(|it| it.reason.as_str());
        assert_eq!(found, Some(reason).filter(|it| !it.is_empty()));
        assert_eq!(world.status().archive.is_some(), !reason.is_empty());
    }
}

#[test]
fn a_new_archiver_replaces_one_that_was_made_from_something_else() {
    let edits: [Change; 5] = [
        |world| world.backup.spec.s3.as_mut().expect("it is there").bucket = "other".into(),
        |world| world.backup.spec.s3.as_mut().expect("it is there").secret_key_secret = Some("other".into()),
        |world| {
            world.backup.spec.encryption =
                serde_json::from_value(json!({"recipients": [format!("age1{}", "q".repeat(58))]})).ok()
        },
        |world| {
            world.backup.spec.continuous = serde_json::from_value(json!({"flushIntervalSeconds": 60})).ok()
        },
        |world| world.cluster.as_mut().expect("it is there").endpoints.push("https://kv-1:2379".into()),
    ];
    for edit in edits {
        let mut world = World::archiving(continuous());
        let before = world.archiver();
        edit(&mut world);
        world.settle();
        assert_eq!(world.active().len(), 1);
        assert_ne!(world.archiver(), before);
    }
}

#[test]
fn members_that_restart_are_no_reason_for_another_archiver() {
    let mut world = World::archiving(continuous());
    let before = world.archiver();
    let cluster = world.cluster.as_mut().expect("it is there");
    (cluster.endpoints, cluster.rules, cluster.serving) = (Vec::new(), PodRules::default(), 0);
    world.settle();
    assert_eq!(world.active(), [before]);
}

#[test]
fn one_that_fails_starts_again_after_longer_and_longer_pauses() {
    let mut world = World::archiving(continuous());
    for seconds in [10, 40, 160, 300, 300] {
        world.archiver_fails("StoreDenied").settle();
        assert_eq!(world.archives(), is("False", "StoreDenied"));
        later(&mut world, seconds - 1).settle();
        assert_eq!(world.active(), [""; 0], "{seconds}");
        later(&mut world, 1).settle();
        assert_eq!(world.active().len(), 1, "{seconds}");
    }
    world.archiver_fails("StoreDenied").settle();
    world.backup.metadata.generation = Some(2);
    world.settle();
    assert_eq!(world.active().len(), 1, "an edit starts it at once");
    assert_eq!(world.copies_started(), 1);
    // What worked for a while begins with the shortest pause.
    later(&mut world, 601).archiver_fails("EtcdUnavailable").settle();
    assert_eq!(world.archive().consecutive_failures, Some(1));
}

#[test]
fn one_that_was_drained_starts_again_at_once_and_one_on_a_lost_node_is_not_awaited() {
    let mut world = World::archiving(continuous());
    let first = world.archiver();
    world.end_of(&first, "Complete", json!([])).settle();
    let second = world.archiver();
    assert_ne!(first, second);
    world.runs_now();
    let (_, pod) = world.pods.last_mut().expect("it is there");
    pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    later(&mut world, 60).settle();
    assert_eq!(world.active(), [second.as_str()]);
    later(&mut world, 1);
    let decision = world.decide();
    let deletes = |write: &Write| matches!(write, Write::Delete { name, .. } if *name == second);
    assert!(
        decision.writes.iter().any(deletes)
            && decision.writes.iter().any(|it| matches!(it, Write::Create(_)))
    );
}

#[test]
fn what_does_not_respond_is_unknown_and_what_it_reports_is_reported() {
    let mut world = World::archiving(continuous());
    world.runs_now().answers(|_| ()).settle();
    // Another operator has not asked yet.
    world.heard = None;
    world.settle();
    assert_eq!(world.archives(), is("True", "ArchiveCurrent"));
    let progress = world.answers(|_| ()).heard.clone().and_then(|it| it.progress);
    world.heard = Some(Heard { progress, error: Some("connection refused".into()) });
    later(&mut world, 60).settle();
    assert_eq!(world.archives(), is("True", "ArchiveCurrent"));
    later(&mut world, 1).settle();
    assert_eq!(world.archives(), is("Unknown", "ArchiverNotResponding"));
    assert!(world.condition(condition::ARCHIVING).2.contains("connection refused"));
    assert_eq!(world.archive().archived_revision, Some(9), "what was known stays");
    assert_eq!(world.active().len(), 1);

    let trouble = Failure { reason: Reason::StoreUnreachable.into(), message: "no route".into() };
    world.answers(|it| it.trouble = Some(trouble)).settle();
    assert_eq!(world.archives(), is("False", "StoreUnreachable"));
    let before = world.now;
    later(&mut world, 121).answers(|it| it.confirmed = Some(before)).settle();
    assert_eq!(world.archives(), is("False", "ArchiveBehind"));
}

#[test]
fn the_newest_archiver_that_runs_is_asked() {
    let mut world = World::archiving(continuous());
    world.runs_now();
    let first = world.archivers().pop().expect("it is there");
    let asked = |all: &[Archiver]| Archiver::to_ask(all, &world.backup).map(|it| it.job.clone());
    assert_eq!(asked(std::slice::from_ref(&first)), Some(first.job.clone()));
    let newer = Archiver {
        job: "newer".into(),
        created: first.created + SignedDuration::from_secs(1),
        ..first.clone()
    };
    let with = |change: &dyn Fn(&mut Archiver)| {
        let mut newer = newer.clone();
        change(&mut newer);
        asked(&[newer, first.clone()])
    };
    assert_eq!(with(&|_| ()), Some("newer".into()));
    assert_eq!(with(&|it| it.is_terminating = true), Some(first.job.clone()));
    assert_eq!(with(&|it| it.state = ArchiverState::Starting(None)), Some(first.job.clone()));
    assert_eq!(with(&|it| it.mark.uid = "of another object".into()), Some(first.job.clone()));
}

#[test]
fn numbers_alone_are_written_every_half_minute() {
    let mut world = World::archiving(continuous());
    world.runs_now().answers(|_| ()).settle();
    let written = world.statuses;
    for revision in 10..40 {
        later(&mut world, 10).answers(|it| it.archived_revision = Some(revision)).settle();
    }
    assert_eq!(world.statuses - written, 10);
    assert_eq!(world.archive().archived_revision, Some(39));
}

#[test]
fn jobs_of_archivers_do_not_pile_up() {
    let mut world = World::archiving(continuous());
    for _ in 0..5 {
        world.archiver_fails("EtcdUnavailable").settle();
        later(&mut world, 600).settle();
    }
    let archivers = world.archivers();
    assert_eq!(archivers.len(), 2, "the one that runs, and the last one with its log");
}

#[test]
fn the_first_answer_and_each_change_has_an_event() {
    let mut world = World::archiving(continuous());
    let before = world.status();
    world.runs_now().answers(|_| ()).settle();
    let reasons = |before: &EtcdBackupStatus, after: &EtcdBackupStatus| {
        let events = events::of_change(Some(before), after);
        events.into_iter().map(|it| (it.warning, it.reason)).collect::<Vec<_>>()
    };
    assert_eq!(reasons(&before, &world.status()), [(false, "ArchiveCurrent".to_owned())]);
    let before = world.status();
    later(&mut world, 40).answers(|it| it.archived_revision = Some(20)).settle();
    assert_eq!(reasons(&before, &world.status()), []);
    let before = world.status();
    later(&mut world, 40).archiver_fails("ChainBroken").settle();
    let after = reasons(&before, &world.status());
    assert!(after.contains(&(true, "ChainBroken".to_owned())), "{after:?}");
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Seconds(u16),
    Copied,
    NotCopied,
    Broken,
    Failed,
    Drained,
    Answers { due: bool },
    Silent,
    Suspend,
    Stop,
    Edit,
    Member,
    JobGone,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1..2000_u16).prop_map(Event::Seconds),
        4 => Just(Event::Copied),
        1 => Just(Event::NotCopied),
        2 => Just(Event::Broken),
        2 => Just(Event::Failed),
        1 => Just(Event::Drained),
        3 => any::<bool>().prop_map(|due| Event::Answers { due }),
        1 => Just(Event::Silent),
        1 => Just(Event::Suspend),
        1 => Just(Event::Stop),
        1 => Just(Event::Edit),
        1 => Just(Event::Member),
        1 => Just(Event::JobGone),
    ]
}

impl World {
    fn event(&mut self, event: Event) {
        let (copies, archives) = (self.runs().iter().any(Run::is_active), !self.active().is_empty());
        match event {
            Event::Seconds(seconds) => drop(later(self, seconds.into())),
            Event::Copied if copies => drop(self.succeed()),
            Event::NotCopied if copies => drop(self.fail("StoreDenied")),
            Event::Broken if archives => drop(self.archiver_fails("ChainBroken")),
            Event::Failed if archives => drop(self.archiver_fails("StoreUnreachable")),
            Event::Drained if archives => {
                let name = self.archiver();
                self.end_of(&name, "Complete", json!([]));
            }
            Event::Answers { due } => drop(self.answers(|it| it.copy_due = due)),
            Event::Silent => self.heard = None,
            Event::Suspend => self.backup.spec.suspend = !self.backup.spec.suspend,
            Event::Stop => {
                let cluster = self.cluster.as_mut().expect("it is there");
                cluster.is_stopped = !cluster.is_stopped;
            }
            Event::Edit => self.backup.metadata.generation = self.backup.metadata.generation.map(|it| it + 1),
            Event::Member => {
                let cluster = self.cluster.as_mut().expect("it is there");
                let number = cluster.endpoints.len();
                cluster.endpoints.push(format!("https://kv-{number}:2379"));
            }
            Event::JobGone => drop(self.jobs.pop()),
            Event::Copied | Event::NotCopied | Event::Broken | Event::Failed | Event::Drained => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, rng_seed: RngSeed::Fixed(60), ..ProptestConfig::default() })]

    /// There is one archiver or a reason, whatever happens; none is left that is not wanted; and when everything works, it archives.
    #[test]
    fn there_is_one_archiver_or_a_reason(
        is_scheduled in any::<bool>(),
        events in proptest::collection::vec(event(), 1..50),
    ) {
        let schedule = is_scheduled.then_some("0 * * * *");
        let mut world = World::new(backup(json!({"schedule": schedule, "continuous": {}})));
        for event in events {
            world.event(event);
            world.settle();
            let active = world.active().len();
            prop_assert!(active <= 1, "{active} archivers");
            let is_wanted = !world.backup.spec.suspend && !world.cluster.as_ref().is_some_and(|it| it.is_stopped);
            prop_assert!(is_wanted || active == 0);
            let (value, reason) = world.archives();
            prop_assert!(active == 1 || value != "True", "{reason} without an archiver");
            let written = world.statuses;
            world.settle();
            prop_assert_eq!(world.statuses, written, "the same again is written again");
        }
        (world.backup.spec.suspend, world.cluster.as_mut().expect("it is there").is_stopped) = (false, false);
        for _ in 0..4 {
            later(&mut world, 7 * 3600).settle();
            world.event(Event::Copied);
            world.settle();
        }
        world.answers(|_| ()).runs_now().settle();
        prop_assert_eq!(world.archives(), is("True", "ArchiveCurrent"));
        prop_assert!(!world.archive().copy_needed);
    }
}
