//! The alerts that we ship: one table, from which the rules for Prometheus and the index of the runbooks are generated.
//!
//! Metrics of members have the labels `namespace` and `name` of their cluster and `pod`, as the scrape configurations in
//! `config/prometheus` set them. An etcd without the label `name` is not ours.

pub mod render;

mod table;

pub use table::ALERTS;

#[derive(Debug)]
pub struct Alert {
    pub name: &'static str,
    pub severity: Severity,
    /// How long the expression has to hold.
    pub minutes: u32,
    pub expression: &'static str,
    /// Can contain `{{ $labels.x }}` and `{{ $value }}`.
    pub summary: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The cluster does not serve, or is about to stop: wake somebody up.
    Critical,
    /// Somebody has to act within a day.
    Warning,
}

impl Severity {
    pub fn title(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
        }
    }
}

impl Alert {
    pub fn runbook(&self) -> String {
        format!("docs/runbooks/{}.md", self.name)
    }

    /// The names of the metrics that it uses.
    pub fn metrics(&self) -> Vec<&'static str> {
        metrics_in(self.expression)
    }
}

/// The names of the metrics that a query uses, and labels that begin like one.
pub fn metrics_in(expression: &str) -> Vec<&str> {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let words = expression.split(|it: char| !is_part(it));
    let mut metrics: Vec<_> = words.filter(|word| is_metric(word)).collect();
    metrics.dedup();
    metrics
}

/// No function, label or keyword of Prometheus begins like this.
fn is_metric(word: &str) -> bool {
    ["etcd_", "grpc_", "kubelet_", "process_"].iter().any(|prefix| word.starts_with(prefix))
}
