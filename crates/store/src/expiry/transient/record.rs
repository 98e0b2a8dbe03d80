//! The transient ring in the record of a clean end, and its restoration after a crash. The blocks
//! of its lists are already in the file.
//!
//! Relaxed is enough: no other thread uses the store while it is saved or loaded.

use super::{List, Note, RING_SECS, Ring, Transients};
use arena::blocks::Blocks;
use arena::budget::Budget;
use arena::codec::{Reader, Writer};
use arena::sync::Ordering;

impl Transients {
    pub(crate) fn save(&self, out: &mut Writer) {
        let ring = self.ring.lock();
        let Ring { seconds, due, head, sifting, sifted_second, to_sift, listed } = &*ring;
        for list in seconds.iter().chain([due, sifting]) {
            for number in [list.first, list.last, list.taken] {
                out.number(u64::from(number));
            }
        }
        for number in [*head, *sifted_second, *to_sift] {
            out.number(u64::from(number));
        }
        out.number(*listed);
    }

    /// Files the near deadlines of a dead process's items, and empties `notes`.
    pub(crate) fn refile(
        &self,
        blocks: &Blocks,
        budget: &Budget,
        notes: &mut Vec<Note>,
        now_secs: u32,
    ) {
        let threshold = self.threshold_secs();
        let near =
            |note: &Note| note.deadline != 0 && note.deadline.saturating_sub(now_secs) <= threshold;
        notes.retain(near);
        if !notes.is_empty() {
            self.file(blocks, budget, notes, now_secs);
        }
    }

    pub(crate) fn load(&self, input: &mut Reader<'_>, blocks: &Blocks) -> Option<()> {
        let mut lists = Vec::with_capacity(RING_SECS as usize + 2);
        for _ in 0..RING_SECS + 2 {
            let list = List { first: input.small()?, last: input.small()?, taken: input.small()? };
            if !blocks.is_known(list.first) || !blocks.is_known(list.last) {
                return None;
            }
            lists.push(list);
        }
        let (sifting, due) = (lists.pop()?, lists.pop()?);
        let ring = Ring {
            seconds: lists.into_boxed_slice(),
            due,
            head: input.small()?,
            sifting,
            sifted_second: input.small()?,
            to_sift: input.small()?,
            listed: input.number()?,
        };
        self.listed.store(ring.listed, Ordering::Relaxed);
        *self.ring.lock() = ring;
        Some(())
    }
}
