//! Which changes of the version are possible, judged by the versions that members report and not by the history of the
//! spec.

use std::fmt;

use serde::Serialize;

use super::Version;

/// etcd moves to the next minor version only from these patch versions or later. Before 3.5.26, removed members can
/// return with 3.6.
const UPGRADED_FROM: [Version; 2] = [Version::new(3, 5, 26), Version::new(3, 6, 11)];
/// etcd can go back to the minor version below one of these.
const DOWNGRADED_FROM: [Version; 2] = [Version::new(3, 6, 0), Version::new(3, 7, 0)];

/// What it means to bring all members to a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All members run it.
    Nothing,
    /// Within one minor version, in either direction.
    Patch,
    Upgrade,
    /// At least one member runs a newer minor version: `downgrade::next` tells what has to happen before it goes back.
    Downgrade,
    /// A member does not report its version, or there is none: wait.
    Unknown,
    Refused(Refusal),
}

/// A change that a member cannot make in one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    pub from: Version,
    pub to: Version,
    pub way: Way,
}

/// How to get there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Way {
    /// One after the other; the last one is what is wanted.
    Steps(Vec<Step>),
    /// No version in between helps.
    Restore,
}

/// What `spec.version` has to be set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Step {
    To(Version),
    /// This one or a later patch version of it.
    OrLater(Version),
    /// Any patch versions of all minor versions from the first to the last.
    EveryMinor(Version, Version),
}

/// Every member has to reach the wanted version in one step, whatever the others run.
pub fn judge(members: impl IntoIterator<Item = Option<Version>>, wanted: Version) -> Verdict {
    let (mut known, mut unknown) = (Vec::new(), false);
    for version in members {
        match version {
            Some(version) => known.push(version),
            None => unknown = true,
        }
    }
    // What one member cannot do stays impossible, whatever the silent ones run.
    let refused = known.iter().filter_map(|&from| refusal(from, wanted));
    if let Some(refusal) = refused.max_by_key(Refusal::effort) {
        return Verdict::Refused(refusal);
    }
    let minor = wanted.minor();
    match () {
        () if unknown || known.is_empty() => Verdict::Unknown,
        () if known.iter().any(|version| version.minor() > minor) => Verdict::Downgrade,
        () if known.iter().any(|version| version.minor() < minor) => Verdict::Upgrade,
        () if known.iter().any(|&version| version != wanted) => Verdict::Patch,
        () => Verdict::Nothing,
    }
}

fn refusal(from: Version, to: Version) -> Option<Refusal> {
    let way = way(from, to);
    let one_step = way == Way::Steps(vec![Step::To(to)]);
    (!one_step).then_some(Refusal { from, to, way })
}

fn way(from: Version, to: Version) -> Way {
    if from.major != to.major {
        return Way::Restore;
    }
    let mut steps = Vec::new();
    if from.minor < to.minor {
        steps.extend(gate(from.minor()).filter(|&gate| from < gate).map(Step::OrLater));
        steps.extend(UPGRADED_FROM.into_iter().filter(|&gate| is_between(from, gate, to)).map(Step::OrLater));
        // A range and not each of them: a version with a typing error can be a million away.
        let newest = UPGRADED_FROM.map(|gate| gate.minor).into_iter().max().unwrap_or(0);
        let (first, last) = (from.minor.max(newest) + 1, to.minor - 1);
        let at = |minor| Version::new(to.major, minor, 0);
        match last.checked_sub(first) {
            None => {}
            Some(0) => steps.push(Step::OrLater(at(first))),
            Some(_) => steps.push(Step::EveryMinor(at(first), at(last))),
        }
    } else if from.minor > to.minor {
        let goes_back = |minor| DOWNGRADED_FROM.contains(&Version::new(from.major, minor, 0));
        if from.minor > to.minor + DOWNGRADED_FROM.len() as u32 || !(to.minor + 1..=from.minor).all(goes_back)
        {
            return Way::Restore;
        }
        let between = UPGRADED_FROM.into_iter().rev().filter(|&gate| is_between(to, gate, from));
        steps.extend(between.map(Step::OrLater));
    }
    steps.push(Step::To(to));
    Way::Steps(steps)
}

fn gate(minor: Version) -> Option<Version> {
    UPGRADED_FROM.into_iter().find(|gate| gate.minor() == minor)
}

/// Of a minor version between those of two others.
fn is_between(low: Version, version: Version, high: Version) -> bool {
    low.minor() < version.minor() && version.minor() < high.minor()
}

impl Refusal {
    /// The longest way includes those of the other members.
    fn effort(&self) -> (u32, usize) {
        match &self.way {
            Way::Steps(steps) => (self.from.minor.abs_diff(self.to.minor), steps.len()),
            Way::Restore => (u32::MAX, usize::MAX),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, way } = self;
        write!(f, "{from} -> {to} is not possible: ")?;
        match way {
            Way::Steps(steps) => {
                let steps: Vec<_> = steps.iter().map(Step::to_string).collect();
                write!(f, "set spec.version to {}", steps.join(", then "))
            }
            Way::Restore => {
                let (from, to) = (Minor(*from), Minor(*to));
                write!(
                    f,
                    "etcd {from} cannot go back to {to}; keep {from}, or restore a backup that {to} wrote into a \
                     new cluster"
                )
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::To(version) => version.fmt(f),
            Self::OrLater(version) => write!(f, "{version} or later"),
            Self::EveryMinor(first, last) => {
                write!(f, "each minor version from {} to {}", Minor(*first), Minor(*last))
            }
        }
    }
}

/// As people write it: 3.5.
struct Minor(Version);

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.major, self.0.minor)
    }
}

#[cfg(test)]
mod tests;
