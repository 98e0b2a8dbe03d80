//! Appending to bags, in shared blocks or in a private block for each thread.
//!
//! A private block saves a storing thread the lines that all appenders would write to: the count of
//! the block's slots, and the slots. It is a block of the bag like any other, linked into the bag's
//! chain when it is taken, so passes find its items. It stays there, full or not, when the bag is
//! closed: unused slots are lost. So a bag has such blocks only if it is large.
//!
//! An item that replaces another one takes its slot instead, if it can (decision 159).
//!
//! # Laws
//!
//! 1. A thread remembers its block with the bag, and with the tick at which the bag was opened. It
//!    appends to the block only if that bag is the newest in its present section and was opened at
//!    that tick. No tick is opened twice, so the block has not left the bag; and the bag is not
//!    freed before the section ends.
//! 2. Slots are claimed by an addition, whichever thread appends. So a pass that moves items to the
//!    newest bag may use a thread's block.

use super::{Bag, BagList, Part};
use crate::lru::recency::Tick;
use arena::ChunkRef;
use arena::blocks::{BlockId, Blocks, Owner, Position, Purpose, SLOTS};
use arena::budget::Budget;
use arena::sync::Ordering;
use std::cell::Cell;

/// Slots of a bag for each that may be lost in the blocks of threads.
const SLOTS_PER_LOST: u64 = 4;

/// The block in which a thread appends to the newest bag of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnBlock {
    bag: u8,
    opened: Tick,
    /// Zero: none.
    block: BlockId,
}

impl OwnBlock {
    /// The block, if it is in this bag, which has this number and is the newest (law 1); else zero.
    #[inline]
    fn of(self, index: u8, bag: &Bag) -> BlockId {
        let is_of = self.bag == index && self.opened == bag.opened_tick();
        if is_of { self.block } else { 0 }
    }
}

/// `true` if a bag of this many slots is large enough for each storing thread to have a private
/// block. Half of such a block is lost, on average.
pub(super) fn has_own_blocks(slots: u64, threads: u64) -> bool {
    threads > 1 && slots >= threads * u64::from(SLOTS / 2) * SLOTS_PER_LOST
}

impl BagList {
    /// Puts an item into the slot of the one that it replaces, which is at this position. So no
    /// hole is left, and no block is needed. In a closed bag the item counts as used, like one that
    /// was read: its mark is of the present tick, and a pass moves it. The slot is never empty, so
    /// the bag is not freed in the meantime.
    ///
    /// `None`: the item must go to the newest bag, since it has another class, a pass would take it
    /// for a newcomer, or only the newest bag will do. The caller holds the key's stripe.
    #[inline]
    pub(crate) fn take_place(
        &self,
        blocks: &Blocks,
        position: Position,
        item: ChunkRef,
        only_in_newest: bool,
    ) -> Option<Position> {
        let (list, bag) = blocks.bag_at(position);
        let is_taken = list == self.id
            && self.bag(bag).part() == Part::Proven
            && (!only_in_newest || self.newest(Part::Proven) == bag);
        is_taken.then(|| {
            // Release: partner of the Acquire in `Blocks::item_at`.
            blocks.slot(position).store(item, Ordering::Release);
            position
        })
    }

    /// Appends an item to the newest bag of a queue, in the thread's block if the bag has such
    /// blocks. `None`: no block is available. The caller is in a section, holds the key's stripe,
    /// and has written the item's bytes.
    #[inline(always)]
    pub(crate) fn append_newest(
        &self,
        blocks: &Blocks,
        budget: &Budget,
        part: Part,
        item: ChunkRef,
        own: &Cell<OwnBlock>,
    ) -> Option<Position> {
        let index = self.newest(part);
        let bag = self.bag(index);
        let block = if bag.has_own_blocks() {
            own.get().of(index, bag)
        } else {
            // Acquire: partner of the Release in `link_block`; the block's header is visible.
            bag.tail.load(Ordering::Acquire)
        };
        if block != 0
            && let Some(position) = bag.append_in(blocks, block, item)
        {
            return Some(position);
        }
        if bag.has_own_blocks() {
            self.append_in_new(blocks, budget, index, item, own)
        } else {
            self.append(blocks, budget, index, item, Purpose::Item)
        }
    }

