//! Runs the end-to-end tests on the testbed.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use e2e::turn::Turn;
use e2e::{runner, suite};
use testbed::cluster::Testbed;

/// Runs the end-to-end tests on a real Kubernetes with real etcd, and starts both
#[derive(Parser)]
#[command(after_help = "Logs and objects of a failed test are in target/e2e/TEST/.")]
struct Options {
    /// Run only the smoke tests
    #[arg(long)]
    smoke: bool,
    /// Skip tests that already passed for the current source
    #[arg(long)]
    resume: bool,
    /// Leave the testbed running
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    harness: libtest_mimic::Arguments,
}

fn main() -> Result<ExitCode> {
    let mut options = Options::parse();
    // The testbed is one per machine, and so are the faults.
    options.harness.test_threads = Some(1);
    let mut tests = suite::all();
    tests.retain(|test| test.smoke || !options.smoke);
    let _turn = if options.harness.list { None } else { Some(Turn::take()?) };
    let found_up = Testbed::attach().is_ok();
    let conclusion = libtest_mimic::run(&options.harness, runner::trials(tests, options.resume)?);
    if !(options.harness.list || options.keep || found_up) {
        tokio::runtime::Runtime::new()?.block_on(Testbed::down())?;
    }
    Ok(conclusion.exit_code())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn our_options_and_those_of_the_harness_go_together() {
        Options::command().debug_assert();
        let options = Options::parse_from(["e2e", "--smoke", "--resume", "--skip", "dns", "faults"]);
        assert!(options.smoke && options.resume && !options.keep);
        assert_eq!(options.harness.filter.as_deref(), Some("faults"));
    }
}
