//! What the conditions of a cluster report.

use super::Basis;
use super::blocked::problems_of;
use super::conditions::{Fact, Value};
use super::trouble::{FailedWrite, Trouble};
use super::view::{Quorum, View};
use crate::api::EtcdCluster;
use crate::intent::Intent;
use crate::names::{condition, reason};
use crate::notices::{Kind, Notice, notices};
use crate::observed::MemberId;
use crate::plan::WaitingOn;
use crate::quorum::quorum;

const BEING_DELETED: &str = "the cluster is being deleted";
const NOT_BOOTSTRAPPED: &str = "the cluster has not bootstrapped yet";
const NO_MEMBER_WANTED: &str = "stopped: no member is wanted";
const QUORUM_SERVES: &str = "a quorum serves reads and writes";
const PAUSED: &str = "spec.paused is true: the operator reports but makes no changes";

/// In the order of [`condition::ALL`].
pub(super) fn of(view: &View<'_>, cluster: &EtcdCluster) -> Vec<Fact> {
    let mut facts =
        vec![ready(view), available(view), reconciling(view), not_going_on(view), quorum_lost(view)];
    facts.extend(paused(view));
    facts.extend(write_failed(view));
    if let Ok(intent) = view.basis.spec {
        facts.extend(noticed(notices(cluster, intent)));
        facts.extend(drains_blocked(view, intent));
    }
    facts
}

pub(super) fn stalled(reason: &'static str, message: &str) -> Vec<Fact> {
    [(condition::READY, Value::False), (condition::STALLED, Value::True)]
        .map(|(type_, value)| fact(type_, value, reason, message))
        .into()
}

fn fact(type_: &'static str, value: Value, reason: &'static str, message: impl Into<String>) -> Fact {
    Fact { type_, value, reason, message: message.into() }
}

fn ready(view: &View<'_>) -> Fact {
    let ready = |value, reason, message: String| fact(condition::READY, value, reason, message);
    let (serving, size) = (view.ready().len(), view.size());
    if view.seen().cluster.deleting {
        return ready(Value::False, reason::DELETING, BEING_DELETED.into());
    }
    if let Err(problems) = view.basis.spec {
        return ready(Value::False, reason::INVALID_SPEC, problems_of(problems));
    }
    match view.quorum {
        Quorum::Stopped if view.is_stopped() => match not_in_effect(view) {
            Some((reason, message)) => ready(Value::False, reason, message),
            None => ready(Value::True, reason::STOPPED, "stopped as specified: no member runs".into()),
        },
        Quorum::Serves if view.all_serve() => match not_in_effect(view) {
            Some((reason, message)) => ready(Value::False, reason, message),
            None => {
                let message = format!("{serving} of {size} members are serving");
                ready(Value::True, reason::ALL_MEMBERS_SERVING, message)
            }
        },
        Quorum::Serves if view.is_as_wanted() => {
            ready(Value::False, reason::MEMBERS_NOT_SERVING, not_serving(view))
        }
        Quorum::Stopped | Quorum::Serves if size == 0 => {
            let message = format!("stopping: {serving} members are still serving");
            ready(Value::False, reason::STOPPING, message)
        }
        Quorum::Stopped | Quorum::Serves => {
            let message = format!("{serving} voting members are serving, the spec asks for {size}");
            ready(Value::False, reason::SCALING, message)
        }
        Quorum::NotYet => ready(Value::False, reason::NOT_BOOTSTRAPPED, NOT_BOOTSTRAPPED.into()),
        Quorum::Lost { .. } | Quorum::Unclear { .. } if view.alarms().is_some() => {
            ready(Value::False, reason::ALARM_ACTIVE, view.without_quorum())
        }
        Quorum::Lost { .. } => ready(Value::False, reason::QUORUM_LOST, view.without_quorum()),
        Quorum::Unclear { .. } => ready(Value::Unknown, reason::MEMBERS_UNREACHABLE, view.without_quorum()),
    }
}

