//! Carries out one action of a plan. Every write carries what was read right before it, so that whatever happened in
//! between makes it fail.

use etcd_operator_core::agent::Protocol;
use etcd_operator_core::api::EtcdClusterStatus;
use etcd_operator_core::decide::grace_seconds;
use etcd_operator_core::desired::Desired;
use etcd_operator_core::names::{CLUSTER_UID_LABEL, FIELD_MANAGER, FINALIZER, MEMBER_ID_LABEL, Names};
use etcd_operator_core::observe::{Objects, image};
use etcd_operator_core::observed::{ClusterId, Ordinal};
use etcd_operator_core::order::BootstrapOrder;
use etcd_operator_core::plan::Action;
use etcd_operator_core::round::Round;
use etcd_operator_core::status::with_formation;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::failure::{Failure, is_code};
use super::look::Look;
use super::objects::belongs_to;
use crate::etcd::{self, Member};
use crate::kind::Kind;
use crate::telemetry::chain;

/// What actions are carried out with.
pub struct Hands<'a> {
    pub client: &'a Client,
    pub names: &'a Names,
    /// None for a spec that breaks the rules: such a cluster can still be deleted.
    pub desired: Option<&'a Desired<'a>>,
    /// What was read right before.
    pub look: &'a Look,
    /// Chooses the member to call.
    pub round: &'a Round,
}

/// The first attempt. A cluster that never formed is given up with everything that it left, so there is no second.
const ATTEMPT: u32 = 1;
/// Until it is armed, nobody reads an order.
const UNARMED: &str = "unarmed";

