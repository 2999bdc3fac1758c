//! Majority arithmetic. Who is not known to serve counts as not serving.

use std::collections::BTreeSet;

use crate::observed::{MemberId, Members};
use crate::plan::Refusal;

/// How many of so many voters must agree.
pub fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// Why this member may not leave the list now, if so.
pub fn against_leaving(
    members: &Members,
    serving: &BTreeSet<MemberId>,
    leaving: MemberId,
) -> Option<Refusal> {
    let staying: Vec<MemberId> = members.voters().map(|(id, _)| id).filter(|&id| id != leaving).collect();
    if members.list.get(&leaving).is_some_and(|member| member.learner) {
        return None;
    }
    if staying.is_empty() {
        return Some(Refusal::LastVoter { member: leaving });
    }
    let serving_after = staying.iter().filter(|id| serving.contains(id)).count();
    let quorum_after = quorum(staying.len());
    (serving_after < quorum_after).then_some(Refusal::QuorumWouldBeLost {
        member: leaving,
        serving_after,
        quorum_after,
    })
}
