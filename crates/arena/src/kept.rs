//! Free chunks of one size that a thread keeps for its next stores.
//!
//! Each thread has such a list for each size, on separate cache lines, so that neither a store nor
//! the chunk that it frees touches a line of other threads. The list is short, and its lock is
//! rarely contended: others come only to take back the chunks of a wanted page, or because they
//! found no free chunk elsewhere.
//!
//! # Laws
//!
//! 1. A thread that wants all chunks of a page first announces that ([`Keeping::refuses`] sees it),
//!    and then takes back the chunks of it in the lists ([`KeptChunks::give_up`]).
//! 2. A list checks for the announcement under its own lock. So a chunk of that page either enters
//!    the list before the search and is found, or sees the announcement and is not kept.
//! 3. A chunk that moves from the common list to this one does so under this one's lock. So a
//!    thread that takes that lock finds it in one of them.
//!
//! # Orderings
//!
//! Relaxed is enough for the copies of the numbers, which are hints and statistics. The lock orders
//! everything else.

use crate::ChunkRef;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use narrow::to_u32;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

/// Maximum number of chunks that a thread keeps. List, lock and numbers fill two lines.
#[cfg(not(loom))]
pub const KEPT_MAX: usize = 25;
/// Few, so that a model reaches the end of a list.
#[cfg(loom)]
pub const KEPT_MAX: usize = 2;

/// Free chunks of one size that a thread keeps.
#[derive(Debug, Default)]
pub struct KeptChunks {
    list: Mutex<List>,
    /// A copy of the list's length.
    len: AtomicU32,
    /// Chunks that the thread has taken for new items and pieces.
    taken: AtomicU64,
}

#[derive(Debug, Default)]
struct List {
    chunks: [ChunkRef; KEPT_MAX],
    len: u32,
    /// Its maximum number; zero until the thread has taken a chunk.
    most: u32,
}

/// The conditions under which a thread may keep a chunk.
pub trait Keeping {
    /// `true` if all chunks of this one's page are wanted elsewhere.
    fn refuses(&self, chunk: ChunkRef) -> bool;

    /// Marks a chunk as free and kept.
    fn mark(&self, chunk: ChunkRef);
}

/// Chunks for a list that has none: one to use, and some to keep.
#[derive(Debug)]
pub struct Refill<I> {
    /// The first is for use; the others are kept, as far as there is room.
    pub chunks: I,
    /// Maximum number that the list may keep from now on.
    pub most: usize,
}

impl KeptChunks {
    /// The chunk that was kept last, for a new item or piece. An empty list gets chunks from
    /// `refill`, under its lock (law 3), and takes at most half of its maximum. `soon` is called
    /// with the chunk that the next call will return, if that is known.
    #[inline(always)]
    pub fn take<I: Iterator<Item = ChunkRef>>(
        &self,
        refill: impl FnOnce() -> Refill<I>,
        soon: impl FnOnce(ChunkRef),
    ) -> Option<ChunkRef> {
        let mut list = self.list.lock();
        let chunk = match list.pop() {
            Some(chunk) => chunk,
            None => list.refill(refill())?,
        };
        if let Some(&next) = list.chunks[..list.len as usize].last() {
            soon(next);
        }
        self.len.store(list.len, Ordering::Relaxed);
        // Only the list's thread takes chunks this way, so nothing is lost.
        let taken = self.taken.load(Ordering::Relaxed);
        self.taken.store(taken + 1, Ordering::Relaxed);
        Some(chunk)
    }

    /// Keeps as many of these free chunks as it may. Returns the others through `back`, and if the
    /// list is full some older ones as well, so that most calls find room.
    #[inline]
    pub fn keep(&self, chunks: &[ChunkRef], how: &impl Keeping, back: &mut Vec<ChunkRef>) {
        let mut list = self.list.lock();
        for &chunk in chunks {
            if list.most == 0 || how.refuses(chunk) {
                back.push(chunk);
                continue;
            }
            if list.len >= list.most {
                let left = list.most / 2;
                list.shrink_to(left, back);
            }
            how.mark(chunk);
            list.push(chunk);
        }
        self.len.store(list.len, Ordering::Relaxed);
    }

    /// Removes the chunks that are `wanted`, and adds them to `into`.
    pub fn give_up(&self, wanted: impl Fn(ChunkRef) -> bool, into: &mut Vec<ChunkRef>) {
        let mut list = self.list.lock();
        let mut left = 0;
        for at in 0..list.len as usize {
            let chunk = list.chunks[at];
            if wanted(chunk) {
                into.push(chunk);
            } else {
                list.chunks[left] = chunk;
                left += 1;
            }
        }
        list.len = to_u32(left);
        self.len.store(list.len, Ordering::Relaxed);
    }

    /// Removes the older half of the chunks for another thread, at least one if there is any, and
    /// adds them to `into`. Removes nothing if the list's own thread is using it.
    pub fn share(&self, into: &mut Vec<ChunkRef>) {
        let Some(mut list) = self.list.try_lock() else { return };
        let left = list.len / 2;
        list.shrink_to(left, into);
        self.len.store(list.len, Ordering::Relaxed);
    }

    /// Limits the list to this many chunks. Those beyond go to `back`.
    pub fn limit(&self, most: usize, back: &mut Vec<ChunkRef>) {
        let mut list = self.list.lock();
        list.most = list.most.min(to_u32(most));
        let most = list.most;
        list.shrink_to(most, back);
        self.len.store(list.len, Ordering::Relaxed);
    }

    /// Chunks kept now.
    #[inline]
    pub fn len(&self) -> u64 {
        u64::from(self.len.load(Ordering::Relaxed))
    }

    /// `true` if no chunk is kept now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Chunks that the list's threads ever took.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

impl List {
    #[inline]
    fn pop(&mut self) -> Option<ChunkRef> {
        self.len = self.len.checked_sub(1)?;
        Some(self.chunks[self.len as usize])
    }

    #[inline]
    fn push(&mut self, chunk: ChunkRef) {
        self.chunks[self.len as usize] = chunk;
        self.len += 1;
    }

    #[inline(never)]
    fn refill(&mut self, refill: Refill<impl Iterator<Item = ChunkRef>>) -> Option<ChunkRef> {
        let Refill { mut chunks, most } = refill;
        let first = chunks.next()?;
        self.most = to_u32(most.min(KEPT_MAX));
        for chunk in chunks.take((self.most / 2) as usize) {
            self.push(chunk);
        }
        Some(first)
    }

    /// Removes the oldest chunks except `left`.
    fn shrink_to(&mut self, left: u32, back: &mut Vec<ChunkRef>) {
        let len = self.len as usize;
        let surplus = self.len.saturating_sub(left) as usize;
        back.extend_from_slice(&self.chunks[..surplus]);
        self.chunks.copy_within(surplus..len, 0);
        self.len -= to_u32(surplus);
    }
}