impl Hands<'_> {
    pub async fn carry_out(&self, action: &Action) -> Result<(), Failure> {
        match action {
            Action::AddFinalizer => self.set_finalizer(true).await,
            Action::RemoveFinalizer => self.set_finalizer(false).await,
            Action::RecordFormed { cluster } => self.record_formed(*cluster).await,
            Action::CreateOrder { size } => self.create(&self.order(*size, false, UNARMED)?, action).await,
            Action::ArmOrder { uid } => self.arm_order(uid, action).await,
            Action::DeleteOrder { uid } => {
                let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
                self.delete::<ConfigMap>(&self.names.order(), preconditions, action).await
            }
            Action::SetReplicas { replicas } => self.set_replicas(*replicas, action).await,
            Action::AdoptClaim { ordinal, uid } => {
                let owner = self.look.objects.cluster.uid();
                self.label_claim(*ordinal, uid, json!({CLUSTER_UID_LABEL: owner}), action).await
            }
            Action::LabelClaim { ordinal, uid, member } => {
                self.label_claim(*ordinal, uid, json!({MEMBER_ID_LABEL: member.to_string()}), action).await
            }
            Action::DeleteClaim { ordinal, uid } => self.delete_claim(*ordinal, uid, action).await,
            Action::DeletePod { ordinal, uid } => {
                let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
                self.delete::<Pod>(&self.names.pod(*ordinal), preconditions, action).await
            }
            Action::DeleteSet { uid } => self.delete_set(uid, action).await,
            Action::AddLearner { ordinal, cluster } => {
                let url = self.names.peer_url(*ordinal);
                self.member(action, *cluster)?.add_learner(url).await.map(drop).map_err(etcd(action))
            }
            Action::Promote { member, cluster, .. } => {
                self.member(action, *cluster)?.promote(*member).await.map_err(etcd(action))
            }
            Action::MoveLeader { to, cluster, .. } => {
                self.member(action, *cluster)?.move_leader(*to).await.map_err(etcd(action))
            }
            Action::RemoveMember { member, cluster } => {
                self.member(action, *cluster)?.remove(*member).await.map_err(etcd(action))
            }
        }
    }

    fn api<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.names.namespace)
    }

    async fn set_finalizer(&self, wanted: bool) -> Result<(), Failure> {
        let cluster = &self.look.objects.cluster;
        let others = cluster.finalizers().iter().filter(|it| *it != FINALIZER).cloned();
        let finalizers: Vec<String> = others.chain(wanted.then(|| FINALIZER.to_owned())).collect();
        let change = json!({"metadata": {"finalizers": finalizers}});
        self.change(&**cluster, change, false, "change the finalizer").await
    }

    async fn record_formed(&self, id: ClusterId) -> Result<(), Failure> {
        let cluster = &*self.look.objects.cluster;
        let EtcdClusterStatus { cluster_id, formed_at, .. } = with_formation(cluster, id, Timestamp::now());
        let change = json!({"status": {"clusterID": cluster_id, "formedAt": formed_at}});
        self.change(cluster, change, true, "record that the cluster has bootstrapped").await
    }

    fn desired(&self) -> Result<&Desired<'_>, Failure> {
        self.desired.ok_or(Failure::InvalidSpec)
    }

    fn order(&self, size: u8, armed: bool, nonce: &str) -> Result<ConfigMap, Failure> {
        let members = Ordinal::below(size).map(|it| (self.names.pod(it), self.names.peer_url(it)));
        let desired = self.desired()?;
        Ok(desired.order(&BootstrapOrder {
            protocol_version: Protocol::CURRENT,
            cluster_uid: desired.intent.uid.clone(),
            attempt: ATTEMPT,
            armed,
            nonce: nonce.to_owned(),
            members: members.collect(),
        }))
    }

    /// The nonce is the object's UID: no other order will ever have it, and a repeated write says the same.
    async fn arm_order(&self, uid: &str, action: &Action) -> Result<(), Failure> {
        let there = self.look.objects.order.as_deref().filter(|order| order.uid().as_deref() == Some(uid));
        let size = self.look.observed.order.as_ref().map(|order| order.size);
        let (Some(there), Some(size)) = (there, size) else { return Err(Failure::Overtaken) };
        let mut armed = self.order(size, true, uid)?;
        armed.metadata.uid = there.metadata.uid.clone();
        armed.metadata.resource_version = there.metadata.resource_version.clone();
        let replaced = self.api().replace(&self.names.order(), &post(), &armed).await;
        replaced.map(drop).map_err(|error| Failure::answered(action.to_string(), error))
    }

    async fn set_replicas(&self, replicas: u8, action: &Action) -> Result<(), Failure> {
        match self.look.objects.set.as_deref() {
            None => self.create(&self.desired()?.stateful_set(replicas), action).await,
            // Nothing but the number: what pods are made from stays as it was when they were made.
            Some(set) => {
                let change = json!({"spec": {"replicas": replicas}});
                self.change(set, change, false, &action.to_string()).await
            }
        }
    }

    /// Kubernetes ends the pods then, in their own time. A deletion with a shorter time shortens one that came before, and
    /// one that comes later does not lengthen it.
    async fn delete_set(&self, uid: &str, action: &Action) -> Result<(), Failure> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        self.delete::<StatefulSet>(&self.names.cluster, preconditions, action).await?;
        let Objects { cluster, pods, .. } = &self.look.objects;
        let ended = pods.values().filter_map(|pod| {
            let seconds = grace_seconds(cluster.spec.storage.on_delete, image(pod)?)?;
            let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
            let quickly = DeleteParams::default().grace_period(seconds).preconditions(preconditions);
            let all = self.api::<Pod>();
            Some(async move { all.delete(&pod.name_any(), &quickly).await })
        });
        // A pod that cannot be ended quickly ends in its own time.
        for error in futures::future::join_all(ended).await.into_iter().filter_map(Result::err) {
            tracing::debug!(error = %chain(&error), "cannot shorten the termination of a pod");
        }
        Ok(())
    }

    async fn label_claim(
        &self,
        ordinal: Ordinal,
        uid: &str,
        labels: Value,
        action: &Action,
    ) -> Result<(), Failure> {
        self.change(
            self.claim(ordinal, uid)?,
            json!({"metadata": {"labels": labels}}),
            false,
            &action.to_string(),
        )
        .await
    }

    async fn delete_claim(&self, ordinal: Ordinal, uid: &str, action: &Action) -> Result<(), Failure> {
        let claim = self.claim(ordinal, uid)?;
        let preconditions =
            Preconditions { uid: claim.uid(), resource_version: claim.metadata.resource_version.clone() };
        self.delete::<PersistentVolumeClaim>(&claim.name_any(), preconditions, action).await
    }

    fn claim(&self, ordinal: Ordinal, uid: &str) -> Result<&PersistentVolumeClaim, Failure> {
        let there = self.look.objects.claims.get(&ordinal).map(|claim| &**claim);
        there.filter(|claim| claim.uid().as_deref() == Some(uid)).ok_or(Failure::Overtaken)
    }

    async fn create<K: Kind>(&self, object: &K, action: &Action) -> Result<(), Failure> {
        let objects = self.api::<K>();
        let Err(error) = objects.create(&post(), object).await else { return Ok(()) };
        if !is_code(&error, 409) {
            return Err(Failure::answered(action.to_string(), error));
        }
        let name = object.name_any();
        let there =
            objects.get_opt(&name).await.map_err(|error| Failure::answered(action.to_string(), error))?;
        let cluster = &self.look.objects.cluster;
        Err(match there {
            Some(there) if !belongs_to(&there, cluster) => Failure::in_the_way(&there, cluster),
            Some(_) | None => Failure::Overtaken,
        })
    }

    /// A merge patch that fails if the object is no longer as it was read.
    async fn change<K: Kind>(
        &self,
        object: &K,
        change: Value,
        status: bool,
        what: &str,
    ) -> Result<(), Failure> {
        let mut change = change;
        change["metadata"]["uid"] = json!(object.uid());
        change["metadata"]["resourceVersion"] = json!(object.resource_version());
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let (objects, name, patch) = (self.api::<K>(), object.name_any(), Patch::Merge(change));
        let changed = match status {
            true => objects.patch_status(&name, &parameters, &patch).await,
            false => objects.patch(&name, &parameters, &patch).await,
        };
        changed.map(drop).map_err(|error| Failure::answered(what, error))
    }

    async fn delete<K: Kind>(
        &self,
        name: &str,
        preconditions: Preconditions,
        action: &Action,
    ) -> Result<(), Failure> {
        let parameters = DeleteParams::background().preconditions(preconditions);
        let deleted = self.api::<K>().delete(name, &parameters).await;
        deleted.map(drop).map_err(|error| Failure::answered(action.to_string(), error))
    }

    /// The member to call: only one that has just served a linearizable read.
    fn member(&self, action: &Action, cluster: ClusterId) -> Result<&Member, Failure> {
        let via = self.round.via(action, &self.look.observed);
        let member = via.and_then(|via| self.look.asked.reached.get(&via));
        member.map(|member| &**member).ok_or(Failure::NobodySpeaks { cluster })
    }
}

fn post() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() }
}

fn etcd(action: &Action) -> impl FnOnce(etcd::Error) -> Failure {
    let what = action.to_string();
    move |source| Failure::Etcd { what, source }
}
