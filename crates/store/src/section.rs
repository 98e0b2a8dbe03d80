//! Read sections: look keys up without a lock, and change them under their stripe.
//!
//! The Relaxed loads here are a prefetch hint, and words that only the holder of the stripe
//! changes, or that guard nothing.
#![allow(unsafe_code, reason = "on the unsafe list in ARCHITECTURE.md")]

use crate::draft::{Draft, DraftError};
use crate::expiry::invalidation::Births;
use crate::item::{Item, Liveness};
use crate::linked::{self, ReadGuard};
use crate::lru::{Part, recency};
use crate::reaping::deleted;
use crate::stats::Count;
use crate::store::Store;
use crate::table::{SlotHint, SlotRef, Wanted};
use crate::thread::ThreadState;
use arena::ChunkRef;
use arena::chunks::Shape;
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
/// The bytes of an item cannot, either:
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
        /// A cas unique that the client chose. `None`: the store's next, which is greater than the
        /// replaced item's. Only for a draft that has one ([`NewItem::has_cas`]).
        ///
        /// [`NewItem::has_cas`]: crate::NewItem::has_cas
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
        /// The new item's cas unique; 0 if it has none.
        cas: u64,
    },
    /// The item is gone.
    Removed,
    /// The index had no room, or the namespace has reached its byte quota: nothing changed.
    Refused(DraftError),
}

impl<'s> Section<'s> {
    #[inline(always)]
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

