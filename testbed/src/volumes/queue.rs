//! Whose turn it is: each volume is worked on by one at a time, and only some at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Making disks is work for the processor; more at once would only make all of them slower.
const AT_ONCE: usize = 4;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Short: a test that undid a fault waits for the end of a pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

#[derive(Default)]
pub struct Queue {
    waiting: VecDeque<String>,
    running: BTreeSet<String>,
    failures: BTreeMap<String, u32>,
}

impl Queue {
    pub fn push(&mut self, name: String) {
        if !self.waiting.contains(&name) {
            self.waiting.push_back(name);
        }
    }

    /// The next to be worked on; it is running from now on. One that is running already waits for its end.
    pub fn next(&mut self) -> Option<String> {
        if self.running.len() >= AT_ONCE {
            return None;
        }
        let position = self.waiting.iter().position(|name| !self.running.contains(name))?;
        let name = self.waiting.remove(position)?;
        self.running.insert(name.clone());
        Some(name)
    }

    pub fn succeeded(&mut self, name: &str) {
        self.running.remove(name);
        self.failures.remove(name);
    }

    /// Returns the pause after which it should be pushed again.
    pub fn failed(&mut self, name: &str) -> Duration {
        self.running.remove(name);
        let failures = self.failures.entry(name.to_owned()).or_default();
        *failures = failures.saturating_add(1);
        FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(*failures - 1)).min(LONGEST_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_changes_while_worked_on_has_another_turn_after() {
        let mut queue = Queue::default();
        queue.push("a".into());
        queue.push("a".into());
        assert_eq!(queue.next().as_deref(), Some("a"));
        queue.push("a".into());
        queue.push("b".into());
        assert_eq!(queue.next().as_deref(), Some("b"));
        assert_eq!(queue.next(), None);
        queue.succeeded("a");
        assert_eq!(queue.next().as_deref(), Some("a"));
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn only_some_are_worked_on_at_once() {
        let mut queue = Queue::default();
        (0..AT_ONCE + 2).for_each(|index| queue.push(index.to_string()));
        assert_eq!(std::iter::from_fn(|| queue.next()).count(), AT_ONCE);
        queue.failed("0");
        assert_eq!(std::iter::from_fn(|| queue.next()).count(), 1);
    }

    #[test]
    fn pauses_grow_until_it_works() {
        let mut queue = Queue::default();
        let pauses: Vec<_> = (0..8).map(|_| queue.failed("a").as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 4, 4, 4, 4, 4]);
        queue.succeeded("a");
        assert_eq!(queue.failed("a"), FIRST_PAUSE);
    }
}
