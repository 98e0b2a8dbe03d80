//! Under loom: its atomics and its mutex, with the shapes of the real ones.
//!
//! # Why the atomics are wrapped
//!
//! loom 0.7 selects interleavings by looking, before each operation, at the *last* access to the
//! same atomic. If thread A loads it, and then B loads and stores it, the last access before B's
//! store is B's own load; the race between A's load and B's store is never noticed, and the order
//! in which the store comes first is never tried. A lock holder that reads a word before it writes
//! it does just that, so models of such code pass with any fault.
//!
//! Source: tokio-rs/loom issues 166 and 392.
//!
//! Here every operation first touches a companion atomic with an exchange that always fails. loom
//! holds any two exchanges to depend on one another, so no race is forgotten; a failed relaxed
//! exchange orders nothing and changes nothing, so the operation proper keeps all the old values it
//! may return. Relaxed is enough for it, and anything stronger would hide faults.

#![allow(missing_docs, reason = "these are the shapes of the real ones")]

use crate::sync::Ordering;
use loom::sync::atomic as real;
use std::ops::Deref;

pub use loom::sync::MutexGuard;
pub use loom::sync::atomic::{AtomicI32, AtomicI64, AtomicUsize, fence};
pub use loom::thread::yield_now as spin_loop;

macro_rules! tracked {
    ($name:ident, $value:ty) => {
        /// loom's atomic with a companion; see the header.
        #[derive(Debug, Default)]
        pub struct $name {
            value: real::$name,
            companion: real::AtomicUsize,
        }

        impl $name {
            pub fn new(value: $value) -> Self {
                Self { value: real::$name::new(value), companion: real::AtomicUsize::new(0) }
            }
        }

        /// Every use of the atomic comes through here, and touches the companion first.
        impl Deref for $name {
            type Target = real::$name;

            fn deref(&self) -> &Self::Target {
                let order = Ordering::Relaxed;
                assert!(self.companion.compare_exchange(1, 1, order, order).is_err());
                &self.value
            }
        }
    };
}

tracked!(AtomicU32, u32);
tracked!(AtomicU64, u64);

/// loom's mutex with `parking_lot`'s signatures: a model that panics has failed, so poison is not a
/// state.
#[derive(Debug)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    #[allow(clippy::unwrap_used, reason = "a model stops where it fails")]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}