/// What keeps a cluster whose members all serve from being what its spec asks for.
fn not_in_effect(view: &View<'_>) -> Option<(&'static str, String)> {
    let Basis { failed_writes, not_rolled_out, .. } = *view.basis;
    if let Some(alarms) = view.alarms() {
        return Some((reason::ALARM_ACTIVE, alarms));
    }
    if !failed_writes.is_empty() {
        return Some((reason::WRITE_FAILED, failures(failed_writes)));
    }
    (!not_rolled_out.is_empty()).then(|| {
        let message = format!(
            "edits not in effect: {}; this version of the operator does not restart members, so all of them keep the \
             previous values: revert the edit, or wait for a version that rolls it out",
            not_rolled_out.join(", ")
        );
        (reason::NOT_ROLLED_OUT, message)
    })
}

fn failures(writes: &[FailedWrite]) -> String {
    let writes: Vec<_> = writes.iter().map(|it| format!("{}: {}", it.object, it.error)).collect();
    format!("write failed, retrying: {}", writes.join("; "))
}

fn not_serving(view: &View<'_>) -> String {
    format!(
        "{} of {} members are serving; not serving: {}",
        view.ready().len(),
        view.size(),
        down(view, |id| view.terms().member(id)).join(", ")
    )
}

/// Each voter that does not serve.
fn down(view: &View<'_>, name: impl Fn(MemberId) -> String) -> Vec<String> {
    let ready = view.ready();
    let voters = view.members().into_iter().flat_map(|members| members.voters());
    voters.filter(|(id, _)| !ready.contains(id)).map(|(id, _)| name(id)).collect()
}

fn available(view: &View<'_>) -> Fact {
    let (value, reason, message) = match view.quorum {
        _ if view.seen().cluster.deleting && view.quorum != Quorum::Serves => {
            (Value::False, reason::DELETING, BEING_DELETED.into())
        }
        Quorum::NotYet => (Value::False, reason::NOT_BOOTSTRAPPED, NOT_BOOTSTRAPPED.into()),
        Quorum::Stopped => (Value::False, reason::STOPPED, NO_MEMBER_WANTED.into()),
        Quorum::Serves | Quorum::Unclear { .. } | Quorum::Lost { .. } if view.alarms().is_some() => {
            (Value::False, reason::ALARM_ACTIVE, view.alarms().unwrap_or_default())
        }
        Quorum::Serves => (Value::True, reason::QUORUM_AVAILABLE, QUORUM_SERVES.into()),
        Quorum::Lost { .. } => (Value::False, reason::QUORUM_LOST, view.without_quorum()),
        Quorum::Unclear { .. } => (Value::Unknown, reason::MEMBERS_UNREACHABLE, view.without_quorum()),
    };
    fact(condition::AVAILABLE, value, reason, message)
}

/// Programs that watch progress read this one first, so it yields to what blocks the operator.
fn reconciling(view: &View<'_>) -> Fact {
    let plan = view.basis.plan;
    let terms = view.terms();
    let actions = plan.actions.iter().map(|action| terms.action(action));
    let waiting = plan.waiting.iter().map(|awaited| format!("waiting for {}", terms.awaited(awaited)));
    // The plan waits for the bootstrap; which pods keep it waiting is reported beside it.
    let forming = plan.waiting.iter().any(|it| matches!(it, WaitingOn::Formation { .. }));
    let hopeless = if forming { view.hopeless() } else { Vec::new() };
    let down = hopeless.into_iter().filter_map(|ordinal| view.why_down(ordinal));
    let held_up = view.basis.trouble.filter(|it| it.is_wait()).map(Trouble::words);
    let steps = actions.chain(held_up).chain(waiting).chain(down).collect::<Vec<_>>().join("; ");
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
    } else if view.prepares_formation() {
        (Value::True, reason::PROGRESSING, "prepare the bootstrap".into())
    } else {
        (Value::True, reason::PROGRESSING, steps)
    };
    fact(condition::RECONCILING, value, reason, message)
}

