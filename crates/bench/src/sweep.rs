//! One load after another with one variable: the study's figures.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::doubts::by_point;
use crate::host::Host;
use crate::result::{OpResult, RunResult};
use crate::thread_use::{ThreadUse, thread_use};
use generator::parse_error::ParseError;
use generator::spec::Spec;

/// The schema named in the file.
pub const SCHEMA: &str = "holdall-bench-sweep";

/// Increases when a field changes its meaning or is removed.
pub const SCHEMA_VERSION: u32 = 1;

/// The variable that changes from point to point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// Connections of each generator thread.
    Connections,
    /// Requests in flight on a connection.
    Pipeline,
    /// Bytes of values.
    ValueSize,
    /// Requests a second of an open loop.
    Rate,
    /// Worker threads of the server: `{threads}` of --start.
    Threads,
    /// Servers, each a process of its own: the keys and the connections are divided among them.
    Processes,
    /// Requests that the server serves of a connection before it turns to the next: `{group}` of
    /// --start, memcached's -R.
    Group,
    /// 1: each thread of the server is bound to a processor, in turn; 0: none is.
    Pinned,
}

/// A stored sweep.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SweepResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`SCHEMA_VERSION`].
    pub version: u32,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The command of the server, if the sweep started it.
    pub server: Option<String>,
    /// The machine it ran on.
    pub host: Host,
    /// The variable.
    pub over: Over,
    /// Each thread of the server was bound to a processor.
    #[serde(default)]
    pub pinned: bool,
    /// The points, in their order.
    pub points: Vec<Point>,
    /// The point beyond which more brings little, as an index in `points`.
    pub knee: Option<usize>,
    /// The reason why the sweep ended early, if it did.
    #[serde(default)]
    pub failure: Option<String>,
}

/// One point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// The value of the variable.
    pub at: f64,
    /// The measurement; of several, the one with the median rate.
    pub result: RunResult,
    /// All measurements in order, if there were several.
    #[serde(default)]
    pub repeats: Vec<Repeat>,
    /// The CPU time of the server's threads, if the sweep started it.
    pub threads: Vec<ThreadUse>,
}

/// One measurement of a point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    /// Requests answered per second.
    pub rate: f64,
    /// Mean latency in microseconds.
    pub mean: f64,
    /// 99th percentile in microseconds.
    pub p99: f64,
}

impl Repeat {
    /// The figures of a measurement.
    #[must_use]
    pub fn of(result: &RunResult) -> Self {
        let OpResult { rate, latency, .. } = &result.total;
        Self { rate: *rate, mean: latency.mean, p99: latency.percentile(99.0) }
    }
}

impl SweepResult {
    /// Reasons to doubt the figures, in plain words: points of one sweep often share them, so each
    /// names its points.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let early = self.failure.iter().map(|why| format!("the sweep ended early: {why}"));
        let points = self.points.iter().map(|point| (point.at.to_string(), point.result.doubts()));
        early.chain(by_point(self.over.label(), points)).collect()
    }
}

impl Point {
    /// The minimum and the maximum of the repeats, if there are several.
    #[must_use]
    pub fn range(&self, pick: fn(&Repeat) -> f64) -> Option<(f64, f64)> {
        let values = || self.repeats.iter().map(pick);
        let least = values().reduce(f64::min)?;
        (self.repeats.len() > 1).then(|| (least, values().fold(least, f64::max)))
    }
}

impl Over {
    /// Changes the load, but not the server's settings.
    pub fn apply(self, at: f64, spec: &mut Spec) {
        use generator::sizes::ValueSize;
        use generator::spec::{Arrival, Pace};
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        let whole = at as usize;
        match self {
            Self::Connections => spec.connections = whole,
            Self::Pipeline => spec.pipeline = whole,
            Self::ValueSize => spec.value_size = ValueSize::Fixed(whole),
            Self::Rate => {
                let arrival = match spec.pace {
                    Pace::Open { arrival, .. } => arrival,
                    Pace::Closed => Arrival::default(),
                };
                spec.pace = Pace::Open { rate: at, arrival };
            }
            // The total number of connections is the same for any number of servers.
            Self::Processes => spec.connections = (spec.connections / whole.max(1)).max(1),
            Self::Threads | Self::Group | Self::Pinned => {}
        }
    }

