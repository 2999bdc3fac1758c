//! Rules about settings of etcd.

use super::{Rule, Server, storage, syntax};
use crate::api::{AutoCompactionMode, EtcdClusterSpec, Options};
use crate::etcd_config::known;
use crate::version::Version;

/// etcd's own defaults, which count where a setting is left out.
pub(crate) const DEFAULT_HEARTBEAT_MILLISECONDS: i32 = 100;
pub(crate) const DEFAULT_ELECTION_MILLISECONDS: i32 = 1000;

/// Arguments that have a field of their own.
const WITH_A_FIELD: [&str; 6] = [
    "auto-compaction-mode",
    "auto-compaction-retention",
    "election-timeout",
    "heartbeat-interval",
    "quota-backend-bytes",
    "snapshot-count",
];

/// Arguments that decide who the member is, whom it trusts, where it stores and listens, or that can lose
/// data.
const OWNED: [&str; 24] = [
    "auto-tls",
    "cert-file",
    "client-cert-allowed-hostname",
    "client-cert-auth",
    "client-cert-file",
    "client-crl-file",
    "client-key-file",
    "config-file",
    "data-dir",
    "enable-v2",
    "experimental-enable-v2v3",
    "experimental-max-learners",
    "experimental-peer-skip-client-san-verification",
    "force-new-cluster",
    "help",
    "key-file",
    "max-learners",
    "name",
    "self-signed-cert-validity",
    "strict-reconfig-check",
    "trusted-ca-file",
    "unsafe-no-fsync",
    "version",
    "wal-dir",
];

/// Families of such arguments. Those of peers are all about addresses and certificates.
const OWNED_PREFIXES: [&str; 6] = ["advertise-", "discovery", "initial-", "listen-", "peer-", "proxy"];

/// Six files of 64 MB (etcd keeps five and allocates the next one in advance), and what a file system needs for itself.
pub(crate) const LOG_BYTES: u64 = 448 << 20;

