//! What the pod's template sets, read from the environment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use etcd_operator_core::agent::{environment, path};
use etcd_operator_core::etcd_config::{LocalConfig, MemberConfig, peer_address};
use etcd_operator_core::member::PeerAddress;
use etcd_operator_core::{order, recovery};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("environment variable {0} is not set")]
    Missing(&'static str),
    #[error("environment variable {0} is not an IP address")]
    NoAddress(&'static str, #[source] std::net::AddrParseError),
    #[error("environment variable {name} is not a valid member configuration", name = environment::CONFIG)]
    NoConfig(#[source] serde_json::Error),
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub config: MemberConfig,
    pub local: LocalConfig,
    pub peer_address: PeerAddress,
    pub own_address: IpAddr,
    pub volume: PathBuf,
    pub run: PathBuf,
    pub order: PathBuf,
    pub recovery: PathBuf,
    pub etcd: PathBuf,
}

impl Settings {
    pub fn from_environment() -> Result<Self, Error> {
        let config: MemberConfig =
            serde_json::from_str(&required(environment::CONFIG)?).map_err(Error::NoConfig)?;
        let name = required(environment::POD)?;
        let own_address = address(environment::ADDRESS, &required(environment::ADDRESS)?)?;
        let listen = match optional(environment::LISTEN) {
            Some(text) => address(environment::LISTEN, &text)?,
            None => everywhere(own_address),
        };
        let host = optional(environment::HOST).unwrap_or_else(|| format!("{name}.{}", config.peer_host));
        let volume = directory(environment::VOLUME, path::VOLUME);
        let data_dir = volume.join(path::DATA).display().to_string();
        let orders = directory(environment::ORDER, path::ORDER);
        let tls_dir = directory(environment::TLS, path::TLS).display().to_string();
        Ok(Self {
            peer_address: peer_address(&host),
            local: LocalConfig { name, host, listen, data_dir, tls_dir },
            config,
            own_address,
            volume,
            run: directory(environment::RUN, path::RUN),
            order: orders.join(order::KEY),
            recovery: orders.join(recovery::KEY),
            etcd: directory(environment::ETCD, "etcd"),
        })
    }
}

/// Where `kubectl describe` and the operator find why the container ended. Not being able to leave it is no reason
/// to hide the error itself, which is in the log as well.
pub fn leave_message(message: &str) {
    let _ = std::fs::write(directory(environment::TERMINATION_LOG, path::TERMINATION_LOG), message);
}

/// All addresses, of the family that the pod has.
fn everywhere(own: IpAddr) -> IpAddr {
    match own {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn required(variable: &'static str) -> Result<String, Error> {
    optional(variable).ok_or(Error::Missing(variable))
}

fn optional(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

fn directory(variable: &str, default: &str) -> PathBuf {
    optional(variable).map_or_else(|| default.into(), PathBuf::from)
}

fn address(variable: &'static str, text: &str) -> Result<IpAddr, Error> {
    text.parse().map_err(|source| Error::NoAddress(variable, source))
}
