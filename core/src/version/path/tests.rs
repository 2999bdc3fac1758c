use proptest::prelude::*;

use super::*;

fn version(text: &str) -> Version {
    Version::parse(text).expect("a version")
}

/// Words are versions; `?` is a member that does not report one.
fn judged(members: &str, wanted: &str) -> Verdict {
    judge(members.split_whitespace().map(Version::parse), version(wanted))
}

#[test]
fn one_minor_version_at_a_time_and_any_patch_version() {
    use Verdict::{Downgrade, Nothing, Patch, Unknown, Upgrade};
    for (members, wanted, expected) in [
        ("3.5.21 3.5.21", "3.5.21", Nothing),
        ("3.5.21 3.5.21", "3.5.35", Patch),
        ("3.5.35 3.5.35", "3.5.9", Patch),
        ("3.5.35 3.5.21", "3.5.35", Patch),
        ("3.5.26", "3.6.0", Upgrade),
        ("3.5.35 3.6.16 3.5.35", "3.6.16", Upgrade),
        // The first member went on to a patch version that is not wanted any more.
        ("3.5.35 3.6.15", "3.6.16", Upgrade),
        ("3.6.11 3.6.11", "3.7.3", Upgrade),
        ("3.7.3", "3.8.0", Upgrade),
        ("3.9.1", "3.10.0", Upgrade),
        ("3.6.16 3.6.16", "3.5.35", Downgrade),
        ("3.6.0", "3.5.3", Downgrade),
        ("3.7.3", "3.6.16", Downgrade),
        // In the middle of an upgrade or a downgrade.
        ("3.5.35 3.6.16", "3.5.35", Downgrade),
        ("3.5.35 3.6.16", "3.5.9", Downgrade),
        ("? ? ?", "3.5.35", Unknown),
        ("3.5.35 ?", "3.5.35", Unknown),
        ("3.5.35 ?", "3.6.16", Unknown),
        ("", "3.6.16", Unknown),
    ] {
        assert_eq!(judged(members, wanted), expected, "{members} -> {wanted}");
    }
}

#[test]
fn a_refusal_names_the_way() {
    for (members, wanted, expected) in [
        (
            "3.5.21",
            "3.7.3",
            "3.5.21 -> 3.7.3 is not possible: set spec.version to 3.5.26 or later, then 3.6.11 or later, then 3.7.3",
        ),
        (
            "3.5.35",
            "3.7.3",
            "3.5.35 -> 3.7.3 is not possible: set spec.version to 3.6.11 or later, then 3.7.3",
        ),
        (
            "3.5.25",
            "3.6.16",
            "3.5.25 -> 3.6.16 is not possible: set spec.version to 3.5.26 or later, then 3.6.16",
        ),
        (
            "3.6.10",
            "3.7.0",
            "3.6.10 -> 3.7.0 is not possible: set spec.version to 3.6.11 or later, then 3.7.0",
        ),
        (
            "3.6.9",
            "3.8.1",
            "3.6.9 -> 3.8.1 is not possible: set spec.version to 3.6.11 or later, then 3.7.0 or later, then 3.8.1",
        ),
        (
            "3.6.16",
            "3.999999.0",
            "3.6.16 -> 3.999999.0 is not possible: set spec.version to each minor version from 3.7 to 3.999998, then \
             3.999999.0",
        ),
        (
            "3.7.3",
            "3.5.35",
            "3.7.3 -> 3.5.35 is not possible: set spec.version to 3.6.11 or later, then 3.5.35",
        ),
        (
            "3.8.0",
            "3.7.3",
            "3.8.0 -> 3.7.3 is not possible: etcd 3.8 cannot go back to 3.7; keep 3.8, or restore a backup that 3.7 \
             wrote into a new cluster",
        ),
        (
            "3.8.0",
            "3.6.16",
            "3.8.0 -> 3.6.16 is not possible: etcd 3.8 cannot go back to 3.6; keep 3.8, or restore a backup that 3.6 \
             wrote into a new cluster",
        ),
        (
            "3.5.21",
            "3.4.30",
            "3.5.21 -> 3.4.30 is not possible: etcd 3.5 cannot go back to 3.4; keep 3.5, or restore a backup that 3.4 \
             wrote into a new cluster",
        ),
        // One member that cannot is enough, and silent ones cannot make it possible.
        (
            "3.6.16 3.5.21",
            "3.6.16",
            "3.5.21 -> 3.6.16 is not possible: set spec.version to 3.5.26 or later, then 3.6.16",
        ),
        (
            "3.6.16 3.5.35 ?",
            "3.7.3",
            "3.5.35 -> 3.7.3 is not possible: set spec.version to 3.6.11 or later, then 3.7.3",
        ),
    ] {
        let verdict = judged(members, wanted);
        let Verdict::Refused(refusal) = verdict else { panic!("{members} -> {wanted}: {verdict:?}") };
        assert_eq!(refusal.to_string(), expected);
    }
}

