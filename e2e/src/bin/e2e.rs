//! Runs the end-to-end tests on the testbed.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use e2e::passed::Passed;
use e2e::runner::Runner;
use e2e::selection::{Selection, Wanted};
use e2e::suite;
use e2e::turn::Turn;
use testbed::cluster::Testbed;
use testbed::say;

/// Runs the end-to-end tests on a real Kubernetes with real etcd, and starts both
#[derive(Parser)]
#[command(after_help = "Logs and objects of a failed test are in target/e2e/TEST/.")]
struct Options {
    /// Run only tests whose names contain one of these
    names: Vec<String>,
    /// Names are whole names
    #[arg(long)]
    exact: bool,
    /// Leave out tests whose names contain this
    #[arg(long)]
    skip: Vec<String>,
    /// Run only the smoke tests; those of the testbed only if it changed since they passed here
    #[arg(long)]
    smoke: bool,
    /// Leave out tests that passed on this machine for the same sources
    #[arg(long)]
    resume: bool,
    /// Leave out nothing that is known to pass
    #[arg(long)]
    all: bool,
    /// How many tests run side by side, those that share a testbed
    #[arg(long, default_value_t = 3)]
    at_once: usize,
    /// Leave the testbed running
    #[arg(long)]
    keep: bool,
    /// Print the names of the tests
    #[arg(long)]
    list: bool,
}

impl Options {
    fn wanted(&self) -> Wanted {
        Wanted {
            smoke: self.smoke,
            resume: self.resume,
            all: self.all,
            names: self.names.clone(),
            skip: self.skip.clone(),
            exact: self.exact,
        }
    }
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let tests = suite::all();
    let passed = Passed::on_this_machine(&tests)?;
    let selection = Selection::new(tests, &options.wanted(), |test| passed.contains(test));
    if options.list {
        for test in &selection.run {
            say!("{} ({:?}, {:?})", test.name, test.sharing, test.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let _turn = Turn::take()?;
    let found_up = Testbed::attach().is_ok();
    let (began, known) = (Instant::now(), selection.known.len());
    say!("{} tests, up to {} side by side", selection.run.len(), options.at_once);
    if known > 0 {
        say!(
            "not run, because they passed on this machine for the same sources (--all runs them): {}",
            selection.known_by_group()
        );
    }
    let report = Runner::new(&passed)?.run(selection.run, options.at_once)?;
    report.sum_up(began.elapsed(), known);
    if !(options.keep || found_up) {
        tokio::runtime::Runtime::new()?.block_on(Testbed::down())?;
    }
    Ok(if report.ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn options_and_names_go_together() {
        Options::command().debug_assert();
        let options = Options::parse_from(["e2e", "--smoke", "--skip", "dns", "faults", "lifecycle"]);
        let wanted = options.wanted();
        assert!(wanted.smoke && !wanted.resume && !options.keep);
        assert_eq!(
            (wanted.names, wanted.skip),
            (vec!["faults".into(), "lifecycle".into()], vec!["dns".to_owned()])
        );
    }
}
