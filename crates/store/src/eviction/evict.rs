//! Passing over the oldest items: evictions by stores, and the cleaner's rounds.
//!
//! Both look at the items of settled bags, oldest first, under the list's order lock, and judge each under its key's stripe:
//! a dead one is freed, a touched one moves to the bag that its mark names. An untouched one is evicted
//! if memory is wanted, and stays where it is if only cleaning is.

use crate::item::{Item, Liveness};
use crate::lru::{Bag, BagList, Cursor, Order};
use crate::memory::arena::ChunkRef;
use crate::section::Verdict;
use crate::slabs::ClassId;
use crate::stats::Count;
use crate::thread::ThreadState;
use std::rc::Rc;

/// Most items that one eviction call moves or skips for each that it wants (the paper's "first N items of the bag").
const LOOKS_PER_VICTIM: usize = 50;
/// Slots ahead of which item headers are fetched.
const AHEAD: u32 = 6;

/// Items judged together.
const HANDFUL: usize = 8;

/// Some items of a bag, with the hashes of their keys.
struct Handful {
    items: [(ChunkRef, u64); HANDFUL],
    len: usize,
}

/// Why a pass goes over the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Memory is wanted: untouched items go.
    Evict,
    /// Memory is wanted, and too many touched items were met: any item goes.
    EvictAny,
    /// Only dead items go, touched ones are put in order.
    Clean,
}

impl ThreadState {
    /// Evicts up to `want` items of the class, oldest first. Answers how many were evicted or reclaimed.
    pub(crate) fn evict(self: &Rc<Self>, class: ClassId, want: usize) -> usize {
        let list = self.store.list(class);
        let mut order = list.order.lock();
        let (mut freed, mut looked) = (0, 0);
        while freed < want {
            let Some(bag) = self.oldest_settled(list, &mut order) else { break };
            let purpose =
                if looked > want * LOOKS_PER_VICTIM { Purpose::EvictAny } else { Purpose::Evict };
            let _section = self.open();
            let mut at = order.evict;
            let mut looks = 0;
            while freed < want && looks < LOOKS_PER_VICTIM {
                let handful = self.gather(list.bag(bag), &mut at, want - freed);
                for &(chunk, hash) in &handful.items[..handful.len] {
                    freed += usize::from(self.judge(&order, list, bag, (chunk, hash), purpose));
                }
                looks += handful.len;
                if handful.len == 0 {
                    break;
                }
            }
            order.evict = at;
            looked += looks;
            if self.next_item(list.bag(bag), at).is_some() {
                continue;
            }
            // The end of the bag: what is still in it could not be moved, or must not be evicted.
            order.evict = Cursor::default();
            if list.bag(bag).is_empty_from(&self.store.blocks, Cursor::default()) {
                list.free(&mut order, &self.store.blocks, bag);
            } else {
                looked += want * LOOKS_PER_VICTIM / 4;
                if looked > want * LOOKS_PER_VICTIM * 4 {
                    break;
                }
            }
        }
        freed
    }

    /// The next few items of a bag with their hashes, their table lines asked for, so that the waits overlap.
    fn gather(&self, bag: &Bag, at: &mut Cursor, want: usize) -> Handful {
        let mut handful = Handful { items: [(0, 0); HANDFUL], len: 0 };
        while handful.len < want.min(HANDFUL)
            && let Some((chunk, after)) = self.next_item(bag, *at)
        {
            *at = after;
            let hash = self.hash_of(chunk);
            self.store.table.prefetch(hash);
            handful.items[handful.len] = (chunk, hash);
            handful.len += 1;
        }
        handful
    }

