//! Recently deleted items, kept for a short time to be read as stale.
//!
//! Such an item stays in its place in table and bag. A mark hides it from all readers except those
//! that ask for [`Liveness::Deleted`](crate::Liveness::Deleted). This queue holds these items in
//! the order of their deletion. The cleaner frees an item at the front when its time is up. A store
//! that needs memory frees it earlier.
//!
//! A queue entry may outlive its item, if the item was overwritten or evicted. Then the chunk that
//! it names holds no deleted item, and the entry is dropped.
//!
//! Relaxed is enough for the two numbers: they bound the queue, and a race between two deletes
//! exceeds the bound by at most one item.
//!
//! # Price
//!
//! One lock that all deletes share, eight bytes for each, and at most a sixteenth of the memory
//! limit in deleted items. An item that does not fit is freed at once.
//!
//! Source: Nishtala et al., "Scaling Memcache at Facebook" (NSDI 2013), section 3.2.1.

use arena::ChunkRef;
use arena::budget::Budget;
use arena::sync::{AtomicU64, Mutex, Ordering};
use std::collections::VecDeque;

#[cfg(not(miri))]
mod record;

/// Deleted items may hold one part in this many of the memory limit.
const SHARE: u64 = 16;
/// Bytes of that part for each place in the queue.
const BYTES_PER_PLACE: u64 = 64;
/// Items freed together.
pub(crate) const BATCH: usize = 64;

/// The queue, and the memory that its items hold.
#[derive(Debug)]
pub(crate) struct Deleted {
    queue: Mutex<VecDeque<Place>>,
    items: AtomicU64,
    bytes: AtomicU64,
}

/// A deleted item, and the second up to which it may be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub chunk: ChunkRef,
    pub until: u32,
}

impl Deleted {
    pub(crate) fn new() -> Self {
        Self {
            queue: Mutex::new(VecDeque::new()),
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Number of items kept, and their bytes.
    pub(crate) fn held(&self) -> (u64, u64) {
        (self.items.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Takes a place for an item of `bytes`; `false` if there is no room.
    pub(crate) fn enter(&self, budget: &Budget, place: Place, bytes: u64) -> bool {
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

    /// Counts a deleted item that is unlinked.
    pub(crate) fn leave(&self, bytes: u64) {
        self.items.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes the oldest places; with `due_at`, only those that are due at this second.
    pub(crate) fn take(&self, budget: &Budget, due_at: Option<u32>, into: &mut Vec<ChunkRef>) {
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
