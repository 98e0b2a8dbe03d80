//! Counters of a client's look-aside reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of look-aside reads.
#[derive(Debug, Default)]
pub(crate) struct LookAsideCounters {
    pub(crate) hits: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) loads: AtomicU64,
    pub(crate) fills: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) unfilled: AtomicU64,
    pub(crate) shared: AtomicU64,
    pub(crate) early: AtomicU64,
}

/// Counts of look-aside reads, by outcome.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LookAsideTotals {
    /// Values found.
    pub hits: u64,
    /// Stale values returned while another client filled.
    pub stale: u64,
    /// Waits for another client's fill.
    pub waits: u64,
    /// Started loads.
    pub loads: u64,
    /// Values stored.
    pub fills: u64,
    /// Values not stored because the key was changed, deleted or filled in the meantime.
    pub refused: u64,
    /// Loads after which nothing was stored, since the cache had failed or the wait had been too
    /// long.
    pub unfilled: u64,
    /// Outcomes of another caller's load in this process.
    pub shared: u64,
    /// Loads of values that were still there, shortly before their end.
    pub early: u64,
}

/// Counts one.
pub(crate) fn count(counter: &AtomicU64) {
    // Relaxed, here and below: counts, which order nothing else.
    counter.fetch_add(1, Ordering::Relaxed);
}

impl LookAsideCounters {
    pub(crate) fn totals(&self) -> LookAsideTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LookAsideTotals {
            hits: read(&self.hits),
            stale: read(&self.stale),
            waits: read(&self.waits),
            loads: read(&self.loads),
            fills: read(&self.fills),
            refused: read(&self.refused),
            unfilled: read(&self.unfilled),
            shared: read(&self.shared),
            early: read(&self.early),
        }
    }
}
