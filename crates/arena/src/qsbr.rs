//! Reclamation by quiescent states: the moment from which unlinked memory may be written again.
//!
//! A worker looks items up without a lock and keeps the references it found while it serves a
//! request. Another thread may unlink one of these items at any time. Its memory may be reused only
//! when no worker can still hold a reference that it found before the unlinking.
//!
//! # Picture
//!
//! There is one global epoch, a counter that starts at 1, and one slot for each registered thread.
//! A slot has a word that is either `OFFLINE` or the epoch its thread last announced, and another
//! that shows whether the thread is in a section.
//!
//! * *Online.* Before its first lookup a thread reads the global epoch and stores it into its slot.
//!   This starts a turn.
//! * *Quiescent.* Between batches a thread holds no reference. It announces this by storing the
//!   global epoch again; if the epoch has not changed, no store is needed, and the call is two
//!   loads.
//! * *Offline.* A thread about to block in the poller holds no reference for as long as it blocks.
//! * *Section.* Within a turn, lookups are made in sections, each between `enter` and `leave`.
//! * *Advance.* Any thread may move the epoch from `g` to `g + 1` once every online slot shows `g`.
//! * *Forced advance.* Likewise, but a slot passes as well if its thread is in no section.
//! * *Retire.* A thread that unlinked items reads the epoch *after* the unlinking stores and
//!   remembers it as the tag `t`. Memory with tag `t` is free when the epoch has reached `t + 2`.
//!
//! # Laws
//!
//! 1. A reference is found, used and forgotten within one section. A section lies within one turn:
//!    from one announcement (`online`, or a `quiesce` that stored) to the caller's next `quiesce`
//!    or `offline`.
//! 2. Each announcement is a store followed by `fence(SeqCst)`, call it `A`; lookups come after
//!    `A`. Each `enter` is a store followed by the light half of a barrier, and then by lookups.
//! 3. Each retirement is the unlinking stores, then `fence(SeqCst)`, call it `R`, then the load of
//!    the tag. *All* places that held the reference are cleared before `R`, or cleared by a thread
//!    from which the retiring thread has since taken the stripe lock.
//! 4. Each advance loads the epoch `g`, then `fence(SeqCst)`, call it `S(g)`, then scans the slots.
//!    A forced one passes the heavy half of a barrier, call it `B(g)`, after `S(g)`.
//!
//! # Why `t + 2` is enough
//!
//! Take a section that used an item, and the item's retirement with tag `t`. The epoch reaches `t +
//! 2` only by a scan after `S(t + 1)` which the section's thread passed. `R` precedes `S(t + 1)` in
//! the total order of SeqCst fences: otherwise the tag, loaded after `R`, would be `t + 1`. Four
//! cases:
//!
//! * *The slot showed a later turn, or that the thread had gone offline since.* That was stored
//!   with Release after the section's last use, and the scan loads it with Acquire.
//! * *The slot showed the section's own turn, which announced `t + 1`.* Its thread had read `t + 1`
//!   before `A`, and the retiring thread read `t` after `R`, so `R` precedes `A`. The lookups come
//!   after `A`: they see the unlinking, and the section does not find the item.
//! * *The slot showed an earlier turn, or that the thread was offline before.* Then the scan came
//!   before the announcement: `S(t + 1)` precedes `A`, and therefore `R` precedes `A`. The section
//!   does not find the item.
//! * *The thread was in no section, whatever the slot showed.* `B(t + 1)` is a barrier in the
//!   section's thread, too. If the lookups come after it, they see the unlinking before `R`. If a
//!   lookup came before it, `enter` came before it, too, and the scan sees that store or a later
//!   one. It saw that the thread was outside: stored with Release by this section's `leave` or a
//!   later one, so after the last use, and the scan loads it with Acquire.
//!
//! So every thread that found the item has used it for the last time before the scan ends. The
//! epoch passes this on: each advance is an AcqRel exchange and `is_safe` an Acquire load. The
//! section's last use therefore happens before the reuse.
//!
//! `online` stores with Release too, although nothing is held then: a scan that reads the value
//! stored by `online` has not read the one stored by `offline` before it, and must still be ordered
//! after the section that ended there.
//!
//! # Price
//!
//! A batch costs two loads, and a section two stores to the thread's own line. A retirement costs
//! one fence; one tag may serve any number of items unlinked before it. A forced advance costs a
//! system call, and an interrupt on each processor that runs a thread of the process: it is for
//! threads that would otherwise have to wait.
//!
//! A thread that stops within a section stops all reclamation, so nothing is held across I/O. One
//! that stops between sections stops no other.
//!
//! Source: P. McKenney's quiescent-state-based reclamation, with the epoch counter of K. Fraser's
//! "Practical lock-freedom" (2004). Barriers that only one side pays for: P. McKenney and M.
//! Desnoyers, "sys_membarrier" (2010).

