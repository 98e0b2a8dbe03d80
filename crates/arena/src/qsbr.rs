//! Reclamation by quiescent states: the moment from which unlinked memory may be written again.
//!
//! A worker looks items up without a lock and keeps the references it found while it serves a batch
//! of requests. Another thread may unlink one of these items at any time. Its memory may be reused
//! only when no worker can still hold a reference that it found before the unlinking.
//!
//! # Picture
//!
//! There is one global epoch, a counter that starts at 1, and one slot for each registered thread.
//! A slot is either [`OFFLINE`] or the epoch its thread last announced.
//!
//! * *Online.* Before its first lookup a thread reads the global epoch and stores it into its slot.
//! * *Quiescent.* Between batches a thread holds no reference. It says so by announcing the global
//!   epoch again; when the epoch has not changed there is nothing to say, and the call is two
//!   loads.
//! * *Offline.* A thread about to block in the poller holds no reference for as long as it blocks.
//! * *Advance.* Anyone may move the epoch from `g` to `g + 1` once every online slot shows `g`.
//! * *Retire.* A thread that unlinked something reads the epoch *after* the unlinking stores and
//!   remembers it as the tag `t`. What has tag `t` is free when the epoch has reached `t + 2`.
//!
//! # Laws
//!
//! 1. A reference is found, used and forgotten within one section: from one announcement (`online`,
//!    or a `quiesce` that stored) to the caller's next `quiesce` or `offline`.
//! 2. Each announcement is a store followed by `fence(SeqCst)`, call it `A`; lookups come after
//!    `A`.
//! 3. Each retirement is the unlinking stores, then `fence(SeqCst)`, call it `R`, then the load of
//!    the tag. *All* places that held the reference are cleared before `R`, or cleared by a thread
//!    from which the retiring thread has since taken the stripe lock.
//! 4. Each advance loads the epoch `g`, then `fence(SeqCst)`, call it `S(g)`, then scans the slots.
//!
//! # Why `t + 2` is enough
//!
//! Take a section that announced epoch `e`, and a retirement with tag `t`. SeqCst fences have one
//! total order.
//!
//! *`R` before `A`.* The unlinking stores precede `R` and the lookups follow `A`, so the lookups
//! see the unlinking: the section never finds the reference.
//!
//! *`A` before `R`.* Let `S(g)` be the last scan before `A` that succeeded. It had read `g` before
//! its fence, so the tag, loaded after `R`, is at least `g`. The next successful scan, `S(g + 1)`,
//! comes after `A`, so it sees this section's announcement or a later value of the slot. `e <= g +
//! 1` because a section cannot read an epoch that is not yet there without its scan having preceded
//! `A`. Two cases:
//!
//! * `e = g + 1`: the scan at `g + 1` may pass. Then the tag is at least `e`, because this section
//!   read `e` before `A` and the tag is loaded after `R`; so `t + 2 >= g + 3`, and that needs the
//!   scan at `g + 2`, which does not pass while the slot shows `g + 1`.
//! * `e <= g`: the scan at `g + 1` does not pass while the slot shows `e`, and the epoch stops at
//!   `g + 1 < t + 2`.
//!
//! So the epoch reaches `t + 2` only after a scan saw the slot's *next* value. That value was
//! stored with Release after the section's last use, the scan loads it with Acquire, and the epoch
//! hands this on: each advance is an AcqRel exchange and `is_safe` an Acquire load. The section's
//! last use therefore happens before the reuse.
//!
//! `online` stores with Release too, although nothing is held then: a scan that reads the value
//! stored by `online` has not read the one stored by `offline` before it, and must still be ordered
//! after the section that ended there.
//!
//! # Price
//!
//! A batch costs two loads. A retirement costs one fence; one tag may serve any number of items
//! unlinked before it. A thread that neither quiesces nor goes offline stops all reclamation, which
//! is why nothing is held across I/O.
//!
//! Source: P. McKenney's quiescent-state-based reclamation, with the epoch counter of K. Fraser's
//! "Practical lock-freedom" (2004).

use crate::sync::{AtomicU64, Mutex, Ordering, fence};
use crossbeam_utils::CachePadded;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

/// Content of a slot whose thread holds no reference and makes no lookup.
const OFFLINE: u64 = 0;

/// The epoch at start: the least that is not [`OFFLINE`].
const FIRST: u64 = 1;

/// Epochs from a tag to the moment when memory with that tag is free; argued above.
const GRACE: u64 = 2;

