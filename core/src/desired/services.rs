//! How members and clients find each other.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Desired;
use crate::etcd_config::{CLIENT_PORT, PEER_PORT};
use crate::intent::NodePort;
use crate::request::Role;

/// For members, for clients, and for clients outside if that was asked for.
pub fn services(desired: &Desired<'_>) -> BTreeMap<Role, Service> {
    let mut all = BTreeMap::from([(Role::Peer, peers(desired)), (Role::Client, clients(desired))]);
    all.extend(desired.intent.node_port.map(|node_port| (Role::NodePort, outside(desired, node_port))));
    all
}

/// It lists pods that are not ready: they must find each other to become so.
fn peers(desired: &Desired<'_>) -> Service {
    let spec = ServiceSpec {
        cluster_ip: Some("None".into()),
        publish_not_ready_addresses: Some(true),
        ports: Some(vec![port("client", CLIENT_PORT), port("peer", PEER_PORT)]),
        ..ServiceSpec::default()
    };
    service(desired, desired.names.peer_service(), spec)
}

/// It leads to members that serve: a learner is not ready.
fn clients(desired: &Desired<'_>) -> Service {
    let spec = ServiceSpec { ports: Some(vec![port("client", CLIENT_PORT)]), ..ServiceSpec::default() };
    service(desired, desired.names.client_service(), spec)
}

fn outside(desired: &Desired<'_>, node_port: NodePort) -> Service {
    let fixed = match node_port {
        NodePort::Fixed(port) => Some(i32::from(port)),
        NodePort::Allocated => None,
    };
    let spec = ServiceSpec {
        type_: Some("NodePort".into()),
        ports: Some(vec![ServicePort { node_port: fixed, ..port("client", CLIENT_PORT) }]),
        ..ServiceSpec::default()
    };
    service(desired, desired.names.node_port_service(), spec)
}

fn service(desired: &Desired<'_>, name: String, spec: ServiceSpec) -> Service {
    let spec = ServiceSpec { selector: Some(desired.names.selector()), ..spec };
    Service { metadata: desired.metadata(name), spec: Some(spec), status: None }
}

fn port(name: &str, number: u16) -> ServicePort {
    let number = i32::from(number);
    ServicePort {
        name: Some(name.into()),
        port: number,
        target_port: Some(IntOrString::Int(number)),
        ..ServicePort::default()
    }
}
