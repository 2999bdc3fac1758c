//! One observation of a cluster: its objects and its members together, as the snapshot that decisions are made from.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use etcd_operator_core::agent::News;
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::decide::{Goal, OnStop};
use etcd_operator_core::names::{CLUSTER_UID_LABEL, FINALIZER, MEMBER_ID_LABEL, Names};
use etcd_operator_core::observed::{
    Blocked, Claim, Cluster, ClusterId, Etcd, Formed, MemberId, Observed, Order, Ordinal, Pod, Process, Seen,
    Set,
};
use etcd_operator_core::order::{self, BootstrapOrder};
use etcd_operator_core::plan::Plan;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::ResourceExt;

use super::ask::{Asked, Connections, Questions, Whom};
use super::failure::Failure;
use super::objects::{Objects, Pods};
use super::pods;
use super::publications::Publications;
use super::rejections::rejections;
use super::side_writes::{SideWrite, SideWrites};
use super::worker::Context;
use crate::agent;
use crate::reach::{PodAddress, Reach};

/// What was observed, and the connections to call.
pub struct Look {
    pub objects: Objects,
    pub observed: Observed,
    pub asked: Asked,
}

/// Since when members have been silent, as far as this process has watched.
pub type SilentSince = BTreeMap<MemberId, Timestamp>;

/// What is kept from one observation to the next.
pub struct Memory<'a> {
    pub connections: &'a mut Connections,
    pub publications: &'a mut Publications,
    pub silent_since: &'a SilentSince,
    /// Since when the StatefulSet lacks a pod.
    pub pods_missing_since: &'a mut Option<Instant>,
}

/// A StatefulSet creates its pods within this time; afterwards its events are worth a request.
const PODS_CREATED_WITHIN: Duration = Duration::from_secs(2);

impl Look {
    pub async fn at(
        objects: Objects,
        goal: &Goal,
        names: &Names,
        context: &Context,
        memory: Memory<'_>,
    ) -> Self {
        let Memory { connections, publications, silent_since, pods_missing_since } = memory;
        let published = publications.known_by_name(&objects.published, Instant::now());
        let cluster = see_cluster(&objects.cluster);
        let questions = Questions {
            listed: cluster.formed.is_none(),
            hash: goal.size == 0 && goal.on_stop == OnStop::Retain && !cluster.deleting,
        };
        // A cluster that is deleted asks nobody, so that a dead etcd is no obstacle.
        let whom = |pod: &k8s_openapi::api::core::v1::Pod| {
            Some(Whom { pod: pods::address(pod)?, ending: pod.metadata.deletion_timestamp.is_some() })
        };
        let addresses: BTreeMap<Ordinal, Whom> = match cluster.deleting {
            true => BTreeMap::new(),
            false => objects.pods.iter().filter_map(|(&it, pod)| Some((it, whom(pod)?))).collect(),
        };
        let missing = missing_pods(&objects);
        *pods_missing_since = pods_missing_since.or(Some(Instant::now())).filter(|_| !missing.is_empty());
        let long = pods_missing_since.is_some_and(|since| since.elapsed() >= PODS_CREATED_WITHIN);
        let (asked, rejected) =
            futures::join!(connections.ask(&context.reach, &addresses, names, questions), async {
                match objects.set.as_deref().filter(|_| long) {
                    Some(set) => rejections(&context.client, names, set, &missing).await,
                    None => BTreeMap::new(),
                }
            });
        let observed = Observed {
            now: Timestamp::now(),
            cluster,
            order: objects.order.as_deref().map(see_order),
            set: objects.set.as_deref().map(|set| see_set(set, rejected)),
            pods: see_pods(&objects.pods, &asked, &published),
            claims: objects.claims.iter().map(|(&ordinal, claim)| (ordinal, see_claim(claim))).collect(),
            etcd: Etcd {
                answers: asked.answers.clone(),
                members: asked.members.clone(),
                silent_since: silent_since.clone(),
            },
        };
        Self { objects, observed, asked }
    }

    /// Tells waiting agents where the others are, and makes them read the members again. An agent may ask for the name of
    /// a pod at once, so it is not told of one whose name has not spread.
    pub async fn tell_agents(&self, plan: &Plan, reach: &Reach, writes: &mut SideWrites) {
        let known = self.observed.pods.values().filter(|pod| pod.published);
        let addresses = known.filter_map(|pod| self.objects.published.get(&pod.uid)).flatten();
        let news = News { addresses: addresses.copied().collect(), ..News::default() };
        let told = agents_to_tell(plan, &self.objects.pods, &self.asked.waiting);
        // An agent that does not get the message reads by itself, a little later.
        let telling = told.iter().map(async |pod| (pod.pod.clone(), agent::tell(reach, pod, &news).await));
        let replies = futures::future::join_all(telling).await;
        let pods: Vec<_> = replies.iter().map(|(pod, _)| pod.clone()).collect();
        writes.forget_messages_except(&pods);
        for (pod, reply) in replies {
            let what = || format!("tell the agent in {pod} where the other pods are");
            let result = reply.map(drop).map_err(|source| Failure::Agent { what: what(), source });
            writes.record(SideWrite::Message(pod), result, Instant::now());
        }
    }

