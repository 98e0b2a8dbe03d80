//! The cleaner's rounds over a class: they free dead items, reorder touched ones and merge sparse
//! bags.

use super::scan::{ScanMode, judge, next_batch, next_item};
use crate::linked::{ReadGuard, Verdict, hash_of, with_linked};
use crate::lru::recency;
use crate::lru::{BAGS, BagList, Cursor, Order, Part};
use crate::slabs::ClassId;
use crate::stats::Count;
use crate::thread::ThreadState;
use arena::blocks::{Purpose, SLOTS};
use arena::sync::Ordering;
use narrow::to_u32;
use std::rc::Rc;

/// Items cleaned under one order lock, which bounds the wait of a store that needs memory.
const ITEMS_PER_LOCK: usize = 32;
/// Blocks of a bag compacted under one order lock, for the same reason.
pub(super) const BLOCKS_PER_LOCK: usize = 16;

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
        // The bag is being compacted: all its items have been examined.
        let mut bag_ended = order.uncompacted > 0;
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
    order.clean_since = thread.store.tick(list.id());
    order.uncompacted = 0;
}

/// Continues with the next newer bag. Frees the previous bag if it is empty, and merges it into the
/// next if it is sparse. While blocks are short, it first compacts the bag, some blocks with each
/// call. Returns the number of items moved.
fn leave_bag(thread: &Rc<ThreadState>, list: &BagList, order: &mut Order, bag: u8) -> usize {
    let blocks = &thread.store.blocks;
    let next = next_of(list, order, bag);
    if order.uncompacted > 0 {
        return compact_on(thread, list, order, bag, next);
    }
    list.bag(bag).set_passed(order.clean_since);
    let items = list.bag(bag).items(blocks);
    let mut moved = 0;
    if items == 0 {
        list.free(order, blocks, bag);
    } else if let Some(next) = next.filter(|&next| !list.is_newest(next))
        && is_sparse(thread, list, order, bag, items)
    {
        // The newest bags are left to the workers' appends, so nothing is merged into them.
        moved = merge(thread, list, order, bag, next);
    } else if blocks.is_short() && is_compactible(thread, list, bag, usize::MAX) {
        order.uncompacted = list.bag(bag).capacity() / SLOTS;
        return compact_on(thread, list, order, bag, next);
    }
    come_to_bag(thread, list, order, next);
    moved
}

/// Compacts some of the blocks that the bag had when its compaction began. Continues with the next
/// bag after the last of them, or if no block can be freed. Returns the number of items moved.
fn compact_on(
    thread: &Rc<ThreadState>,
    list: &BagList,
    order: &mut Order,
    bag: u8,
    next: Option<u8>,
) -> usize {
    let (moved, freed) = compact(thread, list, order, bag, BLOCKS_PER_LOCK);
    order.uncompacted = order.uncompacted.saturating_sub(to_u32(BLOCKS_PER_LOCK));
    if order.uncompacted == 0 || freed == 0 {
        come_to_bag(thread, list, order, next);
    }
    moved
}

/// The next newer bag of the same queue.
pub(super) fn next_of(list: &BagList, order: &Order, bag: u8) -> Option<u8> {
    let bags = &order.of(list.bag(bag).part()).bags;
    let place = bags.iter().position(|&other| other == bag);
    place.and_then(|place| bags.get(place + 1).copied())
}

/// `true` if a bag of this number of `items` is worth merging.
fn is_sparse(thread: &ThreadState, list: &BagList, order: &Order, bag: u8, items: u32) -> bool {
    let slots = list.bag(bag).slots(&thread.store.blocks);
    let least = thread.store.slabs.class(list.id()).used() / 128;
    // With few numbers left, any bag is worth merging.
    let crowded = order.bags().count() > BAGS * 3 / 4;
    u64::from(items) * 4 < u64::from(slots)
        || u64::from(items) < least
        || crowded
        || wastes_block(thread, list, bag, items)
}

