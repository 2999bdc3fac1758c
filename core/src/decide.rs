//! From what is wanted and what is assessed to what is done next.
//!
//! What is certain comes in a fixed order: deletion, pause, volumes of others, the bootstrap. For a cluster that has
//! bootstrapped, the concerns about its members come in turn (`step.rs`), and each states what later ones must leave alone
//! (`opinion.rs`).

mod authentication;
mod bootstrap;
mod certificates;
mod consistency;
mod delete;
mod lost_nodes;
mod membership;
mod opinion;
mod peer_urls;
mod recovery;
mod replace;
mod roll;
mod space;
mod step;
mod stop;
mod volumes;

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::agent::Protocol;
pub use crate::api::DeletePolicy as OnDelete;
use crate::api::{ConsistencyCheck, DisruptionBudget, EtcdClusterSpec, MIN_NODE_LOSS_GRACE_SECONDS, Repair};
use crate::asked::Asked;
use crate::assess::{Assessment, Quorum, assess};
use crate::auth;
use crate::form::Wanted;
use crate::intent::Intent;
pub use crate::intent::{OnStop, Thresholds};
use crate::names::Names;
use crate::observe::Objects;
use crate::observed::{Claim, Members, Observed, Ordinal, Unanswered, VolumeForm};
use crate::plan::{Action, Plan, Refusal, WaitingOn};
use crate::recovery::Consent;
use crate::schedule::Window;
use crate::tls::{Profiles, Switch, Transport, chosen_profiles};
use crate::validate::Problem;
pub use delete::grace_seconds;
pub(crate) use recovery::{Loss, Remnant};
pub use replace::is_due as is_replacing;
pub use roll::Reason;
pub(crate) use roll::{Roll, Trial};
pub(crate) use volumes::Volumes;
pub use volumes::resizes;

/// What is wanted of members and volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goal {
    /// How many members; 0 stops the cluster.
    pub size: u8,
    pub paused: bool,
    pub on_stop: OnStop,
    pub on_delete: OnDelete,
    /// The UID of the previous cluster whose volumes are adopted.
    pub adopts: Option<String>,
    /// What members are made from; none while that is not known.
    #[serde(default)]
    pub form: Option<Wanted>,
    /// What volumes should be like; none while that is not known.
    #[serde(default)]
    pub volumes: Option<VolumeForm>,
    #[serde(default)]
    pub disruption_budget: bool,
    #[serde(default)]
    pub supervised: bool,
    #[serde(default)]
    pub asked: Asked,
    /// When members may be restarted for reasons of the operator, where that stops writes.
    #[serde(default)]
    pub windows: Vec<Window>,
    /// How long the node of a member can be lost before the member is replaced.
    #[serde(default = "default_node_loss_grace")]
    pub node_loss_grace_seconds: i64,
    /// To lose data, while a quorum is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Consent>,
    /// The size at which the database of a member is full, in bytes, if the member does not report it.
    #[serde(default = "default_quota")]
    pub quota_bytes: u64,
    /// How often the data of members is compared; none if never.
    #[serde(default = "default_consistency_interval")]
    pub consistency_interval_seconds: Option<i64>,
    /// When members are defragmented; none if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defragmentation: Option<Thresholds>,
    /// The oldest agent that the operator can work with.
    #[serde(default = "Protocol::lowest")]
    pub lowest_agent: Protocol,
    /// What the Secrets have to hold; empty without TLS.
    #[serde(default, skip_serializing_if = "Profiles::is_empty")]
    pub certificates: Profiles,
    #[serde(default, skip_serializing_if = "auth::Wanted::is_unknown")]
    pub auth: auth::Wanted,
    /// From what is in effect to what the spec asks for; none while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<Switch>,
}

/// That of etcd.
fn default_quota() -> u64 {
    2 << 30
}

fn default_consistency_interval() -> Option<i64> {
    ConsistencyCheck::default().interval()
}

fn default_node_loss_grace() -> i64 {
    Repair::default().node_loss_grace_seconds
}

