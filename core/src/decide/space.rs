//! Space in databases. At its quota nobody can write, so the history is compacted, the members are defragmented one
//! after the other, and the alarm is disarmed. Each of it happens once: what is full nevertheless is reported.

use crate::assess::Assessment;
use crate::observed::{Alarm, AlarmKind, Etcd, MemberId, Members, Space};
use crate::plan::{Action, DefragmentationCause as Cause, Refusal, WaitingOn};
use crate::schedule::{Opening, Window};

/// A file that is larger, as a part of the quota, has no room.
const MAX_FILL_PERCENT: u64 = 90;
/// What is full again this soon is not helped by doing the same again.
const AGAIN_AFTER_SECONDS: i64 = 3600;
/// While the alarm is active, keys can be deleted. That is worth another attempt, but not one for each of them.
const COMPACTED_AGAIN_AFTER_SECONDS: i64 = 300;

/// What comes next.
pub enum Next {
    Act(Action),
    /// The leader is defragmented last: another voter, which has room, leads first.
    Lead {
        from: MemberId,
        to: MemberId,
    },
    Wait(WaitingOn),
    Refuse(Refusal),
}

/// None without the alarm, beside another one, and while anything else is wrong with the members.
pub fn reclaim(facts: &Assessment<'_>, members: &Members, quota_bytes: u64) -> Option<Next> {
    let alarms = facts.alarms();
    if alarms.is_empty() || alarms.iter().any(|alarm| alarm.kind != Alarm::NOSPACE) {
        return None;
    }
    let steady = |id: MemberId| facts.serves(id) && !facts.is_ending(id);
    if members.learners().next().is_some() || !members.voters().all(|(id, _)| steady(id)) {
        return None;
    }
    let space = |(id, _)| Some((id, facts.answer_of(id)?.space?));
    let spaces: Vec<(MemberId, Space)> = members.voters().map(space).collect::<Option<_>>()?;
    let quota = |space: &Space| space.quota.unwrap_or(quota_bytes);
    let fits = |space: &Space| space.size <= quota(space) / 100 * MAX_FILL_PERCENT;
    let cluster = members.cluster;
    let full: Vec<_> = spaces.iter().filter(|(_, space)| !fits(space)).collect();
    let Some(&&(first, space)) = full.first() else {
        return Some(Next::Act(Action::Disarm { kind: AlarmKind::NoSpace, cluster }));
    };
    let now = facts.seen.now.as_second();
    let reclaimed = &facts.seen.etcd.reclaimed;
    let refuse = |member: MemberId, space: &Space, again: bool| {
        let (size, quota) = (space.size, quota(space));
        Some(Next::Refuse(Refusal::DatabaseFull { member, size, quota, again }))
    };
    if reclaimed.disarmed.is_some_and(|at| now - at.as_second() < AGAIN_AFTER_SECONDS) {
        return refuse(first, &space, true);
    }
    let revision = spaces.iter().map(|(_, space)| space.revision).min()?;
    let is_due = reclaimed.compacted.is_none_or(|(compacted, at)| {
        revision > compacted && now - at.as_second() >= COMPACTED_AGAIN_AFTER_SECONDS
    });
    if is_due {
        return Some(Next::Act(Action::Compact { revision, cluster }));
    }
    // The first one shows how much all of them need.
    if let Some((member, space)) = full.iter().find(|(id, _)| reclaimed.defragmented.contains(id)) {
        return refuse(*member, space, false);
    }
    // The leader is the last one.
    let (member, _) = full.into_iter().min_by_key(|(id, _)| members.leader == Some(*id))?;
    let mut others = spaces.iter().filter(|(id, space)| id != member && fits(space));
    Some(match others.next().filter(|_| members.leader == Some(*member)) {
        Some((to, _)) => Next::Lead { from: *member, to: *to },
        None => Next::Act(Action::Defragment { member: *member, cause: Cause::Full, cluster }),
    })
}

/// Members whose files are mostly unused, one after the other, the leader last; each of them once a day. A window decides when, if there
/// are any. None of one or two voters is defragmented without one: reads and writes stop meanwhile.
pub fn defragment(facts: &Assessment<'_>, members: &Members, windows: &[Window]) -> Option<Next> {
    let steady = |id: MemberId| facts.serves(id) && !facts.is_ending(id);
    let is_settled = facts.alarms().is_empty() && members.learners().next().is_none();
    if !is_settled || !members.voters().all(|(id, _)| steady(id)) {
        return None;
    }
    let Etcd { fragmented, reclaimed, .. } = &facts.seen.etcd;
    let is_due = |id: &MemberId| fragmented.contains(id) && !reclaimed.defragmented.contains(id);
    let due: Vec<MemberId> = members.voters().map(|(id, _)| id).filter(is_due).collect();
    let member = *due.iter().min_by_key(|id| members.leader == Some(**id))?;
    let wait = |opens| Some(Next::Wait(WaitingOn::Window { members: due.clone(), opens }));
    match Opening::of(windows, facts.seen.now) {
        Opening::At(opens) => return wait(Some(opens)),
        Opening::Never if members.voters().count() < 3 => return wait(None),
        Opening::Now | Opening::Never => {}
    }
    let mut others = members.voters().map(|(id, _)| id).filter(|id| *id != member);
    Some(match others.next().filter(|_| members.leader == Some(member)) {
        Some(to) => Next::Lead { from: member, to },
        None => Next::Act(Action::Defragment { member, cause: Cause::Fragmented, cluster: members.cluster }),
    })
}
