use super::*;
use crate::shell::run;

fn pod(direction: Direction) -> Cut {
    let network = Network::Pod { namespace: "net:[1]".into(), gateway: "10.244.2.1".into() };
    Cut { network, dropped: Dropped::All(direction) }
}

#[test]
fn a_pod_is_cut_off_from_all_but_itself_and_its_gateway() {
    assert_eq!(
        pod(Direction::Both).rules("TESTBED-cut-pod-1"),
        "*filter\n:TESTBED-cut-pod-1 - [0:0]\n-A TESTBED-cut-pod-1 -j DROP\n\
         -I INPUT ! -s 10.244.2.1/32 ! -i lo -j TESTBED-cut-pod-1\n\
         -I OUTPUT ! -d 10.244.2.1/32 ! -o lo -j TESTBED-cut-pod-1\nCOMMIT\n"
    );
}

#[test]
fn a_cut_of_one_direction_leaves_the_other_open() {
    assert!(!pod(Direction::In).rules("X").contains("OUTPUT"));
    assert!(!pod(Direction::Out).rules("X").contains("INPUT"));
    let network = Network::Node { namespace: "tb-n2".into() };
    let node = Cut { network, dropped: Dropped::All(Direction::Out) };
    assert_eq!(node.rules("X"), "*mangle\n:X - [0:0]\n-A X -j DROP\n-I POSTROUTING -o eth0 -j X\nCOMMIT\n");
}

#[test]
fn a_cut_of_calls_concerns_one_port_of_one_address() {
    let dropped = Dropped::Calls { to: Ipv4Addr::new(10, 244, 1, 7), port: 2380 };
    let calls = Cut { dropped, ..pod(Direction::Out) };
    let rules = [
        "*filter\n:X - [0:0]\n-A X -p tcp -j REJECT --reject-with tcp-reset",
        "-I OUTPUT -d 10.244.1.7/32 -p tcp --dport 2380 ! --tcp-flags RST RST -j X\nCOMMIT\n",
    ];
    assert_eq!(calls.rules("X"), rules.join("\n"));
}

#[test]
fn the_name_of_a_chain_fits_the_kernel() {
    assert!(chain("cut-calls-9999999999").len() <= 28);
}

/// Two joined network namespaces, in place of a node and the rest. Needs root, as the testbed does.
struct Pair {
    names: [String; 2],
    resident: tokio::process::Child,
}

const ADDRESSES: [&str; 2] = ["198.18.0.1", "198.18.0.2"];

impl Pair {
    async fn new(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make network namespaces");
            return None;
        }
        let names = ["a", "b"].map(|end| format!("tbtest-{test}-{end}"));
        for name in &names {
            run(&["ip", "netns", "add", name]).await.expect("a namespace");
        }
        let [a, b] = &names;
        let link = ["link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b];
        run(&[&["ip", "-n", a], &link[..]].concat()).await.expect("a link");
        for (name, address) in names.iter().zip(ADDRESSES) {
            for line in [
                format!("addr add {address}/24 dev eth0"),
                "link set eth0 up".into(),
                "link set lo up".into(),
            ] {
                let words: Vec<_> = ["ip", "-n", name].into_iter().chain(line.split(' ')).collect();
                run(&words).await.expect("an address");
            }
        }
        let resident = tokio::process::Command::new("nsenter")
            .args([&format!("--net=/run/netns/{b}"), "sleep", "600"])
            .kill_on_drop(true)
            .spawn()
            .expect("a process inside");
        let pair = Self { names, resident };
        for _ in 0..50 {
            if pair.pod("203.0.113.1").enter().is_some() && pair.arrives(0, 1).await {
                return Some(pair);
            }
        }
        panic!("the two namespaces are not joined");
    }

    /// The second namespace, taken as a pod's.
    fn pod(&self, gateway: &str) -> Network {
        let id = self.resident.id().expect("it runs");
        let namespace = network_of(id).expect("it lives in some network");
        Network::Pod { namespace, gateway: gateway.into() }
    }

    fn node(&self) -> Network {
        Network::Node { namespace: self.names[1].clone() }
    }

    /// Whether a datagram gets from one end to the other. Nobody listens there, which the kernel counts.
    async fn arrives(&self, from: usize, to: usize) -> bool {
        let before = self.unheard(to).await;
        let send = format!("echo here > /dev/udp/{}/9000", ADDRESSES[to]);
        let inside = format!("--net=/run/netns/{}", self.names[from]);
        let _ = run(&["nsenter", &inside, "bash", "-c", &send]).await;
        for _ in 0..20 {
            if self.unheard(to).await > before {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        false
    }

    async fn unheard(&self, end: usize) -> u64 {
        let inside = format!("--net=/run/netns/{}", self.names[end]);
        let counters = run(&["nsenter", &inside, "cat", "/proc/net/snmp"]).await.expect("counters");
        let no_port = counters.lines().filter_map(|line| line.strip_prefix("Udp: ")).nth(1);
        no_port.and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("the second counter, NoPorts")
    }

    async fn passes(&self) -> (bool, bool) {
        (self.arrives(0, 1).await, self.arrives(1, 0).await)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = std::process::Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

#[tokio::test]
async fn cuts_of_both_directions_add_up_and_go_one_by_one() {
    let Some(pair) = Pair::new("cuts").await else { return };
    for network in [pair.pod("203.0.113.1"), pair.node()] {
        let inward = Cut { network: network.clone(), dropped: Dropped::All(Direction::In) };
        let outward = Cut { network: network.clone(), dropped: Dropped::All(Direction::Out) };
        assert_eq!(pair.passes().await, (true, true));
        inward.begin("cut-1").await.expect("cut");
        inward.begin("cut-1").await.expect("cut again");
        assert_eq!(pair.passes().await, (false, true), "{network:?}");
        outward.begin("cut-2").await.expect("cut");
        assert_eq!(pair.passes().await, (false, false), "{network:?}");
        inward.end("cut-1").await.expect("joined");
        inward.end("cut-1").await.expect("joined again");
        assert_eq!(pair.passes().await, (true, false), "{network:?}");
        outward.end("cut-2").await.expect("joined");
        assert_eq!(pair.passes().await, (true, true), "{network:?}");
    }
}

#[tokio::test]
async fn the_gateway_of_a_pod_stays_within_reach() {
    let Some(pair) = Pair::new("gateway").await else { return };
    let cut = Cut { network: pair.pod(ADDRESSES[0]), dropped: Dropped::All(Direction::Both) };
    cut.begin("cut-1").await.expect("cut");
    assert_eq!(pair.passes().await, (true, true));
}

#[tokio::test]
async fn a_cut_of_a_pod_that_is_gone_ends_without_error() {
    let cut = pod(Direction::Both);
    cut.end("cut-pod-1").await.expect("nothing to do");
    assert!(cut.begin("cut-pod-1").await.is_err());
}
