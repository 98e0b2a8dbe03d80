//! The way from callers to one driver thread: an inbox, and a bell that is rung when the driver sleeps.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use super::error::Error;
use super::slot::Slot;
use crate::plan::Plan;
use crate::reply::Failure;
use crate::request::OwnedRequest;

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
    /// The driver waits for the bell.
    is_asleep: bool,
    is_closed: bool,
    /// The driver is gone.
    has_ended: bool,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Lane {
    inbox: Mutex<Inbox>,
    bell: OwnedFd,
    limits: Limits,
}

/// What is handed over later, and to whom.
type Held = Vec<(Arc<Lane>, Job)>;

thread_local! {
    /// While a [`super::Together`] is polled: what its futures ask.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

impl Lane {
    /// # Errors
    ///
    /// When there is no descriptor.
    pub(crate) fn new(limits: Limits) -> io::Result<Arc<Self>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { inbox: Mutex::default(), bell, limits }))
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands `jobs` to the driver, or to the [`hold`] that goes on on this thread.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], or that too much waits already; nothing is asked then.
    pub(crate) fn push(self: &Arc<Self>, jobs: Vec<Job>) -> Result<(), Error> {
        let jobs = HELD.with_borrow_mut(|held| match held {
            Some(held) => {
                held.extend(jobs.into_iter().map(|job| (Arc::clone(self), job)));
                Vec::new()
            }
            None => jobs,
        });
        if jobs.is_empty() { Ok(()) } else { self.deliver(jobs) }
    }

    fn deliver(&self, jobs: Vec<Job>) -> Result<(), Error> {
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
        inbox.bytes += bytes;
        inbox.outstanding += count;
        inbox.jobs.extend(jobs);
        self.wake(inbox);
        Ok(())
    }

    fn wake(&self, mut inbox: MutexGuard<'_, Inbox>) {
        let rings = std::mem::take(&mut inbox.is_asleep);
        drop(inbox);
        if rings {
            self.ring();
        }
    }

    fn ring(&self) {
        // A bell that is full has been rung.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
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
        self.wake(inbox);
    }

    /// Readable when the bell was rung.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The driver is awake: moves the jobs to `taken`. True when no more will come.
    pub(crate) fn take(&self, taken: &mut Vec<Job>, has_rung: bool) -> bool {
        if has_rung {
            // Whether or not it was still ringing.
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
        let mut inbox = self.lock();
        inbox.is_asleep = false;
        inbox.bytes = 0;
        std::mem::swap(&mut inbox.jobs, taken);
        inbox.is_closed
    }

    /// The driver is gone: whoever still waits fails.
    pub(crate) fn end(&self) {
        let mut inbox = self.lock();
        (inbox.is_closed, inbox.has_ended) = (true, true);
        let jobs = std::mem::take(&mut inbox.jobs);
        drop(inbox);
        jobs.iter().filter_map(slot_of).for_each(|slot| slot.fail(Failure::Shutdown));
    }

    /// The driver wants to sleep, and has answered so many. False when there are jobs.
    pub(crate) fn may_sleep(&self, answered: usize) -> bool {
        let mut inbox = self.lock();
        inbox.outstanding -= answered;
        inbox.is_asleep = inbox.jobs.is_empty();
        inbox.is_asleep
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
