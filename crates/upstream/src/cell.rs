//! Cells like those of `std`, for what one thread uses at a time, but not always the same: a [`crate::Core`] may be handed from thread
//! to thread. Whoever hands it over orders what was written before what is read (a mutex does).

use std::fmt;

use crossbeam_utils::atomic::AtomicCell;

pub use atomic_refcell::AtomicRefCell as RefCell;

/// As [`std::cell::Cell`]. Of eight bytes at the most it is as cheap.
#[derive(Default)]
pub struct Cell<T: Copy>(AtomicCell<T>);

impl<T: Copy> Cell<T> {
    /// Holds `value`.
    #[inline]
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(AtomicCell::new(value))
    }

    /// What it holds.
    #[inline]
    #[must_use]
    pub fn get(&self) -> T {
        self.0.load()
    }

    /// From here on it holds `value`.
    #[inline]
    pub fn set(&self, value: T) {
        self.0.store(value);
    }

    /// From here on it holds `value`: what it held.
    #[inline]
    pub fn replace(&self, value: T) -> T {
        self.0.swap(value)
    }
}

impl<T: Copy + Default> Cell<T> {
    /// From here on it holds the default: what it held.
    #[inline]
    pub fn take(&self) -> T {
        self.0.take()
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for Cell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cell").field(&self.get()).finish()
    }
}
