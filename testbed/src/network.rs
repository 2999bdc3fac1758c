//! The testbed's own network: a bridge that joins the nodes, and a fence that lets nothing out.

use anyhow::Result;

use crate::layout::{BRIDGE, HOST_ADDRESS, Node, POD_BRIDGE, SERVICE_SUBNET};
use crate::packet_filter::Table;
use crate::shell::{run, run_in};

/// The chain that holds our rules on the machine.
const FENCE: &str = "TESTBED";

pub async fn create() -> Result<()> {
    run(&["ip", "link", "add", BRIDGE, "type", "bridge"]).await?;
    run(&["ip", "addr", "add", &format!("{HOST_ADDRESS}/24"), "dev", BRIDGE]).await?;
    run(&["ip", "link", "set", BRIDGE, "up"]).await?;
    // A service packet that kube-proxy did not rewrite ends on the bridge and never leaves the machine.
    // A blackhole route would not do: routing comes before the rewrite.
    run(&["ip", "route", "add", SERVICE_SUBNET, "dev", BRIDGE]).await?;
    // Nothing passes between the testbed (devices tb...) and any other network.
    let rules = format!(
        "*filter\n:{FENCE} - [0:0]\n\
         -A {FENCE} -i tb+ ! -o tb+ -j REJECT\n\
         -A {FENCE} ! -i tb+ -o tb+ -j REJECT\n\
         -I FORWARD -j {FENCE}\nCOMMIT\n"
    );
    Table { enter: &[], family: "iptables", name: "filter" }.restore(&rules).await
}

/// Gives a node its network namespace, address and routes.
pub async fn attach(node: Node) -> Result<()> {
    let Some(namespace) = node.network_namespace() else { return Ok(()) };
    let address = format!("{}/24", node.address());
    run(&["ip", "netns", "add", &namespace]).await?;
    run(&["ip", "link", "add", &namespace, "type", "veth", "peer", "name", "eth0", "netns", &namespace])
        .await?;
    run(&["ip", "link", "set", &namespace, "master", BRIDGE, "up"]).await?;
    for line in [
        format!("addr add {address} dev eth0"),
        "link set eth0 up".into(),
        "link set lo up".into(),
        format!("route add default via {HOST_ADDRESS}"),
    ] {
        let words: Vec<&str> = ["ip", "-n", &namespace].into_iter().chain(line.split(' ')).collect();
        run(&words).await?;
    }
    run_in(Some(&namespace), &["sysctl", "-qw", "net.ipv4.ip_forward=1"]).await?;
    run(&["ip", "route", "add", &node.pod_subnet(), "via", &node.address().to_string()]).await?;
    Ok(())
}

/// Takes all of it away; what is not there is fine.
pub async fn remove() -> Result<()> {
    for node in Node::first(Node::MOST) {
        if let Some(namespace) = node.network_namespace() {
            remove_link(&namespace).await?;
            if std::path::Path::new("/run/netns").join(&namespace).exists() {
                run(&["ip", "netns", "del", &namespace]).await?;
            }
        }
    }
    for bridge in [POD_BRIDGE, BRIDGE] {
        // A link of a pod goes with the pod's network, but that may live on for minutes: connections that were cut
        // off wait for their last acknowledgement there.
        for port in ports_of(bridge) {
            remove_link(&port).await?;
        }
        remove_link(bridge).await?;
    }
    for family in ["iptables", "ip6tables"] {
        for name in ["filter", "nat", "mangle"] {
            // `preflight` has seen to it that chains of kubelet and kube-proxy are nobody else's.
            let ours = |chain: &str| chain.starts_with("KUBE-") || chain == FENCE;
            Table { enter: &[], family, name }.remove(ours).await?;
        }
    }
    Ok(())
}

fn ports_of(bridge: &str) -> Vec<String> {
    let ports = std::path::Path::new("/sys/class/net").join(bridge).join("brif");
    let entries = std::fs::read_dir(ports).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

async fn remove_link(name: &str) -> Result<()> {
    let link = std::path::Path::new("/sys/class/net").join(name);
    if !link.exists() {
        return Ok(());
    }
    // A pod's link also goes by itself, together with the pod's network.
    let removed = run(&["ip", "link", "del", name]).await;
    if link.exists() { removed.map(drop) } else { Ok(()) }
}