    /// The oldest bag, closed and past its grace period, after freeing empty ones and opening a new one if there is but one.
    fn oldest_settled(&self, list: &BagList, order: &mut Order) -> Option<u8> {
        loop {
            let oldest = *order.queue.front()?;
            let empty = list.bag(oldest).is_empty_from(&self.store.blocks, order.evict);
            if oldest == list.newest() {
                if empty || !self.open_bag(list, order) {
                    return None;
                }
                continue;
            }
            if !list.bag(oldest).is_settled(&self.store.qsbr) {
                self.settle();
            }
            if !list.bag(oldest).is_settled(&self.store.qsbr) {
                return None;
            }
            if !empty {
                return Some(oldest);
            }
            order.evict = Cursor::default();
            if !list.bag(oldest).is_empty_from(&self.store.blocks, Cursor::default()) {
                return Some(oldest);
            }
            list.free(order, &self.store.blocks, oldest);
        }
    }

    /// Closes the newest bag of a list and opens another.
    pub(crate) fn open_bag(&self, list: &BagList, order: &mut Order) -> bool {
        let store = &self.store;
        let opened = list.open(order, &store.control().tick, &store.qsbr, self.now_secs());
        if opened {
            self.refresh();
            self.count(list.id(), Count::BagsOpened, 1);
        }
        opened
    }

    /// Opens a new bag where the newest is full, unless someone else is at work on the list.
    pub(crate) fn open_if_full(&self, class: ClassId) {
        let list = self.store.list(class);
        if list.newest_is_full(&self.store.blocks, self.store.slabs.class(class).used())
            && let Some(mut order) = list.order.try_lock()
            && list.newest_is_full(&self.store.blocks, self.store.slabs.class(class).used())
        {
            self.open_bag(list, &mut order);
        }
    }

    /// The next item at or after `cursor`, holes skipped, and the cursor after it.
    pub(crate) fn next_item(&self, bag: &Bag, mut cursor: Cursor) -> Option<(ChunkRef, Cursor)> {
        let blocks = &self.store.blocks;
        loop {
            let (position, after) = bag.step(blocks, cursor)?;
            cursor = after;
            if after.index + AHEAD <= crate::lru::blocks::SLOTS {
                let ahead = blocks.item(after.block, after.index + AHEAD - 1);
                if ahead != 0 {
                    self.store.arena.prefetch(ahead);
                }
            }
            // Acquire: pairs with the appender's Release, so that the item's header and key are visible.
            match blocks.slot(position).load(crate::sync::Ordering::Acquire) {
                0 => {}
                chunk => return Some((chunk, after)),
            }
        }
    }

    /// Decides about one item of a settled bag; `true` if its memory is on its way back.
    fn judge(
        self: &Rc<Self>,
        order: &Order,
        list: &BagList,
        bag: u8,
        (chunk, hash): (ChunkRef, u64),
        purpose: Purpose,
    ) -> bool {
        let class = list.id();
        let verdict = self.with_linked(chunk, hash, |item| {
            match item.liveness() {
                Liveness::Live => {}
                Liveness::Deleted if purpose == Purpose::Clean => return Verdict::Stay,
                _ => {
                    self.count_reclaimed(class, item, purpose);
                    return Verdict::Remove;
                }
            }
            let mark = Self::mark_of(item.header);
            let wanted = purpose != Purpose::Clean;
            let touched = list.bag(bag).is_touched(mark);
            if self.is_pinned(chunk) && wanted || touched && purpose != Purpose::EvictAny {
                let (to, mark) = list.destination(order, bag, mark);
                return Verdict::Move(to, mark);
            }
            if !wanted || !self.store.evict {
                return Verdict::Stay;
            }
            self.count_evicted(class, item);
            Verdict::Remove
        });
        verdict == Some(Verdict::Remove)
    }

    fn count_reclaimed(&self, class: ClassId, item: &Item<'_>, purpose: Purpose) {
        self.count(class, Count::Reclaimed, 1);
        if purpose == Purpose::Clean {
            self.count(class, Count::CleanerReclaimed, 1);
        }
        if item.liveness() == Liveness::Expired && !item.is_fetched() {
            self.count(class, Count::ExpiredUnfetched, 1);
        }
    }

    pub(crate) fn count_evicted(&self, class: ClassId, item: &Item<'_>) {
        self.count(class, Count::Evicted, 1);
        if !item.is_fetched() {
            self.count(class, Count::EvictedUnfetched, 1);
        }
        if item.deadline() != 0 {
            self.count(class, Count::EvictedNonzero, 1);
        }
        self.set_count(class, Count::EvictedAge, u64::from(item.idle_secs()));
        self.observe_eviction(item);
    }

