//! Samples as series: in the order of the table, with the labels of their scope.

use std::fmt;

use etcd_operator_core::metrics::{ALL, Kind, Metric, Sample, Scope};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::base_name;

/// Every metric of this scope, for each of these objects: the values of the labels of the scope, and the samples.
pub(super) fn encode<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    scope: Scope,
    objects: &[([String; N], Vec<Sample>)],
) -> fmt::Result {
    for &metric in ALL.iter().filter(|metric| metric.scope == scope) {
        let mut family = descriptor(encoder, metric)?;
        for (of_scope, samples) in objects {
            let of_scope = scope.labels().iter().copied().zip(of_scope.iter().map(String::as_str));
            for sample in samples.iter().filter(|sample| std::ptr::eq(sample.metric, metric)) {
                let own = metric.labels.iter().copied().zip(sample.values);
                let labels: Vec<(&str, &str)> = of_scope.clone().chain(own).collect();
                value(&mut family.encode_family(&labels)?, metric.kind, sample.value)?;
            }
        }
    }
    Ok(())
}

pub(super) fn descriptor<'s>(
    encoder: &'s mut DescriptorEncoder<'_>,
    metric: &'static Metric,
) -> Result<MetricEncoder<'s>, fmt::Error> {
    let kind = match metric.kind {
        Kind::Gauge => MetricType::Gauge,
        Kind::Counter => MetricType::Counter,
        Kind::Histogram => MetricType::Histogram,
    };
    encoder.encode_descriptor(base_name(metric), &format!("{}.", metric.help), None, kind)
}

pub(super) fn value(encoder: &mut MetricEncoder<'_>, kind: Kind, value: f64) -> fmt::Result {
    match kind {
        Kind::Counter => encoder.encode_counter::<NoLabelSet, _, f64>(&value, None),
        Kind::Gauge | Kind::Histogram => encoder.encode_gauge(&value),
    }
}
