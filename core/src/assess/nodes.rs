//! Members whose nodes are lost: what Kubernetes reports of the node, and what etcd shows of the member.

use super::Assessment;
use crate::observed::{LossSign, MemberId, NodeLoss, Ordinal, Pod, Seen, Unanswered};

/// What the voters that serve report about another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// None of them is connected to it.
    Isolated,
    ConnectedTo(MemberId),
    /// This one did not report its connections.
    NotReported(MemberId),
}

impl Assessment<'_> {
    /// The loss of its node, if the member does not respond either.
    pub fn node_loss(&self, id: MemberId) -> Option<&NodeLoss> {
        let ordinal = self.listed()?.list.get(&id)?.ordinal?;
        self.seen.pods.get(&ordinal)?.loss.as_ref().filter(|_| self.is_unreachable(ordinal))
    }

    /// Neither etcd nor an agent responds in this pod.
    fn is_unreachable(&self, ordinal: Ordinal) -> bool {
        let answer = self.seen.etcd.answers.get(&ordinal);
        matches!(answer, None | Some(Seen::Unknown(Unanswered::Unreachable(_))))
    }

    pub fn isolation(&self, id: MemberId) -> Isolation {
        let others = self.serving().filter(|other| *other != id);
        let mut found = Isolation::Isolated;
        for other in others {
            match self.answer_of(other).and_then(|answer| answer.reaches.as_ref()) {
                Some(reached) if reached.contains(&id) => return Isolation::ConnectedTo(other),
                Some(_) => {}
                None => found = Isolation::NotReported(other),
            }
        }
        found
    }

    /// Whether the node of this pod has been lost for so long, and what might still run there can do no harm: etcd has removed its
    /// member, and the log on its volume is that of this member. An agent that waits on an empty volume is something else: it
    /// would start as the next member of this name.
    pub fn is_fenced(&self, ordinal: Ordinal, pod: &Pod, grace_seconds: i64) -> bool {
        let Some((loss, members)) = pod.loss.as_ref().zip(self.listed()) else { return false };
        let claim = self.seen.claims.get(&ordinal).filter(|it| it.cluster_uid == self.seen.cluster.uid);
        let Some(holder) = claim.and_then(|claim| claim.member) else { return false };
        let removed = members.at(ordinal).is_none() && !members.list.contains_key(&holder);
        let has_log = pod.was_ready || self.seen.etcd.started.contains(&holder);
        let runs_nothing = loss.sign == LossSign::PodEnded;
        removed
            && (has_log || runs_nothing)
            && self.is_unreachable(ordinal)
            && self.is_lost_for(loss, grace_seconds)
    }

    pub fn is_lost_for(&self, loss: &NodeLoss, seconds: i64) -> bool {
        self.seen.now.as_second() - loss.since.as_second() >= seconds
    }
}
