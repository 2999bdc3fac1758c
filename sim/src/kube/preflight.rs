//! Pods that try a form on a node: they take their time, and say what a real one would.

use etcd_operator_core::observed::{Blocked, Exit, Ordinal, PreflightState};

use super::Kube;
use crate::etcd::Tick;
use crate::form::{Flaw, Form};
use crate::random::Random;

#[derive(Clone, Debug, PartialEq)]
pub struct Preflight {
    pub uid: u64,
    /// The EtcdCluster that owns it, by its UID.
    pub cluster: u64,
    pub form: Form,
    pub node: u64,
    pub created: Tick,
    pub state: PreflightState,
}

/// How often, out of a thousand ticks, a kubelet has a result.
const RESULT: u64 = 150;
/// How often, out of a thousand times, it has none to give, because the node ends the pod.
const INTERRUPTED: u64 = 50;

impl Kube {
    pub fn create_preflight(&mut self, ordinal: Ordinal, cluster: u64, form: Form, node: u64, now: Tick) {
        let (uid, state) = (self.uid(), PreflightState::Pending);
        let preflight = Preflight { uid, cluster, form, node, created: now, state };
        self.objects.preflights.insert(ordinal, preflight);
    }

    /// Nothing is reported from a node that is down.
    pub(super) fn run_preflights(&mut self, random: &mut Random, now: Tick) {
        let Self { objects, nodes_down, .. } = self;
        for pod in objects.preflights.values_mut().filter(|pod| pod.state == PreflightState::Pending) {
            if !nodes_down.contains_key(&pod.node) && now > pod.created && random.chance(RESULT) {
                let interrupted = random.chance(INTERRUPTED);
                pod.state = if interrupted {
                    PreflightState::Interrupted("Evicted".into())
                } else {
                    result(pod.form)
                };
            }
        }
    }
}

fn result(form: Form) -> PreflightState {
    match form.flaw {
        Some(Flaw::ImageMissing) => {
            let (reason, message) = ("ImagePullBackOff".into(), String::new());
            PreflightState::Blocked(Blocked::Container { reason, message })
        }
        Some(Flaw::Rejected) => PreflightState::Failed(Exit { code: 1, message: String::new() }),
        Some(Flaw::Crashes) | None => PreflightState::Passed,
    }
}
