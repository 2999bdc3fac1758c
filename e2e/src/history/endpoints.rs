//! Where clients may go at the moment.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use etcd_operator_core::names::Names;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::runtime::watcher;
use tokio::sync::watch;

use crate::access::{self, Access, ClientSecrets};
use crate::wait::{self, Seen};

#[derive(Clone, Debug)]
pub struct Endpoints {
    source: Source,
    /// None in plain text.
    cluster: Option<(ClientSecrets, Names)>,
}

#[derive(Clone, Debug)]
enum Source {
    Fixed(BTreeSet<SocketAddr>),
    Service(watch::Receiver<Seen<EndpointSlice>>),
}

impl Endpoints {
    pub fn fixed(addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self { source: Source::Fixed(addresses.into_iter().collect()), cluster: None }
    }

    /// What the client Service of an `EtcdCluster` leads to, at any time.
    pub fn of_cluster(client: kube::Client, namespace: &str, name: &str) -> Self {
        let names = access::names(namespace, name);
        let behind = Self::behind_service(client.clone(), namespace, &names.client_service());
        Self { cluster: Some((ClientSecrets::of_cluster(client, &names), names)), ..behind }
    }

    pub fn behind_service(client: kube::Client, namespace: &str, service: &str) -> Self {
        let slices = Api::<EndpointSlice>::namespaced(client, namespace);
        let label = format!("kubernetes.io/service-name={service}");
        let slices = wait::follow(slices, watcher::Config::default().labels(&label));
        Self { source: Source::Service(slices), cluster: None }
    }

    /// With what a client connects that comes now. None until it is known.
    pub fn access(&self) -> Option<Access> {
        match &self.cluster {
            Some((secrets, names)) => secrets.access(names),
            None => Some(Access::Plain),
        }
    }

    pub fn now(&self) -> BTreeSet<SocketAddr> {
        match &self.source {
            Source::Fixed(addresses) => addresses.clone(),
            Source::Service(slices) => {
                slices.borrow().iter().flat_map(|slices| slices.values()).flat_map(ready).collect()
            }
        }
    }
}

/// The addresses of a slice to which a Service sends new connections.
fn ready(slice: &EndpointSlice) -> Vec<SocketAddr> {
    let ports = slice.ports.as_deref().unwrap_or_default();
    let client = ports.iter().find(|port| port.name.as_deref() == Some("client")).or(ports.first());
    let Some(port) = client.and_then(|port| u16::try_from(port.port?).ok()) else { return Vec::new() };
    let is_ready = |endpoint: &&k8s_openapi::api::discovery::v1::Endpoint| {
        // Kubernetes has "unknown" mean "ready".
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
    };
    let addresses = slice.endpoints.iter().filter(is_ready).flat_map(|endpoint| &endpoint.addresses);
    addresses.filter_map(|address| Some(SocketAddr::new(address.parse::<IpAddr>().ok()?, port))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn addresses(ports: Value) -> Vec<String> {
        let slice = json!({
            "addressType": "IPv4", "ports": ports,
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false, "serving": true, "terminating": true}},
                {"addresses": ["10.0.0.3"]},
            ],
        });
        ready(&serde_json::from_value(slice).expect("a slice")).iter().map(SocketAddr::to_string).collect()
    }

    #[test]
    fn clients_go_to_what_is_ready_and_stays() {
        assert_eq!(addresses(json!([{"name": "client", "port": 2379}])), ["10.0.0.1:2379", "10.0.0.3:2379"]);
    }

    #[test]
    fn the_port_is_the_clients_if_there_are_several() {
        let ports = json!([{"name": "peer", "port": 2380}, {"name": "client", "port": 2379}]);
        assert_eq!(addresses(ports), ["10.0.0.1:2379", "10.0.0.3:2379"]);
        assert!(addresses(json!([])).is_empty());
    }
}
