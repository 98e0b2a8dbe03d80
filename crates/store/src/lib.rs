//! Items, memory and concurrency: arena, hash table, slabs, bags, reclamation. Knows items, not commands.
#![deny(unsafe_code)]
#![allow(dead_code, clippy::todo, missing_docs, missing_debug_implementations, unused_variables, clippy::missing_errors_doc, clippy::missing_panics_doc, reason = "skeleton")]

use std::rc::Rc;
use std::sync::Arc;
use std::marker::PhantomData;

/// Which item a store gives up when it needs memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy { /// The paper's bags.
    Bag, /// Strict per-class LRU: every hit moves the item, under a lock. For comparison.
    Lru }

/// How a store is built.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes that items, index, bags and charged buffers may use together (`-m`).
    pub memory_bytes: u64,
    /// Largest item: header, key and value, in bytes (`-I`).
    pub item_bytes_max: u64,
    /// Ratio of neighbouring chunk sizes (`-f`), over 1.0.
    pub growth_factor: f64,
    /// Smallest chunk's room for key and value, in bytes (`-n`).
    pub chunk_bytes_min: u32,
    /// `false` (`-M`): a full store refuses instead of evicting.
    pub evict: bool,
    pub policy: Policy,
    /// Striped locks of the table; a power of two.
    pub stripes: usize,
    pub huge_pages: bool,
    /// Threads that may use the store at one time, the cleaner included.
    pub participants_max: usize,
    /// Seed of the key hash.
    pub seed: u64,
}
impl Default for Config { fn default() -> Self { todo!() } }

#[derive(Debug)]
pub enum StoreError { Memory(std::io::Error), Config(&'static str) }

/// The shared store.
pub struct Store { x: u8 }

/// Where the memory limit goes, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemorySplit { pub limit: u64, pub arena: u64, pub index: u64, pub bags: u64, pub buffers: u64, /// header+key+value of linked items (memcached's `bytes`)
  pub items: u64 }

/// One slab class's numbers (`stats slabs`, `stats items`).
#[derive(Clone, Debug, Default)]
pub struct ClassStats { pub id: u8, pub chunk_bytes: u32, pub chunks_per_page: u32, pub pages: u64, pub chunks: u64, pub chunks_used: u64, pub chunks_free: u64,
  pub items: u64, pub bytes_requested: u64, /// seconds since last access of the oldest item
  pub oldest_age_secs: u32, pub evicted: u64, pub evicted_unfetched: u64, pub evicted_nonzero: u64, pub evicted_age_secs: u32, pub expired_unfetched: u64, pub reclaimed: u64, pub out_of_memory: u64, pub moves: u64,
  pub cleaner_reclaimed: u64, pub cleaner_checked: u64 }

/// One bag's numbers (`stats bags`), oldest first within a class.
#[derive(Clone, Debug, Default)]
pub struct BagStats { pub class: u8, pub sequence: u32, pub items: u32, pub slots: u32, pub opened_secs: u32, pub closed_secs: u32, /// "oldest", "closed", "alternate", "newest"
  pub role: &'static str }

/// Table facts (`hash_power_level`, `hash_bytes`).
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexStats { pub power_level: u32, pub bytes: u64, pub growing: bool, pub items: u64 }

/// Store-wide counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreStats { pub items: u64, pub items_total: u64, pub evictions: u64, pub evicted_unfetched: u64, pub expired_unfetched: u64, pub reclaimed: u64, pub slabs_moved: u64,
  pub direct_reclaims: u64, pub cleaner_rounds: u64, pub cleaner_reclaimed: u64, pub cleaner_checked: u64, pub bags_opened: u64, pub bags_merged: u64, pub items_reordered: u64 }

impl Store {
    pub fn new(config: Config) -> Result<Arc<Self>, StoreError> { todo!() }
    /// Joins the calling thread; `None` when `participants_max` threads are in.
    pub fn join(self: &Arc<Self>) -> Option<Participant> { todo!() }
    pub fn hash(&self, key: &[u8]) -> u64 { todo!() }
    /// Everything linked before this call is dead from now on (constant time; memory follows by the cleaner).
    pub fn flush(&self) { todo!() }
    /// Charges (or, negative, returns) bytes that connections hold. Never fails: the cleaner shrinks the cache to fit.
    pub fn charge_buffers(&self, delta: i64) { todo!() }
    /// `cache_memlimit`
    pub fn set_memory_limit(&self, bytes: u64) { todo!() }
    pub fn item_bytes_max(&self) -> u64 { todo!() }
    pub fn memory(&self) -> MemorySplit { todo!() }
    pub fn index(&self) -> IndexStats { todo!() }
    pub fn stats(&self) -> StoreStats { todo!() }
    pub fn class_stats(&self) -> Vec<ClassStats> { todo!() }
    pub fn bag_stats(&self) -> Vec<BagStats> { todo!() }
    /// Resets counters, not gauges (`stats reset`).
    pub fn reset_stats(&self) { todo!() }
}

/// What a new item is to be.
#[derive(Clone, Copy, Debug)]
pub struct NewItem<'k> { pub key: &'k [u8], pub flags: u32, /// Second of death since start; 0 = never.
  pub deadline: u32, pub value_len: usize, /// meta `b`: the key came as base64 and is echoed so
  pub base64_key: bool }

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftError { /// header+key+value over `-I`
  TooLarge, /// nothing (more) is evictable, or `-M`
  OutOfMemory }