    /// Cleans on from where the last call stopped, looking at no more than `budget` items. Answers how many were looked at
    /// and freed, and whether the newest closed bag was reached.
    pub(crate) fn clean(self: &Rc<Self>, class: ClassId, budget: usize) -> (usize, usize, bool) {
        let list = self.store.list(class);
        let (mut looked, mut freed) = (0, 0);
        while looked < budget {
            // Taken anew for each handful, so that a store that needs memory waits for a handful at most.
            let mut order = list.order.lock();
            let Some(bag) = self.bag_to_clean(list, &mut order) else {
                return (looked, freed, true);
            };
            let _section = self.open();
            let mut at = order.clean;
            let handful = (looked + 32).min(budget);
            let mut ended = false;
            while looked < handful && !ended {
                let some = self.gather(list.bag(bag), &mut at, handful - looked);
                for &item in &some.items[..some.len] {
                    freed += usize::from(self.judge(&order, list, bag, item, Purpose::Clean));
                }
                looked += some.len;
                ended = some.len == 0;
            }
            order.clean = at;
            if ended {
                looked += self.leave_bag(list, &mut order, bag);
            }
        }
        (looked, freed, false)
    }

    /// The bag in which the cleaner stands, if it is one that may be passed; else the oldest.
    fn bag_to_clean(&self, list: &BagList, order: &mut Order) -> Option<u8> {
        if order.clean_bag.is_none() {
            order.clean_bag = order.queue.front().copied();
            order.clean = Cursor::default();
        }
        let bag = order.clean_bag?;
        if bag == list.newest() || !list.bag(bag).is_settled(&self.store.qsbr) {
            order.clean_bag = None;
            return None;
        }
        Some(bag)
    }

    /// The cleaner has seen the whole bag: frees it if it is empty, merges it into the next newer one if it is sparse, goes on.
    /// Answers the number of items moved.
    fn leave_bag(self: &Rc<Self>, list: &BagList, order: &mut Order, bag: u8) -> usize {
        let place = order.queue.iter().position(|&other| other == bag);
        let next = place.and_then(|place| order.queue.get(place + 1).copied());
        let items = list.bag(bag).items(&self.store.blocks);
        let mut moved = 0;
        if items == 0 {
            list.free(order, &self.store.blocks, bag);
        } else if let Some(next) = next.filter(|&next| next != list.newest())
            && self.is_sparse(list, order, bag, items)
        {
            moved = self.merge(list, order, bag, next);
        }
        order.clean_bag = next;
        order.clean = Cursor::default();
        moved
    }

    fn is_sparse(&self, list: &BagList, order: &Order, bag: u8, items: u32) -> bool {
        let slots = list.bag(bag).slots(&self.store.blocks);
        let least = self.store.slabs.class(list.id()).used() / 128;
        // With few numbers left, any bag is worth merging.
        let crowded = order.queue.len() > crate::lru::BAGS * 3 / 4;
        items * 4 < slots || u64::from(items) < least || crowded
    }

    /// Moves all items of a bag into the next newer one. They keep their order and, since marks do not change, whether they count
    /// as touched.
    fn merge(self: &Rc<Self>, list: &BagList, order: &mut Order, bag: u8, into: u8) -> usize {
        let mut at = Cursor::default();
        let mut moved = 0;
        while let Some((chunk, after)) = self.next_item(list.bag(bag), at) {
            at = after;
            moved += 1;
            let hash = self.hash_of(chunk);
            self.with_linked(chunk, hash, |item| Verdict::Move(into, Self::mark_of(item.header)));
        }
        if list.bag(bag).is_empty_from(&self.store.blocks, Cursor::default()) {
            list.free(order, &self.store.blocks, bag);
            self.count(list.id(), Count::BagsMerged, 1);
        }
        moved
    }

    fn open(self: &Rc<Self>) -> crate::section::Section<'_> {
        crate::section::Section::open(self)
    }
}
