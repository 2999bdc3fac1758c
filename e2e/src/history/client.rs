//! One client: sticks to a member as long as it answers, and goes to the next one as soon as it does not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use etcd_client::{
    Compare, CompareOp, ConnectOptions, Error, GetResponse, ResponseHeader, Txn, TxnOp, TxnOpResponse,
};
use tokio::sync::RwLock;

use super::endpoints::Endpoints;
use super::operation::{Answer, Ending, Request};
use super::recorder::Recorder;
use super::{Load, outcome};
use crate::access::Access;

const CONNECT_LIMIT: Duration = Duration::from_millis(500);
/// Before the next endpoint is tried, or looked for.
const RETRY: Duration = Duration::from_millis(20);
/// Before a client that had to leave its endpoint tries it again.
const AWAY: Duration = Duration::from_secs(3);

/// A member, and a connection to it that only one client uses.
type Connection = (SocketAddr, etcd_client::Client);

/// Where a client sits: at the endpoint that is its own by number, or at another one while that does not answer.
///
/// Clients go back to their own, else they would all end up at one member, whose silence would look like that of
/// the cluster.
pub struct Seat {
    number: usize,
    turn: usize,
    back_at: Instant,
    endpoints: Endpoints,
    connection: Option<Connection>,
}

impl Seat {
    pub fn new(number: usize, endpoints: Endpoints) -> Self {
        Self { number, turn: number, back_at: Instant::now(), endpoints, connection: None }
    }

    /// The connection, if there is one and its endpoint has not gone away.
    fn taken(&self) -> Option<Connection> {
        self.connection.clone().filter(|(address, _)| self.endpoints.now().contains(address))
    }

