//! etcd's own authentication is changed whenever there is nothing else to do, also while a plan waits: it disturbs no member, and
//! what keeps it from being changed keeps nothing else.

use super::Goal;
use super::membership::keep_pods;
use crate::assess::Assessment;
use crate::auth;
use crate::plan::{Action, Plan, Refusal};

pub fn next(goal: &Goal, facts: &Assessment<'_>) -> Plan {
    let step = auth::next(&goal.auth, facts.seen).filter(|_| goal.size > 0);
    match facts.listed().zip(step) {
        Some((members, step)) => Plan::act(Action::ChangeAuth { step, cluster: members.cluster }),
        None => Plan::default(),
    }
}

/// etcd would reject every change, and perhaps does not even list its members.
pub fn without_access(facts: &Assessment<'_>) -> Plan {
    let identified = auth::clients_use_tls(facts.seen);
    keep_pods(facts.seen).then(Plan::refuse(Refusal::AccessDenied { identified }))
}
