//! etcd's API as JSON over HTTP, which every release serves on its client port.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use etcd_operator_core::member::MemberProgress;
use etcd_operator_sim::etcd::api::Error;
use serde_json::{Value, json};

use crate::script::Listed;

pub fn call(host: IpAddr, path: &str, body: &Value, patience: Duration) -> Result<Value, Error> {
    let answer = exchange(host, path, &body.to_string(), patience).map_err(|error| {
        let silent = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        if silent { Error::Timeout } else { Error::Unavailable }
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(Error::Unavailable)?;
    let body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"));
    if head.starts_with("HTTP/1.0 200 ") {
        return Ok(body);
    }
    let message = body["message"].as_str().unwrap_or_default();
    Err(named(message).unwrap_or_else(|| panic!("{path}: an answer that nobody expected: {answer}")))
}

/// HTTP/1.0, so that the answer comes in one piece and ends with the connection.
pub fn exchange(host: IpAddr, path: &str, body: &str, patience: Duration) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((host, 2379)), patience)?;
    stream.set_read_timeout(Some(patience))?;
    let head = format!("POST {path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn named(message: &str) -> Option<Error> {
    let error = match message.strip_prefix("etcdserver: ")? {
        "rpc not supported for learner" => Error::NotSupportedForLearner,
        "no leader" => Error::NoLeader,
        "not leader" => Error::NotLeader,
        "bad leader transferee" => Error::BadLeaderTransferee,
        "member not found" => Error::NotFound,
        "member ID already exist" => Error::MemberExists,
        "Peer URLs already exists" => Error::PeerUrlExists,
        "too many learner members in cluster" => Error::TooManyLearners,
        "can only promote a learner member which is in sync with leader" => Error::LearnerNotReady,
        "can only promote a learner member" => Error::NotLearner,
        "unhealthy cluster" => Error::UnhealthyCluster,
        "re-configuration failed due to not enough started members" => Error::NotEnoughStartedMembers,
        late if late.starts_with("request timed out") => Error::Timeout,
        // Whoever removes itself may be gone before it can say that it did.
        "server stopped" => Error::Timeout,
        _ => return None,
    };
    Some(error)
}

pub fn read(host: IpAddr, serializable: bool, patience: Duration) -> Result<(), Error> {
    let request = json!({ "key": "a2V5", "serializable": serializable });
    call(host, "/v3/kv/range", &request, patience).map(drop).map_err(|_| Error::Unavailable)
}

/// Numbers of 64 bits are text in the gateway's JSON, and zero is left out.
pub fn number(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.parse().unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// With the ID of each member.
pub fn members(host: IpAddr, patience: Duration) -> Option<Vec<(u64, Listed)>> {
    let answer = call(host, "/v3/cluster/member/list", &json!({ "linearizable": true }), patience).ok()?;
    Some(answer["members"].as_array()?.iter().map(|member| (number(&member["ID"]), listed(member))).collect())
}

fn listed(member: &Value) -> Listed {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let client_urls: Vec<String> = member["clientURLs"].as_array().into_iter().flatten().map(text).collect();
    let start = MemberProgress::of(&text(&member["name"]), &client_urls);
    let url = text(&member["peerURLs"][0]);
    let host = url.trim_start_matches("http://").trim_end_matches(":2380");
    let [.., last] = host.parse::<Ipv4Addr>().expect("an address of ours").octets();
    Listed { ordinal: last - 1, learner: member["isLearner"].as_bool().unwrap_or(false), start }
}
