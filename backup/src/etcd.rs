//! The members of a cluster, each by its own connection.

use std::error::Error as _;
use std::time::Duration;

use etcd_client::{Channel, Client, GetOptions, ResponseHeader, SnapshotStreaming, StatusResponse};
use etcd_operator_core::backup::inputs::{Etcd, Tls};
use etcd_operator_core::backup::manifest::{Auth, HashKv, Member as Listed};
use etcd_operator_core::backup::source::{Candidate, choose};
use etcd_operator_core::observed::{ClusterId, MemberId};
use futures::future::join_all;
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic_prost::ProstCodec;

use crate::error::Error;
use crate::watch::Watch;

const CONNECT: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(10);
/// All of the data is read for it.
const HASH_DEADLINE: Duration = Duration::from_secs(600);
/// Of a stream that stopped without an end. etcd closes a connection on which pings come more often than every five seconds.
const PING_EVERY: Duration = Duration::from_secs(15);
/// How much etcd sends ahead of what is read: of a snapshot, and of everything, so that a snapshot which is not read does not
/// hold other responses back.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const WINDOW_BYTES: u32 = 2 << 20;
/// A key that does not exist: reading it needs nothing but a quorum.
const PROBE_KEY: &str = "\0";
const AUTH_STATUS: &str = "/etcdserverpb.Auth/AuthStatus";

#[derive(Clone, PartialEq, prost::Message)]
struct AuthStatusRequest {}

/// The client has no call for it.
#[derive(Clone, PartialEq, prost::Message)]
struct AuthStatusResponse {
    #[prost(bool, tag = "2")]
    enabled: bool,
}

/// One member, and what it reported when it was chosen.
#[derive(Clone)]
pub struct Member {
    pub endpoint: String,
    pub cluster: ClusterId,
    pub id: MemberId,
    /// When it was chosen; everything that was acknowledged before is in it.
    pub revision: i64,
    client: Client,
    channel: Channel,
}

impl Member {
    /// Asks all of them, and returns the one to take a snapshot from, or to follow.
    pub async fn choose(etcd: &Etcd, expected: Option<ClusterId>) -> Result<Self, Error> {
        let tls = etcd.tls.as_ref().map(tls).transpose()?;
        let asked = join_all(etcd.endpoints.iter().map(|endpoint| ask(endpoint, tls.clone()))).await;
        let (mut clients, mut candidates) = (Vec::new(), Vec::new());
        for (endpoint, answer) in etcd.endpoints.iter().zip(asked) {
            let (connection, candidate) = match answer {
                Ok((connection, candidate)) => (Some(connection), Ok(candidate)),
                Err(error) => (None, Err(error)),
            };
            clients.push(connection);
            candidates.push((endpoint.clone(), candidate));
        }
        let unavailable = |words| Error::Etcd { doing: "choose a member", words };
        let index = choose(&candidates, expected).map_err(|error| unavailable(error.to_string()))?;
        let (Some((client, channel)), (endpoint, Ok(candidate))) =
            (clients.swap_remove(index), candidates.swap_remove(index))
        else {
            return Err(unavailable("the chosen member did not respond".into()));
        };
        let Candidate { cluster, member: id, revision, .. } = candidate;
        Ok(Self { endpoint, cluster, id, revision, client, channel })
    }

    /// All events from a revision on.
    pub async fn watch(&self, from: i64) -> Result<Watch, Error> {
        Watch::open(self, self.channel.clone(), from).await
    }

    /// A revision that is not below that of any write which was acknowledged before the call.
    pub async fn linearizable_revision(&self) -> Result<i64, Error> {
        let mut kv = self.client.kv_client();
        let read = within(DEADLINE, kv.get(PROBE_KEY, Some(GetOptions::new().with_count_only()))).await;
        let read = read.map_err(|words| self.failed("read the revision of the cluster", &words))?;
        Ok(read.header().map_or(0, ResponseHeader::revision))
    }

    /// With which a lease was granted; None if it does not exist any more.
    pub async fn lease_ttl(&self, id: i64) -> Option<i64> {
        let mut leases = self.client.lease_client();
        let answer = within(DEADLINE, leases.time_to_live(id, None)).await.ok()?;
        Some(answer.granted_ttl()).filter(|ttl| *ttl > 0)
    }

    /// The revision that it has applied, and its version.
    pub async fn status(&self) -> Result<(i64, String), Error> {
        let mut maintenance = self.client.maintenance_client();
        let status = within(DEADLINE, maintenance.status()).await;
        let status = status.map_err(|words| self.failed("read the revision of the member", &words))?;
        Ok((status.header().map_or(0, ResponseHeader::revision), status.version().to_owned()))
    }

    pub async fn snapshot(&self) -> Result<SnapshotStreaming, Error> {
        let mut maintenance = self.client.maintenance_client();
        let stream = within(DEADLINE, maintenance.snapshot()).await;
        stream.map_err(|words| self.failed("start a snapshot", &words))
    }

    /// None if etcd does not return it, which does not make a copy worse.
    pub async fn hash_kv(&self, revision: i64) -> Option<HashKv> {
        let mut maintenance = self.client.maintenance_client();
        let hash = within(HASH_DEADLINE, maintenance.hash_kv(revision)).await.ok()?;
        Some(HashKv { hash: hash.hash(), revision, compact_revision: hash.compact_version() })
    }

