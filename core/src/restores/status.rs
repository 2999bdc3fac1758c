//! The status of an EtcdRestore.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::outcome::{Run, State};
use super::{Seen, Standing, generation};
use crate::api::{EtcdRestoreStatus, RestorePhase};
use crate::names::{condition, reason};
use crate::runs::why_blocked;
use crate::status::{Fact, History, Value, ours};
use crate::validate::Problem;

/// Of an attempt that has not ended.
pub(super) fn of_attempt(run: &Run) -> Standing {
    let job = &run.job;
    match &run.state {
        State::Starting(Some(blocked)) => {
            let (reason, message) = why_blocked(job, blocked);
            Standing::Waits(reason, message)
        }
        State::Starting(None) => Standing::Works(format!("Job {job} starts")),
        State::Fetching => Standing::Works(format!("Job {job} fetches the copy to the volume")),
        State::Replaying => {
            Standing::Works(format!("Job {job} fetches the copy and replays the archive after it"))
        }
        State::Restoring => Standing::Works(format!("Job {job} makes the data of etcd from the copy")),
        State::Ended(_) => Standing::Works(format!("Job {job} has ended")),
    }
}

/// The whole status, from what was recorded and how things stand.
pub(super) fn of(seen: &Seen<'_>, recorded: EtcdRestoreStatus, standing: &Standing) -> EtcdRestoreStatus {
    let conditions = ours(&recorded.conditions);
    let history =
        History { before: &conditions, generation: seen.restore.metadata.generation, now: seen.now };
    let is_over = matches!(standing, Standing::Failed(_) | Standing::Completed);
    EtcdRestoreStatus {
        phase: phase(&recorded, standing),
        conditions: history.conditions(facts(&recorded, standing)),
        completion_time: is_over.then_some(Time(seen.now)),
        observed_generation: Some(generation(seen.restore)),
        ..recorded
    }
}

fn phase(recorded: &EtcdRestoreStatus, standing: &Standing) -> Option<RestorePhase> {
    match standing {
        Standing::Completed => Some(RestorePhase::Completed),
        Standing::Invalid(_) | Standing::Blocked(..) | Standing::AwaitsEdit | Standing::Failed(_) => {
            Some(RestorePhase::Failed)
        }
        Standing::Works(_) | Standing::Retries(_) => Some(RestorePhase::Running),
        Standing::Waits(..) => recorded.incarnation.is_some().then_some(RestorePhase::Running),
    }
}

fn facts(recorded: &EtcdRestoreStatus, standing: &Standing) -> Vec<Fact> {
    let fact =
        |type_, value, (reason, message): (&'static str, String)| Fact { type_, value, reason, message };
    let blocked = blocking(standing);
    let working = working(standing);
    let ready = match (&blocked, &working) {
        (Some(why), _) => (Value::False, why.clone()),
        (None, Some(what)) => (Value::False, what.clone()),
        (None, None) => (Value::True, (reason::RESTORE_COMPLETED, completed(recorded))),
    };
    let nothing = |reason, message: &str| (reason, message.to_owned());
    vec![
        fact(condition::READY, ready.0, ready.1),
        match working {
            Some(what) => fact(condition::RECONCILING, Value::True, what),
            None => {
                fact(condition::RECONCILING, Value::False, nothing(reason::UP_TO_DATE, "nothing is pending"))
            }
        },
        match blocked {
            Some(why) => fact(condition::STALLED, Value::True, why),
            None => fact(
                condition::STALLED,
                Value::False,
                nothing(reason::NOT_STALLED, "nothing blocks the operator"),
            ),
        },
    ]
}

fn blocking(standing: &Standing) -> Option<(&'static str, String)> {
    match standing {
        Standing::Invalid(problems) => {
            let problems: Vec<_> = problems.iter().map(Problem::to_string).collect();
            Some((reason::INVALID_SPEC, problems.join("; ")))
        }
        Standing::Blocked(reason, message) => Some((reason, message.clone())),
        Standing::AwaitsEdit => {
            let message = "a version of the operator that restored nothing accepted this object: edit its spec or create it again \
                           to let it take effect";
            Some((reason::AWAITING_EDIT, message.into()))
        }
        Standing::Failed(failed) => Some((failed.reason, failed.message.clone())),
        Standing::Waits(..) | Standing::Works(_) | Standing::Retries(_) | Standing::Completed => None,
    }
}

fn working(standing: &Standing) -> Option<(&'static str, String)> {
    match standing {
        Standing::Waits(reason, message) => Some((reason, message.clone())),
        Standing::Works(doing) => Some((reason::RESTORE_RUNNING, doing.clone())),
        Standing::Retries(at) => {
            let message = format!("the last attempt failed, see lastRun; the next one starts at {at:.0}");
            Some((reason::RETRY_PENDING, message))
        }
        Standing::Invalid(_)
        | Standing::Blocked(..)
        | Standing::AwaitsEdit
        | Standing::Failed(_)
        | Standing::Completed => None,
    }
}

fn completed(recorded: &EtcdRestoreStatus) -> String {
    let EtcdRestoreStatus {
        restored_cluster,
        copy_name,
        restored_revision,
        served_revision,
        replayed_revisions,
        replaced,
        ..
    } = recorded;
    let cluster = restored_cluster.as_deref().unwrap_or_default();
    let copy = copy_name.as_ref().map_or_else(|| "the copy".to_owned(), |name| format!("copy {name}"));
    let number = |revision: &Option<i64>| revision.unwrap_or_default();
    let (restored, served) = (number(restored_revision), number(served_revision));
    let previous = match replaced.as_ref().filter(|it| !it.volumes.is_empty()) {
        Some(replaced) => format!("; its previous data stays on volumes {}", replaced.volumes.join(", ")),
        None => String::new(),
    };
    match replayed_revisions.filter(|count| *count > 0) {
        Some(count) => format!(
            "EtcdCluster {cluster} serves revision {restored}, which is {copy} and {count} revisions of the archive; its own \
             revisions begin at {served}; users, roles, and leases without keys are those of the copy{previous}"
        ),
        None => format!(
            "EtcdCluster {cluster} serves {copy}, which has revision {restored}; its own revisions begin at {served}{previous}"
        ),
    }
}
