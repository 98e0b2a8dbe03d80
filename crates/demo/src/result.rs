//! The figures of a run: written as JSON, drawn in the report and shown live.

use serde::{Deserialize, Serialize};

use crate::recorder::{ClusterCounts, WINDOW_READS};

/// Identifies the JSON.
pub(crate) const SCHEMA: &str = "holdall-demo";

/// A run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Outcome {
    /// `holdall-demo`.
    pub schema: String,
    /// This program's version.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// The make of the databases.
    pub database: crate::database::Kind,
    /// Each cluster's figures of the whole run.
    pub clusters: Vec<ClusterTotal>,
    /// Actions and their consequences, with seconds since the start.
    pub events: Vec<(f64, String)>,
    /// Figures by second.
    pub seconds: Vec<Second>,
    /// Written keys that were looked up in every cluster after everything was delivered.
    pub looked_up: u64,
    /// The number of them with an old value in a cache.
    pub stale_left: u64,
}

impl Outcome {
    /// True if no cache had an old value at the end, and no read returned an impossible version.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.stale_left == 0 && self.clusters.iter().all(|cluster| cluster.impossible == 0)
    }
}

/// A cluster's figures of the whole run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ClusterTotal {
    /// `region/cluster`.
    pub name: String,
    /// Users' reads.
    pub reads: u64,
    /// Reads that the cache answered.
    pub hits: u64,
    /// Reads that the region's own database answered.
    pub from_database: u64,
    /// Reads that the master's database answered because of a remote marker.
    pub from_master: u64,
    /// Reads without an answer.
    pub failed_reads: u64,
    /// Writes.
    pub writes: u64,
    /// Writes that were not acknowledged.
    pub failed_writes: u64,
    /// The share of reads at most a second stale.
    pub fresh_within_1s: f64,
    /// Percentiles of the staleness of reads, in milliseconds.
    pub stale_ms: Percentiles,
    /// A user's reads after its own write.
    pub own_reads: u64,
    /// The share of them that returned that version or a newer one.
    pub own_fresh: f64,
    /// Reads that returned an impossible version.
    pub impossible: u64,
    /// For an added cluster: reads until its hit ratio was 90 % of the warm cluster's.
    pub warm_after_reads: Option<u64>,
    /// The time from its first read until then, in seconds.
    pub warm_after_secs: Option<f64>,
}

/// Percentiles, in the unit of the field's name.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// 99.999 %.
    pub p99999: f64,
    /// The maximum.
    pub max: f64,
}

/// One second.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Second {
    /// Its end, in seconds since the start.
    pub at: f64,
    /// Clusters, in the order of [`Outcome::clusters`]; later ones are missing.
    pub clusters: Vec<ClusterSecond>,
    /// Regions: the master first.
    pub regions: Vec<RegionSecond>,
}

/// One second of a cluster's users.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct ClusterSecond {
    /// Reads.
    pub reads: u64,
    /// Reads that the cache answered.
    pub hits: u64,
    /// Reads and writes that failed.
    pub failed: u64,
    /// Gets that the gutter answered.
    pub gutter_hits: u64,
    /// The stalest read, in milliseconds.
    pub stale_max_ms: f64,
    /// Reads staler than a second.
    pub stale_over_1s: u64,
}

/// One second of a region.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct RegionSecond {
    /// Rows read from its database.
    pub queries: u64,
    /// Rows written there.
    pub writes: u64,
    /// The lag of the replica, in milliseconds; 0 in the master region.
    pub behind_ms: u64,
    /// Deletes delivered by the invalidator.
    pub delivered: u64,
    /// Deletes that wait for a cluster.
    pub waiting: u64,
    /// From the log to the acknowledgement, 99th percentile since the invalidator's start, in
    /// milliseconds.
    pub delivery_p99_ms: f64,
}

impl ClusterSecond {
    /// The share of reads that the cache answered; none without reads.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        share(self.hits, self.reads)
    }
}

/// A share; none if the whole is 0.
#[allow(clippy::cast_precision_loss, reason = "counts to be shown")]
pub(crate) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Milliseconds of a number of microseconds.
#[allow(clippy::cast_precision_loss, reason = "a time to be shown")]
pub(crate) fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

impl ClusterTotal {
    /// Of a cluster's counts.
    pub(crate) fn of(name: &str, tally: &ClusterCounts) -> Self {
        let stale = &tally.stale_us;
        let at = |quantile| ms(stale.value_at_quantile(quantile));
        // Only values above a second are counted: a histogram range cannot start at 0.
        let over = over_1s(stale);
        Self {
            name: name.to_owned(),
            reads: tally.reads,
            hits: tally.hits,
            from_database: tally.local,
            from_master: tally.master,
            failed_reads: tally.failed_reads,
            writes: tally.writes,
            failed_writes: tally.failed_writes,
            fresh_within_1s: 1.0 - share(over, stale.len()).unwrap_or(0.0),
            stale_ms: Percentiles {
                p50: at(0.5),
                p99: at(0.99),
                p999: at(0.999),
                p99999: at(0.99999),
                max: ms(stale.max()),
            },
            own_reads: tally.own_reads,
            own_fresh: 1.0 - share(tally.own_stale, tally.own_reads).unwrap_or(0.0),
            impossible: tally.impossible,
            warm_after_reads: None,
            warm_after_secs: None,
        }
    }

    /// Records how long an added cluster took until it had 90 % of `warm`'s final hit ratio.
    pub(crate) fn note_warm_up(&mut self, tally: &ClusterCounts, warm: &ClusterCounts) {
        let late = &warm.windows[warm.windows.len() / 2..];
        let hits: u64 = late.iter().map(|(_, hits)| hits).sum();
        let Some(ratio) = share(hits, WINDOW_READS * late.len() as u64) else { return };
        // Two windows, so that chance in one decides nothing.
        let mut pairs = tally.windows.windows(2).enumerate();
        let found = pairs.find(|(_, pair)| {
            share(pair[0].1 + pair[1].1, 2 * WINDOW_READS).is_some_and(|now| now >= 0.9 * ratio)
        });
        if let Some((at, pair)) = found {
            self.warm_after_reads = Some((at as u64 + 2) * WINDOW_READS);
            self.warm_after_secs =
                Some(ms(pair[1].0.saturating_sub(tally.first_read) / 1000) / 1000.0);
        }
    }
}

/// Reads staler than a second.
pub(crate) fn over_1s(stale_us: &hdrhistogram::Histogram<u64>) -> u64 {
    stale_us
        .iter_recorded()
        .filter(|at| at.value_iterated_to() > 1_000_000)
        .map(|at| at.count_at_value())
        .sum()
}
