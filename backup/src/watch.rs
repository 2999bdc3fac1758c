//! A watch over all keys. The client library hides which responses are fragments, so this speaks the protocol itself.

use std::time::Duration;

use bytes::Bytes;
use etcd_client::Channel;
use futures::SinkExt;
use futures::channel::mpsc;
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use crate::error::Error;
use crate::etcd::{Member, words};

const WATCH: &str = "/etcdserverpb.Watch/Watch";
const OPEN_DEADLINE: Duration = Duration::from_secs(10);
/// A fragment has about as much as etcd accepts in one request, which users can raise.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// "From this key" and "without an end": all keys.
const ALL: &[u8] = b"\0";

#[derive(Clone, PartialEq, prost::Message)]
struct WatchRequest {
    #[prost(oneof = "Asked", tags = "1, 3")]
    asked: Option<Asked>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Asked {
    #[prost(message, tag = "1")]
    Create(Create),
    #[prost(message, tag = "3")]
    Progress(ProgressRequest),
}

#[derive(Clone, PartialEq, prost::Message)]
struct Create {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    range_end: Bytes,
    #[prost(int64, tag = "3")]
    start_revision: i64,
    #[prost(bool, tag = "4")]
    progress_notify: bool,
    #[prost(bool, tag = "8")]
    fragment: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProgressRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Response {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(bool, tag = "3")]
    created: bool,
    #[prost(bool, tag = "4")]
    canceled: bool,
    #[prost(int64, tag = "5")]
    compact_revision: i64,
    #[prost(string, tag = "6")]
    cancel_reason: String,
    /// The rest of the response follows in another one.
    #[prost(bool, tag = "7")]
    pub fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Header {
    #[prost(int64, tag = "3")]
    revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Event {
    /// 0 is a put, 1 a delete.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(message, optional, tag = "2")]
    pub pair: Option<Pair>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Pair {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub version: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

/// What etcd sends next.
pub enum Received {
    Events(Response),
    /// Everything up to this revision was sent.
    Progress(i64),
    /// The watch began before what etcd still has: this revision and later ones.
    Compacted(i64),
}

pub struct Watch {
    endpoint: String,
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<Response>,
}

impl Watch {
    pub async fn open(member: &Member, channel: Channel, from: i64) -> Result<Self, Error> {
        let (mut requests, receiver) = mpsc::channel(4);
        let create = Create {
            key: Bytes::from_static(ALL),
            range_end: Bytes::from_static(ALL),
            start_revision: from,
            progress_notify: true,
            fragment: true,
        };
        let lost = |error: &str| member.failed("watch all keys", error);
        let first = WatchRequest { asked: Some(Asked::Create(create)) };
        requests.send(first).await.map_err(|error| lost(&error.to_string()))?;
        let opened = tokio::time::timeout(OPEN_DEADLINE, async {
            let mut grpc = Grpc::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
            grpc.ready().await.map_err(tonic::Status::from_error)?;
            let mut request = Request::new(receiver);
            // A member without a leader ends the watch: it would lag behind without notice.
            request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
            let codec = ProstCodec::<WatchRequest, Response>::default();
            grpc.streaming(request, PathAndQuery::from_static(WATCH), codec).await
        });
        let opened = opened.await.map_err(|_| lost("no response within 10 s"))?;
        let responses = opened.map_err(|error| lost(&words(&error)))?.into_inner();
        Ok(Self { endpoint: member.endpoint.clone(), requests, responses })
    }

    /// etcd responds when it has sent everything that it has.
    pub fn ask_for_progress(&mut self) {
        // One that does not fit follows others that were not answered.
        let _ = self.requests.try_send(WatchRequest { asked: Some(Asked::Progress(ProgressRequest {})) });
    }

    /// Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Result<Received, Error> {
        loop {
            let response = self.responses.message().await.map_err(|error| self.lost(&words(&error)))?;
            let response = response.ok_or_else(|| self.lost("etcd ended the watch"))?;
            if response.compact_revision > 0 {
                return Ok(Received::Compacted(response.compact_revision));
            }
            if response.canceled {
                return Err(self.lost(&response.cancel_reason));
            }
            if !response.events.is_empty() || response.fragment {
                return Ok(Received::Events(response));
            }
            if let Some(header) = response.header.filter(|_| !response.created) {
                return Ok(Received::Progress(header.revision));
            }
        }
    }

    fn lost(&self, words: &str) -> Error {
        Error::Etcd { doing: "follow the watch", words: format!("{}: {words}", self.endpoint) }
    }
}
