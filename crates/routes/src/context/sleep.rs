//! The future of a task that sleeps.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use super::Context;

/// A future that is ready at its time; made by [`Context::sleep_until`].
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
    pub(super) fn new(cx: &'a Context, at_us: u64) -> Self {
        Self { cx, at_us, number: None }
    }
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<()> {
        if self.cx.now_us() >= self.at_us {
            return Poll::Ready(());
        }
        let waker = task.waker().clone();
        self.number = Some(self.cx.timers.set(self.at_us, self.number, waker));
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.cx.timers.clear(self.at_us, number);
        }
    }
}
