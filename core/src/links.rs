//! Which members a member reaches, from its page of metrics.

use std::collections::BTreeSet;

use crate::observed::MemberId;

/// Every etcd has some of these.
const OF_ETCD: &str = "etcd_server_";
const METRIC: &str = "etcd_network_active_peers{";

/// etcd dials each peer again and again until it succeeds, and this metric has how the attempt ended that ended last: a failure
/// can come after a success and stay. A member is missing until the first attempt succeeds, and one that was removed can stay.
///
/// None if it is not etcd that has answered: a waiting agent has metrics, too, and knows nothing of connections.
pub fn active_peers(page: &str, member: MemberId) -> Option<BTreeSet<MemberId>> {
    page.lines().find(|line| line.starts_with(OF_ETCD))?;
    let peers = page.lines().filter_map(|line| line.strip_prefix(METRIC));
    Some(peers.filter_map(|line| connected(line, member)).collect())
}

/// `Local="8e9e05c52164694d",Remote="91bc3c398fb3c146"} 1`
fn connected(line: &str, member: MemberId) -> Option<MemberId> {
    let (labels, value) = line.split_once('}')?;
    let id = |name: &str| {
        let mut labels = labels.split(',').filter_map(|label| label.trim().split_once('='));
        let (_, value) = labels.find(|(it, _)| *it == name)?;
        u64::from_str_radix(value.trim_matches('"'), 16).ok().map(MemberId)
    };
    let is_active = value.trim().parse::<f64>().is_ok_and(|count| count > 0.0);
    (is_active && id("Local")? == member).then(|| id("Remote"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As etcd 3.5.21, 3.5.35, 3.6.16 and 3.7.3 write it.
    const PAGE: &str = "\
# HELP etcd_network_active_peers The current number of active peer connections.
# TYPE etcd_network_active_peers gauge
etcd_network_active_peers{Local=\"a0\",Remote=\"a1\"} 1
etcd_network_active_peers{Local=\"a0\",Remote=\"a2\"} 0
etcd_network_active_peers{Local=\"a0\",Remote=\"f3e1c0\"} 1
etcd_network_client_grpc_received_bytes_total 5
etcd_server_has_leader 1
";

    #[test]
    fn a_peer_counts_while_its_connection_is_active() {
        let expected = BTreeSet::from([MemberId(0xa1), MemberId(0xf3e1c0)]);
        assert_eq!(active_peers(PAGE, MemberId(0xa0)), Some(expected));
    }

    #[test]
    fn what_another_process_reports_or_nobody_can_read_does_not_count() {
        let nobody = Some(BTreeSet::new());
        assert_eq!(active_peers(PAGE, MemberId(0xa1)), nobody);
        for line in [
            "Local=\"a0\"} 1",
            "Local=\"a0\",Remote=\"x\"} 1",
            "Local=\"a0\",Remote=\"a1\"}",
            "Remote=\"a1\" 1",
        ] {
            let page = format!("etcd_server_has_leader 1\n{METRIC}{line}");
            assert_eq!(active_peers(&page, MemberId(0xa0)), nobody, "{line}");
        }
    }
}
