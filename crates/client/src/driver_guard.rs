//! The driver in the hands of a thread, and the loop of the background driver (see
//! [`crate::driver_handoff`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::driver::Driver;
use crate::driver_handoff::{DriverKind, Next};
use crate::inbox::Inbox;
use crate::signal::Signal;
use routes::{Core, Spooler};
use upstream::system::now;

/// The driver in the hands of a thread. Dropped by a panic, it ends the inbox.
pub(crate) struct DriverGuard {
    driver: Option<Box<Driver>>,
    inbox: Arc<Inbox>,
    kind: DriverKind,
}

/// Starts the background driver of an inbox.
///
/// # Errors
///
/// If no thread or descriptor is available.
pub(crate) fn start(
    inbox: Arc<Inbox>,
    spooler: Option<Arc<Spooler>>,
    core: Core,
) -> io::Result<JoinHandle<()>> {
    let poller = core.poller().try_clone_to_owned()?;
    inbox.set_driver(Box::new(Driver::new(core)));
    let builder = thread::Builder::new().name("holdall-client".to_owned());
    builder.spawn(move || {
        drive_in_background(&inbox, &poller);
        // All deletes handed to it are answered by then.
        drop(spooler);
    })
}

/// The background driver's loop, until the inbox ends.
fn drive_in_background(inbox: &Arc<Inbox>, poller: &OwnedFd) {
    let notify = inbox.notify_fd(DriverKind::Background);
    let mut has_news = false;
    while let Some(next) = inbox.next(has_news) {
        has_news = false;
        let is_notified = match next {
            Next::Drive(driver) => {
                if DriverGuard::new(driver, inbox, DriverKind::Background).keep() {
                    return;
                }
                false
            }
            Next::Pause(until) => wait(notify, None, Some(until)),
            Next::Watch(until) => {
                has_news = true;
                wait(notify, Some(poller.as_fd()), until)
            }
        };
        if is_notified {
            inbox.clear_notify(DriverKind::Background);
        }
    }
}

/// Sleeps until one of the two is readable, or the time has come. Returns true if the eventfd was
/// notified.
fn wait(notify: BorrowedFd<'_>, poller: Option<BorrowedFd<'_>>, until: Option<Instant>) -> bool {
    let left = until.map(|end| end.saturating_duration_since(now()));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    let pollers = poller.unwrap_or(notify);
    let mut fds = [
        PollFd::from_borrowed_fd(notify, PollFlags::IN),
        PollFd::from_borrowed_fd(pollers, PollFlags::IN),
    ];
    let count = if poller.is_some() { 2 } else { 1 };
    // An interrupted wait has found nothing.
    let _ = poll(&mut fds[..count], timeout.as_ref());
    !fds[0].revents().is_empty()
}

impl DriverGuard {
    pub(crate) fn new(driver: Box<Driver>, inbox: &Arc<Inbox>, kind: DriverKind) -> Self {
        Self { driver: Some(driver), inbox: Arc::clone(inbox), kind }
    }

    /// Drives while any caller waits for an answer. Returns true if that was the inbox's end.
    fn keep(mut self) -> bool {
        loop {
            if self.turn() {
                return true;
            }
            if self.is_idle() {
                self.leave();
                return false;
            }
            if self.may_sleep() {
                self.sleep();
            }
        }
    }

    /// Drives until the caller's answer has come, or will not come from here.
    pub(crate) fn drive(mut self, signal: &Signal) {
        while !signal.is_woken() && !self.is_idle() {
            if self.may_sleep() {
                signal.sleep(&self.inbox, || self.sleep());
            }
            self.turn();
            self.wake();
        }
        self.leave();
    }

    /// Sends the caller's requests; [`Self::drive`] gets the answers later.
    pub(crate) fn begin(mut self) {
        self.turn();
        self.wake();
        if let Some(mut driver) = self.driver.take() {
            let answered = driver.answered();
            self.inbox.pause(driver, answered);
        }
    }

    /// Returns true if no answer is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.driver.as_ref().is_none_or(|driver| driver.is_idle())
    }

    fn may_sleep(&mut self) -> bool {
        self.driver.as_mut().is_none_or(|driver| self.inbox.may_sleep(driver.answered()))
    }

    pub(crate) fn turn(&mut self) -> bool {
        self.driver.as_mut().is_none_or(|driver| driver.turn(|jobs| self.inbox.take(jobs)))
    }

    fn wake(&mut self) {
        if let Some(driver) = &mut self.driver {
            driver.wake();
        }
    }

    fn sleep(&self) {
        let Some(driver) = &self.driver else { return };
        if wait(self.inbox.notify_fd(self.kind), Some(driver.poller()), driver.due()) {
            self.inbox.clear_notify(self.kind);
        }
    }

    /// Prepares the driving thread's sleep; returns how long it may last.
    #[cfg(test)]
    pub(crate) fn wakes(&mut self) -> Option<Instant> {
        if !self.may_sleep() {
            return Some(now());
        }
        self.driver.as_ref().and_then(|driver| driver.due())
    }

    /// Gives the driver back.
    pub(crate) fn leave(mut self) {
        if let Some(mut driver) = self.driver.take() {
            let (answered, wakers) = (driver.answered(), driver.take_wakers());
            self.inbox.leave(driver, answered);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for DriverGuard {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            self.inbox.end();
            drop(driver);
        }
    }
}
