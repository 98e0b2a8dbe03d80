//! Bag blocks: the memory in which bags list their items.
//!
//! A block is 64 words: a header of four and 60 slots. A slot holds the reference of one item. Its
//! index over all blocks is the item's *position*, which the item keeps in its header. So an item
//! leaves its bag by one store of zero into its slot, wherever it stands, and its memory can be
//! reused at once.
//!
//! ```text
//!     word 0: the bag (list and number), high part of 3   1: next block   2: slots handed out
//!     word 3: the tick at which the bag was opened
//! ```
//!
//! Only the recovery after a crash uses the tick: nothing else is left of the bags' order.
//!
//! # Orderings
//!
//! A slot's item and a block's link are published with Release. Relaxed is enough for the rest: a
//! claim only assigns an index to the claimer, an emptied slot is always skipped, and the numbers
//! are statistics. `put` runs after a grace period, so no appender holds an old block.
//!
//! # Why not a list through the items
//!
//! The Bag LRU paper links items by their own `next` pointers. A singly linked item can leave only
//! when a pass reaches it. So every overwrite would pin a dead chunk until the cleaner passes, and
//! no page could be emptied without a walk over its whole class. Slots cost as many bytes as the
//! pointer, and a pass reads adjacent references, so it can fetch the items ahead of time.

use crate::ChunkRef;
use crate::budget::Budget;
use crate::region::Region;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use narrow::to_u32;

#[cfg(not(loom))]
mod record;

/// Number of a block; zero is none.
pub type BlockId = u32;
/// Index of a slot over all blocks; zero is none.
pub type Position = u32;

#[cfg(not(loom))]
const WORDS: u32 = 64;
/// Two slots, so that a model reaches the end of a block.
#[cfg(loom)]
const WORDS: u32 = 6;
const HEADER_WORDS: u32 = 4;
/// Slots of one block.
pub const SLOTS: u32 = WORDS - HEADER_WORDS;
/// Blocks of a group (64 KiB).
const GROUP: u32 = 256;
const GROUP_BYTES: u64 = 64 << 10;
/// Empty groups kept for the next blocks.
#[cfg(not(loom))]
const EMPTY_KEPT: u32 = 2;

/// The use of a block, in the order in which blocks are refused while few are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A note, which may be dropped.
    Note,
    /// A new item.
    Item,
    /// An item that moves, and otherwise stays where it is.
    Move,
    /// An item that moves so that the blocks of its bag become free.
    Merge,
}

/// The bag that a block belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The list of the bag.
    pub list: u8,
    /// The bag's number in it.
    pub bag: u8,
    /// The tick at which the bag was opened, below 2^48.
    pub opened: u64,
}

/// All blocks of one store. Blocks are taken from the first group that has one, so that the last
/// groups become empty and free their memory.
#[derive(Debug)]
pub struct Blocks {
    words: Region<AtomicU32>,
    free: Mutex<FreeBlocks>,
    in_use: AtomicU64,
    charged: AtomicU64,
}

#[derive(Debug, Default)]
struct FreeBlocks {
    /// All groups that were ever used, in order.
    groups: Vec<Group>,
    /// No group before this one has a free block.
    first_with_room: usize,
    /// Charged groups without a block in use.
    empty: u32,
}

/// Neighbouring blocks, which get and free their memory together.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    is_charged: bool,
    /// Blocks in use.
    used: u32,
    /// First of the blocks that were put back; zero if none.
    head: BlockId,
    /// Blocks that were ever taken since the group got its memory.
    touched: u32,
}

impl Owner {
    /// Words 0 and 3 of the bag's blocks.
    fn words(self) -> [u32; 2] {
        let [a, b, c, d, high @ .., _, _] = self.opened.to_le_bytes();
        let bag = u32::from_le_bytes([self.bag, self.list, high[0], high[1]]);
        [bag, u32::from_le_bytes([a, b, c, d])]
    }
}

impl Blocks {
    /// Blocks in `words`, none in use.
    #[must_use]
    pub fn new(words: Region<AtomicU32>) -> Self {
        Self {
            words,
            free: Mutex::new(FreeBlocks::default()),
            in_use: AtomicU64::new(0),
            charged: AtomicU64::new(0),
        }
    }

    /// Quarters of all blocks that are in use: 0 to 4, rounded down.
    pub fn quarters_in_use(&self) -> u64 {
        self.in_use.load(Ordering::Relaxed) * 4 / self.count()
    }

