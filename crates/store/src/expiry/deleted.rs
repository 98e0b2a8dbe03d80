//! Recently deleted items, kept for a short time to be read as stale (seed 004, section 3.2.1).
//!
//! Such an item stays where it is, in table and bag, with a mark that hides it from all but [`Item::liveness`]'s
//! `Deleted`. Here is only the order in which they were deleted, so that they can be freed when their time is up, and first
//! of all when memory is wanted:
//!
//! ```text
//!     delete -> [mark, queue at the end] .. the cleaner frees the front when its time is up; a store that needs memory, before
//! ```
//!
//! A place in the queue may outlive its item (which was filled anew, or evicted); whoever comes to it sees that the chunk holds
//! no deleted item any more.
//!
//! # Price
//!
//! One lock that all deletes share, eight bytes for each, and at most a sixteenth of the memory limit in deleted items: what
//! does not fit is freed at once.

use crate::item::{Item, Liveness};
use crate::memory::arena::{ChunkRef, Shape};
use crate::memory::budget::Budget;
use crate::section::{Section, Verdict};
use crate::stats::Count;
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::thread::ThreadState;
use std::collections::VecDeque;
use std::rc::Rc;

#[cfg(not(miri))]
mod record;

/// Deleted items may hold this part of the memory limit.
const SHARE: u64 = 16;
/// One place in the queue for so many bytes of it, at the most.
const BYTES_PER_PLACE: u64 = 64;
/// Items freed in one go.
const BATCH: usize = 64;

/// The queue, and what its items hold.
#[derive(Debug)]
pub(crate) struct Deleted {
    queue: Mutex<VecDeque<Place>>,
    items: AtomicU64,
    bytes: AtomicU64,
}

/// A deleted item, and the second up to which it may be read.
#[derive(Clone, Copy, Debug)]
struct Place {
    chunk: ChunkRef,
    until: u32,
}

impl Deleted {
    pub(crate) fn new() -> Self {
        Self {
            queue: Mutex::new(VecDeque::new()),
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Items kept, and their bytes.
    pub(crate) fn held(&self) -> (u64, u64) {
        (self.items.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Takes a place for an item of so many bytes; false if there is no room.
    fn enter(&self, budget: &Budget, place: Place, bytes: u64) -> bool {
        let room = budget.limit() / SHARE;
        if self.bytes.load(Ordering::Relaxed) + bytes > room {
            return false;
        }
        let mut queue = self.queue.lock();
        if queue.len() as u64 >= room / BYTES_PER_PLACE {
            return false;
        }
        let before = queue.capacity();
        queue.push_back(place);
        let grown = queue.capacity() - before;
        budget.charge((grown * size_of::<Place>()) as u64);
        drop(queue);
        self.items.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    /// An item is unlinked, by whomever.
    fn leave(&self, bytes: u64) {
        self.items.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The oldest places; with `due_at`, only those whose time is up at this second.
    fn take(&self, budget: &Budget, due_at: Option<u32>, into: &mut Vec<ChunkRef>) {
        let mut queue = self.queue.lock();
        while into.len() < BATCH
            && let Some(place) = queue.front()
            && due_at.is_none_or(|now| place.until <= now)
        {
            into.push(place.chunk);
            queue.pop_front();
        }
        if queue.is_empty() && queue.capacity() > 0 {
            budget.refund((queue.capacity() * size_of::<Place>()) as u64);
            *queue = VecDeque::new();
        }
    }
}

impl ThreadState {
    /// Marks a linked item as deleted, to be readable as stale until this second, or until its own deadline if that is sooner.
    /// False if there is no room for more of them. Under the key's stripe.
    pub(crate) fn keep_deleted(&self, chunk: ChunkRef, until: u32) -> bool {
        let store = &*self.store;
        let header = store.arena.header(chunk);
        let shape = header.shape();
        if shape.has(Shape::DELETED) {
            return true;
        }
        let bytes = self.item_bytes(chunk, shape);
        if !store.deleted.enter(&store.budget, Place { chunk, until }, bytes) {
            return false;
        }
        let deadline = header.deadline.load(Ordering::Relaxed);
        let until = if deadline == 0 { until } else { until.min(deadline) };
        header.deadline.store(until, Ordering::Relaxed);
        // Release: who sees the mark sees the deadline that goes with it.
        header.shape.fetch_or(Shape::DELETED, Ordering::Release);
        true
    }

    /// A linked item is about to be unlinked. Under its stripe.
    pub(crate) fn note_unlinked(&self, chunk: ChunkRef, shape: Shape) {
        if shape.has(Shape::DELETED) {
            self.store.deleted.leave(self.item_bytes(chunk, shape));
        }
    }

    /// Frees the deleted items whose time is up. True if there may be more.
    pub(crate) fn free_due(self: &Rc<Self>) -> bool {
        self.free_deleted(Some(self.now_secs())).1 == BATCH
    }

    /// Frees some of the items that were deleted longest ago. Answers how many.
    pub(crate) fn free_oldest_deleted(self: &Rc<Self>) -> usize {
        loop {
            match self.free_deleted(None) {
                (0, 1..) => {} // Places of items that are gone.
                (freed, _) => return freed,
            }
        }
    }

    /// Frees the items of some places: how many, and of how many places.
    fn free_deleted(self: &Rc<Self>, due_at: Option<u32>) -> (usize, usize) {
        let store = &*self.store;
        let mut places = Vec::new();
        if store.deleted.held().0 > 0 || due_at.is_some() {
            store.deleted.take(&store.budget, due_at, &mut places);
        }
        let section = Section::open(self);
        let freed = places.iter().filter(|&&chunk| self.free_one(&section, chunk, due_at)).count();
        (freed, places.len())
    }

    fn free_one(
        self: &Rc<Self>,
        section: &Section<'_>,
        chunk: ChunkRef,
        due_at: Option<u32>,
    ) -> bool {
        let Some(item) = section.linked(chunk).filter(Item::is_deleted) else { return false };
        let class = item.class();
        let verdict = self.with_linked(chunk, self.hash_of(chunk), |item| {
            let is_due = due_at.is_none() || item.liveness() != Liveness::Deleted;
            if item.is_deleted() && is_due { Verdict::Remove } else { Verdict::Stay }
        });
        let is_freed = verdict == Some(Verdict::Remove);
        self.count(class, Count::Reclaimed, i64::from(is_freed));
        is_freed
    }
}
