//! Eviction ahead of need: frees chunks before a store asks for them.
//!
//! A chunk that a store evicts becomes free only when all sections have ended in which other
//! threads may have found it. So the cleaner evicts some items early. In each class whose stores
//! evict, it keeps as many chunks free as a few of its recent steps stored, at most a 128th of the
//! class and a megabyte. Stores take them without a wait, and can continue for a while if a thread
//! stops inside a section.
//!
//! A class that receives pages from colder classes evicts nothing ahead (see `rebalance`).
//!
//! Chunks in their grace period count as free, so a load that only overwrites evicts nothing.

use super::allocate::{BATCH, evict_own};
use super::store_rate::StoreRate;
use crate::eviction::victim::next_victim;
use crate::slabs::ClassId;
use crate::stats::Count;
use crate::thread::ThreadState;
use narrow::to_usize;
use std::rc::Rc;

/// The cleaner's part: its observations of the classes in its last steps.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// By class.
    classes: Vec<Seen>,
}

/// Observations of one class.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Stores that had to evict directly.
    reclaims: u64,
    rate: StoreRate,
    /// Its stores have evicted before.
    is_full: bool,
}

impl Ahead {
    /// Evicts items that the next stores will need, at most `budget` in all classes.
    pub(crate) fn step(&mut self, thread: &Rc<ThreadState>, budget: usize) {
        let store = &*thread.store;
        if !store.evict {
            return;
        }
        self.classes.resize_with(usize::from(store.slabs.count()) + 1, Seen::default);
        let mut left = budget;
        for class in 1..=store.slabs.count() {
            let missing = self.classes[usize::from(class)].missing(thread, class);
            for _ in 0..missing.min(left).div_ceil(BATCH) {
                left -= left.min(BATCH);
                evict_ahead(thread, class);
            }
        }
    }
}

impl Seen {
    /// Examines the class. Returns the number of chunks that it lacks.
    fn missing(&mut self, thread: &ThreadState, class: ClassId) -> usize {
        let store = &*thread.store;
        let of = |count| store.counters.of_class(class, count);
        let reclaims = of(Count::DirectReclaims);
        let usage = store.slabs.class_use(class);
        let stored = self.rate.note(usage.stored);
        self.is_full |= reclaims > std::mem::replace(&mut self.reclaims, reclaims);
        let is_supplied =
            store.slabs.is_needy(class) || store.slabs.may_add_page(&store.budget, class);
        if !self.is_full || stored == 0 || is_supplied {
            return 0;
        }
        let wanted = self.rate.wanted().min(store.slabs.class(class).most_kept_free().max(1));
        let on_its_way = if class != store.slabs.largest() {
            usage.used.saturating_sub(of(Count::Items))
        } else if thread.has_retired() {
            // Its chunks may be pieces, which are not items. So one eviction comes back before the
            // next is made.
            wanted
        } else {
            0
        };
        to_usize(wanted.saturating_sub(usage.free + on_its_way))
    }
}

/// Evicts a batch of the class, or of the heads whose pieces it holds.
fn evict_ahead(thread: &Rc<ThreadState>, class: ClassId) {
    if let Some(victim) = next_victim(thread, class) {
        thread.count(class, Count::AheadReclaims, 1);
        evict_own(thread, victim.class);
    }
}