    pub async fn members(&self) -> Result<Vec<Listed>, Error> {
        let mut cluster = self.client.cluster_client();
        let list = within(DEADLINE, cluster.member_list()).await;
        let list = list.map_err(|words| self.failed("list the members", &words))?;
        let listed = list.members().iter().map(|member| Listed {
            id: MemberId(member.id()).to_string(),
            name: member.name().to_owned(),
            peer_urls: member.peer_urls().to_vec(),
            learner: member.is_learner(),
        });
        Ok(listed.collect())
    }

    pub async fn auth(&self) -> Auth {
        let answer = within(DEADLINE, async {
            let mut grpc = Grpc::new(self.channel.clone());
            grpc.ready().await.map_err(tonic::Status::from_error)?;
            let codec = ProstCodec::<AuthStatusRequest, AuthStatusResponse>::default();
            let path = PathAndQuery::from_static(AUTH_STATUS);
            grpc.unary(tonic::Request::new(AuthStatusRequest {}), path, codec).await
        });
        match answer.await.map(|answer| answer.into_inner().enabled) {
            Ok(true) => Auth::Enabled,
            Ok(false) => Auth::Disabled,
            Err(_) => Auth::NotReported,
        }
    }

    pub fn failed(&self, doing: &'static str, words: &str) -> Error {
        Error::Etcd { doing, words: format!("{}: {words}", self.endpoint) }
    }
}

async fn ask(endpoint: &str, tls: Option<ClientTlsConfig>) -> Result<((Client, Channel), Candidate), String> {
    let channel = connect(endpoint, tls).await?;
    let client = Client::from_channel(channel.clone(), None).await.map_err(|error| words(&error))?;
    let mut kv = client.kv_client();
    let read = within(DEADLINE, kv.get(PROBE_KEY, Some(GetOptions::new().with_count_only()))).await;
    let mut maintenance = client.maintenance_client();
    let status = within(DEADLINE, maintenance.status()).await?;
    let candidate = candidate(&status, read.map(drop)).ok_or("its response has no cluster ID")?;
    Ok(((client, channel), candidate))
}

fn candidate(status: &StatusResponse, linearizable: Result<(), String>) -> Option<Candidate> {
    let header = status.header()?;
    Some(Candidate {
        cluster: ClusterId(Some(header.cluster_id()).filter(|&id| id != 0)?),
        member: MemberId(header.member_id()),
        is_leader: status.leader() == header.member_id(),
        is_learner: status.is_learner(),
        is_corrupt: status.errors().iter().any(|error| error.contains("alarm:CORRUPT")),
        linearizable,
        revision: header.revision(),
    })
}

pub async fn connect(endpoint: &str, tls: Option<ClientTlsConfig>) -> Result<Channel, String> {
    let mut target = Endpoint::from_shared(endpoint.to_owned())
        .map_err(|error| words(&error))?
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    if let Some(tls) = tls.filter(|_| endpoint.starts_with("https://")) {
        target = target.tls_config(tls).map_err(|error| words(&error))?;
    }
    let channel = within(CONNECT, target.connect()).await?;
    Ok(Channel::Tonic(channel))
}

fn tls(files: &Tls) -> Result<ClientTlsConfig, Error> {
    let read = |field: &str, file: &str| {
        let wrong = |error| Error::Configuration(format!("cannot read etcd.tls.{field} {file}: {error}"));
        std::fs::read(file).map_err(wrong)
    };
    let identity = Identity::from_pem(read("certFile", &files.cert_file)?, read("keyFile", &files.key_file)?);
    let authority = Certificate::from_pem(read("caFile", &files.ca_file)?);
    Ok(ClientTlsConfig::new().ca_certificate(authority).identity(identity))
}

async fn within<T, E: std::error::Error + 'static>(
    deadline: Duration,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match tokio::time::timeout(deadline, answer).await {
        Ok(answer) => answer.map_err(|error| words(&error)),
        Err(_) => Err(format!("no response within {} s", deadline.as_secs())),
    }
}

/// What etcd says, else the first cause.
pub fn words(error: &(dyn std::error::Error + 'static)) -> String {
    let of_client = error.downcast_ref::<etcd_client::Error>();
    let status = match of_client {
        Some(etcd_client::Error::GRpcStatus(status)) => Some(status),
        Some(_) | None => error.downcast_ref::<tonic::Status>(),
    };
    if let Some(status) = status {
        let message = status.message();
        let cause = first_cause(status.source());
        return cause.map_or_else(|| message.to_owned(), |cause| format!("{message}: {cause}"));
    }
    let cause = match of_client {
        Some(etcd_client::Error::TransportError(transport)) => transport.source(),
        Some(_) | None => error.source(),
    };
    first_cause(cause).unwrap_or_else(|| error.to_string())
}

fn first_cause(mut cause: Option<&(dyn std::error::Error + 'static)>) -> Option<String> {
    let mut first = None;
    while let Some(error) = cause {
        first = Some(error.to_string());
        cause = error.source();
    }
    first
}
