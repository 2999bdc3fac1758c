use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::backup::FormatVersion;
use crate::backup::layout::Layout;
use crate::backup::manifest::{Compression, Encryption, Unreadable};
use crate::backup::segment::{Body, FORMAT, READABLE_FROM, Times};
use crate::observed::ClusterId;

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

/// Its hash is "hash of LAST".
fn segment(first: i64, last: i64, chain_first: i64) -> Segment {
    Segment {
        format: FORMAT.into(),
        format_version: FormatVersion::CURRENT,
        readable_from: READABLE_FROM,
        program_version: "0.1.0".into(),
        cluster_id: "c".into(),
        etcd_version: "3.6.16".into(),
        first,
        last,
        chain_first,
        previous: (first != chain_first).then(|| hash(first - 1)),
        tip: "t".into(),
        times: Times { first: at(first), last: at(last), exact_since: None, confirmed: None },
        body: Body {
            bytes: 1,
            sha256: "s".into(),
            content_bytes: 1,
            compression: Compression::None.into(),
            encryption: Encryption::None.into(),
            recipients: Vec::new(),
        },
    }
}

fn hash(last: i64) -> String {
    format!("hash of {last}")
}

fn exact(first: i64, last: i64, since: i64, confirmed: Option<i64>) -> Segment {
    let mut segment = segment(first, last, 1);
    segment.times.exact_since = Some(at(since));
    segment.times.confirmed = confirmed.map(at);
    segment
}

fn caught_up(first: i64, last: i64, confirmed: Option<i64>) -> Segment {
    let mut segment = segment(first, last, 1);
    segment.times.confirmed = confirmed.map(at);
    segment
}

#[test]
fn a_chain_continues_after_its_newest_segment() {
    assert_eq!(start(None, None), Err(CopyNeeded::NoCopy));
    assert_eq!(start(Some(10), None), Ok(Start::Begin { after: 10 }));
    let newest = segment(11, 20, 5);
    assert_eq!(start(Some(10), Some(&newest)), Ok(Start::Continue { after: 20, newer_copy: None }));
    assert_eq!(start(Some(20), Some(&newest)), Ok(Start::Continue { after: 20, newer_copy: None }));
    assert_eq!(start(Some(30), Some(&newest)), Ok(Start::Continue { after: 20, newer_copy: Some(30) }));
}

#[test]
fn a_chain_that_no_copy_leads_to_is_not_continued() {
    let newest = segment(11, 20, 5);
    assert_eq!(start(Some(4), Some(&newest)), Ok(Start::Continue { after: 20, newer_copy: None }));
    let unconnected = CopyNeeded::Unconnected { copy: 3, chain_first: 5 };
    assert_eq!(start(Some(3), Some(&newest)), Err(unconnected));
}

#[test]
fn what_compaction_removed_is_a_gap_unless_a_copy_has_it() {
    for compacted in [5, 10, 11] {
        assert_eq!(after_compaction(10, compacted, None), Compacted::Continue, "{compacted}");
    }
    let gap = Compacted::Gap { first: 11, last: 19 };
    for copy in [None, Some(9), Some(10), Some(18)] {
        assert_eq!(after_compaction(10, 20, copy), gap, "{copy:?}");
    }
    for copy in [19, 20, 30] {
        assert_eq!(after_compaction(10, 20, Some(copy)), Compacted::Begin { after: copy });
    }
}

#[test]
fn a_replay_of_more_than_ten_minutes_needs_a_new_copy() {
    assert!(!needs_new_copy(5, 5 + 1_200_000));
    assert!(needs_new_copy(5, 5 + 1_200_001));
}

#[test]
fn revisions_arrive_one_after_the_other_and_completely() {
    let mut intake = Intake::after(10);
    assert_eq!(intake.progress(10), Progress::Confirmed);
    assert_eq!(intake.event(11), Ok(Step::Next));
    assert_eq!((intake.complete(), intake.is_open()), (10, true));
    assert_eq!(intake.progress(10), Progress::Stale, "it was sent before the event");
    assert_eq!(intake.event(11), Ok(Step::Same));
    assert_eq!(intake.event(12), Ok(Step::Next));
    assert_eq!(intake.complete(), 11);
    intake.close();
    assert_eq!((intake.complete(), intake.is_open()), (12, false));
    assert_eq!(intake.progress(12), Progress::Confirmed);
    assert_eq!(intake.progress(11), Progress::Stale);
    assert_eq!(intake.progress(13), Progress::Ahead);
}

#[test]
fn a_revision_that_is_left_out_or_comes_again_is_noticed() {
    for found in [10, 12, 5] {
        assert_eq!(Intake::after(10).event(found), Err(Violation { expected: 11, found }));
    }
    let mut intake = Intake::after(10);
    intake.event(11).expect("it follows");
    assert_eq!(intake.event(13), Err(Violation { expected: 12, found: 13 }));
}