    /// Appends an item to the bag in a fresh block, which becomes the thread's private block. If
    /// there is none, in the block that all threads share.
    #[inline(never)]
    fn append_in_new(
        &self,
        blocks: &Blocks,
        budget: &Budget,
        index: u8,
        item: ChunkRef,
        own: &Cell<OwnBlock>,
    ) -> Option<Position> {
        let bag = self.bag(index);
        let opened = bag.opened_tick();
        let block = {
            let _growing = self.grow.lock();
            // Relaxed: the tail changes under this lock.
            let tail = bag.tail.load(Ordering::Relaxed);
            self.link_block(blocks, budget, index, tail, Purpose::Item)
        };
        let position = block.and_then(|block| {
            own.set(OwnBlock { bag: index, opened, block });
            bag.append_in(blocks, block, item)
        });
        position.or_else(|| self.append(blocks, budget, index, item, Purpose::Item))
    }

    /// Appends an item to any bag, in its last block. The caller holds the order lock, unless this
    /// is the newest.
    #[inline(never)]
    pub(crate) fn append(
        &self,
        blocks: &Blocks,
        budget: &Budget,
        index: u8,
        item: ChunkRef,
        purpose: Purpose,
    ) -> Option<Position> {
        let bag = self.bag(index);
        loop {
            // Acquire: partner of the Release in `link_block`; the block's header is visible.
            let tail = bag.tail.load(Ordering::Acquire);
            if tail != 0
                && let Some(position) = bag.append_in(blocks, tail, item)
            {
                return Some(position);
            }
            let _growing = self.grow.lock();
            if bag.tail.load(Ordering::Relaxed) == tail {
                self.link_block(blocks, budget, index, tail, purpose)?;
            }
            // Otherwise another appender was faster.
        }
    }

    /// Links a fresh block behind the bag's last one. The caller holds the grow lock.
    fn link_block(
        &self,
        blocks: &Blocks,
        budget: &Budget,
        index: u8,
        last: BlockId,
        purpose: Purpose,
    ) -> Option<BlockId> {
        let bag = self.bag(index);
        let owner = Owner { list: self.id, bag: index, opened: bag.opened_tick() };
        let block = blocks.take(budget, Some(owner), purpose)?;
        if last == 0 {
            // Release: partner of the Acquire in `step`.
            bag.first.store(block, Ordering::Release);
        } else {
            blocks.link(last, block);
        }
        bag.blocks.fetch_add(1, Ordering::Relaxed);
        // Release: partner of the Acquire in `append` and `slots`.
        bag.tail.store(block, Ordering::Release);
        Some(block)
    }
}

impl Bag {
    /// Appends an item in this block of the bag; `None` if all its slots were handed out.
    #[inline]
    fn append_in(&self, blocks: &Blocks, block: BlockId, item: ChunkRef) -> Option<Position> {
        let position = blocks.claim(block)?;
        if Blocks::is_last(position) {
            self.filled.fetch_add(1, Ordering::Relaxed);
        }
        // Release: partner of the Acquire in `Blocks::item_at`.
        blocks.slot(position).store(item, Ordering::Release);
        Some(position)
    }

    /// `true` if each thread that appends to it has a private block.
    #[inline]
    fn has_own_blocks(&self) -> bool {
        self.own_blocks.load(Ordering::Relaxed) != 0
    }

    /// Slots handed out. An estimate if threads have private blocks: blocks that are not full count
    /// half. They are not read, since that would take their lines from the threads.
    pub(crate) fn slots(&self, blocks: &Blocks) -> u32 {
        let filled = self.filled.load(Ordering::Relaxed);
        let others = self.blocks.load(Ordering::Relaxed).saturating_sub(filled);
        if others == 0 || self.has_own_blocks() {
            return filled * SLOTS + others * SLOTS / 2;
        }
        // Acquire: partner of the Release in `link_block`; the count in the block's header is
        // visible.
        match self.tail.load(Ordering::Acquire) {
            0 => 0,
            tail => filled * SLOTS + blocks.claimed(tail),
        }
    }
}
