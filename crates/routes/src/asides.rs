//! The memory of what routes do behind a reply: copies for shadows, replicas and other clusters.
//! No client waits for them, so they are in no client's account (decision 151).
//!
//! ```text
//!     a copy that may be missing -> copy_room -> spawn_charged, or it is dropped and counted
//!     everything else            -> spawn_aside, or the request that causes it waits for it
//! ```
//!
//! One [`AsideBudget`] holds for all workers of a process. A worker tells it of [`TOLD_BYTES`] at a
//! time, so that small copies take no line that workers share.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;

use crate::task::BoxedTask;
use upstream::SendCell;

/// Bytes that a worker may leave untold.
const TOLD_BYTES: usize = 64 * 1024;

/// What a task takes beside the bytes of its request: itself, its waiters, a place in a queue.
const TASK_BYTES: usize = 1024;

/// The bound where nobody sets one.
const DEFAULT_BYTES: usize = 64 * 1024 * 1024;

/// The bytes that copies of all workers may hold.
#[derive(Debug)]
pub struct AsideBudget {
    max: usize,
    /// Relaxed: whoever sees a late number is off by what others have just taken.
    held: AtomicUsize,
}

impl AsideBudget {
    /// A budget of `max` bytes.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self { max, held: AtomicUsize::new(0) }
    }

    /// The bytes that are held, as far as workers have told of them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// The part of it that copies may take which may be missing: the rest is for those that may not.
const fn share(max: usize, need: Need) -> usize {
    match need {
        Need::MayBeMissing => max / 4 * 3,
        Need::MustBeDone => max,
    }
}

/// Whether something may be left out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Need {
    /// A copy for a shadow, or of what can be fetched again.
    MayBeMissing,
    /// Without it, a server keeps what is old.
    MustBeDone,
}

/// A worker's part of the budget.
#[derive(Debug, Default)]
pub(crate) struct Asides {
    budget: OnceLock<Arc<AsideBudget>>,
    held: SendCell<usize>,
    /// The bytes that the budget has been told of.
    told: SendCell<usize>,
    late: Late,
}

/// What the task that is polled now has to wait for. Nobody else locks it: the mutex is for futures
/// that may be sent, but not shared.
#[derive(Default)]
struct Late(Mutex<Vec<BoxedTask>>);

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Late").finish_non_exhaustive()
    }
}

impl Late {
    fn tasks(&self) -> MutexGuard<'_, Vec<BoxedTask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asides {
    /// From here on the worker takes of this budget.
    pub(crate) fn share(&self, budget: Arc<AsideBudget>) {
        // The first that is given stays.
        let _ = self.budget.set(budget);
    }

    fn budget(&self) -> &AsideBudget {
        self.budget.get_or_init(|| Arc::new(AsideBudget::new(DEFAULT_BYTES)))
    }

    /// Room for a task with this number of bytes, until the charge is dropped.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize, need: Need) -> Option<Charge> {
        let (budget, bytes) = (self.budget(), bytes.saturating_add(TASK_BYTES));
        let others = budget.held().saturating_sub(self.told.get());
        let held = self.held.get().saturating_add(bytes);
        if others.saturating_add(held) > share(budget.max, need) {
            return None;
        }
        self.hold(held);
        Some(Charge { asides: Arc::clone(self), bytes })
    }

    fn hold(&self, bytes: usize) {
        self.held.set(bytes);
        if bytes.abs_diff(self.told.get()) >= TOLD_BYTES || bytes == 0 {
            self.tell();
        }
    }

    fn tell(&self) {
        let (held, told) = (self.held.get(), self.told.replace(self.held.get()));
        if held != told {
            // Wraps as a subtraction does.
            self.budget().held.fetch_add(held.wrapping_sub(told), Ordering::Relaxed);
        }
    }

    /// The task that is polled now does not end before `task` has.
    pub(crate) fn wait_for(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let asides = Arc::clone(self);
        let waited = Box::pin(async move { asides.with_late(task).await });
        self.late.tasks().push(waited);
    }

    /// The outcome of `task`, when everything has ended for which there was no room beside it. That
    /// begins in the turn in which the task asks for it, and so keeps its place among the requests
    /// of its client.
    pub(crate) async fn with_late<T>(&self, task: impl Future<Output = T>) -> T {
        let mut task = pin!(task);
        let (mut outcome, mut late) = (None, Vec::new());
        poll_fn(|context| {
            if outcome.is_none()
                && let Poll::Ready(ready) = task.as_mut().poll(context)
            {
                outcome = Some(ready);
            }
            late.append(&mut self.late.tasks());
            late.retain_mut(|one: &mut BoxedTask| one.as_mut().poll(context).is_pending());
            match outcome.take() {
                Some(ready) if late.is_empty() => Poll::Ready(ready),
                other => {
                    outcome = other;
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for Asides {
    fn drop(&mut self) {
        self.held.set(0);
        self.tell();
    }
}

/// Bytes of the budget, until it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    asides: Arc<Asides>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.asides.hold(self.asides.held.get().saturating_sub(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    fn worker(budget: &Arc<AsideBudget>) -> Arc<Asides> {
        let asides = Arc::new(Asides::default());
        asides.share(Arc::clone(budget));
        asides
    }

    #[test]
    fn workers_share_a_budget_and_give_back_what_they_took() {
        let budget = Arc::new(AsideBudget::new(8 * MB));
        let (one, other) = (worker(&budget), worker(&budget));
        let first = one.charge(4 * MB, Need::MayBeMissing).expect("it is empty");
        let second = other.charge(MB, Need::MayBeMissing).expect("there is room");
        assert!(other.charge(MB, Need::MayBeMissing).is_none(), "the rest is for others");
        let third = other.charge(2 * MB, Need::MustBeDone).expect("a quarter is left");
        assert!(one.charge(MB, Need::MustBeDone).is_none(), "it is full");
        drop(first);
        assert!(other.charge(MB, Need::MayBeMissing).is_some());
        drop((second, third));
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn small_copies_are_not_told_until_they_are_many() {
        let budget = Arc::new(AsideBudget::new(8 * MB));
        let one = worker(&budget);
        let few: Vec<_> = (0..9).map(|_| one.charge(100, Need::MustBeDone)).collect();
        assert_eq!(budget.held(), 0);
        let many: Vec<_> = (0..90).map(|_| one.charge(100, Need::MustBeDone)).collect();
        assert!(budget.held() >= TOLD_BYTES);
        drop((few, many));
        assert_eq!(budget.held(), 0);
    }
}
