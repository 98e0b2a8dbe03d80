//! Estimates of a server's keys from samples: hashes, sizes and ticks in, estimates out.
//!
//! ```text
//!     worker 0: Log --\
//!     worker 1: Log ----> Collector -> working set | hot keys | miss-ratio curve | latencies
//!     worker n: Log --/              | trials
//! ```
//!
//! A worker notes its samples in its own [`Log`]. A collector takes the logs, orders them and feeds
//! the five estimators, none of which knows the others. There is no socket, no clock and no thread
//! here.
//!
//! # Two kinds of sample
//!
//! * **By key**: every operation on a key whose hash is below a threshold. The hash is uniform, so
//!   the keys below it are a fair sample of all keys, the same for every worker. Working set,
//!   miss-ratio curve and trials need all operations of few keys.
//! * **By time**: every operation of one in `n` batches of requests. Hot keys and latencies need
//!   few operations of all keys.
//!
//! # Laws
//!
//! 1. The threshold only falls (until everything is forgotten), so the history of the keys below it
//!    stays complete.
//! 2. Every structure has a maximum size, known when it is made.
//! 3. A sample by key that cannot be kept is dropped and counted. Samples by time for which there
//!    is no room are thinned, with greater weights for the rest. No thread waits.
#![forbid(unsafe_code)]

mod collector;
mod histogram;
mod hot_keys;
mod index;
mod latency;
mod log;
mod miss_ratio;
mod prefixes;
mod recent;
mod table;
mod trials;
mod working_set;

pub use collector::{Collector, Config, Snapshot};
pub use histogram::Histogram;
pub use hot_keys::{HotKey, HotKeys};
pub use latency::{Command, Counts, LATENCY_BOUNDS_NS, Latencies};
pub use log::{Access, Full, Kind, Log};
pub use miss_ratio::{DEPTH, MissRatio};
pub use prefixes::{OTHERS, PrefixId, Prefixes};
pub use recent::{FADE_MS, QUANTILES, RecentTimes};
pub use trials::{CANDIDATES, Candidate, Trials};
pub use working_set::{Estimate, WINDOWS, Window, WorkingSet};

/// The share of all keys whose hash is below `threshold`.
#[must_use]
pub fn rate(threshold: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits are more than a sample is worth")]
    let rate = threshold as f64 / u64::MAX as f64;
    rate
}

/// `true` if the flush with this number came after the other. Numbers restart after 2^32 flushes.
pub(crate) fn is_later_flush(flush: u32, other: u32) -> bool {
    flush.wrapping_sub(other).cast_signed() > 0
}

/// Hashes are their own hash: they are keyed with a secret and uniform.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ByHash(u64);

impl std::hash::Hasher for ByHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    /// Sampled hashes are small numbers: the table also needs high bits.
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A table by key hash.
pub(crate) type HashTable<T> =
    std::collections::HashMap<u64, T, std::hash::BuildHasherDefault<ByHash>>;
