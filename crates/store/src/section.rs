//! Read sections: looking keys up without a lock, and changing them under their stripe.
//!
//! The Relaxed loads here are a hint for prefetching, and the replaced item's cas unique, which
//! only the holder of the stripe changes.
#![allow(unsafe_code, reason = "on the unsafe list in ARCHITECTURE.md")]

use crate::draft::{Draft, DraftError};
use crate::expiry::invalidation::Births;
use crate::item::Item;
use crate::linked::{self, ReadGuard};
use crate::lru::Part;
use crate::reaping::deleted;
use crate::store::Store;
use crate::table::{SlotHint, Wanted};
use crate::thread::ThreadState;
use arena::ChunkRef;
use arena::sync::Ordering;
use std::rc::Rc;

/// A read section of one thread. An item found in it stays valid until the section is dropped.
///
/// Items borrow the section, so none can be used after it, when another thread may write into its
/// memory:
///
/// ```compile_fail,E0597
/// # let store = store::Store::new(store::Config::default()).unwrap();
/// let handle = store.join().unwrap();
/// let item = {
///     let section = handle.section();
///     section.find(store.hash(b"k"), b"k")
/// };
/// handle.quiesce();
/// println!("{:?}", item.map(|item| item.key().len()));
/// ```
///
/// Nor can the bytes of an item:
///
/// ```compile_fail,E0505
/// # let store = store::Store::new(store::Config::default()).unwrap();
/// let handle = store.join().unwrap();
/// let section = handle.section();
/// let key = section.find(store.hash(b"k"), b"k").map(|item| item.key());
/// drop(section);
/// println!("{key:?}");
/// ```
pub struct Section<'s> {
    guard: ReadGuard<'s>,
}

impl std::fmt::Debug for Section<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Section").finish_non_exhaustive()
    }
}

/// Change of a key, as decided by a caller of [`Section::update`].
#[derive(Debug)]
pub enum Change {
    /// Leave it. The closure may have used the item's setters.
    Keep,
    /// Link this finished draft of the key, in place of the present item if there is one.
    Put {
        /// The new item.
        draft: Draft,
        /// A cas unique chosen by the client. `None`: the store's next, which is greater than the
        /// replaced item's.
        cas: Option<u64>,
    },
    /// Unlink it.
    Remove,
    /// Delete it, but keep it to be read as stale.
    RemoveSoon {
        /// The second from which it cannot be read at all.
        until: u32,
    },
}

/// Result of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Nothing.
    Kept,
    /// The draft is linked and has this cas unique.
    Stored {
        /// The new item's cas unique.
        cas: u64,
    },
    /// The item is gone.
    Removed,
    /// The index had no room, or the namespace has reached its byte quota: nothing changed.
    Refused(DraftError),
}

impl<'s> Section<'s> {
    #[inline]
    pub(crate) fn open(thread: &'s Rc<ThreadState>) -> Self {
        Self { guard: ReadGuard::open(thread) }
    }

