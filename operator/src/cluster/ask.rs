//! Asks every pod of a cluster what goes on in it, all at the same time and each on its own.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_core::names::Names;
use etcd_operator_core::observed::{Answer, MemberId, Members, Ordinal, Process, Seen, Unanswered};
use futures::future::join_all;

use crate::agent::{self, Heard};
use crate::etcd::{self, Member, Said};
use crate::reach::{PodAddress, Reach};
use crate::telemetry::chain;

/// A healthy member answers in milliseconds, but one without a leader only when its own deadlines have passed.
const PATIENCE: Duration = Duration::from_millis(2500);
/// For one that did not answer the last time: nobody else should wait for it.
const LITTLE_PATIENCE: Duration = Duration::from_millis(300);
/// For one that is ending, whose address may lead nowhere already.
const NO_PATIENCE: Duration = Duration::from_millis(100);

/// One pod to be asked.
pub struct Whom {
    pub pod: PodAddress,
    /// It has been told to end.
    pub ending: bool,
}

/// What is asked beside the status.
#[derive(Clone, Copy, Default)]
pub struct Questions {
    /// How many members each knows, also where no quorum stands behind it: only while the cluster is not known to have
    /// formed.
    pub listed: bool,
    /// A hash of all data: only while a stop is wanted.
    pub hash: bool,
}

/// What was heard.
pub struct Asked {
    pub answers: BTreeMap<Ordinal, Seen<Answer>>,
    /// Where an agent or an etcd answered.
    pub processes: BTreeMap<Ordinal, Process>,
    /// Where an agent waits.
    pub waiting: BTreeSet<Ordinal>,
    pub members: Seen<Members>,
    /// Where somebody has ever answered, in the pod that is there now.
    pub answered_before: BTreeSet<Ordinal>,
    /// Those whose etcd answered, to be called.
    pub reached: BTreeMap<Ordinal, Arc<Member>>,
    /// Who gave the list of members, right after a linearizable read.
    pub via: Option<Ordinal>,
}

/// Connections that are kept from one round to the next, by the UID of the pod.
#[derive(Default)]
pub struct Connections {
    kept: HashMap<String, Arc<Member>>,
    silent: HashSet<String>,
    answered: HashSet<String>,
}

enum Reply {
    Etcd(Arc<Member>, Said, Option<Result<Members, etcd::Error>>),
    Agent(Process, String),
    Nobody(String),
}

impl Connections {
    pub async fn ask(
        &mut self,
        reach: &Reach,
        pods: &BTreeMap<Ordinal, Whom>,
        names: &Names,
        questions: Questions,
    ) -> Asked {
        let asking = pods.iter().map(|(&ordinal, Whom { pod, ending })| {
            let kept = self.kept.get(&pod.uid).cloned();
            let patience = match (*ending, self.silent.contains(&pod.uid)) {
                (true, true) => Duration::ZERO,
                (true, false) => NO_PATIENCE,
                (false, true) => LITTLE_PATIENCE,
                (false, false) => PATIENCE,
            };
            let reply = tokio::time::timeout(patience, ask_one(reach, pod, names, kept, questions.listed));
            async move {
                let nobody = |_| Reply::Nobody(format!("{} does not respond", pod.pod));
                (ordinal, reply.await.unwrap_or_else(nobody))
            }
        });
        let replies = join_all(asking).await;
        self.keep(pods, &replies);
        let answered = pods.iter().filter(|(_, Whom { pod, .. })| self.answered.contains(&pod.uid));
        let answered_before = answered.map(|(&ordinal, _)| ordinal).collect();
        sort_out(replies, answered_before, questions).await
    }

    /// A member that was removed lives on for a second, in which it waits for others that do not speak to it any more.
    pub fn expect_silence(&mut self, pod_uid: &str) {
        self.silent.insert(pod_uid.to_owned());
    }

    fn keep(&mut self, pods: &BTreeMap<Ordinal, Whom>, replies: &[(Ordinal, Reply)]) {
        self.kept.clear();
        self.silent.clear();
        self.answered.retain(|uid| pods.values().any(|Whom { pod, .. }| pod.uid == *uid));
        for (ordinal, reply) in replies {
            let Some(Whom { pod, .. }) = pods.get(ordinal) else { continue };
            if matches!(reply, Reply::Etcd(..) | Reply::Agent(..)) {
                self.answered.insert(pod.uid.clone());
            }
            match reply {
                Reply::Etcd(member, _, _) => drop(self.kept.insert(pod.uid.clone(), Arc::clone(member))),
                Reply::Nobody(_) => drop(self.silent.insert(pod.uid.clone())),
                Reply::Agent(_, _) => {}
            }
        }
    }
}

/// Where no etcd listens, an agent may.
async fn ask_one(
    reach: &Reach,
    pod: &PodAddress,
    names: &Names,
    kept: Option<Arc<Member>>,
    listed: bool,
) -> Reply {
    if let Some(member) = kept
        && let Ok(reply) = ask_etcd(member, names, listed).await
    {
        return reply;
    }
    let failure = match Member::connect(reach, pod).await {
        Ok(member) => match ask_etcd(Arc::new(member), names, listed).await {
            Ok(reply) => return reply,
            Err(error) => error,
        },
        Err(error) => error,
    };
    match agent::ask(reach, pod).await {
        Ok(Heard::Report(report)) => Reply::Agent(report.process(), report.message),
        Ok(Heard::SomethingElse) | Err(_) => Reply::Nobody(chain(&failure).to_string()),
    }
}

/// Its list is asked for right after its read, so that it is worth something.
async fn ask_etcd(member: Arc<Member>, names: &Names, listed: bool) -> Result<Reply, etcd::Error> {
    let said = member.status().await?;
    let list = match said.answer.linearizable || listed {
        true => Some(member.members(names, said.answer.leader).await),
        false => None,
    };
    Ok(Reply::Etcd(member, said, list))
}

