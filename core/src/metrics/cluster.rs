//! The numbers of one cluster.

use std::collections::BTreeMap;

use super::{
    ALARMS, CERTIFICATE_EXPIRY, CERTIFICATE_RENEWAL, COMPARED, CONDITION, LEARNERS, MARGIN, MEMBERS, Metric,
    OBSERVED, PHASE, READY, REFUSALS, ROLLOUT, Sample, WAITS, WANTED, by_condition, labelled, plain, seconds,
};
use crate::api::{EtcdClusterStatus, Phase};
use crate::assess::{Assessment, MemberState, assess};
use crate::decide::{Goal, Roll};
use crate::names::condition;
use crate::observed::{Members, Observed};
use crate::plan::{Plan, Refusal, WaitingOn};
use crate::quorum::quorum;
use crate::tls::renewals;

const PHASES: [Phase; 7] = [
    Phase::Creating,
    Phase::Running,
    Phase::Scaling,
    Phase::Upgrading,
    Phase::Failed,
    Phase::Deleting,
    Phase::Stopped,
];
/// The states of members, as [`MemberState`] has them.
const STATES: [&str; 8] =
    ["serving", "lost", "starting", "catching_up", "caught_up", "no_leader", "reads_failing", "silent"];
/// Those that etcd has; of a later one only the number is served.
const ALARM_KINDS: [&str; 2] = ["NOSPACE", "CORRUPT"];
const OTHER_ALARM: &str = "other";

/// What one observation and the plan for it amount to.
pub fn of_observation(goal: &Goal, seen: &Observed, plan: &Plan) -> Vec<Sample> {
    let facts = assess(seen);
    let mut samples = vec![
        plain(&OBSERVED, seconds(seen.now)),
        plain(&WANTED, goal.size.into()),
        plain(&READY, count(facts.serving())),
        plain(&ROLLOUT, rollout_pending(goal, &facts)),
    ];
    samples.extend(seen.etcd.compared.last.as_ref().map(|it| plain(&COMPARED, seconds(it.at))));
    if let Some(members) = facts.listed() {
        samples.extend(of_members(&facts, members));
    }
    samples.extend(by_reason(&WAITS, plan.waiting.iter().map(WaitingOn::reason)));
    samples.extend(by_reason(&REFUSALS, plan.refusals.iter().map(Refusal::reason)));
    for (purpose, certificate, renewal) in renewals(&goal.certificates, seen) {
        samples.push(labelled(&CERTIFICATE_EXPIRY, purpose.suffix(), seconds(certificate.not_after)));
        samples.push(labelled(&CERTIFICATE_RENEWAL, purpose.suffix(), seconds(renewal)));
    }
    samples
}

/// What the status reports in words: its phase and its conditions.
pub fn of_status(status: &EtcdClusterStatus) -> Vec<Sample> {
    let phases = PHASES.into_iter().map(|it| labelled(&PHASE, phase(it), (status.phase == Some(it)).into()));
    let conditions = by_condition(&CONDITION, condition::ALL, &status.conditions);
    phases.chain(conditions).collect()
}

fn of_members(facts: &Assessment<'_>, members: &Members) -> Vec<Sample> {
    let in_state = |name| facts.members.values().filter(|it| state(it) == name).count();
    let mut samples: Vec<_> =
        STATES.into_iter().map(|name| labelled(&MEMBERS, name, number(in_state(name)))).collect();
    samples.push(plain(&LEARNERS, count(members.learners())));
    let needed = quorum(members.voters().count());
    samples.push(plain(&MARGIN, count(facts.serving()) - number(needed)));
    let alarms = facts.alarms();
    let raised = |kind: &str| alarms.iter().filter(|alarm| alarm.kind == kind).count();
    let known: usize = ALARM_KINDS.into_iter().map(raised).sum();
    samples.extend(ALARM_KINDS.map(|kind| labelled(&ALARMS, kind, number(raised(kind)))));
    samples.push(labelled(&ALARMS, OTHER_ALARM, number(alarms.len() - known)));
    samples
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Creating => "Creating",
        Phase::Running => "Running",
        Phase::Scaling => "Scaling",
        Phase::Upgrading => "Upgrading",
        Phase::Failed => "Failed",
        Phase::Deleting => "Deleting",
        Phase::Stopped => "Stopped",
    }
}

fn state(state: &MemberState) -> &'static str {
    match state {
        MemberState::Serving => "serving",
        MemberState::Lost(_) => "lost",
        MemberState::Starting => "starting",
        MemberState::CatchingUp { .. } => "catching_up",
        MemberState::CaughtUp => "caught_up",
        MemberState::NoLeader => "no_leader",
        MemberState::ReadsFailing => "reads_failing",
        MemberState::Silent => "silent",
    }
}

fn rollout_pending(goal: &Goal, facts: &Assessment<'_>) -> f64 {
    let Some(roll) = Roll::new(goal, facts) else { return 0.0 };
    count(facts.seen.pods.values().filter(|pod| !roll.has_it(pod)))
}

fn by_reason(
    metric: &'static Metric,
    reasons: impl Iterator<Item = &'static str>,
) -> impl Iterator<Item = Sample> {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    reasons.for_each(|reason| *counts.entry(reason).or_default() += 1);
    counts.into_iter().map(move |(reason, times)| labelled(metric, reason, number(times)))
}

fn count<T>(items: impl Iterator<Item = T>) -> f64 {
    number(items.count())
}

/// At most a few dozen things are counted in a cluster.
fn number(count: usize) -> f64 {
    u32::try_from(count).unwrap_or(u32::MAX).into()
}
