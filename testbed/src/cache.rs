//! The cache of what was built: programs and image archives, outside the tree and shared by all instances.

use std::path::PathBuf;

/// `TESTBED_CACHE`, else `etcd-testbed` in the user's cache directory.
pub fn dir() -> PathBuf {
    let under =
        |variable: &str, rest: &str| std::env::var_os(variable).map(|base| PathBuf::from(base).join(rest));
    under("TESTBED_CACHE", "")
        .or_else(|| under("XDG_CACHE_HOME", "etcd-testbed"))
        .or_else(|| under("HOME", ".cache/etcd-testbed"))
        .unwrap_or_else(|| PathBuf::from("/var/cache/etcd-testbed"))
}

pub fn programs() -> PathBuf {
    dir().join("programs")
}

pub fn images() -> PathBuf {
    dir().join("images")
}