impl From<&Intent> for Goal {
    fn from(intent: &Intent) -> Self {
        Self {
            size: intent.size,
            paused: intent.paused,
            on_stop: intent.storage.on_stop,
            on_delete: intent.storage.on_delete,
            adopts: intent.adopts.clone(),
            form: Some(Wanted::from(&intent.form)),
            volumes: Some(intent.storage.volumes()),
            disruption_budget: intent.disruption_budget,
            supervised: intent.supervised,
            asked: intent.asked.clone(),
            windows: intent.windows.clone(),
            node_loss_grace_seconds: intent.node_loss_grace_seconds,
            recovery: intent.recovery.clone(),
            quota_bytes: intent.form.options.quota_backend_bytes.unwrap_or_else(default_quota),
            consistency_interval_seconds: intent.consistency_interval_seconds,
            defragmentation: intent.defragmentation,
            lowest_agent: Protocol::lowest(),
            certificates: Profiles::new(),
            auth: intent.auth.clone(),
            switch: Some(intent.switch.clone()),
        }
    }
}

impl Goal {
    /// With the certificates that pods need, now and in the end. While the spec breaks rules, it is what is in effect.
    /// `nodes` are the addresses of nodes by which clients connect.
    pub fn of(
        spec: Result<&Intent, &[Problem]>,
        objects: &Objects,
        names: &Names,
        nodes: &BTreeSet<IpAddr>,
    ) -> Self {
        let in_effect = |_| Self::in_effect(&objects.cluster.spec, objects.replicas());
        let transport = objects.transports().reduce(Transport::or_more).unwrap_or_default();
        let certificates = chosen_profiles(names, transport, &objects.cluster.spec.security.tls, nodes);
        Self { certificates, ..spec.map_or_else(in_effect, Self::from) }
    }

    /// So many members, and nothing else that is special. Tests begin with it.
    pub fn of_size(size: u8) -> Self {
        Self {
            size,
            paused: false,
            on_stop: OnStop::Retain,
            on_delete: OnDelete::Retain,
            adopts: None,
            form: None,
            volumes: None,
            disruption_budget: true,
            supervised: false,
            asked: Asked::default(),
            windows: Vec::new(),
            node_loss_grace_seconds: default_node_loss_grace(),
            recovery: None,
            quota_bytes: default_quota(),
            consistency_interval_seconds: default_consistency_interval(),
            defragmentation: None,
            lowest_agent: Protocol::lowest(),
            certificates: Profiles::new(),
            auth: auth::Wanted::Unknown,
            switch: None,
        }
    }

    /// What is in effect while the spec breaks rules: as many members as the StatefulSet keeps pods. Lost members are
    /// replaced; nothing is scaled, stopped or bootstrapped.
    pub fn in_effect(spec: &EtcdClusterSpec, replicas: u8) -> Self {
        let maintenance = spec.maintenance.clone().unwrap_or_default();
        let interval = maintenance.consistency_check.unwrap_or_default().interval();
        let grace = spec.repair.clone().unwrap_or_default().node_loss_grace_seconds;
        Self {
            size: replicas,
            paused: spec.paused || replicas == 0,
            on_stop: OnStop::RetainAll,
            on_delete: spec.storage.on_delete,
            adopts: None,
            form: None,
            volumes: None,
            disruption_budget: spec.pod_disruption_budget == DisruptionBudget::Enabled,
            supervised: false,
            asked: Asked::default(),
            windows: Vec::new(),
            node_loss_grace_seconds: grace.max(MIN_NODE_LOSS_GRACE_SECONDS),
            recovery: None,
            quota_bytes: default_quota(),
            consistency_interval_seconds: interval,
            defragmentation: None,
            lowest_agent: Protocol::lowest(),
            certificates: Profiles::new(),
            auth: auth::Wanted::Unknown,
            switch: None,
        }
    }
}

/// What the operator does for the databases of members.
#[derive(Clone, Copy)]
struct Care<'a> {
    quota_bytes: u64,
    /// Whether their data is compared.
    compares: bool,
    /// When members that are fragmented may be defragmented.
    windows: &'a [Window],
}

/// What a cluster that has bootstrapped is led to.
#[derive(Clone, Copy)]
struct Wishes<'a> {
    size: u8,
    node_loss_grace_seconds: i64,
    /// None while the cluster stops.
    care: Option<Care<'a>>,
    asked: &'a Asked,
    switch: Option<&'a Switch>,
    auth: &'a auth::Wanted,
    roll: Option<&'a Roll<'a>>,
    volumes: Option<&'a Volumes<'a>>,
}

