//! Transient items: short-lived items, listed by the second in which they expire.
//!
//! An item whose remaining life is at most the threshold is noted in a ring of lists, one for each
//! second. When a second comes, its list is due, and the cleaner processes it in steps and frees
//! each dead item, at any position in its class's order.
//!
//! ```text
//!     ring:  [second 71: c]  [second 72: ]  [second 73: a e f]  ...        due: b d
//! ```
//!
//! # Notes instead of places
//!
//! The paper keeps such items in its lists *instead of* the LRU. Here an item stays in its bag, and
//! the ring holds its chunk's reference. So there is one eviction order for all items, in which
//! short-lived ones have no special place. Overwriting, deleting, moving a page and flushing ignore
//! the ring, and an item needs no second link in its header.
//!
//! A note may be out of date, which is harmless. A note only says "look at this chunk now", and the
//! item linked there is freed only if it is dead. A chunk that has been cut differently since is
//! recognised by its page's class.
//!
//! A note of an item that was overwritten or deleted stays until its second comes. If such notes
//! outnumber the items, the cleaner removes them, so notes take at most about twelve bytes for each
//! item in the store.
//!
//! # Laws
//!
//! 1. A thread keeps its notes to itself until it announces that it holds no reference. Then it
//!    files them under one lock.
//! 2. A thread that holds the ring's lock takes no lock but that of the free blocks.
//!
//! Relaxed is enough for the threshold and the copied count: neither guards other memory.
//! References in the ring's blocks are read and written under the ring's lock.
//!
//! Source: Nishtala et al., "Scaling Memcache at Facebook" (NSDI 2013), section 6.3. Threshold and
//! notes are ours.

use arena::ChunkRef;
use arena::blocks::{BlockId, Blocks, Purpose};
use arena::budget::Budget;
use arena::sync::{AtomicU32, AtomicU64, Mutex, Ordering};

#[cfg(not(miri))]
mod record;

/// Maximum threshold, in seconds.
pub const TRANSIENT_SECS_MAX: u32 = 3600;

/// Seconds that the ring distinguishes: the maximum threshold, and some more for threads whose
/// clock is ahead of the cleaner's.
const RING_SECS: u32 = 4096;
/// Notes sifted together.
const SIFTED: usize = 4096;
/// Number of notes below which sifting is not worthwhile.
const FEW_NOTES: u64 = 16_384;

/// The ring and its threshold.
#[derive(Debug)]
pub(crate) struct Transients {
    threshold_secs: AtomicU32,
    /// Notes in the ring: a copy that is read without the lock.
    listed: AtomicU64,
    ring: Mutex<Ring>,
}

/// A chunk to check in this second: its item expires then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub deadline: u32,
    pub chunk: ChunkRef,
}

#[derive(Debug)]
struct Ring {
    seconds: Box<[List]>,
    /// Due notes.
    due: List,
    /// First second that is not due.
    head: u32,
    /// Notes of one second that are being sifted, and that second.
    sifting: List,
    sifted_second: u32,
    /// Seconds still to be sifted.
    to_sift: u32,
    listed: u64,
}

/// A queue of references in blocks.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    first: BlockId,
    last: BlockId,
    /// Slots of the first block already taken.
    taken: u32,
}

impl Transients {
    pub(crate) fn new(threshold_secs: u32) -> Self {
        let ring = Ring {
            seconds: vec![List::default(); RING_SECS as usize].into_boxed_slice(),
            due: List::default(),
            head: 0,
            sifting: List::default(),
            sifted_second: 0,
            to_sift: 0,
            listed: 0,
        };
        let threshold_secs = AtomicU32::new(threshold_secs.min(TRANSIENT_SECS_MAX));
        Self { threshold_secs, listed: AtomicU64::new(0), ring: Mutex::new(ring) }
    }

    /// Remaining life, in seconds, up to which an item is transient; 0: no item is.
    #[inline]
    pub(crate) fn threshold_secs(&self) -> u32 {
        self.threshold_secs.load(Ordering::Relaxed)
    }

    pub(crate) fn set_threshold_secs(&self, secs: u32) {
        self.threshold_secs.store(secs.min(TRANSIENT_SECS_MAX), Ordering::Relaxed);
    }

    /// Notes in the ring, those out of date included.
    pub(crate) fn listed(&self) -> u64 {
        self.listed.load(Ordering::Relaxed)
    }

    /// Files a thread's notes at this second, and empties `notes`.
    pub(crate) fn file(
        &self,
        blocks: &Blocks,
        budget: &Budget,
        notes: &mut Vec<Note>,
        now_secs: u32,
    ) {
        self.with_ring(|ring| {
            notes.drain(..).for_each(|note| ring.file(blocks, budget, note, now_secs));
        });
    }

