//! A thread's turn to drive, and the keeper's loop. See [`crate::shift`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::driver::Driver;
use crate::lane::Lane;
use crate::shift::{Next, Who};
use crate::signal::Signal;
use routes::{Core, Spooler};
use upstream::system::now;

/// The driver, while a thread has it. Dropped by a panic, it ends the lane.
pub(crate) struct Seat {
    driver: Option<Box<Driver>>,
    lane: Arc<Lane>,
    who: Who,
}

/// Starts the keeper of a lane.
///
/// # Errors
///
/// When there is no thread, or no descriptor.
pub(crate) fn start(
    lane: Arc<Lane>,
    spooler: Option<Arc<Spooler>>,
    core: Core,
) -> io::Result<JoinHandle<()>> {
    let poller = core.poller().try_clone_to_owned()?;
    lane.employ(Box::new(Driver::new(core)));
    let builder = thread::Builder::new().name("holdall-client".to_owned());
    builder.spawn(move || {
        keep(&lane, &poller);
        // Whatever was handed to it is answered by then.
        drop(spooler);
    })
}

/// The keeper's loop, until the lane ends.
fn keep(lane: &Arc<Lane>, poller: &OwnedFd) {
    let bell = lane.bell(Who::Keeper);
    let mut has_news = false;
    while let Some(next) = lane.next(has_news) {
        has_news = false;
        let has_rung = match next {
            Next::Drive(driver) => {
                if Seat::new(driver, lane, Who::Keeper).keep() {
                    return;
                }
                false
            }
            Next::Rest(until) => wait(bell, None, Some(until)),
            Next::Watch(until) => {
                has_news = true;
                wait(bell, Some(poller.as_fd()), until)
            }
        };
        if has_rung {
            lane.silence(Who::Keeper);
        }
    }
}

/// Sleeps until one of the two is readable, or the time has come. True when the bell was rung.
fn wait(bell: BorrowedFd<'_>, poller: Option<BorrowedFd<'_>>, until: Option<Instant>) -> bool {
    let left = until.map(|end| end.saturating_duration_since(now()));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    let pollers = poller.unwrap_or(bell);
    let mut fds = [
        PollFd::from_borrowed_fd(bell, PollFlags::IN),
        PollFd::from_borrowed_fd(pollers, PollFlags::IN),
    ];
    let count = if poller.is_some() { 2 } else { 1 };
    // An interrupted wait is a wait that found nothing.
    let _ = poll(&mut fds[..count], timeout.as_ref());
    !fds[0].revents().is_empty()
}

impl Seat {
    pub(crate) fn new(driver: Box<Driver>, lane: &Arc<Lane>, who: Who) -> Self {
        Self { driver: Some(driver), lane: Arc::clone(lane), who }
    }

    /// Drives while anybody waits for an answer. True when that was the lane's end.
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

    /// Drives until what the caller waits for has come, or will not come from here.
    pub(crate) fn lead(mut self, signal: &Signal) {
        while !signal.is_woken() && !self.is_idle() {
            if self.may_sleep() {
                signal.sleep(&self.lane, || self.sleep());
            }
            self.turn();
            self.wake();
        }
        self.leave();
    }

    /// Sends what the caller asks; the answer is for [`Self::lead`], later.
    pub(crate) fn begin(mut self) {
        self.turn();
        self.wake();
        if let Some(mut driver) = self.driver.take() {
            let answered = driver.answered();
            self.lane.pause(driver, answered);
        }
    }

    /// Nothing is owed to anybody.
    pub(crate) fn is_idle(&self) -> bool {
        self.driver.as_ref().is_none_or(|driver| driver.is_idle())
    }

    fn may_sleep(&mut self) -> bool {
        self.driver.as_mut().is_none_or(|driver| self.lane.may_sleep(driver.answered()))
    }

    pub(crate) fn turn(&mut self) -> bool {
        self.driver.as_mut().is_none_or(|driver| driver.turn(&self.lane))
    }

    fn wake(&mut self) {
        if let Some(driver) = &mut self.driver {
            driver.wake();
        }
    }

    fn sleep(&self) {
        let Some(driver) = &self.driver else { return };
        if wait(self.lane.bell(self.who), Some(driver.poller()), driver.due()) {
            self.lane.silence(self.who);
        }
    }

    /// Whoever drives wants to sleep: how long it may.
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
            self.lane.leave(driver, answered);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            self.lane.end();
            drop(driver);
        }
    }
}