/// The next step. The same snapshot gives the same plan, and a settled cluster an empty one.
pub fn decide(goal: &Goal, seen: &Observed) -> Plan {
    if seen.cluster.deleting {
        return delete::plan(goal, seen);
    }
    if goal.paused {
        return Plan::wait(WaitingOn::Unpause);
    }
    if !seen.cluster.finalizer {
        return Plan::act(Action::AddFinalizer);
    }
    let restored_by = seen.cluster.restore.as_ref().filter(|_| seen.cluster.formed.is_none());
    // What was restored serves once before it is stopped: a stop can delete it.
    if goal.size == 0 && restored_by.is_some() {
        return decide(&Goal { size: 1, ..goal.clone() }, seen);
    }
    if let Some(plan) = replace::unclear_volumes(goal, seen).or_else(|| foreign_volumes(goal, seen)) {
        return plan;
    }
    let certificates = certificates::missing(goal, seen);
    if !certificates.is_settled() {
        return certificates;
    }
    let successors = certificates::successors(goal, seen);
    if !successors.is_settled() {
        return successors;
    }
    let facts = assess(seen);
    if let Some(cluster) = facts.cluster.filter(|_| seen.cluster.formed.is_none()) {
        return Plan::act(Action::RecordFormed { cluster });
    }
    // A volume with restored data has a label, and then its member starts as after a stop. Nothing else bootstraps the cluster.
    if let Some(restore) = restored_by.filter(|_| facts.quorum == Quorum::NotBootstrapped) {
        return Plan::wait(WaitingOn::Restore { restore: restore.clone() });
    }
    match replace::plan(goal, &facts) {
        None => lead(goal, &facts),
        Some(Ok(plan)) => plan,
        // Everything else goes on, and nothing else is announced as being over.
        Some(Err(obstacle)) => lead(goal, &facts).then(Plan::wait(obstacle)),
    }
}

/// What is certain is done: the concerns about members, and what is left beside them.
fn lead(goal: &Goal, facts: &Assessment<'_>) -> Plan {
    let seen = facts.seen;
    // A stop restarts nothing that serves, but it needs pods that can start: without a quorum, and for the last member.
    let stuck = stop::needs_starts(goal, facts);
    let roll = Roll::new(goal, facts).filter(|_| goal.size > 0 || stuck);
    let without_members = roll.as_ref().filter(|_| facts.listed().is_none() || goal.size == 0);
    let forms = without_members.map(Roll::keep_forms).filter(|plan| !plan.is_settled());
    let urgent = forms.or_else(|| recovery::plan(goal, facts));
    if let Some(plan) = urgent.or_else(|| without_members.and_then(Roll::mend)) {
        return plan;
    }
    if seen.is_access_denied() {
        return certificates::renewals(goal, seen).then(authentication::without_access(facts));
    }
    let volumes = Volumes::new(goal, seen);
    if facts.quorum == Quorum::NotBootstrapped {
        return bootstrap::plan(goal, seen, volumes.as_ref());
    }
    if let Some(ending) = bootstrap::end_of_order(goal, seen) {
        return ending;
    }
    let plan = match goal.size {
        0 => stop::plan(goal, facts),
        size => {
            let (asked, switch) = (&goal.asked, goal.switch.as_ref());
            let (auth, roll) = (&goal.auth, roll.as_ref());
            let node_loss_grace_seconds = goal.node_loss_grace_seconds;
            let wishes = Wishes {
                size,
                node_loss_grace_seconds,
                care: Some(Care {
                    quota_bytes: goal.quota_bytes,
                    compares: goal.consistency_interval_seconds.is_some(),
                    windows: &goal.windows,
                }),
                asked,
                switch,
                auth,
                roll,
                volumes: volumes.as_ref(),
            };
            let plan = membership::plan(wishes, facts);
            // What is impossible blocks nothing else.
            let refusals = volumes.filter(|_| plan.is_settled()).map(|it| it.refusals(facts.listed()));
            plan.then(refusals.unwrap_or_default())
        }
    };
    // What is left of an earlier trial disturbs nothing, so no step waits until it is deleted.
    if !plan.actions.is_empty() {
        return plan;
    }
    let renewals = certificates::renewals(goal, seen).then(authentication::next(goal, facts));
    let leftovers = roll::leftovers(goal, roll.as_ref(), seen);
    let mut rotation = certificates::rotation(goal, seen);
    // Nothing is under way while members wait for consent to their restarts.
    if plan.waiting.iter().any(WaitingOn::is_for_users) {
        rotation.waiting.clear();
    }
    renewals.then(leftovers).then(plan).then(rotation)
}

