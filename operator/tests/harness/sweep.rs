//! Every effect of a scenario, met by every kind of fault: what comes out has to be what comes out undisturbed.

use std::time::{Duration, Instant};

use crate::faults::kube::TEMPLATE;
use crate::faults::{Fault, Faults, Hits};
use crate::scenario::{Ran, Scenario, difference, lines};
use crate::steps::{Step, Volumes};
use crate::world::world;

pub const CREATE: Scenario = Scenario::new("create 3", &[Step::Size(3)]);
pub const SCALE: Scenario = Scenario {
    keeps_serving: true,
    ..Scenario::new("scale 1, 3, 1", &[Step::Size(1), Step::Size(3), Step::Size(1)])
};
const STOP: Scenario = Scenario { setup: 1, ..Scenario::new("stop 3", &[Step::Size(3), Step::Size(0)]) };
const START: Scenario =
    Scenario { setup: 2, ..Scenario::new("start 3", &[Step::Size(1), Step::Size(0), Step::Size(3)]) };
const DELETE: Scenario =
    Scenario { setup: 1, on_delete: "Delete", ..Scenario::new("delete 3", &[Step::Size(3), Step::Delete]) };
const ADOPT: Scenario =
    Scenario { setup: 2, ..Scenario::new("adopt 3", &[Step::Size(3), Step::Delete, Step::Adopt(3)]) };
const REPLACE: Scenario =
    Scenario { setup: 1, ..Scenario::new("replace 1 of 3", &[Step::Size(3), Step::LoseVolume(2)]) };
