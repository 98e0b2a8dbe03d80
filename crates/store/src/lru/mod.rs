//! Bag LRU: recency kept by bag, so that a GET never takes a lock to be remembered.
//!
//! Each slab class keeps a list of bags, oldest first:
//!
//! ```text
//!     oldest -> [bag: a c d] -> [bag: e] -> [newest alternate: g h] -> [newest: f b]
//! ```
//!
//! A new item is appended to the newest bag without a lock. A GET only writes the present *tick*
//! into the item's recency mark (see [`recency`]). The tick counts the bags that its class has
//! opened; a bag remembers the ticks at which it was opened and closed. So a mark names the bag
//! that was newest at the time. An item is *touched* if its mark is not older than the closing of
//! its bag.
//!
//! Classes are compared by another clock: the bytes of all bags that were closed. A bag remembers
//! when it was opened by that, too. Both clocks have 64 bits.
//!
//! The cleaner and the evictions pass over the oldest items. A touched one moves to the bag that
//! its mark names. Where that bag is the newest, the item moves to the newest alternate instead, so
//! that moves never meet the appends of storing threads.
//!
//! # Laws
//!
//! 1. Appending to the newest bag is lock-free, except for taking a fresh block once in 60 items.
//! 2. Everything else (opening, closing, passing, moving, merging, freeing a bag) is done by the
//!    holder of the list's `order` lock. This is the paper's eviction lock and its bags' locks in
//!    one, since one holder never needs two bags of a list.
//! 3. A bag is passed only after a grace period from its closing: until then a slow appender may
//!    still stand in it.
//! 4. An item is in exactly one slot while it is linked. Its slot and its `pos` change under its
//!    key's stripe.
//! 5. A mark that is lost to a race of two GETs costs recency by the bags opened in one section,
//!    never safety. A pass never undoes a mark that it has not seen.
//! 6. A mark is never so old that its 16 bits mean another tick: see [`recency`].
//!
//! # Orderings
//!
//! An appender learns of the newest bag and of a block by Release and Acquire, which the code
//! names. Relaxed is enough for the rest. The fields of a bag change under the order lock or the
//! grow lock; what is read of them without a lock decides only where an item goes or how many there
//! are.
//!
//! # Price
//!
//! Order within a bag is by arrival, not by use. A bag's size, about a 32nd of its class, is the
//! error of this LRU.
//!
//! Source: Wiggins and Langston, "Enhancing the Scalability of Memcached" (2012), section 3.5. The
//! slots are ours, see `arena::blocks`.

use self::recency::{AGE_MAX, SLACK, Tick, tick_of};
use arena::ChunkRef;
use arena::blocks::{BlockId, Blocks, Owner, Position, SLOTS};
use arena::budget::Budget;
use arena::qsbr::Qsbr;
use arena::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use std::collections::VecDeque;

#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod recency;
#[cfg(not(any(loom, miri)))]
mod record;
#[cfg(not(any(loom, miri)))]
mod recover;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(any(loom, miri)))]
pub(crate) use recover::{AGES, Dates, age_of};

/// Most bags of one list.
#[cfg(not(loom))]
pub(crate) const BAGS: usize = 256;
#[cfg(loom)]
pub(crate) const BAGS: usize = 4;

/// Bags that a class opens while as many bytes are stored as the limit has, if it stores nothing.
pub(crate) const BAGS_PER_TURNOVER: u64 = 64;

/// One class's bags.
#[derive(Debug)]
pub(crate) struct BagList {
    id: u8,
    bags: Box<[Bag]>,
    /// Index of the newest bag.
    newest: AtomicU32,
    /// Bags in the list; a copy of the queue's length that is read without the lock.
    count: AtomicU32,
    /// No mark of the list's items is older than this tick, less [`SLACK`].
    oldest_mark: AtomicU64,
    /// Serialises the first append into a fresh block.
    grow: Mutex<()>,
    /// The eviction lock and the order of the bags.
    pub order: Mutex<Order>,
}

/// A set of items of similar age.
#[derive(Debug, Default)]
pub(crate) struct Bag {
    first: AtomicU32,
    tail: AtomicU32,
    blocks: AtomicU32,
    opened_tick: AtomicU64,
    closed_tick: AtomicU64,
    /// The tick when the last whole pass of the cleaner over this bag began; before the first pass,
    /// the tick of its opening. Marks in this bag are not older, but for [`SLACK`].
    passed_tick: AtomicU64,
    /// The turnover when it was opened.
    opened_at: AtomicU64,
    opened_secs: AtomicU32,
    closed_secs: AtomicU32,
    closed_epoch: AtomicU64,
}