    /// True if the server changes.
    #[must_use]
    pub fn is_of_server(self) -> bool {
        matches!(self, Self::Threads | Self::Processes | Self::Group | Self::Pinned)
    }

    /// The label of an axis.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Connections => "connections of each generator thread",
            Self::Pipeline => "requests in flight on a connection",
            Self::ValueSize => "bytes of values",
            Self::Rate => "requests due a second",
            Self::Threads => "server threads",
            Self::Processes => "server processes",
            Self::Group => "requests per turn (-R)",
            Self::Pinned => "threads pinned",
        }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl SweepResult {
    /// The points that may be drawn: a point that was cut off or had no answer has no throughput
    /// and no latency, and would look like the best.
    pub fn drawn(&self) -> impl Iterator<Item = &Point> {
        self.points
            .iter()
            .filter(|point| point.result.failure.is_none() && point.result.total.requests > 0)
    }

    /// Reads a sweep's file.
    ///
    /// # Errors
    ///
    /// When it is of another schema or version.
    pub fn read(json: &str) -> Result<Self> {
        let value: serde_json::Value = serde_json::from_str(json).context("this is no JSON")?;
        if value["schema"] != SCHEMA || value["version"] != SCHEMA_VERSION {
            bail!("this is no result of holdall bench sweep, version {SCHEMA_VERSION}");
        }
        Ok(serde_json::from_value(value)?)
    }
}

/// The points of a sweep: numbers with commas, each greater than the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct Points(pub Vec<f64>);

impl FromStr for Points {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refused =
            || ParseError::form(text, "a list of numbers with commas, each above the last");
        let parse = |number: &str| match number.trim().parse::<f64>() {
            Ok(number) if (0.0..=1e9).contains(&number) => Ok(number),
            _ => Err(refused()),
        };
        let points = text.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
        if points.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(refused());
        }
        Ok(Self(points))
    }
}

/// The point of a rising curve that lies farthest above the straight line from its first point to
/// its highest: beyond it, more brings little. `None` for a curve of fewer than three points, or a
/// nearly straight one.
#[must_use]
pub fn knee(curve: &[(f64, f64)]) -> Option<usize> {
    let top = (0..curve.len()).max_by(|a, b| curve[*a].1.total_cmp(&curve[*b].1))?;
    let ((x0, y0), (x1, y1)) = (*curve.first()?, curve[top]);
    if top < 2 || y1 <= y0 || x1 <= x0 {
        return None;
    }
    let above = |(x, y): (f64, f64)| (y - y0) / (y1 - y0) - (x - x0) / (x1 - x0);
    let best = (0..=top).max_by(|a, b| above(curve[*a]).total_cmp(&above(curve[*b])))?;
    (above(curve[best]) > 0.05).then_some(best)
}

/// Binds each thread of a process to one processor, in turn.
///
/// # Errors
///
/// When the process is gone or the system refuses.
pub fn pin_threads(pid: u32) -> Result<()> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for (index, thread) in thread_use(pid)?.iter().enumerate() {
        let mut set = CpuSet::new();
        set.set(index % cpus);
        let tid = i32::try_from(thread.tid).ok().and_then(Pid::from_raw);
        sched_setaffinity(tid, &set).with_context(|| format!("pinning thread {}", thread.tid))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_must_be_increasing() {
        assert_eq!("1,2, 4".parse(), Ok(Points(vec![1.0, 2.0, 4.0])));
        for wrong in ["", "2,1", "1,1", "a", "-1", "1,,2"] {
            assert!(wrong.parse::<Points>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_knee_is_where_the_curve_bends() {
        let bent = [(1.0, 10.0), (2.0, 20.0), (4.0, 39.0), (8.0, 45.0), (16.0, 47.0), (32.0, 46.0)];
        assert_eq!(knee(&bent), Some(2));
        let straight = [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0)];
        assert_eq!(knee(&straight), None);
        let falling = [(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)];
        assert_eq!(knee(&falling), None);
        assert_eq!(knee(&[]), None);
    }
}
