//! Judges whether caches agreed with their database: one checker over a recorded history.
//!
//! A history has writes with the versions that they committed, and reads of caches with the
//! returned versions. Versions of a key increase with its writes, so it is known which of two is
//! newer.
//!
//! ```text
//!     write  v1 |--called------committed|          read |--called--returned| v1
//!                                     the next version's commit ----> how long v1 is stale
//! ```
//!
//! * A read may return a version only if its write was called before the read returned and was not
//!   undone.
//! * A version is stale from the acknowledgement of a newer one's commit. For every read, the
//!   checker records for how long the version was stale.
//! * From a given time on (everything delivered), no read may return a stale version.
//!
//! [`Checker`] takes a history incrementally, and judges each read by the writes recorded so far;
//! [`judge`] takes all of it at once.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The database acknowledged the commit at this time.
    Committed(u64),
    /// The database rolled it back.
    Undone,
    /// The connection was lost before an answer, or there is no answer yet.
    Unknown,
}

/// One write of a key. Times are nanoseconds since a common start.
#[derive(Debug, Clone, Copy)]
pub struct Write {
    /// The number of the key.
    pub key: u64,
    /// Its version, greater than those of all earlier writes of the key.
    pub version: u64,
    /// The time before it was sent, in nanoseconds.
    pub called: u64,
    /// Its outcome.
    pub outcome: WriteOutcome,
}

/// One read of a cache.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// The number of the cluster whose cache was read.
    pub cluster: u16,
    /// The number of the key.
    pub key: u64,
    /// The time before it was sent, in nanoseconds.
    pub called: u64,
    /// The time after its answer, in nanoseconds.
    pub returned: u64,
    /// The version that it returned; none for a miss.
    pub version: Option<u64>,
}

/// The judgement of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// A miss.
    Miss,
    /// A version that had been stale for this many nanoseconds when the read was called; 0 for a
    /// fresh one.
    Stale(u64),
    /// A version that cannot have existed.
    Impossible,
}

/// Judges a history during the run.
#[derive(Debug, Clone, Default)]
pub struct Checker {
    by_key: HashMap<u64, BTreeMap<u64, Write>>,
    /// Versions stored per key; 0: all.
    versions_max: usize,
}

impl Checker {
    /// A checker that drops all but the newest versions of each key, at least one, so that it can
    /// run indefinitely: a version older than all of them counts as stale since the commit of the
    /// oldest stored one.
    #[must_use]
    pub fn with_limit(versions_max: usize) -> Self {
        Self { by_key: HashMap::new(), versions_max: versions_max.max(1) }
    }

    /// Records a write, or the outcome of a known one; returns the earlier record.
    pub fn write(&mut self, write: Write) -> Option<Write> {
        let versions = self.by_key.entry(write.key).or_default();
        let before = versions.insert(write.version, write);
        if self.versions_max > 0 && versions.len() > self.versions_max {
            versions.pop_first();
        }
        before
    }

    /// Judges a read. First record the writes acknowledged before its call.
    #[must_use]
    pub fn read(&self, read: &Read) -> Shown {
        let Some(version) = read.version else { return Shown::Miss };
        let Some(versions) = self.by_key.get(&read.key) else { return Shown::Impossible };
        let is_forgotten = self.versions_max > 0
            && versions.len() >= self.versions_max
            && versions.first_key_value().is_some_and(|(oldest, _)| version < *oldest);
        if !is_forgotten {
            let write = versions.get(&version);
            if write.is_none_or(|write| {
                write.outcome == WriteOutcome::Undone || write.called > read.returned
            }) {
                return Shown::Impossible;
            }
        }
        let newer = versions.range(version + 1..).filter_map(|(_, write)| match write.outcome {
            WriteOutcome::Committed(at) => Some(at),
            WriteOutcome::Undone | WriteOutcome::Unknown => None,
        });
        Shown::Stale(newer.min().map_or(0, |stale_from| read.called.saturating_sub(stale_from)))
    }
}

/// The judgement of a history.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// Reads that returned a version that cannot have existed.
    pub impossible: Vec<String>,
    /// Reads of stale versions after everything should have been delivered.
    pub stale_at_the_end: Vec<String>,
    /// For each hit, how long the version had been stale, in nanoseconds; 0 for a fresh one.
    pub stale_ns: Vec<u64>,
    /// Reads that missed.
    pub misses: usize,
}

