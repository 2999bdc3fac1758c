//! The whole operator against a real API server, real controllers, real agents and real etcd, with a fault at any request.
//!
//! Everything runs in namespaces of its own (network, mounts, processes), so ports and addresses are free and nothing is
//! left behind. Only the kubelet is a stand-in (`testbed::stand_in`).
//!
//! `HARNESS_LOG=info` shows the operator's log, `HARNESS_EFFECTS=1` the effects of undisturbed runs.

mod faults;
mod inside;
mod operator;
mod recorder;
mod requests;
mod scenario;
mod sweep;
mod world;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn trials() -> Vec<Trial> {
    vec![
        trial("create_with_every_effect_hit", || sweep::each_variant(sweep::CREATE)),
        trial("scale_with_every_effect_hit", || sweep::each_variant(sweep::SCALE)),
        trial("single_requests_fail", requests::fail),
        trial("a_watch_freezes", requests::freeze).with_ignored_flag(true),
        trial("sweep_create", || sweep::each_effect(sweep::CREATE)).with_ignored_flag(true),
        trial("sweep_scale", || sweep::each_effect(sweep::SCALE)).with_ignored_flag(true),
    ]
}

fn trial(name: &str, test: fn()) -> Trial {
    Trial::test(name, move || {
        test();
        Ok(())
    })
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One world, one after the other: two cores do not keep time for more.
    arguments.test_threads = Some(1);
    let trials = trials();
    let runs = |trial: &Trial| !arguments.is_filtered_out(trial) && !arguments.is_ignored(trial);
    if !arguments.list && !inside::is() && trials.iter().any(runs) {
        return inside::enter();
    }
    if let Ok(filter) = std::env::var("HARNESS_LOG") {
        etcd_operator::telemetry::start(&filter).expect("it is a filter");
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
