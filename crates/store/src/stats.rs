//! Counters kept per thread and summed by their readers, and the types in which they are returned.
//!
//! Only its owner writes a counter, with a plain load and store, so counting costs no shared cache
//! line. A reset remembers the sums.
//!
//! Relaxed is enough: a counter guards nothing, and a sum may miss a count in progress. One thread
//! may have counted an item down before another counts it up: a gauge that would be below zero is
//! shown as 0.

use arena::sync::{AtomicU64, Mutex, Ordering};
use std::sync::Arc;

/// Counters of one slab class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Linked items; a gauge.
    Items,
    /// Header, key and value of linked items; a gauge.
    Bytes,
    /// Items ever linked.
    Linked,
    Evicted,
    EvictedUnfetched,
    /// Evicted with a deadline.
    EvictedNonzero,
    /// Evicted with its page.
    EvictedByMove,
    /// Seconds since last access of the item evicted last; the greatest of all threads is shown.
    EvictedAge,
    ExpiredUnfetched,
    /// Dead items whose memory was reused.
    Reclaimed,
    /// Of those, in the second in which they expired.
    TransientReclaimed,
    OutOfMemory,
    /// Touched items moved to a newer bag.
    Moved,
    CleanerReclaimed,
    CleanerChecked,
    BagsOpened,
    BagsMerged,
    /// Stores that had to evict directly.
    DirectReclaims,
    /// Evictions by the cleaner for the next stores, in batches.
    AheadReclaims,
}

const COUNTS: usize = Count::AheadReclaims as usize + 1;
const GAUGES: usize = Count::Bytes as usize + 1;

/// All counters of a store.
#[derive(Debug)]
pub(crate) struct Counters {
    threads: Vec<ThreadCounts>,
    classes: u8,
    at_reset: Mutex<Vec<[u64; COUNTS]>>,
}

/// The counters that one thread writes, by class.
#[derive(Clone, Debug)]
pub(crate) struct ThreadCounts(Arc<[[AtomicU64; COUNTS]]>);

impl ThreadCounts {
    fn new(classes: u8) -> Self {
        Self((0..=classes).map(|_| Default::default()).collect())
    }

    /// Adds to a counter; `by` may be negative for gauges.
    #[inline]
    pub(crate) fn add(&self, class: u8, count: Count, by: i64) {
        add(&self.0[usize::from(class)][count as usize], by);
    }

    /// Adds to both gauges.
    #[inline]
    pub(crate) fn add_items(&self, class: u8, items: i64, bytes: i64) {
        let of_class = &self.0[usize::from(class)];
        add(&of_class[Count::Items as usize], items);
        add(&of_class[Count::Bytes as usize], bytes);
    }

    /// Sets a counter.
    #[inline]
    pub(crate) fn set(&self, class: u8, count: Count, to: u64) {
        self.0[usize::from(class)][count as usize].store(to, Ordering::Relaxed);
    }

    fn get(&self, class: u8, count: Count) -> u64 {
        self.0[usize::from(class)][count as usize].load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn new(threads: usize, classes: u8) -> Self {
        Self {
            threads: (0..threads).map(|_| ThreadCounts::new(classes)).collect(),
            classes,
            at_reset: Mutex::new(vec![[0; COUNTS]; usize::from(classes) + 1]),
        }
    }

    /// Threads that may count at one time.
    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// The counters that the thread of this slot writes.
    pub(crate) fn of_thread(&self, slot: usize) -> ThreadCounts {
        self.threads[slot].clone()
    }

    /// The counter of one class, over all threads, since the last reset.
    pub(crate) fn of_class(&self, class: u8, count: Count) -> u64 {
        let cells = self.threads.iter().map(|thread| thread.get(class, count));
        if count == Count::EvictedAge {
            return cells.max().unwrap_or(0);
        }
        let sum = cells.fold(0u64, u64::wrapping_add);
        if (count as usize) < GAUGES {
            return sum.cast_signed().max(0).cast_unsigned();
        }
        sum - self.at_reset.lock()[usize::from(class)][count as usize].min(sum)
    }

    /// The counter over all classes.
    pub(crate) fn total(&self, count: Count) -> u64 {
        (1..=self.classes).fold(0, |sum, class| sum.wrapping_add(self.of_class(class, count)))
    }

    /// Sets the counters (not the gauges) back to zero for readers.
    pub(crate) fn reset(&self) {
        for (class, bases) in self.at_reset.lock().iter_mut().enumerate() {
            for (count, base) in bases.iter_mut().enumerate() {
                let cells = self.threads.iter().map(|thread| &thread.0[class][count]);
                let counts = cells.map(|cell| cell.load(Ordering::Relaxed));
                *base = counts.fold(0, u64::wrapping_add);
            }
        }
    }
}

#[inline]
fn add(cell: &AtomicU64, by: i64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add_signed(by), Ordering::Relaxed);
}

/// Use of the memory limit, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemorySplit {
    /// The limit (`-m`).
    pub limit: u64,
    /// Slab pages in use or kept.
    pub arena: u64,
    /// Hash table.
    pub index: u64,
    /// Bag blocks.
    pub bags: u64,
    /// Connection buffers charged to the store.
    pub buffers: u64,
    /// Fixed structures charged to the store.
    pub fixed: u64,
    /// Header, key and value of the linked items (memcached's `bytes`), without deleted ones; part
    /// of `arena`.
    pub items: u64,
    /// Header, key and value of deleted items that are kept to be read as stale; part of `arena`.
    pub deleted: u64,
}

