//! The status that an operator writes. The same round computes it as in the real operator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use etcd_operator_core::api::{EtcdCluster, EtcdClusterSpec};
use etcd_operator_core::decide::Goal;
use etcd_operator_core::intent::Intent;
use etcd_operator_core::names::Names;
use etcd_operator_core::observe::Objects;
use etcd_operator_core::observed::Observed;
use etcd_operator_core::plan::Plan;
use etcd_operator_core::round::{Considered, Effect, Round, SideWrite, Work, show_the_same};
use etcd_operator_core::status::Trouble;
use etcd_operator_core::validate::validate;
use jiff::SignedDuration;

use crate::kube::Cluster;
use crate::observe::uid;

/// A status also depends on how long something lasts, so it is computed again after this time although nothing changed.
const AT_LEAST_EVERY: SignedDuration = SignedDuration::from_secs(2);

#[derive(Clone)]
pub struct Reporter {
    pub names: Names,
    /// Of an EtcdCluster of which only the goal matters: the status depends on little else.
    intent: Intent,
    /// Nothing else is written beside a plan here.
    objects: Objects,
    last: Option<Basis>,
}

/// What a status was computed from.
#[derive(Clone, Debug)]
struct Basis {
    cluster: (u64, u64),
    seen: Observed,
    plan: Plan,
    trouble: Option<Trouble>,
}

impl Default for Reporter {
    fn default() -> Self {
        let cluster = EtcdCluster::new("kv", EtcdClusterSpec::default());
        let intent = validate(&cluster).expect("the default is valid");
        let objects = Objects {
            cluster: Arc::new(cluster),
            order: None,
            record: None,
            set: None,
            pods: BTreeMap::new(),
            preflights: BTreeMap::new(),
            claims: BTreeMap::new(),
            restored: None,
            elsewhere: Vec::new(),
            secrets: BTreeMap::new(),
            given: None,
            root_password: None,
            listed: BTreeMap::new(),
            services: BTreeMap::new(),
            budget: None,
            network_policy: None,
            certificate: Default::default(),
            pod_monitor: Default::default(),
            nodes: Default::default(),
            backups: Vec::new(),
            taken: BTreeSet::new(),
        };
        let names = Names::new("sim", "kv", "cluster.local");
        Self { names, intent, objects, last: None }
    }
}

impl Reporter {
    /// What the round does, with the status beside it if there is a new one. To compute one is expensive, so the same is
    /// not computed twice.
    pub fn work(
        &mut self,
        round: &mut Round,
        cluster: &Cluster,
        (goal, seen, plan): (&Goal, &Observed, &Plan),
    ) -> (Option<Effect>, Work) {
        let identity = (cluster.uid, cluster.version);
        let same = |last: &Basis| {
            last.cluster == identity
                && seen.now.duration_since(last.seen.now) < AT_LEAST_EVERY
                && (last.trouble.as_ref(), &last.plan) == (round.trouble(), plan)
                && show_the_same(&last.seen, seen)
        };
        if self.last.as_ref().is_some_and(same) {
            return (None, Work { beside: Vec::new(), steps: plan.actions.clone() });
        }
        let trouble = round.trouble().cloned();
        self.last = Some(Basis { cluster: identity, seen: seen.clone(), plan: plan.clone(), trouble });
        (self.intent.paused, self.intent.size) = (goal.paused, goal.size);
        self.intent.disruption_budget = goal.disruption_budget;
        let object = Arc::make_mut(&mut self.objects.cluster);
        object.metadata.uid = Some(uid("cluster", cluster.uid));
        object.metadata.resource_version = Some(cluster.version.to_string());
        object.spec.security.tls.clone_from(&cluster.tls);
        if let Some(switch) = &goal.switch {
            self.intent.form.transport = switch.form;
            self.intent.switch.clone_from(switch);
        }
        object.status = cluster.status.as_deref().cloned();
        let (spec, names, objects) = (Ok(&self.intent), &self.names, &self.objects);
        let mut work = round.work(&Considered { goal, spec, names, desired: None, objects, seen, plan });
        let status = work.beside.iter().position(|effect| effect.write == SideWrite::Status);
        (status.map(|it| work.beside.swap_remove(it)), work)
    }
}
