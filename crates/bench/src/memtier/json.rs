//! A result in memtier_benchmark's JSON (format version 2), for dashboards that read it.
//!
//! As there, latencies are in milliseconds, histograms are HdrHistogram's V2 of microseconds, and
//! booleans are strings.

use anyhow::Result;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::result::{OpResult, RunResult};
use generator::packed;
use generator::spec::{Pace, Protocol, Target};

/// Maximum latency of memtier's histograms, in microseconds.
const MICROS_MAX: u64 = 60_000_000;

/// The percentiles that memtier lists by default.
pub const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.9];

/// Runs in memtier's format: one under `ALL STATS`, several under `RUN #n RESULTS`. `runs` is the
/// requested number.
///
/// # Errors
///
/// When a histogram of a result is damaged.
pub fn of(
    results: &[RunResult],
    runs: usize,
    requests: Option<u64>,
    percentiles: &[f64],
) -> Result<Value> {
    let mut all = Map::new();
    if let Some(first) = results.first() {
        all.insert("configuration".into(), configuration(first, runs));
        let mut information = json!({
            "Threads": first.spec.threads,
            "Connections per thread": first.spec.connections,
            "Format version": 2,
        });
        let (name, much) = match requests {
            Some(requests) => ("Requests per client", json!(requests)),
            None => ("Seconds", json!(first.spec.seconds)),
        };
        information[name] = much;
        all.insert("run information".into(), information);
    }
    for (index, result) in results.iter().enumerate() {
        let name = match results.len() {
            1 => "ALL STATS".to_owned(),
            _ => format!("RUN #{} RESULTS", index + 1),
        };
        all.insert(name, stats(result, percentiles)?);
    }
    Ok(Value::Object(all))
}

fn configuration(result: &RunResult, runs: usize) -> Value {
    let spec = &result.spec;
    let (mut server, mut port, mut socket) = (String::new(), 0, String::new());
    match spec.targets.first() {
        Some(Target::Unix(path)) => socket = path.display().to_string(),
        Some(target) => {
            server = target.to_string();
            port = target.address().map_or(0, |address| address.port());
        }
        None => {}
    }
    let protocol = match spec.protocol {
        Protocol::Resp => "redis",
        Protocol::Binary => "memcache_binary",
        Protocol::Text | Protocol::Meta => "memcache_text",
    };
    let rate = match spec.pace {
        Pace::Closed => 0.0,
        // Its limit applies to a connection.
        #[allow(clippy::cast_precision_loss, reason = "connections of a run")]
        Pace::Open { rate, .. } => rate / (spec.threads * spec.connections) as f64,
    };
    json!({
        "server": server,
        "port": port,
        "unix socket": socket,
        "protocol": protocol,
        "tls": spec.tls.is_some().to_string(),
        "run_count": runs,
        "clients": spec.connections,
        "threads": spec.threads,
        "test_time": if spec.requests > 0 { 0.0 } else { spec.seconds },
        "ratio": spec.ratio.to_string(),
        "pipeline": spec.pipeline,
        "data_size": spec.value_size.to_string(),
        "random_data": "true",
        "expiry_range": format!("{0}-{0}", spec.ttl),
        "data_verify": spec.verify.to_string(),
        "key_prefix": spec.key_prefix,
        "key_minimum": spec.first_key,
        "key_maximum": spec.first_key + spec.keys - 1,
        "key_pattern": spec.pattern.to_string(),
        "multi_key_get": spec.multiget,
        "rate-limiting": rate,
    })
}

