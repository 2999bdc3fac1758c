//! An operator never goes back to an EtcdCluster that is older than one it knows already: caches follow late, and a status
//! that was computed from an outdated one can look as if there were nothing to write.

use std::collections::VecDeque;

use kube::ResourceExt;

use crate::api::EtcdCluster;

/// How many versions are remembered: many more than a cache that works is behind.
const REMEMBERED: usize = 64;

/// Which content of which object. Clients can compare versions for equality only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub uid: String,
    pub resource_version: String,
}

impl Version {
    /// None for an object that no API server returned.
    pub fn of(cluster: &EtcdCluster) -> Option<Self> {
        Some(Self { uid: cluster.uid()?, resource_version: cluster.resource_version()? })
    }
}

/// What the API server returned last, for a read or for a write of ours, and the versions that are older: all that were
/// read before the request.
#[derive(Clone, Debug)]
pub struct Newest<T> {
    last: Option<(Version, T)>,
    older: VecDeque<Version>,
    /// What a cache has had since.
    cached: VecDeque<Version>,
}

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Self { last: None, older: VecDeque::new(), cached: VecDeque::new() }
    }
}

impl<T: Clone> Newest<T> {
    /// The API server returned this. What [`Self::at_least`] was called with before the request is older.
    pub fn returned(&mut self, version: Version, object: T) {
        let before = self.last.replace((version.clone(), object)).map(|(before, _)| before);
        let replaced: Vec<Version> = self.cached.drain(..).chain(before).collect();
        replaced.into_iter().for_each(|it| remember(&mut self.older, it));
        self.older.retain(|it| it.uid == version.uid && *it != version);
    }

    /// What a cache has, unless that is known to be older. A version that is not known counts as newer: a cache that is
    /// behind shows others for a moment only, while it follows.
    pub fn at_least(&mut self, version: Version, cached: T) -> T {
        if let Some((_, newest)) = &self.last
            && self.older.contains(&version)
        {
            // The cache can stay there for long.
            remember(&mut self.older, version);
            return newest.clone();
        }
        remember(&mut self.cached, version);
        cached
    }
}

/// As the most recent one.
fn remember(versions: &mut VecDeque<Version>, version: Version) {
    versions.retain(|it| *it != version);
    versions.push_back(version);
    if versions.len() > REMEMBERED {
        versions.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An EtcdCluster whose content is its version.
    #[derive(Default)]
    struct Reader(Newest<u64>);

    impl Reader {
        fn cached(&mut self, version: u64) -> u64 {
            self.0.at_least(of("a", version), version)
        }

        fn returned(&mut self, version: u64) {
            self.0.returned(of("a", version), version);
        }
    }

    fn of(uid: &str, version: u64) -> Version {
        Version { uid: uid.into(), resource_version: version.to_string() }
    }

    #[test]
    fn what_was_written_is_newer_than_what_it_was_written_over() {
        let mut reader = Reader::default();
        assert_eq!(reader.cached(1), 1);
        reader.returned(2);
        assert_eq!(reader.cached(1), 2);
    }

    #[test]
    fn two_writes_before_the_cache_follows_lead_back_to_neither_of_their_previous_versions() {
        let mut reader = Reader::default();
        reader.cached(1);
        reader.returned(2);
        reader.cached(1);
        reader.returned(3);
        assert_eq!([1, 2, 3].map(|cached| reader.cached(cached)), [3, 3, 3]);
    }

    #[test]
    fn what_was_read_live_is_newer_than_what_the_cache_had_before() {
        let mut reader = Reader::default();
        reader.cached(1);
        reader.returned(5);
        assert_eq!([1, 5].map(|cached| reader.cached(cached)), [5, 5]);
    }

    #[test]
    fn a_version_that_is_not_known_is_newer() {
        let mut reader = Reader::default();
        reader.cached(1);
        reader.returned(2);
        assert_eq!([3, 1, 3].map(|cached| reader.cached(cached)), [3, 2, 3]);
        reader.returned(4);
        assert_eq!(reader.cached(3), 4);
    }

    #[test]
    fn a_version_that_is_returned_again_is_not_older_than_itself() {
        let mut reader = Reader::default();
        reader.cached(1);
        reader.returned(1);
        reader.returned(2);
        reader.returned(2);
        assert_eq!([2, 1].map(|cached| reader.cached(cached)), [2, 2]);
    }

    #[test]
    fn a_cluster_of_the_same_name_has_versions_of_its_own() {
        let mut reader = Reader::default();
        reader.cached(1);
        reader.returned(2);
        assert_eq!(reader.0.at_least(of("b", 1), 10), 10);
        reader.0.returned(of("b", 2), 20);
        assert_eq!(reader.0.at_least(of("b", 1), 10), 20);
        assert_eq!(reader.cached(1), 1, "it might be the one that exists");
    }

    #[test]
    fn a_cache_that_stays_behind_is_recognized_after_any_number_of_writes() {
        let mut reader = Reader::default();
        reader.cached(0);
        for version in 1..=10 * REMEMBERED as u64 {
            reader.returned(version);
            assert_eq!(reader.cached(0), version);
        }
        assert!(reader.0.older.len() <= REMEMBERED);
    }
}
