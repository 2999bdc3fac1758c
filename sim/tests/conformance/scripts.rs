//! The table: what etcd answers to calls of membership, and what becomes of the list.

use etcd_operator_sim::etcd::Release;
use etcd_operator_sim::etcd::api::Error::{
    BadLeaderTransferee, LearnerNotReady, MemberExists, NoLeader, NotEnoughStartedMembers, NotFound,
    NotLeader, NotLearner, NotSupportedForLearner, PeerUrlExists, Timeout, TooManyLearners, Unavailable,
    UnhealthyCluster,
};

use crate::script::Request::{
    self, AddLearner, AddVoter, LinearizableRead, MoveLeader, Promote, Remove, SerializableRead,
};
use crate::script::Step::{Connected, Ends, Kill, Lead, List, LoseQuorum, NewSecond, Start, Wipe, Write};
use crate::script::{Answer, Answers, Script, Step};

/// An ordinal that no member ever has.
const NOBODY: u8 = 8;
const EVERY: &[Release] = &Release::ALL;

pub fn all() -> Vec<Script> {
    // The one that takes longest comes first, so that the others are played meanwhile.
    let chapters = [
        without_quorum(),
        one_of_three_down(),
        strict_check(),
        learners(),
        many_learners(),
        leaders(),
        ids_and_urls(),
    ];
    chapters.into_iter().flatten().collect()
}

fn ids_and_urls() -> Vec<Script> {
    let added = vec![
        NewSecond,
        ask(0, AddLearner(1), Ok(())),
        ask(0, AddLearner(1), Err(MemberExists)),
        NewSecond,
        ask(0, AddLearner(1), Err(PeerUrlExists)),
        List("0, 1 learner added"),
        ask(0, Remove(1), Ok(())),
        List("0"),
        ask(0, Remove(1), Err(NotFound)),
        NewSecond,
        ask(0, AddLearner(1), Ok(())),
        ask(0, Remove(1), Ok(())),
        ask(0, AddLearner(1), Err(NotFound)),
        List("0"),
        NewSecond,
        ask(0, AddLearner(1), Ok(())),
        List("0, 1 learner added"),
    ];
    let unknown = vec![
        ask(0, Remove(NOBODY), Err(NotFound)),
        ask(0, Remove(0), Err(NotEnoughStartedMembers)),
        ask(1, AddLearner(1), Err(Unavailable)),
        List("0"),
    ];
    vec![
        script("an ID is made of the URL and the second, and is never used again", 1, added),
        script("who is not there, or alone, is not removed", 1, unknown),
    ]
}

fn learners() -> Vec<Script> {
    let life = vec![
        ask(0, AddLearner(1), Ok(())),
        ask(0, Promote(1), Err(LearnerNotReady)),
        ask(0, Promote(NOBODY), Err(NotFound)),
        ask(0, Promote(0), Err(NotLearner)),
        Start(1),
        List("0, 1 learner"),
        ask(1, AddLearner(2), Err(NotSupportedForLearner)),
        ask(1, Promote(1), Err(NotSupportedForLearner)),
        ask(1, Remove(1), Err(NotSupportedForLearner)),
        ask(1, MoveLeader(0), Err(NotSupportedForLearner)),
        ask(1, LinearizableRead, Err(Unavailable)),
        ask(1, SerializableRead, Ok(())),
        ask(0, LinearizableRead, Ok(())),
        ask(0, MoveLeader(1), Err(BadLeaderTransferee)),
        Kill(1),
        Write(200),
        ask(0, Promote(1), Err(LearnerNotReady)),
        Start(1),
        ask(0, Promote(1), Ok(())),
        ask(0, Promote(1), Err(NotLearner)),
        List("0, 1"),
        ask(1, LinearizableRead, Ok(())),
        Connected,
        ask(0, Remove(0), Ok(())),
        Ends(0),
        List("1"),
        Start(0),
        Ends(0),
        ask(1, Promote(0), Err(NotFound)),
    ];
    let lost = vec![
        ask(0, AddLearner(1), Ok(())),
        Start(1),
        List("0, 1 learner"),
        Kill(1),
        ask(0, Remove(1), Ok(())),
        List("0"),
        Start(1),
        Ends(1),
    ];
    vec![
        script("a learner becomes a voter, and outlives the one that it learned from", 1, life),
        script("a learner that was removed while it was away ends when it comes back", 1, lost),
    ]
}

fn many_learners() -> Vec<Script> {
    let one = vec![
        ask(0, AddLearner(1), Ok(())),
        ask(0, AddLearner(2), Err(TooManyLearners)),
        List("0, 1 learner added"),
        ask(0, Remove(1), Ok(())),
        ask(0, AddLearner(2), Ok(())),
        List("0, 2 learner added"),
    ];
    let two = vec![
        ask(0, AddLearner(1), Ok(())),
        ask(0, AddLearner(2), Ok(())),
        ask(0, AddLearner(3), Err(TooManyLearners)),
        List("0, 1 learner added, 2 learner added"),
        Start(1),
        List("0, 1 learner, 2 learner added"),
        ask(0, Promote(1), Ok(())),
        List("0, 1, 2 learner added"),
        ask(1, Promote(2), Err(LearnerNotReady)),
        ask(1, Promote(0), Err(NotLearner)),
        ask(1, Promote(NOBODY), Err(NotFound)),
    ];
    vec![
        Script { releases: &[Release::V3_5, Release::V3_5_30], ..script("one learner before 3.6", 1, one) },
        Script { releases: &[Release::V3_6, Release::V3_7], ..script("two learners from 3.6 on", 1, two) },
    ]
}

