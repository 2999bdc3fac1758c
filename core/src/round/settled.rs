//! A settled cluster is observed again and again. As long as an observation shows the same, there is nothing to compute.

use jiff::Timestamp;

use crate::observed::{Answer, Etcd, Observed, Seen};

/// Versions of what matters and is not part of the snapshot: the content of objects.
pub type Unseen = Vec<Option<String>>;

/// What a cluster looked like when there was nothing to do.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    observed: Observed,
    unseen: Unseen,
    until: Option<Timestamp>,
}

impl Settled {
    /// `until`: then the status has to report that it is fresh, and whatever else depends on time has its turn, too.
    pub fn of(observed: &Observed, unseen: &Unseen, until: Option<Timestamp>) -> Self {
        Self { observed: observed.clone(), unseen: unseen.clone(), until }
    }

    pub fn still_holds(&self, observed: &Observed, unseen: &Unseen) -> bool {
        self.until.is_some_and(|until| observed.now < until)
            && self.unseen == *unseen
            && show_the_same(&self.observed, observed)
    }
}

/// Whether two observations differ only in what changes although nothing happens.
pub fn show_the_same(one: &Observed, other: &Observed) -> bool {
    let Observed {
        now: _,
        versions: _,
        cluster,
        order,
        recovery,
        set,
        record,
        pods,
        preflights,
        claims,
        restored,
        elsewhere,
        secrets,
        given,
        transport,
        pod_monitor,
        nodes,
        backups,
        taken,
        etcd,
        auth,
        root_password,
    } = one;
    let Etcd { answers, members, via, silent_since, started, reclaimed, compared, fragmented } = etcd;
    let same = |(one, other): (&Seen<Answer>, &Seen<Answer>)| match (one, other) {
        (Seen::Known(one), Seen::Known(other)) => {
            let Answer { applied_index, commit_index, file, .. } = *one;
            one == other || Answer { applied_index, commit_index, file, ..other.clone() } == *one
        }
        (one, other) => one == other,
    };
    let theirs = &other.etcd;
    *via == theirs.via
        && *members == theirs.members
        && (silent_since, started) == (&theirs.silent_since, &theirs.started)
        && (reclaimed, compared, fragmented) == (&theirs.reclaimed, &theirs.compared, &theirs.fragmented)
        && answers.keys().eq(theirs.answers.keys())
        && answers.values().zip(theirs.answers.values()).all(same)
        && (pods, preflights, nodes) == (&other.pods, &other.preflights, &other.nodes)
        && (cluster, order, set) == (&other.cluster, &other.order, &other.set)
        && *recovery == other.recovery
        && (restored, elsewhere) == (&other.restored, &other.elsewhere)
        && (record, claims, taken) == (&other.record, &other.claims, &other.taken)
        && (secrets, given, transport) == (&other.secrets, &other.given, &other.transport)
        && *pod_monitor == other.pod_monitor
        && (auth, root_password, backups) == (&other.auth, &other.root_password, &other.backups)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::observed::{ClusterId, MemberId, Ordinal, Unanswered};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn answer(applied_index: u64) -> Answer {
        let (cluster, member) = (ClusterId(0xc1), MemberId(0xa0));
        Answer {
            cluster,
            member,
            leader: Some(member),
            linearizable: true,
            denied: false,
            applied_index,
            commit_index: applied_index,
            term: 2,
            version: None,
            storage_version: None,
            downgrade: Default::default(),
            listed: None,
            hash: None,
            alarms: BTreeSet::new(),
            space: None,
            file: None,
            reaches: None,
        }
    }

    fn seen(now: i64, answer: Seen<Answer>) -> Observed {
        let mut seen = Observed { now: at(now), ..Observed::nothing_of("uid") };
        seen.etcd.answers.insert(Ordinal(0), answer);
        seen
    }

    fn unseen(cluster: &str) -> Unseen {
        vec![Some(cluster.into()), Some("1".into()), None]
    }

    #[test]
    fn what_looks_the_same_is_not_computed_again_however_many_writes_etcd_has_taken() {
        let settled = Settled::of(&seen(100, Seen::Known(answer(7))), &unseen("5"), Some(at(400)));
        assert!(settled.still_holds(&seen(110, Seen::Known(answer(7))), &unseen("5")));
        assert!(settled.still_holds(&seen(399, Seen::Known(answer(9000))), &unseen("5")));
    }

    #[test]
    fn another_version_another_answer_and_the_time_of_the_heartbeat_are_looked_into() {
        let settled = Settled::of(&seen(100, Seen::Known(answer(7))), &unseen("5"), Some(at(400)));
        assert!(!settled.still_holds(&seen(110, Seen::Known(answer(7))), &unseen("6")));
        let without_leader = Answer { leader: None, linearizable: false, ..answer(7) };
        assert!(!settled.still_holds(&seen(110, Seen::Known(without_leader)), &unseen("5")));
        assert!(!settled.still_holds(&seen(110, Seen::Unknown(Unanswered::NoMember)), &unseen("5")));
        assert!(!settled.still_holds(&seen(400, Seen::Known(answer(7))), &unseen("5")));
    }

    #[test]
    fn without_a_status_nothing_is_settled() {
        let settled = Settled::of(&seen(100, Seen::Known(answer(7))), &unseen("5"), None);
        assert!(!settled.still_holds(&seen(100, Seen::Known(answer(7))), &unseen("5")));
    }
}
