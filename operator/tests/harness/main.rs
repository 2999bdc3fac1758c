//! The whole operator against a real API server, real controllers, real agents and real etcd, with a fault at any request.
//!
//! Everything runs in namespaces of its own (network, mounts, processes), so ports and addresses are free and nothing is
//! left behind. Only the kubelet is a stand-in (`testbed::stand_in`).

mod inside;
mod operator;
mod world;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn trials() -> Vec<Trial> {
    vec![trial("three_members_are_created", world::create_three)]
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
    libtest_mimic::run(&arguments, trials).exit_code()
}