/// Judges a history. `delivered` is the time from which no stale version may be read.
///
/// # Panics
///
/// When two writes of a key have the same version, because their order is then unknown.
#[must_use]
pub fn judge(writes: &[Write], reads: &[Read], delivered: u64) -> Verdict {
    let mut checker = Checker::default();
    for write in writes {
        let before = checker.write(*write);
        assert!(before.is_none(), "two writes of key {} made version {}", write.key, write.version);
    }
    let mut verdict = Verdict::default();
    for read in reads {
        match checker.read(read) {
            Shown::Miss => verdict.misses += 1,
            Shown::Impossible => verdict.impossible.push(format!("{read:?}")),
            Shown::Stale(ns) => {
                verdict.stale_ns.push(ns);
                if read.called >= delivered && ns > 0 {
                    verdict.stale_at_the_end.push(format!("{read:?}, stale for {ns} ns"));
                }
            }
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(version: u64, called: u64, outcome: WriteOutcome) -> Write {
        Write { key: 1, version, called, outcome }
    }

    fn read(called: u64, returned: u64, version: u64) -> Read {
        Read { cluster: 0, key: 1, called, returned, version: Some(version) }
    }

    fn two_writes() -> [Write; 2] {
        [write(1, 0, WriteOutcome::Committed(10)), write(2, 20, WriteOutcome::Committed(30))]
    }

    #[test]
    fn a_version_is_stale_from_the_next_commit() {
        let verdict = judge(
            &two_writes(),
            &[read(25, 26, 1), read(30, 31, 1), read(45, 46, 1), read(45, 46, 2)],
            100,
        );
        assert_eq!(verdict.stale_ns, [0, 0, 15, 0]);
        assert_eq!((verdict.impossible.len(), verdict.stale_at_the_end.len()), (0, 0));
    }

    #[test]
    fn stale_at_the_end_is_reported() {
        let verdict = judge(&two_writes(), &[read(101, 102, 1)], 100);
        assert_eq!(verdict.stale_at_the_end.len(), 1);
    }

    #[test]
    fn unwritten_undone_and_unknown_versions_are_impossible() {
        let writes =
            [write(1, 50, WriteOutcome::Committed(60)), write(2, 70, WriteOutcome::Undone)];
        let reads = [read(10, 20, 1), read(80, 90, 2), read(80, 90, 3)];
        assert_eq!(judge(&writes, &reads, 100).impossible.len(), 3);
        assert_eq!(
            judge(&writes, &[read(40, 55, 1)], 100).impossible.len(),
            0,
            "seen before it was acknowledged"
        );
    }

    #[test]
    fn a_write_of_unknown_outcome_may_be_read_and_makes_none_stale() {
        let writes =
            [write(1, 0, WriteOutcome::Committed(10)), write(2, 20, WriteOutcome::Unknown)];
        let verdict = judge(&writes, &[read(200, 201, 1), read(200, 201, 2)], 100);
        assert_eq!((verdict.impossible.len(), verdict.stale_at_the_end.len()), (0, 0));
    }

    #[test]
    fn forgotten_versions_are_stale_since_the_oldest_known_one() {
        let mut checker = Checker::with_limit(2);
        for version in 1..=4 {
            checker.write(write(version, version * 10, WriteOutcome::Committed(version * 10 + 5)));
        }
        assert_eq!(checker.read(&read(50, 51, 4)), Shown::Stale(0));
        assert_eq!(checker.read(&read(50, 51, 3)), Shown::Stale(5));
        assert_eq!(checker.read(&read(50, 51, 1)), Shown::Stale(15));
        assert_eq!(checker.read(&read(50, 51, 5)), Shown::Impossible);
    }

    #[test]
    fn an_outcome_can_be_recorded_later() {
        let mut checker = Checker::default();
        checker.write(write(1, 0, WriteOutcome::Committed(5)));
        checker.write(write(2, 10, WriteOutcome::Unknown));
        assert_eq!(checker.read(&read(30, 31, 1)), Shown::Stale(0));
        assert_eq!(checker.read(&read(30, 31, 2)), Shown::Stale(0));
        assert!(checker.write(write(2, 10, WriteOutcome::Committed(20))).is_some());
        assert_eq!(checker.read(&read(30, 31, 1)), Shown::Stale(10));
    }
}
