//! Read sections: looking keys up without a lock, and changing them under their stripe.
#![allow(unsafe_code, reason = "on the unsafe list in ARCHITECTURE.md")]

use crate::draft::Draft;
use crate::item::Item;
use crate::memory::arena::{ChunkRef, Shape};
use crate::stats::Count;
use crate::store::Store;
use crate::sync::Ordering;
use crate::table::{SlotHint, Split};
use crate::thread::ThreadState;
use std::rc::Rc;

/// A read section of one thread. What is found in it stays valid until it is dropped.
pub struct Section<'s> {
    thread: &'s Rc<ThreadState>,
}

impl std::fmt::Debug for Section<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Section").finish_non_exhaustive()
    }
}

/// What to do with a key.
#[derive(Debug)]
pub enum Change {
    /// Leave it. The closure may have used the item's setters.
    Keep,
    /// Link this finished draft of the same key in place of whatever is there. `cas`: the cas unique to give it, else the
    /// store's next, which is greater than the replaced item's.
    Put {
        /// The new item.
        draft: Draft,
        /// A cas unique chosen by the client.
        cas: Option<u64>,
    },
    /// Unlink it.
    Remove,
    /// Unlink it as far as `Liveness::Live` goes, but keep it to be read as stale.
    RemoveSoon {
        /// The second from which it is gone altogether.
        until: u32,
    },
}

/// What was done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Nothing.
    Kept,
    /// The draft is linked and has this cas unique.
    Stored {
        /// The new item's.
        cas: u64,
    },
    /// The item is gone.
    Removed,
    /// The index had no room: nothing changed.
    OutOfMemory,
}

impl<'s> Section<'s> {
    #[inline]
    pub(crate) fn open(thread: &'s Rc<ThreadState>) -> Self {
        thread.depth.set(thread.depth.get() + 1);
        thread.wake();
        Self { thread }
    }

    fn store(&self) -> &'s Store {
        &self.thread.store
    }

    /// First stage of a batch: asks for the table line of `hash`.
    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) {
        self.store().table.prefetch(hash);
    }

    /// Second stage of a batch: asks for the lines of the items that `hash` may mean. Answers where a lookup can begin.
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

    /// Third stage, for keys that are to be stored: asks for the line in which the replaced item's bag is changed.
    #[inline]
    pub fn prefetch_replaced(&self, hint: SlotHint) {
        let store = self.store();
        if let Some(chunk) = hint.reference() {
            store.blocks.prefetch(store.arena.header(chunk).pos.load(Ordering::Relaxed));
        }
    }

    /// As [`Self::find`], beginning where [`Self::prefetch_item`] has seen the item.
    #[inline]
    #[must_use]
    pub fn find_from(&self, hint: SlotHint, hash: u64, key: &[u8]) -> Option<Item<'s>> {
        if let Some(chunk) = self.store().table.at(hint) {
            // SAFETY: just read from a table slot inside this section.
            let item = unsafe { Item::found(self.thread, chunk) };
            if item.key() == key {
                return Some(item);
            }
        }
        self.find(hash, key)
    }

    /// The linked item of this key, whether it still counts or not (ask `Item::liveness`). Takes no lock and writes nothing.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<Item<'s>> {
        let chunk = self.store().table.find(hash, |chunk| self.has_key(chunk, key))?;
        // SAFETY: just read from a table slot inside this section.
        Some(unsafe { Item::found(self.thread, chunk) })
    }

    /// The item in `chunk`, if one is linked there.
    pub(crate) fn linked(&self, chunk: ChunkRef) -> Option<Item<'s>> {
        // Acquire: pairs with the Release by which a linked item got its position, so its bytes are visible.
        let position = self.store().arena.header(chunk).pos.load(Ordering::Acquire);
        // SAFETY: its position was not zero inside this section, so it is linked or in its grace period.
        (position != 0).then(|| unsafe { Item::found(self.thread, chunk) })
    }

    #[inline]
    fn has_key(&self, chunk: ChunkRef, key: &[u8]) -> bool {
        // SAFETY: the table calls this with references just read from its slots, inside this section.
        let item = unsafe { Item::found(self.thread, chunk) };
        item.key() == key
    }

    /// Shows `decide` the key's present item under the key's lock and does what it answers, all as one step for every
    /// other thread. `decide` is to be short: it holds the stripe.
    ///
    /// # Panics
    ///
    /// If a draft to be linked is unfinished.
    pub fn update(
        &self,
        hash: u64,
        key: &[u8],
        decide: impl FnOnce(Option<&Item<'_>>) -> Change,
    ) -> Applied {
        self.update_from(SlotHint::default(), hash, key, decide)
    }

    /// As [`Self::update`], beginning where [`Self::prefetch_item`] has seen the item.
    ///
    /// # Panics
    ///
    /// If a draft to be linked is unfinished.
    pub fn update_from(
        &self,
        hint: SlotHint,
        hash: u64,
        key: &[u8],
        decide: impl FnOnce(Option<&Item<'_>>) -> Change,
    ) -> Applied {
        let mut locked = self.store().table.lock(hash);
        let slot = locked.find_from(hint, |chunk| self.has_key(chunk, key));
        // SAFETY: just read from a table slot inside this section.
        let old = slot.as_ref().map(|slot| unsafe { Item::found(self.thread, slot.reference()) });
        if let Some(item) = &old {
            // If it is unlinked, its slot's line is wanted soon.
            self.store().blocks.prefetch(item.header.pos.load(Ordering::Relaxed));
        }
        match (decide(old.as_ref()), slot) {
            (Change::Keep, _) | (Change::Remove | Change::RemoveSoon { .. }, None) => Applied::Kept,
            (Change::RemoveSoon { until }, Some(slot))
                if self.thread.keep_deleted(slot.reference(), until) =>
            {
                Applied::Removed
            }
            (Change::Remove | Change::RemoveSoon { .. }, Some(slot)) => {
                let chunk = slot.reference();
                locked.remove(slot);
                self.thread.unlink(chunk);
                Applied::Removed
            }
            (Change::Put { draft, cas }, Some(slot)) => {
                let old = slot.reference();
                let replaced = self.store().arena.header(old).cas.load(Ordering::Relaxed);
                let Some((new, cas)) = self.thread.prepare(draft, cas, replaced) else {
                    return Applied::OutOfMemory;
                };
                locked.replace(slot, new);
                self.thread.unlink(old);
                Applied::Stored { cas }
            }
            (Change::Put { draft, cas }, None) => {
                let Some((new, cas)) = self.thread.prepare(draft, cas, 0) else {
                    return Applied::OutOfMemory;
                };
                let budget = &self.store().budget;
                let inserted = locked.insert(new, |bytes| {
                    budget.charge(bytes as u64);
                    true
                });
                if !inserted {
                    self.thread.unlink(new);
                    return Applied::OutOfMemory;
                }
                drop(locked);
                self.help_growth();
                Applied::Stored { cas }
            }
        }
    }

    /// An insertion pays for its share of the table's growth: one split for eight of them.
    fn help_growth(&self) {
        if self.store().table.wants_growth() {
            self.thread.grow_table();
        }
    }
}

impl Drop for Section<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.thread.store.is_strict_lru && self.thread.depth.get() == 1 {
            self.thread.move_touched();
        }
        self.thread.depth.set(self.thread.depth.get() - 1);
    }
}

