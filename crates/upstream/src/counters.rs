//! Counters of servers. One worker writes each of them; any thread may read them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::latencies::Latencies;

/// One worker's counters of one server. Relaxed: a reader may see slightly old numbers.
#[derive(Debug, Default)]
pub struct Counters {
    /// The worker serves no client: see [`crate::Upstream::in_background`].
    pub(crate) is_background: bool,
    /// Connections made.
    pub connects: AtomicU64,
    /// Connections that were not made in time and were retried.
    pub connect_retries: AtomicU64,
    /// Connections that a retry made.
    pub connects_retried: AtomicU64,
    /// 1 while there is a connection.
    pub connected: AtomicU64,
    /// Requests sent.
    pub asked: AtomicU64,
    /// Requests without an answer.
    pub pending: AtomicU64,
    /// Answers, except failures.
    pub answered: AtomicU64,
    /// Answers that found an item.
    pub found: AtomicU64,
    /// Answers that found none.
    pub not_found: AtomicU64,
    /// Requests that timed out.
    pub timeouts: AtomicU64,
    /// Requests that failed otherwise.
    pub failed: AtomicU64,
    /// Requests refused because the server was knocked out.
    pub tko: AtomicU64,
    /// Connections closed because of an invalid reply.
    pub broken: AtomicU64,
    /// Writes, so that `asked / writes` is the size of a batch.
    pub writes: AtomicU64,
    /// Gets by UDP.
    pub udp_asked: AtomicU64,
    /// Gets by UDP without an answer in time.
    pub udp_lost: AtomicU64,
    /// Gets by UDP whose answer came out of order.
    pub udp_reordered: AtomicU64,
    /// Datagrams that no request waited for: late, duplicate, or foreign.
    pub udp_late: AtomicU64,
    /// Connections that ended.
    pub closes: AtomicU64,
    /// Requests that have not left completely.
    pub unsent: AtomicU64,
    /// Writes of which the socket accepted only a part.
    pub partial_writes: AtomicU64,
    /// The sum of the times of answers to gets, in microseconds.
    pub get_us: AtomicU64,
    /// Answers to gets.
    pub got: AtomicU64,
    /// The sum of the times of the other answers, in microseconds.
    pub update_us: AtomicU64,
    /// Other answers.
    pub updated: AtomicU64,
    /// Mean time of an answer in nanoseconds, weighted towards recent ones.
    pub latency_ns: AtomicU64,
    /// The times of answers, and of requests that timed out. The lock is taken once for all replies
    /// of a read.
    latencies: Mutex<Latencies>,
}

impl Counters {
    /// Counters of a worker that serves clients, or of one in the background.
    pub(crate) fn new(is_background: bool) -> Self {
        Self { is_background, ..Self::default() }
    }

    /// See [`Latencies`].
    pub(crate) fn latencies(&self) -> MutexGuard<'_, Latencies> {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds to a counter that only the calling thread writes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// Sets a level that only the calling thread writes.
#[inline]
pub(crate) fn set(level: &AtomicU64, value: u64) {
    level.store(value, Ordering::Relaxed);
}

/// Reads a counter or a level.
#[inline]
pub(crate) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The sum of several workers' counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "those of `Counters`")]
pub struct Totals {
    pub connects: u64,
    pub connect_retries: u64,
    pub connects_retried: u64,
    /// Workers that have a connection.
    pub connected: u64,
    pub asked: u64,
    pub pending: u64,
    pub answered: u64,
    pub found: u64,
    pub not_found: u64,
    pub timeouts: u64,
    pub failed: u64,
    pub tko: u64,
    pub broken: u64,
    pub writes: u64,
    pub udp_asked: u64,
    pub udp_lost: u64,
    pub udp_reordered: u64,
    pub udp_late: u64,
    pub closes: u64,
    pub unsent: u64,
    pub partial_writes: u64,
    pub get_us: u64,
    pub got: u64,
    pub update_us: u64,
    pub updated: u64,
    /// Mean of the workers that have sent requests, in microseconds.
    pub latency_us: f64,
}

impl Totals {
    /// One worker's counters; those of one in the background are only of its connections.
    fn of(counters: &Counters) -> Self {
        let all = Self {
            connects: get(&counters.connects),
            connect_retries: get(&counters.connect_retries),
            connects_retried: get(&counters.connects_retried),
            connected: get(&counters.connected),
            asked: get(&counters.asked),
            pending: get(&counters.pending),
            answered: get(&counters.answered),
            found: get(&counters.found),
            not_found: get(&counters.not_found),
            timeouts: get(&counters.timeouts),
            failed: get(&counters.failed),
            tko: get(&counters.tko),
            broken: get(&counters.broken),
            writes: get(&counters.writes),
            udp_asked: get(&counters.udp_asked),
            udp_lost: get(&counters.udp_lost),
            udp_reordered: get(&counters.udp_reordered),
            udp_late: get(&counters.udp_late),
            closes: get(&counters.closes),
            unsent: get(&counters.unsent),
            partial_writes: get(&counters.partial_writes),
            get_us: get(&counters.get_us),
            got: get(&counters.got),
            update_us: get(&counters.update_us),
            updated: get(&counters.updated),
            latency_us: get(&counters.latency_ns) as f64 / 1000.0,
        };
        if !counters.is_background {
            return all;
        }
        let Self { connects, connect_retries, connects_retried, connected, broken, closes, .. } =
            all;
        let none = Self::default();
        Self { connects, connect_retries, connects_retried, connected, broken, closes, ..none }
    }

    /// Adds one worker's counters.
    pub(crate) fn add(&mut self, counters: &Counters) {
        self.add_totals(&Self::of(counters));
    }

    /// Adds the counts of a worker that no longer uses the server. Levels and the mean are of the
    /// present, so they are 0.
    pub(crate) fn add_gone(&mut self, counters: &Counters) {
        self.add(counters);
        let levels = Self { connected: 0, pending: 0, unsent: 0, latency_us: 0.0, ..*self };
        *self = levels;
    }

    /// Adds another sum.
    pub fn add_totals(&mut self, other: &Self) {
        self.connects += other.connects;
        self.connect_retries += other.connect_retries;
        self.connects_retried += other.connects_retried;
        self.connected += other.connected;
        self.asked += other.asked;
        self.pending += other.pending;
        self.found += other.found;
        self.not_found += other.not_found;
        self.timeouts += other.timeouts;
        self.failed += other.failed;
        self.tko += other.tko;
        self.broken += other.broken;
        self.writes += other.writes;
        self.udp_asked += other.udp_asked;
        self.udp_lost += other.udp_lost;
        self.udp_reordered += other.udp_reordered;
        self.udp_late += other.udp_late;
        self.closes += other.closes;
        self.unsent += other.unsent;
        self.partial_writes += other.partial_writes;
        self.get_us += other.get_us;
        self.got += other.got;
        self.update_us += other.update_us;
        self.updated += other.updated;
        self.answered += other.answered;
        if other.answered > 0 {
            let share = other.answered as f64 / self.answered as f64;
            self.latency_us += (other.latency_us - self.latency_us) * share;
        }
    }
}
