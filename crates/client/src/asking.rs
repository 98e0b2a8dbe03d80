//! Hand-over of jobs to an inbox: at once, or those of one [`hold`] together.

use std::cell::RefCell;
use std::sync::Arc;

use crate::driver_guard::DriverGuard;
use crate::driver_handoff::DriverKind;
use crate::error::Error;
use crate::inbox::Inbox;
use crate::job::Job;
use crate::waiting::{caller, has_asked};
use upstream::Failure;

/// What is handed over later, and to whom.
type Held = Vec<(Arc<Inbox>, Job)>;

thread_local! {
    /// While a [`crate::Together`] is polled: what its futures ask.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Hands `jobs` to whoever drives, or to the [`hold`] that goes on on this thread. The answers are
/// waited for.
///
/// # Errors
///
/// [`Error::Closed`], or that too much waits already; nothing is asked then.
pub(crate) fn push(inbox: &Arc<Inbox>, jobs: Vec<Job>) -> Result<(), Error> {
    hand_over(inbox, jobs, true)
}

/// The same; nobody waits.
///
/// # Errors
///
/// As there.
pub(crate) fn post(inbox: &Arc<Inbox>, jobs: Vec<Job>) -> Result<(), Error> {
    hand_over(inbox, jobs, false)
}

fn hand_over(inbox: &Arc<Inbox>, jobs: Vec<Job>, are_awaited: bool) -> Result<(), Error> {
    let jobs = HELD.with_borrow_mut(|held| match held {
        Some(held) => {
            held.extend(jobs.into_iter().map(|job| (Arc::clone(inbox), job)));
            Vec::new()
        }
        None => jobs,
    });
    if jobs.is_empty() {
        return Ok(());
    }
    if let Some(driver) = inbox.deliver(jobs, caller(), are_awaited)? {
        DriverGuard::new(driver, inbox, DriverKind::Caller).begin();
        has_asked(inbox);
    }
    Ok(())
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
        let mut batches: Vec<(Arc<Inbox>, Vec<Job>)> = Vec::new();
        for (inbox, job) in held {
            match batches.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &inbox)) {
                Some((_, jobs)) => jobs.push(job),
                None => batches.push((inbox, vec![job])),
            }
        }
        for (inbox, jobs) in batches {
            let slots: Vec<_> = jobs.iter().filter_map(Job::slot).cloned().collect();
            if let Err(error) = push(&inbox, jobs) {
                let failure =
                    if error == Error::Closed { Failure::Shutdown } else { Failure::Busy };
                slots.iter().for_each(|slot| slot.fail(failure));
            }
        }
    }
}
