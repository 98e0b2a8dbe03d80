//! The inbox between callers and one driver, and the eventfds that wake the driving threads (see
//! [`crate::driver_handoff`]).

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::driver::Driver;
use crate::driver_handoff::{DriverHandoff, DriverKind, Next};
use crate::error::Error;
use crate::job::Job;
use crate::slot::Slot;
use upstream::system::now;
use upstream::{Failure, Wake};

/// The limits on waiting requests, for all callers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Requests without an answer.
    pub(crate) pending_max: usize,
    /// Bytes of requests not yet taken by the driver.
    pub(crate) inbox_bytes_max: usize,
}

/// Jobs that an inbox has refused.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) error: Error,
    pub(crate) jobs: Vec<Job>,
}

#[derive(Debug, Default)]
struct State {
    jobs: Vec<Job>,
    bytes: usize,
    /// Requests taken or waiting, without an answer.
    outstanding: usize,
    /// The last caller: the number of its signal.
    last: u64,
    handoff: DriverHandoff<Box<Driver>>,
    is_closed: bool,
    /// The driver is gone.
    has_ended: bool,
}

impl State {
    /// Returns true if the background driver has work while no caller drives.
    fn has_work(&self) -> bool {
        !self.jobs.is_empty() || self.outstanding > 0 || self.is_closed
    }
}

/// The requests on their way to one driver.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    background_notify: Wake,
    caller_notify: Wake,
    limits: Limits,
}

impl Inbox {
    /// # Errors
    ///
    /// If no descriptor is available.
    pub(crate) fn new(limits: Limits) -> io::Result<Arc<Self>> {
        let (state, background_notify, caller_notify) =
            (Mutex::default(), Wake::new()?, Wake::new()?);
        Ok(Arc::new(Self { state, background_notify, caller_notify, limits }))
    }

    /// Sets the driver.
    pub(crate) fn set_driver(&self, driver: Box<Driver>) {
        self.leave(driver, 0);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts `jobs` of `caller` (0: one that waits for no future). Returns the driver if the
    /// caller must drive; otherwise the driving thread is awake.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], or too much already waits; nothing is sent then.
    pub(crate) fn deliver(
        &self,
        jobs: Vec<Job>,
        caller: u64,
        are_awaited: bool,
    ) -> Result<Option<Box<Driver>>, Refused> {
        let weights = jobs.iter().map(Job::weight);
        let (bytes, count) = weights.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let mut state = self.lock();
        if state.is_closed {
            return Err(Refused { error: Error::Closed, jobs });
        }
        // An empty state accepts anything: a request above the limit has a separate error.
        let is_full = state.bytes > 0 && state.bytes + bytes > self.limits.inbox_bytes_max;
        if count > 0 && (is_full || state.outstanding + count > self.limits.pending_max) {
            return Err(Refused { error: Error::cache(Failure::Busy, b""), jobs });
        }
        let was_idle = !state.has_work();
        let is_alone = caller != 0 && caller == std::mem::replace(&mut state.last, caller);
        state.bytes += bytes;
        state.outstanding += count;
        state.jobs.extend(jobs);
        // If callers alternate, the background driver sends for many of them at once.
        if count > 0
            && are_awaited
            && is_alone
            && was_idle
            && let Some(driver) = state.handoff.take_for_caller()
        {
            return Ok(Some(driver));
        }
        self.call(state);
        Ok(None)
    }

    /// Wakes the driving thread.
    fn call(&self, mut state: MutexGuard<'_, State>) {
        let kind = state.handoff.call();
        drop(state);
        if let Some(kind) = kind {
            self.notify(kind);
        }
    }

    const fn eventfd_of(&self, kind: DriverKind) -> &Wake {
        match kind {
            DriverKind::Background => &self.background_notify,
            DriverKind::Caller => &self.caller_notify,
        }
    }

    pub(crate) fn notify(&self, kind: DriverKind) {
        self.eventfd_of(kind).wake();
    }

    /// Readable once it was notified.
    pub(crate) fn notify_fd(&self, kind: DriverKind) -> BorrowedFd<'_> {
        self.eventfd_of(kind).fd()
    }