/// One slab class's numbers (`stats slabs`, `stats items`).
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassStats {
    /// 1 is the class of the smallest chunks; the last holds the heads of chained items.
    pub id: u8,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Chunks in a page.
    pub chunks_per_page: u32,
    /// Pages of the class.
    pub pages: u64,
    /// Chunks in those pages.
    pub chunks: u64,
    /// Chunks handed out.
    pub chunks_used: u64,
    /// Chunks that can be handed out at once.
    pub chunks_free: u64,
    /// Linked items.
    pub items: u64,
    /// Header, key and value of the linked items, in bytes.
    pub bytes_requested: u64,
    /// Seconds since the oldest bag was opened.
    pub oldest_age_secs: u32,
    /// Items evicted.
    pub evicted: u64,
    /// Of those, never read.
    pub evicted_unfetched: u64,
    /// Of those, with a time of expiry.
    pub evicted_nonzero: u64,
    /// Seconds between last access and eviction of the item evicted last.
    pub evicted_age_secs: u64,
    /// Expired items never read.
    pub expired_unfetched: u64,
    /// Dead items whose memory was reused.
    pub reclaimed: u64,
    /// Stores refused because no memory was available.
    pub out_of_memory: u64,
    /// Touched items moved to a newer bag.
    pub moved: u64,
    /// Items freed by the cleaner.
    pub cleaner_reclaimed: u64,
    /// Items examined by the cleaner.
    pub cleaner_checked: u64,
    /// Stores of this class that had to evict directly.
    pub direct_reclaims: u64,
}

/// One bag's numbers (`stats bags`).
#[derive(Clone, Copy, Debug)]
pub struct BagStats {
    /// Slab class.
    pub class: u8,
    /// Place in the class's list: each queue's oldest first, newcomers before proven items.
    pub place: u32,
    /// `oldest`, `closed`, `alternate` or `newest`.
    pub role: &'static str,
    /// `newcomers` or `proven`: the items that it holds.
    pub queue: &'static str,
    /// Items in it.
    pub items: u32,
    /// Slots handed out, holes included.
    pub slots: u32,
    /// Second of opening, since start.
    pub opened_secs: u32,
    /// Second of closing; 0 while open.
    pub closed_secs: u32,
}

/// Size of the hash table.
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexStats {
    /// Power of two of the buckets at the last doubling (`hash_power_level`).
    pub power_level: u32,
    /// Bytes of buckets in use (`hash_bytes`).
    pub bytes: u64,
    /// Buckets have to be split for the present items (`hash_is_expanding`). The table has no other
    /// step of growth: any number of buckets is complete.
    pub growing: bool,
    /// References in the table.
    pub items: u64,
}

/// Store-wide counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreStats {
    /// Linked items, without the deleted ones.
    pub items: u64,
    /// Deleted items that are kept to be read as stale.
    pub deleted_items: u64,
    /// Invalidations of a prefix so far.
    pub prefixes_invalidated: u64,
    /// Flushes and invalidations of a prefix that are not purged yet.
    pub invalidations_outstanding: u64,
    /// Items ever linked.
    pub items_total: u64,
    /// Items evicted to make room.
    pub evictions: u64,
    /// Of those, never read.
    pub evicted_unfetched: u64,
    /// Expired items never read.
    pub expired_unfetched: u64,
    /// Dead items whose memory was reused.
    pub reclaimed: u64,
    /// Pages moved from one class to another use.
    pub slabs_moved: u64,
    /// Resident pages of no class.
    pub slabs_free: u64,
    /// A page move requested by `Store::reassign` is not done yet.
    pub is_reassigning: bool,
    /// A crawl requested by `Store::crawl` is not over yet.
    pub is_crawling: bool,
    /// Items evicted because their page changed its class; part of `evictions`.
    pub evicted_by_moves: u64,
    /// Stores that had to evict directly.
    pub direct_reclaims: u64,
    /// Passes of the cleaner over all bags.
    pub cleaner_rounds: u64,
    /// Items freed by the cleaner.
    pub cleaner_reclaimed: u64,
    /// Items examined by the cleaner.
    pub cleaner_checked: u64,
    /// Bags opened.
    pub bags_opened: u64,
    /// Bags merged into a newer one.
    pub bags_merged: u64,
    /// Touched items moved to a newer bag.
    pub items_reordered: u64,
    /// Notes of items to be freed in the second in which they expire, including outdated notes.
    pub transient_listed: u64,
    /// Items freed in the second in which they expired.
    pub transient_reclaimed: u64,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_is_never_below_zero() {
        let counters = Counters::new(2, 1);
        // Thread 0 is about to count an item that thread 1 has removed.
        counters.of_thread(1).add_items(1, -1, -100);
        assert_eq!((counters.of_class(1, Count::Items), counters.total(Count::Bytes)), (0, 0));
        counters.of_thread(0).add_items(1, 2, 150);
        assert_eq!((counters.of_class(1, Count::Items), counters.total(Count::Bytes)), (1, 50));
    }
}