pub(super) const RULES: &[Rule<EtcdClusterSpec>] = &[
    Rule {
        at: "options.quotaBackendBytes",
        server: Server::Schema,
        message: "must be 16777216 (16 MiB) to 8589934592 (8 GiB), the largest size that etcd recommends",
        broken: |spec| outside(spec, |options| options.quota_backend_bytes, 16 << 20, 8 << 30),
    },
    Rule {
        at: "options.quotaBackendBytes",
        server: Server::Nothing,
        message: "the volume must hold the database and etcd's log: lower it, or make storage.size larger than it by \
            448Mi or more",
        broken: |spec| {
            let quota = spec.options.as_ref().and_then(|options| options.quota_backend_bytes);
            let volume = spec.storage.size_in_effect();
            let quota = quota.and_then(|quota| u64::try_from(quota).ok());
            let holds_a_log = |volume: &u64| *volume >= storage::LEAST_BYTES;
            let volume = volume.bytes().filter(holds_a_log);
            quota.zip(volume).is_some_and(|(quota, volume)| quota.saturating_add(LOG_BYTES) > volume)
        },
    },
    Rule {
        at: "options.snapshotCount",
        server: Server::Schema,
        message: "must be 1 to 10000000: etcd's default suits most clusters",
        broken: |spec| outside(spec, |options| options.snapshot_count, 1, 10_000_000),
    },
    Rule {
        at: "options.heartbeatIntervalMilliseconds",
        server: Server::Schema,
        message: "must be 1 to 10000: use about the round-trip time between members",
        broken: |spec| {
            outside(spec, |options| options.heartbeat_interval_milliseconds.map(i64::from), 1, 10_000)
        },
    },
    Rule {
        at: "options.electionTimeoutMilliseconds",
        server: Server::Schema,
        message: "must be 5 to 50000: use about ten times the round-trip time between members",
        broken: |spec| {
            outside(spec, |options| options.election_timeout_milliseconds.map(i64::from), 5, 50_000)
        },
    },
    Rule {
        at: "options",
        server: Server::Cel(
            "(has(self.electionTimeoutMilliseconds) ? self.electionTimeoutMilliseconds : 1000) >= \
             5 * (has(self.heartbeatIntervalMilliseconds) ? self.heartbeatIntervalMilliseconds : 100)",
        ),
        message: "electionTimeoutMilliseconds (default 1000) must be at least five times \
            heartbeatIntervalMilliseconds (default 100): raise the first or lower the second",
        broken: |spec| {
            spec.options.as_ref().is_some_and(|options| {
                let heartbeat =
                    options.heartbeat_interval_milliseconds.unwrap_or(DEFAULT_HEARTBEAT_MILLISECONDS);
                let election = options.election_timeout_milliseconds.unwrap_or(DEFAULT_ELECTION_MILLISECONDS);
                i64::from(election) < 5 * i64::from(heartbeat)
            })
        },
    },
    Rule {
        at: "options",
        server: Server::Cel("has(self.autoCompactionMode) == has(self.autoCompactionRetention)"),
        message: "set both autoCompactionMode and autoCompactionRetention, or neither",
        broken: |spec| {
            spec.options.as_ref().is_some_and(|options| {
                options.auto_compaction_mode.is_some() != options.auto_compaction_retention.is_some()
            })
        },
    },
    Rule {
        at: "options",
        server: Server::Cel(
            "!has(self.autoCompactionMode) || !has(self.autoCompactionRetention) || \
             self.autoCompactionMode != 'Periodic' || \
             self.autoCompactionRetention != '' && self.autoCompactionRetention\
             .matches('^([1-9][0-9]{0,5}h)?([1-9][0-9]{0,5}m)?([1-9][0-9]{0,5}s)?$')",
        ),
        message: "with autoCompactionMode Periodic, autoCompactionRetention must be a duration such as 30m, 8h or \
            1h30m",
        broken: |spec| {
            retention(spec, AutoCompactionMode::Periodic).is_some_and(|text| !syntax::is_time(text))
        },
    },
    Rule {
        at: "options",
        server: Server::Cel(
            "!has(self.autoCompactionMode) || !has(self.autoCompactionRetention) || \
             self.autoCompactionMode != 'Revision' || \
             self.autoCompactionRetention.matches('^[1-9][0-9]{0,17}$')",
        ),
        message: "with autoCompactionMode Revision, autoCompactionRetention must be a number of revisions such \
            as \"10000\"",
        broken: |spec| {
            retention(spec, AutoCompactionMode::Revision).is_some_and(|text| !syntax::is_count(text, 18))
        },
    },
    Rule {
        at: "options.extraArguments",
        server: Server::Schema,
        message: "must be at most 32 arguments, with values of at most 1024 printable ASCII characters",
        broken: |spec| {
            extra_arguments(spec).count() > 32
                || extra_arguments(spec).any(|(_, value)| {
                    value.len() > 1024 || !value.bytes().all(|byte| (b' '..=b'~').contains(&byte))
                })
        },
    },
    Rule {
        at: "options.extraArguments",
        server: Server::Cel("self.all(name, !name.startsWith('-'))"),
        message: "write arguments without leading dashes: max-request-bytes, not --max-request-bytes",
        broken: |spec| extra_arguments(spec).any(|(name, _)| name.starts_with('-')),
    },
    Rule {
        at: "options.extraArguments",
        server: Server::Nothing,
        message: "argument names must consist of lower-case letters, digits and dashes",
        broken: |spec| {
            extra_arguments(spec).any(|(name, _)| {
                let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
                name.is_empty() || !name.bytes().all(fits)
            })
        },
    },
    Rule {
        at: "options.extraArguments",
        server: Server::CelFrom(|| format!("!self.exists(name, name in [{}])", quoted(&WITH_A_FIELD))),
        message: "use the field instead of the argument for: quotaBackendBytes, autoCompactionMode, \
            autoCompactionRetention, snapshotCount, heartbeatIntervalMilliseconds, electionTimeoutMilliseconds",
        broken: |spec| extra_arguments(spec).any(|(name, _)| WITH_A_FIELD.contains(&name.as_str())),
    },
    Rule {
        at: "options.extraArguments",
        server: Server::CelFrom(|| {
            let prefixes = OWNED_PREFIXES.map(|prefix| format!("name.startsWith('{prefix}')"));
            format!("!self.exists(name, name in [{}] || {})", quoted(&OWNED), prefixes.join(" || "))
        }),
        message: "the operator sets the arguments for identity, certificates, storage and addresses (name, data-dir, \
            initial-*, listen-*, advertise-*, peer-*, certificates and keys, max-learners, force-new-cluster, ...): \
            remove them",
        broken: |spec| extra_arguments(spec).any(|(name, _)| is_owned(name)),
    },
];

/// A rule whose message names the argument: no entry of the table can do that.
pub(crate) const ARGUMENTS_OF_THE_VERSION: &str = "must be arguments that spec.version has: etcd 3.6 renamed those that \
    begin with experimental-, or made feature-gates of them, and 3.7 removed the old names";

/// What breaks that rule, with the way out.
pub(crate) fn not_of_the_version(spec: &EtcdClusterSpec) -> Vec<String> {
    let arguments = spec.options.as_ref().map(|options| &options.extra_arguments);
    let problems =
        Version::parse(&spec.version).zip(arguments).map(|(version, it)| known::problems(version, it));
    problems.into_iter().flatten().map(|problem| problem.to_string()).collect()
}

pub(crate) fn is_owned(name: &str) -> bool {
    OWNED.contains(&name) || OWNED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn outside(spec: &EtcdClusterSpec, value: fn(&Options) -> Option<i64>, least: i64, most: i64) -> bool {
    spec.options.as_ref().and_then(value).is_some_and(|value| !(least..=most).contains(&value))
}

fn retention(spec: &EtcdClusterSpec, mode: AutoCompactionMode) -> Option<&str> {
    let options = spec.options.as_ref().filter(|options| options.auto_compaction_mode == Some(mode))?;
    options.auto_compaction_retention.as_deref()
}

fn extra_arguments(spec: &EtcdClusterSpec) -> impl Iterator<Item = (&String, &String)> {
    spec.options.iter().flat_map(|options| &options.extra_arguments)
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}
