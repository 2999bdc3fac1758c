//! How etcd is configured: the one place that knows its flags, version by version.
//!
//! Flags on the command line and not a file, because etcd ignores unknown settings in a file. A misspelt argument
//! would have no effect, and nothing would report it. On the command line etcd rejects it, and `etcd ... --version`
//! checks all of them without starting anything.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::member::PeerAddress;
use crate::order::BootstrapOrder;
use crate::rules::options::is_owned;
use crate::start::Member;
use crate::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, ClientPort, PRIVATE_KEY, Purpose, Scheme, Transport};
use crate::version::Version;

pub(crate) mod known;

pub const CLIENT_PORT: u16 = 2379;
pub const PEER_PORT: u16 = 2380;
/// Plain HTTP inside the pod network: metrics and probes, and the agent while it waits.
pub const METRICS_PORT: u16 = 2381;

/// Checked by every member with its own flag while it applies the entry, so it must be the same everywhere for ever.
const MAX_LEARNERS: u8 = 2;
/// From this version on a member keeps the first entries of its log for a short while only.
const SHORT_LOG: Version = Version::new(3, 6, 0);
const SHORT_LOG_ENTRIES: u64 = 100;
const DEFAULT_SNAPSHOT_COUNT: u64 = 100_000;

/// What all members of a cluster have in common. It is part of the pod template, so the agent that reads it has the
/// version of the operator that wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberConfig {
    /// The version of etcd, with or without the leading `v`.
    pub version: String,
    /// The EtcdCluster's UID.
    pub cluster_uid: String,
    /// The full name of the peer Service. Members are called `POD.` and this.
    pub peer_host: String,
    /// The attempt to bootstrap that these pods are created for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The UID of a previous cluster whose volumes this one adopts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<String>,
    #[serde(default, skip_serializing_if = "Transport::is_plain")]
    pub transport: Transport,
    /// This member uses TLS, and others might still serve their peer ports in plain text. It is no part of the form, so it
    /// restarts nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain_peers: bool,
    #[serde(default)]
    pub options: MemberOptions,
}

/// The settings of etcd that users choose. What is left out has etcd's own default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemberOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_backend_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_compaction: Option<AutoCompaction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_interval_milliseconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub election_timeout_milliseconds: Option<u32>,
    /// Other arguments by name, without dashes. They override ours; those that the operator owns are rejected.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_arguments: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "mode", content = "retention")]
pub enum AutoCompaction {
    /// A time as etcd reads it, such as `1h30m`.
    Periodic(String),
    /// A number of revisions.
    Revision(String),
}

/// What differs between members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalConfig {
    /// The pod's name.
    pub name: String,
    /// Its name or address for the others.
    pub host: String,
    pub listen: IpAddr,
    pub data_dir: String,
    /// The directory with those of its certificates.
    pub tls_dir: String,
}

