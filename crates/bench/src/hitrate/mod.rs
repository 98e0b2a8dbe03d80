//! Measures misses of a cache: replays traces and synthetic workloads look-aside (get; if it is
//! missing, set) against real servers of several memory sizes, compared with the minimum for any
//! cache of that size.
//!
//! ```text
//!     trace file or synthetic -> requests -> replay (each server, each size) -> misses -> curves
//!                                        \-> spool -> next uses -> Belady's bound -/
//! ```
//!
//! A trace is read again for each point, request by request, so it may be larger than memory.

pub mod belady;
mod belady_sizes;
mod future;
pub mod policies;
pub mod presets;
pub mod replay;
pub mod servers;
pub mod synthetic;
pub mod trace;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::host::Host;
use presets::Preset;
use synthetic::Synthetic;
use trace::{Format, Request, Requests};

/// The schema named in the file.
pub const SCHEMA: &str = "holdall-bench-hitrate";

/// Increases when a field changes its meaning or is removed.
pub const SCHEMA_VERSION: u32 = 1;

/// The name of the curve below which no cache can be.
pub const BOUND: &str = "Belady's bound";

/// The name of the curve of the cache that knows the future and also evicts by bytes.
pub const BOUND_WITH_SIZES: &str = "Belady with sizes";

/// The failure of a replay, and of its result, that the user ended.
pub(crate) const INTERRUPTED: &str = "interrupted";

/// The source of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A trace file.
    File {
        /// Its path.
        path: PathBuf,
        /// Its format.
        format: Format,
    },
    /// Drawn from distributions.
    Synthetic(Synthetic),
    /// A load of a known kind.
    Preset(Preset),
}

/// The requests to replay, and the counted part of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Their source.
    pub source: Source,
    /// Maximum number of requests; `None` for the whole trace.
    pub limit: Option<u64>,
    /// Requests replayed before counting starts.
    pub warm_up: u64,
}

/// The counts of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Counted gets.
    pub gets: u64,
    /// Gets that hit.
    pub hits: u64,
    /// Stores refused by the server.
    pub refused: u64,
}

/// The contents of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Requests.
    pub requests: u64,
    /// Distinct keys.
    pub keys: u64,
    /// Bytes of their keys, as they are sent, and (last) values; without values longer than a
    /// server accepts.
    pub bytes: u64,
}

/// One server at one memory size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Its `-m`, in MB; for the bound, the size of keys and values.
    pub memory_mb: u32,
    /// The counts.
    pub counts: Counts,
    /// Seconds of the replay.
    pub seconds: f64,
    /// Resident memory of the server after the replay, in bytes; none for a curve without a server,
    /// and in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// The reason why the replay ended early, if it did: the counts until then are kept.
    pub failure: Option<String>,
}

/// A miss-ratio curve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Curve {
    /// The server's name.
    pub name: String,
    /// Its command line; empty for the bound.
    pub command: Vec<String>,
    /// By memory.
    pub points: Vec<Point>,
}

/// A stored replay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HitrateResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`SCHEMA_VERSION`].
    pub version: u32,
    /// Its start, in seconds since 1970.
    pub started: u64,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The machine it ran on.
    pub host: Host,
    /// The replayed requests.
    pub workload: Workload,
    /// The requested items; for a truncated trace, up to its end.
    pub footprint: Footprint,
    /// The curves of each server, and of the bound.
    pub curves: Vec<Curve>,
    /// The reason why the trace could not be read to its end.
    pub failure: Option<String>,
}

impl Point {
    /// Resident memory of the server after the replay, in MB.
    #[must_use]
    pub fn resident_mb(&self) -> Option<f64> {
        #[allow(clippy::cast_precision_loss, reason = "bytes of a machine's memory")]
        self.resident_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20))
    }
}

impl Source {
    /// A short description.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::File { path, .. } => path.display().to_string(),
            Self::Synthetic(synthetic) => synthetic.describe(),
            Self::Preset(preset) => preset.describe(),
        }
    }
}

