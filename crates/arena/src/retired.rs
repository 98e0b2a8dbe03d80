//! Unlinked items of one thread, on their way back to the slabs.
//!
//! ```text
//!     push -> undated -> date -> waiting -> drain -> free
//!                                             \--> pinned -> drain -> free
//! ```
//!
//! An unlinked item has no epoch at first: one fence dates all that were unlinked since the last
//! announcement. After its grace period it is free, unless a sender has pinned it. A thread that
//! goes to sleep leaves its list to the store, and the cleaner adopts it.

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

    /// Starts the grace period of the items that were unlinked since the last call.
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

    /// Items whose grace period has started and is not over.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Calls `free` for each item that is past its grace period. It returns `false` for a pinned
    /// item, and the next call tries that again.
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

    /// Leaves all waiting and pinned items to `orphans`. The undated items must be dated.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The items that a drain frees, if those of `pinned` may not be freed.
    fn drained(list: &RetireList, qsbr: &Qsbr, pinned: &[ChunkRef]) -> Vec<ChunkRef> {
        let mut freed = Vec::new();
        list.drain(qsbr, |chunk| {
            let is_free = !pinned.contains(&chunk);
            freed.extend(is_free.then_some(chunk));
            is_free
        });
        freed
    }

    fn retire(list: &RetireList, qsbr: &Qsbr, chunks: &[ChunkRef]) {
        chunks.iter().for_each(|&chunk| list.push(chunk));
        list.date(qsbr);
    }

    #[test]
    fn items_are_freed_once_after_their_grace_period() {
        let (qsbr, list) = (Qsbr::new(1), RetireList::default());
        assert!(!list.is_waiting());
        list.push(7);
        assert!(list.is_waiting(), "not dated yet");
        assert_eq!(list.waiting_count(), 0);
        list.date(&qsbr);
        qsbr.try_advance();
        retire(&list, &qsbr, &[8, 9]);
        assert_eq!((list.is_waiting(), list.waiting_count()), (true, 3));
        assert_eq!(drained(&list, &qsbr, &[]), []);
        qsbr.try_advance();
        assert_eq!(drained(&list, &qsbr, &[]), [7]);
        assert_eq!(list.waiting_count(), 2);
        qsbr.try_advance();
        assert_eq!(drained(&list, &qsbr, &[]), [8, 9]);
        assert!(!list.is_waiting());
        assert_eq!(drained(&list, &qsbr, &[]), []);
    }

    #[test]
    fn a_pinned_item_is_retried_until_it_is_free() {
        let (qsbr, list) = (Qsbr::new(1), RetireList::default());
        retire(&list, &qsbr, &[1, 2, 3]);
        qsbr.try_advance();
        qsbr.try_advance();
        assert_eq!(drained(&list, &qsbr, &[2]), [1, 3]);
        assert!(!list.is_waiting(), "its grace period is over");
        assert_eq!(drained(&list, &qsbr, &[2]), []);
        assert_eq!(drained(&list, &qsbr, &[]), [2]);
        assert_eq!(drained(&list, &qsbr, &[]), []);
    }

    /// A thread that adopts items of several threads frees each after its own grace period.
    #[test]
    fn another_thread_frees_handed_over_items() {
        let (qsbr, orphans) = (Qsbr::new(1), Orphans::default());
        let (early, late, cleaner) =
            (RetireList::default(), RetireList::default(), RetireList::default());
        retire(&early, &qsbr, &[1, 2]);
        qsbr.try_advance();
        qsbr.try_advance();
        assert_eq!(drained(&early, &qsbr, &[2]), [1]);
        retire(&late, &qsbr, &[3]);
        qsbr.try_advance();
        retire(&early, &qsbr, &[4]);
        early.hand_over(&orphans);
        late.hand_over(&orphans);
        late.hand_over(&orphans);
        assert!(!early.is_waiting() && !late.is_waiting());
        cleaner.adopt(&orphans);
        assert!(orphans.lock().is_empty());
        assert_eq!(cleaner.waiting_count(), 3);
        assert_eq!(drained(&cleaner, &qsbr, &[]), [2], "pinned by nobody any more");
        qsbr.try_advance();
        assert_eq!(drained(&cleaner, &qsbr, &[]), [3]);
        qsbr.try_advance();
        assert_eq!(drained(&cleaner, &qsbr, &[]), [4]);
        for list in [&early, &late] {
            assert_eq!(drained(list, &qsbr, &[]), [], "no item is in two lists");
        }
    }

    #[test]
    fn a_list_of_only_pinned_items_is_handed_over() {
        let (qsbr, orphans) = (Qsbr::new(1), Orphans::default());
        let (list, cleaner) = (RetireList::default(), RetireList::default());
        retire(&list, &qsbr, &[5]);
        qsbr.try_advance();
        qsbr.try_advance();
        assert_eq!(drained(&list, &qsbr, &[5]), []);
        list.hand_over(&orphans);
        cleaner.adopt(&orphans);
        assert_eq!(drained(&cleaner, &qsbr, &[]), [5]);
    }
}
