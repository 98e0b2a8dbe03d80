//! Times of the last minutes: old ones fade.

use crate::Histogram;

/// Seconds in which half of the times fade.
const HALF_LIFE_SECS: f64 = 60.0;

/// Milliseconds between two fadings of old times.
pub const FADE_MS: u64 = 10_000;

/// Quantiles that statistics show, and their names.
pub const QUANTILES: [(f64, &str); 5] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p999"), (1.0, "max")];

/// Number of times below which quantiles mean nothing.
const TOLD_MIN: f64 = 0.5;

/// Times in nanoseconds, in buckets three percent wide. Half of them fade in a minute.
#[derive(Clone, Debug, Default)]
pub struct RecentTimes(Histogram);

impl RecentTimes {
    /// Memory of one, in bytes.
    pub const BYTES: usize = Histogram::BYTES;

    /// Counts a time, `weight` times.
    pub fn add(&mut self, nanos: u64, weight: f64) {
        self.0.add(nanos, weight);
    }

    /// Fades for `secs` seconds.
    pub fn fade(&mut self, secs: f64) {
        self.0.scale((-secs / HALF_LIFE_SECS).exp2());
    }

    /// The times that have not faded.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.0.total()
    }

    /// The time in nanoseconds that the share `quantile` (0 to 1) does not exceed; `None` if almost
    /// nothing is left.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        if self.total() < TOLD_MIN { None } else { self.0.quantile(quantile) }
    }

    /// Each of [`QUANTILES`], by name and in nanoseconds.
    #[must_use]
    pub fn quantiles(&self) -> Option<[(&'static str, u64); QUANTILES.len()]> {
        let told = |(quantile, name)| (name, self.quantile(quantile).unwrap_or_default());
        (self.total() >= TOLD_MIN).then(|| QUANTILES.map(told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_weight_fades_in_a_minute() {
        let mut times = RecentTimes::default();
        times.add(1_000_000, 100.0);
        times.fade(60.0);
        times.add(1_000, 150.0);
        assert!((times.total() - 200.0).abs() < 1e-9);
        // Three quarters of them are short.
        assert!(times.quantile(0.7).is_some_and(|nanos| (970..=1_030).contains(&nanos)));
        assert!(times.quantile(0.8).is_some_and(|nanos| (970_000..=1_030_000).contains(&nanos)));
    }

    #[test]
    fn faded_times_are_not_reported() {
        let mut times = RecentTimes::default();
        assert_eq!((times.quantile(0.5), times.quantiles()), (None, None));
        times.add(31, 1.0);
        let told = times.quantiles().unwrap();
        assert_eq!(told, ["p50", "p90", "p99", "p999", "max"].map(|name| (name, 31)));
        times.fade(61.0);
        assert_eq!((times.quantile(0.5), times.quantiles()), (None, None));
    }
}
