//! Room on the disks.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Need, Problem};
use crate::build::go;
use crate::cache;
use crate::layout::Layout;

const GB: u64 = 1_000_000_000;

/// A place where room is wanted.
#[derive(Debug)]
pub struct Wish {
    path: PathBuf,
    needed_gb: u64,
    /// The variable that moves it elsewhere.
    mover: &'static str,
}

/// Rounded up from what was seen: a build of everything fills 5, 2 and 1 GB.
pub async fn wishes(need: Need, is_built: bool) -> Vec<Wish> {
    let mut wishes = Vec::new();
    let mut wish = |path: PathBuf, needed_gb, mover| wishes.push(Wish { path, needed_gb, mover });
    if is_built {
        wish(cache::dir(), 1, "TESTBED_CACHE");
    } else {
        wish(cache::dir(), 2, "TESTBED_CACHE");
        // Without Go nothing is known of its caches, and that it is missing is told already.
        if let Ok([build, modules]) = go::variables(["GOCACHE", "GOMODCACHE"]).await {
            wish(build.into(), 6, "GOCACHE");
            wish(modules.into(), 2, "GOMODCACHE");
        }
    }
    match need {
        Need::Build => {}
        Need::ApiOnly => wish(Layout::root(), 1, "TESTBED_ROOT"),
        Need::Cluster => wish(Layout::root(), 3, "TESTBED_ROOT"),
    }
    wishes
}

/// Wishes on one disk add up.
pub fn short(wishes: Vec<Wish>) -> Vec<Problem> {
    let mut disks: BTreeMap<u64, (u64, Vec<Wish>)> = BTreeMap::new();
    let mut problems = Vec::new();
    for wish in wishes {
        match disk_of(&wish.path) {
            Ok((disk, free)) => disks.entry(disk).or_insert_with(|| (free, Vec::new())).1.push(wish),
            Err(error) => problems.push(Problem::Unknown {
                what: "how much disk is free",
                reason: format!("{}: {error}", wish.path.display()),
            }),
        }
    }
    problems.extend(disks.into_values().filter_map(|(free, wishes)| too_little(free, &wishes)));
    problems
}

fn too_little(free: u64, wishes: &[Wish]) -> Option<Problem> {
    let needed_gb = wishes.iter().map(|wish| wish.needed_gb).sum();
    (free / GB < needed_gb).then(|| Problem::DiskShort {
        places: wishes.iter().map(|wish| wish.path.display().to_string()).collect(),
        movers: wishes.iter().map(|wish| wish.mover).collect(),
        needed_gb,
        free_gb: free / GB,
    })
}

/// The disk below a path that may not exist yet, and the bytes free on it.
fn disk_of(path: &Path) -> std::io::Result<(u64, u64)> {
    let nearest = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let disk = nearest.metadata()?.dev();
    let space = rustix::fs::statvfs(nearest)?;
    Ok((disk, space.f_bavail * space.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(path: &str, needed_gb: u64, mover: &'static str) -> Wish {
        Wish { path: path.into(), needed_gb, mover }
    }

    #[test]
    fn wishes_on_one_disk_add_up_and_are_told_together() {
        let wishes = [wish("/a", 6, "GOCACHE"), wish("/b", 3, "TESTBED_ROOT")];
        assert_eq!(too_little(9 * GB, &wishes), None);
        let text = too_little(9 * GB - 1, &wishes).expect("it is too little").to_string();
        assert_eq!(
            text,
            "not enough disk: about 9 GB are needed for /a, /b, and 8 GB are free: \
             make room, or move some of it elsewhere (GOCACHE, TESTBED_ROOT)"
        );
    }

    #[test]
    fn a_place_that_is_not_there_yet_is_on_its_parents_disk() {
        let (disk, free) = disk_of(Path::new("/no/such/place")).expect("there is a root");
        assert_eq!(disk, Path::new("/").metadata().expect("there is a root").dev());
        assert!(free > 0);
        let both = vec![wish("/no/such/place", 1 << 40, "A"), wish("/", 1 << 40, "B")];
        assert_eq!(short(both).len(), 1);
    }

    #[tokio::test]
    async fn what_is_built_needs_less() {
        let sum = |wishes: Vec<Wish>| wishes.iter().map(|wish| wish.needed_gb).sum::<u64>();
        assert_eq!(sum(wishes(Need::Build, true).await), 1);
        assert_eq!(sum(wishes(Need::Build, false).await), 10);
        assert_eq!(sum(wishes(Need::ApiOnly, true).await), 2);
        assert_eq!(sum(wishes(Need::Cluster, false).await), 13);
    }
}
