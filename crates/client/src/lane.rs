//! The way from callers to one driver: an inbox, and bells that are rung when whoever drives sleeps ([`crate::shift`]).

use std::cell::RefCell;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use crate::driver::Driver;
use crate::error::Error;
use crate::seat::Seat;
use crate::shift::{Next, Shift, Who};
use crate::signal;
use crate::slot::Slot;
use routes::Plan;
use upstream::system::now;
use upstream::{Failure, OwnedRequest, Wake};

/// What a driver is to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// Ask; the answer goes to this place of the slot.
    Ask { request: OwnedRequest, slot: Arc<Slot>, index: usize },
    /// Ask every server; the worst answer goes to the slot.
    AskAll { request: OwnedRequest, slot: Arc<Slot> },
    /// Answer the slot when nothing is outstanding.
    Rest(Arc<Slot>),
    /// Fail the slot at this time.
    Expire { at: Instant, slot: Weak<Slot> },
    /// Take another tree.
    Replace(Arc<Plan>),
}

impl Job {
    /// What it keeps in memory, and whether an answer is owed for it.
    fn weight(&self) -> (usize, usize) {
        match self {
            Self::Ask { request, .. } | Self::AskAll { request, .. } => (request.bytes(), 1),
            Self::Rest(_) | Self::Expire { .. } | Self::Replace(_) => (0, 0),
        }
    }
}

/// How much may wait, in all callers' requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Requests without an answer.
    pub(crate) pending_max: usize,
    /// Bytes of requests that the driver has not taken.
    pub(crate) inbox_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Inbox {
    jobs: Vec<Job>,
    bytes: usize,
    /// Requests that were taken or wait, and have no answer.
    outstanding: usize,
    /// Who asked last: see [`signal::asker`].
    last: u64,
    shift: Shift<Box<Driver>>,
    is_closed: bool,
    /// The driver is gone.
    has_ended: bool,
}

