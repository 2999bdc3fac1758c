//! Versions of etcd.

use std::fmt;

use serde::{Deserialize, Serialize};

pub mod downgrade;
pub mod log;
pub mod path;

/// Before this one, a crash could lose the last write of a single member or make the revision go back.
pub const CRASH_SAFE: Version = Version::new(3, 5, 14);

/// Compared by their numbers: 3.5.9 comes before 3.5.21.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl Version {
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Three numbers, with or without a leading `v`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.strip_prefix('v').unwrap_or(text).split('.').map(|number| {
            let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| number.parse().ok()).flatten()
        });
        let version = Self::new(numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some(version)
    }

    /// The minor version alone, as etcd writes versions of clusters and of stored data: 3.5.0 for 3.5.21.
    pub const fn minor(self) -> Self {
        Self { patch: 0, ..self }
    }
}

/// As etcd itself prints it, without the `v` of image tags.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, minor, patch } = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_with_and_without_the_v_and_ordered_by_number() {
        assert_eq!(Version::parse("v3.5.21"), Some(Version::new(3, 5, 21)));
        assert_eq!(Version::parse("3.5.9"), Some(Version::new(3, 5, 9)));
        assert!(Version::parse("3.5.9") < Version::parse("v3.5.21"));
        assert!(Version::parse("3.10.0") > Version::parse("3.9.9"));
    }

    #[test]
    fn what_is_no_version_is_not_guessed_at() {
        for wrong in [
            "",
            "v",
            "3",
            "3.5",
            "3.5.",
            "3.5.1.2",
            "3.5.+1",
            "3.5.x",
            "3.5.1-rc.0",
            "vv3.5.1",
            "3.5.99999999999",
        ] {
            assert_eq!(Version::parse(wrong), None, "{wrong}");
        }
    }
}
