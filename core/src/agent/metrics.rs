//! What a waiting agent serves where etcd has its metrics, in the text format of Prometheus. Once etcd runs, etcd answers there.

use std::fmt::Write;

use super::{Reason, Report};
use crate::metrics::Kind;

/// What the table says of one metric.
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

const WAITING: Metric = Metric {
    name: "etcd_agent_waiting",
    kind: Kind::Gauge,
    labels: &["reason"],
    help: "1, with the reason for which the agent does not start etcd yet",
};
const SINCE: Metric = Metric {
    name: "etcd_agent_waiting_since_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &[],
    help: "Since when it waits for this, in Unix time",
};
const CHECKS: Metric = Metric {
    name: "etcd_agent_checks_total",
    kind: Kind::Counter,
    labels: &[],
    help: "How often it has checked that, since the container started",
};

pub const ALL: [&Metric; 3] = [&WAITING, &SINCE, &CHECKS];

pub fn page(report: &Report, checks: u64) -> String {
    let reason = match &report.waiting {
        Reason::Known(waiting) => waiting.reason(),
        // An agent knows its own reasons.
        Reason::Unknown { .. } => "Unknown",
    };
    let mut page = String::new();
    for (metric, labels, value) in [
        (WAITING, format!("{{reason=\"{reason}\"}}"), 1),
        (SINCE, String::new(), report.since.as_second()),
        (CHECKS, String::new(), checks.cast_signed()),
    ] {
        let Metric { name, kind, help, .. } = metric;
        let _ =
            writeln!(page, "# HELP {name} {help}.\n# TYPE {name} {}\n{name}{labels} {value}", kind.title());
    }
    page
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::agent::Protocol;
    use crate::links::active_peers;
    use crate::observed::MemberId;
    use crate::start::Waiting;

    fn report(waiting: Waiting) -> Report {
        Report {
            protocol_version: Protocol::CURRENT,
            cluster_uid: "uid-1".into(),
            name: "kv-1".into(),
            peer_url: "http://kv-1:2380".into(),
            ever_started: false,
            message: waiting.to_string(),
            waiting: Reason::Known(waiting),
            since: Timestamp::from_second(90).expect("a time"),
        }
    }

    #[test]
    fn the_page_says_why_and_since_when_the_agent_waits_and_has_what_the_table_has() {
        let page = page(&report(Waiting::NoOrder), 7);
        let series: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "etcd_agent_waiting{reason=\"NoOrder\"} 1",
            "etcd_agent_waiting_since_timestamp_seconds 90",
            "etcd_agent_checks_total 7",
        ];
        assert_eq!(series, expected);
        assert!(ALL.iter().zip(series).all(|(metric, line)| line.starts_with(metric.name)));
    }

    #[test]
    fn it_is_no_page_of_etcd_so_nothing_follows_from_it_about_connections() {
        let page = page(&report(Waiting::Fetching { applied: 1, wanted: 2 }), 1);
        assert_eq!(active_peers(&page, MemberId(0xa0)), None);
    }
}
