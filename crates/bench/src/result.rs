//! The stored result of a run: JSON with a separate schema, including histograms, so that results
//! can be merged and compared exactly.
//!
//! Histograms are HdrHistogram's V2 format with deflate in base64, which other tools read.

use anyhow::{Context, Error, Result, anyhow, ensure};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::agents::AgentResult;
use crate::host::{CpuTimes, Host};
use crate::sampler::CpuSeries;
use crate::sla::Violations;
use generator::record::OpRecord;
use generator::spec::{Pace, Spec};
use generator::{Outcome, packed};

mod run_doubts;

/// The schema named in the file.
pub const SCHEMA: &str = "holdall-bench-run";

/// Increases when a field changes its meaning or is removed.
pub const SCHEMA_VERSION: u32 = 1;

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`SCHEMA_VERSION`].
    pub version: u32,
    /// Its start, in seconds since 1970.
    pub started: u64,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The specification of the run.
    pub spec: Spec,
    /// The machine of the generator.
    pub host: Host,
    /// The versions reported by the servers, each with its address.
    #[serde(default)]
    pub server_versions: Vec<(String, String)>,
    /// Measured seconds.
    pub seconds: f64,
    /// Seconds from the start of the warm-up to the last reply, if known: an open loop continues
    /// after the measurement until its due requests are answered.
    #[serde(default)]
    pub elapsed: Option<f64>,
    /// The reason why the run ended early, if it did: the figures cover the time before.
    pub failure: Option<String>,
    /// The open loop gave up because too many requests waited for a free connection.
    pub overloaded: bool,
    /// Requests of all kinds.
    pub total: OpResult,
    /// Gets.
    pub gets: OpResult,
    /// Sets.
    pub sets: OpResult,
    /// Requests without a reply at the end; in an open loop, those due in the measurement.
    pub unanswered: u64,
    /// Values that differ from the stored ones (`--verify`).
    pub wrong: u64,
    /// UDP requests whose reply did not come within a quarter of a second.
    #[serde(default)]
    pub lost: u64,
    /// Reconnects (`--reconnect`).
    #[serde(default)]
    pub connects: u64,
    /// The seconds in which a bound broke, if one was given.
    #[serde(default)]
    pub violations: Option<Violations>,
    /// The measurement, second by second.
    pub series: Vec<SecondResult>,
    /// CPU time of the generator's machine during the run, in clock ticks.
    pub cpu: Option<CpuTimes>,
    /// CPU time second by second, by processor and by thread.
    #[serde(default)]
    pub cpu_series: Option<CpuSeries>,
    /// The health of the generator.
    pub generator: GeneratorResult,
    /// The generator hosts, if there were several.
    #[serde(default)]
    pub agents: Vec<AgentResult>,
}

/// Requests of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpResult {
    /// Answered requests; in an open loop, those due in the measurement, whenever they were
    /// answered.
    pub requests: u64,
    /// Requests answered in the measurement, per second.
    pub rate: f64,
    /// Keys in them.
    pub keys: u64,
    /// Keys found.
    pub hits: u64,
    /// Keys requested and not found.
    pub misses: u64,
    /// Requests refused by the server.
    pub refused: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// From the intended sending time to the end of the reply.
    pub latency: Latency,
    /// From the actual sending time; in the closed loop, the same.
    pub service: Latency,
}

/// A distribution of times. Microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Percentiles and their times.
    pub percentiles: Vec<(f64, f64)>,
    /// The whole distribution, in nanoseconds: HdrHistogram V2, deflated, base64.
    pub histogram: String,
}

/// One second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SecondResult {
    /// Requests answered in it.
    pub requests: u64,
    /// Median latency, in microseconds: of those requests, or in an open loop of those due in it;
    /// `None` if there is none.
    #[serde(deserialize_with = "positive")]
    pub p50: Option<f64>,
    /// 99th percentile, in microseconds.
    #[serde(deserialize_with = "positive")]
    pub p99: Option<f64>,
    /// Maximum, in microseconds.
    #[serde(deserialize_with = "positive")]
    pub max: Option<f64>,
}

/// Older results have a latency of 0 for a second without answers.
fn positive<'de, D: serde::Deserializer<'de>>(number: D) -> Result<Option<f64>, D::Error> {
    Ok(Option::<f64>::deserialize(number)?.filter(|number| *number > 0.0))
}

