//! Timers of tasks.

use std::collections::BTreeMap;
use std::task::Waker;

use upstream::{SendCell, SendRefCell};

/// Sleeping tasks by time, in microseconds since the start, and by number where times are equal.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    sleepers: SendRefCell<BTreeMap<(u64, u64), Waker>>,
    number: SendCell<u64>,
}

impl Timers {
    /// Wakes the tasks whose time has come.
    pub(crate) fn fire(&self, now_us: u64) {
        while let Some(first) = self.sleepers.borrow_mut().first_entry()
            && first.key().0 <= now_us
        {
            first.remove().wake();
        }
    }

    /// Wakes `waker` at this time. Returns the number of the entry: `number`, if it is set.
    pub(crate) fn set(&self, at_us: u64, number: Option<u64>, waker: Waker) -> u64 {
        let number = number.unwrap_or_else(|| {
            let next = self.number.get();
            self.number.set(next + 1);
            next
        });
        self.sleepers.borrow_mut().insert((at_us, number), waker);
        number
    }

    /// Removes an entry, unless its time has come.
    pub(crate) fn clear(&self, at_us: u64, number: u64) {
        self.sleepers.borrow_mut().remove(&(at_us, number));
    }

    /// The earliest time in microseconds; `None` without a sleeping task.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.sleepers.borrow().first_key_value().map(|((at_us, _), _)| *at_us)
    }
}
