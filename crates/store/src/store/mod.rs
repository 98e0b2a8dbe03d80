//! The store: the structures that all threads share, and their settings.
//!
//! [`Store`] has its methods in six files by subject: construction and settings here, `requests` to
//! the cleaner, `statistics` and `bag_walk`, joining in `handle`, opening and closing in
//! `restart::warm`. The last two need modules above this one.
//!
//! Relaxed is enough for the numbers of charged bytes and of opened bags: they guard nothing.

use crate::config::regions::Memory;
use crate::config::{Automove, Config, Layout, Policy};
use crate::error::{LimitError, StoreError};
use crate::expiry::deleted::Deleted;
use crate::expiry::invalidation::Invalidations;
use crate::expiry::transient::Transients;
use crate::lru::ghosts::Ghosts;
use crate::lru::recency::{FIRST_TICK, LAST_TICK, Tick};
use crate::lru::tuning::{EvictionSetting, Tuning};
use crate::lru::{BagList, Clocks};
use crate::namespaces::Counted;
use crate::slabs::balance_settings::Balance;
use crate::slabs::{ClassId, Slabs};
use crate::stats::Counters;
use crate::table::Table;
use arena::blocks::{Blocks, Position};
use arena::budget::Budget;
use arena::chunks::Arena;
use arena::control::Control;
use arena::qsbr::Qsbr;
use arena::region::Region;
use arena::retired::Orphans;
use arena::sync::{AtomicI64, AtomicU64, Ordering};
use arena::uniques;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use std::sync::Arc;

#[cfg(not(miri))]
use crate::file::MemoryFile;

pub(crate) mod bag_walk;
pub(crate) mod requests;
mod statistics;

use requests::Crawls;

/// Minimum number of pages that a lower limit leaves to items.
const PAGES_MIN: u64 = 16;

/// A cache's memory: items by key, within one limit.
#[derive(Debug)]
pub struct Store {
    pub(crate) arena: Arena,
    pub(crate) slabs: Slabs,
    pub(crate) blocks: Blocks,
    pub(crate) table: Table,
    pub(crate) qsbr: Qsbr,
    pub(crate) budget: Budget,
    pub(crate) counters: Counters,
    pub(crate) transients: Transients,
    pub(crate) balance: Balance,
    pub(crate) crawls: Crawls,
    pub(crate) lists: Vec<BagList>,
    control: Region<Control>,
    pub(crate) invalidations: Invalidations,
    pub(crate) deleted: Deleted,
    pub(crate) namespaces: Counted,
    /// The file that the regions are parts of.
    #[cfg(not(miri))]
    pub(crate) file: arena::sync::Mutex<Option<MemoryFile>>,
    #[cfg(not(miri))]
    pub(crate) layout: Layout,
    /// Items retired by threads that then went to sleep.
    pub(crate) orphans: Orphans,
    buffers: AtomicI64,
    fixed: AtomicU64,
    pub(crate) cleaner_rounds: AtomicU64,
    secrets: RapidSecrets,
    pub(crate) item_bytes_max: u64,
    pub(crate) evict: bool,
    pub(crate) tuning: Tuning,
    pub(crate) ghosts: Ghosts,
}

impl Store {
    /// Reserves memory for a store; hardly any of it is resident yet.
    ///
    /// # Errors
    ///
    /// A setting out of range, or the system's refusal to map the address space.
    pub fn new(config: Config) -> Result<Arc<Self>, StoreError> {
        let layout = Layout::new(&config)?;
        let memory = Memory::anonymous(&layout)?;
        let store = Self::over(&config, &layout, memory, config.seed)?;
        Ok(Arc::new(store))
    }

