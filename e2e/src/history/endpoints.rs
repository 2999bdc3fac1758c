//! Where clients may go at the moment.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::runtime::watcher;
use tokio::sync::watch;

use crate::wait::{self, Seen};

#[derive(Clone, Debug)]
pub struct Endpoints(Source);

#[derive(Clone, Debug)]
enum Source {
    Fixed(BTreeSet<SocketAddr>),
    Service(watch::Receiver<Seen<EndpointSlice>>),
}

impl Endpoints {
    pub fn fixed(addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self(Source::Fixed(addresses.into_iter().collect()))
    }

    /// What the client Service of an `EtcdCluster` leads to, at any time.
    pub fn of_cluster(client: kube::Client, namespace: &str, name: &str) -> Self {
        Self::behind_service(client, namespace, &format!("{name}-client"))
    }

    pub fn behind_service(client: kube::Client, namespace: &str, service: &str) -> Self {
        let slices = Api::<EndpointSlice>::namespaced(client, namespace);
        let label = format!("kubernetes.io/service-name={service}");
        Self(Source::Service(wait::follow(slices, watcher::Config::default().labels(&label))))
    }

    pub fn now(&self) -> BTreeSet<SocketAddr> {
        match &self.0 {
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
