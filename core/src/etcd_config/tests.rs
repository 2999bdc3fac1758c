use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

fn config(version: &str) -> MemberConfig {
    MemberConfig {
        version: version.into(),
        cluster_uid: "uid-1".into(),
        peer_host: "kv-peer.ns.svc.cluster.local".into(),
        attempt: None,
        adopts: None,
        transport: Transport::default(),
        plain_peers: false,
        options: MemberOptions::default(),
    }
}

fn local() -> LocalConfig {
    LocalConfig {
        name: "kv-1".into(),
        host: "kv-1.kv-peer.ns.svc.cluster.local".into(),
        listen: Ipv4Addr::UNSPECIFIED.into(),
        data_dir: "/var/lib/etcd/data".into(),
        tls_dir: "/etc/etcd-tls".into(),
    }
}

fn order() -> BootstrapOrder {
    let url = |name: &str| peer_url(Scheme::Http, &format!("{name}.kv-peer.ns.svc.cluster.local"));
    let members = ["kv-0", "kv-1"].map(|name| (name.into(), url(name)));
    BootstrapOrder {
        protocol_version: crate::agent::Protocol::CURRENT,
        cluster_uid: "uid-1".into(),
        attempt: 1,
        armed: true,
        nonce: "n1".into(),
        members: members.into(),
    }
}

fn rendered(config: &MemberConfig, initial_state: InitialState<'_>) -> String {
    arguments(config, &local(), initial_state).expect("nothing is wrong with it").join("\n")
}

const COMMON: &str = "\
--name=kv-1
--data-dir=/var/lib/etcd/data
--listen-peer-urls=http://0.0.0.0:2380
--listen-client-urls=http://0.0.0.0:2379
--listen-metrics-urls=http://0.0.0.0:2381
--advertise-client-urls=http://kv-1.kv-peer.ns.svc.cluster.local:2379
--initial-advertise-peer-urls=http://kv-1.kv-peer.ns.svc.cluster.local:2380";

const FOUNDS: &str = "\
--initial-cluster=kv-0=http://kv-0.kv-peer.ns.svc.cluster.local:2380,kv-1=http://kv-1.kv-peer.ns.svc.cluster.local:2380
--initial-cluster-state=new
--initial-cluster-token=uid-1-n1
--strict-reconfig-check=true";

#[test]
fn each_version_gets_the_flags_that_it_knows() {
    for (version, own) in [
        ("3.5.4", "--experimental-initial-corrupt-check=true"),
        (
            "v3.5.21",
            "--experimental-initial-corrupt-check=true\n--experimental-compact-hash-check-enabled=true",
        ),
        ("v3.6.16", "--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true\n--max-learners=2"),
        ("3.7.3", "--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true\n--max-learners=2"),
        ("3.10.0", "--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true\n--max-learners=2"),
    ] {
        let expected = format!("{COMMON}\n{FOUNDS}\n{own}");
        assert_eq!(rendered(&config(version), InitialState::Bootstraps(&order())), expected, "{version}");
    }
}

fn members() -> [Member; 3] {
    [(1, "kv-0", "kv-0"), (2, "", "kv-1"), (0xabc, "", "kv-2")].map(|(id, name, host)| Member {
        id,
        name: name.into(),
        peer_urls: vec![peer_url(Scheme::Http, &format!("{host}.kv-peer.ns.svc.cluster.local"))],
        client_urls: vec![],
        is_learner: false,
    })
}

#[test]
fn who_joins_lists_every_member_and_itself_by_its_own_name() {
    let text = rendered(&config("3.6.16"), InitialState::Joins(&members()));
    assert!(
        text.contains(
            "--initial-cluster=kv-0=http://kv-0.kv-peer.ns.svc.cluster.local:2380,\
             kv-1=http://kv-1.kv-peer.ns.svc.cluster.local:2380,\
             unstarted-abc=http://kv-2.kv-peer.ns.svc.cluster.local:2380\n--initial-cluster-state=existing\n"
        ),
        "{text}"
    );
}

