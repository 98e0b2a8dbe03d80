//! Keeps deleted items readable as stale, and frees them when their time is up, or earlier if
//! memory is needed.

use crate::expiry::deleted::{BATCH, Place};
use crate::item::{Item, Liveness};
use crate::linked::{ReadGuard, Verdict, count_in_namespace, hash_of, item_bytes, with_linked};
use crate::stats::Count;
use crate::thread::ThreadState;
use arena::ChunkRef;
use arena::chunks::Shape;
use arena::sync::Ordering;
use std::rc::Rc;

/// Marks a linked item as deleted, readable as stale until this second, or until its own deadline
/// if that is sooner. `false` if there is no room for more deleted items. The caller holds the
/// key's stripe.
pub(crate) fn keep(thread: &ThreadState, chunk: ChunkRef, until: u32) -> bool {
    let store = &*thread.store;
    let header = store.arena.header(chunk);
    let shape = header.shape();
    if shape.has(Shape::DELETED) {
        return true;
    }
    let bytes = item_bytes(store, header, shape);
    if !store.deleted.enter(&store.budget, Place { chunk, until }, bytes) {
        return false;
    }
    // An item has at most 1 GiB, so its size fits.
    count_in_namespace(thread, chunk, |row| row.add_items(-1, -bytes.cast_signed()));
    // Relaxed: the stripe is held, and the mark below publishes the deadline.
    let deadline = header.deadline.load(Ordering::Relaxed);
    let until = if deadline == 0 { until } else { until.min(deadline) };
    header.deadline.store(until, Ordering::Relaxed);
    // Release: partner of the Acquire in `Header::shape`; a reader of the mark sees its deadline.
    header.shape.fetch_or(Shape::DELETED, Ordering::Release);
    true
}

/// Frees the deleted items whose time is up. `true` if there may be more.
pub(crate) fn free_due(thread: &Rc<ThreadState>) -> bool {
    free_some(thread, Some(thread.now_secs())).1 == BATCH
}

/// Frees some of the items that were deleted longest ago. Returns their number.
pub(crate) fn free_oldest(thread: &Rc<ThreadState>) -> usize {
    loop {
        match free_some(thread, None) {
            (0, 1..) => {} // Places of items that are gone.
            (freed, _) => return freed,
        }
    }
}

/// Frees the items of some places. Returns the number of items freed, and of places.
fn free_some(thread: &Rc<ThreadState>, due_at: Option<u32>) -> (usize, usize) {
    let store = &*thread.store;
    let mut places = Vec::new();
    if store.deleted.held().0 > 0 || due_at.is_some() {
        store.deleted.take(&store.budget, due_at, &mut places);
    }
    let guard = ReadGuard::open(thread);
    let freed = places.iter().filter(|&&chunk| free_one(&guard, chunk, due_at)).count();
    (freed, places.len())
}

/// Frees the item in a chunk if it is still a deleted one, and due.
fn free_one(guard: &ReadGuard<'_>, chunk: ChunkRef, due_at: Option<u32>) -> bool {
    let Some(item) = guard.noted(chunk).filter(Item::is_deleted) else { return false };
    let thread = guard.thread;
    let class = item.class();
    let verdict = with_linked(thread, chunk, hash_of(&thread.store, chunk), |item| {
        let is_due = due_at.is_none() || item.liveness() != Liveness::Deleted;
        // Checked under the stripe: another item may be in the chunk by now.
        if item.is_deleted() && is_due { Verdict::Remove } else { Verdict::Stay }
    });
    let is_freed = verdict == Some(Verdict::Remove);
    thread.count(class, Count::Reclaimed, i64::from(is_freed));
    is_freed
}
