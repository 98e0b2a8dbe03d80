//! The cleaner's rounds over a class: they free dead items, reorder touched ones and merge sparse
//! bags.

use super::scan::{ScanMode, judge, next_batch, next_item};
use crate::linked::{ReadGuard, Verdict, hash_of, with_linked};
use crate::lru::recency;
use crate::lru::{BAGS, BagList, Cursor, Order, Part};
use crate::slabs::ClassId;
use crate::stats::Count;
use crate::thread::ThreadState;
use arena::blocks::Purpose;
use arena::sync::Ordering;
use std::rc::Rc;

/// Items cleaned under one order lock, which bounds the wait of a store that needs memory.
const ITEMS_PER_LOCK: usize = 32;

/// Result of one step of cleaning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cleaned {
    /// Items examined.
    pub checked: usize,
    /// Items freed.
    pub freed: usize,
    /// The pass has reached the newest closed bag.
    pub has_ended: bool,
}

/// Continues cleaning where the last call stopped, examining at most `budget` items.
pub(crate) fn clean(thread: &Rc<ThreadState>, class: ClassId, budget: usize) -> Cleaned {
    let list = thread.store.list(class);
    let mut done = Cleaned::default();
    while done.checked < budget {
        let mut order = list.order.lock();
        let Some(bag) = bag_to_clean(thread, list, &mut order) else {
            done.has_ended = true;
            return done;
        };
        let _guard = ReadGuard::open(thread);
        let mut at = order.clean;
        let end = (done.checked + ITEMS_PER_LOCK).min(budget);
        let mut bag_ended = false;
        while done.checked < end && !bag_ended {
            let batch = next_batch(thread, list.bag(bag), &mut at, end - done.checked);
            for &item in batch.as_slice() {
                let freed = judge(thread, &order, list, bag, item, ScanMode::Clean);
                done.freed += usize::from(freed);
            }
            done.checked += batch.len();
            bag_ended = batch.len() == 0;
        }
        order.clean = at;
        if bag_ended {
            done.checked += leave_bag(thread, list, &mut order, bag);
        }
    }
    done
}

/// The bag that the cleaner is in, or else the oldest of the newcomers. `None` if no more bags may
/// be passed: the round is over.
fn bag_to_clean(thread: &ThreadState, list: &BagList, order: &mut Order) -> Option<u8> {
    if order.clean_bag.is_none() {
        let first = oldest_of(order, Part::Newcomers);
        come_to_bag(thread, list, order, first);
    }
    loop {
        let bag = order.clean_bag?;
        if !list.is_newest(bag) && list.bag(bag).is_settled(&thread.store.qsbr) {
            return Some(bag);
        }
        // The end of this queue. Newcomers come before proven items.
        let next = match list.bag(bag).part() {
            Part::Newcomers => oldest_of(order, Part::Proven),
            Part::Proven => None,
        };
        come_to_bag(thread, list, order, next);
    }
}

fn oldest_of(order: &Order, part: Part) -> Option<u8> {
    order.of(part).bags.front().copied()
}

/// Places the cleaner before the first item of a bag.
fn come_to_bag(thread: &ThreadState, list: &BagList, order: &mut Order, bag: Option<u8>) {
    order.clean_bag = bag;
    order.clean = Cursor::default();
    order.merge = None;
    order.clean_since = thread.store.tick(list.id());
}

/// Continues with the next newer bag, once the passed one needs no merge or is merged. Returns the
/// number of items moved.
fn leave_bag(thread: &Rc<ThreadState>, list: &BagList, order: &mut Order, bag: u8) -> usize {
    let blocks = &thread.store.blocks;
    list.bag(bag).set_passed(order.clean_since);
    let bags = &order.of(list.bag(bag).part()).bags;
    let place = bags.iter().position(|&other| other == bag);
    let next = place.and_then(|place| bags.get(place + 1).copied());
    // The newest bags are left to the workers' appends, so nothing is merged into them.
    let into = next.filter(|&next| !list.is_newest(next));
    let moved = match into {
        Some(into) if order.merge.is_some() || is_sparse(thread, list, order, bag) => {
            merge(thread, list, order, bag, into)
        }
        _ => {
            order.merge = None;
            0
        }
    };
    if order.merge.is_none() {
        // Not empty where it was not merged, or an item could not be moved.
        if list.bag(bag).is_empty_from(blocks, Cursor::default()) {
            list.free(order, blocks, bag);
        }
        come_to_bag(thread, list, order, next);
    }
    moved
}

/// `true` if a bag is worth merging: if less than a quarter of its slots hold an item, or less than
/// half or three quarters while so much of all blocks is in use.
fn is_sparse(thread: &ThreadState, list: &BagList, order: &Order, bag: u8) -> bool {
    let blocks = &thread.store.blocks;
    let (items, slots) = (list.bag(bag).items(blocks), list.bag(bag).slots(blocks));
    let quarters = u64::from(items) * 4 < u64::from(slots) * blocks.quarters_in_use().clamp(1, 3);
    let least = thread.store.slabs.class(list.id()).used() / 128;
    // With few numbers left, any bag is worth merging.
    let crowded = order.bags().count() > BAGS * 3 / 4;
    let is_sparse = quarters || u64::from(items) < least || crowded;
    is_sparse && items > 0 && blocks.has_room_to_merge(items)
}

/// Moves some items of a bag into the next newer one, and notes in `order` where to continue. They
/// keep their order. A touched item keeps its mark, and counts as touched there if it was used
/// after that bag's closing.
fn merge(thread: &Rc<ThreadState>, list: &BagList, order: &mut Order, bag: u8, into: u8) -> usize {
    let store = &*thread.store;
    let mut at = order.merge.take().unwrap_or_default();
    for moved in 0..ITEMS_PER_LOCK {
        let Some((chunk, after)) = next_item(thread, list.bag(bag), at) else {
            thread.count(list.id(), Count::BagsMerged, 1);
            return moved;
        };
        at = after;
        with_linked(thread, chunk, hash_of(store, chunk), |item| {
            // Relaxed: a mark guards nothing.
            let mark = recency::mark_of(item.header.recency.load(Ordering::Relaxed));
            let touched = list.bag(bag).touched_tick(mark, item.tick());
            let keeps_mark = touched.is_some();
            Verdict::Move { bag: into, keeps_mark, purpose: Purpose::Merge }
        });
    }
    order.merge = Some(at);
    ITEMS_PER_LOCK
}