#[test]
fn a_joining_member_finds_itself_in_a_list_with_another_scheme() {
    let with_tls = members().map(|member| Member {
        peer_urls: member.peer_urls.iter().map(|url| url.replace("http://", "https://")).collect(),
        ..member
    });
    let text = rendered(&config("3.6.16"), InitialState::Joins(&with_tls));
    assert!(text.contains(",kv-1=https://kv-1.kv-peer.ns.svc.cluster.local:2380,"), "{text}");
}

#[test]
fn who_only_receives_data_is_open_to_its_peers_alone() {
    let members = members();
    let local = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let fetches = InitialState::Fetches { members: &members, clients: local(40001), metrics: local(40002) };
    let joins = rendered(&config("3.6.16"), InitialState::Joins(&members));
    let expected = joins
        .replace("client-urls=http://0.0.0.0:2379", "client-urls=http://127.0.0.1:40001")
        .replace("metrics-urls=http://0.0.0.0:2381", "metrics-urls=http://127.0.0.1:40002");
    assert_eq!(rendered(&config("3.6.16"), fetches), expected);
}

#[test]
fn a_log_stays_whole_for_as_long_as_the_version_keeps_it() {
    for (version, count, entries) in [
        ("v3.5.21", None, 100_000),
        ("v3.5.21", Some(10), 10),
        ("v3.6.0", None, 100),
        ("v3.7.3", Some(50_000), 100),
        ("v3.7.3", Some(10), 10),
    ] {
        let mut config = config(version);
        config.options.snapshot_count = count;
        assert_eq!(whole_log_until(&config), entries, "{version} {count:?}");
    }
}

#[test]
fn a_restart_could_never_form_a_cluster() {
    let text = rendered(&config("3.5.21"), InitialState::Known { compares: true });
    assert!(text.contains("--initial-cluster-state=existing"), "{text}");
    assert!(!text.contains("kv-0"), "{text}");
}

#[test]
fn data_is_compared_only_with_members_that_serve() {
    for (version, compared, not_compared) in [
        ("3.5.21", "--experimental-initial-corrupt-check=true", "--experimental-initial-corrupt-check=false"),
        ("3.6.16", "--feature-gates=InitialCorruptCheck=true,", "--feature-gates=CompactHashCheck=true\n"),
    ] {
        assert!(
            rendered(&config(version), InitialState::Known { compares: true }).contains(compared),
            "{version}"
        );
        assert!(
            rendered(&config(version), InitialState::Known { compares: false }).contains(not_compared),
            "{version}"
        );
    }
}

#[test]
fn options_become_flags() {
    let mut config = config("3.6.16");
    config.options = MemberOptions {
        quota_backend_bytes: Some(8_589_934_592),
        auto_compaction: Some(AutoCompaction::Periodic("8h".into())),
        snapshot_count: Some(10_000),
        heartbeat_interval_milliseconds: Some(200),
        election_timeout_milliseconds: Some(2000),
        extra_arguments: [("max-request-bytes", "2097152"), ("feature-gates", "LeaseCheckpoint=true")]
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
    };
    let text = rendered(&config, InitialState::Known { compares: true });
    let own = text.split("--strict-reconfig-check=true\n").nth(1).expect("the rest");
    assert_eq!(
        own,
        "--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true,LeaseCheckpoint=true\n\
         --max-learners=2\n--quota-backend-bytes=8589934592\n--auto-compaction-mode=periodic\n\
         --auto-compaction-retention=8h\n--snapshot-count=10000\n--heartbeat-interval=200\n\
         --election-timeout=2000\n--max-request-bytes=2097152"
    );
}

#[test]
fn a_pod_of_the_newer_protocol_listens_on_it() {
    let local = LocalConfig { listen: Ipv6Addr::UNSPECIFIED.into(), ..local() };
    let flags = arguments(&config("3.6.16"), &local, InitialState::Known { compares: true })
        .expect("nothing is wrong with it");
    assert!(flags.contains(&"--listen-peer-urls=http://[::]:2380".to_owned()), "{flags:?}");
}

#[test]
fn a_peer_url_leads_back_to_its_address() {
    for host in ["kv-0.kv-peer.ns.svc", "127.0.0.1", "fd00::1"] {
        for scheme in [Scheme::Http, Scheme::Https] {
            assert_eq!(PeerAddress::parse(&peer_url(scheme, host)), Some(peer_address(host)));
        }
    }
}