    /// An empty store in zeroed memory, or one that the caller is about to load.
    pub(crate) fn over(
        config: &Config,
        layout: &Layout,
        memory: Memory,
        seed: u64,
    ) -> Result<Self, StoreError> {
        let arena = Arena::new(memory.arena, memory.names);
        let slabs = Slabs::new(config, layout, memory.page_class, memory.page_cut);
        let table = Table::over(layout.table, memory.table)?;
        if config.huge_pages {
            arena.prefer_huge_pages();
            table.prefer_huge_pages();
        }
        if config.numa_interleave {
            arena.interleave().and_then(|()| table.interleave()).map_err(StoreError::Interleave)?;
        }
        let budget = Budget::new(config.memory_bytes);
        // Its first buckets already exist.
        let _ = budget.take(table.bytes() as u64, || true);
        memory.control[0].begin(FIRST_TICK, LAST_TICK);
        slabs.restore_fitted(&memory.control[0]);
        Ok(Self {
            arena,
            lists: (1..=slabs.count())
                .map(|class| BagList::new(class, clocks(&memory.control[0], class)))
                .collect(),
            counters: Counters::new(config.threads_max, slabs.count()),
            transients: Transients::new(config.transient_secs),
            balance: Balance::new(config.automove, config.automove_ratio_per_mille),
            crawls: Crawls::default(),
            slabs,
            blocks: Blocks::new(memory.blocks),
            table,
            qsbr: Qsbr::new(config.threads_max),
            budget,
            invalidations: Invalidations::over(memory.invalidations),
            control: memory.control,
            deleted: Deleted::new(),
            namespaces: Counted::default(),
            #[cfg(not(miri))]
            file: arena::sync::Mutex::new(None),
            #[cfg(not(miri))]
            layout: *layout,
            orphans: Orphans::new(Vec::new()),
            buffers: AtomicI64::new(0),
            fixed: AtomicU64::new(0),
            cleaner_rounds: AtomicU64::new(0),
            secrets: RapidSecrets::seed(seed),
            item_bytes_max: config.item_bytes_max,
            evict: config.evict,
            tuning: Tuning::new(config.policy),
            ghosts: Ghosts::new(layout.items_max)?,
        })
    }

