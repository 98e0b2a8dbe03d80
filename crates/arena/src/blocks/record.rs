//! Blocks in the record of a clean end, and the start without a record.
//!
//! Relaxed is enough: no other thread uses the store while it is saved or loaded.

use super::{Blocks, FreeBlocks, GROUP, GROUP_BYTES, Group, Position, WORDS};
use crate::budget::Budget;
use crate::codec::{Reader, Writer};
use crate::sync::Ordering;
use narrow::to_u32;

impl Blocks {
    /// Writes the state that the blocks' own words do not contain.
    pub fn save(&self, out: &mut Writer) {
        let free = self.free.lock();
        out.numbers(free.groups.iter().map(|group| u64::from(group.is_charged)));
        out.numbers(free.groups.iter().map(|group| u64::from(group.used)));
        out.numbers(free.groups.iter().map(|group| u64::from(group.head)));
        out.numbers(free.groups.iter().map(|group| u64::from(group.touched)));
        out.number(self.in_use.load(Ordering::Relaxed));
    }

    /// Loads the output of `save`, and charges the blocks' memory. `None` if it is invalid.
    pub fn load(&self, input: &mut Reader<'_>, budget: &Budget) -> Option<()> {
        let charged: Vec<u64> = input.numbers()?;
        let (used, heads) = (input.numbers()?, input.numbers()?);
        let touched: Vec<u32> = input.numbers()?;
        let groups: Vec<Group> = charged
            .into_iter()
            .zip(used)
            .zip(heads)
            .zip(touched)
            .map(|(((charged, used), head), touched)| Group {
                is_charged: charged != 0,
                used,
                head,
                touched,
            })
            .collect();
        let blocks_max = self.words.len() / WORDS as usize;
        let has_sense = |(number, group): (usize, &Group)| {
            number * (GROUP as usize) < blocks_max
                && group.used <= group.touched
                && group.touched <= GROUP
                && (group.head == 0 || (group.head / GROUP) as usize == number)
        };
        if !groups.iter().enumerate().all(has_sense) {
            return None;
        }
        let charged = groups.iter().filter(|group| group.is_charged);
        let bytes = charged.clone().count() as u64 * GROUP_BYTES;
        let empty = to_u32(charged.filter(|group| group.used == 0).count());
        *self.free.lock() = FreeBlocks { groups, first_with_room: 0, empty };
        self.in_use.store(input.number()?, Ordering::Relaxed);
        self.charged.store(bytes, Ordering::Relaxed);
        // The file already has them.
        budget.take(bytes, || true).then_some(())
    }

    /// The opening tick of the bag that a dead process had in this position; 0 if the position is
    /// invalid.
    pub fn opened_tick_left(&self, position: Position) -> u64 {
        let block = (position / WORDS * WORDS) as usize;
        let word = |at: usize| self.words.get(block + at).map_or(0, |w| w.load(Ordering::Relaxed));
        u64::from(word(3)) | u64::from(word(0) >> 16) << 32
    }

    /// Forgets all blocks of an earlier process; none is in use yet.
    pub fn forget(&self) {
        self.words.release(0, self.words.len());
    }

    /// `true` if this may be a block in use.
    pub fn is_known(&self, block: u32) -> bool {
        ((block / GROUP) as usize) < self.free.lock().groups.len().max(1)
    }

    /// Bytes of blocks that have been in use.
    pub fn touched_bytes(&self) -> u64 {
        self.free.lock().groups.len() as u64 * GROUP_BYTES
    }
}