/// One thread's membership. Not `Send`; cheap handle inside (`Rc`), drafts and pins keep it alive.
pub struct Participant { p: PhantomData<Rc<()>> }
impl Participant {
    /// Start of a turn: the thread is about to use the store; sets the clock (seconds since start).
    pub fn begin_turn(&self, now_secs: u32) { todo!() }
    pub fn now_secs(&self) -> u32 { todo!() }
    /// Between requests: announces that no reference is held. Panics (debug) inside a section.
    pub fn quiesce(&self) { todo!() }
    /// About to sleep.
    pub fn rest(&self) { todo!() }
    /// Memory for a new item, evicting if need be. Must not be called inside a section.
    pub fn draft(&self, new: NewItem<'_>) -> Result<Draft, DraftError> { todo!() }
    /// Enters a read section: references found stay valid until the guard is dropped. Free.
    pub fn section(&self) -> Section<'_> { todo!() }
    pub fn store(&self) -> &Arc<Store> { todo!() }
    /// Visits linked items page by page; returns false when the walk is complete. At most about `limit` items a call.
    pub fn walk(&self, cursor: &mut WalkCursor, limit: usize, visit: impl FnMut(&Item<'_>)) -> bool { todo!() }
    /// Called for each item evicted by this participant (for `watch evictions`); None removes it.
    pub fn on_evict(&self, observer: Option<Box<dyn Fn(&Item<'_>)>>) { todo!() }
}

/// Position of a walk over all items.
#[derive(Clone, Debug, Default)]
pub struct WalkCursor { /// Restrict to this class
  pub class: Option<u8>, page: usize, chunk: usize }

/// An item being written: owned, not yet visible. Dropping it returns its memory.
pub struct Draft { x: Rc<u8> }
impl Draft {
    /// Bytes of value still to be pushed.
    pub fn remaining(&self) -> usize { todo!() }
    /// Appends value bytes (at most `remaining`). Only a chained value can fail (memory is taken piece by piece).
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), DraftError> { todo!() }
}

/// A read section of one participant.
pub struct Section<'s> { p: PhantomData<&'s Participant> }
impl<'s> Section<'s> {
    /// First stage of a batch: fetches the table line of `hash`.
    pub fn prefetch_bucket(&self, hash: u64) { todo!() }
    /// Second stage: fetches the item lines that `hash` may mean.
    pub fn prefetch_item(&self, hash: u64) { todo!() }
    /// The linked item of this key, dead (expired, flushed) ones included: ask `Item::liveness`. Lock-free.
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<Item<'s>> { todo!() }
    /// Shows `decide` the key's present item (None: not linked) under the key's lock, and does what it says, atomically.
    /// `decide` must be short and must not block. Draft must be complete (remaining 0) and have this key.
    pub fn update(&self, hash: u64, key: &[u8], decide: impl FnOnce(Option<&Item<'_>>) -> Change) -> Applied { todo!() }
}

/// What to do with a key.
pub enum Change { /// Leave it (the closure may have called the item's setters).
  Keep, /// Link this draft in place of whatever is there. `cas`: explicit cas unique, else the store's next (always greater than the replaced item's).
  Put { draft: Draft, cas: Option<u64> }, /// Unlink it.
  Remove }
/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied { Kept, Stored { cas: u64 }, Removed, /// The index had no room: nothing changed.
  OutOfMemory }

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness { Live, Expired, Flushed }

/// A linked item (or one that was linked when found), valid within its section.
#[derive(Clone, Copy)]
pub struct Item<'s> { p: PhantomData<&'s ()> }
impl<'s> Item<'s> {
    pub fn liveness(&self) -> Liveness { todo!() }
    pub fn key(&self) -> &'s [u8] { todo!() }
    pub fn flags(&self) -> u32 { todo!() }
    pub fn cas(&self) -> u64 { todo!() }
    /// Second of death since start; 0 = never.
    pub fn deadline(&self) -> u32 { todo!() }
    pub fn value_len(&self) -> usize { todo!() }
    /// header + key + value, bytes
    pub fn total_bytes(&self) -> usize { todo!() }
    pub fn class(&self) -> u8 { todo!() }
    pub fn is_base64_key(&self) -> bool { todo!() }
    /// Read at least once since stored.
    pub fn is_fetched(&self) -> bool { todo!() }
    pub fn is_stale(&self) -> bool { todo!() }
    /// A recache win has been handed out.
    pub fn is_won(&self) -> bool { todo!() }
    pub fn idle_secs(&self) -> u32 { todo!() }
    /// Inline value; None for a chained one.
    pub fn inline_value(&self) -> Option<&'s [u8]> { todo!() }
    /// Calls `f` with each piece of the value in order (one piece if inline).
    pub fn for_each_piece(&self, f: impl FnMut(&'s [u8])) { todo!() }
    /// Keeps a chained value readable after the section, for as long as the pin lives. None: inline, or no more pins now.
    pub fn pin(&self) -> Option<Pin> { todo!() }
    /// Marks the item as used now: the recency mark, stored only if it would change. (`mg u` does not call it.)
    pub fn touch(&self) { todo!() }
    // Setters: only inside `update`'s closure.
    pub fn set_deadline(&self, deadline: u32) { todo!() }
    pub fn set_cas(&self, cas: u64) { todo!() }
    pub fn set_stale(&self, stale: bool) { todo!() }
    pub fn set_won(&self, won: bool) { todo!() }
    /// Fresh cas unique, greater than this item's (for `md I`).
    pub fn next_cas(&self) -> u64 { todo!() }
}

/// A chained value kept for sending.
pub struct Pin { x: Rc<u8> }
impl Pin {
    pub fn value_len(&self) -> usize { todo!() }
    /// The contiguous bytes from `offset` on (to the end of that piece); empty at the end.
    pub fn bytes_at(&self, offset: usize) -> &[u8] { todo!() }
}

/// The background work, as steps with a budget; run by one thread.
pub struct Cleaner { x: u8 }
/// What a step did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Step { /// Items looked at.
  pub checked: usize, pub reclaimed: usize, /// There is more to do now: call again soon.
  pub busy: bool }
impl Cleaner {
    pub fn new(store: &Arc<Store>) -> Option<Self> { todo!() }
    /// One round at `now_secs`: opens bags, grows the table, releases pages over the limit, and every Nth round cleans; looks at most at `budget` items.
    pub fn step(&mut self, now_secs: u32, budget: usize) -> Step { todo!() }
}
