//! Eviction by a storing thread: evicts the oldest items of one class to make room.

use super::scan::{ScanMode, judge, next_batch, next_item};
use crate::linked::ReadGuard;
use crate::lru::{BAGS_PER_TURNOVER, BagList, Cursor, Opening, Order, PARTS, Part};
use crate::slabs::ClassId;
use crate::stats::Count;
use crate::thread::ThreadState;
use std::rc::Rc;

/// Maximum number of items that one call moves or skips for each that it wants: the "first N items
/// of the bag" of the Bag LRU paper.
const LOOKS_PER_VICTIM: usize = 50;
/// Maximum number of items that one call examines for each that it wants: touched ones are evicted
/// by then, and the rest is pinned.
const LOOKS_MAX: usize = 4 * LOOKS_PER_VICTIM;

/// Evicts up to `want` items of the class, oldest first. Returns the number of items evicted or
/// reclaimed.
pub(crate) fn evict(thread: &Rc<ThreadState>, class: ClassId, want: usize) -> usize {
    let store = &*thread.store;
    let list = store.list(class);
    let mut order = list.order.lock();
    let (mut freed, mut looked) = (0, 0);
    while freed < want && looked <= want * LOOKS_MAX {
        let Some((part, bag)) = next_bag(thread, list, &mut order) else { break };
        let mode =
            if looked > want * LOOKS_PER_VICTIM { ScanMode::EvictAny } else { ScanMode::Evict };
        let _guard = ReadGuard::open(thread);
        let mut at = order.of(part).evict;
        let mut looks = 0;
        while freed < want && looks < LOOKS_PER_VICTIM {
            let batch = next_batch(thread, list.bag(bag), &mut at, want - freed);
            if part == Part::Newcomers {
                batch.prefetch_ghosts(&store.ghosts);
            }
            for &item in batch.as_slice() {
                freed += usize::from(judge(thread, &order, list, bag, item, mode));
            }
            looks += batch.len();
            if batch.len() == 0 {
                break;
            }
        }
        order.of_mut(part).evict = at;
        looked += looks;
        if next_item(thread, list.bag(bag), at).is_some() {
            continue;
        }
        // The end of the bag: its remaining items could not be moved, or must not be evicted.
        order.of_mut(part).evict = Cursor::default();
        if list.bag(bag).is_empty_from(&store.blocks, Cursor::default()) {
            list.free(&mut order, &store.blocks, bag);
        } else {
            // Another round over the same bag, which counts as looks so that the rounds end.
            looked += want * LOOKS_PER_VICTIM / 4;
        }
    }
    freed
}

/// The bag from which the class evicts next, and its queue: the queue with the older items.
/// Newcomers count as older than they are.
fn next_bag(thread: &ThreadState, list: &BagList, order: &mut Order) -> Option<(Part, u8)> {
    let store = &*thread.store;
    let now = store.turnover();
    let mut oldest = |part| oldest_settled(thread, list, order, part);
    let age_of = |part, bag: u8| {
        let age = now.saturating_sub(list.bag(bag).opened_at());
        store.tuning.age_of(part, age)
    };
    let both = PARTS.map(|part| oldest(part).map(|bag| (age_of(part, bag), part, bag)));
    let (_, part, bag) = both.into_iter().flatten().max_by_key(|&(age, ..)| age)?;
    Some((part, bag))
}

/// The oldest bag of a queue that is closed, past its grace period and not empty. Frees empty bags
/// before it, and opens a new bag if there is but one.
fn oldest_settled(
    thread: &ThreadState,
    list: &BagList,
    order: &mut Order,
    part: Part,
) -> Option<u8> {
    let (blocks, qsbr) = (&thread.store.blocks, &thread.store.qsbr);
    loop {
        let oldest = *order.of(part).bags.front()?;
        let bag = list.bag(oldest);
        let empty = bag.is_empty_from(blocks, order.of(part).evict);
        if oldest == list.newest(part) {
            // The only bag is open: close it, unless it has nothing to evict.
            if empty || !open_bag(thread, list, order) {
                return None;
            }
            continue;
        }
        if !bag.is_settled(qsbr) {
            thread.settle();
        }
        if !bag.is_settled(qsbr) {
            // Another thread's section keeps it: an appender may still use it.
            return None;
        }
        if !empty {
            return Some(oldest);
        }
        // Empty behind the cursor: items that could not be evicted may lie before it.
        order.of_mut(part).evict = Cursor::default();
        if !bag.is_empty_from(blocks, Cursor::default()) {
            return Some(oldest);
        }
        list.free(order, blocks, oldest);
    }
}

/// Closes the newest bag of a list and opens another. `false` if the list has no bag left, or the
/// cleaner must pass over it first.
fn open_bag(thread: &ThreadState, list: &BagList, order: &mut Order) -> bool {
    let store = &thread.store;
    let slots = |part| u64::from(list.bag(list.newest(part)).slots(&store.blocks));
    let closing: u64 = PARTS.into_iter().map(slots).sum();
    let bytes = closing * store.slabs.bytes_per_item(list.id());
    let clocks = store.clocks(list.id());
    let opening = Opening {
        now_secs: thread.now_secs(),
        closing_bytes: bytes,
        class_items: store.slabs.class(list.id()).used(),
        threads: store.slabs.threads_storing(),
    };
    let opened = list.open(order, &store.blocks, clocks, &store.qsbr, opening);
    if opened {
        thread.count(list.id(), Count::BagsOpened, 1);
    }
    opened
}

/// Opens a new bag where the newest is full, unless another thread is working on the list.
pub(crate) fn open_if_full(thread: &ThreadState, class: ClassId) {
    let store = &*thread.store;
    let list = store.list(class);
    let is_full = || list.newest_is_full(&store.blocks, store.slabs.class(class).used());
    if is_full()
        && let Some(mut order) = list.order.try_lock()
        && is_full()
    {
        open_bag(thread, list, &mut order);
    }
}

/// Opens a new bag where the newest is old, so that items read in a class without stores have
/// current marks. Only the cleaner does this.
pub(crate) fn open_if_old(thread: &ThreadState, class: ClassId) {
    let store = &*thread.store;
    let list = store.list(class);
    let newest = list.bag(list.newest(Part::Proven));
    let age = store.turnover().saturating_sub(newest.opened_at());
    if store.slabs.class(class).used() > 0
        && age > store.budget.limit() / BAGS_PER_TURNOVER
        && let Some(mut order) = list.order.try_lock()
    {
        open_bag(thread, list, &mut order);
    }
}
