//! What a round sends: writes beside the plan, side by side, and then the steps of the plan, one after the other.

use std::collections::BTreeSet;

use super::{Outcome, Round, SideWrite, name_taken};
use crate::agent::News;
use crate::decide::{Goal, resizes};
use crate::desired::{Desired, agents, not_applied};
use crate::form::Record;
use crate::intent::Intent;
use crate::names::Names;
use crate::observe::Objects;
use crate::observed::{Observed, Ordinal};
use crate::plan::{Action, Plan};
use crate::request::{Object, Request, report, request};
use crate::status::{self, Basis};
use crate::surroundings::{quick_ends, surroundings};
use crate::validate::Problem;

/// A plan, and all that led to it.
pub struct Considered<'a> {
    pub goal: &'a Goal,
    pub spec: Result<&'a Intent, &'a [Problem]>,
    pub names: &'a Names,
    /// None for a spec that breaks the rules.
    pub desired: Option<&'a Desired<'a>>,
    pub objects: &'a Objects,
    pub seen: &'a Observed,
    pub plan: &'a Plan,
}

#[derive(Debug, Default)]
pub struct Work {
    pub beside: Vec<Effect>,
    pub steps: Vec<Action>,
}

/// One write beside the steps of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    pub write: SideWrite,
    pub request: Request,
}

impl Round {
    /// Each object is written at most once in a round: a second write would depend on a version that the first one changed.
    /// So a step that changes the EtcdCluster comes without a status, unless it failed before and the status does not
    /// report that yet: then it comes without the step.
    pub fn work(&mut self, considered: &Considered<'_>) -> Work {
        let Considered { plan, seen, .. } = considered;
        self.reported = self.writes.failed();
        let mut beside: Vec<Effect> = self.report(considered).into_iter().collect();
        beside.extend(self.objects(considered));
        beside.extend(messages(considered));
        self.writes.forget_all_but(beside.iter().map(|effect| &effect.write));
        beside.retain(|effect| self.writes.is_due(&effect.write, seen.now));
        let is_report = |effect: &Effect| effect.write == SideWrite::Status;
        let changes_cluster = plan.actions.first().is_some_and(Action::changes_cluster);
        if changes_cluster && self.trouble.is_some() && beside.iter().any(is_report) {
            return Work { beside, steps: Vec::new() };
        }
        beside.retain(|effect| !(changes_cluster && is_report(effect)));
        Work { beside, steps: plan.actions.clone() }
    }

    fn report(&self, considered: &Considered<'_>) -> Option<Effect> {
        let &Considered { goal, spec, names, desired, objects, seen, plan } = considered;
        let set = objects.set.as_deref().zip(desired);
        let differing = set.map(|(set, desired)| not_applied(set, &desired.claim()));
        let record = objects.record.as_deref().and_then(Record::parse).zip(spec.ok());
        let edited = record.map(|(record, intent)| intent.form.differences(&record.form));
        let basis = Basis {
            goal,
            spec,
            names,
            seen,
            plan,
            trouble: self.trouble.as_ref(),
            failed_writes: &self.reported,
            not_applied: &differing.unwrap_or_default(),
            edited: &edited.unwrap_or_default(),
            agents: &agents(objects),
        };
        let status = status::of_cluster(&objects.cluster, &basis, seen.now)?;
        Some(Effect { write: SideWrite::Status, request: Request::Kube(report(&objects.cluster, status)?) })
    }

    /// Where the name is taken, nothing is sent: what was observed is the answer. What the plan itself writes follows in a
    /// later round.
    fn objects(&mut self, considered: &Considered<'_>) -> Vec<Effect> {
        let Considered { goal, names, desired, objects, seen, plan, .. } = considered;
        let mut writes = match desired {
            Some(desired) if !goal.paused && !seen.cluster.deleting => {
                surroundings(desired, &goal.certificates, objects, seen)
            }
            Some(_) | None => Vec::new(),
        };
        writes.extend(resizes(goal, seen));
        writes.extend(quick_ends(objects));
        let of_plan = |action: &Action| match request(action, seen, 0) {
            Some(Request::Kube(write)) => Some(write.object),
            Some(Request::Etcd(_) | Request::Tell(..)) | None => None,
        };
        let planned: BTreeSet<Object> = plan.actions.iter().filter_map(of_plan).collect();
        writes.retain(|write| !planned.contains(&write.object));
        let mut effects = Vec::new();
        for request in writes {
            let write = SideWrite::Object(request.object.title(names));
            let taken = seen.taken.iter().find(|taken| taken.object == request.object);
            let trouble = taken.map(|taken| name_taken(taken, names));
            if let Some(trouble) = trouble.filter(|it| self.writes.is_news(&write, it, seen.now)) {
                self.writes.record(write.clone(), Outcome::NotDone(trouble), seen.now);
            }
            effects.push(Effect { write, request: Request::Kube(request) });
        }
        effects
    }
}

/// Waiting agents get the addresses of the others, and read the members again. None does while there is something to do: an
/// etcd that joins must list the same members as those that it joins, so none can be about to be added. An agent may resolve
/// the name of a pod at once, so it gets no address whose name might not resolve yet.
fn messages(considered: &Considered<'_>) -> Vec<Effect> {
    let Considered { names, objects, seen, plan, .. } = considered;
    if !plan.actions.is_empty() {
        return Vec::new();
    }
    let published = seen.pods.values().filter(|pod| pod.published);
    let addresses = published.filter_map(|pod| objects.listed.get(&pod.uid)).flatten();
    let news = News { addresses: addresses.copied().collect(), ..News::default() };
    let effect = |pod: Ordinal| Effect {
        write: SideWrite::Message(names.pod(pod)),
        request: Request::Tell(pod, news.clone()),
    };
    seen.waiting_agents().map(effect).collect()
}

#[cfg(test)]
mod tests;
