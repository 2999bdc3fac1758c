//! How far an etcd has come, as it tells on its metrics port.

use std::net::SocketAddr;
use std::time::Duration;

use crate::http::get;

const APPLIED: &str = "etcd_server_proposals_applied_total";

/// The index of the last entry that it has applied; none if it does not tell, which is not zero.
pub fn applied_index(address: SocketAddr, deadline: Duration) -> Option<u64> {
    let response = get(address, "/metrics", deadline).ok()?;
    (response.status == 200).then(|| number(&response.body, APPLIED)).flatten()
}

/// Numbers are written as Go writes floats: `1.234567e+06`.
fn number(page: &str, name: &str) -> Option<u64> {
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    let value: f64 = value.trim().parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_as_etcd_writes_it() {
        let page = |value: &str| {
            format!("# TYPE {APPLIED} gauge\n{APPLIED}_before 7\n{APPLIED} {value}\nprocess_open_fds 12\n")
        };
        for (written, read) in [("0", Some(0)), ("312", Some(312)), ("1.234567e+06", Some(1_234_567))] {
            assert_eq!(number(&page(written), APPLIED), read, "{written}");
        }
        for nonsense in ["NaN", "-1", "+Inf", "many", ""] {
            assert_eq!(number(&page(nonsense), APPLIED), None, "{nonsense}");
        }
        assert_eq!(number("", APPLIED), None);
    }
}