/// When the plan has nothing to do, something else can still be missing.
fn at_rest(view: &View<'_>) -> (Value, &'static str, String) {
    let Basis { failed_writes, not_rolled_out, .. } = *view.basis;
    let down = down(view, |id| match view.not_ready_since(id) {
        Some(since) => format!("{} since {since:.0}", view.terms().member(id)),
        None => view.terms().member(id),
    });
    if !down.is_empty() {
        let message = format!(
            "not serving: {}; a member rejoins with its data when it returns, and the operator replaces it only if its data \
             is lost",
            down.join(", ")
        );
        return (Value::True, reason::AWAITING_RECOVERY, message);
    }
    if !failed_writes.is_empty() {
        return (Value::True, reason::WRITE_FAILED, failures(failed_writes));
    }
    if !not_rolled_out.is_empty() {
        return (Value::False, reason::NOT_ROLLED_OUT, "edits not in effect, see condition Ready".into());
    }
    (Value::False, reason::UP_TO_DATE, "up to date".into())
}

fn not_going_on(view: &View<'_>) -> Fact {
    match view.stall() {
        Some((reason, message)) => fact(condition::STALLED, Value::True, reason, message),
        None => fact(condition::STALLED, Value::False, reason::NOT_STALLED, "nothing blocks the operator"),
    }
}

fn quorum_lost(view: &View<'_>) -> Fact {
    let (value, reason, message) = match view.quorum {
        Quorum::Serves => (Value::False, reason::QUORUM_AVAILABLE, "a quorum serves".into()),
        _ if view.seen().cluster.deleting => (Value::False, reason::DELETING, BEING_DELETED.into()),
        Quorum::NotYet => (Value::False, reason::NOT_BOOTSTRAPPED, NOT_BOOTSTRAPPED.into()),
        Quorum::Stopped => (Value::False, reason::STOPPED, NO_MEMBER_WANTED.into()),
        Quorum::Lost { .. } => (Value::True, reason::QUORUM_LOST, view.without_quorum()),
        Quorum::Unclear { .. } => (Value::Unknown, reason::MEMBERS_UNREACHABLE, view.without_quorum()),
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

/// TLS has a condition of its own, because programs ask for it; the rest is one warning for people. The most severe
/// notice gives its reason.
fn noticed(mut notices: Vec<Notice>) -> Vec<Fact> {
    notices.sort_by_key(|notice| notice.kind);
    let told = |type_, value, notices: &[&Notice]| {
        let reason = notices.first()?.kind.reason();
        let messages: Vec<_> = notices.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
        Some(fact(type_, value, reason, messages.join("; ")))
    };
    let (tls, rest): (Vec<_>, Vec<_>) =
        notices.iter().partition(|it: &&Notice| it.kind == Kind::TlsNotInEffect);
    [told(condition::TLS_READY, Value::False, &tls), told(condition::SPEC_WARNING, Value::True, &rest)]
        .into_iter()
        .flatten()
        .collect()
}

/// Quorum needs every one of one or two members, so the budget blocks every eviction.
fn drains_blocked(view: &View<'_>, intent: &Intent) -> Option<Fact> {
    let voters = view.members().map_or(0, |members| members.voters().count());
    let members = voters.max(view.size());
    let none_to_spare = members > 0 && quorum(members) == members;
    (intent.disruption_budget && none_to_spare).then(|| {
        let message = "the PodDisruptionBudget blocks all evictions, because quorum needs every member: draining a \
                       node never finishes. Scale to 3 members, or set spec.podDisruptionBudget to Disabled: the \
                       cluster is then unavailable while its node drains";
        fact(condition::DRAINS_BLOCKED, Value::True, reason::NO_SPARE_MEMBER, message)
    })
}
