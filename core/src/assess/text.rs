//! An assessment in words, one line for each fact.

use std::fmt;

use super::{Assessment, Loss, MemberState, Quorum};
use crate::observed::{Exit, LossSign, NodeLoss, Unanswered};

impl fmt::Display for Assessment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.quorum {
            Quorum::NotBootstrapped => writeln!(f, "quorum: the cluster has not bootstrapped")?,
            Quorum::Held(members) => {
                let (serving, voters) = (self.serving().count(), members.voters().count());
                writeln!(f, "quorum: held, {serving} of {voters} voters serve")?;
            }
            Quorum::OtherCluster { expected, found } => {
                writeln!(f, "quorum: held by cluster {found} instead of {expected}")?;
            }
            Quorum::Unproven(cause) => writeln!(f, "quorum: unproven, {cause}")?,
        }
        if self.data_lost {
            writeln!(f, "data: no volume holds data")?;
        }
        for (id, member) in self.listed().into_iter().flat_map(|members| members.by_ordinal()) {
            let pod = member.ordinal.map_or("no pod".into(), |ordinal| format!("pod {ordinal}"));
            let role = if member.learner { "learner" } else { "voter" };
            let state = self.member(id);
            writeln!(f, "member {id} ({pod}): {role}, {state}")?;
        }
        for (ordinal, state) in &self.pods {
            writeln!(f, "pod {ordinal}: {}", state.text())?;
            if let Some(loss) = self.seen.pods.get(ordinal).and_then(|pod| pod.loss.as_ref()) {
                writeln!(f, "pod {ordinal}: {loss}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serving => f.write_str("serving"),
            Self::Lost(Loss::Data) => f.write_str("data lost"),
            Self::Lost(Loss::NeverStarted) => f.write_str("not started during the bootstrap"),
            Self::Lost(Loss::OtherCluster) => f.write_str("etcd responds as a member of another cluster"),
            Self::Lost(Loss::Crashing(exit)) => exit.fmt(f),
            Self::Starting => f.write_str("not started yet"),
            Self::CatchingUp { behind: Some(behind) } => write!(f, "{behind} entries behind"),
            Self::CatchingUp { behind: None } => f.write_str("applied index unknown"),
            Self::CaughtUp => f.write_str("caught up"),
            Self::NoLeader => f.write_str("no leader"),
            Self::ReadsFailing => f.write_str("linearizable reads fail"),
            Self::Silent => f.write_str("no response from etcd"),
        }
    }
}

impl Exit {
    /// Of a process that is not started again.
    pub fn once(&self) -> String {
        match self {
            Self { code, message } if message.is_empty() => format!("etcd exited with code {code}"),
            Self { code, message } => format!("etcd exited with code {code}: {message}"),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { code, message } if message.is_empty() => {
                write!(f, "etcd exits repeatedly, with code {code}")
            }
            Self { message, .. } => write!(f, "etcd exits repeatedly: {message}"),
        }
    }
}

impl fmt::Display for NodeLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, since, sign } = self;
        let sign = match sign {
            LossSign::NodeGone => "Kubernetes has no such node",
            LossSign::NodeNotReady => "the node is not ready",
            LossSign::PodMarked => "Kubernetes has marked the pod as not ready",
            LossSign::EndOverdue => "nothing confirms that the pod has terminated",
            LossSign::PodEnded => "the pod has ended and is not created again",
        };
        write!(f, "node {node} lost since {since:.0}: {sign}")
    }
}

/// Why a quorum did not respond.
impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => f.write_str(error),
            Self::AgentWaiting(what) => write!(f, "etcd not started, its agent waits for {what}"),
            Self::CertificatesUnusable(error) => {
                write!(f, "etcd not started, its agent cannot use the certificates of the pod: {error}")
            }
            Self::NoMember => f.write_str("no member responds"),
            Self::NoLinearizableRead => f.write_str("no member serves linearizable reads"),
            Self::AccessDenied => f.write_str("etcd's authentication rejects the operator"),
        }
    }
}