/// The health of the generator.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GeneratorResult {
    /// Share of its time that the busiest thread was on a processor.
    pub busiest_thread: f64,
    /// Open loop: 99th percentile of how late requests were sent although a connection was free
    /// when they were due, in microseconds.
    pub lag_p99: f64,
}

/// The percentiles in a result; 99.73 is the guide's three sigma.
pub const PERCENTILES: [f64; 10] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.73, 99.9, 99.99, 99.999];

impl RunResult {
    /// The result of a run's outcome.
    ///
    /// # Errors
    ///
    /// When a histogram cannot be written, which does not occur.
    pub fn new(
        spec: &Spec,
        outcome: &Outcome,
        cpu: (Option<CpuTimes>, Option<CpuSeries>),
        started: u64,
    ) -> Result<Self> {
        let record = &outcome.record;
        let is_open = spec.pace != Pace::Closed;
        let misses = record.gets.keys.saturating_sub(record.gets.hits + record.gets.refused);
        let op = |op: &OpRecord, misses| OpResult::new(op, misses, outcome.seconds, is_open);
        let second = |second: &generator::record::Second| {
            let answered = Some(&second.latency).filter(|latency| !latency.is_empty());
            let at = |percentile| {
                answered.map(|latency| micros(latency.value_at_percentile(percentile)))
            };
            SecondResult {
                requests: second.requests,
                p50: at(50.0),
                p99: at(99.0),
                max: answered.map(|latency| micros(latency.max())),
            }
        };
        Ok(Self {
            schema: SCHEMA.to_owned(),
            version: SCHEMA_VERSION,
            started,
            command: std::env::args().collect(),
            spec: spec.clone(),
            host: Host::here(),
            server_versions: Vec::new(),
            seconds: outcome.seconds,
            elapsed: Some(outcome.elapsed),
            failure: outcome.failure.clone(),
            overloaded: outcome.is_overloaded,
            total: op(&record.total(), misses)?,
            gets: op(&record.gets, misses)?,
            sets: op(&record.sets, 0)?,
            unanswered: record.unanswered,
            wrong: record.wrong,
            lost: record.lost,
            connects: record.connects,
            violations: None,
            series: record.seconds.iter().map(second).collect(),
            cpu: cpu.0,
            cpu_series: cpu.1,
            generator: GeneratorResult {
                busiest_thread: outcome.busiest,
                lag_p99: micros(record.lag.value_at_percentile(99.0)),
            },
            agents: Vec::new(),
        })
    }

    /// Reads a result file.
    ///
    /// # Errors
    ///
    /// When it is not JSON, or of another schema or version.
    pub fn read(json: &str) -> Result<Self> {
        let value: serde_json::Value = serde_json::from_str(json).context("this is no JSON")?;
        ensure!(value["schema"] == SCHEMA, "this is no result of holdall bench run");
        ensure!(
            value["version"] == SCHEMA_VERSION,
            "the result has version {}, this program reads {SCHEMA_VERSION}",
            value["version"]
        );
        Ok(serde_json::from_value(value)?)
    }

    /// Share of the requested keys that were found, in percent; `None` without gets.
    #[must_use]
    pub fn hit_percent(&self) -> Option<f64> {
        self.gets.hit_percent()
    }
}

/// Minimum length of a run with shares of time and rates per second: a tick of the kernel's clock.
const SECONDS_MIN: f64 = 0.01;

impl RunResult {
    /// Seconds from the start of the warm-up to the last reply; older results lack the time of the
    /// last replies.
    #[must_use]
    pub fn whole_seconds(&self) -> f64 {
        self.elapsed.unwrap_or(self.seconds + self.spec.warm_up)
    }

    /// Context switches of the machine per second, including the warm-up; `None` if the kernel does
    /// not report them, or the run ended at once.
    #[must_use]
    pub fn switches_rate(&self) -> Option<f64> {
        let cpu = self.cpu.filter(|_| self.seconds >= SECONDS_MIN)?;
        #[allow(clippy::cast_precision_loss, reason = "counts of one run")]
        Some(cpu.switches as f64 / self.whole_seconds())
    }

    /// The seconds measured in full: the last may be partial.
    pub(crate) fn whole_series(&self) -> &[SecondResult] {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "seconds of a run"
        )]
        let whole = self.seconds as usize;
        &self.series[..whole.min(self.series.len())]
    }
}