/// What a pass does with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Stay,
    Remove,
    /// To this bag, with this mark.
    Move(u8, u16),
}

#[cfg(not(miri))]
impl Store {
    /// The key of an item that another process left, of this shape, which says that the key lies within its chunk. No one
    /// else uses the store.
    pub(crate) fn key_left(&self, chunk: ChunkRef, shape: Shape) -> &[u8] {
        // SAFETY: a chunk begins within the pages, and the slack behind them is longer than any key; nothing is written
        // before a thread has joined.
        unsafe { self.arena.bytes(chunk, shape.key_at(), shape.key_len()) }
    }
}

impl ThreadState {
    /// Splits one bucket. Inside a section.
    pub(crate) fn grow_table(&self) -> bool {
        let budget = &self.store.budget;
        let grant = |bytes: usize| {
            budget.charge(bytes as u64);
            true
        };
        self.store.table.split_one(|chunk| self.hash_of(chunk), grant) == Split::Done
    }

    /// Hash of the key of an item that is linked while the caller holds its stripe, or that was found in the caller's section.
    pub(crate) fn hash_of(&self, chunk: ChunkRef) -> u64 {
        let arena = &self.store.arena;
        let shape = arena.header(chunk).shape();
        // SAFETY: linked, or found within the caller's section, so the key does not change meanwhile.
        let key = unsafe { arena.bytes(chunk, shape.key_at(), shape.key_len()) };
        self.store.hash(key)
    }