fn stats(result: &RunResult, percentiles: &[f64]) -> Result<Value> {
    // The time until the counted requests were answered.
    let total = seconds_ms(result.whole_seconds() - result.spec.warm_up);
    let start = result.started * 1000;
    let series: Map<String, Value> = result
        .series
        .iter()
        .enumerate()
        .map(|(second, one)| {
            // Its schema has only numbers.
            let millis = |latency: Option<f64>| latency.unwrap_or_default() / 1000.0;
            let slice = json!({
                "Count": one.requests,
                "Max Latency": millis(one.max),
                "p50.00": millis(one.p50),
                "p99.00": millis(one.p99),
            });
            (second.to_string(), slice)
        })
        .collect();
    let operation = |op| operation(op, percentiles);
    let mut totals = operation(&result.total)?;
    totals["Time-Serie"] = Value::Object(series);
    Ok(json!({
        "Runtime": {
            "Start time": start,
            "Finish time": start + total,
            "Total duration": total,
            "Time unit": "MILLISECONDS",
            "Interrupted": result.failure.is_some().to_string(),
        },
        "Sets": operation(&result.sets)?,
        "Gets": operation(&result.gets)?,
        "Waits": { "Count": 0, "Ops/sec": 0.0 },
        "Totals": totals,
        "SET": distribution(&result.sets)?,
        "GET": distribution(&result.gets)?,
        "WAIT": [],
    }))
}

fn seconds_ms(seconds: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a run's time")]
    let ms = (seconds * 1000.0) as u64;
    ms
}

fn operation(op: &OpResult, percentiles: &[f64]) -> Result<Value> {
    let latency = &op.latency;
    let each = |count: u64| op.per_second(count);
    #[allow(clippy::cast_precision_loss, reason = "counts of one run")]
    let accumulated = latency.mean / 1000.0 * op.requests as f64;
    let whole = latency.histogram()?;
    let mut listed: Map<String, Value> =
        percentiles.iter().map(|p| (label(*p), json!(millis(&whole, *p)))).collect();
    let packed = packed::encode(&micros(&whole)?).map_err(anyhow::Error::msg)?;
    listed.insert("Histogram log format".into(), json!({ "Compressed Histogram": packed }));
    Ok(json!({
        "Count": op.requests,
        "Ops/sec": op.rate,
        "Hits/sec": each(op.hits),
        "Misses/sec": each(op.misses),
        "Connection Errors": 0,
        "Connection Errors/sec": 0.0,
        "Latency": latency.mean / 1000.0,
        "Average Latency": latency.mean / 1000.0,
        "Accumulated Latency": accumulated,
        "Min Latency": latency.min / 1000.0,
        "Max Latency": latency.max / 1000.0,
        "KB/sec": each(op.sent_bytes + op.received_bytes) / 1024.0,
        "KB/sec RX/TX": each(op.sent_bytes + op.received_bytes) / 1024.0,
        "KB/sec RX": each(op.received_bytes) / 1024.0,
        "KB/sec TX": each(op.sent_bytes) / 1024.0,
        "Time-Serie": {},
        "Percentile Latencies": listed,
    }))
}

/// Converts times in nanoseconds into microseconds, as in memtier.
pub(super) fn micros(nanos: &Histogram<u64>) -> Result<Histogram<u64>> {
    let mut micros = Histogram::<u64>::new_with_bounds(1, MICROS_MAX, 3)?;
    for value in nanos.iter_recorded() {
        micros.saturating_record_n(value.value_iterated_to() / 1000, value.count_at_value());
    }
    Ok(micros)
}

/// A percentile's name, as in p99.90.
pub(crate) fn label(percentile: f64) -> String {
    let short = format!("p{percentile:.2}");
    let long = format!("p{percentile:.3}");
    if long.ends_with('0') { short } else { long }
}

/// The time of a percentile.
pub(crate) fn millis(histogram: &Histogram<u64>, percentile: f64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "times of a run")]
    let nanos = histogram.value_at_percentile(percentile) as f64;
    nanos / 1e6
}

/// The percentage of requests answered within this number of milliseconds.
fn distribution(op: &OpResult) -> Result<Value> {
    let (histogram, mut seen) = (op.latency.histogram()?, 0);
    let mut rows = Vec::new();
    for value in histogram.iter_recorded() {
        seen += value.count_at_value();
        #[allow(clippy::cast_precision_loss, reason = "counts and times of one run")]
        let (ms, percent) =
            (value.value_iterated_to() as f64 / 1e6, seen as f64 * 100.0 / histogram.len() as f64);
        rows.push(json!({ "<=msec": ms, "percent": percent }));
    }
    Ok(Value::Array(rows))
}
