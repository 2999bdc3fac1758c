//! One observation of a cluster: its objects and its members together.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_operator_core::agent::News;
use etcd_operator_core::decide::Goal;
use etcd_operator_core::names::Names;
use etcd_operator_core::observe::{Objects, observe};
use etcd_operator_core::observed::{MemberId, Observed, Ordinal};
use etcd_operator_core::plan::Plan;
use etcd_operator_core::round::{Memory, SideWrite, SideWrites, agents_to_tell};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::ask::{Asked, Connections, Whom};
use super::failure::Failure;
use super::pods;
use super::worker::Context;
use crate::agent;
use crate::reach::Reach;
use crate::telemetry::chain;

/// Events only explain what is missing: nobody waits long for them.
const EVENTS_DEADLINE: Duration = Duration::from_secs(2);

/// What was observed, and the connections to call.
pub struct Look {
    pub objects: Objects,
    pub observed: Observed,
    pub asked: Asked,
}

impl Look {
    pub async fn at(
        objects: Objects,
        goal: &Goal,
        names: &Names,
        context: &Context,
        connections: &mut Connections,
        memory: &mut Memory,
    ) -> Self {
        // A cluster that is deleted asks nobody, so that a dead etcd is no obstacle.
        let whom = |pod: &Pod| {
            Some(Whom { pod: pods::address(pod)?, terminating: pod.metadata.deletion_timestamp.is_some() })
        };
        let addresses: BTreeMap<Ordinal, Whom> = match objects.cluster.metadata.deletion_timestamp {
            Some(_) => BTreeMap::new(),
            None => objects.pods.iter().filter_map(|(&it, pod)| Some((it, whom(pod)?))).collect(),
        };
        let unexplained = memory.note_missing(!objects.missing_pods().is_empty(), Timestamp::now());
        let set = objects.set.as_deref().filter(|_| unexplained);
        let questions = objects.questions(goal);
        let (asked, events) = futures::join!(
            connections.ask(&context.reach, &addresses, names, questions, memory),
            events_of(&context.client, names, set),
        );
        let observed = observe(&objects, names, &asked.replies, &events, memory, Timestamp::now());
        Self { objects, observed, asked }
    }

    /// Tells waiting agents where the others are, and makes them read the members again. An agent may ask for the name of
    /// a pod at once, so it is not told of one whose name has not spread.
    pub async fn tell_agents(&self, plan: &Plan, reach: &Reach, writes: &mut SideWrites) {
        let known = self.observed.pods.values().filter(|pod| pod.published);
        let addresses = known.filter_map(|pod| self.objects.listed.get(&pod.uid)).flatten();
        let news = News { addresses: addresses.copied().collect(), ..News::default() };
        let told = agents_to_tell(plan, &self.observed);
        let told: Vec<_> = told.iter().filter_map(|it| pods::address(self.objects.pods.get(it)?)).collect();
        // An agent that does not get the message reads by itself, a little later.
        let telling = told.iter().map(async |pod| (pod.pod.clone(), agent::tell(reach, pod, &news).await));
        let replies = futures::future::join_all(telling).await;
        let pods: Vec<_> = replies.iter().map(|(pod, _)| pod.clone()).collect();
        writes.forget_messages_except(&pods);
        for (pod, reply) in replies {
            let what = format!("tell the agent in {pod} where the other pods are");
            let result = reply.map(drop).map_err(|source| Failure::Agent { what, source });
            super::record(writes, SideWrite::Message(pod), result);
        }
    }

    /// The UID of the pod that answered as this member.
    pub fn pod_of(&self, member: MemberId) -> Option<&str> {
        let mut answers = self.observed.etcd.answers.iter();
        let (ordinal, _) = answers.find(|(_, it)| it.known().is_some_and(|it| it.member == member))?;
        self.objects.pods.get(ordinal)?.metadata.uid.as_deref()
    }
}

/// What the StatefulSet's controller reports.
async fn events_of(client: &Client, names: &Names, set: Option<&StatefulSet>) -> Vec<Event> {
    let Some(uid) = set.and_then(ResourceExt::uid) else { return Vec::new() };
    let events = Api::<Event>::namespaced(client.clone(), &names.namespace);
    let of_set =
        ListParams::default().fields(&format!("involvedObject.kind=StatefulSet,involvedObject.uid={uid}"));
    match tokio::time::timeout(EVENTS_DEADLINE, events.list(&of_set)).await {
        Ok(Ok(list)) => list.items,
        Ok(Err(error)) => {
            tracing::debug!(error = %chain(&error), "cannot read the events of the StatefulSet");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}