/// The counts that an opening moves on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks<'c> {
    /// Bags opened in the class.
    pub tick: &'c AtomicU64,
    /// Bytes of all bags that were closed.
    pub turnover: &'c AtomicU64,
}

/// Order of the bags, and the cursors into them. Guarded by the eviction lock.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Indices of the bags, oldest first; the last is the newest.
    pub queue: VecDeque<u8>,
    free: Vec<u8>,
    /// Place in the oldest bag at which the next eviction begins.
    pub evict: Cursor,
    /// Place in `clean_bag` at which the cleaner goes on.
    pub clean: Cursor,
    /// The bag in which the cleaner stands.
    pub clean_bag: Option<u8>,
    /// The tick when the cleaner came to that bag.
    pub clean_since: Tick,
}

/// A place in a bag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Zero: before the first block.
    pub block: BlockId,
    pub index: u32,
}

impl BagList {
    /// A list with one open bag.
    pub(crate) fn new(id: u8, clocks: Clocks<'_>) -> Self {
        let tick = clocks.tick.load(Ordering::Relaxed);
        let bags: Box<[Bag]> = (0..BAGS).map(|_| Bag::default()).collect();
        bags[0].opened_tick.store(tick, Ordering::Relaxed);
        bags[0].passed_tick.store(tick, Ordering::Relaxed);
        bags[0].opened_at.store(clocks.turnover.load(Ordering::Relaxed), Ordering::Relaxed);
        let order = Order {
            queue: VecDeque::from([0]),
            free: (1..BAGS).rev().filter_map(|bag| u8::try_from(bag).ok()).collect(),
            ..Order::default()
        };
        Self {
            id,
            bags,
            newest: AtomicU32::new(0),
            count: AtomicU32::new(1),
            oldest_mark: AtomicU64::new(tick),
            grow: Mutex::new(()),
            order: Mutex::new(order),
        }
    }

    pub(crate) fn id(&self) -> u8 {
        self.id
    }

    /// The oldest bag with an item in it. The slots before the eviction cursor are empty.
    pub(crate) fn oldest_with_items(&self, order: &Order, blocks: &Blocks) -> Option<u8> {
        let mut from = order.evict;
        for &index in &order.queue {
            if !self.bag(index).is_empty_from(blocks, from) {
                return Some(index);
            }
            from = Cursor::default();
        }
        None
    }

    pub(crate) fn bag(&self, index: u8) -> &Bag {
        &self.bags[usize::from(index)]
    }

    pub(crate) fn newest(&self) -> u8 {
        // Acquire: partner of the Release in `open`; the bag's fields are visible. An index of a
        // bag is one byte.
        self.newest.load(Ordering::Acquire).to_le_bytes()[0]
    }

    /// Appends an item to the newest bag. `None`: no block could be had. The caller is in a
    /// section, holds the key's stripe, and has written the item's bytes.
    pub(crate) fn append_newest(
        &self,
        blocks: &Blocks,
        budget: &Budget,
        item: ChunkRef,
    ) -> Option<Position> {
        self.append(blocks, budget, self.newest(), item)
    }

    /// Appends an item to any bag. The caller holds the order lock, unless this is the newest.
    pub(crate) fn append(
        &self,
        blocks: &Blocks,
        budget: &Budget,
        index: u8,
        item: ChunkRef,
    ) -> Option<Position> {
        let bag = self.bag(index);
        loop {
            // Acquire: partner of the Release in `grow`; the block's header is visible.
            let tail = bag.tail.load(Ordering::Acquire);
            if tail != 0
                && let Some(position) = blocks.claim(tail)
            {
                // Release: partner of the Acquire in `Blocks::item_at`.
                blocks.slot(position).store(item, Ordering::Release);
                return Some(position);
            }
            self.grow(blocks, budget, index, tail)?;
        }
    }