/// How a member comes to be in its cluster.
#[derive(Clone, Copy, Debug)]
pub enum InitialState<'a> {
    /// It has a log and knows all it needs. `compares`: all others serve, so it can compare its data with theirs
    /// before it serves itself. Of those that are only starting, etcd would wait seven seconds for each.
    Known { compares: bool },
    /// It has a log, and continues without the other members that are in it.
    Forced,
    /// It was added to these members, of which it is one.
    Joins(&'a [Member]),
    /// The same, only to receive their data: it serves nobody but its peers yet, and listens for others where only
    /// its own pod can reach it.
    Fetches { members: &'a [Member], clients: SocketAddr, metrics: SocketAddr },
    /// It forms a cluster together with the others of the order.
    Bootstraps(&'a BootstrapOrder),
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    Version(String),
    /// An extra argument that the operator sets itself, or that would break its promises.
    Owned(String),
    /// An extra argument that this version of etcd does not have, and what it has instead.
    UnknownArgument {
        argument: String,
        version: Version,
        instead: Option<String>,
    },
    UnknownGate {
        gate: String,
        version: Version,
    },
    /// An extra argument by its old name, beside the new one.
    Twice {
        argument: String,
        version: Version,
        instead: String,
    },
}

/// The identity of the member at a host.
pub fn peer_address(host: &str) -> PeerAddress {
    PeerAddress { host: host.to_owned(), port: PEER_PORT }
}

pub fn peer_url(scheme: Scheme, host: &str) -> String {
    format!("{scheme}://{}", peer_address(host))
}

pub fn client_url(scheme: Scheme, host: &str) -> String {
    format!("{scheme}://{host}:{CLIENT_PORT}")
}

/// Where a member finds a part of one of its Secrets.
pub fn tls_file(tls_dir: &str, purpose: Purpose, key: &str) -> String {
    format!("{tls_dir}/{}/{key}", purpose.directory().unwrap_or_default())
}

/// Every argument that etcd is started with, or everything that is wrong with the configuration.
pub fn arguments(
    config: &MemberConfig,
    local: &LocalConfig,
    initial_state: InitialState<'_>,
) -> Result<Vec<String>, Vec<Problem>> {
    let problems = problems(config);
    let Some(version) = supported(&config.version).filter(|_| problems.is_empty()) else {
        return Err(problems);
    };
    let mut flags: Vec<(&str, String)> =
        vec![("name", local.name.clone()), ("data-dir", local.data_dir.clone())];
    flags.extend(urls(config.transport, local, initial_state));
    flags.extend(certificates(config, local));
    flags.extend(membership(config, local, initial_state));
    if matches!(initial_state, InitialState::Forced) {
        flags.push(("force-new-cluster", "true".into()));
    }
    let compares = match initial_state {
        InitialState::Known { compares } => compares,
        // There is nobody to compare with.
        InitialState::Forced => false,
        InitialState::Joins(_) | InitialState::Fetches { .. } | InitialState::Bootstraps(_) => true,
    };
    flags.extend(of_version(version, compares));
    flags.extend(chosen(&config.options));
    for (name, value) in &config.options.extra_arguments {
        match flags.iter_mut().find(|(there, _)| there == name) {
            // The last word about a gate counts.
            Some(("feature-gates", ours)) => *ours = format!("{ours},{value}"),
            Some((_, ours)) => ours.clone_from(value),
            None => flags.push((name, value.clone())),
        }
    }
    Ok(flags.into_iter().map(|(name, value)| format!("--{name}={value}")).collect())
}

/// All that is wrong with a configuration, as far as it can be told without asking etcd.
pub fn problems(config: &MemberConfig) -> Vec<Problem> {
    let extra = &config.options.extra_arguments;
    let of_version = match supported(&config.version) {
        Some(version) => known::problems(version, extra),
        None => vec![Problem::Version(config.version.clone())],
    };
    let owned = extra.keys().filter(|name| is_owned(name)).cloned().map(Problem::Owned);
    of_version.into_iter().chain(owned).collect()
}

/// How many entries a leader applies before it drops the first ones of its log. From then on it sends a snapshot to
/// who joins.
pub fn whole_log_until(config: &MemberConfig) -> u64 {
    let short = supported(&config.version).is_some_and(|version| version >= SHORT_LOG);
    let count = config.options.snapshot_count.unwrap_or(DEFAULT_SNAPSHOT_COUNT);
    if short { count.min(SHORT_LOG_ENTRIES) } else { count }
}

fn urls(
    Transport { clients: client_port, peers }: Transport,
    local: &LocalConfig,
    initial_state: InitialState<'_>,
) -> [(&'static str, String); 5] {
    let open = |port| SocketAddr::new(local.listen, port);
    let (clients, metrics) = match initial_state {
        InitialState::Fetches { members: _, clients, metrics } => (clients, metrics),
        InitialState::Known { .. }
        | InitialState::Forced
        | InitialState::Joins(_)
        | InitialState::Bootstraps(_) => (open(CLIENT_PORT), open(METRICS_PORT)),
    };
    let listens = match client_port {
        ClientPort::Http | ClientPort::Https => format!("{}://{clients}", client_port.scheme()),
        ClientPort::Both => format!("http://{clients},https://{clients}"),
    };
    [
        ("listen-peer-urls", format!("{}://{}", peers.scheme(), open(PEER_PORT))),
        ("listen-client-urls", listens),
        ("listen-metrics-urls", format!("http://{metrics}")),
        ("advertise-client-urls", client_url(client_port.scheme(), &local.host)),
        ("initial-advertise-peer-urls", own_peer_urls(peers.scheme(), local, initial_state).join(",")),
    ]
}

/// A member that joins has to advertise exactly the URLs that it is listed with.
fn own_peer_urls(scheme: Scheme, local: &LocalConfig, initial_state: InitialState<'_>) -> Vec<String> {
    let listed = match initial_state {
        InitialState::Joins(members) | InitialState::Fetches { members, .. } => {
            members.iter().find(|member| member.is_at(&peer_address(&local.host)))
        }
        InitialState::Known { .. } | InitialState::Forced | InitialState::Bootstraps(_) => None,
    };
    listed.map_or_else(|| vec![peer_url(scheme, &local.host)], |member| member.peer_urls.clone())
}

/// A certificate is required on every port with TLS. That of a peer has to be for the peer Service, too: it is an authority
/// of this cluster alone, and this holds should anybody ever share it.
fn certificates(config: &MemberConfig, local: &LocalConfig) -> Vec<(&'static str, String)> {
    let file = |purpose, key| tls_file(&local.tls_dir, purpose, key);
    let mut flags = Vec::new();
    if config.transport.clients.is_tls() {
        flags.extend([
            ("cert-file", file(Purpose::Server, CERTIFICATE_KEY)),
            ("key-file", file(Purpose::Server, PRIVATE_KEY)),
            ("trusted-ca-file", file(Purpose::Server, AUTHORITY_KEY)),
            ("client-cert-auth", "true".into()),
        ]);
    }
    if config.transport.peers.has_certificates() {
        flags.extend([
            ("peer-cert-file", file(Purpose::Peer, CERTIFICATE_KEY)),
            ("peer-key-file", file(Purpose::Peer, PRIVATE_KEY)),
            ("peer-trusted-ca-file", file(Purpose::Peer, AUTHORITY_KEY)),
            ("peer-client-cert-auth", "true".into()),
            ("peer-cert-allowed-hostname", config.peer_host.clone()),
        ]);
    }
    flags
}

fn membership(
    config: &MemberConfig,
    local: &LocalConfig,
    initial_state: InitialState<'_>,
) -> [(&'static str, String); 4] {
    let own = peer_url(config.transport.peers.scheme(), &local.host);
    let (state, token, cluster) = match initial_state {
        // With a log etcd ignores these. Should the log vanish in this very moment, it can only fail.
        InitialState::Known { .. } | InitialState::Forced => {
            ("existing", config.cluster_uid.clone(), vec![(local.name.clone(), own)])
        }
        InitialState::Joins(members) | InitialState::Fetches { members, .. } => {
            let named = members.iter().flat_map(|member| {
                let name = match &member.name {
                    _ if member.is_at(&peer_address(&local.host)) => local.name.clone(),
                    empty if empty.is_empty() => format!("unstarted-{:x}", member.id),
                    name => name.clone(),
                };
                member.peer_urls.iter().map(move |url| (name.clone(), url.clone()))
            });
            ("existing", config.cluster_uid.clone(), named.collect())
        }
        InitialState::Bootstraps(order) => {
            let named = order.members.iter().map(|(name, url)| (name.clone(), url.clone()));
            ("new", order.token(), named.collect())
        }
    };
    let cluster: Vec<String> = cluster.into_iter().map(|(name, url)| format!("{name}={url}")).collect();
    [
        ("initial-cluster", cluster.join(",")),
        ("initial-cluster-state", state.into()),
        ("initial-cluster-token", token),
        ("strict-reconfig-check", "true".into()),
    ]
}

fn chosen(options: &MemberOptions) -> Vec<(&'static str, String)> {
    let MemberOptions {
        quota_backend_bytes,
        auto_compaction,
        snapshot_count,
        heartbeat_interval_milliseconds,
        election_timeout_milliseconds,
        extra_arguments: _,
    } = options;
    let mut flags = Vec::new();
    flags.extend(quota_backend_bytes.map(|bytes| ("quota-backend-bytes", bytes.to_string())));
    if let Some(compaction) = auto_compaction {
        let (mode, retention) = match compaction {
            AutoCompaction::Periodic(time) => ("periodic", time),
            AutoCompaction::Revision(count) => ("revision", count),
        };
        flags.push(("auto-compaction-mode", mode.into()));
        flags.push(("auto-compaction-retention", retention.clone()));
    }
    flags.extend(snapshot_count.map(|count| ("snapshot-count", count.to_string())));
    flags.extend(heartbeat_interval_milliseconds.map(|time| ("heartbeat-interval", time.to_string())));
    flags.extend(election_timeout_milliseconds.map(|time| ("election-timeout", time.to_string())));
    flags
}

/// None for what we have no flags for.
fn supported(version: &str) -> Option<Version> {
    Version::parse(version).filter(|version| (Version::new(3, 5, 0)..Version::new(4, 0, 0)).contains(version))
}

/// The checks for corrupt data are off by default in every version.
fn of_version(version: Version, compares: bool) -> Vec<(&'static str, String)> {
    if version >= Version::new(3, 6, 0) {
        let gates =
            if compares { "InitialCorruptCheck=true,CompactHashCheck=true" } else { "CompactHashCheck=true" };
        return vec![("feature-gates", gates.into()), ("max-learners", MAX_LEARNERS.to_string())];
    }
    let mut flags = vec![("experimental-initial-corrupt-check", compares.to_string())];
    if version >= Version::new(3, 5, 5) {
        flags.push(("experimental-compact-hash-check-enabled", "true".into()));
    }
    flags
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "etcd {version} is not supported: use 3.5 or later"),
            Self::Owned(argument) => {
                write!(f, "the operator sets the argument {argument}: remove it from extraArguments")
            }
            Self::UnknownArgument { argument, version, instead: Some(instead) } => {
                write!(f, "etcd {version} has no argument {argument}: use {instead}")
            }
            Self::UnknownArgument { argument, version, instead: None } => {
                write!(f, "etcd {version} has no argument {argument}: remove it from extraArguments")
            }
            Self::UnknownGate { gate, version } => {
                write!(f, "etcd {version} has no feature gate {gate}: remove it from feature-gates")
            }
            Self::Twice { argument, version, instead } => {
                write!(
                    f,
                    "etcd {version} does not start with both {argument} and {instead}: use only the second one"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
