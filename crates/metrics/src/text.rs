//! Prometheus's text format, version 0.0.4, as the library `prometheus` writes it.

use std::fmt::Write as _;

use prometheus::TextEncoder;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};

use crate::family::{Family, Kind, Point, Value};

/// Writes all of `families`, and frees each: they take more memory than the text.
pub(crate) fn write(families: Vec<Family>) -> String {
    let mut text = String::new();
    for family in families {
        // Writing into a string does not fail, and the library refuses only families without
        // points: those are declared here, so that their names can be looked up.
        if family.points.is_empty() {
            let Family { name, help, kind, .. } = family;
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", word(kind));
        } else {
            let _ = TextEncoder.encode_utf8(&[message(&family)], &mut text);
        }
    }
    text
}

const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter | Kind::FallingCounter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}

fn message(family: &Family) -> MetricFamily {
    let kind = match family.kind {
        Kind::Counter | Kind::FallingCounter => MetricType::COUNTER,
        Kind::Gauge => MetricType::GAUGE,
        Kind::Histogram => MetricType::HISTOGRAM,
    };
    let mut message = MetricFamily::default();
    message.set_name(family.name.clone());
    message.set_help(family.help.clone());
    message.set_field_type(kind);
    message.set_metric(family.points.iter().map(|point| metric(family.kind, point)).collect());
    message
}

fn metric(kind: Kind, point: &Point) -> Metric {
    let mut metric = Metric::from_label(point.labels.iter().map(label).collect());
    match &point.value {
        Value::Number(text) => {
            let number = text.parse().unwrap_or(f64::NAN);
            if matches!(kind, Kind::Counter | Kind::FallingCounter) {
                let mut counter = Counter::default();
                counter.set_value(number);
                metric.set_counter(counter);
            } else {
                let mut gauge = Gauge::default();
                gauge.set_value(number);
                metric.set_gauge(gauge);
            }
        }
        Value::Histogram { buckets, sum, count, .. } => {
            let mut histogram = Histogram::default();
            histogram.set_bucket(buckets.iter().map(bucket).collect());
            histogram.set_sample_sum(*sum);
            histogram.set_sample_count(*count);
            metric.set_histogram(histogram);
        }
    }
    metric
}

fn label((name, value): &(String, String)) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.clone());
    label.set_value(value.clone());
    label
}

fn bucket(&(bound, up_to): &(f64, u64)) -> Bucket {
    let mut bucket = Bucket::default();
    bucket.set_upper_bound(bound);
    bucket.set_cumulative_count(up_to);
    bucket
}
