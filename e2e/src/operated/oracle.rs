//! Whether the status agrees with etcd at every moment of a test, and not only when all is settled.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use etcd_operator_core::api::MemberStatus;
use etcd_operator_core::observed::MemberId;
use futures::future::join_all;
use tokio::task::JoinSet;

use super::Operated;
use crate::etcd::Member;

/// For so long the status can contradict etcd where a watch or a stream reports what happened.
const REPORTED: Duration = Duration::from_secs(5);
/// Nothing reports that a member serves again: the operator polls every ten seconds, and a fifth is chance.
const POLLED: Duration = Duration::from_secs(12 + 5);
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// A member that does not serve a read in this time does not serve.
const GLANCE: Duration = Duration::from_millis(1000);

/// Compares as long as it exists. For tests in which nothing keeps the operator from its work.
pub struct StatusOracle {
    clocks: Arc<Mutex<Clocks>>,
    _comparing: JoinSet<()>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Contradiction {
    DoesNotServe(String),
    Serves(String),
    OtherMembers { listed: BTreeSet<String>, reported: BTreeSet<String> },
}

/// For how long each contradiction has lasted, and the longest that did not end in time.
#[derive(Debug, Default)]
struct Clocks {
    since: BTreeMap<Contradiction, Instant>,
    too_long: BTreeMap<Contradiction, Duration>,
}

/// What etcd itself shows.
#[derive(Debug, Default)]
struct Shown {
    /// The pods whose etcd has just served a linearizable read.
    serving: BTreeSet<String>,
    /// The voters by name, and all members by ID; None while no member serves.
    voters: BTreeSet<String>,
    listed: Option<BTreeSet<String>>,
    /// Pods that terminate: their etcd can end at any moment.
    ending: BTreeSet<String>,
}

impl Operated {
    /// From now on.
    pub fn status_oracle(&self) -> StatusOracle {
        let (clocks, mut comparing) = (Arc::<Mutex<Clocks>>::default(), JoinSet::new());
        let (cluster, noted) = (self.clone(), Arc::clone(&clocks));
        comparing.spawn(async move {
            loop {
                // What cannot be read contradicts nothing.
                let found = cluster.contradictions().await.unwrap_or_default();
                lock(&noted).note(found, Instant::now());
                tokio::time::sleep(SAMPLE_EVERY).await;
            }
        });
        StatusOracle { clocks, _comparing: comparing }
    }

    async fn contradictions(&self) -> Result<BTreeSet<Contradiction>> {
        let pods = self.pods().await?;
        let ending = pods.iter().filter(|(_, pod)| pod.metadata.deletion_timestamp.is_some());
        let ending = ending.map(|(name, _)| name.clone()).collect();
        let members = self.members_of(&pods).await?;
        let asked = members.iter().map(async |member: &Member| (member, member.serves(GLANCE).await.is_ok()));
        let asked = join_all(asked).await.into_iter().filter(|(_, serves)| *serves);
        let serving: Vec<&Member> = asked.map(|(member, _)| member).collect();
        let list = match serving.first() {
            Some(member) => Some(member.list().await?),
            None => None,
        };
        let voters = list.iter().flatten().filter(|it| !it.is_learner).map(|it| it.name.clone()).collect();
        let ids =
            |list: Vec<_>| list.iter().map(|it: &crate::etcd::Listed| MemberId(it.id).to_string()).collect();
        let serving = serving.into_iter().map(|member| member.name.clone()).collect();
        let shown = Shown { serving, voters, listed: list.map(ids), ending };
        let object = self.object().await?;
        if object.metadata.deletion_timestamp.is_some() {
            return Ok(BTreeSet::new());
        }
        Ok(shown.contradictions(&object.status.map(|status| status.members).unwrap_or_default()))
    }
}

impl Shown {
    fn contradictions(&self, reported: &[MemberStatus]) -> BTreeSet<Contradiction> {
        let ready = reported.iter().filter(|member| member.ready).filter_map(|member| member.name.clone());
        let ready: BTreeSet<String> = ready.collect();
        let serving: BTreeSet<String> = self.serving.intersection(&self.voters).cloned().collect();
        let stays = |name: &&String| !self.ending.contains(*name);
        let mut found = BTreeSet::new();
        let wrong = ready.difference(&serving).filter(stays);
        found.extend(wrong.cloned().map(Contradiction::DoesNotServe));
        let missing = serving.difference(&ready).filter(stays);
        found.extend(missing.cloned().map(Contradiction::Serves));
        let reported: BTreeSet<String> = reported.iter().filter_map(|member| member.id.clone()).collect();
        if let Some(listed) = self.listed.as_ref().filter(|listed| **listed != reported) {
            found.insert(Contradiction::OtherMembers { listed: listed.clone(), reported });
        }
        found
    }
}

impl Clocks {
    fn note(&mut self, found: BTreeSet<Contradiction>, now: Instant) {
        self.since.retain(|it, _| found.contains(it));
        for contradiction in found {
            let lasted = now - *self.since.entry(contradiction.clone()).or_insert(now);
            if lasted > contradiction.limit() {
                self.too_long.insert(contradiction, lasted);
            }
        }
    }
}

impl Contradiction {
    fn limit(&self) -> Duration {
        match self {
            Self::Serves(_) => POLLED,
            Self::DoesNotServe(_) | Self::OtherMembers { .. } => REPORTED,
        }
    }
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoesNotServe(member) => {
                write!(f, "{member} does not serve, and the status reports that it does")
            }
            Self::Serves(member) => write!(f, "{member} serves, and the status does not report it"),
            Self::OtherMembers { listed, reported } => {
                write!(f, "etcd lists the members {listed:?}, the status {reported:?}")
            }
        }
    }
}