    /// `true` if a merge can move this many items.
    pub fn has_room_to_merge(&self, items: u32) -> bool {
        let free = self.count().saturating_sub(self.in_use.load(Ordering::Relaxed));
        u64::from(items.div_ceil(SLOTS)) <= free
    }

    /// All blocks, in use or not.
    fn count(&self) -> u64 {
        // Block 0 is none.
        (self.words.len() as u64 / u64::from(WORDS)).saturating_sub(1).max(1)
    }

    /// Blocks that stay free for other purposes.
    fn kept_from(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Note => self.count() / 4,
            Purpose::Item => self.count() / 16,
            Purpose::Move => self.count() / 32,
            Purpose::Merge => 0,
        }
    }

    /// A fresh block for this bag, or for none, all slots empty. `None` when the reservation or the
    /// file system is used up, or when the free blocks are kept for other purposes.
    pub fn take(&self, budget: &Budget, owner: Option<Owner>, purpose: Purpose) -> Option<BlockId> {
        let in_use = self.in_use.load(Ordering::Relaxed);
        if in_use + self.kept_from(purpose) >= self.count() {
            return None;
        }
        let block = self.take_free(&mut self.free.lock(), budget)?;
        self.in_use.fetch_add(1, Ordering::Relaxed);
        let [bag, opened] = owner.map_or([0; 2], Owner::words);
        self.word(block, 0).store(bag, Ordering::Relaxed);
        self.word(block, 1).store(0, Ordering::Relaxed);
        self.word(block, 2).store(0, Ordering::Relaxed);
        self.word(block, 3).store(opened, Ordering::Relaxed);
        Some(block)
    }

    fn take_free(&self, free: &mut FreeBlocks, budget: &Budget) -> Option<BlockId> {
        loop {
            let number = free.first_with_room;
            let first = to_u32(number) * GROUP;
            let blocks = self.blocks_of(number);
            if blocks == 0 {
                return None;
            }
            if number == free.groups.len() {
                free.groups.push(Group::default());
            }
            let group = &mut free.groups[number];
            if !group.is_charged {
                if !self.charge(budget, number, group) {
                    return None;
                }
                free.empty += 1;
            }
            let block = match group.head {
                0 if group.touched < blocks => {
                    group.touched += 1;
                    first + group.touched - 1
                }
                0 => {
                    free.first_with_room += 1;
                    continue;
                }
                head => {
                    group.head = self.next(head);
                    head
                }
            };
            free.empty -= u32::from(group.used == 0);
            group.used += 1;
            return Some(block);
        }
    }

    /// Blocks of a group: none after the last.
    fn blocks_of(&self, group: usize) -> u32 {
        // `Layout` keeps the words below 2^32, so every position fits.
        let limit = to_u32(self.words.len()) / WORDS;
        GROUP.min(limit.saturating_sub(to_u32(group) * GROUP))
    }

    /// Gets the memory of a group; `false` if the file system is full.
    fn charge(&self, budget: &Budget, number: usize, group: &mut Group) -> bool {
        let first = to_u32(number) * GROUP * WORDS;
        let words = self.blocks_of(number) * WORDS;
        if !budget.take(GROUP_BYTES, || self.words.commit(first as usize, words as usize)) {
            return false;
        }
        // Block 0 is none.
        *group = Group { is_charged: true, touched: u32::from(number == 0), ..*group };
        self.charged.fetch_add(GROUP_BYTES, Ordering::Relaxed);
        true
    }

    /// Takes memory in a file for blocks ahead of appends, which cannot wait until its file system
    /// has room. Returns the number of bytes that it did not get.
    #[cfg(not(loom))]
    pub fn reserve(&self, budget: &Budget) -> u64 {
        if !self.words.is_in_file() {
            return 0;
        }
        let mut free = self.free.lock();
        for number in free.first_with_room.. {
            if free.empty >= EMPTY_KEPT || self.blocks_of(number) == 0 {
                break;
            }
            if number == free.groups.len() {
                free.groups.push(Group::default());
            }
            let group = &mut free.groups[number];
            if !group.is_charged {
                if !self.charge(budget, number, group) {
                    return u64::from(EMPTY_KEPT - free.empty) * GROUP_BYTES;
                }
                free.empty += 1;
            }
        }
        0
    }

    /// Takes back a block whose slots are all empty and that no appender can still use.
    pub fn put(&self, block: BlockId) {
        let mut free = self.free.lock();
        let number = (block / GROUP) as usize;
        let group = &mut free.groups[number];
        self.word(block, 1).store(group.head, Ordering::Relaxed);
        group.head = block;
        group.used -= 1;
        let is_empty = group.used == 0;
        free.empty += u32::from(is_empty);
        free.first_with_room = free.first_with_room.min(number);
        self.in_use.fetch_sub(1, Ordering::Relaxed);
    }

    /// Frees the memory of empty groups, except a few.
    #[cfg(not(loom))]
    pub fn give_back(&self, budget: &Budget) {
        let mut free = self.free.lock();
        if free.empty <= EMPTY_KEPT {
            return;
        }
        // The last ones, since the first ones are taken first.
        for number in (0..free.groups.len()).rev() {
            let group = &mut free.groups[number];
            if !group.is_charged || group.used > 0 {
                continue;
            }
            *group = Group::default();
            let words = (GROUP * WORDS) as usize;
            let first = number * words;
            self.words.release(first, words.min(self.words.len() - first));
            budget.give_back(GROUP_BYTES);
            self.charged.fetch_sub(GROUP_BYTES, Ordering::Relaxed);
            free.empty -= 1;
            if free.empty <= EMPTY_KEPT {
                return;
            }
        }
    }

    #[inline]
    fn word(&self, block: BlockId, word: u32) -> &AtomicU32 {
        &self.words[(block * WORDS + word) as usize]
    }

    /// The slot at a position.
    #[inline]
    pub fn slot(&self, position: Position) -> &AtomicU32 {
        &self.words[position as usize]
    }

    /// Fetches the lines that are used when the item at this position leaves its bag, or when
    /// another takes its place.
    #[inline]
    pub fn prefetch(&self, position: Position) {
        crate::region::prefetch(std::ptr::from_ref(self.slot(position)));
        crate::region::prefetch(std::ptr::from_ref(self.word(position / WORDS, 0)));
    }

    /// Position of the block's slot `index`.
    #[inline]
    pub fn position(block: BlockId, index: u32) -> Position {
        block * WORDS + HEADER_WORDS + index
    }

    /// The list and the number of the bag that owns the slot at a position; list 0 if none does.
    #[inline]
    pub fn bag_at(&self, position: Position) -> (u8, u8) {
        let [bag, list, ..] = self.word(position / WORDS, 0).load(Ordering::Relaxed).to_le_bytes();
        (list, bag)
    }

    /// Claims the block's next slot; `None` when all have been handed out.
    #[inline]
    pub fn claim(&self, block: BlockId) -> Option<Position> {
        let index = self.word(block, 2).fetch_add(1, Ordering::Relaxed);
        (index < SLOTS).then(|| Self::position(block, index))
    }

    /// `true` if no slot of its block comes after this one.
    #[inline]
    #[must_use]
    pub fn is_last(position: Position) -> bool {
        position % WORDS == WORDS - 1
    }

    /// Slots handed out so far.
    #[inline]
    pub fn claimed(&self, block: BlockId) -> u32 {
        self.word(block, 2).load(Ordering::Relaxed).min(SLOTS)
    }

    /// Items in the block's slots.
    pub fn items(&self, block: BlockId) -> u32 {
        let is_taken =
            |index: &u32| self.slot(Self::position(block, *index)).load(Ordering::Relaxed) != 0;
        to_u32((0..self.claimed(block)).filter(is_taken).count())
    }

    /// The block that follows; zero if none.
    #[inline]
    pub fn next(&self, block: BlockId) -> BlockId {
        // Acquire: partner of the Release in `link`; the next block's header is visible.
        self.word(block, 1).load(Ordering::Acquire)
    }

    /// Makes `next` follow `block`.
    pub fn link(&self, block: BlockId, next: BlockId) {
        // Release: partner of the Acquire in `next`.
        self.word(block, 1).store(next, Ordering::Release);
    }

    /// The item in the block's slot `index`; zero if none.
    #[inline]
    pub fn item(&self, block: BlockId, index: u32) -> ChunkRef {
        self.item_at(Self::position(block, index))
    }

    /// The item in the slot at a position; zero if none.
    #[inline]
    pub fn item_at(&self, position: Position) -> ChunkRef {
        // Acquire: pairs with the Release in `BagList::append`; the item's header and key are
        // visible.
        self.slot(position).load(Ordering::Acquire)
    }

    /// Bytes charged to the budget.
    pub fn bytes(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }
}
