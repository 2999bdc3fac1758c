//! Whether the voters that serve are connected to each other. That a member serves shows that it reaches the leader, and nothing
//! about the others: they matter when the leader ends.

use super::Assessment;
use crate::observed::{MemberId, Members};

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

    /// A connection that either of two members makes carries messages in both directions. What the younger pod reports was found
    /// out after both had their addresses; the older one might not have noticed yet that the younger replaced
    /// another. Where neither is younger, both have to report it.
    fn missing(&self, one: MemberId, other: MemberId) -> Option<Apart> {
        let created = |id: MemberId| {
            let ordinal = self.listed().and_then(|members: &Members| members.list.get(&id)?.ordinal)?;
            self.seen.pods.get(&ordinal)?.created
        };
        let lacks = |from: MemberId, to: MemberId| {
            let reaches = self.answer_of(from).and_then(|answer| answer.reaches.as_ref());
            (!reaches.is_some_and(|it| it.contains(&to))).then_some(Apart { from, to })
        };
        match created(one).zip(created(other)) {
            Some((one_since, other_since)) if one_since > other_since => lacks(one, other),
            Some((one_since, other_since)) if one_since < other_since => lacks(other, one),
            Some(_) | None => lacks(one, other).or_else(|| lacks(other, one)),
        }
    }
}
