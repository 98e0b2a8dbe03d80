//! One worker's part of the account of the memory that clients hold.
//!
//! Small changes stay here: a worker reports in steps of [`TOLD_BYTES`], and reports clients that
//! hold much. A client is tracked only if it holds much at the end of a turn, so one that reads its
//! answers at once costs nothing. While the account is tight, "much" starts lower.

use std::sync::Arc;
use std::time::Instant;

use net::ConnId;

use crate::budget::{Budget, Client, LEAST_BYTES, SMALL_BYTES};

/// Bytes that one worker may leave unreported.
const TOLD_BYTES: usize = 256 * 1024;

/// A queue's part of the account.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// Bytes reported to the worker's part.
    pub(super) charged: usize,
    /// The budget tracks the client.
    is_known: bool,
    /// It is on the list of this turn.
    is_listed: bool,
}

/// One worker's part of the account.
#[derive(Debug)]
pub(super) struct Account {
    budget: Arc<Budget>,
    worker: usize,
    /// The budget was tight at the end of the last turn.
    is_tight: bool,
    /// Clients held much of the budget when this turn started.
    is_pressed: bool,
    /// The time of this turn.
    now: Instant,
    /// Bytes not yet reported to the budget.
    delta: isize,
    /// Queues that hold much, or did.
    listed: Vec<u32>,
    /// Connections that must be closed.
    pub(super) dropped: Vec<ConnId>,
}

impl Account {
    pub(super) fn new(budget: Arc<Budget>, worker: usize) -> Self {
        let (now, delta, is_tight, is_pressed) = (Instant::now(), 0, false, false);
        let (listed, dropped) = (Vec::new(), Vec::new());
        Self { budget, worker, is_tight, is_pressed, now, delta, listed, dropped }
    }

    /// Starts a turn.
    pub(super) fn turn(&mut self, now: Instant) {
        (self.now, self.is_pressed) = (now, self.budget.is_pressed());
    }

    /// Returns true if clients hold much, so that only replies known to be small may be requested.
    #[inline]
    pub(super) const fn is_pressed(&self) -> bool {
        self.is_pressed
    }

    /// Returns true if the budget is tight, so that unneeded memory must be freed.
    #[inline]
    pub(super) const fn is_tight(&self) -> bool {
        self.is_tight
    }

    /// Returns true if tightness has changed, so that each queue must be counted again.
    pub(super) fn is_changed(&mut self) -> bool {
        let is_tight = self.budget.is_tight();
        std::mem::replace(&mut self.is_tight, is_tight) != is_tight
    }

    const fn is_much(&self, held: usize) -> bool {
        held > if self.is_tight { LEAST_BYTES } else { SMALL_BYTES }
    }

    /// Records the current size of a queue.
    #[inline]
    pub(super) fn count(&mut self, number: u32, holding: &mut Holding, held: usize) {
        self.delta += held.cast_signed() - holding.charged.cast_signed();
        holding.charged = held;
        if (self.is_much(held) || holding.is_known) && !holding.is_listed {
            holding.is_listed = true;
            self.listed.push(number);
        }
    }

    /// Records that a queue's connection has gone.
    pub(super) fn closed(&mut self, number: u32, holding: &Holding) {
        self.delta -= holding.charged.cast_signed();
        if holding.is_known {
            self.budget.release(self.client(number));
        }
    }

    fn client(&self, queue: u32) -> Client {
        Client { worker: self.worker, queue }
    }

    /// Reports all bytes to the budget at the end of a turn. Returns false if there are few.
    pub(super) fn tell(&mut self) -> bool {
        if self.delta.unsigned_abs() < TOLD_BYTES && self.listed.is_empty() {
            return false;
        }
        self.budget.charge(std::mem::take(&mut self.delta));
        true
    }

    /// The next queue to report to the budget: see [`Self::name`].
    pub(super) fn next(&mut self) -> Option<u32> {
        self.listed.pop()
    }

    /// Reports to the budget a client that holds much, or no longer does.
    pub(super) fn name(&self, number: u32, holding: &mut Holding) {
        holding.is_listed = false;
        if self.is_much(holding.charged) {
            holding.is_known = true;
            self.budget.hold(self.client(number), holding.charged, self.now);
        } else if std::mem::take(&mut holding.is_known) {
            self.budget.release(self.client(number));
        }
    }

    /// Chooses clients to close if the budget is full. True if any worker has some.
    pub(super) fn relieve(&self) -> bool {
        self.budget.relieve(self.now)
    }

    /// The queues of this worker that must be closed.
    pub(super) fn chosen(&self) -> Vec<u32> {
        self.budget.chosen(self.worker)
    }
}
