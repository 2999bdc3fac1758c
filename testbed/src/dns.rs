//! Cluster DNS: CoreDNS on the machine, behind the Service that pods expect.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::UdpSocket;

use crate::build::Programs;
use crate::control_plane::apply;
use crate::layout::{CLUSTER_DOMAIN, DNS_SERVICE, HOST_ADDRESS, Layout};
use crate::process::Daemon;

/// How cluster DNS behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub enum DnsProfile {
    /// TTL of one second, no cache.
    #[default]
    Fast,
    /// As in many real clusters: TTL of 30 s, a cache for positive and negative answers.
    Field,
    /// As `field`, without PTR records.
    NoReverse,
}

impl std::fmt::Display for DnsProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fast => "fast",
            Self::Field => "field",
            Self::NoReverse => "noreverse",
        })
    }
}

pub async fn start(layout: &Layout, programs: &Programs, profile: DnsProfile) -> Result<()> {
    let path = layout.dir().join("Corefile");
    std::fs::write(&path, corefile(layout, profile)).context("cannot write the Corefile")?;
    std::fs::write(every_name(layout), ".\n").context("cannot write the list of denied names")?;
    Daemon::new("coredns", &programs.coredns)
        .argument("-conf")
        .argument(path.display().to_string())
        .start(layout)
        .await?;
    Ok(())
}

/// The cluster's names, and for everything else the answer that a network without an outside has: no such name.
fn corefile(layout: &Layout, profile: DnsProfile) -> String {
    let reverse = match profile {
        DnsProfile::Fast | DnsProfile::Field => " in-addr.arpa",
        DnsProfile::NoReverse => "",
    };
    let (ttl, cache) = match profile {
        DnsProfile::Fast => (1, ""),
        DnsProfile::Field | DnsProfile::NoReverse => {
            (30, "    cache 30 {\n        success 9984 30\n        denial 9984 30\n    }\n")
        }
    };
    let (denied, others) = (layout.denied_names(), every_name(layout));
    format!(
        "{CLUSTER_DOMAIN}{reverse} {{\n    bind {HOST_ADDRESS}\n    errors\n    ready {HOST_ADDRESS}:8181\n{cache}    \
         denied {}\n    kubernetes {CLUSTER_DOMAIN}{reverse} {{\n        kubeconfig {}\n        ttl {ttl}\n    }}\n}}\n\
         . {{\n    bind {HOST_ADDRESS}\n    errors\n{cache}    denied {}\n}}\n",
        denied.display(),
        layout.kubeconfig().display(),
        others.display()
    )
}

/// A list of names that do not exist, with every name on it.
fn every_name(layout: &Layout) -> PathBuf {
    layout.dir().join("dns-every-name")
}

/// The Service at the address that pods are told, and the process on the machine behind it.
pub async fn apply_service(client: &kube::Client) -> Result<()> {
    let ports = json!([{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]);
    let service = json!({
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": DNS_SERVICE, "ports": ports},
    });
    let endpoints = json!({
        "metadata": {"name": "kube-dns", "namespace": "kube-system",
                     "labels": {"kubernetes.io/service-name": "kube-dns"}},
        "addressType": "IPv4", "ports": ports,
        "endpoints": [{"addresses": [HOST_ADDRESS], "conditions": {"ready": true}}],
    });
    apply(Api::<Service>::namespaced(client.clone(), "kube-system"), &serde_json::from_value(service)?)
        .await?;
    apply(
        Api::<EndpointSlice>::namespaced(client.clone(), "kube-system"),
        &serde_json::from_value(endpoints)?,
    )
    .await
}

/// Whether cluster DNS knows the API's own Service, asked through the Service that pods use.
pub async fn answers() -> Result<bool> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    socket.connect((DNS_SERVICE, 53)).await?;
    socket.send(&question(&format!("kubernetes.default.svc.{CLUSTER_DOMAIN}"))).await?;
    let mut answer = [0; 512];
    let length = tokio::time::timeout(Duration::from_millis(300), socket.recv(&mut answer)).await??;
    Ok(is_found(&answer[..length]))
}

/// A query for the address of a name: a header with one question, then the name label by label.
fn question(name: &str) -> Vec<u8> {
    let mut message = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap_or(0));
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

/// No error, and at least one record.
fn is_found(answer: &[u8]) -> bool {
    answer.len() >= 12 && answer[3] & 0x0f == 0 && (answer[6], answer[7]) != (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_field_profiles_remember_and_only_noreverse_forgets_names_of_addresses() {
        let file = |profile| corefile(&Layout::instance("x"), profile);
        assert!(!file(DnsProfile::Fast).contains("cache"));
        assert!(file(DnsProfile::Field).contains("denial 9984 30"));
        assert!(file(DnsProfile::Field).contains("in-addr.arpa"));
        assert!(!file(DnsProfile::NoReverse).contains("in-addr.arpa"));
        assert!(file(DnsProfile::NoReverse).contains("ttl 30"));
    }
}
