//! Hands jobs to an inbox: at once, or those of one [`hold`] together.

use std::cell::RefCell;
use std::sync::Arc;

use crate::driver_guard::DriverGuard;
use crate::driver_handoff::DriverKind;
use crate::error::Error;
use crate::inbox::{Inbox, Refused};
use crate::job::Job;
use crate::polled::{caller, has_asked};
use upstream::Failure;

/// The jobs of calls that are handed over later, by inbox.
type Held = Vec<(Arc<Inbox>, Vec<Job>)>;

thread_local! {
    /// Set while a [`crate::Together`] is polled: the requests of its futures.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Hands the jobs of a call to the driving thread, or to the current [`hold`] of this thread. A
/// caller waits for the answers.
///
/// # Errors
///
/// [`Error::Closed`], or too much already waits; nothing is asked then.
pub(crate) fn push(inbox: &Arc<Inbox>, jobs: Vec<Job>) -> Result<(), Error> {
    let jobs = HELD.with_borrow_mut(|held| match held {
        Some(held) => {
            held.push((Arc::clone(inbox), jobs));
            None
        }
        None => Some(jobs),
    });
    jobs.map_or(Ok(()), |jobs| hand_over(inbox, jobs, true)).map_err(|refused| refused.error)
}

/// Hands over jobs without a waiting caller, behind the held jobs of this inbox. The caller learns
/// at once if they will not be asked.
///
/// # Errors
///
/// As of [`push`].
pub(crate) fn post(inbox: &Arc<Inbox>, jobs: Vec<Job>) -> Result<(), Error> {
    let before = HELD.with_borrow_mut(|held| {
        let held = held.as_mut()?;
        Some(held.extract_if(.., |(other, _)| Arc::ptr_eq(other, inbox)).collect::<Held>())
    });
    release(before.unwrap_or_default());
    hand_over(inbox, jobs, false).map_err(|refused| refused.error)
}

fn hand_over(inbox: &Arc<Inbox>, jobs: Vec<Job>, are_awaited: bool) -> Result<(), Refused> {
    if let Some(driver) = inbox.deliver(jobs, caller(), are_awaited)? {
        DriverGuard::new(driver, inbox, DriverKind::Caller).begin();
        has_asked(inbox);
    }
    Ok(())
}

/// Runs `poll`, then hands over its requests on this thread all at once. A hold within another is a
/// part of that.
pub(crate) fn hold<T>(poll: impl FnOnce() -> T) -> T {
    let is_outermost = HELD.with_borrow_mut(|held| {
        let is_outermost = held.is_none();
        held.get_or_insert_default();
        is_outermost
    });
    // Dropped at the end, even by a panic of `poll`.
    let _release = is_outermost.then_some(Release);
    poll()
}

/// Hands over the jobs held so far, because this thread is about to wait within the poll of a hold.
pub(crate) fn release_held() {
    release(HELD.with_borrow_mut(|held| held.as_mut().map(std::mem::take)).unwrap_or_default());
}

struct Release;

impl Drop for Release {
    fn drop(&mut self) {
        release(HELD.take().unwrap_or_default());
    }
}

/// Hands over the calls of each inbox together.
fn release(held: Held) {
    let mut batches: Vec<(Arc<Inbox>, Vec<Vec<Job>>)> = Vec::new();
    for (inbox, call) in held {
        match batches.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &inbox)) {
            Some((_, calls)) => calls.push(call),
            None => batches.push((inbox, vec![call])),
        }
    }
    for (inbox, calls) in batches {
        let lens: Vec<usize> = calls.iter().map(Vec::len).collect();
        let Err(refused) = hand_over(&inbox, calls.into_iter().flatten().collect(), true) else {
            continue;
        };
        // Not all of them fit; those that do are asked.
        let mut jobs = refused.jobs.into_iter();
        for len in lens {
            if let Err(refused) = hand_over(&inbox, jobs.by_ref().take(len).collect(), true) {
                refused.fail();
            }
        }
    }
}

impl Refused {
    /// Fails the waiting calls.
    fn fail(&self) {
        let is_closed = self.error == Error::Closed;
        let failure = if is_closed { Failure::Shutdown } else { Failure::Busy };
        self.jobs.iter().filter_map(Job::slot).for_each(|slot| slot.fail(failure));
    }
}