/// The global epoch and the announcements of the threads that look items up.
#[derive(Debug)]
pub struct Qsbr {
    epoch: CachePadded<AtomicU64>,
    slots: Box<[CachePadded<AtomicU64>]>,
    taken: Mutex<Vec<bool>>,
}

impl Qsbr {
    /// Room for `slots` registered threads, all offline.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self {
            epoch: CachePadded::new(AtomicU64::new(FIRST)),
            slots: (0..slots).map(|_| CachePadded::new(AtomicU64::new(OFFLINE))).collect(),
            taken: Mutex::new(vec![false; slots]),
        }
    }

    /// `true` if no thread is registered.
    pub fn is_empty(&self) -> bool {
        !self.taken.lock().contains(&true)
    }

    /// Takes a slot for the calling thread, offline. `None` when all are taken.
    pub fn register(&self) -> Option<usize> {
        let mut taken = self.taken.lock();
        let slot = taken.iter().position(|&is_taken| !is_taken)?;
        taken[slot] = true;
        Some(slot)
    }

    /// Gives the slot back, offline. The thread holds no reference and makes no lookup under it any
    /// more.
    pub fn unregister(&self, slot: usize) {
        self.offline(slot);
        self.taken.lock()[slot] = false;
    }

    /// Begins a section: lookups after this are protected until the next [`quiesce`](Self::quiesce)
    /// or [`offline`](Self::offline) of the slot.
    #[inline]
    pub fn online(&self, slot: usize) {
        self.announce(slot, self.epoch.load(Ordering::Relaxed));
    }

    /// Ends the section and begins none: the thread holds no reference.
    #[inline]
    pub fn offline(&self, slot: usize) {
        // Release: partner of the Acquire in `try_advance`; the section's uses come before it.
        self.slots[slot].store(OFFLINE, Ordering::Release);
    }

    /// Ends the section and begins the next one: the thread holds no reference at this moment.
    ///
    /// The slot is online.
    #[inline]
    pub fn quiesce(&self, slot: usize) {
        // Relaxed: a stale epoch only delays reclamation until the next call.
        let epoch = self.epoch.load(Ordering::Relaxed);
        let announced = self.slots[slot].load(Ordering::Relaxed);
        debug_assert_ne!(announced, OFFLINE, "quiesce of a slot that is offline");
        if announced != epoch {
            self.announce(slot, epoch);
        }
    }

    #[inline]
    fn announce(&self, slot: usize, epoch: u64) {
        // Release: partner of the Acquire in `try_advance`; uses in earlier sections come before
        // it.
        self.slots[slot].store(epoch, Ordering::Release);
        // SeqCst: `A` of the header, partner of the fences in `epoch` and in `try_advance`.
        fence(Ordering::SeqCst);
    }

    /// The tag of all that the caller has unlinked before this call. One tag may serve many items.
    #[inline]
    pub fn epoch(&self) -> u64 {
        // SeqCst: `R` of the header, partner of the fence in `announce`.
        fence(Ordering::SeqCst);
        self.epoch.load(Ordering::Relaxed)
    }

    /// Moves the epoch on if every online slot has announced the present one. Returns the epoch
    /// now.
    ///
    /// The number orders nothing: [`is_safe`](Self::is_safe) decides what may be reused.
    pub fn try_advance(&self) -> u64 {
        // Relaxed: a stale epoch fails the exchange below.
        let epoch = self.epoch.load(Ordering::Relaxed);
        // SeqCst: `S` of the header, partner of the fence in `announce`.
        fence(Ordering::SeqCst);
        for slot in &self.slots {
            // Acquire: partner of the Release in `announce` and `offline`.
            let announced = slot.load(Ordering::Acquire);
            if announced != OFFLINE && announced != epoch {
                return epoch;
            }
        }
        // AcqRel: partner of the Acquire in `is_safe`, and of this exchange in later advances; it
        // hands the scan's Acquire on.
        // Relaxed on failure: the number orders nothing.
        let advanced = epoch + 1;
        match self.epoch.compare_exchange(epoch, advanced, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => advanced,
            Err(newer) => newer,
        }
    }

    /// `true` if everything with the tag `retired_at` may be written again.
    #[inline]
    pub fn is_safe(&self, retired_at: u64) -> bool {
        // Acquire: partner of the exchange in `try_advance`.
        self.epoch.load(Ordering::Acquire) >= retired_at + GRACE
    }
}
