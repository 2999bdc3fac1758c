//! In which order tests run, and which of them side by side.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

use crate::test::{Sharing, Test, Topology};

/// The tests that wait for their turn.
pub struct Schedule {
    waiting: VecDeque<Test>,
    /// How many shared tests run side by side.
    at_once: usize,
}

impl Schedule {
    /// Tests on a bare machine first, so that what is up at the end can stay, then one testbed after the other in the
    /// order of first use. On each, shared tests come first: exclusive ones wait for all of them only once. Of the shared
    /// ones those that take long begin, so that none of them is left alone at the end.
    pub fn new(tests: Vec<Test>, at_once: usize, takes: impl Fn(&Test) -> Duration) -> Self {
        let mut topologies = vec![Topology::Bare];
        for test in &tests {
            if !topologies.contains(&test.topology) {
                topologies.push(test.topology.clone());
            }
        }
        let place = |test: &Test| {
            let topology = topologies.iter().position(|it| *it == test.topology);
            match test.sharing {
                Sharing::Shared => (topology, false, Reverse(takes(test))),
                Sharing::Exclusive => (topology, true, Reverse(Duration::ZERO)),
            }
        };
        let mut waiting = tests;
        waiting.sort_by_cached_key(place);
        Self { waiting: waiting.into(), at_once }
    }

    /// The test to start now, beside those that run; `None` if something has to end first.
    pub fn next(&mut self, running: &[Test]) -> Option<Test> {
        let next = self.waiting.front()?;
        let beside = |other: &Test| {
            [next.sharing, other.sharing] == [Sharing::Shared; 2] && next.topology == other.topology
        };
        let fits = running.len() < self.at_once.max(1) && running.iter().all(beside);
        if fits { self.waiting.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use testbed::cluster::{Config, DnsProfile};

    use super::*;

    fn up(nodes: u8) -> Topology {
        Topology::Up(Config { nodes, dns: DnsProfile::Fast })
    }

    fn shared(topology: Topology, name: &'static str) -> Test {
        topology.shared(name, |_| Box::pin(async { Ok(()) }))
    }

    fn exclusive(topology: Topology, name: &'static str) -> Test {
        topology.exclusive(name, |_| Box::pin(async { Ok(()) }))
    }

    fn names(tests: &[Test]) -> Vec<&'static str> {
        tests.iter().map(|test| test.name).collect()
    }

    /// Starts what can be started.
    fn fill(schedule: &mut Schedule, running: &mut Vec<Test>) {
        while let Some(test) = schedule.next(running) {
            running.push(test);
        }
    }

    #[test]
    fn each_testbed_comes_up_once_and_a_bare_machine_comes_first() {
        let tests = vec![
            exclusive(up(3), "a"),
            shared(up(1), "b"),
            exclusive(Topology::Bare, "c"),
            shared(up(3), "d"),
            shared(up(1), "e"),
        ];
        let mut schedule = Schedule::new(tests, 1, |_| Duration::ZERO);
        let order: Vec<_> = std::iter::from_fn(|| schedule.next(&[])).collect();
        assert_eq!(names(&order), ["c", "d", "a", "b", "e"]);
    }

    #[test]
    fn shared_tests_run_side_by_side_and_an_exclusive_one_alone() {
        let tests = ["a", "b", "c"].map(|name| shared(up(3), name)).to_vec();
        let tests = [tests, vec![exclusive(up(3), "d"), exclusive(up(3), "e")]].concat();
        let mut schedule = Schedule::new(tests, 2, |_| Duration::ZERO);
        let mut running = Vec::new();
        fill(&mut schedule, &mut running);
        assert_eq!(names(&running), ["a", "b"], "no more than two at once");
        running.remove(0);
        fill(&mut schedule, &mut running);
        assert_eq!(names(&running), ["b", "c"]);
        running.remove(0);
        assert!(schedule.next(&running).is_none(), "an exclusive test waits for the last shared one");
        running.clear();
        fill(&mut schedule, &mut running);
        assert_eq!(names(&running), ["d"]);
    }

    #[test]
    fn shared_tests_that_take_long_begin() {
        let tests = vec![exclusive(up(3), "long"), shared(up(3), "a"), shared(up(3), "long")];
        let takes = |test: &Test| Duration::from_secs(if test.name == "long" { 9 } else { 1 });
        let mut schedule = Schedule::new(tests, 1, takes);
        let order: Vec<_> = std::iter::from_fn(|| schedule.next(&[])).collect();
        assert_eq!(names(&order), ["long", "a", "long"]);
        assert_eq!(order[2].sharing, Sharing::Exclusive);
    }

    #[test]
    fn no_test_starts_beside_one_that_needs_another_testbed() {
        let mut schedule = Schedule::new(vec![shared(up(3), "a"), shared(up(1), "b")], 3, |_| Duration::ZERO);
        let mut running = Vec::new();
        fill(&mut schedule, &mut running);
        assert_eq!(names(&running), ["a"]);
    }
}
