//! Walks over all linked items, page by page, in steps: for dumps, purges and crawls.

use crate::item::{Item, Liveness};
use crate::linked::{ReadGuard, Verdict, hash_of, with_linked};
use crate::stats::Count;
use crate::thread::ThreadState;
use arena::ChunkRef;
use std::rc::Rc;

/// Position of a walk over all items. An item that stays linked during the whole walk is visited
/// exactly once, unless the cleaner moves it to another page in that time: then it may be visited
/// twice or not at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct WalkCursor {
    /// Visit only this slab class.
    pub class: Option<u8>,
    page: usize,
    chunk: usize,
}

/// Result of one step of a walk that frees items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaped {
    /// Items examined.
    pub checked: u64,
    /// There are more chunks to examine.
    pub has_more: bool,
}

/// Visits the next linked items, about `limit` chunks' worth. `false` when the walk is complete.
pub(crate) fn walk(
    thread: &Rc<ThreadState>,
    cursor: &mut WalkCursor,
    limit: usize,
    mut visit: impl FnMut(&Item<'_>),
) -> bool {
    let store = &*thread.store;
    let guard = ReadGuard::open(thread);
    let mut looked = 0;
    while cursor.page < store.slabs.pages_touched() {
        let class = store.slabs.page_class(cursor.page);
        let wanted = class != 0 && cursor.class.is_none_or(|only| only == class);
        let cut = if wanted { store.slabs.cut_chunks(cursor.page) } else { 0 };
        while cursor.chunk < cut {
            if looked >= limit {
                return true;
            }
            let chunk_bytes = store.slabs.class(class).chunk_bytes();
            let chunk = store.arena.chunk(cursor.page, cursor.chunk, chunk_bytes);
            cursor.chunk += 1;
            looked += 1;
            // Unless the page left the class before the item was found, it keeps it for this
            // section.
            if let Some(item) = guard.linked(chunk)
                && store.slabs.page_class(cursor.page) == class
            {
                visit(&item);
            }
        }
        (cursor.page, cursor.chunk) = (cursor.page + 1, 0);
    }
    false
}

/// Frees dead items, and those that `keep` rejects, about `limit` chunks' worth. `keep` is called
/// for each.
pub(crate) fn reap(
    thread: &Rc<ThreadState>,
    cursor: &mut WalkCursor,
    limit: usize,
    keep: impl Fn(&Item<'_>) -> bool,
) -> Reaped {
    let (mut dead, mut checked) = (Vec::new(), 0);
    // Items come class by class, so a class is counted when the next one begins.
    let (mut class, mut of_class) = (0, 0);
    let has_more = walk(thread, cursor, limit, |item| {
        if item.class() != class {
            thread.count(class, Count::CleanerChecked, of_class);
            (class, of_class) = (item.class(), 0);
        }
        of_class += 1;
        checked += 1;
        let is_dead = !matches!(item.liveness(), Liveness::Live | Liveness::Deleted);
        // Also for dead items: an expired item may be touched before it is checked again, by a
        // thread whose second has not ended, and then it stays.
        let is_kept = keep(item);
        if is_dead || !is_kept {
            dead.push((item.chunk, item.class()));
        }
    });
    thread.count(class, Count::CleanerChecked, of_class);
    let guard = ReadGuard::open(thread);
    for (chunk, class) in dead {
        if free_dead(&guard, chunk) {
            thread.count(class, Count::Reclaimed, 1);
            thread.count(class, Count::CleanerReclaimed, 1);
        }
    }
    drop(guard);
    thread.settle();
    Reaped { checked, has_more }
}

/// Frees the item in a chunk if it is dead.
fn free_dead(guard: &ReadGuard<'_>, chunk: ChunkRef) -> bool {
    // Checked again: the section in which it was found has ended, and its page may be another
    // class's by now.
    if guard.noted(chunk).is_none() {
        return false;
    }
    let hash = hash_of(&guard.thread.store, chunk);
    let verdict = with_linked(guard.thread, chunk, hash, |item| match item.liveness() {
        Liveness::Live | Liveness::Deleted => Verdict::Stay,
        Liveness::Expired | Liveness::Flushed | Liveness::Gone => Verdict::Remove,
    });
    verdict == Some(Verdict::Remove)
}
