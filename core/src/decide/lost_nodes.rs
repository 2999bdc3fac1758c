//! Which member is replaced because its node is lost. Two signs have to agree: Kubernetes reports the node as lost for longer than the
//! grace, and neither the operator nor any voter that serves reaches the member. The removal is the fence: whatever still
//! runs on that node is no member any more.

use jiff::{SignedDuration, Timestamp};

use super::step::SILENCE_SECONDS;
use crate::assess::{Assessment, Isolation, MemberState, PodState};
use crate::observed::{Member, MemberId, Members, NodeLoss, Ordinal, Seen};
use crate::plan::{Refusal, WaitingOn};
use crate::quorum::quorum;

pub struct LostNodes<'a> {
    pub facts: &'a Assessment<'a>,
    pub members: &'a Members,
    pub size: u8,
    pub grace_seconds: i64,
    /// etcd would accept another member now, although a voter is not connected.
    pub can_add: bool,
}

/// What comes next for members on lost nodes.
pub enum Next {
    /// The grace of each is not over yet.
    Wait(Vec<WaitingOn>),
    /// One is due, and has to wait for something else.
    Hold(WaitingOn),
    Refuse(Refusal),
    Replace(MemberId),
}

struct Lost<'a> {
    member: MemberId,
    ordinal: Ordinal,
    learner: bool,
    loss: &'a NodeLoss,
    due: Timestamp,
}

impl LostNodes<'_> {
    pub fn next(&self) -> Option<Next> {
        let mut lost = self.lost();
        lost.sort_by_key(|it| (it.due, it.learner, it.ordinal));
        let now = self.facts.seen.now;
        let first = lost.first()?;
        if first.due > now {
            return Some(Next::Wait(lost.iter().map(|it| it.awaits_return()).collect()));
        }
        Some(self.against(first).unwrap_or(Next::Replace(first.member)))
    }

    /// Members that are wanted: others are removed because of that.
    fn lost(&self) -> Vec<Lost<'_>> {
        let now = self.facts.seen.now;
        let after = |time: Timestamp, seconds| time.checked_add(SignedDuration::from_secs(seconds)).ok();
        let lost = |(member, listed): (MemberId, &Member)| {
            let ordinal = listed.ordinal.filter(|it| it.0 < self.size)?;
            let loss = self.facts.node_loss(member)?;
            // One response that is missing proves nothing.
            let silent = *self.facts.seen.etcd.silent_since.get(&member).unwrap_or(&now);
            let due = after(loss.since, self.grace_seconds)?.max(after(silent, SILENCE_SECONDS)?);
            Some(Lost { member, ordinal, learner: listed.learner, loss, due })
        };
        self.members.by_ordinal().into_iter().filter_map(lost).collect()
    }

    /// Why this one is not replaced now, although its time is over.
    fn against(&self, lost: &Lost<'_>) -> Option<Next> {
        let &Lost { member, ordinal, .. } = lost;
        let joining = self.joining(lost);
        if !joining.is_empty() {
            return Some(Next::Hold(WaitingOn::OthersJoin { ordinal, member, joining }));
        }
        if self.members.leader.is_none_or(|leader| leader == member) {
            return Some(Next::Hold(WaitingOn::Leader));
        }
        let by = match self.facts.isolation(member) {
            Isolation::Isolated => None,
            Isolation::ConnectedTo(by) => Some((by, true)),
            Isolation::NotReported(by) => Some((by, false)),
        };
        if let Some((by, connected)) = by {
            return Some(Next::Hold(WaitingOn::Isolation { ordinal, member, by, connected }));
        }
        if let Some(refusal) = self.at_risk(lost) {
            return Some(Next::Refuse(refusal));
        }
        (!self.finds_a_node(lost.loss)).then(|| {
            let node = lost.loss.node.clone();
            Next::Hold(WaitingOn::OtherNode { ordinal, member, node })
        })
    }

    /// The quorum of the members as they are now has to serve, too: the removal needs it.
    fn at_risk(&self, lost: &Lost<'_>) -> Option<Refusal> {
        let (voters, serving_after) = (self.members.voters().count(), self.facts.serving().count());
        let quorum_after = quorum(voters);
        (!lost.learner && serving_after < quorum_after).then_some(Refusal::QuorumWouldBeLost {
            member: lost.member,
            serving_after,
            quorum_after,
        })
    }

    /// One replacement at a time. What cannot join as it is does not keep another member from being replaced, nor does what is added
    /// only after a learner that is lost.
    fn joining(&self, lost: &Lost<'_>) -> Vec<Ordinal> {
        let joins = |ordinal: &Ordinal| match self.members.at(*ordinal) {
            Some((id, member)) if id != lost.member && member.learner => {
                *self.facts.member(id) != MemberState::Starting || !self.is_stuck(*ordinal)
            }
            Some(_) => false,
            None => {
                !lost.learner
                    && self.can_add
                    && !self.is_stuck(*ordinal)
                    && !self.facts.pod(*ordinal).cannot_join()
            }
        };
        Ordinal::below(self.size).filter(joins).collect()
    }

    /// Nothing ends or starts in a pod on a lost node.
    fn is_stuck(&self, ordinal: Ordinal) -> bool {
        let is_lost = self.facts.seen.pods.get(&ordinal).is_some_and(|pod| pod.loss.is_some());
        let state = self.facts.pod(ordinal);
        is_lost || state.cannot_start() || matches!(state, PodState::Rejected(_))
    }

    /// Without another node, the removal gains nothing, and the member that might return would have to receive all data again. What
    /// cannot be known does not count: as many failures are tolerated without a lost member as with it.
    fn finds_a_node(&self, loss: &NodeLoss) -> bool {
        let Seen::Known(nodes) = &self.facts.seen.nodes else { return true };
        let mut others = nodes.by_name.iter().filter(|(name, _)| **name != loss.node);
        nodes.own_rules || nodes.by_name.is_empty() || others.any(|(_, node)| node.accepts_members)
    }
}

impl Lost<'_> {
    fn awaits_return(&self) -> WaitingOn {
        let &Self { member, ordinal, loss, due, .. } = self;
        WaitingOn::NodeReturn { ordinal, member, node: loss.node.clone(), until: due }
    }
}
