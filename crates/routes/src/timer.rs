//! Timers of tasks.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};

use crate::context::Context;
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

    /// The earliest time in microseconds; `None` without a sleeping task.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.sleepers.borrow().first_key_value().map(|((at_us, _), _)| *at_us)
    }
}

/// Ready at its time; made by [`Context::sleep_until`].
#[must_use = "nobody sleeps before it is polled"]
pub struct Sleep<'a> {
    cx: &'a Context,
    at_us: u64,
    number: Option<u64>,
}

impl fmt::Debug for Sleep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("at_us", &self.at_us).finish_non_exhaustive()
    }
}

impl<'a> Sleep<'a> {
    pub(crate) fn new(cx: &'a Context, at_us: u64) -> Self {
        Self { cx, at_us, number: None }
    }
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<()> {
        if self.cx.now_us() >= self.at_us {
            return Poll::Ready(());
        }
        let timers = &self.cx.timers;
        let number = self.number.unwrap_or_else(|| timers.number.get());
        if self.number.is_none() {
            timers.number.set(number + 1);
        }
        timers.sleepers.borrow_mut().insert((self.at_us, number), task.waker().clone());
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.cx.timers.sleepers.borrow_mut().remove(&(self.at_us, number));
        }
    }
}
