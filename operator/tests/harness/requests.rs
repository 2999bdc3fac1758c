//! Faults at single requests, reads and watches among them.

use std::time::{Duration, Instant};

use etcd_operator::client::Verb;

use crate::faults::{Fault, Faults, Rule};
use crate::scenario::Scenario;
use crate::steps::Step;
use crate::sweep::{SCALE, check, undisturbed};
use crate::world::world;

const CREATE_ONE: Scenario = Scenario::new("create 1", &[Step::Size(1)]);

const fn rule(verb: Verb, resource: &'static str, nth: usize, fault: Fault) -> Rule {
    Rule { verb, resource, nth, fault }
}

/// Each happens in a run of its own, and changes nothing but the time that it takes.
pub fn fail() {
    let runs: &[&[Rule]] = &[
        &[rule(Verb::Create, "services", 1, Fault::Answer(429))],
        &[rule(Verb::Create, "statefulsets", 1, Fault::Answer(503))],
        &[rule(Verb::Create, "statefulsets", 1, Fault::DropBefore)],
        &[rule(Verb::Update, "configmaps", 1, Fault::Answer(409))],
        &[rule(Verb::Patch, "etcdclusters/status", 1, Fault::Answer(409))],
        &[rule(Verb::Patch, "etcdclusters/status", 1, Fault::LoseAnswer)],
        &[rule(Verb::Patch, "etcdclusters", 1, Fault::Delay(Duration::from_secs(1)))],
        &[rule(Verb::Create, "configmaps", 1, Fault::Hang)],
        &[rule(Verb::Get, "statefulsets", 1, Fault::Answer(503))],
        &[rule(Verb::Get, "configmaps", 2, Fault::Hang)],
        &[rule(Verb::List, "pods", 1, Fault::Answer(500))],
        &[rule(Verb::Watch, "pods", 1, Fault::Answer(410))],
        // Back in time: the watch expires when there is a pod, and the list that follows is the one from before.
        &[
            rule(Verb::Watch, "pods", 1, Fault::Expire { after: 2 }),
            rule(Verb::List, "pods", 2, Fault::OldList),
        ],
    ];
    run(CREATE_ONE, runs);
}

/// It is noticed when the API server should have ended it.
pub fn freeze() {
    let limit = Duration::from_secs(120);
    let runs: &[&[Rule]] = &[
        &[rule(Verb::Watch, "pods", 1, Fault::Freeze { after: 0 })],
        &[rule(Verb::Watch, "etcdclusters", 1, Fault::Freeze { after: 0 })],
    ];
    run(Scenario { limit, ..CREATE_ONE }, runs);
}

/// A write that was decided on an object as it was read is rejected when somebody else has changed the object since.
pub fn overtaken() {
    let world = world();
    world.runtime.block_on(async {
        let make = |namespace: &str| Faults::overtaking(namespace, world.admin.clone());
        let ran = SCALE.run(world, make, None).await.unwrap_or_else(|why| panic!("{why}"));
        // What pods, StatefulSets and orders are deleted by is their UID, and of Services and budgets each writer owns its
        // own fields.
        let conditional = [
            "delete persistentvolumeclaims",
            "patch etcdclusters",
            "patch etcdclusters/status",
            "patch persistentvolumeclaims",
            "patch statefulsets",
            "update configmaps",
        ];
        for write in conditional {
            let statuses: Vec<u16> =
                ran.overtaken.iter().filter(|(what, _)| what == write).map(|(_, status)| *status).collect();
            assert!(!statuses.is_empty() && statuses.iter().all(|it| *it == 409), "{write}: {statuses:?}");
        }
    });
}

fn run(scenario: Scenario, runs: &[&[Rule]]) {
    let world = world();
    world.runtime.block_on(async {
        let reference = undisturbed(scenario).await;
        let mut failures = Vec::new();
        for rules in runs {
            let begun = Instant::now();
            let make = |namespace: &str| Faults::at_requests(namespace, rules.to_vec());
            let result = check(&reference, scenario.run(world, make, Some(&reference)).await);
            println!("{rules:?}: {:.1} s", begun.elapsed().as_secs_f64());
            failures.extend(result.map_err(|why| format!("{rules:?}: {why}")).err());
        }
        assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    });
}