use crate::barrier;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence};
use crossbeam_utils::CachePadded;
use std::sync::Arc;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

/// Content of a slot whose thread holds no reference and makes no lookup.
const OFFLINE: u64 = 0;

/// The epoch at start: the smallest that is not [`OFFLINE`].
const FIRST: u64 = 1;

/// Epochs from a tag to the moment when memory with that tag is free; argued above.
const GRACE: u64 = 2;

/// The global epoch and the announcements of the threads that look items up.
#[derive(Debug)]
pub struct Qsbr {
    epoch: CachePadded<AtomicU64>,
    slots: Box<[Arc<CachePadded<Slot>>]>,
    taken: Mutex<Vec<bool>>,
    /// The system has the barriers of a forced advance.
    can_force: bool,
}

/// The announcements of one thread; only that thread stores them.
#[derive(Debug)]
pub struct Slot {
    /// The epoch announced last, or [`OFFLINE`].
    epoch: AtomicU64,
    /// Not zero within a section.
    section: AtomicU32,
}

impl Slot {
    fn offline() -> Self {
        Self { epoch: AtomicU64::new(OFFLINE), section: AtomicU32::new(0) }
    }

    /// Starts a section: lookups after this are protected until [`leave`](Self::leave). The slot is
    /// online.
    #[inline]
    pub fn enter(&self) {
        // Relaxed: the barrier orders it before the lookups, as far as a forced advance can tell.
        self.section.store(1, Ordering::Relaxed);
        // Partner: the heavy half in `force_advance`.
        barrier::light();
    }

    /// Ends the section: the thread holds no reference.
    #[inline]
    pub fn leave(&self) {
        // Release: partner of the Acquire in `is_outside`; the section's uses come before it.
        self.section.store(0, Ordering::Release);
    }

    /// `true` if the thread has announced this epoch, or is offline.
    fn has_announced(&self, epoch: u64) -> bool {
        // Acquire: partner of the Release in `announce` and `offline`.
        let announced = self.epoch.load(Ordering::Acquire);
        announced == OFFLINE || announced == epoch
    }

    /// `true` if the thread is in no section.
    fn is_outside(&self) -> bool {
        // Acquire: partner of the Release in `leave`.
        self.section.load(Ordering::Acquire) == 0
    }
}

impl Qsbr {
    /// Room for `slots` registered threads, all offline.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self {
            epoch: CachePadded::new(AtomicU64::new(FIRST)),
            slots: (0..slots).map(|_| Arc::new(CachePadded::new(Slot::offline()))).collect(),
            taken: Mutex::new(vec![false; slots]),
            can_force: barrier::register(),
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

    /// The announcements of the thread that has taken this slot.
    #[must_use]
    pub fn slot(&self, slot: usize) -> Arc<CachePadded<Slot>> {
        Arc::clone(&self.slots[slot])
    }

    /// Returns the slot, offline. The thread holds no reference and makes no more lookups under it.
    pub fn unregister(&self, slot: usize) {
        self.offline(slot);
        self.taken.lock()[slot] = false;
    }

