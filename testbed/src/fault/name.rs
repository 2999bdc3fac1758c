//! Names that cluster DNS denies: it reads the list anew for each question.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use super::record::{lock, replace};
use super::{FaultError, Result};
use crate::layout::Layout;

/// As DNS compares them: lower case, no dot at the end. `.` is every name.
pub(super) fn normal(names: &[String]) -> Result<Vec<String>> {
    let normal = |name: &String| {
        let lower = name.to_ascii_lowercase();
        let stem = lower.strip_suffix('.').unwrap_or(&lower);
        if lower == "." {
            return Ok(lower);
        }
        let label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        if !stem.split('.').all(label) {
            return Err(FaultError::NotAName { name: name.clone() });
        }
        Ok(stem.to_owned())
    };
    names.iter().map(normal).collect()
}

pub(super) fn deny(layout: &Layout, names: &[String]) -> Result<()> {
    change(layout, |denied| denied.extend(names.iter().cloned()))
}

/// Answers names again, but for those that other faults deny too.
pub(super) fn allow(layout: &Layout, names: &[String], still_denied: &[String]) -> Result<()> {
    change(layout, |denied| {
        denied.retain(|name| !names.contains(name));
        denied.extend(still_denied.iter().cloned());
    })
}

fn change(layout: &Layout, change: impl FnOnce(&mut BTreeSet<String>)) -> Result<()> {
    let changed = || -> std::io::Result<()> {
        let file = layout.denied_names();
        let _lock = lock(layout)?;
        let text = match std::fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let mut denied: BTreeSet<String> = text.lines().map(str::to_owned).collect();
        change(&mut denied);
        replace(layout, &file, &denied.iter().map(|name| format!("{name}\n")).collect::<String>())
    };
    changed().map_err(FaultError::machine("change the list of denied names"))
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_name_is_written_as_dns_compares_it() {
        let given = names(&["DB-0.db.Default.svc.cluster.local.", ".", "_peer._tcp.x"]);
        assert_eq!(
            normal(&given).expect("names"),
            names(&["db-0.db.default.svc.cluster.local", ".", "_peer._tcp.x"])
        );
        for wrong in ["", "..", "a..b", ".a", "a b", "a\nb"] {
            assert!(matches!(normal(&names(&[wrong])), Err(FaultError::NotAName { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn undoing_one_denial_leaves_the_names_of_another() {
        let layout = Scratch::new();
        let text = || std::fs::read_to_string(layout.denied_names()).expect("readable");
        deny(&layout, &names(&["a", "b"])).expect("denied");
        deny(&layout, &names(&["b", "c"])).expect("denied");
        deny(&layout, &names(&["b", "c"])).expect("denied again");
        assert_eq!(text(), "a\nb\nc\n");
        allow(&layout, &names(&["a", "b"]), &names(&["b", "c"])).expect("allowed");
        assert_eq!(text(), "b\nc\n");
        allow(&layout, &names(&["b", "c"]), &[]).expect("allowed");
        allow(&layout, &names(&["b", "c"]), &[]).expect("allowed again");
        assert_eq!(text(), "");
    }
}
