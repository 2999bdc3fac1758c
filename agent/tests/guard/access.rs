//! Certificates of pods, and how tests get at an etcd with them and without.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use etcd_agent::http;
use etcd_agent::tls::Tls;
use etcd_operator_core::etcd_config::{client_url, tls_file};
use etcd_operator_core::start::Member;
use etcd_operator_core::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, Purpose, Transport};

use crate::certificates::Authority;
use crate::pods::Cluster;

impl Cluster {
    pub fn with_tls(version: &str) -> Self {
        let mut cluster = Self::new(version);
        cluster.config.transport = Transport::TLS;
        cluster
    }

    /// Certificates for every pod, in the directory of this one. Pods are called by their addresses here.
    pub fn give_certificates(&self, ordinal: usize, authority: &Authority) {
        let mut names: Vec<String> = (0..9).map(|ordinal| self.host(ordinal)).collect();
        names.extend([self.config.peer_host.clone(), "127.0.0.1".into()]);
        for purpose in [Purpose::Peer, Purpose::Server, Purpose::Operator] {
            authority.issue(&self.tls_directory(ordinal), purpose, &names);
        }
    }

    /// Those of the cluster.
    pub fn give_right_certificates(&self, ordinal: usize) {
        self.give_certificates(ordinal, &self.authority);
    }

    pub fn tls_file(&self, ordinal: usize, purpose: Purpose, key: &str) -> String {
        tls_file(&self.tls_directory(ordinal).display().to_string(), purpose, key)
    }

    pub fn tls_directory(&self, ordinal: usize) -> PathBuf {
        self.directory().join(format!("tls-{ordinal}"))
    }

    pub fn members(&self, ordinal: usize) -> Option<Vec<Member>> {
        let (address, deadline) = (SocketAddr::new(self.address(ordinal), 2380), Duration::from_secs(5));
        let response = if self.config.transport.peers.scheme().is_tls() {
            let directory = self.tls_directory(ordinal).display().to_string();
            let tls = Tls::read(&directory, Purpose::Peer, &self.config.peer_host).ok()?;
            http::get_over_tls(&tls, address, "/members", deadline)
        } else {
            http::get(address, "/members", deadline)
        };
        serde_json::from_str(&response.ok()?.body).ok()
    }

    pub fn client(&self, ordinal: usize) -> Command {
        let clients = self.config.transport.clients;
        let mut command = Command::new(self.programs.join("etcdctl"));
        command.arg(format!("--endpoints={}", client_url(clients.scheme(), &self.host(ordinal)))).env_clear();
        if clients.is_tls() {
            for (flag, key) in [("cacert", AUTHORITY_KEY), ("cert", CERTIFICATE_KEY), ("key", PRIVATE_KEY)] {
                command.arg(format!("--{flag}={}", self.tls_file(ordinal, Purpose::Operator, key)));
            }
        }
        command
    }
}
