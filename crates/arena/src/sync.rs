//! The one source of atomics and locks in this crate, so that loom models run the product's own
//! code.
//!
//! Normally these are `std`'s atomics and `parking_lot`'s mutex; under `--cfg loom` they are
//! loom's, with the same shapes. Store-load order is written as `fence(SeqCst)` everywhere, never
//! as a SeqCst access: loom treats those accesses as AcqRel but supports the fence.
//!
//! ThreadSanitizer knows no fences, and would report what they order as races. Under
//! `--cfg holdall_tsan` a SeqCst fence is also an exchange on one global atomic, so all fences are
//! ordered as it sees it. That hides only races between threads whose only order is that both
//! passed such a fence.
//!
//! With the feature `schedule` each operation is a point at which a seeded schedule may stop the
//! thread (`sync_scheduled.rs`).

pub use std::sync::atomic::Ordering;

#[cfg(not(any(loom, feature = "schedule")))]
mod real {
    pub use parking_lot::{Mutex, MutexGuard};
    pub use std::hint::spin_loop;
    #[cfg(not(holdall_tsan))]
    pub use std::sync::atomic::fence;
    pub use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize,
    };
    pub use std::thread::{sleep, yield_now};

    /// The fence, visible to ThreadSanitizer; see the header.
    #[cfg(holdall_tsan)]
    pub fn fence(order: super::Ordering) {
        static FENCES: AtomicU64 = AtomicU64::new(0);
        // Partner: every other SeqCst fence.
        if order == super::Ordering::SeqCst {
            FENCES.fetch_add(1, order);
        }
        std::sync::atomic::fence(order);
    }
}

#[cfg(loom)]
#[path = "sync_loom.rs"]
mod real;

#[cfg(all(not(loom), feature = "schedule"))]
#[path = "sync_scheduled.rs"]
mod real;

pub use real::*;
