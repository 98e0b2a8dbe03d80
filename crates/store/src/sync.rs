//! The only door to atomics and locks in this crate, so that loom models run the product's own
//! code.
//!
//! Normally these are `std`'s atomics and `parking_lot`'s mutex; under `--cfg loom` they are
//! loom's, with the same shapes. Store-load order is written as `fence(SeqCst)` everywhere, never
//! as a SeqCst access: loom treats those accesses as AcqRel but supports the fence.

pub(crate) use std::sync::atomic::Ordering;

#[cfg(not(loom))]
mod real {
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{
        AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
}

#[cfg(loom)]
#[path = "sync_loom.rs"]
mod real;

pub(crate) use real::*;
