//! Metrics in OTLP's form, made from the families of the Prometheus page.
//!
//! Names and labels are the same as there, so the two agree and a collector that writes Prometheus
//! again writes the same names. Counters are cumulative sums that only rise, with the time from
//! which they count; histograms keep their bounds.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use metrics::{Family, Kind, Point, Value};

use crate::message::{
    CUMULATIVE, Data, Gauge, Histogram, HistogramDataPoint, KeyValue, Metric, Number,
    NumberDataPoint, Sum,
};

/// Records the start time of each sum. A sum that has fallen (`stats reset`) gets a new one.
#[derive(Debug)]
pub(crate) struct Numbers {
    began_ns: u64,
    /// The time of the last conversion.
    last_ns: u64,
    /// By a hash of name and labels: the last value, and the time from which it counts.
    sums: HashMap<u64, (f64, u64)>,
    hasher: RandomState,
}

impl Numbers {
    /// For a process that started to count at `began_ns`, in nanoseconds since 1970.
    pub(crate) fn new(began_ns: u64) -> Self {
        Self { began_ns, last_ns: began_ns, sums: HashMap::new(), hasher: RandomState::new() }
    }

    /// The families of this moment.
    pub(crate) fn convert(&mut self, families: Vec<Family>, now_ns: u64) -> Vec<Metric> {
        let before = std::mem::take(&mut self.sums);
        let metrics = families
            .into_iter()
            .filter(|family| !family.points.is_empty())
            .map(|family| self.metric(family, &before, now_ns))
            .collect();
        self.last_ns = now_ns;
        metrics
    }

    fn metric(&mut self, family: Family, before: &HashMap<u64, (f64, u64)>, now_ns: u64) -> Metric {
        let Family { name, kind, help, points } = family;
        let unit = unit(&name).to_owned();
        let mut since = |point: &Point, value: f64| {
            let series = self.hasher.hash_one((&name, &point.labels));
            let since = match before.get(&series) {
                Some((last, _)) if value < *last => self.last_ns,
                Some((_, since)) => *since,
                None => self.began_ns,
            };
            self.sums.insert(series, (value, since));
            since
        };
        let data = match kind {
            Kind::Histogram => Data::Histogram(Histogram {
                data_points: points
                    .into_iter()
                    .filter_map(|point| {
                        let count = histogram_count(&point)?;
                        let since_ns = since(&point, count);
                        histogram(point, since_ns, now_ns)
                    })
                    .collect(),
                aggregation_temporality: CUMULATIVE,
            }),
            Kind::Counter => Data::Sum(Sum {
                data_points: points
                    .into_iter()
                    .filter_map(|point| {
                        let value = number(&point)?;
                        let since_ns = since(&point, as_double(value));
                        Some(data_point(point, value, since_ns, now_ns))
                    })
                    .collect(),
                aggregation_temporality: CUMULATIVE,
                is_monotonic: true,
            }),
            Kind::Gauge | Kind::FallingCounter => Data::Gauge(Gauge {
                data_points: points
                    .into_iter()
                    .filter_map(|point| {
                        let value = number(&point)?;
                        Some(data_point(point, value, 0, now_ns))
                    })
                    .collect(),
            }),
        };
        Metric { name, description: help, unit, data: Some(data) }
    }
}

/// The unit at the end of a name, in UCUM's form.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        Some("ratio") => "1",
        _ => "",
    }
}

fn attributes(labels: Vec<(String, String)>) -> Vec<KeyValue> {
    labels.into_iter().map(|(name, value)| KeyValue::text(name, value)).collect()
}

/// The number of a point; `None` if it is not a number.
fn number(point: &Point) -> Option<Number> {
    let Value::Number(text) = &point.value else { return None };
    let whole = text.parse().map(Number::Int);
    whole.or_else(|_| text.parse().map(Number::Double)).ok()
}

#[expect(clippy::cast_precision_loss, reason = "only compared with an earlier value")]
fn as_double(number: Number) -> f64 {
    match number {
        Number::Double(value) => value,
        Number::Int(value) => value as f64,
    }
}

fn data_point(point: Point, value: Number, since_ns: u64, now_ns: u64) -> NumberDataPoint {
    NumberDataPoint {
        start_time_unix_nano: since_ns,
        time_unix_nano: now_ns,
        value: Some(value),
        attributes: attributes(point.labels),
    }
}