#[test]
fn a_port_with_tls_demands_certificates_of_its_own_authority() {
    let with = |clients: Scheme, peers: Scheme| {
        let (clients, peers) = (clients.into(), peers.into());
        let config = MemberConfig { transport: Transport { clients, peers }, ..config("3.6.16") };
        rendered(&config, InitialState::Known { compares: true })
    };
    let (plain, tls) = (with(Scheme::Http, Scheme::Http), with(Scheme::Https, Scheme::Https));
    let added: Vec<_> = tls.lines().filter(|line| !plain.contains(line)).collect();
    let expected = "\
--listen-peer-urls=https://0.0.0.0:2380
--listen-client-urls=https://0.0.0.0:2379
--advertise-client-urls=https://kv-1.kv-peer.ns.svc.cluster.local:2379
--initial-advertise-peer-urls=https://kv-1.kv-peer.ns.svc.cluster.local:2380
--cert-file=/etc/etcd-tls/server/tls.crt
--key-file=/etc/etcd-tls/server/tls.key
--trusted-ca-file=/etc/etcd-tls/server/ca.crt
--client-cert-auth=true
--peer-cert-file=/etc/etcd-tls/peer/tls.crt
--peer-key-file=/etc/etcd-tls/peer/tls.key
--peer-trusted-ca-file=/etc/etcd-tls/peer/ca.crt
--peer-client-cert-auth=true
--peer-cert-allowed-hostname=kv-peer.ns.svc.cluster.local
--initial-cluster=kv-1=https://kv-1.kv-peer.ns.svc.cluster.local:2380";
    assert_eq!(added.join("\n"), expected);
    assert!(tls.contains("--listen-metrics-urls=http://0.0.0.0:2381"), "kubelets have no certificate");
    let clients = with(Scheme::Https, Scheme::Http);
    assert!(clients.contains("--client-cert-auth=true") && !clients.contains("--peer-cert-file"));
    assert!(clients.contains("--listen-peer-urls=http://"));
    let peers = with(Scheme::Http, Scheme::Https);
    assert!(peers.contains("--peer-client-cert-auth=true") && !peers.contains("--cert-file"));
    assert!(peers.contains("--listen-client-urls=http://"));
}

#[test]
fn an_extra_argument_overrules_ours() {
    let mut config = config("3.5.21");
    config.options.extra_arguments =
        [("experimental-compact-hash-check-enabled".to_owned(), "false".to_owned())].into();
    let text = rendered(&config, InitialState::Known { compares: true });
    assert!(text.contains("--experimental-compact-hash-check-enabled=false"), "{text}");
    assert!(!text.contains("--experimental-compact-hash-check-enabled=true"), "{text}");
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let mut config = config("3.4.30");
    let extra = ["initial-cluster", "unsafe-no-fsync", "log-level"];
    config.options.extra_arguments = extra.map(|name| (name.to_owned(), "x".to_owned())).into();
    let problems =
        arguments(&config, &local(), InitialState::Known { compares: true }).expect_err("it is wrong");
    let told: Vec<String> = problems.iter().map(Problem::to_string).collect();
    assert_eq!(
        told,
        [
            "etcd 3.4.30 is not supported: use 3.5 or later",
            "the operator sets the argument initial-cluster: remove it from extraArguments",
            "the operator sets the argument unsafe-no-fsync: remove it from extraArguments",
        ]
    );
}

#[test]
fn the_configuration_travels_as_json() {
    let mut config = config("3.6.16");
    config.options.auto_compaction = Some(AutoCompaction::Revision("1000".into()));
    let text = serde_json::to_string(&config).expect("plain data");
    assert_eq!(
        text,
        r#"{"version":"3.6.16","clusterUid":"uid-1","peerHost":"kv-peer.ns.svc.cluster.local","options":{"autoCompaction":{"mode":"revision","retention":"1000"}}}"#
    );
    assert_eq!(serde_json::from_str::<MemberConfig>(&text).expect("it was just written"), config);
}

fn told(version: &str, arguments: &[(&str, &str)]) -> Vec<String> {
    let mut config = config(version);
    config.options.extra_arguments =
        arguments.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    problems(&config).iter().map(Problem::to_string).collect()
}

