//! Whether something in the tree, such as a test, still has a name that is written down elsewhere.

use std::path::PathBuf;

use crate::{files, read, root};

/// All Rust sources of the tree.
pub struct Sources(Vec<(PathBuf, String)>);

impl Sources {
    pub fn all() -> Self {
        Self(files(".rs").into_iter().map(|path| (path.clone(), read(&path))).collect())
    }

    /// Whether there is a test of this name in the file or folder. It is a function, or a text by which a program of tests
    /// registers it.
    pub fn declare(&self, within: &str, name: &str) -> bool {
        let declared = [format!("fn {name}("), format!("\"{name}\"")];
        self.of(within).any(|text| declared.iter().any(|it| text.contains(it)))
    }

    pub fn contain(&self, within: &str, text: &str) -> bool {
        self.of(within).any(|source| source.contains(text))
    }

    fn of(&self, within: &str) -> impl Iterator<Item = &str> {
        let place = root().join(within);
        self.0.iter().filter(move |(path, _)| path.starts_with(&place)).map(|(_, text)| text.as_str())
    }
}
