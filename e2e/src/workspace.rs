//! The source tree these programs were built from, and where their results go.

use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// `target/` of the tree, wherever cargo puts its own output.
pub fn results() -> PathBuf {
    root().join("target")
}

/// A path as one would type it in the tree.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