#[expect(clippy::cast_precision_loss, reason = "only compared with an earlier value")]
fn histogram_count(point: &Point) -> Option<f64> {
    match point.value {
        Value::Histogram { count, .. } => Some(count as f64),
        Value::Number(_) => None,
    }
}

/// The count of each bucket separately, the last for values above every bound.
fn histogram(point: Point, since_ns: u64, now_ns: u64) -> Option<HistogramDataPoint> {
    let Value::Histogram { buckets, sum, count, .. } = point.value else { return None };
    let up_to = buckets.iter().map(|(_, up_to)| *up_to).chain([count]);
    let bucket_counts = up_to
        .scan(0u64, |below, up_to| {
            let own = up_to.saturating_sub(*below);
            *below = up_to.max(*below);
            Some(own)
        })
        .collect();
    Some(HistogramDataPoint {
        start_time_unix_nano: since_ns,
        time_unix_nano: now_ns,
        count,
        sum: Some(sum),
        bucket_counts,
        explicit_bounds: buckets.iter().map(|(bound, _)| *bound).collect(),
        attributes: attributes(point.labels),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::Page;

    fn page(hits: u64) -> Vec<Family> {
        let mut page = Page::new("holdall_");
        page.family("hits_total", Kind::Counter, "Hits.");
        page.sample("hits_total", &[("pool", "a")], hits);
        page.single("cpu_seconds_total", Kind::Counter, "Time.", "1.25");
        page.single("used_bytes", Kind::Gauge, "Memory.", 7);
        page.family("nothing", Kind::Gauge, "No value.");
        page.family("took_seconds", Kind::Histogram, "Times.");
        page.histogram("took_seconds", &[], [(0.1, 2), (1.0, 5)], [], 4.5, hits);
        page.into_families()
    }

    #[test]
    fn each_metric_kind_is_converted() {
        let metrics = Numbers::new(100).convert(page(9), 200);
        let names: Vec<(&str, &str)> =
            metrics.iter().map(|metric| (&*metric.name, &*metric.unit)).collect();
        let expected = [
            ("holdall_hits_total", ""),
            ("holdall_cpu_seconds_total", "s"),
            ("holdall_used_bytes", "By"),
            ("holdall_took_seconds", "s"),
        ];
        assert_eq!(names, expected);
        let Some(Data::Sum(hits)) = &metrics[0].data else { panic!("{metrics:?}") };
        assert!(hits.is_monotonic && hits.aggregation_temporality == CUMULATIVE);
        let point = &hits.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (100, 200));
        assert_eq!(point.value, Some(Number::Int(9)));
        assert_eq!(point.attributes, [KeyValue::text("pool", "a")]);
        let Some(Data::Sum(cpu)) = &metrics[1].data else { panic!("{metrics:?}") };
        assert_eq!(cpu.data_points[0].value, Some(Number::Double(1.25)));
        let Some(Data::Gauge(used)) = &metrics[2].data else { panic!("{metrics:?}") };
        assert_eq!(used.data_points[0].value, Some(Number::Int(7)));
        let Some(Data::Histogram(took)) = &metrics[3].data else { panic!("{metrics:?}") };
        let point = &took.data_points[0];
        assert_eq!((&point.bucket_counts[..], point.count), (&[2, 3, 4][..], 9));
        assert_eq!((&point.explicit_bounds[..], point.sum), (&[0.1, 1.0][..], Some(4.5)));
    }

    #[test]
    fn a_decreased_sum_gets_a_new_start_time() {
        let mut numbers = Numbers::new(100);
        let mut since = |hits, now_ns| {
            let metrics = numbers.convert(page(hits), now_ns);
            let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("{metrics:?}") };
            let Some(Data::Histogram(took)) = &metrics[3].data else { panic!("{metrics:?}") };
            let times = took.data_points[0].start_time_unix_nano;
            assert_eq!(times, sum.data_points[0].start_time_unix_nano);
            times
        };
        assert_eq!(since(9, 200), 100);
        assert_eq!(since(10, 300), 100);
        assert_eq!(since(6, 400), 300, "it was set back after the last export");
        assert_eq!(since(6, 500), 300);
        assert_eq!(since(5, 600), 500);
    }
}
