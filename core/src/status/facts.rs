//! What the conditions of a cluster say.

use super::conditions::{Fact, Value};
use super::trouble::Trouble;
use super::view::{Quorum, View};
use crate::api::EtcdCluster;
use crate::names::{condition, reason};
use crate::notices::{Kind, Notice, not_rolled_out, notices};
use crate::plan::WaitingOn;
use crate::quorum::quorum;
use crate::validate::Problem;

/// In the order of [`condition::ALL`].
pub(super) fn of(view: &View<'_>, cluster: &EtcdCluster) -> Vec<Fact> {
    let mut facts =
        vec![ready(view), available(view), reconciling(view), not_going_on(view), quorum_lost(view)];
    facts.extend(paused(view));
    let mut words = notices(cluster, view.round.intent);
    words.extend(not_rolled_out(view.round.not_rolled_out));
    facts.extend(noticed(&words));
    facts.extend(drains_blocked(view));
    facts
}

/// Nothing else is known, because without an intent nothing is looked at.
pub(super) fn of_invalid(problems: &[Problem]) -> Vec<Fact> {
    let problems = problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; ");
    let invalid = |type_, value, message: &str| fact(type_, value, reason::INVALID_SPEC, message);
    let not_asked = "members are not asked while the spec is invalid";
    vec![
        invalid(condition::READY, Value::False, &problems),
        invalid(condition::AVAILABLE, Value::Unknown, not_asked),
        invalid(condition::RECONCILING, Value::False, "nothing is done while the spec is invalid"),
        invalid(condition::STALLED, Value::True, &problems),
        invalid(condition::QUORUM_LOST, Value::Unknown, not_asked),
    ]
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
        return ready(Value::False, reason::DELETING, "the cluster is being deleted".into());
    }
    match view.quorum {
        Quorum::Stopped if view.is_stopped() => {
            ready(Value::True, reason::STOPPED, "stopped, as the spec wants it: no member runs".into())
        }
        Quorum::Serves if view.all_serve() => {
            ready(Value::True, reason::ALL_MEMBERS_SERVE, format!("{serving} of {size} members serve"))
        }
        Quorum::Serves if view.is_as_wanted() => {
            ready(Value::False, reason::MEMBERS_NOT_SERVING, not_serving(view))
        }
        Quorum::Stopped | Quorum::Serves if size == 0 => {
            ready(Value::False, reason::STOPPING, format!("members that still serve: {serving}"))
        }
        Quorum::Stopped | Quorum::Serves => {
            let message = format!("voting members that serve: {serving}; wanted: {size}");
            ready(Value::False, reason::SCALING, message)
        }
        Quorum::NotYet => ready(Value::False, reason::NOT_FORMED_YET, "no cluster has formed yet".into()),
        Quorum::Lost { .. } => ready(Value::False, reason::QUORUM_LOST, view.without_quorum()),
        Quorum::Unclear { .. } => ready(Value::Unknown, reason::NO_ANSWER, view.without_quorum()),
    }
}

fn not_serving(view: &View<'_>) -> String {
    let ready = view.ready();
    let voters = view.members().into_iter().flat_map(|members| members.voters());
    let silent = voters.filter(|(id, _)| !ready.contains(id)).map(|(id, _)| view.terms().member(id));
    let silent: Vec<_> = silent.collect();
    format!("{} of {} members serve; not serving: {}", ready.len(), view.size(), silent.join(", "))
}

fn available(view: &View<'_>) -> Fact {
    let (value, reason, message) = match view.quorum {
        Quorum::Serves => (Value::True, reason::QUORUM_SERVES, "a quorum serves reads and writes".into()),
        _ if view.seen().cluster.deleting => {
            (Value::False, reason::DELETING, "the cluster is being deleted".into())
        }
        Quorum::NotYet => (Value::False, reason::NOT_FORMED_YET, "no cluster has formed yet".into()),
        Quorum::Stopped => (Value::False, reason::STOPPED, "no member is meant to run".into()),
        Quorum::Lost { .. } => (Value::False, reason::QUORUM_LOST, view.without_quorum()),
        Quorum::Unclear { .. } => (Value::Unknown, reason::NO_ANSWER, view.without_quorum()),
    };
    fact(condition::AVAILABLE, value, reason, message)
}