    /// Returns when there is an endpoint that answers, and its member has a leader.
    async fn take(&mut self) -> Connection {
        if self.turn != self.number && self.back_at <= Instant::now() {
            self.turn = self.number;
            self.connection = None;
        }
        loop {
            if let Some(connection) = self.taken() {
                return connection;
            }
            self.connection = None;
            let current = self.endpoints.now();
            let address = current.iter().nth(self.turn % current.len().max(1));
            let (Some(address), Some(access)) = (address, self.endpoints.access()) else {
                tokio::time::sleep(RETRY).await;
                continue;
            };
            match connect(*address, &access).await {
                Ok(client) => self.connection = Some((*address, client)),
                Err(_) => {
                    self.leave();
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    fn leave(&mut self) {
        self.connection = None;
        self.turn += 1;
        self.back_at = Instant::now() + AWAY;
    }
}

/// A first question opens the connection, so that what fails here is no operation.
async fn connect(address: SocketAddr, access: &Access) -> Result<etcd_client::Client> {
    // A member without a leader refuses at once. Without it, each operation would hang and be unknown.
    let options = ConnectOptions::new().with_require_leader(true);
    let connecting = async {
        let mut client = access.client(address, options).await?;
        client.status().await?;
        Ok(client)
    };
    tokio::time::timeout(CONNECT_LIMIT, connecting).await.context("no answer")?
}

pub struct Client {
    /// A new one after each operation of which the end is unknown: that one may still be under way.
    identity: u64,
    seat: Seat,
    recorder: Arc<Recorder>,
    pause: Duration,
    deadline: Duration,
    keys: Vec<String>,
    dice: Dice,
    /// The key that the last answer was about, and what it held then.
    known: Option<(String, Option<String>)>,
}

impl Client {
    pub fn new(number: usize, seat: Seat, recorder: Arc<Recorder>, load: Load, keys: Vec<String>) -> Self {
        let identity = recorder.new_client();
        Self {
            identity,
            seat,
            recorder,
            pause: load.pause,
            deadline: load.deadline_of(number),
            keys,
            dice: Dice(number as u64),
            known: None,
        }
    }

    pub async fn work(mut self, working: Arc<RwLock<()>>) {
        loop {
            // Not while holding the lock: there may be no endpoint for a long time.
            self.seat.take().await;
            let under_way = working.read().await;
            if let Some(connection) = self.seat.taken() {
                let request = self.choose();
                self.perform(connection, request, false).await;
            }
            drop(under_way);
            tokio::time::sleep(self.pause).await;
        }
    }

    pub async fn read_finally(&mut self, key: &str) -> Ending {
        let connection = self.seat.take().await;
        self.perform(connection, Request::Get { key: key.to_owned() }, true).await
    }

    async fn perform(&mut self, connection: Connection, request: Request, is_final: bool) -> Ending {
        let (endpoint, mut client) = connection;
        let deadline = self.deadline;
        let pending = self.recorder.begin(self.identity, endpoint, request, is_final);
        let ending = match tokio::time::timeout(deadline, ask(&mut client, pending.request())).await {
            Ok(Ok(answer)) => Ending::Ok(answer),
            Ok(Err(Failure::Etcd(error))) => outcome::of(&error),
            Ok(Err(Failure::Answer(error))) => Ending::Unknown { error: format!("{error:#}") },
            Err(_) => Ending::Unknown { error: format!("no response within {deadline:?}") },
        };
        match &ending {
            Ending::Ok(answer) => self.remember(pending.request(), answer),
            Ending::Failed { .. } => self.seat.leave(),
            Ending::Unknown { .. } => {
                self.seat.leave();
                self.identity = self.recorder.new_client();
            }
        }
        pending.end(ending)
    }

    fn remember(&mut self, request: &Request, answer: &Answer) {
        self.known = Some(match request {
            Request::Put { key, write } => (key.clone(), Some(write.clone())),
            Request::Get { key } => (key.clone(), answer.read.clone()),
            Request::Delete { key } => (key.clone(), None),
            Request::Cas { key, write, .. } if answer.applied => (key.clone(), Some(write.clone())),
            Request::Cas { key, .. } => (key.clone(), answer.read.clone()),
        });
    }

    /// Mostly writes and reads, some cas on what was seen last, few deletes.
    fn choose(&mut self) -> Request {
        let key = self.keys[self.dice.below(self.keys.len())].clone();
        let write = self.recorder.new_value();
        match (self.dice.below(100), &self.known) {
            (0..45, _) => Request::Put { key, write },
            (45..75, _) | (75..92, None) => Request::Get { key },
            (75..92, Some((key, expected))) => {
                Request::Cas { key: key.clone(), expected: expected.clone(), write }
            }
            (_, _) => Request::Delete { key },
        }
    }
}

enum Failure {
    Etcd(Error),
    /// An answer that cannot be read is none.
    Answer(anyhow::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Etcd(error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Answer(error)
    }
}

async fn ask(client: &mut etcd_client::Client, request: &Request) -> Result<Answer, Failure> {
    match request {
        Request::Put { key, write } => {
            let response = client.put(key.as_str(), write.as_str(), None).await?;
            Ok(Answer { applied: true, ..answer(response.header())? })
        }
        Request::Get { key } => {
            let response = client.get(key.as_str(), None).await?;
            Ok(with_read(answer(response.header())?, &response)?)
        }
        Request::Delete { key } => {
            let response = client.delete(key.as_str(), None).await?;
            Ok(Answer { applied: response.deleted() > 0, ..answer(response.header())? })
        }
        Request::Cas { key, expected, write } => {
            let as_expected = match expected {
                Some(value) => Compare::value(key.as_str(), CompareOp::Equal, value.as_str()),
                None => Compare::create_revision(key.as_str(), CompareOp::Equal, 0),
            };
            let txn = Txn::new()
                .when([as_expected])
                .and_then([TxnOp::put(key.as_str(), write.as_str(), None)])
                .or_else([TxnOp::get(key.as_str(), None)]);
            let response = client.txn(txn).await?;
            let header = answer(response.header())?;
            if response.succeeded() {
                return Ok(Answer { applied: true, ..header });
            }
            match response.op_responses().first() {
                Some(TxnOpResponse::Get(read)) => Ok(with_read(header, read)?),
                _ => Err(anyhow!("a transaction did not read what it was asked to").into()),
            }
        }
    }
}

fn answer(header: Option<&ResponseHeader>) -> Result<Answer> {
    let header = header.context("the response has no header")?;
    Ok(Answer {
        revision: header.revision(),
        cluster_id: format!("{:x}", header.cluster_id()),
        member_id: format!("{:x}", header.member_id()),
        ..Answer::default()
    })
}

fn with_read(answer: Answer, response: &GetResponse) -> Result<Answer> {
    let Some(pair) = response.kvs().first() else { return Ok(answer) };
    Ok(Answer { read: Some(pair.value_str()?.to_owned()), mod_revision: pair.mod_revision(), ..answer })
}

/// Splitmix64: small, and the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit.max(1) as u64) as usize
    }
}
