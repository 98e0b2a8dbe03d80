//! Latencies of requests in the server, by command.

use crate::RecentTimes;

/// A kind of request, as latencies tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `incr`, `decr`, `ma` and their kin.
    Arithmetic,
    /// `delete`, `md`.
    Delete,
    /// `get`, `gets`, `gat`, `gats`, `mg`.
    Get,
    /// Whatever names no key.
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

/// The times of each command. What is old fades. Beside it stand counts that do not fade, for
/// whoever takes differences.
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

/// Weighted counts of times by bucket, which only rise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// By [`LATENCY_BOUNDS_NS`], and what is over the last.
    of: [u64; LATENCY_BOUNDS_NS.len() + 1],
    sum_nanos: f64,
}

impl Counts {
    fn add(&mut self, nanos: u64, weight: u32) {
        let bucket = LATENCY_BOUNDS_NS.partition_point(|bound| *bound < nanos);
        self.of[bucket] += u64::from(weight);
        #[expect(clippy::cast_precision_loss, reason = "53 bits of nanoseconds are long enough")]
        let nanos = nanos as f64;
        self.sum_nanos += nanos * f64::from(weight);
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

impl Latencies {
    /// Memory, in bytes.
    pub const BYTES: usize = Command::ALL.len() * (RecentTimes::BYTES + size_of::<Counts>());

    /// A request took so long; it stands for `weight` of them.
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

    /// Takes note that `secs` seconds have passed.
    pub fn fade(&mut self, secs: f64) {
        self.of.iter_mut().for_each(|times| times.fade(secs));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_rise_while_histograms_fade() {
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
}