fn without_quorum() -> Vec<Script> {
    let steps = vec![
        Connected,
        ask(0, AddLearner(3), Ok(())),
        List("0, 1, 2, 3 learner added"),
        LoseQuorum(&[1, 2]),
        ask(0, AddLearner(4), Err(UnhealthyCluster)),
        ask(0, Remove(0), Err(UnhealthyCluster)),
        ask(0, Remove(1), Err(Timeout)),
        ask(0, Remove(3), Err(Timeout)),
        ask(0, Promote(3), Err(NoLeader)),
        ask(0, MoveLeader(1), Err(NotLeader)),
        ask(0, LinearizableRead, Err(Unavailable)),
        ask(0, SerializableRead, Ok(())),
        ask(1, Remove(3), Err(Unavailable)),
        Start(1),
        List("0, 1, 2, 3 learner added"),
        ask(1, Remove(3), Ok(())),
        List("0, 1, 2"),
    ];
    vec![script("without a quorum", 3, steps)]
}

fn one_of_three_down() -> Vec<Script> {
    let one_down = vec![
        ask(0, AddLearner(3), Err(UnhealthyCluster)),
        ask(0, Remove(1), Err(UnhealthyCluster)),
        List("0, 1, 2"),
        Connected,
        Kill(2),
        ask(0, AddLearner(3), Err(UnhealthyCluster)),
        ask(1, AddLearner(3), Err(UnhealthyCluster)),
        // The check comes before anything else is looked at.
        ask(0, AddLearner(1), Err(UnhealthyCluster)),
        not_simulated(0, AddVoter(3), Err(UnhealthyCluster), "no plan adds a voter"),
        ask(0, Remove(1), Err(UnhealthyCluster)),
        ask(1, Remove(0), Err(UnhealthyCluster)),
        ask(0, Remove(0), Err(UnhealthyCluster)),
        ask(0, Remove(NOBODY), Err(NotFound)),
        ask(0, Remove(2), Ok(())),
        List("0, 1"),
        ask(0, Remove(2), Err(NotFound)),
        Start(2),
        Ends(2),
        ask(0, AddLearner(2), Ok(())),
        List("0, 1, 2 learner added"),
        // The data of the member before is not that of this one.
        Start(2),
        Ends(2),
        Wipe(2),
        Start(2),
        List("0, 1, 2 learner"),
    ];
    let promoted = vec![
        Connected,
        ask(1, AddLearner(3), Ok(())),
        ask(1, Promote(3), Err(LearnerNotReady)),
        Start(3),
        List("0, 1, 2, 3 learner"),
        Kill(2),
        ask(1, Promote(3), Ok(())),
        List("0, 1, 2, 3"),
        ask(0, Remove(2), Ok(())),
        List("0, 1, 3"),
    ];
    vec![
        script("a voter of three is down", 3, one_down),
        script("a learner is promoted while a voter is down", 3, promoted),
    ]
}

fn strict_check() -> Vec<Script> {
    let five = vec![
        Connected,
        Kill(4),
        by_release(0, AddLearner(5), Err(UnhealthyCluster), Ok(())),
        ask(0, Remove(3), Ok(())),
        Ends(3),
        ask(0, Remove(2), Ok(())),
        Ends(2),
        ask(0, Remove(1), Err(UnhealthyCluster)),
        ask(0, Remove(4), Ok(())),
    ];
    let late = vec![
        List("0, 1, 2 listed"),
        ask(0, AddLearner(3), Err(UnhealthyCluster)),
        ask(0, Remove(1), Err(UnhealthyCluster)),
        ask(0, Remove(2), Ok(())),
        List("0, 1"),
    ];
    vec![
        script("a voter of five is down", 5, five),
        Script { started: 2, ..script("a founder that never started", 3, late) },
    ]
}

fn leaders() -> Vec<Script> {
    let moved = vec![
        ask(1, MoveLeader(1), Err(NotLeader)),
        ask(0, MoveLeader(NOBODY), Err(BadLeaderTransferee)),
        ask(0, MoveLeader(0), Ok(())),
        ask(0, MoveLeader(1), Ok(())),
        ask(0, MoveLeader(0), Err(NotLeader)),
        ask(1, MoveLeader(2), Ok(())),
        Lead(0),
        Connected,
        ask(1, Remove(0), Ok(())),
        Ends(0),
        List("1, 2"),
        Lead(1),
        ask(1, MoveLeader(0), Err(BadLeaderTransferee)),
    ];
    let absent = vec![Kill(2), ask(0, MoveLeader(2), Err(Timeout)), ask(0, MoveLeader(1), Ok(()))];
    vec![
        script("leadership moves, and the leader is removed by a follower", 3, moved),
        script("leadership does not move to one that is away", 3, absent),
    ]
}

fn script(name: &'static str, founders: u8, steps: Vec<Step>) -> Script {
    Script { name, founders, started: founders, releases: EVERY, steps }
}

fn ask(via: u8, request: Request, answer: Answer) -> Step {
    by_release(via, request, answer, answer)
}

fn by_release(via: u8, request: Request, before_3_5_30: Answer, since_3_5_30: Answer) -> Step {
    Step::Ask(via, request, Answers { before_3_5_30, since_3_5_30, not_simulated: None })
}

fn not_simulated(via: u8, request: Request, answer: Answer, reason: &'static str) -> Step {
    let answers = Answers { before_3_5_30: answer, since_3_5_30: answer, not_simulated: Some(reason) };
    Step::Ask(via, request, answers)
}