    /// Takes up to `most` chunks whose notes are due at this second.
    pub(crate) fn take_due(
        &self,
        blocks: &Blocks,
        now_secs: u32,
        into: &mut Vec<ChunkRef>,
        most: usize,
    ) {
        self.with_ring(|ring| {
            ring.advance(blocks, now_secs);
            ring.take_due(blocks, into, most);
        });
    }

    /// Takes some notes of one second to be sifted; returns that second. `None` if the notes do not
    /// clearly outnumber the `items` of the store, or all seconds were sifted.
    pub(crate) fn take_to_sift(
        &self,
        blocks: &Blocks,
        items: impl FnOnce() -> u64,
        into: &mut Vec<ChunkRef>,
    ) -> Option<u32> {
        self.with_ring(|ring| {
            if ring.to_sift == 0 && ring.listed > FEW_NOTES + 2 * items() {
                ring.to_sift = RING_SECS;
            }
            ring.take_to_sift(blocks, into)
        })
    }

    fn with_ring<T>(&self, act: impl FnOnce(&mut Ring) -> T) -> T {
        let mut ring = self.ring.lock();
        let result = act(&mut ring);
        self.listed.store(ring.listed, Ordering::Relaxed);
        result
    }
}

impl Ring {
    /// Files a note. A note is dropped if few blocks are free, or if its second is too far ahead
    /// for the ring; then a pass frees the item.
    fn file(&mut self, blocks: &Blocks, budget: &Budget, note: Note, now_secs: u32) {
        if self.listed == 0 {
            self.head = now_secs;
        }
        let list = match note.deadline.checked_sub(self.head) {
            None => &mut self.due,
            Some(RING_SECS..) => return,
            Some(_) => &mut self.seconds[(note.deadline % RING_SECS) as usize],
        };
        self.listed += u64::from(list.push(blocks, budget, note.chunk));
    }

    /// Makes every second up to this one due.
    fn advance(&mut self, blocks: &Blocks, now_secs: u32) {
        if self.head > now_secs {
            return;
        }
        if self.sifted_second <= now_secs {
            let sifting = std::mem::take(&mut self.sifting);
            self.due.append(blocks, sifting);
        }
        let come = (now_secs - self.head + 1).min(RING_SECS);
        for second in self.head..self.head + come {
            let list = std::mem::take(&mut self.seconds[(second % RING_SECS) as usize]);
            self.due.append(blocks, list);
        }
        self.head = now_secs + 1;
    }

    fn take_due(&mut self, blocks: &Blocks, into: &mut Vec<ChunkRef>, most: usize) {
        self.due.take(blocks, into, most);
        self.listed -= into.len() as u64;
    }

    /// Takes some notes to be sifted, and returns their second. `None`: all seconds were sifted.
    fn take_to_sift(&mut self, blocks: &Blocks, into: &mut Vec<ChunkRef>) -> Option<u32> {
        while self.sifting.first == 0 && self.to_sift > 0 {
            self.to_sift -= 1;
            self.sifted_second = self.head + self.to_sift;
            let second = (self.sifted_second % RING_SECS) as usize;
            self.sifting = std::mem::take(&mut self.seconds[second]);
        }
        self.sifting.take(blocks, into, SIFTED);
        self.listed -= into.len() as u64;
        (!into.is_empty()).then_some(self.sifted_second)
    }
}

impl List {
    fn push(&mut self, blocks: &Blocks, budget: &Budget, chunk: ChunkRef) -> bool {
        let position = match self.last {
            0 => None,
            last => blocks.claim(last),
        };
        let position = position.or_else(|| {
            let block = blocks.take(budget, None, Purpose::Note)?;
            if self.last == 0 {
                self.first = block;
            } else {
                blocks.link(self.last, block);
            }
            self.last = block;
            blocks.claim(block)
        });
        if let Some(position) = position {
            blocks.slot(position).store(chunk, Ordering::Relaxed);
        }
        position.is_some()
    }

    fn append(&mut self, blocks: &Blocks, other: Self) {
        match (self.last, other.first) {
            (_, 0) => {}
            (0, _) => *self = other,
            (last, first) => {
                // Slots taken out of its first block are empty, and empty slots are skipped.
                blocks.link(last, first);
                self.last = other.last;
            }
        }
    }

    /// Takes up to `most` references, from the front.
    fn take(&mut self, blocks: &Blocks, into: &mut Vec<ChunkRef>, most: usize) {
        while self.first != 0 && into.len() < most {
            if self.taken < blocks.claimed(self.first) {
                let slot = blocks.slot(Blocks::position(self.first, self.taken));
                into.extend(Some(slot.swap(0, Ordering::Relaxed)).filter(|&chunk| chunk != 0));
                self.taken += 1;
                continue;
            }
            let block = self.first;
            let next = blocks.next(block);
            *self = Self { first: next, last: if next == 0 { 0 } else { self.last }, taken: 0 };
            blocks.put(block);
        }
    }
}
