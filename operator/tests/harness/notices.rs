//! What the operator learns from watches and streams is acted on and reported at once, not at the next observation.

use std::time::Duration;

use crate::faults::Faults;
use crate::scenario::Scenario;
use crate::steps::Step;
use crate::world::world;

/// A settled cluster is observed again after seven seconds at the earliest, if nothing wakes its worker.
const AT_ONCE: Duration = Duration::from_secs(5);

pub fn deleted_service() {
    at_once(&[Step::Size(1), Step::DeleteService("kv-client"), Step::DeleteService("kv-peer")]);
}

/// Kubernetes does not report it: only the stream to the member ends.
pub fn failed_node() {
    at_once(&[Step::Size(3), Step::FailNode(1)]);
}

/// No kubelet ends the pod, so it stays until somebody else does, and no other takes its place meanwhile.
pub fn pods_of_failed_nodes() {
    const THREE: [Step; 3] = [Step::Size(3), Step::FailNode(2), Step::DeletePod(2)];
    let forced = &[THREE[0], THREE[1], THREE[2], Step::ForceDeletion(2)];
    let returned = &[THREE[0], THREE[1], THREE[2], Step::ReturnNode(2)];
    for steps in [forced, returned] {
        run(Scenario::new("", steps));
    }
}

fn at_once(steps: &'static [Step]) {
    run(Scenario { setup: 1, limit: AT_ONCE, ..Scenario::new("", steps) });
}

fn run(scenario: Scenario) {
    let world = world();
    world.runtime.block_on(async {
        let ran = scenario.run(world, Faults::none, None).await;
        let ran = ran.unwrap_or_else(|why| panic!("{why}"));
        println!("{:?}: {:.2?} s", scenario.steps, ran.seconds);
    });
}