    /// Makes a draft an item of the newest bag, not yet in the table. Under the key's stripe.
    fn prepare(&self, draft: Draft, cas: Option<u64>, old: u64) -> Option<(ChunkRef, u64)> {
        let store = &*self.store;
        let cas = cas.unwrap_or_else(|| self.next_cas(old));
        let chunk = draft.into_chunk();
        let header = store.arena.header(chunk);
        let shape = header.shape().with_generation(store.invalidations.generation());
        header.shape.store(shape.0, Ordering::Relaxed);
        header.cas.store(cas, Ordering::Relaxed);
        // Release: pairs with the Acquire of `Arena::head_of_piece`.
        header.recency.store(self.recency(), Ordering::Release);
        let class = store.slabs.class_of(&store.arena, chunk);
        let list = store.list(class);
        let Some(position) = list.append_newest(&store.blocks, &store.budget, chunk) else {
            self.free(chunk);
            return None;
        };
        // Release: pairs with the Acquire of whoever finds items by their position.
        header.pos.store(position, Ordering::Release);
        self.note_deadline(chunk, header.deadline.load(Ordering::Relaxed));
        self.count_linked(chunk, class, shape, 1);
        self.count(class, Count::Linked, 1);
        Some((chunk, cas))
    }

    fn count_linked(&self, chunk: ChunkRef, class: u8, shape: Shape, sign: i64) {
        let bytes = self.item_bytes(chunk, shape);
        self.count_items(class, sign, sign * i64::try_from(bytes).unwrap_or(0));
    }

    /// Header, key and value.
    pub(crate) fn item_bytes(&self, chunk: ChunkRef, shape: Shape) -> u64 {
        let value = if shape.has(Shape::CHAINED) {
            self.store
                .arena
                .word(chunk, crate::memory::arena::chain::VALUE_LEN)
                .load(Ordering::Relaxed)
        } else {
            0
        };
        (shape.key_at() + shape.key_len() + shape.inline_len()) as u64 + u64::from(value)
    }

    /// Takes an item that has left the table out of its bag and retires it. Under the key's stripe.
    pub(crate) fn unlink(&self, chunk: ChunkRef) {
        let store = &*self.store;
        let header = store.arena.header(chunk);
        let position = header.pos.load(Ordering::Relaxed);
        // Relaxed: a fence between here and the tag of `retire` orders the unlinking before the reuse.
        store.blocks.slot(position).store(0, Ordering::Relaxed);
        header.pos.store(0, Ordering::Relaxed);
        let class = store.slabs.class_of(&store.arena, chunk);
        let shape = header.shape();
        self.count_linked(chunk, class, shape, -1);
        self.note_unlinked(chunk, shape);
        self.retire(chunk);
    }

    /// Locks the key (of this hash) of an item found in this section, and does what `judge` says if it is still linked.
    /// Answers `None` if it is not.
    pub(crate) fn with_linked(
        self: &Rc<Self>,
        chunk: ChunkRef,
        hash: u64,
        judge: impl FnOnce(&Item<'_>) -> Verdict,
    ) -> Option<Verdict> {
        let locked = self.store.table.lock(hash);
        let slot = locked.find_ref(chunk)?;
        // SAFETY: linked, and the caller is inside a section.
        let item = unsafe { Item::found(self, chunk) };
        let verdict = judge(&item);
        match verdict {
            Verdict::Stay => {}
            Verdict::Remove => {
                locked.remove(slot);
                self.unlink(chunk);
            }
            Verdict::Move(bag, mark) => self.move_to(&item, bag, mark),
        }
        Some(verdict)
    }

    /// Moves a linked item to another bag of its class. Under its stripe.
    fn move_to(&self, item: &Item<'_>, bag: u8, mark: u16) {
        let store = &*self.store;
        let class = item.class();
        let list = store.list(class);
        let Some(to) = list.append(&store.blocks, &store.budget, bag, item.chunk) else { return };
        let from = item.header.pos.load(Ordering::Relaxed);
        store.blocks.slot(from).store(0, Ordering::Relaxed);
        item.header.pos.store(to, Ordering::Release);
        let recency = item.header.recency.load(Ordering::Relaxed);
        let marked = u32::from(mark) << 16 | recency & 0xffff;
        item.header.recency.store(marked, Ordering::Relaxed);
        self.count(class, Count::Moved, 1);
    }

    /// Strict LRU: the items touched in this section move to the newest end, in the order of their touches.
    fn move_touched(self: &Rc<Self>) {
        let touched = std::mem::take(&mut *self.touched.borrow_mut());
        for &chunk in &touched {
            let Some(locked) = self.store.table.try_lock(self.hash_of(chunk)) else { continue };
            if locked.find_ref(chunk).is_some() {
                // SAFETY: linked, and the section is still open.
                let item = unsafe { Item::found(self, chunk) };
                let newest = self.store.list(item.class()).newest();
                self.move_to(&item, newest, Self::mark_of(item.header));
            }
        }
        let mut kept = self.touched.borrow_mut();
        *kept = touched;
        kept.clear();
    }
}
