//! The memory limit: all memory that is resident on the store's behalf is charged here.
//!
//! Pages for items are taken only if they fit (`try_charge`). Index, bag blocks and connection
//! buffers are charged without a check, because the work at hand cannot wait for them; the cleaner
//! then gives pages back until the sum fits again. So the sum stays within the limit plus what was
//! charged since the cleaner's last step. A store that evicts nothing gives back only what is free.
//!
//! Relaxed is enough: the counters guard no other memory.

use crate::sync::{AtomicU64, Ordering};

/// Bytes allowed and bytes in use.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
}

impl Budget {
    /// Nothing in use, and this many bytes allowed.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { limit: AtomicU64::new(limit), used: AtomicU64::new(0) }
    }

    /// Bytes allowed.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the bytes allowed. What is in use beyond them stays in use.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Charges `bytes` if they fit under the limit; `false` if they do not.
    #[must_use]
    pub fn try_charge(&self, bytes: u64) -> bool {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used + bytes <= self.limit()).then_some(used + bytes)
            })
            .is_ok()
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

    /// Bytes in use beyond the limit.
    pub fn excess(&self) -> u64 {
        self.used().saturating_sub(self.limit())
    }
}