impl OpResult {
    fn new(op: &OpRecord, misses: u64, seconds: f64, is_open: bool) -> Result<Self> {
        #[allow(clippy::cast_precision_loss, reason = "counts of one run")]
        let rate = op.in_time as f64 / seconds.max(1e-9);
        Ok(Self {
            requests: op.requests,
            rate,
            keys: op.keys,
            hits: op.hits,
            misses,
            refused: op.refused,
            sent_bytes: op.sent_bytes,
            received_bytes: op.received_bytes,
            latency: Latency::of(&op.latency)?,
            service: Latency::of(if is_open { &op.service } else { &op.latency })?,
        })
    }
}

impl OpResult {
    /// A count of the answered requests, per second: each request has the average share.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "counts of one run")]
        let each = count as f64 / self.requests.max(1) as f64;
        each * self.rate
    }

    /// Share of the requested keys that were found, in percent; `None` if none was requested.
    #[must_use]
    pub fn hit_percent(&self) -> Option<f64> {
        let asked = self.hits + self.misses;
        #[allow(clippy::cast_precision_loss, reason = "counts of one run")]
        (asked > 0).then(|| self.hits as f64 * 100.0 / asked as f64)
    }

    /// The same as shown in a table.
    pub(crate) fn hits_shown(&self) -> String {
        self.hit_percent().map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1} %"))
    }
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Result<Self> {
        let at =
            |percentile: &f64| (*percentile, micros(histogram.value_at_percentile(*percentile)));
        Ok(Self {
            mean: histogram.mean() / 1000.0,
            min: micros(histogram.min()),
            max: micros(histogram.max()),
            percentiles: PERCENTILES.iter().map(at).collect(),
            histogram: packed::encode(histogram).map_err(Error::msg)?,
        })
    }

    /// The time of one of [`PERCENTILES`], in microseconds; 0 for another.
    #[must_use]
    pub fn percentile(&self, percentile: f64) -> f64 {
        let listed = self.percentiles.iter();
        listed.copied().find(|(p, _)| (p - percentile).abs() < 1e-9).map_or(0.0, |(_, time)| time)
    }

    /// The whole distribution, in nanoseconds.
    ///
    /// # Errors
    ///
    /// When the file is damaged.
    pub fn histogram(&self) -> Result<Histogram<u64>> {
        packed::decode(&self.histogram).map_err(|error| anyhow!("a histogram is damaged: {error}"))
    }
}

/// Nanoseconds in microseconds.
fn micros(nanos: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "times of a run")]
    let micros = nanos as f64 / 1000.0;
    micros
}

#[cfg(test)]
mod tests {
    use super::run_doubts::tests::result;
    use super::*;

    #[test]
    fn an_empty_run_has_no_context_switch_rate() {
        let cpu = Some(CpuTimes { switches: 240, ..CpuTimes::default() });
        let mut result = RunResult { cpu, ..result(1_000_000) };
        result.spec.warm_up = 1.0;
        // A result without its total time, and one whose last replies took four seconds.
        result.elapsed = None;
        assert_eq!(result.switches_rate(), Some(120.0));
        result.elapsed = Some(6.0);
        assert_eq!(result.switches_rate(), Some(40.0));
        result.seconds = 0.0;
        assert_eq!(result.switches_rate(), None);
        assert!(!result.doubts().iter().any(|doubt| doubt.contains("for a processor")));
    }

    #[test]
    fn points_without_a_figure_are_not_drawn() {
        let point = |at, requests, failure: Option<&str>| {
            let mut result = result(0);
            result.total.requests = requests;
            result.failure = failure.map(str::to_owned);
            crate::sweep::Point { at, result, repeats: Vec::new(), threads: Vec::new() }
        };
        let sweep = crate::sweep::SweepResult {
            schema: String::new(),
            version: 0,
            command: Vec::new(),
            server: None,
            host: Host::here(),
            over: crate::sweep::Over::Connections,
            pinned: false,
            points: vec![point(1.0, 0, None), point(2.0, 5, None), point(3.0, 5, Some("cut"))],
            knee: None,
            failure: None,
        };
        assert_eq!(sweep.drawn().map(|point| point.at).collect::<Vec<_>>(), [2.0]);
    }
}