#[test]
fn objects_are_followed_by_revision_and_by_hash() {
    let mut follower = Follower::from_copy(10);
    assert_eq!(follower.accept(&segment(12, 20, 1), "x"), Err(Break::Missing(11)));
    assert_eq!(follower.accept(&segment(1, 10, 1), "x"), Err(Break::Missing(11)));
    // The copy lies within the first one.
    assert_eq!(follower.accept(&segment(5, 20, 1), &hash(20)), Ok(()));
    assert_eq!(follower.accept(&segment(22, 30, 1), &hash(30)), Err(Break::Missing(21)));
    let mut other = segment(21, 30, 1);
    other.previous = Some("another".into());
    assert_eq!(follower.accept(&other, &hash(30)), Err(Break::OtherPrevious(21)));
    other.previous = None;
    assert_eq!(follower.accept(&other, &hash(30)), Err(Break::OtherPrevious(21)));
    assert_eq!(follower.accept(&segment(21, 30, 1), &hash(30)), Ok(()));
    assert_eq!(follower.complete(), 30);
}

#[test]
fn a_path_has_every_revision_up_to_its_target() {
    let all = [segment(1, 9, 1), segment(10, 15, 1), segment(16, 20, 1), segment(25, 30, 25)];
    let firsts = |lowest, target| {
        path(lowest, target, &all).map(|path| path.iter().map(|it| it.first).collect::<Vec<_>>())
    };
    assert_eq!(firsts(0, Some(20)), Ok(vec![1, 10, 16]));
    assert_eq!(firsts(9, Some(12)), Ok(vec![10]));
    assert_eq!(firsts(12, Some(18)), Ok(vec![10, 16]));
    assert_eq!(firsts(12, None), Ok(vec![10, 16]));
    assert_eq!(firsts(20, Some(20)), Ok(vec![]));
    assert_eq!(firsts(20, None), Ok(vec![]));
    assert_eq!(firsts(12, Some(26)), Err(Break::Missing(21)));
    assert_eq!(firsts(21, Some(26)), Err(Break::Missing(22)));
    assert_eq!(firsts(24, Some(26)), Ok(vec![25]));
}

/// An archiver that was held up stores its segment after another one has begun a new chain.
#[test]
fn of_two_chains_the_one_that_reaches_the_target_is_the_path() {
    let all = [segment(1, 9, 1), segment(10, 40, 1), segment(25, 30, 25)];
    let firsts =
        |target| path(26, target, &all).map(|path| path.iter().map(|it| it.first).collect::<Vec<_>>());
    assert_eq!(firsts(Some(35)), Ok(vec![10]));
    assert_eq!(firsts(None), Ok(vec![10]));
}

fn place(time: i64, path: &[Segment], end: Option<Moment>) -> Result<Place, String> {
    let path: Vec<_> = path.iter().collect();
    locate(at(time), &path, end).map_err(|error| error.to_string())
}

#[test]
fn the_revision_at_a_time_is_that_of_the_last_one_received_before() {
    // Received at 11, 12 .. 20, and confirmed at 22.
    let path = [exact(11, 20, 8, Some(22)), exact(21, 30, 20, None)];
    assert_eq!(place(8, &path, None), Ok(Place::Within(11)));
    assert_eq!(place(15, &path, None), Ok(Place::Within(11)));
    for time in [20, 21, 22] {
        assert_eq!(place(time, &path, None), Ok(Place::Revision(20)), "{time}");
    }
    assert_eq!(place(25, &path, None), Ok(Place::Within(21)));
    assert_eq!(place(30, &path, None), Ok(Place::Revision(30)));
    let late = "the archive does not know the revision of the cluster at 1970-01-01T00:00:31Z: the last time that it knows is \
                1970-01-01T00:00:30Z (revision 30)";
    assert_eq!(place(31, &path, None), Err(late.into()));
    let end = Moment { time: at(90), revision: 30 };
    assert_eq!(place(60, &path, Some(end)), Ok(Place::Revision(30)));
    assert!(place(91, &path, Some(end)).is_err_and(|it| it.ends_with("1970-01-01T00:01:30Z (revision 30)")));
    let early = "the archive does not know the revision of the cluster at 1970-01-01T00:00:07Z: the first time that it knows is \
                 1970-01-01T00:00:08Z (revision 10)";
    assert_eq!(place(7, &path, None), Err(early.into()));
}

#[test]
fn a_time_while_the_archiver_caught_up_is_refused_with_the_nearest_exact_ones() {
    let path = [
        exact(11, 20, 8, Some(22)),
        caught_up(21, 30, None),
        caught_up(31, 40, Some(60)),
        exact(41, 70, 60, Some(75)),
    ];
    let refused = "the archive does not know the revision of the cluster at 1970-01-01T00:00:40Z: it caught up then; the nearest \
                   times that it knows are 1970-01-01T00:00:22Z (revision 20) and 1970-01-01T00:01:00Z (revision 40)";
    assert_eq!(place(40, &path, None), Err(refused.into()));
    assert_eq!(place(22, &path, None), Ok(Place::Revision(20)));
    assert_eq!(place(60, &path, None), Ok(Place::Revision(40)));
    assert_eq!(place(65, &path, None), Ok(Place::Within(41)));
}

