//! What the conditions of a cluster report.

use super::Basis;
use super::auth;
use super::backup;
use super::blocked::problems_of;
use super::conditions::{Fact, Value};
use super::tls;
use super::trouble::{FailedWrite, Trouble};
use super::view::{Service, View};
use crate::api::EtcdCluster;
use crate::intent::Intent;
use crate::names::{condition, reason};
use crate::notices::{Notice, notices, pod_monitor};
use crate::observed::{MemberId, Members};
use crate::plan::{Refusal, WaitingOn};
use crate::quorum::quorum;

const BEING_DELETED: &str = "the cluster is being deleted";
const NOT_BOOTSTRAPPED: &str = "the cluster has not bootstrapped yet";
const NO_MEMBER_WANTED: &str = "stopped: no member is wanted";
const QUORUM_SERVES: &str = "a quorum serves reads and writes";
const DENIED: &str = "etcd responds and rejects the operator, see condition AuthReady";
const RECREATING: &str = "the operator creates the StatefulSet again; its pods run on";
const PAUSED: &str = "spec.paused is true: the operator reports but makes no changes";

/// In the order of [`condition::ALL`].
pub(super) fn of(view: &View<'_>, cluster: &EtcdCluster) -> Vec<Fact> {
    let mut facts =
        vec![ready(view), available(view), reconciling(view), not_going_on(view), quorum_lost(view)];
    facts.extend(rollout_stalled(view));
    facts.extend(volumes_differ(view));
    facts.extend(paused(view));
    facts.extend(write_failed(view));
    facts.extend(tls_ready(view, cluster));
    facts.extend(auth_ready(view));
    if let Ok(intent) = view.basis.spec {
        let monitor = pod_monitor(intent, view.seen().pod_monitor.as_ref());
        let noticed = notices(cluster, intent).into_iter().chain(view.idle_consent()).chain(monitor);
        facts.extend(spec_warning(noticed.collect()));
        facts.extend(drains_blocked(view, intent));
    }
    facts.extend(members_spread(view));
    facts.extend(
        backup::healthy(&view.seen().backups)
            .map(|(value, reason, message)| fact(condition::BACKUP_HEALTHY, value, reason, message)),
    );
    facts.extend(
        view.consistency()
            .map(|(value, reason, message)| fact(condition::DATA_CONSISTENT, value, reason, message)),
    );
    facts
}

fn fact(type_: &'static str, value: Value, reason: &'static str, message: impl Into<String>) -> Fact {
    Fact { type_, value, reason, message: message.into() }
}

