//! The cleaner: a store's background work, as steps with a budget.
//!
//! Each step opens bags where the newest is full, evicts ahead of stores that will need memory,
//! helps the table grow or shrink, gives sizes that waste much memory a separate class, and moves
//! pages between classes, and out of the store if the limit is exceeded. Every Nth step also
//! cleans: it frees dead items, reorders touched ones, and merges sparse bags.
//!
//! Source: Wiggins and Langston, "Enhancing the Scalability of Memcached" (2012), section 3.5.3.

pub(crate) mod crawl;
mod fit;
#[cfg(test)]
mod marks_tests;
mod purge;
mod shrink;

use self::crawl::Crawl;
use self::fit::Fitter;
use self::purge::Purge;
use self::shrink::Shrinker;
use crate::allocation::ahead::Ahead;
use crate::allocation::allocate::return_pages;
use crate::allocation::rebalance::Mover;
use crate::eviction::clean::clean;
use crate::eviction::evict::{open_if_full, open_if_old};
use crate::handle::{Handle, Observer};
use crate::linked::{self, ReadGuard, grow_table};
use crate::reaping::{deleted, transient};
use crate::slabs::ClassId;
use crate::stats::Count;
use crate::store::Store;
use arena::sync::Ordering;
use std::sync::Arc;

/// Steps between two cleanings: the paper's N.
const STEPS_PER_CLEANING: u64 = 4;
/// Steps between two checks of the amounts stored in each class, and of the table's needs.
const STEPS_PER_FITTING: u64 = 16;
/// Maximum number of pages returned in one step.
const PAGES_PER_STEP: usize = 64;
/// Maximum number of buckets split in one step.
const SPLITS_PER_STEP: usize = 256;

/// The background work of one store. One thread runs it.
#[derive(Debug)]
pub struct Cleaner {
    handle: Handle,
    crawl: Option<Crawl>,
    steps: u64,
    class: ClassId,
    purge: Purge,
    mover: Mover,
    ahead: Ahead,
    fitter: Fitter,
    shrinker: Shrinker,
    /// The epoch at the end of the last step.
    epoch: u64,
    /// The second of the last step.
    reserved_secs: u32,
}

/// Result of one step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Step {
    /// Items examined.
    pub checked: usize,
    /// Items freed.
    pub reclaimed: usize,
    /// There is more to do at once.
    pub busy: bool,
}

impl Cleaner {
    /// Calls `observer` for each item that the cleaner evicts from now on. `None` stops it.
    pub fn on_evict(&self, observer: Option<Observer>) {
        self.handle.on_evict(observer);
    }

    /// A cleaner of this store. `None` when the store has no room for another thread.
    #[must_use]
    pub fn new(store: &Arc<Store>) -> Option<Self> {
        let handle = store.join()?;
        Some(Self {
            handle,
            crawl: None,
            steps: 0,
            class: 1,
            purge: Purge::default(),
            mover: Mover::default(),
            ahead: Ahead::default(),
            fitter: Fitter::default(),
            shrinker: Shrinker::default(),
            epoch: 0,
            reserved_secs: 0,
        })
    }

    /// Does one step. `now_secs` is the present second since the store's start. The step examines
    /// about `budget` items when it cleans.
    pub fn step(&mut self, now_secs: u32, budget: usize) -> Step {
        self.handle.begin_turn(now_secs);
        self.steps += 1;
        let mut step = Step::default();
        self.handle.thread.adopt();
        self.end_grace_periods();
        self.open_bags();
        self.grow_table();
        step.busy |= self.expire(budget, &mut step);
        let store = self.handle.store();
        store.blocks.give_back(&store.budget);
        if store.chooses_eviction() {
            store.ghosts.fit(store.counters.total(Count::Items), &store.budget);
        }
        return_pages(store, PAGES_PER_STEP);
        self.reserve(now_secs);
        step.busy |= deleted::free_due(&self.handle.thread);
        step.busy |= self.mover.step(&self.handle.thread, budget);
        // A page that left a class has taken its free chunks with it.
        self.ahead.step(&self.handle.thread, budget);
        if self.steps.is_multiple_of(STEPS_PER_FITTING) {
            self.fitter.step(&self.handle.thread);
            self.shrinker.look(self.handle.store());
        }
        self.shrinker.step(self.handle.store());
        step.busy |= self.purge.step(&self.handle.thread, budget, &mut step);
        if self.steps.is_multiple_of(STEPS_PER_CLEANING) {
            self.clean_classes(budget, &mut step);
        }
        self.handle.rest();
        step
    }

    /// In a memory file: keeps some memory for bags and index, which stores cannot wait for, and
    /// checks once per second whether a full file system has room again.
    fn reserve(&mut self, now_secs: u32) {
        let store = self.handle.store();
        if std::mem::replace(&mut self.reserved_secs, now_secs) != now_secs {
            store.budget.forget_full();
        }
        let missing = store.blocks.reserve(&store.budget)
            + store.table.reserve(|wanted| linked::commit(store, wanted));
        store.budget.set_wanted(missing);
    }

    /// Ends grace periods, even if a thread is preempted outside a section.
    fn end_grace_periods(&mut self) {
        let thread = &self.handle.thread;
        thread.settle();
        if self.handle.store().qsbr.now() == self.epoch {
            // Since the last step, not all threads have been seen between turns.
            thread.force();
        }
        self.epoch = self.handle.store().qsbr.now();
    }

    fn open_bags(&self) {
        for class in 1..=self.handle.store().slabs.count() {
            open_if_full(&self.handle.thread, class);
            open_if_old(&self.handle.thread, class);
        }
    }

    fn grow_table(&self) {
        for _ in 0..SPLITS_PER_STEP {
            let guard = ReadGuard::open(&self.handle.thread);
            let grown = grow_table(self.handle.store());
            drop(guard);
            if !grown {
                break;
            }
        }
    }

    /// Frees the transient items whose second has come.
    fn expire(&self, budget: usize, step: &mut Step) -> bool {
        let (looked, freed) = transient::expire(&self.handle.thread, budget);
        step.checked += looked;
        step.reclaimed += freed;
        looked >= budget || transient::sift_notes(&self.handle.thread)
    }

    /// Continues cleaning, class by class, examining at most `budget` items.
    fn clean_classes(&mut self, budget: usize, step: &mut Step) {
        let store = Arc::clone(self.handle.store());
        let thread = &self.handle.thread;
        thread.settle();
        let mut left = budget;
        for _ in 0..store.slabs.count() {
            let done = clean(thread, self.class, left);
            thread.count(self.class, Count::CleanerChecked, (done.checked as u64).cast_signed());
            step.checked += done.checked;
            step.reclaimed += done.freed;
            left = left.saturating_sub(done.checked);
            if !done.has_ended || left == 0 {
                return;
            }
            self.class = self.class % store.slabs.count() + 1;
            if self.class == 1 {
                // Relaxed: a number for statistics.
                store.cleaner_rounds.fetch_add(1, Ordering::Relaxed);
            }
            thread.settle();
        }
    }
}