    fn grow(&self, blocks: &Blocks, budget: &Budget, index: u8, full: BlockId) -> Option<()> {
        let bag = self.bag(index);
        let _growing = self.grow.lock();
        if bag.tail.load(Ordering::Relaxed) != full {
            return Some(()); // Another appender was faster.
        }
        let owner = Owner { list: self.id, bag: index, opened: bag.opened_tick() };
        let block = blocks.take(budget, Some(owner))?;
        if full == 0 {
            // Release: partner of the Acquire in `step`.
            bag.first.store(block, Ordering::Release);
        } else {
            blocks.link(full, block);
        }
        bag.blocks.fetch_add(1, Ordering::Relaxed);
        // Release: partner of the Acquire in `append` and `slots`.
        bag.tail.store(block, Ordering::Release);
        Some(())
    }

    /// Closes the newest bag, whose items have these bytes, and opens another at this second.
    /// `false` if there are too many bags, or the next tick would make a mark too old (see
    /// [`recency`]).
    pub(crate) fn open(
        &self,
        order: &mut Order,
        clocks: Clocks<'_>,
        qsbr: &Qsbr,
        now: u32,
        closing_bytes: u64,
    ) -> bool {
        // Relaxed: the tick changes only under the order lock.
        let tick = recency::next(clocks.tick.load(Ordering::Relaxed));
        let is_too_far = || tick - self.oldest_mark.load(Ordering::Relaxed) > AGE_MAX - SLACK;
        if is_too_far() {
            self.note_oldest_mark(order);
            if is_too_far() {
                return false;
            }
        }
        let Some(index) = order.free.pop() else { return false };
        let opened_at = clocks.turnover.fetch_add(closing_bytes, Ordering::Relaxed) + closing_bytes;
        let closing = self.bag(self.newest());
        let bag = self.bag(index);
        bag.opened_tick.store(tick, Ordering::Relaxed);
        bag.passed_tick.store(tick, Ordering::Relaxed);
        bag.opened_at.store(opened_at, Ordering::Relaxed);
        bag.opened_secs.store(now, Ordering::Relaxed);
        bag.closed_secs.store(0, Ordering::Relaxed);
        closing.closed_tick.store(tick, Ordering::Relaxed);
        closing.closed_secs.store(now, Ordering::Relaxed);
        order.queue.push_back(index);
        self.count.fetch_add(1, Ordering::Relaxed);
        // Release: partner of the Acquire in `newest`.
        self.newest.store(u32::from(index), Ordering::Release);
        clocks.tick.store(tick, Ordering::Relaxed);
        // Dated after the stores: a section of the next epoch sees the new bag and its tick.
        closing.closed_epoch.store(qsbr.epoch(), Ordering::Relaxed);
        true
    }

    /// Finds out how old the marks of the list may be.
    fn note_oldest_mark(&self, order: &Order) {
        let passed = order.queue.iter().map(|&bag| self.bag(bag).passed_tick());
        self.oldest_mark.store(passed.min().unwrap_or(0), Ordering::Relaxed);
    }

    /// The turnover at the opening of the bag that was newest at this tick.
    pub(crate) fn opened_at(&self, order: &Order, tick: Tick) -> u64 {
        let bags = order.queue.iter().map(|&bag| self.bag(bag));
        let named = bags.clone().rev().find(|bag| bag.opened_tick() <= tick);
        named.or_else(|| bags.clone().next()).map_or(0, Bag::opened_at)
    }

    /// Frees a settled bag without items.
    pub(crate) fn free(&self, order: &mut Order, blocks: &Blocks, index: u8) {
        let bag = self.bag(index);
        debug_assert!(index != self.newest() && bag.is_empty_from(blocks, Cursor::default()));
        let mut block = bag.first.swap(0, Ordering::Relaxed);
        bag.tail.store(0, Ordering::Relaxed);
        bag.blocks.store(0, Ordering::Relaxed);
        while block != 0 {
            let next = blocks.next(block);
            blocks.put(block);
            block = next;
        }
        if order.queue.front() == Some(&index) {
            order.evict = Cursor::default();
        }
        if order.clean_bag == Some(index) {
            order.clean_bag = None;
        }
        order.queue.retain(|&other| other != index);
        self.count.fetch_sub(1, Ordering::Relaxed);
        order.free.push(index);
    }

    /// `true` if the newest bag has as many slots as a bag should when its class holds
    /// `class_items`: a 32nd of them. The share doubles with every 64 bags, so that a class that
    /// only grows does not run out of bags.
    pub(crate) fn newest_is_full(&self, blocks: &Blocks, class_items: u64) -> bool {
        let bag = self.bag(self.newest());
        let doublings = self.count.load(Ordering::Relaxed) / 64;
        let target = ((class_items / 32) << doublings).max(4);
        bag.blocks.load(Ordering::Relaxed) > 0 && u64::from(bag.slots(blocks)) >= target
    }

