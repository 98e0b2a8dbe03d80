//! Records the writes and reads of users, and judges them during the run ([`staleness`]).
//!
//! A read is judged shortly after its end, so that every earlier commit has been recorded.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::{Mutex, MutexGuard};
use staleness::{Checker, Read, Shown, Write, WriteOutcome};

/// The delay before a read is judged.
const JUDGED_AFTER: Duration = Duration::from_millis(500);

/// Versions of a key that the checker keeps.
const VERSIONS_MAX: usize = 1000;

/// Reads that make a window of [`ClusterCounts::windows`].
pub(crate) const WINDOW_READS: u64 = 100;

/// Maximum number of windows stored per cluster: a million reads.
const WINDOWS_MAX: usize = 10_000;

/// An hour, the maximum recorded staleness.
const STALE_US_MAX: u64 = 3_600_000_000;

/// The source of the answer to a user's read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum From {
    /// The cache.
    Cache,
    /// The region's own database.
    Local,
    /// The master's database, because of a remote marker.
    Master,
}

/// A time in nanoseconds; the maximum stands for 584 years and more.
fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(time.subsec_nanos()))
}

/// A read from a user's view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) read: Read,
    pub(crate) from: From,
    /// The version that this user has written before.
    pub(crate) own: Option<u64>,
}

/// Counts of one cluster's users, since the start.
#[derive(Clone, Debug)]
pub(crate) struct ClusterCounts {
    pub(crate) reads: u64,
    pub(crate) hits: u64,
    /// Misses that the region's own database answered.
    pub(crate) local: u64,
    /// Misses that the master's database answered because of a remote marker.
    pub(crate) master: u64,
    pub(crate) failed_reads: u64,
    pub(crate) writes: u64,
    pub(crate) failed_writes: u64,
    /// Reads after the user's own write, and the number of them that returned an older version.
    pub(crate) own_reads: u64,
    pub(crate) own_stale: u64,
    pub(crate) impossible: u64,
    /// The staleness of each judged read, in microseconds.
    pub(crate) stale_us: Histogram<u64>,
    /// Those since the last [`Recorder::second`].
    pub(crate) second_us: Histogram<u64>,
    /// Hits of each [`WINDOW_READS`] reads, and when the last of them was, in nanoseconds.
    pub(crate) windows: Vec<(u64, u64)>,
    window_hits: u64,
    /// When the first read was called, in nanoseconds.
    pub(crate) first_read: u64,
}

impl ClusterCounts {
    fn new() -> Self {
        let stale_us = Histogram::new_with_bounds(1, STALE_US_MAX, 3)
            .unwrap_or_else(|_| unreachable!("the bounds are constants, and good"));
        let second_us = stale_us.clone();
        Self {
            reads: 0,
            hits: 0,
            local: 0,
            master: 0,
            failed_reads: 0,
            writes: 0,
            failed_writes: 0,
            own_reads: 0,
            own_stale: 0,
            impossible: 0,
            stale_us,
            second_us,
            windows: Vec::new(),
            window_hits: 0,
            first_read: 0,
        }
    }

    fn count(&mut self, seen: &Seen) {
        if self.reads == 0 {
            self.first_read = seen.read.called;
        }
        self.reads += 1;
        match seen.from {
            From::Cache => {
                self.hits += 1;
                self.window_hits += 1;
            }
            From::Local => self.local += 1,
            From::Master => self.master += 1,
        }
        if self.reads.is_multiple_of(WINDOW_READS) {
            if self.windows.len() < WINDOWS_MAX {
                self.windows.push((seen.read.returned, self.window_hits));
            }
            self.window_hits = 0;
        }
        if let Some(own) = seen.own {
            self.own_reads += 1;
            self.own_stale += u64::from(seen.read.version.is_none_or(|version| version < own));
        }
    }

    fn judged(&mut self, shown: Shown) {
        match shown {
            Shown::Miss => {}
            Shown::Impossible => self.impossible += 1,
            Shown::Stale(ns) => {
                for histogram in [&mut self.stale_us, &mut self.second_us] {
                    histogram.saturating_record(ns / 1000);
                }
            }
        }
    }
}

#[derive(Debug)]
struct State {
    checker: Checker,
    waiting: VecDeque<Seen>,
    tallies: Vec<ClusterCounts>,
}

/// The record of one run.
#[derive(Debug)]
pub(crate) struct Recorder {
    begin: Instant,
    state: Mutex<State>,
}

impl Recorder {
    /// A recorder for keys `0..keys`, each with version 1.
    pub(crate) fn new(keys: u64) -> Self {
        let mut checker = Checker::with_limit(VERSIONS_MAX);
        for key in 0..keys {
            checker.write(Write {
                key,
                version: 1,
                called: 0,
                outcome: WriteOutcome::Committed(0),
            });
        }
        let state = State { checker, waiting: VecDeque::new(), tallies: Vec::new() };
        Self { begin: Instant::now(), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Nanoseconds since the start.
    pub(crate) fn now(&self) -> u64 {
        nanos(self.begin.elapsed())
    }

    /// Adds room for one more cluster; returns its number.
    pub(crate) fn add_cluster(&self) -> u16 {
        let mut state = self.lock();
        let Ok(number) = u16::try_from(state.tallies.len()) else {
            panic!("a demo has fewer than 65,536 clusters")
        };
        state.tallies.push(ClusterCounts::new());
        number
    }

    /// Records that a write is about to be sent.
    pub(crate) fn write_begins(&self, key: u64, version: u64) -> u64 {
        let called = self.now();
        self.lock().checker.write(Write { key, version, called, outcome: WriteOutcome::Unknown });
        called
    }

    /// Records that a write was answered, or failed.
    pub(crate) fn write_ends(&self, cluster: u16, write: Write) {
        let mut state = self.lock();
        state.checker.write(write);
        if let Some(tally) = state.tallies.get_mut(usize::from(cluster)) {
            tally.writes += 1;
            tally.failed_writes += u64::from(write.outcome == WriteOutcome::Unknown);
        }
    }

    /// Records a user's read.
    pub(crate) fn read(&self, seen: Seen) {
        let mut state = self.lock();
        if let Some(tally) = state.tallies.get_mut(usize::from(seen.read.cluster)) {
            tally.count(&seen);
        }
        state.waiting.push_back(seen);
    }

    /// Records that a user got neither value nor miss.
    pub(crate) fn read_failed(&self, cluster: u16) {
        if let Some(tally) = self.lock().tallies.get_mut(usize::from(cluster)) {
            tally.failed_reads += 1;
        }
    }

    /// Judges reads that are old enough; `all` judges everything.
    pub(crate) fn judge(&self, all: bool) {
        let until = if all { u64::MAX } else { self.now().saturating_sub(nanos(JUDGED_AFTER)) };
        let mut state = self.lock();
        let State { checker, waiting, tallies } = &mut *state;
        while let Some(seen) = waiting.pop_front_if(|seen| seen.read.returned <= until) {
            let shown = checker.read(&seen.read);
            if let Some(tally) = tallies.get_mut(usize::from(seen.read.cluster)) {
                tally.judged(shown);
            }
        }
    }

    /// Judges one read without counting it.
    pub(crate) fn look(&self, read: &Read) -> Shown {
        self.lock().checker.read(read)
    }

    /// All counts; those of the last second are reset.
    pub(crate) fn second(&self) -> Vec<ClusterCounts> {
        let mut state = self.lock();
        let copies = state.tallies.clone();
        state.tallies.iter_mut().for_each(|tally| tally.second_us.reset());
        copies
    }
}
