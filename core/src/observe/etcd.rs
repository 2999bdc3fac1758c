//! What etcd reports, from the replies of single pods.

use std::collections::{BTreeMap, BTreeSet};

use crate::observed::{Answer, Compared, Etcd, Members, Ordinal, Process, Reclaimed, Seen, Unanswered};

/// What one pod responded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// etcd. With the members that it listed if it was asked for them, right after its linearizable read; or why it did
    /// not list them.
    Etcd { answer: Answer, members: Option<Result<Members, String>> },
    /// The agent, which waits in place of etcd, and why.
    Agent { process: Process, why: Unanswered },
    /// etcd, whose authentication rejects the operator, so that it does not even report its status.
    Denied,
    /// Nobody, for this reason.
    Nobody(String),
}

pub fn etcd(replies: &BTreeMap<Ordinal, Reply>) -> Etcd {
    let (members, via) = agreed_members(replies);
    let answers = replies.iter().map(|(&ordinal, reply)| (ordinal, answer(reply))).collect();
    Etcd {
        answers,
        members,
        via,
        silent_since: BTreeMap::new(),
        started: BTreeSet::new(),
        reclaimed: Reclaimed::default(),
        compared: Compared::default(),
        fragmented: BTreeSet::new(),
    }
}

fn answer(reply: &Reply) -> Seen<Answer> {
    match reply {
        Reply::Etcd { answer, members } => {
            let listed = members.as_ref().and_then(|members| members.as_ref().ok());
            let listed = listed.map(|members| u8::try_from(members.list.len()).unwrap_or(u8::MAX));
            Seen::Known(Answer { listed, ..answer.clone() })
        }
        Reply::Agent { why, .. } => Seen::Unknown(why.clone()),
        Reply::Denied => Seen::Unknown(Unanswered::AccessDenied),
        Reply::Nobody(why) => Seen::Unknown(Unanswered::Unreachable(why.clone())),
    }
}

/// The list of a member that had just served a linearizable read, and which member that is. The leader's comes first: it
/// is certainly up to date.
fn agreed_members(replies: &BTreeMap<Ordinal, Reply>) -> (Seen<Members>, Option<Ordinal>) {
    let mut lists: Vec<_> = Vec::new();
    let (mut why, mut denied) = (Unanswered::NoMember, false);
    for (&ordinal, reply) in replies {
        if *reply == Reply::Denied {
            denied = true;
        }
        let Reply::Etcd { answer, members } = reply else { continue };
        denied |= answer.denied;
        why = Unanswered::NoLinearizableRead;
        let follows = answer.leader != Some(answer.member);
        lists.extend(members.as_ref().filter(|_| answer.linearizable).map(|list| (follows, ordinal, list)));
    }
    lists.sort_by_key(|(follows, ordinal, _)| (*follows, *ordinal));
    for (_, ordinal, list) in lists {
        match list {
            Ok(members) => return (Seen::Known(members.clone()), Some(ordinal)),
            Err(error) => why = Unanswered::Unreachable(error.clone()),
        }
    }
    (Seen::Unknown(if denied { Unanswered::AccessDenied } else { why }), None)
}
