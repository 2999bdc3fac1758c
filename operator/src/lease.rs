//! Which of several operators acts: the one that holds the Lease.
//!
//! Every write carries the version that was read, so of two that write only one succeeds. A leader that was stopped and
//! wakes up may still act for a moment; that is why whatever an operator writes elsewhere has its own preconditions.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::Instant;

pub use self::rule::Times;
use self::rule::{Candidate, holder};
use crate::telemetry::chain;

mod rule;

pub const NAME: &str = "etcd-operator";
const DURATION: Duration = Duration::from_secs(15);

/// One that wants to lead.
pub struct Election {
    leases: Api<Lease>,
    name: String,
    identity: String,
    times: Times,
}

/// That we lead. Whoever holds it has to keep it, by [`Election::lost`].
#[derive(Debug)]
pub struct Held {
    lease: Lease,
    /// When the last write that succeeded was sent: no candidate has seen it earlier.
    renewed: Instant,
}

/// What became of asking for the Lease once.
enum Attempt {
    Won(Box<Held>),
    HeldBy(String),
    /// Somebody was faster, or holds a Lease that was deleted.
    Overtaken,
}

/// Why we do not lead any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Somebody else is in the record, or nobody.
    Taken { by: Option<String> },
    /// The Lease was deleted.
    Deleted,
    /// It could not be renewed in time, for this reason the last time.
    NotRenewed { reason: String },
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the API server did not respond")]
    NoAnswer,
    #[error("the request to the API server failed")]
    Kube(#[from] kube::Error),
    #[error("{0}")]
    Lost(Lost),
}

impl Error {
    fn is(&self, code: u16) -> bool {
        matches!(self, Self::Kube(kube::Error::Api(answer)) if answer.code == code)
    }
}

