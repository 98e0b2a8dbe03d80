//! Scanning a bag: reads its items in batches and judges each.

use crate::item::{Item, Liveness};
use crate::linked::{Verdict, count_in_namespace, hash_of, with_linked};
use crate::lru::ghosts::Ghosts;
use crate::lru::recency::{self, Tick};
use crate::lru::{Bag, BagList, Cursor, Order, Part};
use crate::namespaces::Row;
use crate::slabs::ClassId;
use crate::stats::Count;
use crate::thread::ThreadState;
use arena::ChunkRef;
use arena::blocks::{Purpose, SLOTS};
use arena::sync::Ordering;
use std::rc::Rc;

/// Slots ahead of which item headers are fetched.
const AHEAD: u32 = 6;
/// Items judged together.
const BATCH: usize = 8;

/// Some items of a bag, with the hashes of their keys.
pub(crate) struct ItemBatch {
    items: [(ChunkRef, u64); BATCH],
    len: usize,
}

impl ItemBatch {
    pub(crate) fn as_slice(&self) -> &[(ChunkRef, u64)] {
        &self.items[..self.len]
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Fetches the lines in which the ghosts of the items will be noted: a store that waits for its
    /// line delays the next lock.
    #[inline]
    pub(crate) fn prefetch_ghosts(&self, ghosts: &Ghosts) {
        self.as_slice().iter().for_each(|&(_, hash)| ghosts.prefetch(hash));
    }
}

/// The purpose of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanMode {
    /// Memory is needed: untouched items are evicted.
    Evict,
    /// Memory is needed, and too many touched items were met: any item is evicted.
    EvictAny,
    /// Only dead items are freed, and touched ones are reordered.
    Clean,
}

/// The next item at or after `cursor`, holes skipped, and the cursor after it. The caller is in a
/// section.
#[inline]
pub(crate) fn next_item(
    thread: &ThreadState,
    bag: &Bag,
    mut cursor: Cursor,
) -> Option<(ChunkRef, Cursor)> {
    let (blocks, arena) = (&thread.store.blocks, &thread.store.arena);
    loop {
        let (position, after) = bag.step(blocks, cursor)?;
        cursor = after;
        if after.index + AHEAD <= SLOTS {
            let ahead = blocks.item(after.block, after.index + AHEAD - 1);
            if ahead != 0 {
                arena.prefetch(ahead);
            }
        }
        match blocks.item_at(position) {
            0 => {} // The item has left the bag.
            chunk => return Some((chunk, after)),
        }
    }
}

/// The next few items of a bag, at most `want`. Their table lines are fetched together, so that the
/// waits overlap.
#[inline]
pub(crate) fn next_batch(
    thread: &ThreadState,
    bag: &Bag,
    at: &mut Cursor,
    want: usize,
) -> ItemBatch {
    let mut batch = ItemBatch { items: [(0, 0); BATCH], len: 0 };
    while batch.len < want.min(BATCH)
        && let Some((chunk, after)) = next_item(thread, bag, *at)
    {
        *at = after;
        let hash = hash_of(&thread.store, chunk);
        thread.store.table.prefetch(hash);
        batch.items[batch.len] = (chunk, hash);
        batch.len += 1;
    }
    batch
}

/// Decides about one item of a settled bag; `true` if its memory will be freed. The caller holds
/// the list's order lock and is in a section.
#[inline]
pub(crate) fn judge(
    thread: &Rc<ThreadState>,
    order: &Order,
    list: &BagList,
    bag: u8,
    (chunk, hash): (ChunkRef, u64),
    mode: ScanMode,
) -> bool {
    let (class, of_bag) = (list.id(), list.bag(bag));
    let verdict = with_linked(thread, chunk, hash, |item| {
        match item.liveness() {
            Liveness::Live => {}
            // Still readable as stale, and its memory is not needed.
            Liveness::Deleted if mode == ScanMode::Clean => {}
            _ => {
                count_reclaimed(thread, class, item, mode);
                return Verdict::Remove;
            }
        }
        // Relaxed: a mark guards nothing.
        let seen = item.header.recency.load(Ordering::Relaxed);
        let now = thread.store.tick(class);
        let wanted = mode != ScanMode::Clean;
        let earned = used_since(of_bag, item, recency::mark_of(seen), now);
        // A used item has earned another round; the eviction of a pinned one would free no memory.
        let used = match earned {
            Some(used) if mode != ScanMode::EvictAny => Some(used),
            _ => (wanted && thread.store.arena.is_pinned(chunk)).then_some(now),
        };
        if let Some(used) = used {
            let (bag, keeps_mark) = list.destination(order, bag, used);
            let keeps_mark = keeps_mark && earned.is_some();
            return Verdict::Move { bag, keeps_mark, purpose: Purpose::Move };
        }
        // Live and untouched: kept, unless memory is needed and the store evicts.
        if !wanted || !thread.store.evict {
            recency::set_mark(&item.header.recency, seen, recency::UNUSED);
            return Verdict::Stay;
        }
        if of_bag.part() == Part::Newcomers {
            thread.store.ghosts.note(hash);
        }
        count_evicted(thread, class, item, item.idle_secs_in(Some((class, of_bag))));
        Verdict::Remove
    });
    verdict == Some(Verdict::Remove)
}

/// The tick at which an item of a closed bag was used, if that was after the closing. One use at
/// any time makes a newcomer a proven item.
#[inline]
fn used_since(bag: &Bag, item: &Item<'_>, mark: u16, now: Tick) -> Option<Tick> {
    bag.touched_tick(mark, now).or_else(|| {
        let is_proven = bag.part() == Part::Newcomers && item.is_fetched();
        is_proven.then(|| recency::tick_of(mark, now).unwrap_or_else(|| bag.opened_tick()))
    })
}

fn count_reclaimed(thread: &ThreadState, class: ClassId, item: &Item<'_>, mode: ScanMode) {
    thread.count(class, Count::Reclaimed, 1);
    if mode == ScanMode::Clean {
        thread.count(class, Count::CleanerReclaimed, 1);
    }
    if item.liveness() == Liveness::Expired && !item.is_fetched() {
        thread.count(class, Count::ExpiredUnfetched, 1);
    }
}

/// Counts an item that is about to be evicted this long after its last access, and shows it to the
/// thread's observer.
#[inline]
pub(crate) fn count_evicted(
    thread: &Rc<ThreadState>,
    class: ClassId,
    item: &Item<'_>,
    idle_secs: u32,
) {
    thread.count(class, Count::Evicted, 1);
    if !item.is_fetched() {
        thread.count(class, Count::EvictedUnfetched, 1);
    }
    if item.deadline() != 0 {
        thread.count(class, Count::EvictedNonzero, 1);
    }
    count_in_namespace(thread, item.chunk, Row::add_evicted);
    thread.set_count(class, Count::EvictedAge, u64::from(idle_secs));
    if let Some(observer) = &*thread.observer.borrow() {
        observer(thread, item.chunk);
    }
}
