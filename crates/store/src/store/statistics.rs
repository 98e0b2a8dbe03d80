//! A store's numbers for `stats`.
//!
//! Each number is read separately, so two of one answer may differ by a change between the reads.
//! Relaxed loads are enough: a number guards nothing.

use super::Store;
use crate::lru::PARTS;
use crate::namespaces::NamespaceStats;
use crate::slabs::ClassId;
use crate::stats::{ClassStats, Count, IndexStats, MemorySplit, StoreStats};
use arena::sync::Ordering;
use narrow::to_u32;

impl Store {
    /// Use of the memory limit.
    #[must_use]
    pub fn memory(&self) -> MemorySplit {
        MemorySplit {
            limit: self.budget.limit(),
            arena: self.slabs.bytes(),
            index: self.table.bytes() as u64,
            bags: self.blocks.bytes(),
            // Below zero for a moment, where one thread returns bytes before another charges them.
            buffers: self.buffers.load(Ordering::Relaxed).max(0).unsigned_abs(),
            fixed: self.fixed.load(Ordering::Relaxed),
            items: self.counters.total(Count::Bytes).saturating_sub(self.deleted.held().1),
            deleted: self.deleted.held().1,
        }
    }

    /// Size of the hash table.
    #[must_use]
    pub fn index(&self) -> IndexStats {
        IndexStats {
            power_level: self.table.level(),
            bytes: self.table.bytes() as u64,
            growing: self.table.wants_growth(),
            items: self.table.items() as u64,
        }
    }

    /// Store-wide counters.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let total = |count| self.counters.total(count);
        StoreStats {
            items: total(Count::Items).saturating_sub(self.deleted.held().0),
            deleted_items: self.deleted.held().0,
            prefixes_invalidated: self.invalidations.prefixes(),
            invalidations_outstanding: self.invalidations.outstanding(),
            items_total: total(Count::Linked),
            evictions: total(Count::Evicted),
            evicted_unfetched: total(Count::EvictedUnfetched),
            expired_unfetched: total(Count::ExpiredUnfetched),
            reclaimed: total(Count::Reclaimed),
            slabs_moved: self.slabs.pages_moved(),
            slabs_free: self.slabs.free_pages(),
            is_reassigning: self.balance.request().is_some(),
            is_crawling: self.is_crawling(),
            evicted_by_moves: total(Count::EvictedByMove),
            direct_reclaims: total(Count::DirectReclaims),
            cleaner_rounds: self.cleaner_rounds.load(Ordering::Relaxed),
            cleaner_reclaimed: total(Count::CleanerReclaimed),
            cleaner_checked: total(Count::CleanerChecked),
            bags_opened: total(Count::BagsOpened),
            bags_merged: total(Count::BagsMerged),
            items_reordered: total(Count::Moved),
            transient_listed: self.transients.listed(),
            transient_reclaimed: total(Count::TransientReclaimed),
        }
    }

    /// Numbers of the namespace with this number, below [`NAMESPACES_MAX`](crate::NAMESPACES_MAX).
    #[must_use]
    pub fn namespace_stats(&self, number: u16) -> NamespaceStats {
        self.namespaces.stats(number)
    }

    /// Numbers of every class that has pages or ever refused a store. `now_secs` is the present
    /// second since the store's start.
    #[must_use]
    pub fn class_stats(&self, now_secs: u32) -> Vec<ClassStats> {
        (1..=self.slabs.count())
            .map(|id| class_stats(self, id, now_secs))
            .filter(|class| class.pages > 0 || class.out_of_memory > 0)
            .collect()
    }
}

/// The numbers of one class.
fn class_stats(store: &Store, id: ClassId, now_secs: u32) -> ClassStats {
    let class = store.slabs.class(id);
    let held = store.slabs.class_use(id);
    let of = |count| store.counters.of_class(id, count);
    ClassStats {
        id,
        chunk_bytes: to_u32(class.chunk_bytes()),
        chunks_per_page: to_u32(class.per_page()),
        pages: held.pages,
        chunks: held.pages * class.per_page() as u64,
        chunks_used: held.used,
        chunks_free: held.free,
        items: of(Count::Items),
        bytes_requested: of(Count::Bytes),
        oldest_age_secs: oldest_secs(store, id).map_or(0, |opened| now_secs.saturating_sub(opened)),
        evicted: of(Count::Evicted),
        evicted_unfetched: of(Count::EvictedUnfetched),
        evicted_nonzero: of(Count::EvictedNonzero),
        evicted_age_secs: of(Count::EvictedAge),
        expired_unfetched: of(Count::ExpiredUnfetched),
        reclaimed: of(Count::Reclaimed),
        out_of_memory: of(Count::OutOfMemory),
        moved: of(Count::Moved),
        cleaner_reclaimed: of(Count::CleanerReclaimed),
        cleaner_checked: of(Count::CleanerChecked),
        direct_reclaims: of(Count::DirectReclaims),
    }
}

/// The second at which the class's oldest bag with an item was opened.
fn oldest_secs(store: &Store, class: ClassId) -> Option<u32> {
    let list = store.list(class);
    let order = list.order.lock();
    let opened = |part| {
        let oldest = list.oldest_with_items(&order, part, &store.blocks)?;
        Some(list.bag(oldest).opened_secs())
    };
    PARTS.into_iter().filter_map(opened).min()
}
