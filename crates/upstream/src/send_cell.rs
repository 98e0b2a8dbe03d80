//! Cells like those of `std`, for values that one thread at a time uses and that move between
//! threads, as a worker's routes do. The hand-over (a mutex) orders the accesses of both threads.

use std::fmt;

use crossbeam_utils::atomic::AtomicCell;

pub use atomic_refcell::AtomicRefCell as SendRefCell;

/// A [`std::cell::Cell`] that is `Sync`. Values of at most eight bytes cost no lock.
#[derive(Default)]
pub struct SendCell<T: Copy>(AtomicCell<T>);

impl<T: Copy> SendCell<T> {
    /// Holds `value`.
    #[inline]
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(AtomicCell::new(value))
    }

    /// Returns the value.
    #[inline]
    #[must_use]
    pub fn get(&self) -> T {
        self.0.load()
    }

    /// Sets the value.
    #[inline]
    pub fn set(&self, value: T) {
        self.0.store(value);
    }

    /// Sets the value and returns the old one.
    #[inline]
    pub fn replace(&self, value: T) -> T {
        self.0.swap(value)
    }
}

impl<T: Copy + Default> SendCell<T> {
    /// Sets the default and returns the old value.
    #[inline]
    pub fn take(&self) -> T {
        self.0.take()
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for SendCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendCell").field(&self.get()).finish()
    }
}
