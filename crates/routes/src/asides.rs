//! The memory of the work that routes do behind a reply: copies for shadows, replicas and other
//! clusters. No client waits for them, so no client's account includes them (decision 151).
//!
//! ```text
//!     a copy that may be missing -> copy_room -> spawn_charged, or it is dropped and counted
//!     everything else            -> spawn_aside, or the request that causes it waits for it
//! ```
//!
//! One [`AsideBudget`] covers all workers of a process. A worker reports to it in steps of
//! [`TOLD_BYTES`], so small copies touch no cache line that workers share.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;

use crate::task::BoxedTask;
use upstream::SendCell;

/// Bytes that a worker may leave unreported.
const TOLD_BYTES: usize = 64 * 1024;

/// Memory of a task in addition to its request's bytes: the task, its waiters, a queue entry.
const TASK_BYTES: usize = 1024;

/// The default limit.
const DEFAULT_BYTES: usize = 64 * 1024 * 1024;

/// The limit on the bytes that the copies of all workers hold.
#[derive(Debug)]
pub struct AsideBudget {
    max: usize,
    /// Relaxed: a stale value is wrong only by the bytes that others have just taken.
    held: AtomicUsize,
}

impl AsideBudget {
    /// A budget of `max` bytes.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self { max, held: AtomicUsize::new(0) }
    }

    /// The bytes held, as far as workers have reported them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// The share of the budget for copies that may be missing. The rest is for those that may not.
const fn share(max: usize, need: Need) -> usize {
    match need {
        Need::MayBeMissing => max / 4 * 3,
        Need::MustBeDone => max,
    }
}

/// Whether a copy may be dropped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Need {
    /// A copy for a shadow, or of a value that can be fetched again.
    MayBeMissing,
    /// Without this copy, a server keeps a stale value.
    MustBeDone,
}

/// A worker's part of the budget.
#[derive(Debug, Default)]
pub(crate) struct Asides {
    budget: OnceLock<Arc<AsideBudget>>,
    held: SendCell<usize>,
    /// The bytes reported to the budget.
    told: SendCell<usize>,
    late: Late,
}

/// The tasks that the currently polled task has to wait for. No other thread locks it. The mutex
/// only makes futures `Send` that are not `Sync`.
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
    /// Makes the worker use this budget from now on.
    pub(crate) fn share(&self, budget: Arc<AsideBudget>) {
        // The first budget stays.
        let _ = self.budget.set(budget);
    }

    fn budget(&self) -> &AsideBudget {
        self.budget.get_or_init(|| Arc::new(AsideBudget::new(DEFAULT_BYTES)))
    }

    /// Reserves room for a task with this number of bytes, until the charge is dropped.
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

    /// Keeps the currently polled task from ending before `task` has ended.
    pub(crate) fn wait_for(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let asides = Arc::clone(self);
        let waited = Box::pin(async move { asides.with_late(task).await });
        self.late.tasks().push(waited);
    }

    /// Returns the outcome of `task` once all tasks that found no room have ended. They start in
    /// the turn in which `task` requests them, and so keep their place among the client's requests.
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

/// Bytes taken from the budget until it is dropped.
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
    fn workers_share_a_budget_and_return_their_charges() {
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
    fn small_charges_reach_the_budget_in_batches() {
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
