//! Blocks in the record of a clean end, and the start without a record.
//!
//! Relaxed is enough: no other thread uses the store while it is saved or loaded.

use super::{BLOCK_BYTES, Blocks, FreeBlocks, Position, WORDS};
use crate::memory::budget::Budget;
use crate::memory::codec::{Reader, Writer};
use crate::sync::Ordering;

impl Blocks {
    pub(crate) fn save(&self, out: &mut Writer) {
        let free = self.free.lock();
        out.number(u64::from(free.head));
        out.number(u64::from(free.untouched));
        out.number(self.in_use.load(Ordering::Relaxed));
        out.number(self.charged.load(Ordering::Relaxed));
    }

    /// Loads what `save` wrote, and charges the blocks' memory. `None` if it makes no sense.
    pub(crate) fn load(&self, input: &mut Reader<'_>, budget: &Budget) -> Option<()> {
        let limit = self.free.lock().limit;
        let (head, untouched) = (input.small()?, input.small()?);
        if head >= untouched || untouched > limit {
            return None;
        }
        *self.free.lock() = FreeBlocks { head, untouched, limit };
        self.in_use.store(input.number()?, Ordering::Relaxed);
        let charged = input.number()?;
        self.charged.store(charged, Ordering::Relaxed);
        budget.charge(charged);
        Some(())
    }

    /// The tick at which the bag was opened that a dead process had in this position; 0 if the
    /// position makes no sense.
    pub(crate) fn opened_tick_left(&self, position: Position) -> u64 {
        let block = (position / WORDS * WORDS) as usize;
        let word = |at: usize| self.words.get(block + at).map_or(0, |w| w.load(Ordering::Relaxed));
        u64::from(word(3)) | u64::from(word(0) >> 16) << 32
    }

    /// Forgets all blocks of an earlier process; none is in use yet.
    pub(crate) fn forget(&self) {
        self.words.release(0, self.words.len());
    }

    /// `true` if this may be a block in use.
    pub(crate) fn is_known(&self, block: u32) -> bool {
        block < self.free.lock().untouched
    }

    /// Bytes of blocks that have been in use.
    pub(crate) fn touched_bytes(&self) -> u64 {
        u64::from(self.free.lock().untouched) * BLOCK_BYTES
    }
}