pub const ROLL: Scenario = Scenario {
    setup: 1,
    keeps_serving: true,
    ..Scenario::new("roll 3", &[Step::Size(3), Step::Edit(r#"{"options": {"snapshotCount": 5000}}"#)])
};
const ROLL_ONE: Scenario = Scenario {
    setup: 1,
    ..Scenario::new("roll 1", &[Step::Size(1), Step::Edit(r#"{"options": {"snapshotCount": 5000}}"#)])
};
/// No member stops, a pod that is deleted returns in the old form, and another edit is rolled out.
const MISSING_IMAGE: Scenario = Scenario {
    setup: 1,
    ..Scenario::new(
        "missing image 3",
        &[
            Step::Size(3),
            Step::RefusedEdit(r#"{"repository": "example.org/missing"}"#),
            Step::LosePod(1),
            Step::Edit(r#"{"repository": "quay.io/coreos/etcd", "options": {"snapshotCount": 5000}}"#),
        ],
    )
};
/// etcd itself refuses the arguments, and then gets others.
pub const REFUSED: Scenario = Scenario {
    setup: 1,
    keeps_serving: true,
    ..Scenario::new(
        "refused 3",
        &[
            Step::Size(3),
            Step::RefusedEdit(r#"{"options": {"extraArguments": {"no-such-flag": "1"}}}"#),
            Step::Edit(r#"{"options": {"extraArguments": {"no-such-flag": null, "max-txn-ops": "256"}}}"#),
        ],
    )
};
/// It passes its trial and stops at the first member, another pod returns in the old form, and taking the edit back heals it.
const CRASH: Scenario = Scenario {
    setup: 2,
    ..Scenario::new(
        "crash 3",
        &[
            Step::Size(3),
            Step::Lead(0),
            Step::BadEdit(r#"{"options": {"extraArguments": {"log-outputs": "/no/such/directory/log"}}}"#),
            Step::LosePod(0),
            Step::Edit(r#"{"options": {"extraArguments": null}}"#),
        ],
    )
};
/// Certificates of another lifetime, without a restart.
pub const REISSUE: Scenario = Scenario {
    setup: 1,
    keeps_serving: true,
    ..Scenario::new(
        "reissue 3",
        &[
            Step::Size(3),
            Step::Reissue(r#"{"security": {"tls": {"certificates": {"validitySeconds": 86400}}}}"#),
        ],
    )
};
/// Authentication, and members that join under it.
pub const AUTH: Scenario = Scenario {
    setup: 1,
    keeps_serving: true,
    ..Scenario::new(
        "auth 1, 3",
        &[
            Step::Size(1),
            Step::Auth(r#"{"security": {"auth": {"enabled": true, "rootPasswordSecret": "root-password"}}}"#),
            Step::Size(3),
        ],
    )
};
/// Two restarts of each member, in which members always accept each other. Without TLS for clients nothing waits for these.
pub const ROTATE: Scenario = Scenario {
    setup: 1,
    keeps_serving: true,
    tls: r#"{"clientTLSEnabled": false}"#,
    limit: Duration::from_secs(90),
    ..Scenario::new("rotate 3", &[Step::Size(3), Step::Rotate("first")])
};
/// As all clusters of earlier versions.
const PLAIN_TEXT: &str = r#"{"enabled": false}"#;
const PLAIN: Scenario = Scenario { name: "scale 1, 3, 1 in plain text", tls: PLAIN_TEXT, ..SCALE };
/// From plain text to TLS, with plain clients until they are refused, and back.
pub const SWITCH: Scenario = Scenario {
    setup: 1,
    keeps_serving: true,
    tls: PLAIN_TEXT,
    limit: Duration::from_secs(240),
    ..Scenario::new(
        "switch 3",
        &[
            Step::Size(3),
            Step::Edit(r#"{"security": {"tls": {"enabled": true}}}"#),
            Step::Edit(r#"{"security": {"tls": {"plainClients": "Refuse"}}}"#),
            Step::Edit(r#"{"security": {"tls": {"enabled": false, "plainClients": null}}}"#),
        ],
    )
};
const GROWN: Volumes = Volumes { size: "20Gi", class: "standard" };
const MOVED: Volumes = Volumes { size: "10Gi", class: "standard-retain" };
/// No member restarts, and the StatefulSet is created again.
pub const GROW: Scenario = Scenario {
    setup: 1,
    keeps_serving: true,
    ..Scenario::new("grow 3", &[Step::Size(3), Step::Volumes(r#"{"storage": {"size": "20Gi"}}"#, GROWN)])
};
/// Every member is replaced.
const MOVE: Scenario = Scenario {
    setup: 1,
    keeps_serving: true,
    ..Scenario::new(
        "move 3",
        &[Step::Size(3), Step::Volumes(r#"{"storage": {"storageClassName": "standard-retain"}}"#, MOVED)],
    )
};
pub const ALL: [Scenario; 19] = [
    CREATE,
    SCALE,
    PLAIN,
    REISSUE,
    AUTH,
    ROTATE,
    STOP,
    START,
    DELETE,
    ADOPT,
    REPLACE,
    ROLL,
    ROLL_ONE,
    MISSING_IMAGE,
    REFUSED,
    CRASH,
    GROW,
    MOVE,
    SWITCH,
];

const VARIANTS: [(&str, Fault); 4] = [
    ("killed before", Fault::KillBefore),
    ("killed after", Fault::KillAfter),
    ("answer lost", Fault::LoseAnswer),
    ("fails once", Fault::Answer(500)),
];

pub fn scale_undisturbed() {
    world().runtime.block_on(undisturbed(PLAIN));
}

pub fn refused_undisturbed() {
    world().runtime.block_on(undisturbed(REFUSED));
}

/// Undisturbed, and then once for each variant with every effect hit.
pub fn each_variant(scenario: Scenario) {
    let world = world();
    world.runtime.block_on(async {
        let reference = undisturbed(scenario).await;
        let mut failures = Vec::new();
        for (variant, fault) in VARIANTS {
            let make = |namespace: &str| Faults::at_effects(namespace, Hits::Each, fault);
            let begun = Instant::now();
            let ran = scenario.run(world, make, Some(&reference)).await;
            let result = check(&reference, ran);
            let verdict = if result.is_ok() { "ok" } else { "FAILED" };
            println!("{}, {variant}: {verdict} ({:.0} s)", scenario.name, begun.elapsed().as_secs_f64());
            failures.extend(result.map_err(|why| format!("{variant}: {why}")).err());
        }
        assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    });
}

/// Undisturbed, and then once for each effect and variant.
pub fn each_effect(scenario: Scenario) {
    let (world, begun) = (world(), Instant::now());
    world.runtime.block_on(async {
        let reference = undisturbed(scenario).await;
        let (mut runs, mut failures) = (0, Vec::new());
        let effects = reference.effects.iter().enumerate().filter(|(_, effect)| effect.carried_out);
        for (index, effect) in effects {
            let kind = effect.kind();
            let nth = reference.effects[..=index].iter().filter(|other| other.kind() == kind).count();
            for (variant, fault) in VARIANTS {
                let make =
                    |namespace: &str| Faults::at_effects(namespace, Hits::Nth(kind.to_owned(), nth), fault);
                let ran = scenario.run(world, make, Some(&reference)).await;
                let what = format!("effect {} ({}), {variant}", index + 1, effect.what);
                let result = match ran {
                    Ok(ran) if ran.faults == 0 && is_chance(kind) => Ok(()),
                    ran => check(&reference, ran),
                };
                let seconds = begun.elapsed().as_secs();
                println!("{what}: {} ({seconds} s)", if result.is_ok() { "ok" } else { "FAILED" });
                failures.extend(result.map_err(|why| format!("{what}: {why}")).err());
                runs += 1;
            }
        }
        println!(
            "{}: {} effects, {} variants, {runs} runs, {} failed, {:.0} s",
            scenario.name,
            reference.effects.len(),
            VARIANTS.len(),
            failures.len(),
            begun.elapsed().as_secs_f64()
        );
        assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    });
}

/// Which member leads, how many of their numbers the budget follows, and how often a round finds a restarted member before
/// it serves, is different in each run.
fn is_chance(kind: &str) -> bool {
    kind == "MoveLeader" || kind.contains(" poddisruptionbudgets ") || kind.ends_with(TEMPLATE)
}

pub async fn undisturbed(scenario: Scenario) -> Ran {
    let ran = scenario.run(world(), Faults::none, None).await;
    let ran = ran.unwrap_or_else(|why| panic!("{}, undisturbed: {why}", scenario.name));
    let seconds: Vec<_> = ran.seconds.iter().map(|seconds| format!("{seconds:.2} s")).collect();
    println!("{}: {} effects in {}, undisturbed", scenario.name, ran.effects.len(), seconds.join(" + "));
    if std::env::var_os("HARNESS_EFFECTS").is_some() {
        print!("{}", lines(&ran.effects));
    }
    ran
}

/// The same end and the same changes on the way, although faults happened.
pub fn check(reference: &Ran, ran: Result<Ran, String>) -> Result<(), String> {
    let ran = ran?;
    if ran.faults == 0 {
        return Err("no fault happened".into());
    }
    if ran.changes != reference.changes {
        let as_objects = |changes: &crate::recorder::Changes| {
            changes.iter().map(|(name, &count)| (name.clone(), count.into())).collect()
        };
        let difference = difference(&as_objects(&reference.changes), &as_objects(&ran.changes));
        return Err(format!("other changes:\n{difference}\neffects:\n{}", lines(&ran.effects)));
    }
    Ok(())
}