    /// The bag to which an item of bag `from` moves that was last used at this tick, and whether it
    /// keeps its mark there.
    pub(crate) fn destination(&self, order: &Order, from: u8, used: Tick) -> (u8, bool) {
        let newest = self.newest();
        let mut bags = order.queue.iter().rev().copied();
        bags.next();
        let Some(alternate) = bags.next().filter(|&bag| bag != from) else {
            // The item is in the alternate itself, so only the newest is newer.
            return (newest, true);
        };
        if self.bag(newest).opened_tick() <= used {
            // Its mark names the newest, which is for appends. In the alternate it must not count
            // as touched once more.
            return (alternate, false);
        }
        let older = order.queue.iter().rev().copied().take_while(|&bag| bag != from);
        let named = older.skip(1).find(|&bag| self.bag(bag).opened_tick() <= used);
        (named.unwrap_or(alternate), false)
    }
}

impl Bag {
    /// Items in it, by looking at every slot.
    pub(crate) fn items(&self, blocks: &Blocks) -> u32 {
        // Acquire: partner of the Release in `grow`; the first block's header is visible.
        let (mut block, mut items) = (self.first.load(Ordering::Acquire), 0);
        while block != 0 {
            items += blocks.items(block);
            block = blocks.next(block);
        }
        items
    }

    /// `true` if there is no item at or after `cursor`.
    pub(crate) fn is_empty_from(&self, blocks: &Blocks, mut cursor: Cursor) -> bool {
        while let Some((position, after)) = self.step(blocks, cursor) {
            if blocks.slot(position).load(Ordering::Relaxed) != 0 {
                return false;
            }
            cursor = after;
        }
        true
    }

    /// Slots handed out.
    pub(crate) fn slots(&self, blocks: &Blocks) -> u32 {
        // Acquire: partner of the Release in `grow`; the count in the block's header is visible.
        match self.tail.load(Ordering::Acquire) {
            0 => 0,
            tail => {
                let full = self.blocks.load(Ordering::Relaxed).saturating_sub(1);
                full * SLOTS + blocks.claimed(tail)
            }
        }
    }

    /// The next place at or after `cursor` that was handed out, and the place after it.
    #[inline]
    pub(crate) fn step(&self, blocks: &Blocks, cursor: Cursor) -> Option<(Position, Cursor)> {
        let Cursor { mut block, mut index } = cursor;
        if block == 0 {
            // Acquire: partner of the Release in `grow`; the first block's header is visible.
            (block, index) = (self.first.load(Ordering::Acquire), 0);
        }
        while block != 0 {
            if index < blocks.claimed(block) {
                let after = Cursor { block, index: index + 1 };
                return Some((Blocks::position(block, index), after));
            }
            if index < SLOTS {
                return None;
            }
            (block, index) = (blocks.next(block), 0);
        }
        None
    }

    /// `true` if the closing was long enough ago that no appender stands in the bag.
    pub(crate) fn is_settled(&self, qsbr: &Qsbr) -> bool {
        qsbr.is_safe(self.closed_epoch.load(Ordering::Relaxed))
    }

    /// The tick at which an item of this closed bag was used, if that was after the closing. `now`
    /// is the class's tick.
    #[inline]
    pub(crate) fn touched_tick(&self, mark: u16, now: Tick) -> Option<Tick> {
        tick_of(mark, now).filter(|&used| used >= self.closed_tick.load(Ordering::Relaxed))
    }

    pub(crate) fn opened_tick(&self) -> Tick {
        self.opened_tick.load(Ordering::Relaxed)
    }

    fn passed_tick(&self) -> Tick {
        self.passed_tick.load(Ordering::Relaxed)
    }

    /// The cleaner has looked at every item, beginning at this tick.
    pub(crate) fn set_passed(&self, tick: Tick) {
        self.passed_tick.store(tick, Ordering::Relaxed);
    }

    /// The turnover when it was opened.
    pub(crate) fn opened_at(&self) -> u64 {
        self.opened_at.load(Ordering::Relaxed)
    }

    pub(crate) fn opened_secs(&self) -> u32 {
        self.opened_secs.load(Ordering::Relaxed)
    }

    /// Second of closing; zero while open.
    pub(crate) fn closed_secs(&self) -> u32 {
        self.closed_secs.load(Ordering::Relaxed)
    }
}
