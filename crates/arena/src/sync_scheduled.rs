//! With the feature `schedule`: `std`'s atomics and `parking_lot`'s mutex, each of whose operations
//! is a point of [`crate::schedule`], and is noted by [`crate::lines`].

use crate::sync::Ordering;
use crate::{lines, schedule};
use std::sync::atomic as real;
use std::time::Duration;

pub use parking_lot::MutexGuard;

/// A thread that spins waits for another one.
pub fn spin_loop() {
    schedule::wait();
}

/// A thread that lets others run waits for them, whatever its sleep time.
pub fn sleep(time: Duration) {
    if schedule::is_running() {
        schedule::wait();
    } else {
        std::thread::sleep(time);
    }
}

/// See [`sleep`].
pub fn yield_now() {
    if schedule::is_running() {
        schedule::wait();
    } else {
        std::thread::yield_now();
    }
}

/// `std`'s fence.
pub fn fence(order: Ordering) {
    schedule::point();
    real::fence(order);
}

macro_rules! scheduled {
    ($name:ident, $value:ty) => {
        /// `std`'s atomic, each of whose operations is a point.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(real::$name);

        #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in std")]
        #[allow(dead_code, reason = "not every kind needs every operation")]
        impl $name {
            #[inline]
            pub const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }

            #[inline]
            pub fn load(&self, order: Ordering) -> $value {
                schedule::point();
                lines::loaded(self);
                self.0.load(order)
            }

            #[inline]
            pub fn store(&self, value: $value, order: Ordering) {
                schedule::point();
                lines::stored(self);
                self.0.store(value, order);
            }

            #[inline]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                schedule::point();
                lines::stored(self);
                self.0.swap(value, order)
            }

            #[inline]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                schedule::point();
                lines::stored(self);
                self.0.compare_exchange(current, new, success, failure)
            }

            #[inline]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                schedule::point();
                lines::stored(self);
                self.0.compare_exchange_weak(current, new, success, failure)
            }

            #[inline]
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            #[inline]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
        }
    };
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        scheduled!($name, $value);

        #[allow(missing_docs, clippy::missing_errors_doc, reason = "as in std")]
        #[allow(dead_code, reason = "not every kind needs every operation")]
        impl $name {
            #[inline]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                schedule::point();
                lines::stored(self);
                self.0.fetch_add(value, order)
            }

            #[inline]
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                schedule::point();
                lines::stored(self);
                self.0.fetch_sub(value, order)
            }

            #[inline]
            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                schedule::point();
                lines::stored(self);
                self.0.fetch_and(value, order)
            }

            #[inline]
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                schedule::point();
                lines::stored(self);
                self.0.fetch_or(value, order)
            }

            #[inline]
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                schedule::point();
                lines::stored(self);
                self.0.fetch_max(value, order)
            }

            #[inline]
            pub fn fetch_min(&self, value: $value, order: Ordering) -> $value {
                schedule::point();
                lines::stored(self);
                self.0.fetch_min(value, order)
            }

            #[inline]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                schedule::point();
                lines::stored(self);
                self.0.fetch_update(set, fetch, update)
            }
        }
    };
}

scheduled!(AtomicBool, bool);
number!(AtomicI32, i32);
number!(AtomicI64, i64);
number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);

/// `parking_lot`'s mutex. A thread that finds it locked waits in the schedule.
#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

#[allow(missing_docs, reason = "as in parking_lot")]
impl<T> Mutex<T> {
    #[inline]
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        schedule::point();
        lines::stored(self);
        loop {
            match self.0.try_lock() {
                Some(guard) => return guard,
                None if schedule::is_running() => schedule::wait(),
                None => return self.0.lock(),
            }
        }
    }

    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        schedule::point();
        lines::stored(self);
        self.0.try_lock()
    }

    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    #[inline]
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