    /// Hash of a key, for `Section`'s calls.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> u64 {
        rapidhash_v3_seeded(key, &self.secrets)
    }

    /// Charges bytes that connections hold, or returns them (negative). Never refuses: the cleaner
    /// shrinks the cache instead.
    pub fn charge_buffers(&self, delta: i64) {
        self.buffers.fetch_add(delta, Ordering::Relaxed);
        if delta >= 0 {
            self.budget.charge(delta.unsigned_abs());
        } else {
            self.budget.refund(delta.unsigned_abs());
        }
    }

    /// Changes the memory limit (`cache_memlimit`). If more is in use than allowed, the cleaner
    /// evicts until it fits.
    ///
    /// # Errors
    ///
    /// The limit cannot be kept, or not be used; it does not change.
    pub fn set_memory_limit(&self, bytes: u64) -> Result<(), LimitError> {
        let most = self.slabs.bytes_max();
        if bytes > most {
            return Err(LimitError::TooLarge { most });
        }
        let least = self.bytes_not_evictable();
        if bytes < least {
            return Err(LimitError::InUse { least });
        }
        self.budget.set_limit(bytes);
        Ok(())
    }

    /// Bytes in use that no eviction frees, and some room for items.
    fn bytes_not_evictable(&self) -> u64 {
        let pages = match self.evict {
            true => self.slabs.pages_in_use().min(PAGES_MIN),
            false => self.slabs.pages_in_use() - self.slabs.free_pages(),
        };
        let other = self.budget.used().saturating_sub(self.slabs.bytes());
        other + pages * self.slabs.page_bytes()
    }

    /// Remaining life, in seconds, up to which an item is freed in the second in which it expires;
    /// 0: no item is.
    #[must_use]
    pub fn transient_secs(&self) -> u32 {
        self.transients.threshold_secs()
    }

    /// Sets [`transient_secs`](Self::transient_secs) for items that are stored or touched from now
    /// on; at most [`TRANSIENT_SECS_MAX`](crate::TRANSIENT_SECS_MAX).
    pub fn set_transient_secs(&self, secs: u32) {
        self.transients.set_threshold_secs(secs);
    }

    #[inline]
    pub(crate) fn control(&self) -> &Control {
        &self.control[0]
    }

    /// Schedules one flush of everything at this second since the store's start; 0 cancels it. The
    /// schedule outlives the process together with the items. The caller polls
    /// [`claim_flush`](Self::claim_flush).
    pub fn schedule_flush(&self, at_secs: u32) {
        self.control().schedule_flush(at_secs);
    }

    /// `true` if a scheduled flush is due. One caller gets it, and does the flush by
    /// [`Handle::flush_scheduled`](crate::Handle::flush_scheduled).
    #[inline]
    #[must_use]
    pub fn claim_flush(&self, now_secs: u32) -> bool {
        self.control().claim_flush(now_secs)
    }

    /// Rule by which pages move between classes.
    #[must_use]
    pub fn automove(&self) -> Automove {
        self.balance.automove()
    }

    /// Sets the rule by which pages move between classes.
    pub fn set_automove(&self, automove: Automove) {
        self.balance.set_automove(automove);
    }

    /// Age of a class's next victim up to which the class gets pages, in thousandths of the oldest
    /// of the others'.
    #[must_use]
    pub fn automove_ratio_per_mille(&self) -> u32 {
        self.balance.ratio_per_mille()
    }

    /// Sets [`automove_ratio_per_mille`](Self::automove_ratio_per_mille).
    pub fn set_automove_ratio_per_mille(&self, ratio: u32) {
        self.balance.set_ratio_per_mille(ratio);
    }

    /// The order in which items are evicted.
    #[must_use]
    pub fn eviction(&self) -> EvictionSetting {
        self.tuning.get()
    }

    /// The policy of eviction.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.tuning.policy()
    }

    /// Sets the policy of eviction from now on: existing items stay in place.
    pub fn set_policy(&self, policy: Policy) {
        self.tuning.set_policy(policy);
    }

    /// `true` if each item gets a cas unique when it is stored. Without eviction there may be no
    /// memory to give it one later.
    #[inline]
    pub(crate) fn gives_all_cas(&self) -> bool {
        !self.evict
    }

    /// `true` if a cas unique that a client holds is older than the one that an item without one
    /// will get.
    #[must_use]
    pub fn is_older_cas(&self, held: u64) -> bool {
        uniques::is_older(&self.control().cas, held)
    }

    #[inline]
    pub(crate) fn is_strict_lru(&self) -> bool {
        self.policy() == Policy::Lru
    }

    /// `true` if newcomers are kept apart from others, and [`set_eviction`](Self::set_eviction) may
    /// choose the order.
    #[inline]
    #[must_use]
    pub fn chooses_eviction(&self) -> bool {
        self.policy() == Policy::Auto
    }

    /// Sets the order in which items are evicted from now on. Without [`Policy::Auto`] it stays
    /// that of an LRU.
    pub fn set_eviction(&self, setting: EvictionSetting) {
        self.tuning.set(setting);
    }

    /// Largest item, in bytes (`-I`).
    #[must_use]
    pub fn item_bytes_max(&self) -> u64 {
        self.item_bytes_max
    }

    /// Flushes and invalidations of a prefix so far.
    #[must_use]
    pub fn invalidations(&self) -> u64 {
        self.invalidations.count()
    }

    /// `true` if `key` was flushed, or a prefix of it invalidated, since
    /// [`invalidations`](Self::invalidations) was this number. Also `true` if that is too long ago
    /// to know: since then the store has had to forget an invalidation.
    #[must_use]
    pub fn invalidated_since(&self, key: &[u8], invalidations: u64) -> bool {
        self.invalidations.since(key, invalidations, |prefix| self.hash(prefix))
    }

    /// The number of the last flush that covers `key`: of everything, or of a prefix of the key; 0
    /// if there was none. An older number if the store has had to forget it.
    #[must_use]
    pub fn last_flush_of(&self, key: &[u8]) -> u64 {
        self.invalidations.last_of_key(key, |prefix| self.hash(prefix))
    }

    /// The number of the last flush of everything; 0 if there was none.
    #[must_use]
    pub fn last_flush(&self) -> u64 {
        self.invalidations.last_of_all()
    }

    /// Charges the bytes of a fixed structure outside the store that serves the cache.
    pub fn charge_fixed(&self, bytes: u64) {
        self.fixed.fetch_add(bytes, Ordering::Relaxed);
        self.budget.charge(bytes);
    }

    #[inline]
    pub(crate) fn list(&self, class: ClassId) -> &BagList {
        &self.lists[usize::from(class) - 1]
    }

    /// The list and the bag that own a slot. `None`: its block no longer belongs to a bag, so the
    /// item has left it.
    #[inline]
    pub(crate) fn bag_at(&self, position: Position) -> Option<(&BagList, u8)> {
        let (list, bag) = self.blocks.bag_at(position);
        Some((self.lists.get(usize::from(list).checked_sub(1)?)?, bag))
    }

    /// Bags that the class has opened.
    #[inline]
    pub(crate) fn tick(&self, class: ClassId) -> Tick {
        self.control().ticks[usize::from(class)].load(Ordering::Relaxed)
    }

    /// Bytes of all bags that were closed: the time by which classes are compared.
    pub(crate) fn turnover(&self) -> u64 {
        self.control().turnover.load(Ordering::Relaxed)
    }

    /// The counts that an opening of one of the class's bags advances.
    pub(crate) fn clocks(&self, class: ClassId) -> Clocks<'_> {
        clocks(self.control(), class)
    }

    /// Sets the counters (not the gauges) back to zero for readers (`stats reset`).
    pub fn reset_stats(&self) {
        self.counters.reset();
        self.namespaces.reset();
        self.slabs.reset_pages_moved();
        self.invalidations.reset_prefixes();
        // Relaxed, here and in the two above: numbers for people.
        self.cleaner_rounds.store(0, Ordering::Relaxed);
    }
}

fn clocks(control: &Control, class: ClassId) -> Clocks<'_> {
    Clocks { tick: &control.ticks[usize::from(class)], turnover: &control.turnover }
}