    /// Clears the notification, after the sleeping thread has woken.
    pub(crate) fn clear_notify(&self, kind: DriverKind) {
        self.eventfd_of(kind).clear();
    }

    /// Returns true if there is an unread notification.
    #[cfg(test)]
    pub(crate) fn is_notified(&self, kind: DriverKind) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let notify = self.notify_fd(kind);
        let mut fds = [PollFd::from_borrowed_fd(notify, PollFlags::IN)];
        let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok_and(|count| count > 0)
    }

    /// Returns true if there is work while no thread drives.
    #[cfg(test)]
    pub(crate) fn has_work(&self) -> bool {
        self.lock().has_work()
    }

    /// The driver, if it is free, for a caller with an outstanding request.
    pub(crate) fn take_driver(&self) -> Option<Box<Driver>> {
        self.lock().handoff.take_for_caller()
    }

    /// Leaves the outstanding requests, which no caller drives, to the background driver.
    pub(crate) fn call_background(&self) {
        let state = self.lock();
        if state.has_work() {
            self.call(state);
        }
    }

    /// Takes the driver back from a thread that answered `answered` requests.
    pub(crate) fn leave(&self, driver: Box<Driver>, answered: usize) {
        let due = driver.due();
        self.give_back(driver, due, answered, State::has_work);
    }

    /// The same for a caller that will return for its answer; if it does not soon, the background
    /// driver takes over.
    pub(crate) fn pause(&self, driver: Box<Driver>, answered: usize) {
        let others_work = |state: &State| !state.jobs.is_empty() || state.is_closed;
        self.give_back(driver, None, answered, others_work);
    }

    fn give_back(
        &self,
        driver: Box<Driver>,
        due: Option<Instant>,
        answered: usize,
        has_work: fn(&State) -> bool,
    ) {
        let mut state = self.lock();
        state.outstanding -= answered;
        let has_work = has_work(&state);
        let is_needed = state.handoff.leave(driver, due, has_work);
        drop(state);
        if is_needed {
            self.notify(DriverKind::Background);
        }
    }

    /// The next step of the background driver; `None` when the inbox has ended.
    pub(crate) fn next(&self, has_news: bool) -> Option<Next<Box<Driver>>> {
        let mut state = self.lock();
        if state.has_ended {
            return None;
        }
        let has_work = state.has_work();
        Some(state.handoff.next(now(), has_work, has_news))
    }

    /// Refuses further jobs; the driver ends when everything is answered, and then notifies `slot`.
    pub(crate) fn close(&self, slot: Option<Arc<Slot>>) {
        let mut state = self.lock();
        state.is_closed = true;
        if state.has_ended {
            drop(state);
            slot.iter().for_each(|slot| slot.fail(Failure::Shutdown));
            return;
        }
        state.jobs.extend(slot.map(Job::AwaitIdle));
        self.call(state);
    }

    /// Moves the jobs to `taken` for the awake driver. Returns true if no more will come.
    pub(crate) fn take(&self, taken: &mut Vec<Job>) -> bool {
        let mut state = self.lock();
        state.handoff.wake();
        state.bytes = 0;
        std::mem::swap(&mut state.jobs, taken);
        state.is_closed
    }

    /// Fails all waiting calls, because the driver is gone.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        (state.is_closed, state.has_ended) = (true, true);
        let jobs = std::mem::take(&mut state.jobs);
        let background_sleeps = state.handoff.end();
        drop(state);
        if background_sleeps {
            self.notify(DriverKind::Background);
        }
        jobs.iter().filter_map(Job::slot).for_each(|slot| slot.fail(Failure::Shutdown));
    }

    /// Returns true if the driving thread, which answered `answered` requests, may sleep because
    /// there are no jobs.
    pub(crate) fn may_sleep(&self, answered: usize) -> bool {
        let mut state = self.lock();
        state.outstanding -= answered;
        let has_jobs = !state.jobs.is_empty();
        state.handoff.may_sleep(has_jobs)
    }
}
