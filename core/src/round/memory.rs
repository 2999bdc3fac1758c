//! What one process remembers of a cluster between two observations. All of it may be lost at any moment: an empty memory
//! makes the operator wait longer, and never bolder.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::consistency::Consistency;
use super::elapsed;
use super::handshakes::{Handshakes, Shown};
use super::space::Space;
use crate::assess::assess;
use crate::auth::{self, Auth, RootPassword};
use crate::intent::Thresholds;
use crate::member::MemberProgress;
use crate::observe::{Pods, Reply};
use crate::observed::{Claim, Handshake, MemberId, Members, Observed, Ordinal};
use crate::tls::Purpose;

/// Cluster DNS learns of a pod when we do, and serves its name a little later. A client that asks before learns that there
/// is no such name, which caches repeat for half a minute; and as soon as a member is added, the others ask for it.
const UNTIL_NAMES_SPREAD: Duration = Duration::from_millis(400);
/// A StatefulSet creates its pods within this time; afterwards its events are worth a request.
const PODS_CREATED_WITHIN: Duration = Duration::from_secs(2);
/// A healthy member responds in milliseconds, but one without a leader only when its own deadlines have passed.
const PATIENCE: Duration = Duration::from_millis(2500);
/// For a pod that did not respond the last time: the others do not wait for it.
const LITTLE_PATIENCE: Duration = Duration::from_millis(300);
/// For a pod that is terminating, whose address may lead nowhere already.
const NO_PATIENCE: Duration = Duration::from_millis(100);

/// Pods by their UIDs.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Since when a member has been silent.
    silent: BTreeMap<MemberId, Timestamp>,
    /// Members that have published themselves.
    started: BTreeSet<MemberId>,
    /// Since when the peer Service lists a pod.
    listed: BTreeMap<String, Timestamp>,
    /// Pods from which anybody ever responded.
    responded: BTreeSet<String>,
    /// Pods from which nobody responded the last time.
    unresponsive: BTreeSet<String>,
    /// Since when the StatefulSet lacks a pod.
    pods_missing: Option<Timestamp>,
    pub auth: auth::Memory,
    /// What ports showed when they were asked last.
    shown: Shown,
    pub(super) space: Space,
    pub consistency: Consistency,
}

impl Memory {
    /// For how long to wait for a response.
    pub fn patience(&self, pod: &str, terminating: bool) -> Duration {
        match (terminating, self.unresponsive.contains(pod)) {
            (true, true) => Duration::ZERO,
            (true, false) => NO_PATIENCE,
            (false, true) => LITTLE_PATIENCE,
            (false, false) => PATIENCE,
        }
    }

    /// A removed member runs for another second, in which it waits for others that do not respond to it any more.
    pub fn expect_silence(&mut self, pod: &str) {
        self.unresponsive.insert(pod.to_owned());
    }

    /// Whether pods have been missing for so long that the StatefulSet's events may tell why.
    pub fn note_missing(&mut self, missing: bool, now: Timestamp) -> bool {
        self.pods_missing = missing.then(|| earliest(self.pods_missing, now));
        self.pods_missing.is_some_and(|since| elapsed(since, now) >= PODS_CREATED_WITHIN)
    }

    pub(crate) fn note_replies(&mut self, pods: &Pods, replies: &BTreeMap<Ordinal, Reply>) {
        let uids: BTreeSet<&String> = pods.values().filter_map(|pod| pod.metadata.uid.as_ref()).collect();
        self.responded.retain(|uid| uids.contains(uid));
        self.unresponsive.clear();
        for (ordinal, reply) in replies {
            let uid = pods.get(ordinal).and_then(|pod| pod.metadata.uid.clone());
            match reply {
                Reply::Etcd { .. } | Reply::Denied | Reply::Agent { .. } => self.responded.extend(uid),
                Reply::Nobody(_) => self.unresponsive.extend(uid),
            }
        }
    }

    /// Whether to ask this pod what its ports show, which should be this.
    pub(crate) fn asks_ports(
        &self,
        pod: &str,
        wanted: &BTreeMap<Purpose, Handshake>,
        now: Timestamp,
    ) -> bool {
        self.shown.is_due(pod, wanted, now)
    }