    /// The UID of the pod that answered as this member.
    pub fn pod_of(&self, member: MemberId) -> Option<&str> {
        let mut answers = self.observed.etcd.answers.iter();
        let (ordinal, _) = answers.find(|(_, it)| it.known().is_some_and(|it| it.member == member))?;
        self.objects.pods.get(ordinal)?.metadata.uid.as_deref()
    }
}

/// Those that wait, but nobody while there is something to do: an etcd that joins must know the same members as those it
/// joins, so none may be about to be added.
fn agents_to_tell(plan: &Plan, pods: &Pods, waiting: &BTreeSet<Ordinal>) -> Vec<PodAddress> {
    if !plan.actions.is_empty() {
        return Vec::new();
    }
    waiting.iter().filter_map(|ordinal| pods::address(pods.get(ordinal)?)).collect()
}

/// Remembers who has become silent, and forgets who speaks.
pub fn watch_silence(silent_since: &mut SilentSince, seen: &Observed) {
    let Seen::Known(members) = &seen.etcd.members else { return };
    let serving = seen.serving();
    silent_since.retain(|id, _| members.list.contains_key(id));
    for (&id, member) in &members.list {
        let speaks = if member.learner { seen.answer_of(id).is_some() } else { serving.contains(&id) };
        if speaks {
            silent_since.remove(&id);
        } else {
            silent_since.entry(id).or_insert(seen.now);
        }
    }
}

fn see_cluster(cluster: &EtcdCluster) -> Cluster {
    let status = cluster.status.as_ref();
    let id = status.and_then(|status| hexadecimal(status.cluster_id.as_deref()?)).map(ClusterId);
    let since = status.and_then(|status| status.formed_at.as_ref()).map(|time| time.0);
    Cluster {
        uid: cluster.uid().unwrap_or_default(),
        deleting: cluster.metadata.deletion_timestamp.is_some(),
        finalizer: cluster.finalizers().iter().any(|finalizer| finalizer == FINALIZER),
        // Without a time it formed long ago.
        formed: id.map(|id| Formed { id, since: since.unwrap_or(Timestamp::UNIX_EPOCH) }),
    }
}

/// What cannot be read is not armed, as the agents see it, too.
fn see_order(object: &ConfigMap) -> Order {
    let text = object.data.as_ref().and_then(|data| data.get(order::KEY));
    let order = text.and_then(|text| BootstrapOrder::parse(text).ok());
    Order {
        uid: object.uid().unwrap_or_default(),
        armed: order.as_ref().is_some_and(|order| order.armed),
        size: order.map_or(0, |order| u8::try_from(order.members.len()).unwrap_or(u8::MAX)),
    }
}

fn see_set(set: &StatefulSet, rejected: BTreeMap<Ordinal, String>) -> Set {
    Set { uid: set.uid().unwrap_or_default(), replicas: replicas(set), rejected }
}

pub fn replicas(set: &StatefulSet) -> u8 {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    u8::try_from(replicas).unwrap_or(u8::MAX)
}

/// Pods that the StatefulSet should have created.
fn missing_pods(objects: &Objects) -> Vec<Ordinal> {
    let wanted = objects.set.as_deref().map_or(0, replicas);
    Ordinal::below(wanted).filter(|ordinal| !objects.pods.contains_key(ordinal)).collect()
}

fn see_pods(pods: &Pods, asked: &Asked, published: &BTreeSet<String>) -> BTreeMap<Ordinal, Pod> {
    let see = |ordinal: Ordinal, pod: &k8s_openapi::api::core::v1::Pod| {
        let uid = pod.uid().unwrap_or_default();
        // Whoever answered before in this pod, or is listed by now, may run although the kubelet has not told yet.
        let listed = asked.members.known().is_some_and(|members| members.at(ordinal).is_some());
        let process = asked.processes.get(&ordinal).cloned().unwrap_or_else(|| match pods::told(pod) {
            pods::Told::Runs => Process::Started,
            pods::Told::Is(Process::CannotStart(_)) if asked.answered_before.contains(&ordinal) => {
                Process::Started
            }
            pods::Told::Is(process) => process,
            pods::Told::Begins if listed || asked.answered_before.contains(&ordinal) => Process::Started,
            pods::Told::Begins if pods::is_young(pod, Timestamp::now()) => Process::Beginning,
            pods::Told::Begins => Process::CannotStart(Blocked::SlowCreation),
        });
        Pod {
            terminating: pod.metadata.deletion_timestamp.is_some(),
            published: published.contains(&uid),
            etcd: process,
            uid,
        }
    };
    pods.iter().map(|(&ordinal, pod)| (ordinal, see(ordinal, pod))).collect()
}