/// Programs that watch progress look at this one first, so it yields to what stands in the way.
fn reconciling(view: &View<'_>) -> Fact {
    let plan = view.round.plan;
    let terms = view.terms();
    let actions = plan.actions.iter().map(|action| terms.action(action));
    let waiting = plan.waiting.iter().map(|awaited| format!("wait for {}", terms.awaited(awaited)));
    // The plan waits for the cluster to form; which pods keep it waiting is told beside it.
    let forming = plan.waiting.iter().any(|it| matches!(it, WaitingOn::Formation { .. }));
    let hopeless = if forming { view.hopeless() } else { Vec::new() };
    let away = hopeless.into_iter().filter_map(|ordinal| view.why_away(ordinal));
    let held_up = view.round.trouble.filter(|it| it.is_wait()).map(Trouble::words);
    let steps = actions.chain(held_up).chain(waiting).chain(away).collect::<Vec<_>>().join("; ");
    let (value, reason, message) = if view.seen().cluster.deleting {
        (Value::True, reason::DELETING, steps)
    } else if let Some((reason, _)) = view.stall() {
        (Value::False, reason, "Stalled says what stands in the way".into())
    } else if view.round.intent.paused {
        (Value::False, reason::PAUSED, "spec.paused is set: the operator only watches".into())
    } else if let Some(trouble) = view.round.trouble {
        (Value::True, trouble.reason(), if trouble.is_wait() { steps } else { trouble.words() })
    } else if !view.is_under_way() {
        (Value::False, reason::NOTHING_TO_DO, "nothing is to be done".into())
    } else if plan.actions.is_empty() {
        (Value::True, plan.waiting.first().map_or(reason::STEP_UNDER_WAY, |it| it.reason()), steps)
    } else if view.prepares_formation() {
        (Value::True, reason::STEP_UNDER_WAY, "prepare the pods that form the cluster".into())
    } else {
        (Value::True, reason::STEP_UNDER_WAY, steps)
    };
    fact(condition::RECONCILING, value, reason, message)
}

fn not_going_on(view: &View<'_>) -> Fact {
    match view.stall() {
        Some((reason, message)) => fact(condition::STALLED, Value::True, reason, message),
        None => fact(condition::STALLED, Value::False, reason::NOTHING_REFUSED, "nothing stands in the way"),
    }
}

fn quorum_lost(view: &View<'_>) -> Fact {
    let (value, reason, message) = match view.quorum {
        Quorum::Serves => (Value::False, reason::QUORUM_SERVES, "a quorum serves reads and writes".into()),
        _ if view.seen().cluster.deleting => {
            (Value::False, reason::DELETING, "the cluster is being deleted".into())
        }
        Quorum::NotYet => (Value::False, reason::NOT_FORMED_YET, "no cluster has formed yet".into()),
        Quorum::Stopped => (Value::False, reason::STOPPED, "no member is meant to run".into()),
        Quorum::Lost { .. } => (Value::True, reason::QUORUM_LOST, view.without_quorum()),
        Quorum::Unclear { .. } => (Value::Unknown, reason::NO_ANSWER, view.without_quorum()),
    };
    fact(condition::QUORUM_LOST, value, reason, message)
}

fn paused(view: &View<'_>) -> Option<Fact> {
    let message = "spec.paused is set: the operator reports, but changes nothing";
    view.round.intent.paused.then(|| fact(condition::PAUSED, Value::True, reason::PAUSED, message))
}

/// TLS has a condition of its own, because programs ask for it; the rest is one warning for people.
fn noticed(notices: &[Notice]) -> Vec<Fact> {
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

/// One or two members are all needed for their quorum, so the budget lets none go.
fn drains_blocked(view: &View<'_>) -> Option<Fact> {
    let voters = view.members().map_or(0, |members| members.voters().count());
    let members = voters.max(view.size());
    let none_to_spare = members > 0 && quorum(members) == members;
    (view.round.intent.disruption_budget && none_to_spare).then(|| {
        let message = "the PodDisruptionBudget lets no member go, because a quorum needs all of them: draining a \
                       node waits for ever. Grow to 3 members, or set spec.podDisruptionBudget to Disabled: the \
                       cluster is then away while its node drains";
        fact(condition::DRAINS_BLOCKED, Value::True, reason::NO_MEMBER_TO_SPARE, message)
    })
}