    pub(crate) fn note_handshakes(
        &mut self,
        pods: &Pods,
        shown: &BTreeMap<Ordinal, Handshakes>,
        now: Timestamp,
    ) {
        let uid = |ordinal: &Ordinal| pods.get(ordinal).and_then(|pod| pod.metadata.uid.clone());
        let shown = shown.iter().filter_map(|(ordinal, it)| Some((uid(ordinal)?, it.clone())));
        let uids: BTreeSet<&String> = pods.values().filter_map(|pod| pod.metadata.uid.as_ref()).collect();
        self.shown.note(&uids, shown, now);
    }

    pub(crate) fn handshakes(&self, pod: &str) -> Handshakes {
        self.shown.of(pod)
    }

    pub(crate) fn has_responded(&self, pod: &str) -> bool {
        self.responded.contains(pod)
    }

    pub(crate) fn note_listed<'a>(&mut self, pods: impl Iterator<Item = &'a String>, now: Timestamp) {
        let since = |pod: &String| (pod.clone(), earliest(self.listed.get(pod).copied(), now));
        self.listed = pods.map(since).collect();
    }

    /// Whether other members can resolve the name of a pod.
    pub(crate) fn is_found_by_name(&self, pod: &str, now: Timestamp) -> bool {
        self.listed.get(pod).is_some_and(|&since| elapsed(since, now) >= UNTIL_NAMES_SPREAD)
    }

    /// In how long the next name can be resolved, if one is awaited.
    pub(super) fn next_name(&self, now: Timestamp) -> Option<Duration> {
        let ages = self.listed.values().map(|&since| elapsed(since, now));
        ages.filter_map(|age| UNTIL_NAMES_SPREAD.checked_sub(age)).filter(|rest| !rest.is_zero()).min()
    }

    /// Whether leadership might move before the leader is defragmented.
    pub(crate) fn is_space_reclaimed(&self) -> bool {
        self.space.is_reclaimed()
    }

    /// Which files have reached both thresholds.
    pub fn note_files(&mut self, seen: &mut Observed, thresholds: Option<Thresholds>) {
        self.space.note_files(seen, thresholds);
    }

    /// What etcd answered about its authentication, if it was asked, and which version of which Secret has the password of
    /// root.
    pub fn note_auth(
        &mut self,
        seen: &mut Observed,
        answer: Option<Auth>,
        (given, version): (Option<RootPassword>, Option<String>),
    ) {
        seen.auth = self.auth.note(answer, version, seen.now);
        seen.root_password = self.auth.judge(given, seen.auth.as_ref());
    }

    /// Remembers which members have become silent, and forgets those that respond. A learner serves no reads, so it only
    /// has to respond.
    pub fn note_silence(&mut self, seen: &mut Observed) {
        let facts = assess(seen);
        if let Some(members) = facts.listed() {
            let speaks = |id: MemberId, learner: bool| match learner {
                true => facts.answer_of(id).is_some(),
                false => facts.serves(id),
            };
            let silent = members.list.iter().filter(|(id, member)| !speaks(**id, member.learner));
            self.silent =
                silent.map(|(&id, _)| (id, earliest(self.silent.get(&id).copied(), seen.now))).collect();
            self.note_started(members, &seen.claims);
        }
        seen.etcd.reclaimed = self.space.note(seen);
        seen.etcd.compared = self.consistency.note(seen);
        seen.etcd.silent_since = self.silent.clone();
        seen.etcd.started = self.started.clone();
    }

    fn note_started(&mut self, members: &Members, claims: &BTreeMap<Ordinal, Claim>) {
        let published = members.list.iter().filter(|(_, member)| member.start == MemberProgress::Published);
        self.started.extend(published.map(|(&id, _)| id));
        let has_volume = |id: &MemberId| claims.values().any(|claim| claim.member == Some(*id));
        self.started.retain(|id| members.list.contains_key(id) || has_volume(id));
    }
}

/// A clock that was set back must not make us wait for the old time to return.
fn earliest(since: Option<Timestamp>, now: Timestamp) -> Timestamp {
    since.map_or(now, |since| since.min(now))
}
