//! Bag LRU: recency is kept by bag, so that a GET takes no lock to record its use.
//!
//! Each slab class keeps two queues of bags, oldest first: newcomers, which no client has read, and
//! proven items (decision 93). With `Policy::Bag` all items are proven. A queue looks like this:
//!
//! ```text
//!     oldest -> [bag: a c d] -> [bag: e] -> [newest alternate: g h] -> [newest: f b]
//! ```
//!
//! A new item is appended to the newest bag of its queue without a lock. An item that replaces a
//! proven one of its class takes that one's slot, with a mark of the present, and so leaves no hole
//! (decision 159).
//!
//! A GET only writes the present *tick* into the item's recency mark (see [`recency`]). The tick
//! counts the bags that its class has opened; a bag remembers the ticks at which it was opened and
//! closed. So a mark names the bag that was newest at the time. An item is *touched* if its mark is
//! not older than the closing of its bag.
//!
//! Another clock compares classes: the bytes of all bags that were closed. A bag also remembers its
//! opening by that clock. Both clocks have 64 bits.
//!
//! The cleaner and the evictions pass over the oldest items. A touched item moves to the bag of
//! proven items that its mark names. A newcomer that was ever read moves there, too. If that bag is
//! the newest, the item moves to the newest alternate instead, so that moves never meet the appends
//! of storing threads.
//!
//! # Laws
//!
//! 1. Appending to the newest bag is lock-free, except for taking a fresh block once in 60 items.
//!    Each thread appends to a private block where bags are large (see [`append`]).
//! 2. Everything else (opening, closing, passing, moving, merging, freeing a bag) needs the list's
//!    `order` lock. This is the paper's eviction lock and its bags' locks in one, since one holder
//!    never needs two bags of a list.
//! 3. A bag is passed only after a grace period from its closing: until then a slow appender may
//!    still use it.
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
//! grow lock; reads of them without a lock decide only where an item goes or how many there are.
//!
//! # Price
//!
//! Order within a bag is by thread and arrival, not by use. A bag's size, about a 32nd of its
//! class, is the error of this LRU.
//!
//! [`BagList`] and [`Bag`] have their methods in four files: order and passes here, appending in
//! `append`, exclusive use at a clean end and after a crash in `record` and `recover`.
//!
//! Source: Wiggins and Langston, "Enhancing the Scalability of Memcached" (2012), section 3.5. The
//! slots are ours, see `arena::blocks`.

use self::recency::{AGE_MAX, SLACK, Tick, tick_of};
use arena::blocks::{BlockId, Blocks, Position};
use arena::qsbr::Qsbr;
use arena::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use narrow::to_u32;
use std::collections::VecDeque;

pub(crate) mod append;
pub(crate) mod ghosts;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod recency;
#[cfg(not(any(loom, miri)))]
mod record;
#[cfg(not(any(loom, miri)))]
mod recover;
#[cfg(all(test, not(loom)))]
mod tests;
pub(crate) mod tuning;
#[cfg(not(any(loom, miri)))]
pub(crate) use recover::{AGES, Dates, age_of};

/// Maximum number of bags of one list.
#[cfg(not(loom))]
pub(crate) const BAGS: usize = 256;
#[cfg(loom)]
pub(crate) const BAGS: usize = 6;

/// Bags that a class without stores opens while the limit's bytes are stored once.
pub(crate) const BAGS_PER_TURNOVER: u64 = 64;

/// One of the two queues of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Items never read, if newcomers are kept apart from others.
    Newcomers,
    /// All others.
    Proven,
}

/// Both queues of a list, in the order in which the cleaner passes them.
pub(crate) const PARTS: [Part; 2] = [Part::Newcomers, Part::Proven];

