//! One event for each step.

use crate::api::EtcdClusterStatus;
use crate::names::Names;
use crate::observed::Observed;
use crate::plan::Action;

pub struct Event {
    pub warning: bool,
    pub reason: &'static str,
    pub action: &'static str,
    pub note: String,
}

pub fn of_action(action: &Action, _: &Names, _: &Observed) -> Option<Event> {
    Some(Event { warning: false, reason: "Step", action: "Step", note: action.to_string() })
}

pub fn of_change(_: Option<&EtcdClusterStatus>, _: &EtcdClusterStatus) -> Vec<Event> {
    Vec::new()
}