async fn sort_out(
    replies: Vec<(Ordinal, Reply)>,
    answered_before: BTreeSet<Ordinal>,
    questions: Questions,
) -> Asked {
    let mut asked = Asked::nobody(answered_before);
    let mut revision = i64::MAX;
    let mut lists = BTreeMap::new();
    for (ordinal, reply) in replies {
        match reply {
            Reply::Etcd(member, said, list) => {
                let count = |list: &Members| u8::try_from(list.list.len()).unwrap_or(u8::MAX);
                let listed = list.as_ref().filter(|_| questions.listed);
                let listed = listed.and_then(|list| list.as_ref().ok()).map(count);
                if said.answer.linearizable {
                    revision = revision.min(said.revision);
                    lists.extend(list.map(|list| (ordinal, list)));
                }
                asked.processes.insert(ordinal, Process::Started);
                asked.answers.insert(ordinal, Seen::Known(Answer { listed, ..said.answer }));
                asked.reached.insert(ordinal, member);
            }
            Reply::Agent(process, why) => {
                asked.processes.insert(ordinal, process);
                asked.answers.insert(ordinal, Seen::Unknown(Unanswered::AgentWaiting(why)));
                asked.waiting.insert(ordinal);
            }
            Reply::Nobody(why) => {
                asked.answers.insert(ordinal, Seen::Unknown(Unanswered::Unreachable(why)));
            }
        }
    }
    if questions.hash {
        asked.compare_data(revision).await;
    }
    asked.choose_list(lists);
    asked
}

impl Asked {
    pub fn nobody(answered_before: BTreeSet<Ordinal>) -> Self {
        Self {
            answers: BTreeMap::new(),
            processes: BTreeMap::new(),
            answered_before,
            waiting: BTreeSet::new(),
            members: Seen::Unknown(Unanswered::NoMember),
            reached: BTreeMap::new(),
            via: None,
        }
    }

    /// Who may be asked to change the members, because a linearizable read has just proved that it speaks for the cluster:
    /// first the one whose list was taken, and last the one that is to leave, which may never hear that it did.
    pub fn speakers(&self, leaving: Option<MemberId>) -> Vec<Ordinal> {
        let answer = |ordinal: &Ordinal| self.answers.get(ordinal).and_then(Seen::known);
        let Some((via, first)) = self.via.and_then(|via| Some((via, answer(&via)?))) else {
            return Vec::new();
        };
        let speaks = |ordinal: &Ordinal| {
            answer(ordinal).is_some_and(|it| it.linearizable && it.cluster == first.cluster)
        };
        let others = self.answers.keys().copied().filter(|it| *it != via && speaks(it));
        let mut speakers: Vec<_> = std::iter::once(via).chain(others).collect();
        speakers.sort_by_key(|it| leaving.is_some() && answer(it).map(|it| it.member) == leaving);
        speakers
    }

    /// The leader's list first: it is the one that is surely up to date.
    fn choose_list(&mut self, lists: BTreeMap<Ordinal, Result<Members, etcd::Error>>) {
        if !self.reached.is_empty() {
            self.members = Seen::Unknown(Unanswered::NoLinearizableRead);
        }
        let leads = |ordinal: &Ordinal| {
            let answer = self.answers.get(ordinal).and_then(Seen::known);
            answer.is_some_and(|answer| answer.leader == Some(answer.member))
        };
        let mut lists: Vec<_> =
            lists.into_iter().map(|(ordinal, list)| (!leads(&ordinal), ordinal, list)).collect();
        lists.sort_by_key(|(follows, ordinal, _)| (*follows, *ordinal));
        for (_, ordinal, list) in lists {
            match list {
                Ok(members) => {
                    self.members = Seen::Known(members);
                    self.via = Some(ordinal);
                    return;
                }
                Err(error) => {
                    self.members = Seen::Unknown(Unanswered::Unreachable(chain(&error).to_string()));
                }
            }
        }
    }

    /// Everybody is asked for the same revision, which everybody has.
    async fn compare_data(&mut self, revision: i64) {
        let asking =
            self.reached.iter().map(async |(&ordinal, member)| (ordinal, member.hash(revision).await));
        for (ordinal, hash) in join_all(asking).await {
            if let Some(Seen::Known(answer)) = self.answers.get_mut(&ordinal) {
                answer.hash = hash.ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use etcd_operator_core::observed::ClusterId;

    use super::*;

    #[test]
    fn all_that_speak_for_the_cluster_may_be_asked_and_first_the_one_whose_list_was_taken() {
        let answer = |member: u64, cluster: u64, linearizable: bool| {
            Seen::Known(Answer {
                cluster: ClusterId(cluster),
                member: MemberId(member),
                leader: None,
                linearizable,
                applied_index: 1,
                version: None,
                listed: None,
                hash: None,
                alarms: BTreeSet::new(),
            })
        };
        let mut asked = Asked::nobody(BTreeSet::new());
        assert_eq!(asked.speakers(None), []);
        let answers = [
            answer(10, 7, true),
            answer(11, 7, false),
            answer(12, 8, true),
            Seen::Unknown(Unanswered::NoMember),
            answer(14, 7, true),
            answer(15, 7, true),
        ];
        asked.answers = Ordinal::below(6).zip(answers).collect();
        asked.via = Some(Ordinal(4));
        assert_eq!(asked.speakers(None), [4, 0, 5].map(Ordinal));
        assert_eq!(asked.speakers(Some(MemberId(10))), [4, 5, 0].map(Ordinal));
        assert_eq!(asked.speakers(Some(MemberId(14))), [0, 5, 4].map(Ordinal));
    }
}