/// One class's bags.
#[derive(Debug)]
pub(crate) struct BagList {
    id: u8,
    bags: Box<[Bag]>,
    /// Indices of the newest bags, by queue.
    newest: [AtomicU32; 2],
    /// Bags by queue: copies of the queues' lengths that are read without the lock.
    counts: [AtomicU32; 2],
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
    part: AtomicU32,
    first: AtomicU32,
    tail: AtomicU32,
    blocks: AtomicU32,
    /// Blocks of which every slot was handed out.
    filled: AtomicU32,
    /// Not zero: each thread appends to a private block.
    own_blocks: AtomicU32,
    opened_tick: AtomicU64,
    closed_tick: AtomicU64,
    /// The tick when the cleaner's last whole pass over this bag started; before the first pass,
    /// the tick of its opening. Marks in this bag are not older, except for [`SLACK`].
    passed_tick: AtomicU64,
    /// The turnover when it was opened.
    opened_at: AtomicU64,
    opened_secs: AtomicU32,
    closed_secs: AtomicU32,
    closed_epoch: AtomicU64,
}

/// The counts that an opening advances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks<'c> {
    /// Bags opened in the class.
    pub tick: &'c AtomicU64,
    /// Bytes of all bags that were closed.
    pub turnover: &'c AtomicU64,
}

/// Input of an opening.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// The second.
    pub now_secs: u32,
    /// Bytes of the items in the bags that it closes.
    pub closing_bytes: u64,
    /// Items of the class.
    pub class_items: u64,
    /// Storing threads.
    pub threads: u64,
}

/// Order of the bags, and the cursors into them. Guarded by the eviction lock.
#[derive(Debug, Default)]
pub(crate) struct Order {
    queues: [Queue; 2],
    free: Vec<u8>,
    /// Place in `clean_bag` at which the cleaner continues.
    pub clean: Cursor,
    /// The bag that the cleaner is in.
    pub clean_bag: Option<u8>,
    /// The tick when the cleaner came to that bag.
    pub clean_since: Tick,
    /// Place in `clean_bag` up to which its items are merged into the next bag.
    pub merge: Option<Cursor>,
}

/// Bags of one kind of items.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Indices of the bags, oldest first; the last is the newest.
    pub bags: VecDeque<u8>,
    /// Place in the oldest bag at which the next eviction starts.
    pub evict: Cursor,
}

impl Order {
    pub(crate) fn of(&self, part: Part) -> &Queue {
        &self.queues[part as usize]
    }

    pub(crate) fn of_mut(&mut self, part: Part) -> &mut Queue {
        &mut self.queues[part as usize]
    }

    /// All bags, each queue's oldest first.
    pub(crate) fn bags(&self) -> impl Iterator<Item = u8> {
        self.queues.iter().flat_map(|queue| queue.bags.iter().copied())
    }
}

/// A place in a bag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Zero: before the first block.
    pub block: BlockId,
    pub index: u32,
}

impl BagList {
    /// A list with an open bag in each queue.
    pub(crate) fn new(id: u8, clocks: Clocks<'_>) -> Self {
        let tick = clocks.tick.load(Ordering::Relaxed);
        let bags: Box<[Bag]> = (0..BAGS).map(|_| Bag::default()).collect();
        for (part, bag) in PARTS.into_iter().zip(&bags) {
            bag.open(part, (tick, 0), clocks.turnover.load(Ordering::Relaxed));
        }
        let of_one = |bag| Queue { bags: VecDeque::from([bag]), evict: Cursor::default() };
        let order = Order {
            queues: [of_one(0), of_one(1)],
            free: (2..BAGS).rev().filter_map(|bag| u8::try_from(bag).ok()).collect(),
            ..Order::default()
        };
        Self {
            id,
            bags,
            newest: [AtomicU32::new(0), AtomicU32::new(1)],
            counts: [AtomicU32::new(1), AtomicU32::new(1)],
            oldest_mark: AtomicU64::new(tick),
            grow: Mutex::new(()),
            order: Mutex::new(order),
        }
    }

    pub(crate) fn id(&self) -> u8 {
        self.id
    }

