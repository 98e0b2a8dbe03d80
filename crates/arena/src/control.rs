//! Control words: facts other than items that outlive the process, because an acknowledged command
//! changed them.
//!
//! In a memory file they are always up to date, so a start after a crash finds them as they were.
//!
//! Relaxed is enough for the cas counter, the counts of bags and the flush: none guards other
//! memory, and a flush is ordered by its generation.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// One store's words. All zero is a store before its first item.
#[repr(C)]
#[derive(Debug)]
pub struct Control {
    /// The next cas unique that no thread has (see `uniques`).
    pub cas: CachePadded<AtomicU64>,
    /// Bags opened, by class.
    pub ticks: CachePadded<[AtomicU64; 256]>,
    /// Bytes of all bags that were closed: the clock by which classes are compared.
    pub turnover: CachePadded<AtomicU64>,
    /// Bytes of the chunks of each fitted class; 0 if there is none.
    pub fitted: CachePadded<[AtomicU32; FITTED_MAX]>,
    /// Second at which all items die; 0 is never, and 1 is a flush under way.
    flush_at: CachePadded<AtomicU32>,
}

/// Maximum number of slab classes whose chunk size follows the arriving items.
pub const FITTED_MAX: usize = 16;

/// A flush that has been claimed and is not done yet.
const FLUSHING: u32 = 1;

impl Control {
    /// Sets the first cas unique to 1: 0 names no item. A tick starts at `first_tick`, and restarts
    /// there if an earlier process has left one that is out of range.
    pub fn begin(&self, first_tick: u64, last_tick: u64) {
        let order = Ordering::Relaxed;
        // It fails if the words are those of an earlier process.
        let _ = self.cas.compare_exchange(0, 1, order, order);
        let is_strange = |tick: &&AtomicU64| !(first_tick..last_tick).contains(&tick.load(order));
        self.ticks.iter().filter(is_strange).for_each(|tick| tick.store(first_tick, order));
        if self.turnover.load(order) > u64::MAX / 2 {
            self.turnover.store(0, order);
        }
    }

    /// Schedules a flush at this second; 0 cancels it.
    pub fn schedule_flush(&self, at_secs: u32) {
        self.flush_at.store(at_secs, Ordering::Relaxed);
    }

    /// `true` if a scheduled flush is due, and the caller must do it. The caller then calls
    /// `flush_done`.
    #[inline]
    pub fn claim_flush(&self, now_secs: u32) -> bool {
        let at = self.flush_at.load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        at > FLUSHING
            && at <= now_secs
            && self.flush_at.compare_exchange(at, FLUSHING, order, order).is_ok()
    }

    /// Records that the claimed flush is done.
    pub fn flush_done(&self) {
        let order = Ordering::Relaxed;
        // It fails if another flush has been scheduled since.
        let _ = self.flush_at.compare_exchange(FLUSHING, 0, order, order);
    }

    /// `true` if a process claimed a flush and died before it was done.
    #[must_use]
    pub fn has_unfinished_flush(&self) -> bool {
        self.flush_at.load(Ordering::Relaxed) == FLUSHING
    }
}