impl Inbox {
    /// Whether there is anything for the keeper when nobody leads.
    fn has_work(&self) -> bool {
        !self.jobs.is_empty() || self.outstanding > 0 || self.is_closed
    }
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Lane {
    inbox: Mutex<Inbox>,
    keepers_bell: Wake,
    leaders_bell: Wake,
    limits: Limits,
}

/// What is handed over later, and to whom.
type Held = Vec<(Arc<Lane>, Job)>;

thread_local! {
    /// While a [`crate::Together`] is polled: what its futures ask.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

impl Lane {
    /// # Errors
    ///
    /// When there is no descriptor.
    pub(crate) fn new(limits: Limits) -> io::Result<Arc<Self>> {
        let (inbox, keepers_bell, leaders_bell) = (Mutex::default(), Wake::new()?, Wake::new()?);
        Ok(Arc::new(Self { inbox, keepers_bell, leaders_bell, limits }))
    }

    /// From here on there is somebody to drive.
    pub(crate) fn employ(&self, driver: Box<Driver>) {
        self.leave(driver, 0);
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands `jobs` to whoever drives, or to the [`hold`] that goes on on this thread. The answers are waited for.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], or that too much waits already; nothing is asked then.
    pub(crate) fn push(self: &Arc<Self>, jobs: Vec<Job>) -> Result<(), Error> {
        self.hand_over(jobs, true)
    }

    /// The same; nobody waits.
    ///
    /// # Errors
    ///
    /// As there.
    pub(crate) fn post(self: &Arc<Self>, jobs: Vec<Job>) -> Result<(), Error> {
        self.hand_over(jobs, false)
    }

    fn hand_over(self: &Arc<Self>, jobs: Vec<Job>, are_awaited: bool) -> Result<(), Error> {
        let jobs = HELD.with_borrow_mut(|held| match held {
            Some(held) => {
                held.extend(jobs.into_iter().map(|job| (Arc::clone(self), job)));
                Vec::new()
            }
            None => jobs,
        });
        if jobs.is_empty() { Ok(()) } else { self.deliver(jobs, are_awaited) }
    }

    fn deliver(self: &Arc<Self>, jobs: Vec<Job>, are_awaited: bool) -> Result<(), Error> {
        let weights = jobs.iter().map(Job::weight);
        let (bytes, count) = weights.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let mut inbox = self.lock();
        if inbox.is_closed {
            return Err(Error::Closed);
        }
        // An empty inbox takes anything: a request larger than the limit has its own error.
        let is_full = inbox.bytes > 0 && inbox.bytes + bytes > self.limits.inbox_bytes_max;
        if count > 0 && (is_full || inbox.outstanding + count > self.limits.pending_max) {
            return Err(Error::cache(Failure::Busy, b""));
        }
        let (asker, was_idle) = (signal::asker(), !inbox.has_work());
        let is_alone = asker != 0 && asker == std::mem::replace(&mut inbox.last, asker);
        inbox.bytes += bytes;
        inbox.outstanding += count;
        inbox.jobs.extend(jobs);
        // Where callers take turns, the keeper sends for many of them at once.
        if count > 0
            && are_awaited
            && is_alone
            && was_idle
            && let Some(driver) = inbox.shift.lead()
        {
            drop(inbox);
            Seat::new(driver, self, Who::Leader).begin();
            signal::has_asked(self);
        } else {
            self.call(inbox);
        }
        Ok(())
    }

    /// Wakes whoever drives.
    fn call(&self, mut inbox: MutexGuard<'_, Inbox>) {
        let who = inbox.shift.call();
        drop(inbox);
        if let Some(who) = who {
            self.ring(who);
        }
    }

    const fn bell_of(&self, who: Who) -> &Wake {
        match who {
            Who::Keeper => &self.keepers_bell,
            Who::Leader => &self.leaders_bell,
        }
    }

    pub(crate) fn ring(&self, who: Who) {
        self.bell_of(who).wake();
    }

    /// Readable when it was rung.
    pub(crate) fn bell(&self, who: Who) -> BorrowedFd<'_> {
        self.bell_of(who).fd()
    }

    /// It was rung, and whoever sleeps at it is awake.
    pub(crate) fn silence(&self, who: Who) {
        self.bell_of(who).clear();
    }

    /// Whether it was rung, and nobody has heard.
    #[cfg(test)]
    pub(crate) fn is_rung(&self, who: Who) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let bell = self.bell(who);
        let mut fds = [PollFd::from_borrowed_fd(bell, PollFlags::IN)];
        let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok_and(|count| count > 0)
    }

    /// Whether there is anything to do when nobody drives.
    #[cfg(test)]
    pub(crate) fn has_work(&self) -> bool {
        self.lock().has_work()
    }

    /// For a caller whose request is outstanding: the driver, if it is free.
    pub(crate) fn seat_to_lead(self: &Arc<Self>) -> Option<Seat> {
        let driver = self.lock().shift.lead()?;
        Some(Seat::new(driver, self, Who::Leader))
    }

    /// Nobody leads whatever is outstanding: it is the keeper's.
    pub(crate) fn call_keeper(&self) {
        let inbox = self.lock();
        if inbox.has_work() {
            self.call(inbox);
        }
    }

    /// Whoever had the driver gives it back, having answered so many.
    pub(crate) fn leave(&self, driver: Box<Driver>, answered: usize) {
        let due = driver.due();
        self.give_back(driver, due, answered, Inbox::has_work);
    }

    /// The same of a caller that will come back for its answer; if it does not soon, the keeper sees to it.
    pub(crate) fn pause(&self, driver: Box<Driver>, answered: usize) {
        let others_work = |inbox: &Inbox| !inbox.jobs.is_empty() || inbox.is_closed;
        self.give_back(driver, None, answered, others_work);
    }