impl StatusOracle {
    pub fn verdict(self) -> Result<()> {
        let clocks = lock(&self.clocks);
        let told =
            clocks.too_long.iter().map(|(what, time)| format!("for {:.1} s: {what}", time.as_secs_f64()));
        let told: Vec<String> = told.collect();
        ensure!(told.is_empty(), "the status contradicted etcd for too long:\n{}", told.join("\n"));
        Ok(())
    }
}

fn lock(clocks: &Mutex<Clocks>) -> MutexGuard<'_, Clocks> {
    clocks.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn reported(name: &str, id: &str, ready: bool) -> MemberStatus {
        MemberStatus { name: Some(name.into()), id: Some(id.into()), ready, ..MemberStatus::default() }
    }

    #[test]
    fn a_status_is_compared_with_what_etcd_shows() {
        let (serving, voters) = (names(&["kv-0", "kv-1"]), names(&["kv-0", "kv-1", "kv-2"]));
        let listed = Some(names(&["a0", "a1", "a2"]));
        let mut shown = Shown { serving, voters, listed, ending: BTreeSet::new() };
        let mut status =
            vec![reported("kv-0", "a0", true), reported("kv-1", "a1", true), reported("kv-2", "a2", false)];
        assert_eq!(shown.contradictions(&status), BTreeSet::new());
        (status[1].ready, status[2].ready) = (false, true);
        let wrong = [Contradiction::DoesNotServe("kv-2".into()), Contradiction::Serves("kv-1".into())];
        assert_eq!(shown.contradictions(&status), wrong.into());
        shown.ending = names(&["kv-1", "kv-2"]);
        status.pop();
        let other = Contradiction::OtherMembers {
            listed: names(&["a0", "a1", "a2"]),
            reported: names(&["a0", "a1"]),
        };
        assert_eq!(shown.contradictions(&status), [other].into());
    }

    #[test]
    fn only_what_lasts_is_told() {
        let (mut clocks, start) = (Clocks::default(), Instant::now());
        let wrong = || BTreeSet::from([Contradiction::DoesNotServe("kv-0".into())]);
        clocks.note(wrong(), start);
        clocks.note(wrong(), start + REPORTED);
        clocks.note(BTreeSet::new(), start + REPORTED);
        clocks.note(wrong(), start + REPORTED * 2);
        assert!(clocks.too_long.is_empty());
        clocks.note(wrong(), start + REPORTED * 3 + SAMPLE_EVERY);
        assert_eq!(clocks.too_long.len(), 1);
    }
}
