//! The leases of a scratch etcd. One that expires would add a revision, so none does as long as something is replayed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{Channel, Client};
use futures::SinkExt;
use futures::channel::mpsc;
use http::uri::PathAndQuery;
use tokio::task::JoinHandle;
use tonic::Request;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use crate::error::Error;
use crate::etcd::words;

const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const ROUND: Duration = Duration::from_millis(500);
/// Shorter ones, and those whose lifetime is not known, get this one.
const LEAST_SECONDS: i64 = 60;
/// Kept alive so often in their lifetime.
const TIMES: i64 = 4;

#[derive(Clone, PartialEq, prost::Message)]
struct KeepAliveRequest {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeepAliveResponse {
    #[prost(int64, tag = "2")]
    id: i64,
    /// 0 if it has expired.
    #[prost(int64, tag = "3")]
    ttl: i64,
}

#[derive(Default)]
struct State {
    /// Those that exist, with their lifetimes.
    alive: BTreeMap<i64, i64>,
    expired: Vec<i64>,
}

pub struct Leases {
    state: Arc<Mutex<State>>,
    /// What the archive says of those that might have to be granted.
    known: BTreeMap<i64, i64>,
    task: JoinHandle<()>,
}

impl Leases {
    /// Those that the copy has are kept alive at once.
    pub async fn keep_alive(channel: Channel, client: &mut Client) -> Result<Self, Error> {
        let failed = |error: etcd_client::Error| Error::Scratch(format!("leases: {}", words(&error)));
        let mut alive = BTreeMap::new();
        let leases = client.leases().await.map_err(failed)?;
        // The lifetime of each is not known yet; the shortest possible one is.
        alive.extend(leases.leases().iter().map(|lease| (lease.id(), 0)));
        let state = Arc::new(Mutex::new(State { alive, expired: Vec::new() }));
        let task = tokio::spawn(run(channel, Arc::clone(&state)));
        Ok(Self { state, known: BTreeMap::new(), task })
    }

    pub fn learn(&mut self, id: i64, ttl: i64) {
        self.known.insert(id, ttl);
    }

    /// The lifetime to grant it with, if it does not exist.
    pub fn missing(&self, id: i64) -> Option<i64> {
        let is_alive = lock(&self.state).alive.contains_key(&id);
        (!is_alive).then(|| self.known.get(&id).copied().unwrap_or(0).max(LEAST_SECONDS))
    }

    pub fn granted(&self, id: i64, ttl: i64) {
        lock(&self.state).alive.insert(id, ttl);
    }

    /// What might explain a revision that is too high.
    pub fn why(&self) -> String {
        match lock(&self.state).expired.as_slice() {
            [] => "although no lease has expired".into(),
            [id, ..] => format!(
                "because lease {id:x} has expired: start the run again, on a machine that is less busy"
            ),
        }
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One stream for all of them. It ends with the scratch etcd.
async fn run(channel: Channel, state: Arc<Mutex<State>>) {
    let (requests, receiver) = mpsc::channel(64);
    let mut grpc = Grpc::new(channel);
    let opened = async {
        grpc.ready().await.map_err(tonic::Status::from_error)?;
        let codec = ProstCodec::<KeepAliveRequest, KeepAliveResponse>::default();
        grpc.streaming(Request::new(receiver), PathAndQuery::from_static(KEEP_ALIVE), codec).await
    };
    let sending = send(requests, Arc::clone(&state));
    let receiving = async {
        let Ok(response) = opened.await else { return };
        let mut responses = response.into_inner();
        while let Ok(Some(KeepAliveResponse { id, ttl })) = responses.message().await {
            let mut state = lock(&state);
            if ttl <= 0 {
                state.expired.push(id);
            } else {
                state.alive.insert(id, ttl);
            }
        }
    };
    tokio::join!(sending, receiving);
}

async fn send(mut requests: mpsc::Sender<KeepAliveRequest>, state: Arc<Mutex<State>>) {
    let mut rounds = tokio::time::interval(ROUND);
    let mut sent: BTreeMap<i64, tokio::time::Instant> = BTreeMap::new();
    loop {
        let now = rounds.tick().await;
        let due: Vec<i64> = {
            let state = lock(&state);
            let is_due = |(id, ttl): &(&i64, &i64)| {
                let period = Duration::from_millis((**ttl * 1000 / TIMES).unsigned_abs());
                sent.get(*id).is_none_or(|at| now.duration_since(*at) >= period)
            };
            state.alive.iter().filter(is_due).map(|(id, _)| *id).collect()
        };
        for id in due {
            if requests.send(KeepAliveRequest { id }).await.is_err() {
                return;
            }
            sent.insert(id, now);
        }
    }
}