fn any_version() -> impl Strategy<Value = Version> {
    (4_u32..10, 0_u32..40).prop_map(|(minor, patch)| Version::new(3, minor, patch))
}

/// Versions that run side by side: of one minor version, or of two that follow each other.
fn cluster() -> impl Strategy<Value = Vec<Version>> {
    let member = |minor: u32| {
        (0..=1_u32, 0_u32..40).prop_map(move |(more, patch)| Version::new(3, minor + more, patch))
    };
    (4_u32..9).prop_flat_map(move |minor| prop::collection::vec(member(minor), 1..=5))
}

fn versions(step: Step, later: u32) -> Vec<Version> {
    match step {
        Step::To(version) => vec![version],
        Step::OrLater(version) => vec![Version { patch: version.patch + later, ..version }],
        Step::EveryMinor(first, last) => {
            (first.minor..=last.minor).map(|minor| Version::new(3, minor, later)).collect()
        }
    }
}

proptest! {
    #[test]
    fn the_way_that_is_named_leads_there(members in cluster(), wanted in any_version(), later in 0_u32..3) {
        let Verdict::Refused(refusal) = judge(members.iter().copied().map(Some), wanted) else { return Ok(()) };
        let Way::Steps(steps) = refusal.way else { return Ok(()) };
        prop_assert_eq!(steps.last(), Some(&Step::To(wanted)));
        let mut members = members;
        for version in steps.into_iter().flat_map(|step| versions(step, later)) {
            let verdict = judge(members.iter().copied().map(Some), version);
            prop_assert!(!matches!(verdict, Verdict::Refused(_)), "{members:?} -> {version}: {verdict:?}");
            members.fill(version);
        }
    }

    #[test]
    fn no_member_skips_a_minor_version_or_a_gate(members in cluster(), wanted in any_version()) {
        let verdict = judge(members.iter().copied().map(Some), wanted);
        if matches!(verdict, Verdict::Refused(_)) {
            return Ok(());
        }
        for from in members {
            prop_assert!(from.minor.abs_diff(wanted.minor) <= 1, "{from} -> {wanted}: {verdict:?}");
            let (gated, goes_up) = (from.minor == 5 || from.minor == 6, wanted.minor > from.minor);
            let least = if from.minor == 5 { 26 } else { 11 };
            prop_assert!(!gated || !goes_up || from.patch >= least, "{from} -> {wanted}: {verdict:?}");
            prop_assert!(wanted.minor >= from.minor || from.minor == 6 || from.minor == 7);
        }
    }

    /// A roll that was judged possible stays possible after each member that it finished.
    #[test]
    fn a_roll_that_began_can_be_finished(members in cluster(), wanted in any_version()) {
        let mut members = members;
        if matches!(judge(members.iter().copied().map(Some), wanted), Verdict::Refused(_)) {
            return Ok(());
        }
        for rolled in 0..members.len() {
            members[rolled] = wanted;
            let verdict = judge(members.iter().copied().map(Some), wanted);
            prop_assert!(!matches!(verdict, Verdict::Refused(_)), "{members:?} -> {wanted}: {verdict:?}");
        }
        prop_assert_eq!(judge(members.into_iter().map(Some), wanted), Verdict::Nothing);
    }

    #[test]
    fn a_silent_member_is_never_taken_for_one_that_can(members in cluster(), wanted in any_version()) {
        let silent = members.into_iter().map(Some).chain([None]);
        prop_assert!(matches!(judge(silent, wanted), Verdict::Unknown | Verdict::Refused(_)));
    }
}