fn see_claim(claim: &PersistentVolumeClaim) -> Claim {
    let label = |name: &str| claim.labels().get(name).cloned();
    Claim {
        uid: claim.uid().unwrap_or_default(),
        terminating: claim.metadata.deletion_timestamp.is_some(),
        cluster_uid: label(CLUSTER_UID_LABEL).unwrap_or_default(),
        bound: claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some()),
        member: label(MEMBER_ID_LABEL).and_then(|id| hexadecimal(&id)).map(MemberId),
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use etcd_operator_core::member::MemberProgress;
    use etcd_operator_core::observed::{Member, Members};
    use etcd_operator_core::plan::{Action, WaitingOn};
    use serde_json::{Value, json};

    use super::*;

    const CLUSTER: ClusterId = ClusterId(0xc1);

    fn pods(states: &[Value]) -> Pods {
        let pod = |(ordinal, state): (u8, &Value)| {
            let pod = json!({
                "metadata": {"name": format!("kv-{ordinal}"), "namespace": "ns", "uid": format!("uid-{ordinal}")},
                "status": {"podIP": format!("10.0.0.{ordinal}"), "containerStatuses": [{
                    "name": "etcd", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
                }]},
            });
            (Ordinal(ordinal), Arc::new(serde_json::from_value(pod).expect("it is a pod")))
        };
        (0..).zip(states).map(pod).collect()
    }

    fn processes(pods: &Pods, asked: &Asked) -> Vec<Process> {
        see_pods(pods, asked, &BTreeSet::new()).into_values().map(|pod| pod.etcd).collect()
    }

    #[test]
    fn agents_are_told_only_when_nothing_is_left_to_add() {
        let pods = pods(&[json!({}), json!({}), json!({})]);
        let waiting = BTreeSet::from([Ordinal(1), Ordinal(2), Ordinal(7)]);
        let start = Plan::wait(WaitingOn::Start { ordinal: Ordinal(1) });
        let names: Vec<_> =
            agents_to_tell(&start, &pods, &waiting).into_iter().map(|address| address.pod).collect();
        assert_eq!(names, ["kv-1", "kv-2"]);
        let add = Plan::act(Action::AddLearner { ordinal: Ordinal(2), cluster: CLUSTER });
        assert_eq!(agents_to_tell(&add.then(start), &pods, &waiting), []);
    }

    #[test]
    fn a_pod_that_answered_before_counts_as_started_whatever_the_kubelet_tells() {
        let creating = || json!({"waiting": {"reason": "ContainerCreating"}});
        let pods = pods(&[creating(), creating(), json!({"waiting": {"reason": "ErrImagePull"}})]);
        let silent = |answered: &[u8]| Asked::nobody(answered.iter().map(|&it| Ordinal(it)).collect());
        let begins = Process::CannotStart(Blocked::SlowCreation);
        let (reason, message) = ("ErrImagePull".into(), String::new());
        let no_image = Process::CannotStart(Blocked::Container { reason, message });
        assert_eq!(processes(&pods, &silent(&[])), [begins.clone(), begins.clone(), no_image]);
        assert_eq!(processes(&pods, &silent(&[0, 2])), [Process::Started, begins, Process::Started]);
    }

    #[test]
    fn a_pod_that_etcd_lists_counts_as_started_and_what_a_process_says_of_itself_goes_before() {
        let pods = pods(&[json!({"waiting": {"reason": "ContainerCreating"}}), json!({"running": {}})]);
        let mut asked = Asked::nobody(BTreeSet::new());
        let member = Member { ordinal: Some(Ordinal(0)), learner: true, start: MemberProgress::Added };
        let list = BTreeMap::from([(MemberId(0xa0), member)]);
        asked.members = Seen::Known(Members { cluster: CLUSTER, leader: None, list });
        asked.processes.insert(Ordinal(1), Process::Waiting);
        assert_eq!(processes(&pods, &asked), [Process::Started, Process::Waiting]);
    }
}