pub(super) type Finding = (Value, &'static str, String);

fn ready(view: &View<'_>) -> Fact {
    let (serving, size) = (view.ready(), view.size());
    let (value, reason, message) = match (view.basis.spec, &view.service) {
        _ if view.seen().cluster.deleting => (Value::False, reason::DELETING, BEING_DELETED.into()),
        (Err(problems), _) => (Value::False, reason::INVALID_SPEC, problems_of(problems)),
        (_, Service::Stopped) if view.is_stopped() => {
            in_effect(view, reason::STOPPED, "stopped as specified: no member runs".into())
        }
        (_, Service::Available | Service::Unproven { long: false })
            if view.is_as_wanted() && view.rollout().is_some() =>
        {
            rolling_out(view)
        }
        (_, Service::Available) if view.all_serve() => {
            let message = format!("{serving} of {size} members are serving");
            in_effect(view, reason::ALL_MEMBERS_SERVING, message)
        }
        (_, Service::Available) if view.is_as_wanted() => {
            let down = down(view, |id| view.terms().member(id)).join(", ");
            let message = format!("{serving} of {size} members are serving; not serving: {down}");
            (Value::False, reason::MEMBERS_NOT_SERVING, message)
        }
        (_, Service::Stopped | Service::Available) if size == 0 => {
            (Value::False, reason::STOPPING, format!("stopping: {serving} members are still serving"))
        }
        (_, Service::Stopped | Service::Available) => {
            let message = format!("{serving} voting members are serving, the spec asks for {size}");
            (Value::False, reason::SCALING, message)
        }
        (_, Service::NotBootstrapped | Service::Lost { .. } | Service::Unproven { .. } | Service::Denied) => {
            match view.alarms() {
                Some(_) => (Value::False, reason::ALARM_ACTIVE, view.without_quorum()),
                None => service(view),
            }
        }
    };
    fact(condition::READY, value, reason, message)
}

/// True, unless something keeps a cluster whose members all serve from being what its spec asks for.
fn in_effect(view: &View<'_>, reason: &'static str, message: String) -> Finding {
    let Basis { failed_writes, not_applied, edited, .. } = *view.basis;
    if let Some(alarms) = view.alarms() {
        return (Value::False, reason::ALARM_ACTIVE, alarms);
    }
    if let Some(volumes) = view.volumes() {
        return (Value::False, volumes.reason, volumes.message);
    }
    if !failed_writes.is_empty() {
        return (Value::False, reason::WRITE_FAILED, failures(failed_writes));
    }
    if view.size() > 0 && view.seen().set.as_ref().is_none_or(|set| set.terminating) {
        return (Value::False, reason::STATEFULSET_RECREATING, RECREATING.into());
    }
    if let Some(switching) = tls::switching(view).filter(|_| view.size() > 0) {
        return (Value::False, reason::SWITCHING_TLS, switching);
    }
    if let Some(pending) = auth::pending(view) {
        return (Value::False, reason::AUTH_PENDING, pending);
    }
    let held = view.refused_rollout().map(|refusal| {
        let held = "a previous version of the operator did not roll this out, and a new version of the operator alone \
                    restarts no member: the next edit of the spec rolls it out, or revert the edit";
        let why = if refusal == Refusal::EditHeld { held.into() } else { view.terms().refused(&refusal) };
        not_in_effect(edited, &why)
    });
    let volumes = (!not_applied.is_empty()).then(|| {
        let volumes = "volumes that exist cannot be changed in this way, so all of them keep the previous values: revert \
                       the edit";
        not_in_effect(not_applied, volumes)
    });
    match held.into_iter().chain(volumes).collect::<Vec<_>>() {
        none if none.is_empty() => (Value::True, reason, message),
        some => (Value::False, reason::NOT_ROLLED_OUT, some.join("; ")),
    }
}

fn not_in_effect(fields: &[&str], why: &str) -> String {
    format!("edits not in effect: {}; {why}", fields.join(", "))
}

/// Until all members run together with what the spec asks for.
fn rolling_out(view: &View<'_>) -> Finding {
    if let Some(alarms) = view.alarms() {
        return (Value::False, reason::ALARM_ACTIVE, alarms);
    }
    let progress = view.rollout().map(|rollout| rollout.progress());
    let down = down(view, |id| view.terms().member(id)).join(", ");
    let down = (!down.is_empty()).then(|| format!("not serving: {down}"));
    let message = progress.into_iter().chain(down).collect::<Vec<_>>().join("; ");
    (Value::False, reason::ROLLING_OUT, message)
}

fn failures(writes: &[FailedWrite]) -> String {
    let writes: Vec<_> = writes.iter().map(|it| format!("{}: {}", it.object, it.error)).collect();
    format!("write failed, retrying: {}", writes.join("; "))
}

/// Each voter that does not serve.
fn down(view: &View<'_>, name: impl Fn(MemberId) -> String) -> Vec<String> {
    let voters = view.facts.listed().into_iter().flat_map(Members::voters);
    voters.filter(|(id, _)| !view.facts.serves(*id)).map(|(id, _)| name(id)).collect()
}

/// Whether a quorum serves.
fn service(view: &View<'_>) -> Finding {
    match view.service {
        Service::Available => (Value::True, reason::QUORUM_AVAILABLE, QUORUM_SERVES.into()),
        _ if view.seen().cluster.deleting => (Value::False, reason::DELETING, BEING_DELETED.into()),
        Service::NotBootstrapped => (Value::False, reason::NOT_BOOTSTRAPPED, NOT_BOOTSTRAPPED.into()),
        Service::Stopped => (Value::False, reason::STOPPED, NO_MEMBER_WANTED.into()),
        Service::Lost { .. } => (Value::False, reason::QUORUM_LOST, view.without_quorum()),
        Service::Unproven { .. } => (Value::Unknown, reason::MEMBERS_UNREACHABLE, view.without_quorum()),
        Service::Denied => (Value::Unknown, reason::ACCESS_DENIED, DENIED.into()),
    }
}

fn available(view: &View<'_>) -> Fact {
    let (value, reason, message) = service(view);
    let depends_on_etcd = [reason::QUORUM_AVAILABLE, reason::QUORUM_LOST, reason::MEMBERS_UNREACHABLE];
    match view.alarms().filter(|_| depends_on_etcd.contains(&reason)) {
        Some(alarms) => fact(condition::AVAILABLE, Value::False, reason::ALARM_ACTIVE, alarms),
        None => fact(condition::AVAILABLE, value, reason, message),
    }
}

/// Programs that watch progress read this one first, so it yields to what blocks the operator.
fn reconciling(view: &View<'_>) -> Fact {
    let plan = view.basis.plan;
    let terms = view.terms();
    let rollout = view.rollout().filter(|_| view.is_as_wanted());
    let actions: Vec<_> = match &rollout {
        Some(rollout) => rollout.steps(),
        None => plan.actions.iter().map(|action| terms.action(action)).collect(),
    };
    let waiting = plan.waiting.iter().map(|awaited| format!("waiting for {}", terms.awaited(awaited)));
    // The plan waits for the bootstrap; which pods keep it waiting is reported beside it.
    let forming = plan.waiting.iter().any(|it| matches!(it, WaitingOn::Formation { .. }));
    let hopeless = if forming { view.hopeless() } else { Vec::new() };
    let down = hopeless.into_iter().filter_map(|ordinal| view.why_down(ordinal));
    let held_up = view.basis.trouble.filter(|it| it.is_wait()).map(Trouble::words);
    let steps = actions.into_iter().chain(held_up).chain(waiting).chain(down).collect::<Vec<_>>().join("; ");
    let (value, reason, message) = if view.seen().cluster.deleting {
        (Value::True, reason::DELETING, steps)
    } else if let Some((reason, _)) = view.stall() {
        (Value::False, reason, "blocked, see condition Stalled".into())
    } else if view.basis.goal.paused {
        (Value::False, reason::PAUSED, PAUSED.into())
    } else if let Some(trouble) = view.basis.trouble {
        (Value::True, trouble.reason(), if trouble.is_wait() { steps } else { trouble.words() })
    } else if !view.is_under_way() {
        at_rest(view)
    } else if plan.actions.is_empty() {
        (Value::True, plan.waiting.first().map_or(reason::PROGRESSING, |it| it.reason()), steps)
    } else if rollout.is_some() {
        (Value::True, reason::ROLLING_OUT, steps)
    } else if view.prepares_formation() {
        (Value::True, reason::PROGRESSING, "prepare the bootstrap".into())
    } else {
        (Value::True, reason::PROGRESSING, steps)
    };
    fact(condition::RECONCILING, value, reason, message)
}

/// When the plan has nothing to do, something else can still be missing.
fn at_rest(view: &View<'_>) -> (Value, &'static str, String) {
    let Basis { failed_writes, not_applied, .. } = *view.basis;
    let down = down(view, |id| {
        format!("{} since {:.0}", view.terms().member(id), view.since(&id.to_string(), false).0)
    });
    if !down.is_empty() {
        let message = format!(
            "not serving: {}; a member rejoins with its data when it returns, and the operator replaces it only if its data \
             or its node is lost",
            down.join(", ")
        );
        return (Value::True, reason::AWAITING_RECOVERY, message);
    }
    if let Some(volumes) = view.volumes() {
        let message = match volumes.reconciling {
            Value::True => volumes.message,
            Value::False | Value::Unknown => "blocked, see condition VolumesDiffer".into(),
        };
        return (volumes.reconciling, volumes.reason, message);
    }
    if !failed_writes.is_empty() {
        return (Value::True, reason::WRITE_FAILED, failures(failed_writes));
    }
    if let Some(pending) = auth::pending(view) {
        return (Value::True, reason::AUTH_PENDING, pending);
    }
    let precedes_rollout =
        |it: &&Refusal| matches!(it, Refusal::PreflightFailed { .. } | Refusal::NoCopy { .. });
    if let Some(failed) = view.basis.plan.refusals.iter().find(precedes_rollout) {
        return (Value::False, failed.reason(), "blocked, see condition RolloutStalled".into());
    }
    if !not_applied.is_empty() || view.refused_rollout().is_some() {
        return (Value::False, reason::NOT_ROLLED_OUT, "edits not in effect, see condition Ready".into());
    }
    let is_for_later = |it: &&WaitingOn| matches!(it, WaitingOn::Consent { .. } | WaitingOn::Window { .. });
    if let Some(awaited) = view.basis.plan.waiting.iter().find(is_for_later) {
        let message = format!("waiting for {}", view.terms().awaited(awaited));
        return (Value::False, awaited.reason(), message);
    }
    (Value::False, reason::UP_TO_DATE, up_to_date(view))
}

/// An agent is replaced with its pod, and a new operator alone replaces no pod.
fn up_to_date(view: &View<'_>) -> String {
    let outdated = view.basis.agents.iter().filter(|(_, agent)| agent.outdated);
    let outdated: Vec<_> = outdated
        .map(|(&ordinal, agent)| format!("{} ({})", view.basis.names.pod(ordinal), agent.version))
        .collect();
    match outdated.is_empty() {
        true => "up to date".into(),
        false => format!(
            "up to date; pods with another version of the agent get the operator's with their next restart: {}",
            outdated.join(", ")
        ),
    }
}

fn not_going_on(view: &View<'_>) -> Fact {
    match view.stall() {
        Some((reason, message)) => fact(condition::STALLED, Value::True, reason, message),
        None => fact(condition::STALLED, Value::False, reason::NOT_STALLED, "nothing blocks the operator"),
    }
}

fn rollout_stalled(view: &View<'_>) -> Option<Fact> {
    let (value, reason, message) = view.rollout()?.stalled();
    Some(fact(condition::ROLLOUT_STALLED, value, reason, message))
}

fn members_spread(view: &View<'_>) -> Option<Fact> {
    let (value, reason, message) = view.spread()?;
    Some(fact(condition::MEMBERS_SPREAD, value, reason, message))
}

fn volumes_differ(view: &View<'_>) -> Option<Fact> {
    let differing = view.volumes()?;
    Some(fact(condition::VOLUMES_DIFFER, Value::True, differing.reason, differing.message))
}

fn quorum_lost(view: &View<'_>) -> Fact {
    let (available, reason, message) = service(view);
    let value = match available {
        Value::Unknown => Value::Unknown,
        Value::False if reason == reason::QUORUM_LOST => Value::True,
        Value::True | Value::False => Value::False,
    };
    fact(condition::QUORUM_LOST, value, reason, message)
}

fn paused(view: &View<'_>) -> Option<Fact> {
    let asked_for = view.basis.spec.is_ok_and(|intent| intent.paused);
    asked_for.then(|| fact(condition::PAUSED, Value::True, reason::PAUSED, PAUSED))
}

fn write_failed(view: &View<'_>) -> Option<Fact> {
    let writes = view.basis.failed_writes;
    (!writes.is_empty())
        .then(|| fact(condition::WRITE_FAILED, Value::True, reason::WRITE_FAILED, failures(writes)))
}

fn tls_ready(view: &View<'_>, cluster: &EtcdCluster) -> Option<Fact> {
    let (value, reason, message) = tls::ready(view, cluster)?;
    Some(fact(condition::TLS_READY, value, reason, message))
}

fn auth_ready(view: &View<'_>) -> Option<Fact> {
    let (value, reason, message) = auth::ready(view)?;
    Some(fact(condition::AUTH_READY, value, reason, message))
}

/// The most severe notice gives its reason.
fn spec_warning(mut notices: Vec<Notice>) -> Option<Fact> {
    notices.sort_by_key(|notice| notice.kind);
    let reason = notices.first()?.kind.reason();
    let messages: Vec<_> = notices.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
    Some(fact(condition::SPEC_WARNING, Value::True, reason, messages.join("; ")))
}

/// Quorum needs every one of one or two members, so the budget blocks every eviction.
fn drains_blocked(view: &View<'_>, intent: &Intent) -> Option<Fact> {
    let voters = view.facts.listed().map_or(0, |members| members.voters().count());
    let members = voters.max(view.size());
    let none_to_spare = members > 0 && quorum(members) == members;
    (intent.disruption_budget && none_to_spare).then(|| {
        let message = "the PodDisruptionBudget blocks all evictions, because quorum needs every member: draining a \
                       node never finishes. Scale to 3 members, or set spec.podDisruptionBudget to Disabled: the \
                       cluster is then unavailable while its node drains";
        fact(condition::DRAINS_BLOCKED, Value::True, reason::NO_SPARE_MEMBER, message)
    })
}