    /// Starts a turn: lookups after this, within sections, are protected.
    #[inline]
    pub fn online(&self, slot: usize) {
        self.announce(slot, self.epoch.load(Ordering::Relaxed));
    }

    /// Ends the turn without starting another: the thread holds no reference.
    #[inline]
    pub fn offline(&self, slot: usize) {
        // Release: partner of the Acquire in `has_announced`; the turn's uses come before it.
        self.slots[slot].epoch.store(OFFLINE, Ordering::Release);
    }

    /// Ends the turn and starts the next one: the thread holds no reference at this moment.
    ///
    /// The slot is online.
    #[inline]
    pub fn quiesce(&self, slot: usize) {
        // Relaxed: a stale epoch only delays reclamation until the next call.
        let epoch = self.epoch.load(Ordering::Relaxed);
        let announced = self.slots[slot].epoch.load(Ordering::Relaxed);
        debug_assert_ne!(announced, OFFLINE, "quiesce of a slot that is offline");
        if announced != epoch {
            self.announce(slot, epoch);
        }
    }

    #[inline]
    fn announce(&self, slot: usize, epoch: u64) {
        // Release: partner of the Acquire in `has_announced`; uses in earlier turns come before it.
        self.slots[slot].epoch.store(epoch, Ordering::Release);
        // SeqCst: `A` of the header, partner of the fences in `epoch` and in `begin_scan`.
        fence(Ordering::SeqCst);
    }

    /// The present epoch. The number orders nothing.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// The tag of all items that the caller has unlinked so far. One tag may serve many items.
    #[inline]
    pub fn epoch(&self) -> u64 {
        // SeqCst: `R` of the header, partner of the fence in `announce`.
        fence(Ordering::SeqCst);
        self.epoch.load(Ordering::Relaxed)
    }

    /// Advances the epoch if every online slot has announced the present one. Returns the present
    /// epoch.
    ///
    /// The number orders nothing: [`is_safe`](Self::is_safe) decides about reuse.
    pub fn try_advance(&self) -> u64 {
        let epoch = self.begin_scan();
        if !self.slots.iter().all(|slot| slot.has_announced(epoch)) {
            return epoch;
        }
        self.end_scan(epoch)
    }

    /// Like [`try_advance`](Self::try_advance), but threads that are in no section delay nothing,
    /// whatever they have announced. Costs a system call, unless a thread is already in a section,
    /// and does nothing if the system has none.
    pub fn force_advance(&self) -> u64 {
        let epoch = self.begin_scan();
        let passes = |slot: &Arc<CachePadded<Slot>>| slot.has_announced(epoch) || slot.is_outside();
        let all_pass = || self.slots.iter().all(passes);
        // Partner of the barrier: the light half in `enter`. `B` of the header.
        if self.can_force && all_pass() && barrier::heavy() && all_pass() {
            self.end_scan(epoch)
        } else {
            epoch
        }
    }

    /// The epoch that a scan of the slots may end.
    fn begin_scan(&self) -> u64 {
        // Relaxed: a stale epoch fails the exchange at the scan's end.
        let epoch = self.epoch.load(Ordering::Relaxed);
        // SeqCst: `S` of the header, partner of the fence in `announce`.
        fence(Ordering::SeqCst);
        epoch
    }

    /// Advances the epoch after a scan that every slot has passed. Returns the present epoch.
    fn end_scan(&self, epoch: u64) -> u64 {
        // AcqRel: partner of the Acquire in `is_safe`, and of this exchange in later advances; it
        // passes on the scan's Acquire. Relaxed on failure: the number orders nothing.
        let advanced = epoch + 1;
        match self.epoch.compare_exchange(epoch, advanced, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => advanced,
            Err(newer) => newer,
        }
    }

    /// `true` if everything with the tag `retired_at` may be written again.
    #[inline]
    pub fn is_safe(&self, retired_at: u64) -> bool {
        // Acquire: partner of the exchange in `end_scan`.
        self.epoch.load(Ordering::Acquire) >= retired_at + GRACE
    }
}