/// `true` if the bag's only block has holes, and blocks are short. Compacting would not help.
fn wastes_block(thread: &ThreadState, list: &BagList, bag: u8, items: u32) -> bool {
    let capacity = list.bag(bag).capacity();
    thread.store.blocks.is_short() && capacity == SLOTS && has_holes(items, capacity)
}

/// `true` if blocks with these items and slots are worth compacting while blocks are short.
fn has_holes(items: u32, slots: u32) -> bool {
    u64::from(items) * 4 < u64::from(slots) * 3
}

/// `true` if compacting the first `most` blocks of a settled bag is worthwhile, and frees a block.
pub(super) fn is_compactible(thread: &ThreadState, list: &BagList, bag: u8, most: usize) -> bool {
    let blocks = &thread.store.blocks;
    let (mut block, last) = list.bag(bag).end_blocks();
    let (mut items, mut slots) = (0, 0);
    for _ in 0..most {
        if block == last {
            break;
        }
        items += blocks.items(block);
        slots += SLOTS;
        block = blocks.next(block);
    }
    // The last block stays, and its room is used first.
    has_holes(items, slots) && items + blocks.claimed(last) <= slots
}

/// Moves all items of a bag into the next newer one. They keep their order. A touched item keeps
/// its mark, and counts as touched there if it was used after that bag's closing.
pub(super) fn merge(
    thread: &Rc<ThreadState>,
    list: &BagList,
    order: &mut Order,
    bag: u8,
    into: u8,
) -> usize {
    let blocks = &thread.store.blocks;
    // The items bring their marks, which may be older than the last pass over that bag.
    let passed = list.bag(bag).passed_tick().min(list.bag(into).passed_tick());
    list.bag(into).set_passed(passed);
    let (moved, _) = move_items(thread, list, order, (bag, into), usize::MAX);
    // Not empty where an item could not be moved because no block was free.
    if list.bag(bag).is_empty_from(blocks, Cursor::default()) {
        list.free(order, blocks, bag);
        thread.count(list.id(), Count::BagsMerged, 1);
    }
    moved
}

/// Moves the items of the first `most` blocks of a settled bag to its end, and frees these blocks.
/// The items keep their marks. Returns the number of items moved and of blocks freed. The caller
/// is in a section.
pub(super) fn compact(
    thread: &Rc<ThreadState>,
    list: &BagList,
    order: &mut Order,
    bag: u8,
    most: usize,
) -> (usize, usize) {
    move_items(thread, list, order, (bag, bag), most)
}

/// Moves the items of the first `most` blocks of one bag into another, or to the end of the same.
/// Each block becomes free when it is empty, so this never needs more than one block in addition
/// to those that it frees. Returns the number of items moved and of blocks freed.
fn move_items(
    thread: &Rc<ThreadState>,
    list: &BagList,
    order: &mut Order,
    (bag, into): (u8, u8),
    most: usize,
) -> (usize, usize) {
    let store = &*thread.store;
    let blocks = &store.blocks;
    let (first, last) = list.bag(bag).end_blocks();
    let (mut block, mut moved, mut freed) = (first, 0, 0);
    for _ in 0..most {
        if block == 0 || bag == into && block == last {
            break;
        }
        let next = blocks.next(block);
        let mut at = Cursor { block, index: 0 };
        while let Some((chunk, after)) = next_item(thread, list.bag(bag), at)
            && after.block == block
        {
            at = after;
            moved += 1;
            with_linked(thread, chunk, hash_of(store, chunk), |item| {
                // Relaxed: a mark guards nothing.
                let mark = recency::mark_of(item.header.recency.load(Ordering::Relaxed));
                let touched = list.bag(bag).touched_tick(mark, item.tick());
                let keeps_mark = bag == into || touched.is_some();
                Verdict::Move { bag: into, keeps_mark, purpose: Purpose::Merges }
            });
            if blocks.item(block, after.index - 1) == chunk {
                // No block is free.
                return (moved, freed);
            }
        }
        freed += list.trim(order, blocks, bag, next);
        block = next;
    }
    (moved, freed)
}