impl Workload {
    /// Its requests, from the first, with the key lengths that servers receive: the bounds and the
    /// simulated caches count the same bytes.
    ///
    /// # Errors
    ///
    /// When the trace cannot be opened.
    pub fn requests(&self) -> Result<Requests> {
        let all: Requests = match &self.source {
            Source::File { path, format } => trace::open(path, *format)?,
            Source::Synthetic(synthetic) => {
                Box::new(synthetic.requests()?.map(Ok::<Request, anyhow::Error>))
            }
            Source::Preset(preset) => {
                Box::new(preset.requests()?.map(Ok::<Request, anyhow::Error>))
            }
        };
        let all = all.map(|request| request.map(Request::as_sent));
        Ok(match self.limit {
            Some(limit) => Box::new(all.take(usize::try_from(limit)?)),
            None => Box::new(all),
        })
    }
}

impl Counts {
    /// Share of the gets that missed, 0 to 1; 0 without gets.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "counts of one replay")]
        let ratio = (self.gets - self.hits) as f64 / self.gets.max(1) as f64;
        ratio
    }
}

impl HitrateResult {
    /// The share of a point's gets that missed, in percent; `None` if its replay was cut short or
    /// had no gets. A replay to the end of a truncated trace was not.
    #[must_use]
    pub fn missed_percent(&self, point: &Point) -> Option<f64> {
        let is_end_of_trace =
            |failure: &str| failure != INTERRUPTED && self.failure.as_deref() == Some(failure);
        (point.failure.as_deref().is_none_or(is_end_of_trace) && point.counts.gets > 0)
            .then(|| point.counts.miss_ratio() * 100.0)
    }

    /// Reads a result file.
    ///
    /// # Errors
    ///
    /// When it is not JSON, or of another schema or version.
    pub fn read(json: &str) -> Result<Self> {
        let value: serde_json::Value = serde_json::from_str(json).context("this is no JSON")?;
        ensure!(
            value["schema"] == SCHEMA && value["version"] == SCHEMA_VERSION,
            "this is no result of holdall bench hitrate, version {SCHEMA_VERSION}"
        );
        Ok(serde_json::from_value(value)?)
    }

    /// Reasons to doubt the figures, in plain words.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some(failure) = &self.failure {
            doubts.push(format!("the figures are of the requests before this: {failure}"));
        }
        for curve in &self.curves {
            for point in &curve.points {
                let at = format!("{} at {} MB", curve.name, point.memory_mb);
                if let Some(failure) = &point.failure {
                    doubts.push(format!("{at}: the replay ended early: {failure}"));
                }
                if point.counts.refused > 0 {
                    doubts.push(format!("{at}: {} stores were refused", point.counts.refused));
                }
            }
        }
        doubts
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A result with a bound, and one server with these points: (gets, hits, failure).
    pub(crate) fn result(
        failure: Option<&str>,
        points: &[(u64, u64, Option<&str>)],
    ) -> HitrateResult {
        let point = |&(gets, hits, failure): &(u64, u64, Option<&str>)| Point {
            memory_mb: 8,
            counts: Counts { gets, hits, refused: 0 },
            seconds: 1.0,
            resident_bytes: None,
            failure: failure.map(str::to_owned),
        };
        let curve = |name: &str, points: Vec<Point>| Curve {
            name: name.to_owned(),
            command: Vec::new(),
            points,
        };
        let bound = points.iter().map(|_| point(&(100, 98, None))).collect();
        let source = Source::File { path: "t.csv".into(), format: Format::Csv };
        HitrateResult {
            schema: SCHEMA.to_owned(),
            version: SCHEMA_VERSION,
            started: 0,
            command: Vec::new(),
            host: Host::here(),
            workload: Workload { source, limit: None, warm_up: 0 },
            footprint: Footprint::default(),
            curves: vec![curve(BOUND, bound), curve("server", points.iter().map(point).collect())],
            failure: failure.map(str::to_owned),
        }
    }

    #[test]
    fn a_point_that_was_cut_short_or_has_no_gets_has_no_ratio() {
        let missed = |failure, point| {
            let result = result(failure, &[point]);
            result.missed_percent(&result.curves[1].points[0])
        };
        assert_eq!(missed(None, (100, 90, None)), Some(10.0));
        assert_eq!(missed(None, (100, 90, Some("closed"))), None);
        assert_eq!(missed(None, (0, 0, None)), None);
        assert_eq!(missed(Some(INTERRUPTED), (100, 90, Some(INTERRUPTED))), None);
        // A truncated trace, and a server that closed.
        assert_eq!(missed(Some("cut short"), (100, 90, Some("cut short"))), Some(10.0));
        assert_eq!(missed(Some("cut short"), (100, 90, Some("closed"))), None);
    }
}
