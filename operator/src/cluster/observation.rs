//! One observation of a cluster: its objects and its members together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_core::auth::Password;
use etcd_operator_core::decide::Goal;
use etcd_operator_core::names::Names;
use etcd_operator_core::observe::{Objects, observe};
use etcd_operator_core::observed::{MemberId, Observed, Ordinal};
use etcd_operator_core::round::{Memory, compared_members};
use etcd_operator_core::tls::Purpose;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::ask::{Asked, Connections, Endpoint};
use super::comparison::Comparing;
use super::worker::Context;
use super::{handshake, pods};
use crate::credentials::{Credentials, Security, Unusable};
use crate::telemetry::chain;

/// Events only explain what is missing, so they are not waited for long.
const EVENTS_DEADLINE: Duration = Duration::from_secs(2);

/// What was observed, and the connections to call.
pub struct Observation {
    pub objects: Objects,
    pub seen: Observed,
    pub asked: Asked,
}

impl Observation {
    pub async fn at(
        objects: Objects,
        goal: &Goal,
        names: &Names,
        context: &Context,
        credentials: Result<Credentials, Unusable>,
        (connections, comparing): (&mut Connections, &mut Comparing),
        memory: &mut Memory,
    ) -> Self {
        // During a switch, pods differ.
        let transport = |ordinal| objects.transport_of(ordinal).or_else(|| objects.transport());
        let security = |ordinal| match transport(ordinal).is_some_and(|it| it.clients.is_tls()) {
            false => Security::Plain,
            true => Security::Tls { credentials: credentials.clone(), host: names.pod_host(ordinal) },
        };
        // The pods of a deleted cluster are not asked, so that a dead etcd is no obstacle.
        let endpoint = |ordinal, pod: &Pod| {
            Some(Endpoint {
                pod: pods::address(pod)?,
                security: security(ordinal),
                terminating: pod.metadata.deletion_timestamp.is_some(),
            })
        };
        let addresses: BTreeMap<Ordinal, Endpoint> = match objects.cluster.metadata.deletion_timestamp {
            Some(_) => BTreeMap::new(),
            None => objects.pods.iter().filter_map(|(&it, pod)| Some((it, endpoint(it, pod)?))).collect(),
        };
        if let Some((at, comparison)) = comparing.completed() {
            memory.consistency.compared(at, comparison);
        }
        let unexplained = memory.note_missing(!objects.missing_pods().is_empty(), Timestamp::now());
        let set = objects.set.as_deref().filter(|_| unexplained);
        let questions = objects.questions(goal, memory, Timestamp::now());
        let about_auth = objects.auth_questions(goal, memory, Timestamp::now());
        let ports = ports(&objects, names, memory);
        let (mut asked, handshakes, events) = futures::join!(
            connections.ask(&context.reach, &addresses, names, questions, memory),
            handshake::all(&context.reach, &ports, memory),
            events_of(&context.client, names, set),
        );
        if let Some(questions) = about_auth {
            let secret = objects.root_password.as_deref();
            asked.ask_auth(questions, secret.and_then(|it| Password::read(it).ok())).await;
        }
        let mut seen =
            observe(&objects, names, &asked.replies, &handshakes, &events, memory, Timestamp::now());
        memory.note_auth(&mut seen, asked.auth.clone(), objects.root_password(goal));
        memory.note_files(&mut seen, goal.defragmentation);
        if let Some(members) = compared_members(&seen).filter(|_| questions.compares) {
            comparing.begin(&asked, &members);
        }
        Self { objects, seen, asked }
    }

    /// The UID of the pod that answered as this member.
    pub fn pod_of(&self, member: MemberId) -> Option<&str> {
        let mut answers = self.seen.etcd.answers.iter();
        let (ordinal, _) = answers.find(|(_, it)| it.known().is_some_and(|it| it.member == member))?;
        self.objects.pods.get(ordinal)?.metadata.uid.as_deref()
    }
}

/// The ports that are asked what they show. The operator's certificate opens the client port. The peer port lets nobody in who
/// is no member, and shows what it has before.
fn ports(objects: &Objects, names: &Names, memory: &Memory) -> Vec<handshake::Port> {
    let asked = objects.asked_ports(memory, Timestamp::now()).into_iter();
    let port = |ordinal: Ordinal, purpose: Purpose| {
        let own = objects.secrets.get(&Purpose::Operator).filter(|_| purpose == Purpose::Server);
        Some(handshake::Port {
            ordinal,
            purpose,
            pod: pods::address(objects.pods.get(&ordinal)?)?,
            number: purpose.port()?,
            host: names.pod_host(ordinal),
            trusted: Arc::clone(objects.secrets.get(&purpose)?),
            own: own.cloned(),
        })
    };
    asked.flat_map(|(ordinal, it)| it.into_iter().filter_map(move |it| port(ordinal, it))).collect()
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
