//! The memory limit: all memory that is resident for the store is charged here.
//!
//! Pages for items are taken only if they fit ([`Budget::try_take`]). Index, bag blocks and
//! connection buffers are charged without a check, because the current work cannot wait for them;
//! the cleaner then frees pages until the sum fits again. So the sum stays within the limit plus
//! what was charged since the cleaner's last step. A store that evicts nothing frees only free
//! pages.
//!
//! # Full file systems
//!
//! Memory that is a part of a file is *taken* and *given back*, since its file system may have no
//! room for it. From then on the bytes taken so far are a separate limit, until
//! [`Budget::forget_full`]: nothing more is taken and no room is requested. Memory that index and
//! bags wait for in that time is *wanted*. It exceeds the limit as if it were in use, so pages are
//! given back for it, and pages are not taken in its place.
//!
//! Relaxed is enough: the counters guard no other memory.

use crate::sync::{AtomicU64, Ordering};

/// Bytes allowed and bytes in use.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
    /// The bytes in use that were taken.
    taken: AtomicU64,
    /// The bytes taken when the file system was found full; `u64::MAX` if it was not.
    full_at: AtomicU64,
    /// Bytes that must be taken before any page.
    wanted: AtomicU64,
}

impl Budget {
    /// Nothing in use, and this many bytes allowed.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self {
            limit: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            full_at: AtomicU64::new(u64::MAX),
            wanted: AtomicU64::new(0),
        }
    }

    /// Bytes allowed.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the bytes allowed. Excess bytes stay in use.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// `true` if `bytes` more fit under the limit, and the file system is not known to be full.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.used() + bytes <= self.limit() && self.is_committable(bytes + self.wanted())
    }

    /// Takes and charges `bytes` if they fit under the limit and `commit` makes them usable.
    #[must_use]
    pub fn try_take(&self, bytes: u64, commit: impl FnOnce() -> bool) -> bool {
        let charged = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used + bytes <= self.limit()).then_some(used + bytes)
            })
            .is_ok();
        if !charged {
            return false;
        }
        let is_taken = self.commit(bytes, self.wanted(), commit);
        if !is_taken {
            self.refund(bytes);
        }
        is_taken
    }

    /// Takes and charges `bytes`, whether they fit under the limit or not, if `commit` makes them
    /// usable.
    #[must_use]
    pub fn take(&self, bytes: u64, commit: impl FnOnce() -> bool) -> bool {
        let is_taken = self.commit(bytes, 0, commit);
        if is_taken {
            self.charge(bytes);
        }
        is_taken
    }

    fn commit(&self, bytes: u64, others: u64, commit: impl FnOnce() -> bool) -> bool {
        if !self.is_committable(bytes + others) {
            return false;
        }
        if !commit() {
            self.full_at.store(self.taken.load(Ordering::Relaxed), Ordering::Relaxed);
            return false;
        }
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    fn is_committable(&self, bytes: u64) -> bool {
        let full_at = self.full_at.load(Ordering::Relaxed);
        full_at == u64::MAX || self.taken.load(Ordering::Relaxed) + bytes <= full_at
    }

    /// Gives back `bytes` that were taken.
    pub fn give_back(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
        self.refund(bytes);
    }

    /// Notes that the file system may have room again.
    pub fn forget_full(&self) {
        self.full_at.store(u64::MAX, Ordering::Relaxed);
    }

    /// Sets the bytes that must be taken before any page.
    pub fn set_wanted(&self, bytes: u64) {
        self.wanted.store(bytes, Ordering::Relaxed);
    }

    fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Charges `bytes` whether they fit or not.
    pub fn charge(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns `bytes` that were charged before.
    pub fn refund(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes in use beyond the limit, or wanted beyond the room of the file system.
    pub fn excess(&self) -> u64 {
        let taken = self.taken.load(Ordering::Relaxed) + self.wanted();
        let beyond_file = taken.saturating_sub(self.full_at.load(Ordering::Relaxed));
        self.used().saturating_sub(self.limit()).max(beyond_file)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Budget;

    #[test]
    fn a_full_file_system_limits_the_budget_until_it_is_reset() {
        let budget = Budget::new(1000);
        budget.charge(100);
        assert!(budget.try_take(300, || true));
        assert!(!budget.try_take(300, || false), "no room");
        assert_eq!((budget.used(), budget.excess()), (400, 0));
        assert!(!budget.try_take(1, || panic!("asked again")));
        assert!(!budget.take(1, || panic!("asked again")));
        // Other memory does not belong to the file.
        budget.charge(50);
        assert_eq!((budget.excess(), budget.has_room(1)), (0, false));
        // Memory for bags and index comes before pages.
        budget.set_wanted(60);
        assert_eq!(budget.excess(), 60);
        budget.give_back(100);
        assert_eq!(budget.excess(), 0);
        assert!(!budget.try_take(50, || panic!("in place of what is wanted")));
        assert!(budget.take(60, || true));
        budget.set_wanted(0);
        assert!(budget.has_room(40) && !budget.has_room(41));
        budget.forget_full();
        assert!(budget.try_take(590, || true) && !budget.try_take(1, || true), "the limit");
    }
}
