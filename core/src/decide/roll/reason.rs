//! Why a member is restarted: an open list. Nothing that is not on it restarts a member.

use serde::Serialize;

use crate::decide::Goal;
use crate::observed::{Observed, Pod};
use crate::tls::{Purpose, Trust, is_urgent};

/// In the order in which they are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Reason {
    /// Its pod is made from something else than what the spec asks for.
    FormDiffers,
    /// The operator accepted a restart while this pod existed.
    RestartRequested,
    /// A user asked for other authorities than its ports trust.
    RotationRequested,
    /// A user gave a certificate of an authority that it does not trust.
    AuthorityGiven,
    /// It has to trust other authorities before the one that signs expires.
    AuthorityExpires,
    /// Its ports trust other authorities than they should.
    TrustDiffers,
    /// The operator cannot work with the agent in its pod.
    AgentRequired,
}

/// Who wants a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By an edit or a request, which is consent to what it costs.
    User,
    /// Where a restart stops writes, it waits for consent or a window.
    Operator,
    /// To wait any longer would stop more.
    Deadline,
}

impl Reason {
    const ALL: [Self; 7] = [
        Self::FormDiffers,
        Self::RestartRequested,
        Self::RotationRequested,
        Self::AuthorityGiven,
        Self::AuthorityExpires,
        Self::TrustDiffers,
        Self::AgentRequired,
    ];

    pub fn of(pod: &Pod, goal: &Goal, seen: &Observed) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |reason| reason.holds(pod, goal, seen))
    }

    fn holds(self, pod: &Pod, goal: &Goal, seen: &Observed) -> bool {
        match self {
            Self::FormDiffers => {
                goal.form.as_ref().is_some_and(|wanted| pod.form.as_ref() != Some(&wanted.form))
            }
            Self::RestartRequested => {
                seen.cluster.restart.as_ref().is_some_and(|(_, pods)| pods.contains(&pod.uid))
            }
            Self::RotationRequested => {
                let asked = seen.cluster.rotation.as_ref();
                let is_asked = |key: &str| asked.is_some_and(|(_, keys)| keys.contains(key));
                differing(pod, goal, seen)
                    .any(|it| is_asked(it.signer) || it.next.is_some_and(|next| is_asked(&next.key)))
            }
            Self::AuthorityGiven => differing(pod, goal, seen).any(|trust| trust.lacks_given(pod)),
            Self::AuthorityExpires => differing(pod, goal, seen).any(|trust| is_urgent(&trust, seen.now)),
            Self::TrustDiffers => differing(pod, goal, seen).next().is_some(),
            Self::AgentRequired => pod.agent < goal.lowest_agent,
        }
    }

    pub fn origin(self) -> Origin {
        match self {
            Self::FormDiffers | Self::RestartRequested | Self::RotationRequested | Self::AuthorityGiven => {
                Origin::User
            }
            Self::AuthorityExpires => Origin::Deadline,
            Self::TrustDiffers | Self::AgentRequired => Origin::Operator,
        }
    }

    /// How a member is restarted, in the words of users.
    pub fn words(self) -> &'static str {
        match self {
            Self::FormDiffers => "with the changed spec",
            Self::RestartRequested => "as requested",
            Self::RotationRequested => "to rotate authorities as requested",
            Self::AuthorityGiven => "to trust the authority of your certificate",
            Self::AuthorityExpires => "to trust another authority before its own expires",
            Self::TrustDiffers => "to trust other authorities",
            Self::AgentRequired => "with the agent that this operator requires",
        }
    }
}

/// The authorities that this pod does not trust as it should.
fn differing<'a>(pod: &'a Pod, goal: &'a Goal, seen: &'a Observed) -> impl Iterator<Item = Trust<'a>> {
    let authorities = goal.certificates.keys().filter(|it: &&Purpose| it.issuer().is_none());
    authorities.filter_map(|&it| Trust::of(it, seen)).filter(|trust| trust.differs(pod))
}
