//! Prometheus's messages (`io.prometheus.client.MetricFamily`, each after its length), which have
//! native histograms in addition to the classic ones.
//!
//! Source: `io/prometheus/client/metrics.proto` of prometheus/client_model.

use prost::Message;

use crate::family::{Family, Kind, Point, Value};

/// Buckets per doubling are two to the power of this: neighbours differ by 9 percent.
const SCHEMA: i32 = 3;

/// Smaller values count as zero: Prometheus's own choice, two to the power of -128.
const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(message, repeated, tag = "4")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, tag = "3")]
    counter: Option<Number>,
    #[prost(message, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(double, tag = "1")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "2")]
    sum: f64,
    #[prost(message, repeated, tag = "3")]
    buckets: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(message, repeated, tag = "12")]
    spans: Vec<Span>,
    /// Each bucket's count minus that of the one before.
    #[prost(sint64, repeated, tag = "13")]
    deltas: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    up_to: u64,
    #[prost(double, tag = "2")]
    bound: f64,
}

/// Buckets that follow each other.
#[derive(Clone, PartialEq, Message)]
struct Span {
    /// For the first span the place of its first bucket; for others the number of omitted buckets.
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

/// Writes all families that have points, and frees each.
pub(crate) fn write(families: Vec<Family>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for family in families.into_iter().filter(|family| !family.points.is_empty()) {
        let kind = match family.kind {
            Kind::Counter | Kind::FallingCounter => 0,
            Kind::Gauge => 1,
            Kind::Histogram => 4,
        };
        let metrics = family.points.iter().map(|point| metric(family.kind, point)).collect();
        let Family { name, help, .. } = family;
        let message = MetricFamily { name, help, kind, metrics };
        // A vector grows, so this cannot fail.
        let _ = message.encode_length_delimited(&mut bytes);
    }
    bytes
}

fn metric(kind: Kind, point: &Point) -> Metric {
    let label =
        |(name, value): &(String, String)| Label { name: name.clone(), value: value.clone() };
    let mut metric =
        Metric { labels: point.labels.iter().map(label).collect(), ..Metric::default() };
    match &point.value {
        Value::Number(text) => {
            let number = Some(Number { value: text.parse().unwrap_or(f64::NAN) });
            match kind {
                Kind::Counter | Kind::FallingCounter => metric.counter = number,
                Kind::Gauge | Kind::Histogram => metric.gauge = number,
            }
        }
        Value::Histogram { buckets, cells, sum, count } => {
            let bucket = |(bound, up_to): &(f64, u64)| Bucket { up_to: *up_to, bound: *bound };
            let (spans, deltas) = native(cells);
            metric.histogram = Some(Histogram {
                count: *count,
                sum: *sum,
                buckets: buckets.iter().map(bucket).collect(),
                schema: SCHEMA,
                zero_threshold: ZERO_THRESHOLD,
                spans,
                deltas,
            });
        }
    }
    metric
}

/// The native buckets of these cells.
fn native(cells: &[(f64, u64)]) -> (Vec<Span>, Vec<i64>) {
    let (mut spans, mut deltas): (Vec<Span>, Vec<i64>) = (Vec::new(), Vec::new());
    // The bucket after the last one, and the last one's count.
    let (mut next, mut before) = (0, 0);
    for (end, count) in cells {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        let place = place(*end);
        if let (Some(delta), true) = (deltas.last_mut(), place < next) {
            *delta += count;
            before += count;
            continue;
        }
        match spans.last_mut() {
            Some(span) if place == next => span.length += 1,
            _ => spans.push(Span { offset: place - next, length: 1 }),
        }
        deltas.push(count - before);
        (next, before) = (place + 1, count);
    }
    (spans, deltas)
}

/// The bucket of this value; bucket 0 ends at 1.
#[expect(clippy::cast_possible_truncation, reason = "a logarithm of a double is small")]
fn place(value: f64) -> i32 {
    // A bucket includes its end, regardless of the logarithm's rounding.
    (value.log2() * f64::from(1 << SCHEMA) - 1e-9).ceil() as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Page;

    #[test]
    fn metric_families_round_trip_through_protobuf() {
        let mut page = Page::new("a_");
        page.family("none", Kind::Gauge, "Nothing here.");
        page.family("up", Kind::Gauge, "Up.");
        page.sample("up", &[("server", "x")], 1.5);
        page.single("seen_total", Kind::Counter, "Seen.", 7);
        page.sample("plain", &[], "odd");
        page.family("t", Kind::Histogram, "Times.");
        page.histogram("t", &[], [(1.0, 2)], [(0.5, 1), (1.0, 1), (4.0, 3)], 9.0, 5);
        let bytes = page.into_messages();
        let mut rest = &bytes[..];
        let mut families = Vec::new();
        while !rest.is_empty() {
            families.push(MetricFamily::decode_length_delimited(&mut rest).unwrap());
        }
        let names: Vec<_> = families.iter().map(|one| (one.name.as_str(), one.kind)).collect();
        assert_eq!(names, [("a_up", 1), ("a_seen_total", 0), ("a_plain", 1), ("a_t", 4)]);
        let first = |at: usize| families[at].metrics[0].clone();
        assert_eq!(first(0).labels, [Label { name: "server".to_owned(), value: "x".to_owned() }]);
        assert_eq!(
            (first(0).gauge, first(1).counter.unwrap().value),
            (Some(Number { value: 1.5 }), 7.0)
        );
        assert!(first(2).gauge.unwrap().value.is_nan());
        let times = first(3).histogram.unwrap();
        assert_eq!((times.count, times.sum, times.schema), (5, 9.0, 3));
        assert_eq!(times.buckets, [Bucket { up_to: 2, bound: 1.0 }]);
        // Buckets -8, 0 and 16 have 1, 1 and 3.
        let span = |offset| Span { offset, length: 1 };
        assert_eq!(times.spans, [span(-8), span(7), span(15)]);
        assert_eq!(times.deltas, [1, 0, 2]);
    }

    #[test]
    fn equal_buckets_are_summed_and_adjacent_ones_share_a_span() {
        let (spans, deltas) = native(&[(1.0, 2), (1.05, 3), (1.06, 4), (1.15, 1)]);
        assert_eq!((spans, deltas), (vec![Span { offset: 0, length: 3 }], vec![2, 5, -6]));
        assert_eq!(
            [place(1.0), place(2.0), place(2.0_f64.powi(-30)), place(3.0)],
            [0, 8, -240, 13]
        );
    }
}