    /// First stage of a batch: fetches the table line of `hash`. Returns a hint for the next stage.
    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) -> SlotHint {
        self.store().table.prefetch(hash)
    }

    /// Second stage of a batch: fetches the lines of the items that `hash` may mean, by the first
    /// stage's hint. Returns a hint for the lookup.
    #[inline(always)]
    pub fn prefetch_item(&self, hash: u64, bucket: SlotHint) -> SlotHint {
        let arena = &self.store().arena;
        self.store().table.hint(hash, bucket, |chunk| arena.prefetch_item(chunk))
    }

    /// Third stage, for keys to be read: fetches the rest of a value of more than two lines, some
    /// keys before it is copied. The hint may be of an earlier section, so it is followed only if
    /// the item is still there: its chunk may have been freed, and its page recut.
    #[inline]
    pub fn prefetch_value(&self, hint: SlotHint) {
        if let Some(chunk) = self.store().table.at(hint) {
            self.store().arena.prefetch_rest(chunk);
        }
    }

    /// Third stage, for keys to be stored: fetches the line in which the replaced item's bag will
    /// change, or that of a new key's ghost. The hint must be from this section.
    #[inline]
    pub fn prefetch_replaced(&self, hash: u64, hint: SlotHint) {
        let store = self.store();
        if let Some(chunk) = hint.reference() {
            store.blocks.prefetch(store.arena.header(chunk).pos.load(Ordering::Relaxed));
        } else if store.chooses_eviction() {
            store.ghosts.prefetch(hash);
        }
    }

    /// Like [`find`](Self::find), but starts at the hint of [`prefetch_item`](Self::prefetch_item).
    #[inline(always)]
    #[must_use]
    pub fn find_from(&self, hint: SlotHint, hash: u64, key: &[u8]) -> Option<Item<'_>> {
        let hinted = self.store().table.at(hint).filter(|chunk| self.has_key(*chunk, key));
        let chunk = hinted.or_else(|| self.find_chunk(hash, key))?;
        // SAFETY: just read from a table slot inside this section.
        Some(unsafe { Item::found(self.thread(), chunk) })
    }

    /// The linked item of this key, dead or alive (see [`Item::liveness`]). Takes no lock and
    /// writes nothing.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<Item<'_>> {
        let chunk = self.find_chunk(hash, key)?;
        // SAFETY: just read from a table slot inside this section.
        Some(unsafe { Item::found(self.thread(), chunk) })
    }

    fn find_chunk(&self, hash: u64, key: &[u8]) -> Option<ChunkRef> {
        self.store().table.find(hash, |chunk| self.has_key(chunk, key))
    }

    #[inline]
    fn has_key(&self, chunk: ChunkRef, key: &[u8]) -> bool {
        // SAFETY: the table calls this with references just read from its slots, inside this
        // section.
        let item = unsafe { Item::found(self.thread(), chunk) };
        short::equal(item.key(), key)
    }

    /// Passes the key's present item to `decide` under the key's lock and makes the change that it
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

    /// Like [`update`](Self::update), but starts at the hint of
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
        let mut births = self.store().invalidations.births();
        let slot = locked.find_from(hint, |chunk| self.has_key(chunk, key));
        // SAFETY: just read from a table slot inside this section.
        let found = |slot: &SlotRef<'_>| unsafe { Item::found(self.thread(), slot.reference()) };
        let mut old = slot.as_ref().map(found);
        if let Some(item) = &mut old {
            births = item.judge(births);
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
                    // If stored again, it is no newcomer.
                    self.store().ghosts.note(hash);
                }
                let chunk = slot.reference();
                locked.remove(slot);
                linked::unlink(self.thread(), chunk);
                Applied::Removed
            }
            (Change::Put { draft, cas }, slot) => {
                let old = slot.as_ref().map(SlotRef::reference);
                if !linked::has_quota(self.thread(), draft.chunk(), old) {
                    return Applied::Refused(DraftError::OverQuota);
                }
                // A store of an existing key is a use.
                let part = if old.is_some() { Part::Proven } else { self.part_of_new(hash) };
                let Some((new, cas)) = self.prepare(draft, part, (cas, old), births) else {
                    return Applied::Refused(DraftError::OutOfMemory);
                };
                if let Some(slot) = slot {
                    // The key has an item: one store replaces it.
                    let old = slot.reference();
                    locked.replace(slot, new);
                    linked::unlink(self.thread(), old);
                    return Applied::Stored { cas };
                }
                // The key is new: it needs a slot.
                let commit = |wanted: Wanted<'_>| {
                    // The store cannot wait, so it asks the file system even if that was full.
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

    /// The cas unique of a linked item, 0 if it has none. The caller holds the key's stripe.
    fn cas_in(&self, chunk: ChunkRef) -> u64 {
        let arena = &self.store().arena;
        let has_cas = arena.header(chunk).shape().has(Shape::CAS);
        if has_cas { arena.long(arena.header(chunk)).load(Ordering::Relaxed) } else { 0 }
    }

    /// Makes a draft an item, not yet in the table: its chunk and its cas unique, 0 if it has none.
    /// `old` is the item that it replaces. The caller holds the key's stripe.
    #[inline(always)]
    fn prepare(
        &self,
        draft: Draft,
        part: Part,
        (chosen, old): (Option<u64>, Option<ChunkRef>),
        births: Births,
    ) -> Option<(ChunkRef, u64)> {
        let thread = self.thread();
        debug_assert!(draft.has_cas() || chosen.is_none(), "no room for a chosen cas unique");
        let (class, chunk) = (draft.class(), draft.into_chunk());
        let cas = || thread.cas_of_change(chosen, old.map(|old| self.cas_in(old)));
        let cas = linked::link(thread, class, chunk, part, cas, births, old)?;
        thread.count(class, Count::Linked, 1);
        Some((chunk, cas))
    }

    /// Replaces an item that has no cas unique with a copy that has one. `draft` is unfilled, and
    /// has room for it. `None` if the key's item is not as the draft expects; `Some(false)` if
    /// there is no memory for the item's bag. Nothing has changed then.
    ///
    /// The copy has the age, the marks and the deadline of the item, and its bytes do not count
    /// against a quota, because clients see the same item.
    pub(crate) fn give_cas(&self, hash: u64, key: &[u8], mut draft: Draft) -> Option<bool> {
        let (thread, store) = (self.thread(), self.store());
        let locked = store.table.lock(hash);
        let births = store.invalidations.births();
        let slot = locked.find_from(SlotHint::default(), |chunk| self.has_key(chunk, key))?;
        // SAFETY: just read from a table slot inside this section.
        let item = unsafe { Item::found(thread, slot.reference()) };
        // An item without a cas unique is inline, and so is its copy.
        let value = item.inline_value().filter(|value| value.len() == draft.remaining())?;
        if item.liveness() != Liveness::Live || item.has_cas() || !draft.has_facts_of(&item) {
            return None;
        }
        draft.push(value).ok()?;
        draft.set_deadline(item.deadline());
        draft.copy_marks(&item);
        let seen = item.header.recency.load(Ordering::Relaxed);
        let part = store.bag_at(item.header.pos.load(Ordering::Relaxed));
        let part = part.map_or(Part::Proven, |(list, bag)| list.bag(bag).part());
        let (class, new) = (draft.class(), draft.into_chunk());
        let cas = || thread.cas_of_change(None, Some(0));
        let old = slot.reference();
        if linked::link(thread, class, new, part, cas, births, Some(old)).is_none() {
            return Some(false);
        }
        recency::keep_second(&store.arena.header(new).recency, seen);
        locked.replace(slot, new);
        linked::unlink(thread, old);
        Some(true)
    }

    /// The queue for an item of a new key.
    #[inline]
    fn part_of_new(&self, hash: u64) -> Part {
        let store = self.store();
        let is_newcomer = store.chooses_eviction() && !store.ghosts.take(hash);
        if is_newcomer { Part::Newcomers } else { Part::Proven }
    }

    /// An insertion pays for its share of the table's growth: one split per ten insertions.
    fn help_growth(&self) {
        if self.store().table.wants_growth() {
            linked::grow_table(self.store());
        }
    }
}
