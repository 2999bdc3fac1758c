//! Runs tests on the testbed: shared ones side by side, exclusive ones alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use tokio::runtime::Runtime;

pub use crate::context::Context;
use crate::context::Up;
use crate::passed::Passed;
use crate::progress::{self, Progress};
use crate::report::{Finished, Report};
use crate::schedule::Schedule;
use crate::test::{Sharing, Test};
pub use crate::trial::node_is_ready;
use crate::trial::{self, Outcome, Session};

/// How long nothing may be said while tests keep their lines to themselves.
const SILENCE: Duration = Duration::from_secs(60);

struct Running {
    number: usize,
    test: Test,
    began: Instant,
    /// Every test that ran at some time during this one.
    beside: Vec<&'static str>,
}

struct Ended {
    number: usize,
    outcome: Outcome,
    /// What it had to say, unless that was printed at once.
    lines: Vec<String>,
}

pub struct Runner<'a> {
    runtime: Runtime,
    session: Session,
    passed: &'a Passed,
    report: Report,
    running: Vec<Running>,
    /// A test left the testbed in a state that nobody should work with.
    unusable: bool,
    /// Whether tests can print their lines at once.
    one_at_a_time: bool,
    ended: (Sender<Ended>, Receiver<Ended>),
}

impl<'a> Runner<'a> {
    pub fn new(passed: &'a Passed) -> Result<Self> {
        Ok(Self {
            runtime: Runtime::new().context("cannot start the runtime")?,
            session: Session::default(),
            passed,
            report: Report::default(),
            running: Vec::new(),
            unusable: false,
            one_at_a_time: false,
            ended: channel(),
        })
    }

    /// Runs all of them, and returns what became of each.
    pub fn run(mut self, tests: Vec<Test>, at_once: usize) -> Result<Report> {
        self.report.total = tests.len();
        self.one_at_a_time = at_once <= 1 || tests.len() <= 1;
        let mut schedule = Schedule::new(tests, at_once, |test| self.passed.took(test).unwrap_or_default());
        for number in 1.. {
            let test = loop {
                let running: Vec<_> = self.running.iter().map(|running| running.test.clone()).collect();
                // An unusable testbed is replaced when nothing uses it any more.
                let blocked = self.unusable && !running.is_empty();
                match (!blocked).then(|| schedule.next(&running)).flatten() {
                    Some(test) => break Some(test),
                    None if running.is_empty() => break None,
                    None => self.wait_for_one()?,
                }
            };
            let Some(test) = test else { break };
            self.start(number, test);
        }
        Ok(self.report)
    }

    fn start(&mut self, number: usize, test: Test) {
        let names: Vec<_> = self.running.iter().map(|running| running.test.name).collect();
        self.report.begins(number, test.name, &names);
        for running in &mut self.running {
            running.beside.push(test.name);
        }
        let arranged = self.arrange(&test);
        self.running.push(Running { number, test: test.clone(), began: Instant::now(), beside: names });
        let sender = self.ended.0.clone();
        match arranged {
            Err(error) => {
                let outcome = Outcome::failed(error.context("cannot prepare the testbed"));
                // The receiver is ours.
                let _ = sender.send(Ended { number, outcome, lines: Vec::new() });
            }
            Ok(up) => self.spawn(number, test, up, sender),
        }
    }

    /// Its future stays on one thread, so each test has a thread.
    fn spawn(&self, number: usize, test: Test, up: Option<Up>, sender: Sender<Ended>) {
        let keeps = !self.one_at_a_time && test.sharing == Sharing::Shared;
        let runtime = self.runtime.handle().clone();
        std::thread::spawn(move || {
            if keeps {
                progress::keep();
            }
            let run = AssertUnwindSafe(|| runtime.block_on(trial::run(&test, up)));
            let outcome =
                catch_unwind(run).unwrap_or_else(|_| Outcome::failed(anyhow!("the test runner panicked")));
            let _ = sender.send(Ended { number, outcome, lines: progress::kept() });
        });
    }

    /// What runs already has the same testbed.
    fn arrange(&mut self, test: &Test) -> Result<Option<Up>> {
        if self.unusable {
            self.runtime.block_on(self.session.take_down(Progress::start()))?;
            self.unusable = false;
        }
        self.runtime.block_on(self.session.arrange(&test.topology))
    }

    fn wait_for_one(&mut self) -> Result<()> {
        let ended = loop {
            match self.ended.1.recv_timeout(SILENCE) {
                Ok(ended) => break ended,
                Err(RecvTimeoutError::Timeout) if self.one_at_a_time => {}
                Err(RecvTimeoutError::Timeout) => {
                    let running = self.running.iter().map(|it| (it.test.name, it.began.elapsed()));
                    self.report.still_running(running);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("no test is left to wait for")),
            }
        };
        let place = self.running.iter().position(|running| running.number == ended.number);
        let Running { number, test, began, beside } =
            self.running.remove(place.context("a test that is not running ended")?);
        let Outcome { result, testbed_is_usable } = ended.outcome;
        self.unusable |= !testbed_is_usable;
        let took = began.elapsed();
        self.passed.forget(&test);
        let failure = result.and_then(|()| self.passed.record(&test, took)).err();
        let failure = failure.map(|error| format!("{error:#}"));
        let finished = Finished { name: test.name, took, beside, failure };
        self.report.ended(number, finished, &ended.lines);
        Ok(())
    }
}