#[test]
fn an_argument_that_the_version_does_not_have_is_refused_with_its_name_there() {
    for (version, argument, expected) in [
        (
            "3.7.3",
            ("experimental-corrupt-check-time", "1h"),
            Some("etcd 3.7.3 has no argument experimental-corrupt-check-time: use corrupt-check-time"),
        ),
        (
            "v3.7.0",
            ("experimental-enable-lease-checkpoint", "true"),
            Some(
                "etcd 3.7.0 has no argument experimental-enable-lease-checkpoint: use LeaseCheckpoint in \
                 feature-gates",
            ),
        ),
        (
            "3.8.0",
            ("experimental-of-tomorrow", "1"),
            Some("etcd 3.8.0 has no argument experimental-of-tomorrow: remove it from extraArguments"),
        ),
        (
            "3.5.35",
            ("corrupt-check-time", "1h"),
            Some("etcd 3.5.35 has no argument corrupt-check-time: use experimental-corrupt-check-time"),
        ),
        (
            "3.5.35",
            ("feature-gates", "CompactHashCheck=true"),
            Some("etcd 3.5.35 has no argument feature-gates: use arguments that begin with experimental-"),
        ),
        (
            "3.5.35",
            ("log-format", "json"),
            Some("etcd 3.5.35 has no argument log-format: remove it from extraArguments"),
        ),
        (
            "3.5.35",
            ("experimental-warning-unary-request-duration", "1s"),
            Some(
                "etcd 3.5.35 has no argument experimental-warning-unary-request-duration: remove it from \
                 extraArguments",
            ),
        ),
        (
            "3.6.16",
            ("feature-gates", "LeaseCheckpoint=true, PriorityRequest=true"),
            Some("etcd 3.6.16 has no feature gate PriorityRequest: remove it from feature-gates"),
        ),
        ("3.7.3", ("feature-gates", "LeaseCheckpoint=true,PriorityRequest=true"), None),
        ("3.7.3", ("corrupt-check-time", "1h"), None),
        ("3.6.16", ("corrupt-check-time", "1h"), None),
        ("3.6.16", ("experimental-corrupt-check-time", "1h"), None),
        ("3.6.16", ("experimental-stop-grpc-service-on-defrag", "true"), None),
        ("3.5.35", ("experimental-corrupt-check-time", "1h"), None),
        ("3.5.35", ("experimental-initial-corrupt-check", "false"), None),
        // What we do not know is left to etcd.
        ("3.7.3", ("max-request-bytes", "1"), None),
        ("3.5.35", ("experimental-of-tomorrow", "1"), None),
    ] {
        assert_eq!(told(version, &[argument]), Vec::from_iter(expected), "{version} {argument:?}");
    }
}

#[test]
fn two_names_of_one_argument_are_refused_because_etcd_finds_out_only_when_it_starts() {
    let of_ours = "etcd 3.6.16 does not start with both experimental-initial-corrupt-check and InitialCorruptCheck in \
                   feature-gates: use only the second one";
    assert_eq!(told("3.6.16", &[("experimental-initial-corrupt-check", "false")]), [of_ours]);
    let both = [("experimental-memory-mlock", "true"), ("memory-mlock", "true")];
    let of_both = "etcd 3.6.16 does not start with both experimental-memory-mlock and memory-mlock: use only the second one";
    assert_eq!(told("3.6.16", &both), [of_both]);
    // The name of one gate begins with the name of the other.
    let gates =
        [("experimental-enable-lease-checkpoint", "true"), ("feature-gates", "LeaseCheckpointPersist=true")];
    let of_gates = "etcd 3.6.16 does not start with both experimental-enable-lease-checkpoint and LeaseCheckpoint in \
                    feature-gates: use only the second one";
    assert_eq!(told("3.6.16", &gates), [of_gates]);
}

#[test]
fn an_argument_of_the_operator_is_refused_once() {
    assert_eq!(
        told("3.7.3", &[("experimental-max-learners", "3")]),
        ["the operator sets the argument experimental-max-learners: remove it from extraArguments"]
    );
}
