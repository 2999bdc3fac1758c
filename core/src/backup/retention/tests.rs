use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000_000).expect("a time")
}

/// One that is so many seconds old.
fn copy(age: i64) -> Stored {
    let completed_at = now() - SignedDuration::from_secs(age);
    let name = CopyName::new(completed_at, age.unsigned_abs());
    Stored { name, revision: 1000 - age, completed_at, is_complete: true }
}

fn ages(copies: &[Stored], retention: &Retention) -> Vec<i64> {
    let deleted = outdated(copies, retention, now());
    let age = |name: &CopyName| {
        copies.iter().find(|it| it.name == *name).map(|it| now().duration_since(it.completed_at))
    };
    deleted.iter().map(|name| age(name).expect("it was given").as_secs()).collect()
}

#[test]
fn copies_beyond_the_count_and_older_than_the_age_are_deleted() {
    let copies = [40, 10, 30, 20].map(copy);
    let count = Retention { max_copies: Some(2), ..Retention::default() };
    assert_eq!(ages(&copies, &count), [40, 30]);
    let age = Retention { max_age_seconds: Some(30), ..Retention::default() };
    assert_eq!(ages(&copies, &age), [40]);
    assert_eq!(
        ages(&copies, &Retention { max_copies: Some(3), max_age_seconds: Some(15), ..count }),
        [40, 30, 20]
    );
    assert_eq!(ages(&copies, &Retention::default()), [0; 0]);
}

#[test]
fn the_last_good_copy_stays_however_old_it_is() {
    let nothing = Retention { max_copies: Some(0), max_age_seconds: Some(0), ..Retention::default() };
    assert_eq!(ages(&[copy(20), copy(10)], &nothing), [20]);
    let incomplete = Stored { is_complete: false, ..copy(5) };
    assert_eq!(ages(&[copy(20), incomplete.clone()], &nothing), [5]);
    let damaged = Retention { damaged: [copy(10).name].into(), ..nothing.clone() };
    assert_eq!(ages(&[copy(20), copy(10)], &damaged), [10]);
    // Without any good copy, what is there might be all that can be saved.
    assert_eq!(ages(&[incomplete], &nothing), [0; 0]);
}

/// A run whose clock is ahead would make every later copy seem old.
#[test]
fn the_revision_decides_which_copy_is_newer_and_not_the_clock() {
    let one = Retention { max_copies: Some(1), ..Retention::default() };
    let ahead = Stored { revision: 980, ..copy(-1000) };
    assert_eq!(ages(&[copy(30), ahead.clone(), copy(10)], &one), [30, -1000]);
    let idle = Stored { revision: 990, ..ahead };
    assert_eq!(ages(&[copy(10), idle], &one), [10], "the same data, so the time decides");
}

#[test]
fn copies_that_are_not_good_push_no_good_one_out() {
    let one = Retention { max_copies: Some(1), damaged: [copy(10).name].into(), ..Retention::default() };
    assert_eq!(ages(&[copy(30), copy(20), copy(10)], &one), [30]);
}

#[test]
fn what_a_chain_needs_stays() {
    let needed = Retention { max_copies: Some(1), needed: [copy(30).name].into(), ..Retention::default() };
    assert_eq!(ages(&[copy(30), copy(20), copy(10)], &needed), [20]);
}

fn configuration() -> ProptestConfig {
    ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

/// Copies of a few different ages and revisions, some at the same time, some from the future.
fn stored() -> impl Strategy<Value = Vec<Stored>> {
    let one = (-3_i64..40, 0_i64..20, 0_u64..1000, prop::bool::weighted(0.8));
    prop::collection::vec(one, 0..12).prop_map(|all| {
        let copies = all.into_iter().map(|(age, revision, random, is_complete)| {
            let completed_at = now() - SignedDuration::from_secs(age);
            Stored { name: CopyName::new(completed_at, random), revision, completed_at, is_complete }
        });
        let by_name: std::collections::BTreeMap<_, _> = copies.map(|it| (it.name.clone(), it)).collect();
        by_name.into_values().collect()
    })
}

fn world() -> impl Strategy<Value = (Vec<Stored>, Retention)> {
    stored().prop_flat_map(|copies| {
        let names: Vec<_> = copies.iter().map(|it| it.name.clone()).collect();
        let some = move || prop::sample::subsequence(names.clone(), 0..=names.len().min(3));
        let retention = (prop::option::of(0_u32..6), prop::option::of(0_u64..40), some(), some()).prop_map(
            |(max_copies, max_age_seconds, needed, damaged)| Retention {
                max_copies,
                max_age_seconds,
                needed: needed.into_iter().collect(),
                damaged: damaged.into_iter().collect(),
            },
        );
        (Just(copies), retention)
    })
}

fn good<'a>(copies: &'a [Stored], retention: &Retention) -> Vec<&'a Stored> {
    copies.iter().filter(|it| it.is_complete && !retention.damaged.contains(&it.name)).collect()
}

proptest! {
    #![proptest_config(configuration())]

    #[test]
    fn no_state_loses_its_last_good_copy_or_one_that_a_chain_needs((copies, retention) in world()) {
        let deleted = outdated(&copies, &retention, now());
        let newest = good(&copies, &retention).into_iter().max_by_key(|it| (it.revision, it.completed_at, it.name.clone()));
        prop_assert!(newest.is_none_or(|it| !deleted.contains(&it.name)));
        prop_assert!(newest.is_some() || deleted.is_empty());
        prop_assert!(deleted.iter().all(|it| !retention.needed.contains(it)));
    }

    #[test]
    fn as_many_good_copies_stay_as_were_asked_for((copies, retention) in world()) {
        let Some(max) = retention.max_copies.filter(|_| retention.max_age_seconds.is_none()) else { return Ok(()) };
        let deleted = outdated(&copies, &retention, now());
        let before = good(&copies, &retention);
        let kept = before.iter().filter(|it| !deleted.contains(&it.name)).count();
        prop_assert!(kept >= before.len().min(max as usize));
    }

    #[test]
    fn what_stays_is_within_the_limits_or_has_a_reason((copies, retention) in world()) {
        let deleted = outdated(&copies, &retention, now());
        let left: Vec<_> = copies.iter().filter(|it| !deleted.contains(&it.name)).cloned().collect();
        prop_assert_eq!(outdated(&left, &retention, now()), []);
        let good = good(&left, &retention);
        let free = good.iter().filter(|it| !retention.needed.contains(&it.name)).count();
        let max = retention.max_copies.map_or(usize::MAX, |max| max.max(1) as usize);
        prop_assert!(free <= max, "{free} of {max}");
    }

    #[test]
    fn the_order_in_which_a_store_lists_does_not_matter((copies, retention) in world()) {
        let reversed: Vec<_> = copies.iter().rev().cloned().collect();
        prop_assert_eq!(outdated(&copies, &retention, now()), outdated(&reversed, &retention, now()));
    }
}
