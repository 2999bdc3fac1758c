//! Notices at once when a member or its leader goes, which raises no event in Kubernetes: one idle stream per member.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_operator_core::round::LearnsBy;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

use super::observation::Observation;
use crate::cluster::pods;
use crate::etcd::Member;

/// A stream that breaks at once says no more than the next observation will.
const SHORTEST: Duration = Duration::from_secs(1);

pub struct MemberWatch {
    wake: Arc<Notify>,
    /// By the UID of the pod.
    watched: HashMap<String, AbortHandle>,
    watches: JoinSet<()>,
}

impl MemberWatch {
    pub fn new(wake: Arc<Notify>) -> Self {
        Self { wake, watched: HashMap::new(), watches: JoinSet::new() }
    }

    /// Watches exactly the members that serve now. Returns how we have learned of what happened since the observation before.
    pub fn keep(&mut self, observation: &Observation) -> LearnsBy {
        while self.watches.try_join_next().is_some() {}
        let serving: HashMap<String, Arc<Member>> = observation
            .asked
            .reached
            .iter()
            .filter(|(ordinal, _)| {
                let answer = observation.seen.etcd.answers.get(ordinal).and_then(|answer| answer.known());
                answer.is_some_and(|answer| answer.linearizable)
            })
            .filter_map(|(ordinal, member)| {
                Some((pods::address(observation.objects.pods.get(ordinal)?)?.uid, Arc::clone(member)))
            })
            .collect();
        self.watched.retain(|uid, watch| {
            let keep = serving.contains_key(uid) && !watch.is_finished();
            if !keep {
                watch.abort();
            }
            keep
        });
        let members = observation.seen.etcd.members.known().map(|members| members.list.len());
        let unbroken = members == Some(self.watched.len()) && serving.len() == self.watched.len();
        for (uid, member) in serving {
            let (wake, watches) = (Arc::clone(&self.wake), &mut self.watches);
            self.watched.entry(uid).or_insert_with(|| watches.spawn(watch(member, wake)));
        }
        match unbroken {
            true => LearnsBy::Streams,
            false if observation.asked.replies.is_empty() => LearnsBy::Kubernetes,
            false => LearnsBy::Asking,
        }
    }
}

async fn watch(member: Arc<Member>, wake: Arc<Notify>) {
    let begun = Instant::now();
    member.watch_until_lost().await;
    tokio::time::sleep(SHORTEST.saturating_sub(begun.elapsed())).await;
    wake.notify_one();
}