    /// The oldest bag of a queue with an item in it. The slots before the eviction cursor are
    /// empty.
    pub(crate) fn oldest_with_items(
        &self,
        order: &Order,
        part: Part,
        blocks: &Blocks,
    ) -> Option<u8> {
        let queue = order.of(part);
        let mut from = queue.evict;
        for &index in &queue.bags {
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

    /// The newest bag of a queue.
    pub(crate) fn newest(&self, part: Part) -> u8 {
        // Acquire: partner of the Release in `open_in`; the bag's fields are visible. An index of
        // a bag is one byte.
        self.newest[part as usize].load(Ordering::Acquire).to_le_bytes()[0]
    }

    /// `true` if the bag is the newest of its queue.
    pub(crate) fn is_newest(&self, bag: u8) -> bool {
        PARTS.iter().any(|&part| self.newest(part) == bag)
    }

    /// Closes the newest bags, and opens others. An unused bag only gets a new date. `false` if
    /// there are too many bags, or the next tick would make a mark too old (see [`recency`]).
    pub(crate) fn open(
        &self,
        order: &mut Order,
        blocks: &Blocks,
        clocks: Clocks<'_>,
        qsbr: &Qsbr,
        opening: Opening,
    ) -> bool {
        let Opening { now_secs: now, closing_bytes, class_items, threads } = opening;
        // Relaxed: the tick changes only under the order lock.
        let tick = recency::next(clocks.tick.load(Ordering::Relaxed));
        let is_too_far = || tick - self.oldest_mark.load(Ordering::Relaxed) > AGE_MAX - SLACK;
        if is_too_far() {
            self.note_oldest_mark(order);
            if is_too_far() {
                return false;
            }
        }
        if order.free.len() < PARTS.len() {
            return false;
        }
        let opened_at = clocks.turnover.fetch_add(closing_bytes, Ordering::Relaxed) + closing_bytes;
        let closed = PARTS.map(|part| {
            let own_blocks = append::has_own_blocks(self.target(part, class_items), threads);
            if self.is_unused(order, part, blocks) {
                let bag = self.bag(self.newest(part));
                bag.open(part, (tick, now), opened_at);
                bag.own_blocks.store(u32::from(own_blocks), Ordering::Relaxed);
                return None;
            }
            self.open_in(order, part, (tick, now), opened_at, own_blocks)
        });
        clocks.tick.store(tick, Ordering::Relaxed);
        // Dated after the stores: a section of the next epoch sees the new bags and their tick.
        for closing in closed.into_iter().flatten() {
            self.bag(closing).closed_epoch.store(qsbr.epoch(), Ordering::Relaxed);
        }
        true
    }

    /// `true` if the newest bag of a queue has got no item, and neither has the alternate, to which
    /// proven items move.
    fn is_unused(&self, order: &Order, part: Part, blocks: &Blocks) -> bool {
        let looked_at = if part == Part::Proven { 2 } else { 1 };
        let mut newest = order.of(part).bags.iter().rev().take(looked_at);
        newest.all(|&bag| self.bag(bag).slots(blocks) == 0)
    }

    /// Opens a bag in one queue, and returns the closed one.
    fn open_in(
        &self,
        order: &mut Order,
        part: Part,
        (tick, now): (Tick, u32),
        opened_at: u64,
        own_blocks: bool,
    ) -> Option<u8> {
        let index = order.free.pop()?;
        let closing = self.newest(part);
        self.bag(index).open(part, (tick, now), opened_at);
        self.bag(index).own_blocks.store(u32::from(own_blocks), Ordering::Relaxed);
        self.bag(closing).closed_tick.store(tick, Ordering::Relaxed);
        self.bag(closing).closed_secs.store(now, Ordering::Relaxed);
        order.of_mut(part).bags.push_back(index);
        self.note_counts(order);
        // Release: partner of the Acquire in `newest`.
        self.newest[part as usize].store(u32::from(index), Ordering::Release);
        Some(closing)
    }

    fn note_counts(&self, order: &Order) {
        for (count, queue) in self.counts.iter().zip(&order.queues) {
            count.store(to_u32(queue.bags.len()), Ordering::Relaxed);
        }
    }

    /// Computes how old the marks of the list may be.
    fn note_oldest_mark(&self, order: &Order) {
        let passed = order.bags().map(|bag| self.bag(bag).passed_tick());
        self.oldest_mark.store(passed.min().unwrap_or(0), Ordering::Relaxed);
    }

    /// The turnover at the opening of the bag of proven items that was newest at this tick.
    pub(crate) fn opened_at(&self, order: &Order, tick: Tick) -> u64 {
        let bags = order.of(Part::Proven).bags.iter().map(|&bag| self.bag(bag));
        let named = bags.clone().rev().find(|bag| bag.opened_tick() <= tick);
        named.or_else(|| bags.clone().next()).map_or(0, Bag::opened_at)
    }

    /// The turnover at the opening of the bag that was newest when an item was last used: of `bag`,
    /// which holds it, or of one at the tick `touched`, if it was used after `bag` closed.
    pub(crate) fn used_at(&self, order: &Order, bag: &Bag, touched: Option<Tick>) -> u64 {
        touched.map_or_else(|| bag.opened_at(), |tick| self.opened_at(order, tick))
    }

    /// Frees a settled bag without items.
    pub(crate) fn free(&self, order: &mut Order, blocks: &Blocks, index: u8) {
        let bag = self.bag(index);
        debug_assert!(!self.is_newest(index) && bag.is_empty_from(blocks, Cursor::default()));
        let mut block = bag.first.swap(0, Ordering::Relaxed);
        bag.tail.store(0, Ordering::Relaxed);
        bag.blocks.store(0, Ordering::Relaxed);
        bag.filled.store(0, Ordering::Relaxed);
        while block != 0 {
            let next = blocks.next(block);
            blocks.put(block);
            block = next;
        }
        for queue in &mut order.queues {
            if queue.bags.front() == Some(&index) {
                queue.evict = Cursor::default();
            }
            queue.bags.retain(|&other| other != index);
        }
        if order.clean_bag == Some(index) {
            order.clean_bag = None;
        }
        self.note_counts(order);
        order.free.push(index);
    }

    /// `true` if the newest bags have as many slots as bags should when their class holds
    /// `class_items`: a 32nd of them, or a 64th of newcomers, which pass through fewer bags. The
    /// share doubles with every 64 bags of a queue, so that a class that only grows does not run
    /// out of bags. `false` as well if no more bags can be opened.
    pub(crate) fn newest_is_full(&self, blocks: &Blocks, class_items: u64) -> bool {
        let bags = |part| self.counts[part as usize].load(Ordering::Relaxed) as usize;
        if PARTS.into_iter().map(bags).sum::<usize>() + PARTS.len() > BAGS {
            return false;
        }
        PARTS.into_iter().any(|part| {
            let bag = self.bag(self.newest(part));
            let target = self.target(part, class_items);
            bag.blocks.load(Ordering::Relaxed) > 0 && u64::from(bag.slots(blocks)) >= target
        })
    }

    /// The slots that a bag should have.
    fn target(&self, part: Part, class_items: u64) -> u64 {
        let doublings = self.counts[part as usize].load(Ordering::Relaxed) / 64;
        let share = if part == Part::Newcomers { 64 } else { 32 };
        ((class_items / share) << doublings).max(4)
    }

    /// The bag of proven items to which an item of bag `from` that was last used at this tick
    /// moves, and whether it keeps its mark there.
    pub(crate) fn destination(&self, order: &Order, from: u8, used: Tick) -> (u8, bool) {
        let queue = &order.of(Part::Proven).bags;
        let newest = self.newest(Part::Proven);
        let mut bags = queue.iter().rev().copied();
        bags.next();
        let Some(alternate) = bags.next().filter(|&bag| bag != from) else {
            // There is no alternate, or the item is in it, so only the newest is newer.
            return (newest, true);
        };
        if self.bag(newest).opened_tick() <= used {
            // Its mark names the newest, which is for appends. In the alternate it must not count
            // as touched once more.
            return (alternate, false);
        }
        let mut newer = queue.iter().rev().copied().take_while(|&bag| bag != from).skip(1);
        let named = newer.find(|&bag| self.bag(bag).opened_tick() <= used);
        // A newcomer may have been used before all of these bags were opened.
        let oldest = || queue.front().copied().filter(|_| !queue.contains(&from));
        (named.or_else(oldest).unwrap_or(alternate), false)
    }
}

impl Bag {
    /// Dates an empty bag's opening.
    fn open(&self, part: Part, (tick, now): (Tick, u32), opened_at: u64) {
        self.part.store(part as u32, Ordering::Relaxed);
        self.opened_tick.store(tick, Ordering::Relaxed);
        self.passed_tick.store(tick, Ordering::Relaxed);
        self.opened_at.store(opened_at, Ordering::Relaxed);
        self.opened_secs.store(now, Ordering::Relaxed);
        self.closed_secs.store(0, Ordering::Relaxed);
    }

    /// Items in it, counted over all slots.
    pub(crate) fn items(&self, blocks: &Blocks) -> u32 {
        self.items_from(blocks, 0, usize::MAX).0.0
    }

    /// Items and slots handed out in up to `most` of its blocks, counted over all slots, starting
    /// at a block (0: the first); and the block that follows them, if there is one.
    pub(crate) fn items_from(
        &self,
        blocks: &Blocks,
        block: BlockId,
        most: usize,
    ) -> ((u32, u32), Option<BlockId>) {
        // Acquire: partner of the Release in `link_block`; the first block's header is visible.
        let mut block = if block == 0 { self.first.load(Ordering::Acquire) } else { block };
        let (mut items, mut slots) = (0, 0);
        for _ in 0..most {
            if block == 0 {
                break;
            }
            items += blocks.items(block);
            slots += blocks.claimed(block);
            block = blocks.next(block);
        }
        ((items, slots), (block != 0).then_some(block))
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

    /// The next place at or after `cursor` that was handed out, and the place after it.
    #[inline]
    pub(crate) fn step(&self, blocks: &Blocks, cursor: Cursor) -> Option<(Position, Cursor)> {
        let Cursor { mut block, mut index } = cursor;
        if block == 0 {
            // Acquire: partner of the Release in `link_block`; the first block's header is visible.
            (block, index) = (self.first.load(Ordering::Acquire), 0);
        }
        while block != 0 {
            if index < blocks.claimed(block) {
                let after = Cursor { block, index: index + 1 };
                return Some((Blocks::position(block, index), after));
            }
            // A thread's private block may follow a block that is not full.
            (block, index) = (blocks.next(block), 0);
        }
        None
    }

    /// `true` if the closing was long enough ago that no appender uses the bag.
    pub(crate) fn is_settled(&self, qsbr: &Qsbr) -> bool {
        qsbr.is_safe(self.closed_epoch.load(Ordering::Relaxed))
    }

    /// The tick at which an item of this closed bag was used, if that was after the closing. `now`
    /// is the class's tick.
    #[inline]
    pub(crate) fn touched_tick(&self, mark: u16, now: Tick) -> Option<Tick> {
        tick_of(mark, now).filter(|&used| used >= self.closed_tick.load(Ordering::Relaxed))
    }

    /// The queue that it is in.
    #[inline]
    pub(crate) fn part(&self) -> Part {
        let is_newcomers = self.part.load(Ordering::Relaxed) == Part::Newcomers as u32;
        if is_newcomers { Part::Newcomers } else { Part::Proven }
    }

    pub(crate) fn opened_tick(&self) -> Tick {
        self.opened_tick.load(Ordering::Relaxed)
    }

    fn passed_tick(&self) -> Tick {
        self.passed_tick.load(Ordering::Relaxed)
    }

    /// Records that the cleaner has examined every item, starting at this tick.
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
