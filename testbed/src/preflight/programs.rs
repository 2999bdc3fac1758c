//! Programs of the machine that a testbed calls.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Need, Problem};
use crate::image::standard::BUSYBOX;

/// What this project calls, which `hack/deps` checks too.
const LIST: &str = include_str!("../../../hack/programs");
/// An API without nodes needs no more of the machine's programs than this.
const FOR_API: &str = "setsid";

const NETWORK_PLUGINS: &[&str] = &["bridge", "host-local", "loopback", "portmap"];
/// Debian's place, and everybody else's.
const NETWORK_PLUGIN_DIRS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];

pub fn search_path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

pub fn find(program: &str, search: &[PathBuf]) -> Option<PathBuf> {
    search.iter().map(|dir| dir.join(program)).find(|path| is_program(path))
}

pub fn missing(need: Need, search: &[PathBuf]) -> Vec<Problem> {
    let is_needed = |program: &str| match need {
        Need::Build => false,
        Need::ApiOnly => program == FOR_API,
        Need::Cluster => true,
    };
    let missing = called().filter(|(program, _)| is_needed(program) && find(program, search).is_none());
    let mut problems: Vec<_> =
        missing.map(|(program, package)| Problem::ProgramMissing { program, package }).collect();
    if need == Need::Cluster {
        problems.extend(bad_busybox(Path::new(BUSYBOX)));
        problems.extend(missing_plugins(&NETWORK_PLUGIN_DIRS.map(Path::new)));
    }
    problems
}

/// The programs that a testbed calls, each with the Debian package that has it.
fn called() -> impl Iterator<Item = (&'static str, &'static str)> {
    LIST.lines().filter_map(|line| line.strip_prefix("testbed ")).flat_map(|line| {
        let mut words = line.split(' ');
        let package = words.next().unwrap_or_default();
        words.map(move |program| (program, package))
    })
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// All of them have to be in one directory, because containerd looks into one only.
fn missing_plugins(dirs: &[&Path]) -> Option<Problem> {
    let missing_in = |dir: &Path| -> Vec<&'static str> {
        NETWORK_PLUGINS.iter().copied().filter(|plugin| !is_program(&dir.join(plugin))).collect()
    };
    let missing = dirs.iter().map(|dir| missing_in(dir)).min_by_key(Vec::len)?;
    (!missing.is_empty()).then_some(Problem::NetworkPluginsMissing { missing })
}

fn bad_busybox(path: &Path) -> Option<Problem> {
    if !is_program(path) {
        return Some(Problem::ProgramMissing { program: BUSYBOX, package: "busybox-static" });
    }
    let is_static = std::fs::read(path).is_ok_and(|program| is_static(&program));
    (!is_static).then(|| Problem::BusyboxNotStatic { path: path.to_owned() })
}

/// A program that needs libraries names an interpreter that loads them, in a segment of its own.
fn is_static(elf: &[u8]) -> bool {
    const ELF64_LITTLE_ENDIAN: &[u8] = b"\x7fELF\x02\x01";
    const INTERPRETER: usize = 3;
    let number = |at: usize, width: usize| -> Option<usize> {
        let bytes = elf.get(at..at.checked_add(width)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    };
    let segment_kinds = || -> Option<Vec<usize>> {
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        (0..count).map(|n| number(table.checked_add(size * n)?, 4)).collect()
    };
    elf.starts_with(ELF64_LITTLE_ENDIAN) && segment_kinds().is_some_and(|kinds| !kinds.contains(&INTERPRETER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(need: Need, search: &[PathBuf]) -> Vec<&'static str> {
        let name = |problem| {
            if let Problem::ProgramMissing { program, .. } = problem { Some(program) } else { None }
        };
        missing(need, search).into_iter().filter_map(name).filter(|name| *name != BUSYBOX).collect()
    }

    #[test]
    fn with_an_empty_search_path_everything_is_missing_at_once() {
        let all: Vec<_> = called().map(|(program, _)| program).collect();
        assert!(all.len() > 15 && all.contains(&"ip6tables-restore"), "not the programs: {all:?}");
        assert_eq!(names(Need::Cluster, &[]), all);
        assert_eq!(names(Need::Cluster, &["/nowhere".into()]), all);
        assert_eq!(names(Need::ApiOnly, &[]), ["setsid"]);
        assert_eq!(names(Need::Build, &[]), [""; 0]);
    }

    #[test]
    fn a_directory_or_a_plain_file_is_no_program() {
        assert_eq!(find("etc", &["/".into()]), None);
        assert_eq!(find("passwd", &["/etc".into()]), None);
        assert_eq!(find("sh", &["/nowhere".into(), "/bin".into()]), Some("/bin/sh".into()));
    }

    #[test]
    fn busybox_has_to_be_a_static_program_where_images_take_it_from() {
        let missing = Problem::ProgramMissing { program: BUSYBOX, package: "busybox-static" };
        assert_eq!(bad_busybox(Path::new("/nowhere/busybox")), Some(missing));
        let ourselves = std::env::current_exe().expect("we have a path");
        let dynamic = Problem::BusyboxNotStatic { path: ourselves.clone() };
        assert_eq!(bad_busybox(&ourselves), Some(dynamic));
    }

    #[test]
    fn plugins_have_to_be_complete_in_one_place() {
        let expected = Problem::NetworkPluginsMissing { missing: NETWORK_PLUGINS.to_vec() };
        assert_eq!(missing_plugins(&[Path::new("/nowhere"), Path::new("/etc")]), Some(expected));
    }

    #[test]
    fn a_program_with_an_interpreter_is_not_static() {
        let program = |kinds: &[u8]| {
            let mut elf = vec![0; 64 + 56 * kinds.len()];
            elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
            (elf[32], elf[54], elf[56]) = (64, 56, kinds.len() as u8);
            kinds.iter().enumerate().for_each(|(n, kind)| elf[64 + 56 * n] = *kind);
            elf
        };
        assert!(is_static(&program(&[1, 1, 2, 4])));
        assert!(!is_static(&program(&[6, 3, 1, 1])));
        assert!(!is_static(&program(&[1, 1])[..100]), "cut off");
        assert!(!is_static(b"#!/bin/sh\n"));
        let ourselves = std::env::current_exe().and_then(std::fs::read).expect("we can read ourselves");
        assert!(!is_static(&ourselves));
    }
}
