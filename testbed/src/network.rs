//! The testbed's own network: a bridge that joins the nodes, and a fence that lets nothing out.

use anyhow::Result;

use crate::layout::{BRIDGE, HOST_ADDRESS, Node, POD_BRIDGE, SERVICE_SUBNET};
use crate::shell::{run, run_in, run_with_input};

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
    run_with_input(&["iptables-restore", "-w", "--noflush"], &rules).await?;
    Ok(())
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
        remove_link(bridge).await?;
    }
    for family in ["iptables", "ip6tables"] {
        for table in ["filter", "nat", "mangle"] {
            remove_chains(family, table).await?;
        }
    }
    Ok(())
}

async fn remove_link(name: &str) -> Result<()> {
    if std::path::Path::new("/sys/class/net").join(name).exists() {
        run(&["ip", "link", "del", name]).await?;
    }
    Ok(())
}

/// Our chain and those of the kubelet and kube-proxy; `preflight` has seen to it that they are nobody else's.
async fn remove_chains(family: &str, table: &str) -> Result<()> {
    let rules = run(&[&format!("{family}-save"), "-t", table]).await?;
    if let Some(script) = chain_removal(&rules, table) {
        run_with_input(&[&format!("{family}-restore"), "-w", "--noflush"], &script).await?;
    }
    Ok(())
}

/// From a saved table, the script that removes our chains and every rule that leads to one.
fn chain_removal(saved: &str, table: &str) -> Option<String> {
    let ours = |chain: &str| chain.starts_with("KUBE-") || chain == FENCE;
    let chains: Vec<&str> = saved
        .lines()
        .filter_map(|line| line.strip_prefix(':')?.split(' ').next())
        .filter(|chain| ours(chain))
        .collect();
    if chains.is_empty() {
        return None;
    }
    let jumps = saved.lines().filter_map(|line| {
        let rule = line.strip_prefix("-A ")?;
        let from = rule.split(' ').next()?;
        let target = rule.split_once(" -j ")?.1.split(' ').next()?;
        (!ours(from) && ours(target)).then(|| format!("-D {rule}"))
    });
    let mut script = vec![format!("*{table}")];
    script.extend(jumps);
    script.extend(chains.iter().map(|chain| format!("-F {chain}")));
    script.extend(chains.iter().map(|chain| format!("-X {chain}")));
    script.push("COMMIT\n".into());
    Some(script.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_chains_and_the_rules_that_lead_to_them_are_removed() {
        let saved = "*filter\n:INPUT ACCEPT [0:0]\n:DOCKER - [0:0]\n:KUBE-FIREWALL - [0:0]\n:TESTBED - [0:0]\n\
                     -A INPUT -m comment --comment \"a b\" -j KUBE-FIREWALL\n-A INPUT -j DOCKER\n\
                     -A FORWARD -j TESTBED\n-A KUBE-FIREWALL -j DROP\nCOMMIT\n";
        let script = chain_removal(saved, "filter").expect("there is something to remove");
        assert_eq!(
            script,
            "*filter\n-D INPUT -m comment --comment \"a b\" -j KUBE-FIREWALL\n-D FORWARD -j TESTBED\n\
             -F KUBE-FIREWALL\n-F TESTBED\n-X KUBE-FIREWALL\n-X TESTBED\nCOMMIT\n"
        );
    }

    #[test]
    fn a_table_without_our_chains_is_left_alone() {
        assert_eq!(
            chain_removal("*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j DOCKER\nCOMMIT\n", "nat"),
            None
        );
    }
}
