//! Since when the peer Service has listed each pod.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::objects::Published;

/// Cluster DNS learns of a pod when we do, and answers a little later. Who asks before is told that there is no such name,
/// which caches repeat for half a minute; and as soon as a member is added, the others ask for it.
const UNTIL_NAMES_ANSWER: Duration = Duration::from_millis(400);

/// By the UID of the pod.
#[derive(Default)]
pub struct Publications(HashMap<String, Instant>);

impl Publications {
    /// Those of the listed pods whose names can be asked for.
    pub fn known_by_name(&mut self, listed: &Published, now: Instant) -> BTreeSet<String> {
        self.0.retain(|uid, _| listed.contains_key(uid));
        let since = listed.keys().map(|uid| (uid, *self.0.entry(uid.clone()).or_insert(now)));
        let known = since.filter(|(_, since)| now.duration_since(*since) >= UNTIL_NAMES_ANSWER);
        known.map(|(uid, _)| uid.clone()).collect()
    }

    /// In how long the next name can be asked for, if one is awaited.
    pub fn next_known(&self, now: Instant) -> Option<Duration> {
        let ages = self.0.values().map(|since| now.duration_since(*since));
        ages.filter_map(|age| UNTIL_NAMES_ANSWER.checked_sub(age)).filter(|rest| !rest.is_zero()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_counts_as_published_when_its_name_had_time_to_spread_and_anew_after_it_came_back() {
        let mut publications = Publications::default();
        let names = |uids: &[&str]| uids.iter().map(|uid| (*uid).to_owned()).collect::<BTreeSet<_>>();
        let listed =
            |uids: &[&str]| names(uids).into_iter().map(|uid| (uid, Vec::new())).collect::<Published>();
        let begin = Instant::now();
        assert_eq!(publications.known_by_name(&listed(&["a"]), begin), names(&[]));
        let later = begin + UNTIL_NAMES_ANSWER;
        assert_eq!(publications.known_by_name(&listed(&["a", "b"]), later), names(&["a"]));
        assert_eq!(publications.known_by_name(&listed(&["b"]), later), names(&[]));
        assert_eq!(
            publications.known_by_name(&listed(&["a", "b"]), later + UNTIL_NAMES_ANSWER),
            names(&["b"])
        );
    }

    #[test]
    fn the_next_name_is_awaited_and_no_other() {
        let mut publications = Publications::default();
        let (begin, little) = (Instant::now(), Duration::from_millis(100));
        assert_eq!(publications.next_known(begin), None);
        for (uid, now) in [("a", begin), ("b", begin + little)] {
            let listed = ["a", uid].map(|uid| (uid.to_owned(), Vec::new()));
            publications.known_by_name(&listed.into_iter().collect(), now);
        }
        assert_eq!(publications.next_known(begin + little), Some(UNTIL_NAMES_ANSWER - little));
        assert_eq!(publications.next_known(begin + UNTIL_NAMES_ANSWER), Some(little));
        assert_eq!(publications.next_known(begin + UNTIL_NAMES_ANSWER + little), None);
    }
}
