//! Unlinked items of one thread, on their way back to the slabs.
//!
//! ```text
//!     push -> undated -> date -> waiting -> drain -> free
//!                                             \--> pinned -> drain -> free
//! ```
//!
//! An unlinked item has no epoch at first: one fence dates all that were unlinked since the last
//! announcement. When its grace period is over it is free, unless a sender has pinned it. A thread
//! that goes to sleep leaves its list to the store, and the cleaner adopts it.

use crate::ChunkRef;
use crate::qsbr::Qsbr;
use crate::sync::Mutex;
use std::cell::RefCell;
use std::collections::VecDeque;

/// An unlinked item, and the epoch from which its grace period counts.
#[derive(Clone, Copy, Debug)]
pub struct Retired {
    epoch: u64,
    chunk: ChunkRef,
}

/// Retired items of threads that went to sleep.
pub type Orphans = Mutex<Vec<Retired>>;

/// The unlinked items of one thread.
#[derive(Debug)]
pub struct RetireList {
    undated: RefCell<Vec<ChunkRef>>,
    /// Oldest first.
    waiting: RefCell<VecDeque<Retired>>,
    /// Past their grace period, but still pinned by a sender.
    pinned: RefCell<Vec<ChunkRef>>,
}

impl Default for RetireList {
    fn default() -> Self {
        Self {
            undated: RefCell::new(Vec::with_capacity(256)),
            waiting: RefCell::new(VecDeque::with_capacity(1024)),
            pinned: RefCell::new(Vec::new()),
        }
    }
}

impl RetireList {
    /// Adds an item that has just been unlinked.
    #[inline]
    pub fn push(&self, chunk: ChunkRef) {
        self.undated.borrow_mut().push(chunk);
    }

    /// Begins the grace period of the items that were unlinked since the last call.
    #[inline]
    pub fn date(&self, qsbr: &Qsbr) {
        let mut undated = self.undated.borrow_mut();
        if undated.is_empty() {
            return;
        }
        let epoch = qsbr.epoch();
        let mut waiting = self.waiting.borrow_mut();
        for chunk in undated.drain(..) {
            waiting.push_back(Retired { epoch, chunk });
        }
    }

    /// `true` if an item waits for its grace period, dated or not.
    #[inline]
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.waiting.borrow().is_empty() || !self.undated.borrow().is_empty()
    }

    /// Items whose grace period has begun and is not over.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Calls `free` for each item that is past its grace period. It returns `false` for one that is
    /// pinned, and is asked again by the next call.
    #[inline]
    pub fn drain(&self, qsbr: &Qsbr, mut free: impl FnMut(ChunkRef) -> bool) {
        let mut pinned = self.pinned.borrow_mut();
        pinned.retain(|&chunk| !free(chunk));
        let mut waiting = self.waiting.borrow_mut();
        let is_over = |item: &Retired| qsbr.is_safe(item.epoch);
        let end = waiting.iter().position(|item| !is_over(item)).unwrap_or(waiting.len());
        for Retired { chunk, .. } in waiting.drain(..end) {
            if !free(chunk) {
                pinned.push(chunk);
            }
        }
    }

    /// Leaves everything that waits or is pinned to `orphans`. The undated items must be dated.
    pub fn hand_over(&self, orphans: &Orphans) {
        debug_assert!(self.undated.borrow().is_empty(), "an undated item has no epoch to leave");
        let mut waiting = self.waiting.borrow_mut();
        let mut pinned = self.pinned.borrow_mut();
        if waiting.is_empty() && pinned.is_empty() {
            return;
        }
        let mut orphans = orphans.lock();
        orphans.extend(waiting.drain(..));
        // Their grace period is over: epoch 0 is safe at any time.
        orphans.extend(pinned.drain(..).map(|chunk| Retired { epoch: 0, chunk }));
    }

    /// Takes over the items in `orphans`.
    pub fn adopt(&self, orphans: &Orphans) {
        let left = std::mem::take(&mut *orphans.lock());
        let mut waiting = self.waiting.borrow_mut();
        waiting.extend(left);
        waiting.make_contiguous().sort_unstable_by_key(|item| item.epoch);
    }
}
