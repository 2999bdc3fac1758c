//! Whether the network that the testbed makes would meet somebody else's.

use std::net::Ipv4Addr;

use serde::Deserialize;

use super::Problem;
use crate::layout::{BRIDGE, NODE_SUBNET, POD_BRIDGE, POD_SUBNET, SERVICE_SUBNET};
use crate::shell::run;

/// One of `ip -json route`.
#[derive(Deserialize)]
struct Route {
    dst: String,
    #[serde(default)]
    dev: String,
}

pub async fn taken_ranges() -> Vec<Problem> {
    let unknown = |reason| vec![Problem::Unknown { what: "what this machine routes where", reason }];
    match run(&["ip", "-json", "-4", "route", "show"]).await {
        Ok(routes) => taken_by(&routes).unwrap_or_else(|error| unknown(error.to_string())),
        Err(error) => unknown(format!("{error:#}")),
    }
}

fn taken_by(routes: &str) -> serde_json::Result<Vec<Problem>> {
    // `ip` prints nothing at all, not even an empty list, where there is no route.
    let routes: Vec<Route> =
        if routes.trim().is_empty() { Vec::new() } else { serde_json::from_str(routes)? };
    let others = routes.iter().filter(|route| ![BRIDGE, POD_BRIDGE].contains(&route.dev.as_str()));
    let meeting = others.flat_map(|route| {
        let ranges = [NODE_SUBNET, SERVICE_SUBNET, POD_SUBNET];
        ranges.into_iter().filter(|range| overlap(range, &route.dst)).map(|range| Problem::RangeTaken {
            range,
            route: route.dst.clone(),
            device: if route.dev.is_empty() { "nowhere".to_owned() } else { route.dev.clone() },
        })
    });
    Ok(meeting.collect())
}

/// A default route meets nothing: everything that is more exact goes before it.
fn overlap(one: &str, other: &str) -> bool {
    let (Some((one, one_length)), Some((other, other_length))) = (range(one), range(other)) else {
        return false;
    };
    let common = one_length.min(other_length);
    common > 0 && (one ^ other) >> (32 - common) == 0
}

/// Address and prefix length; an address alone is a range of one.
fn range(text: &str) -> Option<(u32, u32)> {
    let (address, length) = text.split_once('/').unwrap_or((text, "32"));
    let address: Ipv4Addr = address.parse().ok()?;
    let length = length.parse().ok().filter(|length| *length <= 32)?;
    Some((address.to_bits(), length))
}

pub async fn other_kubernetes() -> Option<Problem> {
    match run(&["iptables-save"]).await {
        Ok(rules) => kubernetes_in(&rules),
        Err(error) => Some(Problem::Unknown { what: "the rules of iptables", reason: format!("{error:#}") }),
    }
}

fn kubernetes_in(rules: &str) -> Option<Problem> {
    let mut chains = rules.lines().filter_map(|line| line.strip_prefix(':')?.split(' ').next());
    let chain = chains.find(|chain| chain.starts_with("KUBE-"))?.to_owned();
    Some(Problem::OtherKubernetes { chain })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(routes: &str) -> Vec<String> {
        taken_by(routes).expect("it is JSON").iter().map(Problem::to_string).collect()
    }

    #[test]
    fn other_peoples_routes_into_our_ranges_are_told() {
        let problems = taken(
            r#"[{"dst":"default","gateway":"172.31.0.1","dev":"ens5","flags":[]},
                {"dst":"172.31.0.0/20","dev":"ens5","protocol":"kernel","flags":[]},
                {"dst":"10.244.7.0/24","dev":"cni0","flags":[]},
                {"type":"blackhole","dst":"10.96.4.4","flags":[]},
                {"dst":"192.0.2.0/24","dev":"eth0","flags":[]}]"#,
        );
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert_eq!(
            problems[0],
            "the testbed uses 172.31.0.0/24, but this machine sends 172.31.0.0/20 to ens5: \
             use another machine, or remove that route if nobody needs it"
        );
        assert!(problems[1].contains("10.244.0.0/16") && problems[1].contains("cni0"), "{problems:?}");
        assert!(problems[2].contains("10.96.4.4 to nowhere"), "{problems:?}");
    }

    #[test]
    fn our_own_routes_are_not() {
        let ours = r#"[{"dst":"172.31.0.0/24","dev":"tb0"},{"dst":"10.244.1.0/24","dev":"tbpod"}]"#;
        assert_eq!(taken(ours), [""; 0]);
        assert_eq!(taken(""), [""; 0]);
        assert_eq!(taken("[]"), [""; 0]);
    }

    #[test]
    fn ranges_overlap_if_one_holds_the_other() {
        for (one, other, expected) in [
            ("10.96.0.0/16", "10.96.0.0/16", true),
            ("10.96.0.0/16", "10.0.0.0/8", true),
            ("10.96.0.0/16", "10.96.255.255", true),
            ("10.96.0.0/16", "10.97.0.0/16", false),
            ("10.96.0.0/16", "0.0.0.0/0", false),
            ("10.96.0.0/16", "default", false),
            ("10.96.0.0/16", "10.96.0.0/33", false),
        ] {
            assert_eq!(overlap(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn chains_of_another_kubernetes_are_seen_and_mere_mentions_are_not() {
        let rules =
            "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n";
        assert_eq!(
            kubernetes_in(rules),
            Some(Problem::OtherKubernetes { chain: "KUBE-SERVICES".to_owned() })
        );
        assert_eq!(kubernetes_in(":INPUT ACCEPT [0:0]\n-A INPUT -m comment --comment \":KUBE-\"\n"), None);
        assert_eq!(kubernetes_in(""), None);
    }
}
