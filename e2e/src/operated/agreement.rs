//! Whether everybody tells the same of a settled cluster: etcd, Kubernetes and the status.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_core::api::{Health, Role};
use etcd_operator_core::names::{CLUSTER_UID_LABEL, MEMBER_ID_LABEL, condition};
use etcd_operator_core::observed::{ClusterId, MemberId, Ordinal};
use etcd_operator_core::quorum::quorum;
use etcd_operator_core::tls::{Transport, profiles};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::Operated;
use crate::etcd::Listed;
use crate::history::Endpoints;
use crate::wait;

/// For what follows a settled status in its own time: the books, and what other controllers keep.
const LIMIT: Duration = Duration::from_secs(90);

/// What has to be there.
#[derive(Clone, Debug)]
pub struct Promised {
    pub size: u8,
    /// How many volumes, from that of the first member on.
    pub claims: u8,
    pub disruption_budget: bool,
    pub node_port: bool,
    pub network_policy: bool,
}

impl Promised {
    /// So many members, each with a volume, behind a budget.
    pub fn members(size: u8) -> Self {
        Self { size, claims: size, disruption_budget: true, node_port: false, network_policy: false }
    }

    /// No member, but so many volumes.
    pub fn stopped(claims: u8) -> Self {
        Self { claims, ..Self::members(0) }
    }

    pub fn without_budget(self) -> Self {
        Self { disruption_budget: false, ..self }
    }

    pub fn with_node_port(self) -> Self {
        Self { node_port: true, ..self }
    }

    pub fn with_network_policy(self) -> Self {
        Self { network_policy: true, ..self }
    }
}

impl Operated {
    /// Looks whether all is as promised. The cluster must be settled.
    ///
    /// Members, pods and volumes have to be so already: the status said that nothing is to be done.
    pub async fn agrees(&self, promised: &Promised) -> Result<()> {
        let listed = if promised.size == 0 { Vec::new() } else { self.member_list().await? };
        self.members_agree(promised.size, &listed).await?;
        let claims = self.claims().await?.into_keys().collect();
        same("volumes", &claims, &self.claim_names(promised.claims))?;
        let rest = async || {
            self.claims_agree(&listed).await?;
            self.surroundings_agree(promised).await?;
            self.status_agrees(promised.size, &listed).await?;
            Ok(true)
        };
        let what = format!("etcd, Kubernetes and the status agree about {}", self.name);
        wait::until(&what, LIMIT, rest).await?;
        if promised.size > 0 {
            self.endpoints_agree().await?;
        }
        self.progress.step(format!("etcd, pods, volumes, Services, budget and status agree: {promised:?}"));
        Ok(())
    }

    /// Every member lists the same voters, one for each pod, and each pod is the member that is listed for it.
    async fn members_agree(&self, size: u8, listed: &[Listed]) -> Result<()> {
        let pods = self.pods().await?;
        same("pods", &pods.keys().cloned().collect(), &self.pod_names(size))?;
        let (names, Transport { peers, .. }) = (self.names(), self.transport().await?);
        let listed_as = |ordinal| (names.pod(ordinal), vec![names.peer_url(peers.scheme(), ordinal)]);
        let wanted: BTreeMap<_, _> = Ordinal::below(size).map(listed_as).collect();
        let found: BTreeMap<_, _> =
            listed.iter().map(|member| (member.name.clone(), member.peer_urls.clone())).collect();
        same("members", &found, &wanted)?;
        ensure!(listed.len() == found.len(), "members of the same name: {listed:?}");
        ensure!(listed.iter().all(|member| !member.is_learner), "a learner was left behind: {listed:?}");
        for member in self.members().await? {
            let status = member.status().await?;
            let at = listed.iter().find(|listed| listed.name == member.name).map(|listed| listed.id);
            ensure!(at == Some(status.member_id), "{} is {:x}: {listed:?}", member.name, status.member_id);
            let theirs = by_id(&member.list().await?);
            same(&format!("members as {} lists them", member.name), &theirs, &by_id(listed))?;
        }
        Ok(())
    }

    /// Each volume says whose data it holds.
    async fn claims_agree(&self, listed: &[Listed]) -> Result<()> {
        let uid = self.object().await?.uid();
        for (name, claim) in &self.claims().await? {
            ensure!(claim.metadata.deletion_timestamp.is_none(), "{name} is terminating");
            ensure!(claim.labels().get(CLUSTER_UID_LABEL) == uid.as_ref(), "{name} is not this cluster's");
            let holder = claim.labels().get(MEMBER_ID_LABEL);
            ensure!(holder.is_some(), "{name} does not say whose data it holds");
            let ordinal = self.names().ordinal_of_claim(name).context("a claim without an ordinal")?;
            let member = listed.iter().find(|member| member.name == self.names().pod(ordinal));
            let expected = member.map(|member| MemberId(member.id).to_string());
            ensure!(
                expected.is_none() || holder == expected.as_ref(),
                "{name} is labelled {holder:?}, but its member is {expected:?}"
            );
        }
        Ok(())
    }

