//! The requests of an open loop: when the next one is due, and the due but unsent ones by server.
//!
//! From its due time on, a request belongs to a server, by its key. If the server stalls, the
//! request waits for it, however many other servers have free connections (decision 153).

use std::collections::VecDeque;

use super::draw::Draw;
use super::spec::Arrival;
use super::wire::Op;

/// A request that should have been sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) at: u64,
    pub(super) op: Op,
    /// Its first key.
    pub(super) key: u64,
}

/// The requests that wait for a free connection to one server.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    pub(super) waiting: VecDeque<Due>,
    /// The server's connection that is tried first for the next request.
    pub(super) turn: usize,
    /// True if a request waited here at the start of the current turn of the loop.
    pub(super) was_waiting: bool,
}

/// The requests of one thread.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Nanoseconds between two requests, on average.
    mean: f64,
    arrival: Arrival,
    next: f64,
    left: u64,
    pub(super) backlogs: Vec<Backlog>,
    waiting: usize,
}

/// Maximum number of one thread's requests that wait for a free connection; beyond it, the loop
/// gives up.
const BACKLOG_MAX: usize = 2_000_000;

impl Schedule {
    /// A schedule of `rate` requests per second to this number of servers. The first one is due
    /// after the share `turn` of the mean interval; after `limit` requests, no more are due.
    pub(super) fn new(rate: f64, arrival: Arrival, turn: f64, limit: u64, servers: usize) -> Self {
        let mean = 1e9 / rate;
        Self {
            mean,
            arrival,
            next: mean * turn,
            left: limit,
            backlogs: vec![Backlog::default(); servers],
            waiting: 0,
        }
    }

    /// Moves requests due before `clock` into the backlogs.
    pub(super) fn fall_due(&mut self, clock: u64, draw: &mut Draw) {
        for backlog in &mut self.backlogs {
            backlog.was_waiting = !backlog.waiting.is_empty();
        }
        while self.next_at() < clock && self.left > 0 && !self.is_too_much() {
            let op = draw.op();
            let key = draw.key(op);
            let due = Due { at: self.next_at(), op, key };
            self.backlogs[draw.target(key)].waiting.push_back(due);
            self.waiting += 1;
            self.left -= 1;
            self.next += draw.pause(self.mean, self.arrival);
        }
    }

    /// The time at which the next request is due.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
    pub(super) fn next_at(&self) -> u64 {
        self.next as u64
    }

    /// True if no more requests become due.
    pub(super) fn is_at_end(&self) -> bool {
        self.left == 0
    }

    /// True if no request waits for a connection.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// True if more requests wait than the limit.
    pub(super) fn is_too_much(&self) -> bool {
        self.waiting > BACKLOG_MAX
    }

    /// Takes the next waiting request for `server`.
    pub(super) fn take(&mut self, server: usize) -> Option<Due> {
        let due = self.backlogs[server].waiting.pop_front()?;
        self.waiting -= 1;
        Some(due)
    }

    /// Takes every waiting request.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Due> {
        self.waiting = 0;
        self.backlogs.iter_mut().flat_map(|backlog| backlog.waiting.drain(..))
    }
}