    fn give_back(
        &self,
        driver: Box<Driver>,
        due: Option<Instant>,
        answered: usize,
        has_work: fn(&Inbox) -> bool,
    ) {
        let mut inbox = self.lock();
        inbox.outstanding -= answered;
        let has_work = has_work(&inbox);
        let is_needed = inbox.shift.leave(driver, due, has_work);
        drop(inbox);
        if is_needed {
            self.ring(Who::Keeper);
        }
    }

    /// What the keeper does next; `None` when the lane has ended.
    pub(crate) fn next(&self, has_news: bool) -> Option<Next<Box<Driver>>> {
        let mut inbox = self.lock();
        if inbox.has_ended {
            return None;
        }
        let has_work = inbox.has_work();
        Some(inbox.shift.next(now(), has_work, has_news))
    }

    /// No more is taken; the driver ends when everything has been answered. `slot` hears of that.
    pub(crate) fn close(&self, slot: Option<Arc<Slot>>) {
        let mut inbox = self.lock();
        inbox.is_closed = true;
        if inbox.has_ended {
            drop(inbox);
            slot.iter().for_each(|slot| slot.fail(Failure::Shutdown));
            return;
        }
        inbox.jobs.extend(slot.map(Job::Rest));
        self.call(inbox);
    }

    /// The driver is awake: moves the jobs to `taken`. True when no more will come.
    pub(crate) fn take(&self, taken: &mut Vec<Job>) -> bool {
        let mut inbox = self.lock();
        inbox.shift.wake();
        inbox.bytes = 0;
        std::mem::swap(&mut inbox.jobs, taken);
        inbox.is_closed
    }

    /// The driver is gone: whoever still waits fails.
    pub(crate) fn end(&self) {
        let mut inbox = self.lock();
        (inbox.is_closed, inbox.has_ended) = (true, true);
        let jobs = std::mem::take(&mut inbox.jobs);
        let keeper_sleeps = inbox.shift.end();
        drop(inbox);
        if keeper_sleeps {
            self.ring(Who::Keeper);
        }
        jobs.iter().filter_map(slot_of).for_each(|slot| slot.fail(Failure::Shutdown));
    }

    /// Whoever drives wants to sleep, and has answered so many. False when there are jobs.
    pub(crate) fn may_sleep(&self, answered: usize) -> bool {
        let mut inbox = self.lock();
        inbox.outstanding -= answered;
        let has_jobs = !inbox.jobs.is_empty();
        inbox.shift.may_sleep(has_jobs)
    }
}

/// Runs `poll`; what it asks on this thread is handed over afterwards, all at once.
pub(crate) fn hold<T>(poll: impl FnOnce() -> T) -> T {
    // Dropped at the end, even by a panic of `poll`.
    let _release = Release { outer: HELD.replace(Some(Vec::new())) };
    poll()
}

struct Release {
    /// What the hold around this one has so far.
    outer: Option<Held>,
}

impl Drop for Release {
    fn drop(&mut self) {
        let held = HELD.replace(self.outer.take()).unwrap_or_default();
        let mut batches: Vec<(Arc<Lane>, Vec<Job>)> = Vec::new();
        for (lane, job) in held {
            match batches.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &lane)) {
                Some((_, jobs)) => jobs.push(job),
                None => batches.push((lane, vec![job])),
            }
        }
        for (lane, jobs) in batches {
            let slots: Vec<_> = jobs.iter().filter_map(slot_of).collect();
            if let Err(error) = lane.push(jobs) {
                let failure =
                    if error == Error::Closed { Failure::Shutdown } else { Failure::Busy };
                slots.iter().for_each(|slot| slot.fail(failure));
            }
        }
    }
}

fn slot_of(job: &Job) -> Option<Arc<Slot>> {
    match job {
        Job::Ask { slot, .. } | Job::AskAll { slot, .. } | Job::Rest(slot) => {
            Some(Arc::clone(slot))
        }
        Job::Expire { .. } | Job::Replace(_) => None,
    }
}
