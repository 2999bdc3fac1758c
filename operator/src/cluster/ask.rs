//! Asks every pod of a cluster what goes on in it, all at the same time and each on its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_core::auth::{self, Auth, Password};
use etcd_operator_core::links::active_peers;
use etcd_operator_core::names::Names;
use etcd_operator_core::observe::{Questions, Reply};
use etcd_operator_core::observed::{Members, Ordinal, Process, Unanswered};
use etcd_operator_core::round::Memory;
use futures::future::join_all;

use crate::agent::{self, AgentReply};
use crate::credentials::Security;
use crate::etcd::{self, EndpointStatus, Member};
use crate::reach::{PodAddress, Reach};
use crate::telemetry::chain;

/// A stop waits for it. All of the data is read.
const HASH_DEADLINE: Duration = Duration::from_secs(20);

/// One pod to be asked.
pub struct Endpoint {
    pub pod: PodAddress,
    pub security: Security,
    pub terminating: bool,
}

/// What was responded.
#[derive(Default)]
pub struct Asked {
    pub replies: BTreeMap<Ordinal, Reply>,
    /// Those whose etcd responded, to be called.
    pub reached: BTreeMap<Ordinal, Arc<Member>>,
    /// The revision of the cluster that each of them has applied.
    pub revisions: BTreeMap<Ordinal, i64>,
    /// What one of them reported about authentication, if it was asked.
    pub auth: Option<Auth>,
}

/// Connections that are kept from one round to the next, by the UID of the pod.
#[derive(Default)]
pub struct Connections(HashMap<String, Arc<Member>>);

/// Who responded, with the connection.
enum Response {
    Etcd(Arc<Member>, Box<EndpointStatus>, Option<Result<Members, etcd::Error>>),
    Agent(Process, Unanswered),
    Denied,
    Nobody(String),
}

impl Connections {
    pub async fn ask(
        &mut self,
        reach: &Reach,
        pods: &BTreeMap<Ordinal, Endpoint>,
        names: &Names,
        questions: Questions,
        memory: &Memory,
    ) -> Asked {
        let asking = pods.iter().map(|(&ordinal, endpoint)| {
            let PodAddress { uid, pod, .. } = &endpoint.pod;
            let kept = self.0.get(uid).cloned();
            let patience = memory.patience(uid, endpoint.terminating);
            let response = tokio::time::timeout(patience, ask_one(reach, endpoint, names, kept, questions));
            async move {
                let nobody = |_| Response::Nobody(format!("{pod} does not respond"));
                (ordinal, response.await.unwrap_or_else(nobody))
            }
        });
        let asked = Asked::of(join_all(asking).await, questions).await;
        let connection = |(ordinal, member): (&Ordinal, &Arc<Member>)| {
            Some((pods.get(ordinal)?.pod.uid.clone(), Arc::clone(member)))
        };
        self.0 = asked.reached.iter().filter_map(connection).collect();
        asked
    }
}

/// Where no etcd listens, an agent may.
async fn ask_one(
    reach: &Reach,
    Endpoint { pod, security, .. }: &Endpoint,
    names: &Names,
    kept: Option<Arc<Member>>,
    questions: Questions,
) -> Response {
    let asked = async |member| {
        let page = async { if questions.links { agent::metrics(reach, pod).await.ok() } else { None } };
        let (reply, page) = futures::join!(ask_etcd(member, names, questions.listed), page);
        let (member, mut status, list) = reply?;
        if questions.space {
            status.answer.space = status.space;
        }
        status.answer.reaches = page.and_then(|page| active_peers(&page, status.answer.member));
        Ok(Response::Etcd(member, status.into(), list))
    };
    if let Some(member) = kept
        && let Ok(reply) = asked(member).await
    {
        return reply;
    }
    let failure: etcd::Error = match Member::connect(reach, pod, security).await {
        Ok(member) => match asked(Arc::new(member)).await {
            Ok(reply) => return reply,
            Err(error) => error,
        },
        Err(error) => error,
    };
    if failure.is_denied() {
        return Response::Denied;
    }
    match agent::ask(reach, pod).await {
        Ok(AgentReply::Report(report)) => Response::Agent(report.process(), report.unanswered()),
        Ok(AgentReply::SomethingElse) | Err(_) => Response::Nobody(chain(&failure).to_string()),
    }
}

/// Its list is asked for right after its read, so that it is worth something.
async fn ask_etcd(
    member: Arc<Member>,
    names: &Names,
    listed: bool,
) -> Result<(Arc<Member>, EndpointStatus, Option<Result<Members, etcd::Error>>), etcd::Error> {
    let status = member.status().await?;
    let list = match status.answer.linearizable || listed {
        true => Some(member.members(names, status.answer.leader).await),
        false => None,
    };
    Ok((member, status, list))
}

impl Asked {
    async fn of(responses: Vec<(Ordinal, Response)>, questions: Questions) -> Self {
        let mut asked = Self::default();
        let mut revision = i64::MAX;
        for (ordinal, response) in responses {
            let reply = match response {
                Response::Etcd(member, status, list) => {
                    asked.revisions.insert(ordinal, status.revision);
                    if status.answer.linearizable {
                        revision = revision.min(status.revision);
                    }
                    asked.reached.insert(ordinal, member);
                    let members = list.map(|list| list.map_err(|error| chain(&error).to_string()));
                    Reply::Etcd { answer: status.answer, members }
                }
                Response::Agent(process, why) => Reply::Agent { process, why },
                Response::Denied => Reply::Denied,
                Response::Nobody(why) => Reply::Nobody(why),
            };
            asked.replies.insert(ordinal, reply);
        }
        if questions.hash {
            asked.compare_data(revision).await;
        }
        asked
    }

    /// Through a member that a quorum stands behind: any of them knows it.
    pub async fn ask_auth(&mut self, questions: auth::Questions, root_password: Option<Password>) {
        let serves = |ordinal: &Ordinal| matches!(self.replies.get(ordinal), Some(Reply::Etcd { answer, .. }) if answer.linearizable);
        let Some((_, member)) = self.reached.iter().find(|(ordinal, _)| serves(ordinal)) else { return };
        self.auth = match member.auth(questions, root_password.as_ref()).await {
            Ok(auth) => Some(auth),
            Err(error) => {
                tracing::debug!(error = %chain(&error), "etcd does not report its authentication");
                None
            }
        };
    }

    /// Everybody is asked for the same revision, which everybody has.
    async fn compare_data(&mut self, revision: i64) {
        let asking = self
            .reached
            .iter()
            .map(async |(&ordinal, member)| (ordinal, member.hash(revision, HASH_DEADLINE).await.ok()));
        let hashes = join_all(asking).await;
        // After a compaction that not all have seen, equal data has different hashes.
        let compacted: BTreeSet<i64> = hashes.iter().filter_map(|(_, it)| Some((*it)?.compacted)).collect();
        for (ordinal, hash) in hashes {
            if let Some(Reply::Etcd { answer, .. }) = self.replies.get_mut(&ordinal) {
                answer.hash = hash.map(|it| it.hash).filter(|_| compacted.len() == 1);
            }
        }
    }
}
