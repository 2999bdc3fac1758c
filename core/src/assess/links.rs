//! Whether the voters that serve are connected to each other. That a member serves shows that it reaches the leader, and nothing
//! about the others: they matter when the leader ends.

use super::Assessment;
use crate::observed::{MemberId, Members};

/// After this time every etcd has noticed that a pod was replaced: a connection that brings nothing ends after five seconds. The
/// rest is for clocks that differ.
const NOTICED_AFTER_SECONDS: i64 = 30;

/// Two voters that serve and are not known to be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    /// The one that would have to connect.
    pub from: MemberId,
    pub to: MemberId,
}

impl Assessment<'_> {
    /// Two serving voters that are not connected, of which neither is `leaving`.
    pub fn apart(&self, leaving: Option<MemberId>) -> Option<Apart> {
        let voters: Vec<MemberId> = self.serving().filter(|id| Some(*id) != leaving).collect();
        let before = |count: usize| voters.iter().take(count).copied();
        let mut pairs =
            voters.iter().enumerate().flat_map(|(count, &one)| before(count).map(move |it| (one, it)));
        pairs.find_map(|(one, other)| self.missing(one, other))
    }

    /// Whether any member was asked which others it reaches, and reported it.
    pub fn knows_links(&self) -> bool {
        self.serving().any(|id| self.answer_of(id).is_some_and(|answer| answer.reaches.is_some()))
    }

    /// A connection that either of two members makes carries messages in both directions. etcd can report one that it has as
    /// missing, for as long as it lasts (a late failure of an earlier attempt), so the report of either is enough, once it
    /// cannot be about a pod that was replaced since. Before, that of the younger pod counts: it was found out after both had
    /// their addresses. Where neither is younger, both have to report it.
    fn missing(&self, one: MemberId, other: MemberId) -> Option<Apart> {
        let leads = |leader: MemberId, follower| {
            self.answer_of(follower).is_some_and(|answer| answer.leader == Some(leader))
        };
        // One of them has just read through the other.
        if leads(one, other) || leads(other, one) {
            return None;
        }
        let created = |id: MemberId| {
            let ordinal = self.listed().and_then(|members: &Members| members.list.get(&id)?.ordinal)?;
            self.seen.pods.get(&ordinal)?.created
        };
        let lacks = |from: MemberId, to: MemberId| {
            let reaches = self.answer_of(from).and_then(|answer| answer.reaches.as_ref());
            (!reaches.is_some_and(|it| it.contains(&to))).then_some(Apart { from, to })
        };
        let Some((one_since, other_since)) = created(one).zip(created(other)) else {
            return lacks(one, other).or_else(|| lacks(other, one));
        };
        let age = self.seen.now.as_second() - one_since.max(other_since).as_second();
        let (younger, older) = if one_since < other_since { (other, one) } else { (one, other) };
        match lacks(younger, older) {
            Some(apart) if age >= NOTICED_AFTER_SECONDS => lacks(older, younger).map(|_| apart),
            None if one_since == other_since && age < NOTICED_AFTER_SECONDS => lacks(older, younger),
            reported => reported,
        }
    }
}
