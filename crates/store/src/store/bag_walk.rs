//! A walk over all bags, in steps that look at a bounded number of slots.
//!
//! The lock of a class's bags is held for a step, not for a bag: each bag of a large class has a
//! million slots.

use super::Store;
use crate::lru::recency::Tick;
use crate::lru::{Bag, BagList, Part};
use crate::stats::{BagStats, Count};
use arena::blocks::BlockId;
use narrow::to_u32;

/// Blocks, of 60 slots each, that one step examines.
const BLOCKS_PER_STEP: usize = 128;

/// A walk over the bags of all classes that have items, oldest first within a class.
#[derive(Debug, Default)]
pub struct BagWalk {
    /// The class, and its bags when the walk came to it.
    list: usize,
    bags: Vec<u8>,
    place: usize,
    counted: Option<Counted>,
}

/// Progress in a bag.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// Distinguishes the bag from a later one with the same number.
    opened: Tick,
    /// The next block; 0: the first.
    block: BlockId,
    items: u32,
    slots: u32,
}

/// The outcome of one step of a [`BagWalk`].
#[derive(Clone, Copy, Debug)]
pub enum BagStep {
    /// There is more to examine.
    More,
    /// The next bag.
    Bag(BagStats),
    /// There are no more bags.
    Ended,
}

impl BagWalk {
    /// Continues with the next bag.
    fn pass(&mut self) {
        self.counted = None;
        self.place += 1;
        if self.place >= self.bags.len() {
            *self = Self { list: self.list + 1, ..Self::default() };
        }
    }

    /// The proven items' bags are the last ones.
    fn role(&self, is_newest: bool) -> &'static str {
        match self.place {
            _ if is_newest => "newest",
            place if place + 2 == self.bags.len() => "alternate",
            0 => "oldest",
            _ => "closed",
        }
    }
}

impl Store {
    /// Does one step of a walk. Bags that the cleaner frees during the walk are left out.
    pub fn walk_bags(&self, walk: &mut BagWalk) -> BagStep {
        let Some(list) = self.lists.get(walk.list) else { return BagStep::Ended };
        let order = list.order.lock();
        if walk.bags.is_empty() {
            if self.counters.of_class(list.id(), Count::Items) > 0 {
                walk.bags = order.bags().collect();
            } else {
                walk.pass();
                return BagStep::More;
            }
        }
        let index = walk.bags[walk.place];
        let bag = list.bag(index);
        let from = walk.counted.unwrap_or_else(|| Counted {
            opened: bag.opened_tick(),
            block: 0,
            items: 0,
            slots: 0,
        });
        if order.bags().all(|other| other != index) || bag.opened_tick() != from.opened {
            walk.pass();
            return BagStep::More;
        }
        // Blocks of a bag that was not freed have not moved.
        let ((items, slots), next) = bag.items_from(&self.blocks, from.block, BLOCKS_PER_STEP);
        let (items, slots) = (from.items + items, from.slots + slots);
        if let Some(block) = next {
            walk.counted = Some(Counted { block, items, slots, ..from });
            return BagStep::More;
        }
        let found = self.bag_stats_of(list, bag, (items, slots), walk);
        walk.pass();
        BagStep::Bag(found)
    }

    fn bag_stats_of(
        &self,
        list: &BagList,
        bag: &Bag,
        (items, slots): (u32, u32),
        walk: &BagWalk,
    ) -> BagStats {
        BagStats {
            class: list.id(),
            place: to_u32(walk.place),
            role: walk.role(list.is_newest(walk.bags[walk.place])),
            queue: match bag.part() {
                Part::Newcomers => "newcomers",
                Part::Proven => "proven",
            },
            items,
            slots,
            opened_secs: bag.opened_secs(),
            closed_secs: bag.closed_secs(),
        }
    }
}
