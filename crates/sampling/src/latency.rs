//! Latencies of requests in the server, by command.

use crate::RecentTimes;

/// A kind of request, as latencies distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `incr`, `decr`, `ma` and the like.
    Arithmetic,
    /// `delete`, `md`.
    Delete,
    /// `get`, `gets`, `gat`, `gats`, `mg`.
    Get,
    /// Requests that name no key.
    Other,
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`, `ms`.
    Store,
    /// `touch`.
    Touch,
}

impl Command {
    /// Each with its name.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Get, "get"),
        (Self::Store, "set"),
        (Self::Delete, "delete"),
        (Self::Touch, "touch"),
        (Self::Arithmetic, "incr"),
        (Self::Other, "other"),
    ];
}

/// The times of each command. Old times fade. Further counts do not fade, for readers that take
/// differences.
#[derive(Debug, Default)]
pub struct Latencies {
    of: [RecentTimes; Command::ALL.len()],
    counts: [Counts; Command::ALL.len()],
}

/// Upper ends of the buckets of [`Counts`], in nanoseconds.
pub const LATENCY_BOUNDS_NS: [u64; 19] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
];

/// Cells in each doubling of a time: neighbours differ by 9 percent.
const CELLS_PER_DOUBLING: i32 = 8;

/// Doublings below one second: the first cell ends at 0.93 nanoseconds.
const DOUBLINGS_BELOW: i32 = 30;

/// The last cell ends at 128 seconds, and also has longer times.
const CELLS: usize = ((DOUBLINGS_BELOW + 7) * CELLS_PER_DOUBLING + 1) as usize;

/// Weighted counts of times by bucket, and by narrow cell, which only rise.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// By [`LATENCY_BOUNDS_NS`], and what is over the last.
    of: [u64; LATENCY_BOUNDS_NS.len() + 1],
    cells: [u64; CELLS],
    sum_nanos: f64,
}

impl Default for Counts {
    fn default() -> Self {
        Self { of: Default::default(), cells: [0; CELLS], sum_nanos: 0.0 }
    }
}

impl Counts {
    fn add(&mut self, nanos: u64, weight: u32) {
        let bucket = LATENCY_BOUNDS_NS.partition_point(|bound| *bound < nanos);
        self.of[bucket] += u64::from(weight);
        #[expect(clippy::cast_precision_loss, reason = "53 bits of nanoseconds are long enough")]
        let nanos = nanos as f64;
        self.cells[cell(nanos / 1e9)] += u64::from(weight);
        self.sum_nanos += nanos * f64::from(weight);
    }

    /// The upper end of each cell that has times, in seconds, and their number.
    pub fn cells(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let ends = (-DOUBLINGS_BELOW * CELLS_PER_DOUBLING..)
            .map(|place| (f64::from(place) / f64::from(CELLS_PER_DOUBLING)).exp2());
        ends.zip(self.cells).filter(|(_, count)| *count > 0)
    }

    /// The number of times up to each bound.
    pub fn up_to(&self) -> impl Iterator<Item = u64> + '_ {
        let bounded = &self.of[..LATENCY_BOUNDS_NS.len()];
        bounded.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        })
    }

    /// The number of all times.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.of.iter().sum()
    }

    /// The sum of all times, in nanoseconds.
    #[must_use]
    pub const fn sum_nanos(&self) -> f64 {
        self.sum_nanos
    }
}

/// The cell that a time belongs to.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "cut at both ends of the cells"
)]
fn cell(secs: f64) -> usize {
    let place = (secs.log2() + f64::from(DOUBLINGS_BELOW)) * f64::from(CELLS_PER_DOUBLING);
    (place.ceil().max(0.0) as usize).min(CELLS - 1)
}

impl Latencies {
    /// Memory, in bytes.
    pub const BYTES: usize = Command::ALL.len() * (RecentTimes::BYTES + size_of::<Counts>());

    /// Counts a request that took so long; it stands for `weight` requests.
    pub fn add(&mut self, command: Command, nanos: u64, weight: u32) {
        self.of[command as usize].add(nanos, weight.into());
        self.counts[command as usize].add(nanos, weight);
    }

    /// The counts of a command that do not fade.
    #[must_use]
    pub fn counts_of(&self, command: Command) -> &Counts {
        &self.counts[command as usize]
    }

    /// The times of a command.
    #[must_use]
    pub fn of(&self, command: Command) -> &RecentTimes {
        &self.of[command as usize]
    }

    /// Fades for `secs` seconds.
    pub fn fade(&mut self, secs: f64) {
        self.of.iter_mut().for_each(|times| times.fade(secs));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn counts_are_cumulative_while_histograms_fade() {
        let mut latencies = Latencies::default();
        for (nanos, weight) in [(1_000, 1), (1_001, 2), (3_000_000_000, 4)] {
            latencies.add(Command::Get, nanos, weight);
        }
        latencies.fade(600.0);
        assert!(latencies.of(Command::Get).total() < 1.0);
        let counts = latencies.counts_of(Command::Get);
        let up_to: Vec<u64> = counts.up_to().collect();
        assert_eq!((up_to[0], up_to[1], up_to[18], counts.total()), (1, 3, 3, 7));
        assert!((counts.sum_nanos() - 12_000_003_002.0).abs() < 1.0);
        assert_eq!(latencies.counts_of(Command::Store).total(), 0);
    }

    #[test]
    fn cells_end_at_most_9_percent_after_their_times() {
        for nanos in [0, 1, 2, 999, 1_000, 123_456, 1_000_000_000, 100_000_000_000, u64::MAX] {
            let mut counts = Counts::default();
            counts.add(nanos, 3);
            let cells: Vec<_> = counts.cells().collect();
            let [(end, 3)] = cells[..] else { panic!("{nanos}: {cells:?}") };
            let secs = Duration::from_nanos(nanos).as_secs_f64().clamp(2.0_f64.powi(-30), 128.0);
            assert!(end >= secs * 0.999_999 && end < secs * 1.091, "{nanos}: {end}");
        }
    }
}