/// Volumes of a previous cluster are adopted only if a user asks for it, and only before this cluster has anything of its
/// own: its data would be lost. The operator waits for a volume that is being deleted: a cluster that adopted it would lose
/// its data.
fn foreign_volumes(goal: &Goal, seen: &Observed) -> Option<Plan> {
    let foreign = seen.claims.iter().filter(|(_, claim)| claim.cluster_uid != seen.cluster.uid);
    let (terminating, staying): (Vec<_>, Vec<_>) = foreign.partition(|(_, claim)| claim.terminating);
    let ordinals = |claims: &[(&Ordinal, &Claim)]| claims.iter().map(|&(&ordinal, _)| ordinal).collect();
    let adoptable = seen.cluster.formed.is_none() && seen.set.is_none() && seen.order.is_none();
    let asked_for = |claim: &Claim| adoptable && goal.adopts.as_ref() == Some(&claim.cluster_uid);
    if let Some((_, first)) = staying.first().filter(|_| !staying.iter().all(|(_, claim)| asked_for(claim))) {
        let cluster_uid = first.cluster_uid.clone();
        let ordinals = ordinals(&staying);
        return Some(Plan::refuse(Refusal::ForeignVolumes { ordinals, cluster_uid, adoptable }));
    }
    let adopt =
        |&(&ordinal, claim): &(&Ordinal, &Claim)| Action::AdoptClaim { ordinal, uid: claim.uid.clone() };
    let mut plan = Plan { actions: staying.iter().map(adopt).collect(), ..Plan::default() };
    if !terminating.is_empty() {
        plan.waiting.push(WaitingOn::ClaimsGone { ordinals: ordinals(&terminating) });
    }
    (!plan.is_settled()).then_some(plan)
}

/// The members, if a quorum lists them and each has a pod of this cluster; otherwise the plan without them.
fn our_members<'a>(
    facts: &Assessment<'a>,
    unproven: impl FnOnce(Unanswered) -> Plan,
) -> Result<&'a Members, Plan> {
    match facts.quorum {
        Quorum::Held(members) => match members.list.iter().find(|(_, member)| member.ordinal.is_none()) {
            Some((&member, _)) => Err(Plan::refuse(Refusal::UnknownMember { member })),
            None => Ok(members),
        },
        Quorum::OtherCluster { expected, found } => {
            Err(Plan::refuse(Refusal::ForeignCluster { expected, found }))
        }
        Quorum::Unproven(cause) => Err(unproven(cause.clone())),
        Quorum::NotBootstrapped => Err(unproven(Unanswered::NoMember)),
    }
}

/// Sets the number of pods, unless it is so already.
fn set_replicas(seen: &Observed, replicas: u8) -> Plan {
    match &seen.set {
        // It is created again when it is gone.
        Some(set) if set.terminating => Plan::wait(WaitingOn::SetGone),
        Some(set) if set.replicas == replicas => Plan::default(),
        Some(_) | None => Plan::act(Action::SetReplicas { replicas }),
    }
}

/// Deletes the claims of these ordinals, and waits for them to be gone.
fn delete_claims(seen: &Observed, which: impl Fn(Ordinal) -> bool) -> Plan {
    let mut plan = Plan::default();
    let mut ordinals = Vec::new();
    for (&ordinal, claim) in seen.claims.iter().filter(|(ordinal, _)| which(**ordinal)) {
        if !claim.terminating {
            plan.actions.push(Action::DeleteClaim { ordinal, uid: claim.uid.clone() });
        }
        ordinals.push(ordinal);
    }
    if !ordinals.is_empty() {
        plan.waiting.push(WaitingOn::ClaimsGone { ordinals });
    }
    plan
}

fn pods_gone(seen: &Observed) -> Plan {
    let ordinals: Vec<Ordinal> = seen.pods.keys().copied().collect();
    if ordinals.is_empty() { Plan::default() } else { Plan::wait(WaitingOn::PodsGone { ordinals }) }
}
