//! The only door to atomics and locks in this crate, so that loom models run the product's own code.
//!
//! Normally these are `std`'s atomics and `parking_lot`'s mutex; under `--cfg loom` they are loom's, with
//! the same shapes. Store-load order is written as `fence(SeqCst)` everywhere, never as a SeqCst access: loom
//! treats those accesses as AcqRel but supports the fence.

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
mod real {
    pub(crate) use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{
        AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    pub(crate) use loom::thread::yield_now as spin_loop;

    /// loom's mutex with `parking_lot`'s signatures: a model that panics has failed, so poison is not a state.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        #[allow(clippy::unwrap_used, reason = "a model stops where it fails")]
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}

pub(crate) use real::*;