    /// Readiness, Services, Secrets, budget, network policy, number of pods, and that no bootstrap order is left.
    async fn surroundings_agree(&self, promised: &Promised) -> Result<()> {
        let names = self.names();
        let pods = self.pods().await?.into_iter();
        let unready = pods.filter(|(_, pod)| !wait::is_ready(pod)).map(|(name, _)| name).collect();
        same("pods that are not ready", &unready, &BTreeSet::new())?;
        let services: BTreeSet<_> = self.labelled::<Service>().await?.into_keys().collect();
        let outside = promised.node_port.then(|| names.node_port_service());
        let wanted = [names.peer_service(), names.client_service()].into_iter().chain(outside).collect();
        same("Services", &services, &wanted)?;
        let secrets: BTreeSet<_> = self.labelled::<Secret>().await?.into_keys().collect();
        // Those of an earlier time with TLS stay.
        let wanted = profiles(&names, self.transport().await?).into_keys().map(|it| names.secret(it));
        same(
            "Secrets that are missing",
            &wanted.filter(|it| !secrets.contains(it)).collect(),
            &BTreeSet::new(),
        )?;
        let budgets = self.labelled::<PodDisruptionBudget>().await?;
        let least = |budget: PodDisruptionBudget| budget.spec.and_then(|spec| spec.min_available);
        let budgets: BTreeMap<_, _> =
            budgets.into_iter().map(|(name, budget)| (name, least(budget))).collect();
        let budgeted = promised.disruption_budget && promised.size > 0;
        let least = i32::try_from(quorum(usize::from(promised.size)))?;
        let wanted = budgeted.then(|| (self.name.clone(), Some(IntOrString::Int(least))));
        same("disruption budgets", &budgets, &wanted.into_iter().collect())?;
        let policies: BTreeSet<_> = self.labelled::<NetworkPolicy>().await?.into_keys().collect();
        let wanted = promised.network_policy.then(|| self.name.clone());
        same("network policies", &policies, &wanted.into_iter().collect())?;
        let sets = self.labelled::<StatefulSet>().await?;
        let replicas = |set: StatefulSet| set.spec.and_then(|spec| spec.replicas);
        let sets: BTreeMap<_, _> = sets.into_iter().map(|(name, set)| (name, replicas(set))).collect();
        let wanted = BTreeMap::from([(self.name.clone(), Some(i32::from(promised.size)))]);
        same("StatefulSets and their pods", &sets, &wanted)?;
        let mut config_maps: BTreeSet<_> = self.labelled::<ConfigMap>().await?.into_keys().collect();
        // There from the first roll on.
        config_maps.remove(&self.names().form());
        same("bootstrap orders", &config_maps, &BTreeSet::new())
    }

    async fn status_agrees(&self, size: u8, listed: &[Listed]) -> Result<()> {
        let status = self.status().await?;
        ensure!(status.ready_replicas == Some(i32::from(size)), "readyReplicas: {:?}", status.ready_replicas);
        let says = |type_: &str| {
            let condition = status.conditions.iter().find(|condition| condition.type_ == type_);
            condition.map_or("absent", |condition| condition.status.as_str()).to_owned()
        };
        let conditions =
            [condition::READY, condition::RECONCILING, condition::STALLED, condition::QUORUM_LOST];
        let conditions = conditions.map(|type_| format!("{type_}={}", says(type_)));
        let wanted = ["Ready=True", "Reconciling=False", "Stalled=False", "QuorumLost=False"];
        same("conditions", &conditions.to_vec(), &wanted.map(String::from).to_vec())?;
        let told: BTreeMap<_, _> =
            status.members.iter().map(|it| (it.name.clone(), (it.id.clone(), it.ready, it.health))).collect();
        let wanted = listed
            .iter()
            .map(|it| (Some(it.name.clone()), (Some(MemberId(it.id).to_string()), true, Health::Healthy)));
        same("members in the status", &told, &wanted.collect())?;
        let endpoint = self.names().endpoint(self.transport().await?.clients.scheme());
        same("clientEndpoints", &status.client_endpoints, &vec![endpoint])?;
        if size == 0 {
            return Ok(());
        }
        let etcd = self.ask(async |member| member.status().await).await?;
        same("clusterID", &status.cluster_id, &Some(ClusterId(etcd.cluster_id).to_string()))?;
        let leader = Some(MemberId(etcd.leader_id).to_string());
        same("leaderID", &status.leader_id, &leader)?;
        let leads = status.members.iter().filter(|it| it.role == Some(Role::Leader)).map(|it| it.id.clone());
        same("leaders", &leads.collect(), &vec![leader])
    }

    /// The client Service leads to every member.
    async fn endpoints_agree(&self) -> Result<()> {
        let (namespace, service) = (&self.namespace, self.names().client_service());
        let endpoints = Endpoints::behind_service(self.client.clone(), namespace, &service);
        let members = self.members().await?.into_iter().map(|member| member.address).collect();
        let lead = async || same("clients' endpoints", &endpoints.now(), &members).map(|()| true);
        wait::until(&format!("Service {service} leads to every member"), LIMIT, lead).await
    }
}

fn by_id(listed: &[Listed]) -> BTreeMap<u64, Listed> {
    listed.iter().map(|member| (member.id, member.clone())).collect()
}

fn same<T: PartialEq + Debug>(what: &str, found: &T, wanted: &T) -> Result<()> {
    ensure!(found == wanted, "{what}: found {found:?}, want {wanted:?}");
    Ok(())
}