#[test]
fn nothing_was_written_between_two_times_with_the_same_revision() {
    // The archiver was down from 22 to 50, and the cluster idle.
    let path = [exact(11, 20, 8, Some(22)), exact(21, 60, 50, None)];
    assert_eq!(place(40, &path, None), Ok(Place::Revision(20)));
    assert_eq!(
        place(22, &[caught_up(11, 20, None)], None).map_err(|it| it.ends_with("no segment with exact times")),
        Err(true)
    );
}

#[test]
fn only_a_segment_of_its_place_is_read() {
    let layout = Layout::new("", ClusterId(0xc));
    let good = segment(11, 20, 5);
    let text = format!("{}body\n", good.render());
    assert_eq!(Segment::read(text.as_bytes(), 11, &layout), Ok((good.clone(), text.len() - 5)));
    let of = |text: &str, first| Segment::read(text.as_bytes(), first, &layout).map(|_| ());
    assert!(matches!(of(&text, 12), Err(Unreadable::Foreign("its revisions are not those of its name"))));
    let backwards = Segment { last: 10, ..good.clone() }.render();
    assert!(matches!(of(&backwards, 11), Err(Unreadable::Foreign(_))));
    let other = Segment { cluster_id: "d".into(), ..good.clone() }.render();
    assert!(matches!(of(&other, 11), Err(Unreadable::Foreign("it names another cluster"))));
    let newer = Segment { readable_from: FormatVersion(999), ..good }.render();
    assert!(matches!(of(&newer, 11), Err(Unreadable::Newer { .. })));
    for text in ["{}\n", "{\"format\":\"etcd-k8s-operator/segment\"}", "x\n", ""] {
        assert!(of(text, 11).is_err(), "{text}");
    }
}

fn configuration() -> ProptestConfig {
    ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

/// Chains with gaps between them, some of which begin while the previous one still goes on, and copies anywhere.
fn world() -> impl Strategy<Value = (Vec<Segment>, Vec<i64>)> {
    let chain = (-3_i64..6, prop::collection::vec(1_i64..6, 0..8));
    (prop::collection::vec(chain, 1..4), prop::collection::btree_set(1_i64..60, 0..5)).prop_map(
        |(chains, copies)| {
            let (mut all, mut end) = (std::collections::BTreeMap::new(), 1);
            for (distance, lengths) in chains {
                let chain_first = (end + distance).max(1);
                let mut first = chain_first;
                for length in lengths {
                    // A conditional put: the first one stays, and the other archiver does not continue.
                    if all.contains_key(&first) {
                        break;
                    }
                    all.insert(first, segment(first, first + length - 1, chain_first));
                    first += length;
                }
                end = first;
            }
            (all.into_values().collect(), copies.into_iter().collect())
        },
    )
}

fn reach(copy: i64, segments: &[Segment]) -> i64 {
    path(copy, None, segments).ok().and_then(|path| path.last().map(|it| it.last)).unwrap_or(copy)
}

proptest! {
    #![proptest_config(configuration())]

    #[test]
    fn what_retention_deletes_shortens_the_chain_of_no_copy((segments, copies) in world()) {
        let newest = segments.last().map_or(0, |it| it.first);
        let left: Vec<_> = segments.iter().filter(|it| !is_outdated(it, newest, Some(&copies))).cloned().collect();
        for copy in &copies {
            prop_assert_eq!(reach(*copy, &left), reach(*copy, &segments), "of the copy at {}", copy);
        }
        prop_assert_eq!(left.last(), segments.last());
        prop_assert!(!copies.is_empty() || left.len() == segments.len());
    }

    #[test]
    fn an_unknown_copy_might_need_every_segment((segments, _) in world()) {
        let newest = segments.last().map_or(0, |it| it.first);
        prop_assert!(segments.iter().all(|it| !is_outdated(it, newest, None)));
    }

    #[test]
    fn a_path_is_consecutive_and_its_objects_are_accepted((segments, copies) in world()) {
        for copy in copies {
            let path = path(copy, None, &segments).expect("without a target there is always one");
            let mut follower = Follower::from_copy(copy);
            for (at, segment) in path.iter().enumerate() {
                // What a foreign chain continues is refused by the hash, which these chains share.
                if at > 0 && segment.first == segment.chain_first {
                    break;
                }
                prop_assert_eq!(follower.accept(segment, &hash(segment.last)), Ok(()));
            }
        }
    }

    #[test]
    fn every_revision_of_an_exact_chain_is_found_at_its_time(lengths in prop::collection::vec(1_i64..5, 1..6), pick in 0_usize..30) {
        let (mut first, mut all) = (1, Vec::new());
        for length in lengths {
            let last = first + length - 1;
            all.push(exact(first, last, first - 1, Some(last)));
            first += length;
        }
        let revision = 1 + i64::try_from(pick).expect("it is small") % (first - 1);
        let path: Vec<_> = all.iter().collect();
        let found = locate(at(revision), &path, None).expect("all times are exact");
        let holder = all.iter().find(|it| it.first <= revision && revision <= it.last).expect("it is in one");
        let expected = if revision == holder.last { Place::Revision(revision) } else { Place::Within(holder.first) };
        prop_assert_eq!(found, expected);
    }
}
