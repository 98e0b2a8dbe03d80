//! Technical knockout (TKO), after mcrouter: the health of a server, shared by all workers.
//!
//! Several timeouts in a row, or one failed connection, knock a server out: its requests fail at
//! once. One worker then sends `version` from time to time, and the first reply ends the knockout.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::traffic::{Event, Traffic};

/// The state of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// Never answered, never failed.
    New,
    /// It answers.
    Up,
    /// Knocked out by timeouts.
    SoftTko,
    /// Knocked out by a failed connection.
    HardTko,
}

impl State {
    /// True if it is knocked out.
    #[must_use]
    pub const fn is_out(self) -> bool {
        matches!(self, Self::SoftTko | Self::HardTko)
    }
}

/// The health of a server, shared by all workers that use it. Everything here is Relaxed: a worker
/// that sees a change late sends a few more requests, or sends them slightly later.
#[derive(Debug, Default)]
pub struct Health {
    state: AtomicU8,
    /// Timeouts since the last answer.
    timeouts: AtomicU32,
    /// The worker that probes, plus one; 0: none.
    prober: AtomicU32,
    /// Knockouts so far.
    tko_count: AtomicU64,
    /// The reason of the last one.
    why: Mutex<String>,
    /// It has pending deletes, and must not receive gets until they are executed.
    is_dirty: AtomicBool,
}

impl Health {
    /// The server's state.
    #[must_use]
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Relaxed) {
            0 => State::New,
            1 => State::Up,
            2 => State::SoftTko,
            _ => State::HardTko,
        }
    }

    /// True if it must not receive requests.
    #[inline]
    #[must_use]
    pub fn is_tko(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= State::SoftTko as u8
    }

    /// True if it has values that are known to be old.
    #[inline]
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.is_dirty.load(Ordering::Relaxed)
    }

    /// Sets whether it has values that are known to be old.
    pub(crate) fn set_dirty(&self, is_dirty: bool) {
        self.is_dirty.store(is_dirty, Ordering::Relaxed);
    }

    /// The number of knockouts.
    #[must_use]
    pub fn tko_count(&self) -> u64 {
        self.tko_count.load(Ordering::Relaxed)
    }

    /// The reason of the last knockout; empty if there was none.
    #[must_use]
    pub fn why(&self) -> String {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records an answer.
    #[inline]
    pub fn answered(&self) {
        // Read first: the cache line stays shared among the workers while all is well.
        if self.state.load(Ordering::Relaxed) != State::Up as u8 {
            self.state.store(State::Up as u8, Ordering::Relaxed);
            self.prober.store(0, Ordering::Relaxed);
        }
        if self.timeouts.load(Ordering::Relaxed) != 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    /// Records `count` timeouts. `limit` consecutive ones knock the server out (0: never).
    pub fn timed_out(&self, count: u32, limit: u32) {
        let before = self.timeouts.fetch_add(count, Ordering::Relaxed);
        if limit > 0 && before.saturating_add(count) >= limit && !self.is_tko() {
            self.knock_out(State::SoftTko, format!("{limit} timeouts in a row"));
        }
    }

    /// Records that it could not be connected to, for this reason.
    pub fn unreachable(&self, why: &str) {
        if !self.is_tko() {
            self.knock_out(State::HardTko, why.to_owned());
        }
    }

    fn knock_out(&self, state: State, why: String) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
        self.state.store(state as u8, Ordering::Relaxed);
        self.tko_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes `worker` the prober, if there is none. Returns true if it is.
    pub fn take_probing(&self, worker: u32) -> bool {
        let mine = worker + 1;
        match self.prober.compare_exchange(0, mine, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(owner) => owner == mine,
        }
    }

    /// Ends the probing of `worker`, so that another may probe.
    pub fn leave_probing(&self, worker: u32) {
        let mine = worker + 1;
        // An error means that `worker` is not the prober.
        let _ = self.prober.compare_exchange(mine, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Sends requests to all servers of a pool while too many of them are knocked out (mcrouter's
/// `tko_tracker`): many slow replies are better than none, which would load the database.
#[derive(Debug)]
pub(crate) struct FailOpen {
    pool: Vec<Arc<Health>>,
    lower: usize,
    upper: usize,
    is_open: AtomicBool,
}

impl FailOpen {
    /// Opens when `upper` servers are knocked out, and closes when fewer than `lower` are.
    pub(crate) fn new(pool: Vec<Arc<Health>>, lower: u32, upper: u32) -> Self {
        let (lower, upper) = (lower as usize, upper as usize);
        Self { pool, lower, upper, is_open: AtomicBool::new(false) }
    }

    /// Returns true if it has these servers and thresholds.
    pub(crate) fn is_of(&self, pool: &[Arc<Health>], lower: u32, upper: u32) -> bool {
        (self.lower, self.upper) == (lower as usize, upper as usize)
            && self.pool.len() == pool.len()
            && self.pool.iter().zip(pool).all(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// Returns true if it is open. It is called only for requests to knocked-out servers, so
    /// rarely. Changes count in `traffic`.
    pub(crate) fn is_open(&self, traffic: &Traffic) -> bool {
        let out = self.pool.iter().filter(|health| health.is_tko()).count();
        let was_open = self.is_open.load(Ordering::Relaxed);
        let is_open = if was_open { out >= self.lower } else { out >= self.upper };
        if is_open != was_open && self.is_open.swap(is_open, Ordering::Relaxed) == was_open {
            traffic.event(if is_open { Event::FailOpenEntered } else { Event::FailOpenExited });
        }
        is_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_timeouts_knock_out_until_a_reply() {
        let health = Health::default();
        health.timed_out(2, 3);
        health.answered();
        health.timed_out(2, 3);
        assert!(!health.is_tko());
        health.timed_out(1, 3);
        assert_eq!((health.state(), health.tko_count()), (State::SoftTko, 1));
        health.unreachable("away");
        assert_eq!((health.state(), health.tko_count()), (State::SoftTko, 1));
        health.answered();
        assert_eq!(health.state(), State::Up);
        health.unreachable("away");
        assert_eq!((health.state(), health.tko_count()), (State::HardTko, 2));
    }

    #[test]
    fn only_one_worker_probes() {
        let health = Health::default();
        assert!(health.take_probing(1) && !health.take_probing(0) && health.take_probing(1));
        health.leave_probing(0);
        assert!(!health.take_probing(0));
        health.leave_probing(1);
        assert!(health.take_probing(0));
    }

    #[test]
    fn timeouts_without_a_limit_never_knock_out() {
        let health = Health::default();
        health.timed_out(1000, 0);
        assert!(!health.is_tko());
    }

    #[test]
    fn a_pool_fails_open_between_its_thresholds() {
        let pool: Vec<Arc<Health>> = (0..4).map(|_| Arc::default()).collect();
        let tracker = FailOpen::new(pool.clone(), 2, 3);
        let opens = |out: usize| {
            for (index, health) in pool.iter().enumerate() {
                if index < out { health.unreachable("away") } else { health.answered() }
            }
            tracker.is_open(&Traffic::default())
        };
        let seen: Vec<bool> = [0, 2, 3, 2, 1, 2, 4].map(opens).to_vec();
        assert_eq!(seen, [false, false, true, true, false, false, true]);
    }
}
