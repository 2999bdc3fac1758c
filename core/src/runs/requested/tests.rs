//! A cluster that waits for a copy before its version changes.

use super::*;
use crate::api::AwaitedBackup;
use crate::observed::CopyResult;
use crate::runs::{requested, takes_copies};

impl World {
    fn awaits(&mut self, token: &str) -> &mut Self {
        let (namespace, name) = ("ns".into(), "nightly".into());
        let cluster = self.cluster.as_mut().expect("it is there");
        cluster.awaited = Some(AwaitedBackup { namespace, name, token: token.into() });
        self
    }

    fn result(&self) -> Option<(String, CopyResult)> {
        requested(&self.backup).map(|it| (it.token, it.result))
    }

    fn names(&self) -> Vec<String> {
        self.jobs.iter().map(ResourceExt::name_any).collect()
    }
}

fn taken_for(token: &str) -> Option<(String, CopyResult)> {
    Some((token.into(), CopyResult::Taken))
}

#[test]
fn a_copy_that_the_cluster_waits_for_is_taken_once_whatever_the_schedule_is() {
    let mut world = World::new(nightly());
    world.settle();
    assert_eq!((world.jobs.len(), world.result()), (0, None));
    world.awaits("0011aabb-7").settle();
    assert_eq!(world.names(), ["nightly-0123abcd-r0011aabb-7-0"]);
    assert_eq!((world.reconciling(), world.result()), ("BackupRunning".into(), None));
    world.at("2026-11-17T10:05:00Z").succeed().settle();
    assert_eq!(world.result(), taken_for("0011aabb-7"));
    assert_eq!(world.status().last_requested_run, world.status().last_run);
    // Neither the same request again nor another operator takes a second copy, also when the Job is gone.
    world.jobs.clear();
    world.settle();
    assert_eq!(world.jobs.len(), 0);
    // The schedule goes on, and what was requested stays known.
    world.at("2026-11-18T02:00:00Z").settle().succeed().settle();
    assert_eq!((world.jobs.len(), world.result()), (1, taken_for("0011aabb-7")));
    // Another edit needs another copy.
    world.awaits("0011aabb-8").settle();
    assert_eq!(world.names()[1], "nightly-0123abcd-r0011aabb-8-0");
}

#[test]
fn a_requested_copy_that_fails_is_retried_and_given_up_until_something_changes() {
    let mut world = World::new(nightly());
    world.awaits("t-1").settle().fail("StoreUnreachable").settle();
    let retrying = "StoreUnreachable: take: the store responded 403".to_owned();
    assert_eq!(world.result(), Some(("t-1".into(), CopyResult::Retrying(retrying))));
    assert_eq!((world.jobs.len(), world.reconciling()), (1, "RetryPending".into()));
    world.at("2026-11-17T10:00:30Z").settle();
    assert_eq!(world.names()[1], "nightly-0123abcd-rt-1-1");
    world.fail("StoreDenied").settle();
    let denied = "StoreDenied: take: the store responded 403".to_owned();
    assert_eq!(world.result(), Some(("t-1".into(), CopyResult::Failed(denied.clone()))));
    world.at("2026-11-17T12:00:00Z").settle();
    assert_eq!(world.jobs.len(), 2, "it is given up");
    world.backup.metadata.generation = Some(2);
    assert_eq!(world.result(), Some(("t-1".into(), CopyResult::Retrying(denied))), "an edit asks again");
    world.settle().succeed().settle();
    assert_eq!((world.jobs.len(), world.result()), (3, taken_for("t-1")));
}

#[test]
fn a_later_copy_by_schedule_is_as_good_as_the_one_that_failed() {
    let mut world = World::new(nightly());
    world.awaits("t-1").settle().fail("StoreDenied").settle();
    world.at("2026-11-18T02:00:00Z").settle().fail("StoreDenied").settle();
    assert!(matches!(world.result(), Some((_, CopyResult::Failed(_)))), "{:?}", world.result());
    world.at("2026-11-19T02:00:00Z").settle().succeed().settle();
    assert_eq!(world.result(), taken_for("t-1"));
    let written = world.jobs.len();
    assert_eq!(world.settle().jobs.len(), written, "it is not taken again");
}

#[test]
fn a_continuous_backup_without_a_schedule_takes_the_copy_that_the_cluster_waits_for() {
    let mut world = World::new(backup(json!({"continuous": {}})));
    world.settle().succeed().settle();
    let before = world.names().len();
    world.awaits("t-1").settle();
    assert_eq!(world.names()[before..], ["nightly-0123abcd-rt-1-0"]);
    world.succeed().settle();
    assert_eq!((world.result(), world.names().len()), (taken_for("t-1"), before + 1));
}

#[test]
fn a_request_that_is_over_starts_nothing_and_its_job_completes() {
    let mut world = World::new(nightly());
    world.awaits("t-1").settle();
    world.cluster.as_mut().expect("it is there").awaited = None;
    world.settle();
    assert_eq!(world.jobs.len(), 1, "a Job that runs continues");
    world.fail("StoreUnreachable").settle();
    world.at("2026-11-17T12:00:00Z").settle();
    assert_eq!(world.jobs.len(), 1, "and is not repeated");
}

#[test]
fn only_a_schedule_or_an_archive_that_is_in_effect_takes_copies_before_the_version_changes() {
    let has = |changes: Value| takes_copies(&backup(changes));
    assert!(takes_copies(&nightly()));
    assert!(has(json!({"continuous": {}})));
    assert!(!has(json!({"continuous": {}, "suspend": true})));
    assert!(!has(json!({})), "one on demand took the one copy that it is for");
    assert!(!has(json!({"schedule": "0 2 * * *", "suspend": true})));
    assert!(!has(json!({"schedule": "at night"})));
    let mut deleted = nightly();
    deleted.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(CREATED)));
    assert!(!takes_copies(&deleted));
    let mut accepted_before = nightly();
    let condition = json!({
        "type": "Stalled", "status": "True", "reason": "NotImplemented", "message": "", "observedGeneration": 1,
        "lastTransitionTime": CREATED,
    });
    accepted_before.status = serde_json::from_value(json!({"conditions": [condition]})).expect("a status");
    assert!(!takes_copies(&accepted_before));

    for changes in [json!({}), json!({"schedule": "0 2 * * *", "suspend": true})] {
        let mut world = World::new(backup(changes));
        world.settle();
        let before = world.jobs.len();
        assert_eq!(world.awaits("t-1").settle().jobs.len(), before);
    }
}

#[test]
fn another_backup_than_the_one_that_is_asked_takes_none() {
    let mut world = World::new(nightly());
    world.awaits("t-1");
    let awaited = world.cluster.as_mut().and_then(|it| it.awaited.as_mut()).expect("it is there");
    awaited.namespace = "other".into();
    assert_eq!(world.settle().jobs.len(), 0);
}
