//! Members with different data. Which data is right is known only when most voters agree.

use std::collections::BTreeSet;

use crate::assess::Assessment;
use crate::observed::{Alarm, AlarmKind, MemberId, Members, Ordinal, Verdict};
use crate::plan::{Action, Refusal, WaitingOn};

/// What etcd reports again this soon after it was disarmed is not helped by disarming.
const AGAIN_AFTER_SECONDS: i64 = 3600;

/// What comes next.
pub enum Next {
    Replace(MemberId),
    /// A new member receives its data from the leader, so none leads that differs.
    Lead {
        from: MemberId,
        to: MemberId,
    },
    Act(Action),
    Wait(WaitingOn),
    Refuse(Refusal),
}

/// None while nothing is known to differ, and while a member joins: members are replaced one after the other.
pub fn restore(facts: &Assessment<'_>, members: &Members, size: u8) -> Option<Next> {
    let compared = &facts.seen.etcd.compared;
    let is_corrupt = is_corrupt(facts);
    let wait = |members: BTreeSet<MemberId>| {
        let (members, until) = (members.into_iter().collect(), compared.next);
        Some(Next::Wait(WaitingOn::Comparison { members, until }))
    };
    match compared.verdict(members) {
        Verdict::Incomplete if is_corrupt && members.voters().count() > 1 => wait(BTreeSet::new()),
        Verdict::Equal if is_corrupt => Some(disarm(facts, members)),
        Verdict::Incomplete | Verdict::Equal => None,
        Verdict::NoMajority(differing) => {
            Some(Next::Refuse(Refusal::NoMajority { members: differing.into_iter().collect() }))
        }
        Verdict::Minority(differing) => {
            let proven = proven(facts, members, &differing);
            if proven.is_empty() {
                return wait(differing);
            }
            replace(facts, members, size, &differing, &proven)
        }
    }
}

/// The voters that are known to differ from a majority.
pub fn minority(facts: &Assessment<'_>, members: &Members) -> BTreeSet<MemberId> {
    match facts.seen.etcd.compared.verdict(members) {
        Verdict::Minority(ids) => ids,
        Verdict::NoMajority(_) | Verdict::Equal | Verdict::Incomplete => BTreeSet::new(),
    }
}

/// What becomes of learners, whose data nothing can compare. Each has received that of the leader, most likely of the one that leads
/// now, and its vote would count for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learners {
    /// They are promoted when they have caught up.
    Join,
    Wait,
    /// They join again, with other data.
    Leave,
}

pub fn learners(facts: &Assessment<'_>, members: &Members) -> Learners {
    let leads = |ids: &BTreeSet<MemberId>| members.leader.is_none_or(|leader| ids.contains(&leader));
    match facts.seen.etcd.compared.verdict(members) {
        Verdict::Equal | Verdict::Incomplete => Learners::Join,
        Verdict::NoMajority(_) => Learners::Wait,
        Verdict::Minority(differing) if !leads(&differing) => Learners::Join,
        Verdict::Minority(differing) => match leads(&proven(facts, members, &differing)) {
            true => Learners::Leave,
            false => Learners::Wait,
        },
    }
}

fn is_corrupt(facts: &Assessment<'_>) -> bool {
    facts.alarms().iter().any(|alarm| alarm.kind == Alarm::CORRUPT)
}

/// Those of the members that differ for which there are two signs. The alarm is the second one.
fn proven(facts: &Assessment<'_>, members: &Members, differing: &BTreeSet<MemberId>) -> BTreeSet<MemberId> {
    match is_corrupt(facts) {
        true => differing.clone(),
        false => facts.seen.etcd.compared.differed_twice(members),
    }
}

fn disarm(facts: &Assessment<'_>, members: &Members) -> Next {
    let now = facts.seen.now.as_second();
    let disarmed = facts.seen.etcd.compared.disarmed;
    if disarmed.is_some_and(|at| now - at.as_second() < AGAIN_AFTER_SECONDS) {
        return Next::Refuse(Refusal::CorruptAgain);
    }
    Next::Act(Action::Disarm { kind: AlarmKind::Corrupt, cluster: members.cluster })
}

fn replace(
    facts: &Assessment<'_>,
    members: &Members,
    size: u8,
    differing: &BTreeSet<MemberId>,
    proven: &BTreeSet<MemberId>,
) -> Option<Next> {
    let Some(from) = members.leader else { return Some(Next::Wait(WaitingOn::Leader)) };
    if differing.contains(&from) {
        let last = facts.seen.etcd.compared.last.as_ref();
        let agrees =
            |id: &MemberId| last.is_some_and(|it| it.hashes.contains_key(id)) && !differing.contains(id);
        let mut agreeing = facts.serving().filter(|id| agrees(id) && !facts.is_ending(*id));
        let refusal = || Next::Refuse(Refusal::NoSuccessor { leader: from });
        return Some(agreeing.next().map_or_else(refusal, |to| Next::Lead { from, to }));
    }
    let votes = |ordinal| members.at(ordinal).is_some_and(|(_, it)| !it.learner);
    if !Ordinal::below(size).all(votes) {
        return None;
    }
    let mut by_ordinal = members.by_ordinal().into_iter().map(|(id, _)| id);
    by_ordinal.find(|id| proven.contains(id)).map(Next::Replace)
}
