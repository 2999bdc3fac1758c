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
    let is_corrupt = facts.alarms().iter().any(|alarm| alarm.kind == Alarm::CORRUPT);
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
            // The alarm is the second sign.
            let proven = if is_corrupt { differing.clone() } else { compared.differed_twice(members) };
            if proven.is_empty() {
                return wait(differing);
            }
            replace(facts, members, size, &differing, &proven)
        }
    }
}

/// The members that are known to differ from a majority.
pub fn differing(facts: &Assessment<'_>, members: &Members) -> BTreeSet<MemberId> {
    match facts.seen.etcd.compared.verdict(members) {
        Verdict::Minority(ids) | Verdict::NoMajority(ids) => ids,
        Verdict::Equal | Verdict::Incomplete => BTreeSet::new(),
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
        let mut agreeing = facts.serving().filter(|id| !differing.contains(id) && !facts.is_ending(*id));
        let refusal = || Next::Refuse(Refusal::NoSuccessor { leader: from });
        return Some(agreeing.next().map_or_else(refusal, |to| Next::Lead { from, to }));
    }
    let votes = |ordinal| members.at(ordinal).is_some_and(|(id, it)| !it.learner || proven.contains(&id));
    if !Ordinal::below(size).all(votes) {
        return None;
    }
    let mut by_ordinal = members.by_ordinal().into_iter().map(|(id, _)| id);
    by_ordinal.find(|id| proven.contains(id)).map(Next::Replace)
}