impl Election {
    /// `who` is for people, such as the pod's name; what is written is made unique for this value, so that neither a
    /// restart nor a second process of the same name is taken for us.
    pub fn new(client: Client, namespace: &str, name: &str, who: &str) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: format!("{who}_{:016x}", random()),
            times: Times::of(DURATION),
        }
    }

    pub fn with_times(self, times: Times) -> Self {
        Self { times, ..self }
    }

    /// As it stands in the record.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Does the work whenever we lead, and drops it when we do not lead any more. Ends with the work, or when `stop`
    /// comes while others lead; while we lead, the work has to heed it. Then the Lease is given back.
    pub async fn lead<T, W: Future<Output = T>>(
        self,
        mut work: impl FnMut() -> W,
        stop: impl Future<Output = ()>,
    ) -> Option<T> {
        let mut stop = std::pin::pin!(stop);
        let done = loop {
            let held = tokio::select! {
                biased;
                () = &mut stop => break None,
                held = self.won() => held,
            };
            tracing::info!(holder = self.identity, "became leader");
            // First the Lease: after a pause it must be known to be lost before the work goes on.
            tokio::select! {
                biased;
                lost = self.lost(held) => tracing::warn!(error = %lost, "lost leadership"),
                done = work() => break Some(done),
            }
        };
        self.release().await;
        done
    }

    /// Completes when we lead.
    pub async fn won(&self) -> Held {
        let mut candidate = Candidate::new(self.identity.clone(), self.times.duration);
        let mut troubled = false;
        let mut told_of = None;
        loop {
            match self.campaign(&mut candidate).await {
                Ok(Attempt::Won(held)) => return *held,
                Ok(Attempt::HeldBy(holder)) => {
                    troubled = false;
                    if told_of.as_ref() != Some(&holder) {
                        tracing::info!(holder, "waiting for the Lease: another operator leads");
                        told_of = Some(holder);
                    }
                }
                Ok(Attempt::Overtaken) => troubled = false,
                // Once, and not every second.
                Err(error) if !troubled => {
                    tracing::warn!(error = %chain(&error), "cannot acquire the Lease, retrying");
                    troubled = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(jittered(self.times.look_every)).await;
        }
    }

    async fn campaign(&self, candidate: &mut Candidate) -> Result<Attempt, Error> {
        let lease = self.read().await?;
        if !candidate.may_take(lease.as_ref(), Instant::now()) {
            let holder = holder(lease.as_ref().and_then(|lease| lease.spec.as_ref()));
            return Ok(holder.map_or(Attempt::Overtaken, |holder| Attempt::HeldBy(holder.to_owned())));
        }
        let there = lease.is_some();
        match self.write(self.taken(lease, Timestamp::now())).await {
            Ok(held) => Ok(Attempt::Won(Box::new(held))),
            // That a Lease cannot be made for want of something is for people to know: its namespace is missing.
            Err(error) if error.is(409) || (there && error.is(404)) => Ok(Attempt::Overtaken),
            Err(error) => Err(error),
        }
    }

    /// Keeps the Lease; completes when it is lost.
    pub async fn lost(&self, mut held: Held) -> Lost {
        let mut pause = self.times.renew_every;
        let mut reason = Error::NoAnswer.to_string();
        loop {
            let end = held.renewed + self.times.renew_within;
            tokio::time::sleep_until(end.min(Instant::now() + jittered(pause))).await;
            if Instant::now() >= end {
                return Lost::NotRenewed { reason };
            }
            match tokio::time::timeout_at(end, self.renew(&held)).await {
                // Unless the whole process was stopped before the answer came.
                Ok(Ok(renewed)) if renewed.renewed.elapsed() < self.times.renew_within => {
                    (held, pause) = (renewed, self.times.renew_every);
                }
                Ok(Ok(_)) | Err(_) => return Lost::NotRenewed { reason },
                Ok(Err(Error::Lost(lost))) => return lost,
                Ok(Err(error)) => (reason, pause) = (chain(&error).to_string(), self.times.look_every),
            }
        }
    }

    async fn renew(&self, held: &Held) -> Result<Held, Error> {
        match self.write(renewed(held.lease.clone(), Timestamp::now())).await {
            Err(error) if error.is(409) || error.is(404) => {}
            written => return written,
        }
        // Touched by somebody, or by a renewal of ours whose answer got lost.
        let lease = self.read().await?.ok_or(Error::Lost(Lost::Deleted))?;
        if !self.is_ours(&lease) {
            let by = holder(lease.spec.as_ref()).map(str::to_owned);
            return Err(Error::Lost(Lost::Taken { by }));
        }
        self.write(renewed(lease, Timestamp::now())).await
    }

    /// Gives it back if it is ours, so that the next one need not wait.
    pub async fn release(self) {
        let mut released = self.give_back().await;
        // A renewal that nobody waited for any more may have arrived in between.
        if released.as_ref().is_err_and(|error| error.is(409)) {
            released = self.give_back().await;
        }
        if let Err(error) = released {
            tracing::warn!(error = %chain(&error), "cannot release the Lease: the next operator waits until it expires");
        }
    }

    async fn give_back(&self) -> Result<(), Error> {
        let Some(mut lease) = self.read().await?.filter(|lease| self.is_ours(lease)) else { return Ok(()) };
        lease.spec.get_or_insert_default().holder_identity = None;
        self.write(lease).await.map(drop)
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        holder(lease.spec.as_ref()) == Some(&self.identity)
    }

    async fn read(&self) -> Result<Option<Lease>, Error> {
        self.patiently(self.leases.get_opt(&self.name)).await
    }

    async fn write(&self, lease: Lease) -> Result<Held, Error> {
        let renewed = Instant::now();
        let parameters = PostParams::default();
        let lease = match &lease.metadata.resource_version {
            None => self.patiently(self.leases.create(&parameters, &lease)).await?,
            Some(_) => self.patiently(self.leases.replace(&self.name, &parameters, &lease)).await?,
        };
        Ok(Held { lease, renewed })
    }

    async fn patiently<T>(&self, answer: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
        let answer = tokio::time::timeout(self.times.patience, answer).await;
        answer.map_or(Err(Error::NoAnswer), |answer| answer.map_err(Error::Kube))
    }

    fn taken(&self, lease: Option<Lease>, now: Timestamp) -> Lease {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let mut lease = renewed(lease.unwrap_or(Lease { metadata, spec: None }), now);
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(self.times.duration.as_secs().max(1)).ok();
        spec.acquire_time = spec.renew_time.clone();
        spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |count| count.saturating_add(1)));
        lease
    }
}

/// Later than before by any clock: a renewal that changed nothing would not be seen.
fn renewed(mut lease: Lease, now: Timestamp) -> Lease {
    let spec: &mut LeaseSpec = lease.spec.get_or_insert_default();
    let after = spec
        .renew_time
        .as_ref()
        .and_then(|MicroTime(before)| before.checked_add(SignedDuration::from_micros(1)).ok());
    spec.renew_time = Some(MicroTime(after.map_or(now, |after| after.max(now))));
    lease
}

/// Three quarters of it to five quarters, so that candidates do not stay in step.
fn jittered(time: Duration) -> Duration {
    let part = u32::try_from(random() % 512).unwrap_or(0);
    time * 3 / 4 + time * part / 1024
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { by: Some(holder) } => write!(f, "{holder} holds the Lease"),
            Self::Taken { by: None } => f.write_str("the Lease has no holder any more"),
            Self::Deleted => f.write_str("the Lease was deleted"),
            Self::NotRenewed { reason } => write!(f, "cannot renew the Lease: {reason}"),
        }
    }
}