    #[inline]
    fn thread(&self) -> &'s Rc<ThreadState> {
        self.guard.thread
    }

    #[inline]
    fn store(&self) -> &'s Store {
        &self.thread().store
    }

    /// First stage of a batch: fetches the table line of `hash`.
    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) {
        self.store().table.prefetch(hash);
    }

    /// Second stage of a batch: fetches the lines of the items that `hash` may mean. Returns a hint
    /// for the lookup.
    #[inline]
    pub fn prefetch_item(&self, hash: u64) -> SlotHint {
        let (table, arena) = (&self.store().table, &self.store().arena);
        let hint = table.hint(hash);
        match hint.reference() {
            Some(chunk) => arena.prefetch_item(chunk),
            None => table.candidates(hash, |chunk| arena.prefetch_item(chunk)),
        }
        hint
    }

    /// Third stage, for keys to be stored: fetches the line in which the replaced item's bag will
    /// change, or that of a new key's ghost.
    #[inline]
    pub fn prefetch_replaced(&self, hash: u64, hint: SlotHint) {
        let store = self.store();
        if let Some(chunk) = hint.reference() {
            store.blocks.prefetch(store.arena.header(chunk).pos.load(Ordering::Relaxed));
        } else if store.chooses_eviction() {
            store.ghosts.prefetch(hash);
        }
    }

    /// Like [`find`](Self::find), but begins at the hint of [`prefetch_item`](Self::prefetch_item).
    #[inline]
    #[must_use]
    pub fn find_from(&self, hint: SlotHint, hash: u64, key: &[u8]) -> Option<Item<'_>> {
        if let Some(chunk) = self.store().table.at(hint) {
            // SAFETY: just read from a table slot inside this section.
            let item = unsafe { Item::found(self.thread(), chunk) };
            if item.key() == key {
                return Some(item);
            }
        }
        self.find(hash, key)
    }

    /// The linked item of this key, dead or alive (see [`Item::liveness`]). Takes no lock and
    /// writes nothing.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<Item<'_>> {
        let chunk = self.store().table.find(hash, |chunk| self.has_key(chunk, key))?;
        // SAFETY: just read from a table slot inside this section.
        Some(unsafe { Item::found(self.thread(), chunk) })
    }

    #[inline]
    fn has_key(&self, chunk: ChunkRef, key: &[u8]) -> bool {
        // SAFETY: the table calls this with references just read from its slots, inside this
        // section.
        let item = unsafe { Item::found(self.thread(), chunk) };
        item.key() == key
    }

    /// Shows `decide` the key's present item under the key's lock and makes the change that it
    /// returns. Other threads see this as one step. `decide` should be short: it runs under the
    /// stripe's lock.
    ///
    /// # Panics
    ///
    /// If the draft of [`Change::Put`] is unfinished.
    pub fn update(
        &self,
        hash: u64,
        key: &[u8],
        decide: impl FnOnce(Option<&Item<'_>>) -> Change,
    ) -> Applied {
        self.update_from(SlotHint::default(), hash, key, decide)
    }

    /// Like [`update`](Self::update), but begins at the hint of
    /// [`prefetch_item`](Self::prefetch_item).
    ///
    /// # Panics
    ///
    /// If the draft of [`Change::Put`] is unfinished.
    pub fn update_from(
        &self,
        hint: SlotHint,
        hash: u64,
        key: &[u8],
        decide: impl FnOnce(Option<&Item<'_>>) -> Change,
    ) -> Applied {
        let mut locked = self.store().table.lock(hash);
        let births = self.store().invalidations.births();
        let slot = locked.find_from(hint, |chunk| self.has_key(chunk, key));
        // SAFETY: just read from a table slot inside this section.
        let old = slot.as_ref().map(|slot| unsafe { Item::found(self.thread(), slot.reference()) });
        if let Some(item) = &old {
            // If it is unlinked below, its bag slot's line is written.
            self.store().blocks.prefetch(item.header.pos.load(Ordering::Relaxed));
        }
        match (decide(old.as_ref()), slot) {
            (Change::Keep, _) | (Change::Remove | Change::RemoveSoon { .. }, None) => Applied::Kept,
            (Change::RemoveSoon { until }, Some(slot))
                if deleted::keep(self.thread(), slot.reference(), until) =>
            {
                Applied::Removed
            }
            // Removed at once, or no room among the deleted items.
            (Change::Remove | Change::RemoveSoon { .. }, Some(slot)) => {
                if old.as_ref().is_some_and(Item::is_fetched) && self.store().chooses_eviction() {
                    // Stored again, it is no newcomer.
                    self.store().ghosts.note(hash);
                }
                let chunk = slot.reference();
                locked.remove(slot);
                linked::unlink(self.thread(), chunk);
                Applied::Removed
            }
            // The key has an item: one store replaces it.
            (Change::Put { draft, cas }, Some(slot)) => {
                let old = slot.reference();
                if !linked::has_quota(self.thread(), draft.chunk(), Some(old)) {
                    return Applied::Refused(DraftError::OverQuota);
                }
                let replaced = self.store().arena.header(old).cas.load(Ordering::Relaxed);
                // A store of a key that is there is a use.
                let part = Part::Proven;
                let Some((new, cas)) = self.prepare(draft, part, (cas, replaced), births) else {
                    return Applied::Refused(DraftError::OutOfMemory);
                };
                locked.replace(slot, new);
                linked::unlink(self.thread(), old);
                Applied::Stored { cas }
            }
            // The key is new: it needs a slot.
            (Change::Put { draft, cas }, None) => {
                if !linked::has_quota(self.thread(), draft.chunk(), None) {
                    return Applied::Refused(DraftError::OverQuota);
                }
                let part = self.part_of_new(hash);
                let Some((new, cas)) = self.prepare(draft, part, (cas, 0), births) else {
                    return Applied::Refused(DraftError::OutOfMemory);
                };
                let commit = |wanted: Wanted<'_>| {
                    // The store cannot wait: the file system is asked, even if it was full.
                    self.store().budget.forget_full();
                    linked::commit(self.store(), wanted)
                };
                if !locked.insert(new, commit) {
                    // No overflow bucket: the item leaves its bag again.
                    linked::unlink(self.thread(), new);
                    return Applied::Refused(DraftError::OutOfMemory);
                }
                // A split takes the lock of another stripe.
                drop(locked);
                self.help_growth();
                Applied::Stored { cas }
            }
        }
    }

    /// Makes an item of a draft, not yet in the table: its chunk and its cas unique. `old` is the
    /// replaced item's cas unique. The caller holds the key's stripe.
    fn prepare(
        &self,
        draft: Draft,
        part: Part,
        (cas, old): (Option<u64>, u64),
        births: Births,
    ) -> Option<(ChunkRef, u64)> {
        let cas = cas.unwrap_or_else(|| self.thread().next_cas(old));
        let chunk = draft.into_chunk();
        linked::link(self.thread(), chunk, part, cas, births)?;
        Some((chunk, cas))
    }

    /// The queue for an item whose key is not there.
    #[inline]
    fn part_of_new(&self, hash: u64) -> Part {
        let store = self.store();
        let is_newcomer = store.chooses_eviction() && !store.ghosts.take(hash);
        if is_newcomer { Part::Newcomers } else { Part::Proven }
    }

    /// An insertion pays for its share of the table's growth: one split for eight insertions.
    fn help_growth(&self) {
        if self.store().table.wants_growth() {
            linked::grow_table(self.store());
        }
    }
}
