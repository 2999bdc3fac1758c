//! Go, which builds everything else.

use std::path::PathBuf;

use super::{Problem, programs};
use crate::build::go::{self, NEEDED};

/// Since this version, Go fetches a newer self when a module asks for it and the user lets it.
const FETCHES_ITSELF: (u32, u32) = (1, 21);

/// What the installed Go says of itself.
pub struct Installed {
    /// `go1.26.8`
    version: String,
    /// The setting `GOTOOLCHAIN`.
    toolchain: String,
}

pub async fn installed(search: &[PathBuf]) -> Result<Option<Installed>, Problem> {
    if programs::find("go", search).is_none() {
        return Ok(None);
    }
    match go::variables(["GOVERSION", "GOTOOLCHAIN"]).await {
        Ok([version, toolchain]) => Ok(Some(Installed { version, toolchain })),
        Err(error) => Err(Problem::Unknown { what: "the version of Go", reason: format!("{error:#}") }),
    }
}

pub fn problem(installed: Result<Option<Installed>, Problem>) -> Option<Problem> {
    let needed = format!("{}.{}", NEEDED.0, NEEDED.1);
    let installed = match installed {
        Ok(Some(installed)) => installed,
        Ok(None) => return Some(Problem::GoMissing { needed }),
        Err(problem) => return Some(problem),
    };
    let may_fetch = installed.toolchain == "auto" || installed.toolchain.ends_with("+auto");
    let least = if may_fetch { FETCHES_ITSELF } else { NEEDED };
    let found = installed.version.trim_start_matches("devel ").trim_start_matches("go");
    (go::version(found) < Some(least)).then(|| Problem::GoTooOld { found: found.to_owned(), needed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(version: &str, toolchain: &str) -> Option<Problem> {
        problem(Ok(Some(Installed { version: version.into(), toolchain: toolchain.into() })))
    }

    #[test]
    fn a_new_go_will_do_and_so_will_one_that_fetches_a_new_one() {
        for (version, toolchain) in [
            ("go1.26.8", "local"),
            ("go1.26", "auto"),
            ("go1.27rc1", "local"),
            ("devel go1.28-8e2f0b6", "local"),
            ("go2.0", "local"),
            ("go1.21.0", "auto"),
            ("go1.24.4", "go1.24.4+auto"),
        ] {
            assert_eq!(with(version, toolchain), None, "{version} {toolchain}");
        }
    }

    #[test]
    fn an_old_go_is_told_by_its_version() {
        for (version, toolchain, found) in [
            ("go1.25.9", "local", "1.25.9"),
            ("go1.25.9", "path", "1.25.9"),
            ("go1.19.8", "", "1.19.8"),
            ("go1.20.14", "auto", "1.20.14"),
            ("strange", "local", "strange"),
        ] {
            let expected = Problem::GoTooOld { found: found.to_owned(), needed: "1.26".to_owned() };
            assert_eq!(with(version, toolchain), Some(expected), "{version} {toolchain}");
        }
    }

    #[tokio::test]
    async fn without_go_in_the_search_path_it_is_missing() {
        let expected = Problem::GoMissing { needed: "1.26".to_owned() };
        assert_eq!(problem(installed(&[]).await), Some(expected));
    }
}
