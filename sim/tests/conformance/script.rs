//! What a script consists of, and what it is played on.

use std::time::Duration;

use etcd_operator_core::member::MemberProgress;
use etcd_operator_sim::etcd::Release;
use etcd_operator_sim::etcd::api::Error;

/// Members are numbered like pods. At the beginning member 0 leads.
pub struct Script {
    pub name: &'static str,
    /// How many members are in the bootstrap order.
    pub founders: u8,
    /// How many of them are started at the beginning.
    pub started: u8,
    pub releases: &'static [Release],
    pub steps: Vec<Step>,
}

pub enum Step {
    Start(u8),
    /// It ends without a word, and keeps its data.
    Kill(u8),
    /// The same for so many that nobody can lead.
    LoseQuorum(&'static [u8]),
    Wipe(u8),
    /// So many writes.
    Write(u16),
    /// Until all that run have been connected for longer than the strict reconfiguration check wants.
    Connected,
    /// Until another second begins: it is part of the ID of a member that is added.
    NewSecond,
    /// Leadership comes to this member, from whoever has it.
    Lead(u8),
    /// A request through one of the members.
    Ask(u8, Request, Answers),
    /// What the list becomes, as [`shown`] tells it.
    List(&'static str),
    /// It ends by itself, because it was removed. How, real etcd does not say reliably: mostly with success, but when it
    /// was just starting, or was answering a request, with an error.
    Ends(u8),
}

#[derive(Clone, Copy, Debug)]
pub enum Request {
    AddLearner(u8),
    AddVoter(u8),
    Promote(u8),
    Remove(u8),
    MoveLeader(u8),
    /// Of reads it is compared whether they are served: of a failed one the simulation does not say why.
    LinearizableRead,
    SerializableRead,
}

pub type Answer = Result<(), Error>;

/// What is expected of whom.
pub struct Answers {
    pub before_3_5_30: Answer,
    /// And 3.6.
    pub since_3_5_30: Answer,
    /// Why the simulation has no such call, if so.
    pub not_simulated: Option<&'static str>,
}

impl Answers {
    pub fn of(&self, release: Release) -> Answer {
        match release {
            Release::V3_5 => self.before_3_5_30,
            Release::V3_5_30 | Release::V3_6 | Release::V3_7 => self.since_3_5_30,
        }
    }
}

pub struct Listed {
    pub ordinal: u8,
    pub learner: bool,
    pub start: MemberProgress,
}

/// `0, 1, 2 listed, 3 learner, 4 learner added`: voters that have published themselves need no words.
pub fn shown(mut members: Vec<Listed>) -> String {
    members.sort_by_key(|member| member.ordinal);
    let words = |Listed { ordinal, learner, start }: &Listed| {
        let role = if *learner { " learner" } else { "" };
        let start = match start {
            MemberProgress::Added => " added",
            MemberProgress::Listed => " listed",
            MemberProgress::Published => "",
        };
        format!("{ordinal}{role}{start}")
    };
    members.iter().map(words).collect::<Vec<_>>().join(", ")
}

/// An etcd cluster, real or simulated.
pub trait Cluster {
    fn start(&mut self, ordinal: u8);
    fn kill(&mut self, ordinal: u8);
    fn wipe(&mut self, ordinal: u8);
    fn write(&mut self, count: u16);
    fn ask(&mut self, via: u8, request: Request, patience: Duration) -> Answer;
    /// The list of a member that has just served a linearizable read.
    fn list(&mut self) -> Option<Vec<Listed>>;
    fn running(&mut self) -> Vec<u8>;
    /// Whom this member follows.
    fn leader(&mut self, at: u8) -> Option<u8>;
    /// Whether its process ended because it was removed.
    fn ended(&mut self, ordinal: u8) -> bool;
    fn wait(&mut self, time: Duration);
    fn await_new_second(&mut self);
}
