//! One worker's part of the account of what clients hold.
//!
//! Small changes stay here: a worker tells the process's account of [`TOLD_BYTES`], or of a client
//! that holds much. A client is known there by name only if it holds much at the end of a turn, so
//! who takes its answers at once costs nothing. While the account is tight, little is much.

use std::sync::Arc;
use std::time::Instant;

use net::ConnId;

use crate::budget::{Budget, Client, LEAST_BYTES, SMALL_BYTES};

/// Bytes that one worker may leave untold.
const TOLD_BYTES: usize = 256 * 1024;

/// A queue's part of the account.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// Bytes that the worker's part has been told of.
    pub(super) charged: usize,
    /// The budget knows the client by name.
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
    /// Clients held much of the budget when this turn began.
    is_pressed: bool,
    /// As of this turn.
    now: Instant,
    /// Bytes that the budget has not been told of.
    delta: isize,
    /// Queues that hold much, or did.
    listed: Vec<u32>,
    /// Connections that must go.
    pub(super) dropped: Vec<ConnId>,
}

impl Account {
    pub(super) fn new(budget: Arc<Budget>, worker: usize) -> Self {
        let (now, delta, is_tight, is_pressed) = (Instant::now(), 0, false, false);
        let (listed, dropped) = (Vec::new(), Vec::new());
        Self { budget, worker, is_tight, is_pressed, now, delta, listed, dropped }
    }

    /// A turn begins.
    pub(super) fn turn(&mut self, now: Instant) {
        (self.now, self.is_pressed) = (now, self.budget.is_pressed());
    }

    /// Clients hold much: nobody is to ask for more than is known to be small.
    #[inline]
    pub(super) const fn is_pressed(&self) -> bool {
        self.is_pressed
    }

    /// Little is much: what is not needed is to be given back.
    #[inline]
    pub(super) const fn is_tight(&self) -> bool {
        self.is_tight
    }

    /// True if it has changed what is much: then each queue is to be counted again.
    pub(super) fn is_changed(&mut self) -> bool {
        let is_tight = self.budget.is_tight();
        std::mem::replace(&mut self.is_tight, is_tight) != is_tight
    }

    const fn is_much(&self, held: usize) -> bool {
        held > if self.is_tight { LEAST_BYTES } else { SMALL_BYTES }
    }

    /// A queue holds this much now.
    #[inline]
    pub(super) fn count(&mut self, number: u32, holding: &mut Holding, held: usize) {
        self.delta += held.cast_signed() - holding.charged.cast_signed();
        holding.charged = held;
        if (self.is_much(held) || holding.is_known) && !holding.is_listed {
            holding.is_listed = true;
            self.listed.push(number);
        }
    }

    /// A queue's connection has gone.
    pub(super) fn closed(&mut self, number: u32, holding: &Holding) {
        self.delta -= holding.charged.cast_signed();
        if holding.is_known {
            self.budget.release(self.client(number));
        }
    }

    fn client(&self, queue: u32) -> Client {
        Client { worker: self.worker, queue }
    }

    /// Tells the budget of all bytes, at the end of a turn. False when there is little to tell.
    pub(super) fn tell(&mut self) -> bool {
        if self.delta.unsigned_abs() < TOLD_BYTES && self.listed.is_empty() {
            return false;
        }
        self.budget.charge(std::mem::take(&mut self.delta));
        true
    }

    /// The next queue that the budget is to be told of by name: see [`Self::name`].
    pub(super) fn next(&mut self) -> Option<u32> {
        self.listed.pop()
    }

    /// Tells the budget of a client that holds much, or does not any more.
    pub(super) fn name(&self, number: u32, holding: &mut Holding) {
        holding.is_listed = false;
        if self.is_much(holding.charged) {
            holding.is_known = true;
            self.budget.hold(self.client(number), holding.charged, self.now);
        } else if std::mem::take(&mut holding.is_known) {
            self.budget.release(self.client(number));
        }
    }

    /// Chooses who must go if the budget is full. True if anybody must, of any worker's clients.
    pub(super) fn relieve(&self) -> bool {
        self.budget.relieve(self.now)
    }

    /// The queues of this worker that must go.
    pub(super) fn chosen(&self) -> Vec<u32> {
        self.budget.chosen(self.worker)
    }
}
