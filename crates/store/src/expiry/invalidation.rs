//! Invalidations: of everything (`flush_all`), or of every key under a prefix.
//!
//! Invalidations are counted, and an item keeps the low three bits of the count at its birth. So
//! one comparison tells a reader that an item is younger than all invalidations, which is nearly
//! always true. Only for an older item does it read the records of those since the birth, at most
//! seven:
//!
//! ```text
//!     count 12, records 5:"user:" 6:all 7:"a" 8:"user:9:" 9:all 10:"b" 11:"user:" 12:"cart:"
//!     an item born at 10: its readers look at 11 and 12
//! ```
//!
//! A purge walks over all items, frees the dead, and gives the survivors of lower birth the present
//! one. After it no item is older than the count at which it began. The cleaner does it, or the
//! thread that finds the records full.
//!
//! # Laws
//!
//! 1. `count - purged < 8`, so three bits give the age of a linked item. A thread that would break
//!    this purges first.
//! 2. A record is written before the count that names it is stored with Release. It is overwritten
//!    only for the count eight later. A reader of records loads the count before and after: if the
//!    count has not changed, the records it read were whole.
//! 3. A birth never exceeds the count that a later load gives: it was loaded from there before it
//!    was published.
//! 4. A purge begins after a grace period, in which every thread that read a lower count has linked
//!    its item. It ends after another, in which every thread that found a removed item has judged
//!    it.
//!
//! Relaxed is enough for `purged` and `prefixes`, which are written under the lock and otherwise
//! read as numbers, and for loads of records between the two loads of the count.
//!
//! # Price
//!
//! The time of an invalidation does not grow with the number of items, except for the eighth within
//! one purge, which purges itself. A prefix is kept as its length and hash: two prefixes of one
//! hash (one chance in 2^64) would be taken for each other, and the items of both would die.

use crate::memory::control::INVALIDATION_WORDS as WORDS;
use crate::narrow::to_usize;
use crate::sync::{AtomicU64, Mutex, Ordering, fence};

/// Births that an item's shape can tell apart.
const GENERATIONS: u64 = 8;

/// The count of invalidations, and the last eight.
#[derive(Debug)]
pub(crate) struct Invalidations {
    count: AtomicU64,
    /// Every linked item was born at this count or later.
    purged: AtomicU64,
    /// Held by a thread that adds an invalidation or raises `purged`.
    pub(crate) lock: Mutex<()>,
    records: [Record; 8],
    prefixes: AtomicU64,
}

/// One invalidation: the length and hash of its prefix.
#[derive(Debug)]
struct Record {
    /// In bytes; 0 is every key.
    len: AtomicU64,
    hash: AtomicU64,
}

impl Invalidations {
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::of([0; WORDS])
    }

    /// The invalidations as words, the count last. The caller holds the lock.
    pub(crate) fn words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        for (pair, record) in words.chunks_exact_mut(2).zip(&self.records) {
            pair[0] = record.len.load(Ordering::Relaxed);
            pair[1] = record.hash.load(Ordering::Relaxed);
        }
        words[WORDS - 3] = self.prefixes();
        words[WORDS - 2] = self.purged.load(Ordering::Relaxed);
        words[WORDS - 1] = self.count();
        words
    }

    /// The invalidations of which these words were made.
    pub(crate) fn of(words: [u64; WORDS]) -> Self {
        let [.., prefixes, purged, count] = words;
        let record = |at: usize| Record {
            len: AtomicU64::new(words[2 * at]),
            hash: AtomicU64::new(words[2 * at + 1]),
        };
        Self {
            count: AtomicU64::new(count),
            purged: AtomicU64::new(purged.min(count)),
            lock: Mutex::new(()),
            records: std::array::from_fn(record),
            prefixes: AtomicU64::new(prefixes),
        }
    }

    /// Number of invalidations so far.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        // Acquire: partner of the Release in `add`; the records of this count are visible.
        self.count.load(Ordering::Acquire)
    }

    /// The part of the count that an item born now keeps.
    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        low(self.count())
    }

    /// Number of invalidations of a prefix so far.
    pub(crate) fn prefixes(&self) -> u64 {
        self.prefixes.load(Ordering::Relaxed)
    }

    /// Invalidations that the next purge will be done with.
    pub(crate) fn outstanding(&self) -> u64 {
        self.count() - self.purged.load(Ordering::Relaxed)
    }

    /// `true` if one more needs a purge first. The caller holds the lock.
    pub(crate) fn is_full(&self) -> bool {
        self.outstanding() + 1 >= GENERATIONS
    }

    /// Adds an invalidation of every key, or of the keys under the prefix of this length and hash.
    /// The caller holds the lock and has seen that there is room.
    pub(crate) fn add(&self, prefix: Option<(usize, u64)>) {
        let next = self.count.load(Ordering::Relaxed) + 1;
        let record = self.record(next);
        let (len, hash) = prefix.unwrap_or((0, 0));
        // Release: partner of the fence in `hits`; a reader of these words sees that the count has
        // moved past the record's old one.
        record.len.store(len as u64, Ordering::Release);
        record.hash.store(hash, Ordering::Release);
        self.prefixes.fetch_add(u64::from(prefix.is_some()), Ordering::Relaxed);
        // Release: partner of the Acquire in `count`.
        self.count.store(next, Ordering::Release);
    }

    /// Notes that a purge that began at `count` is done. `false`, and nothing is noted, while
    /// another thread holds the lock: that thread may be waiting for the caller's section to end,
    /// so the caller must not wait for it.
    pub(crate) fn try_purged(&self, count: u64) -> bool {
        let lock = self.lock.try_lock();
        if lock.is_some() {
            self.raise_purged(count);
        }
        lock.is_some()
    }

    /// Notes that a purge that began at `count` is done. The caller holds the lock.
    pub(crate) fn raise_purged(&self, count: u64) {
        self.purged.store(count.max(self.purged.load(Ordering::Relaxed)), Ordering::Relaxed);
    }

    /// Judges the item of `key` that was born in this generation, which the caller has read before.
    pub(crate) fn judge(&self, key: &[u8], born: u32, hash: impl Fn(&[u8]) -> u64) -> Judged {
        let now = self.count();
        let age = u64::from(low(now).wrapping_sub(born) & 7);
        match self.hits(key, now - age.min(now), now, hash) {
            None => Judged::Unsure,
            Some(true) => Judged::Invalid,
            Some(false) => Judged::Survives(low(now)),
        }
    }

    /// `true` if an invalidation since the count `since` was of `key`, and where that is too long
    /// ago to tell.
    pub(crate) fn since(&self, key: &[u8], since: u64, hash: impl Fn(&[u8]) -> u64) -> bool {
        loop {
            let now = self.count();
            if now == since {
                return false;
            }
            if now - since >= GENERATIONS {
                return true;
            }
            if let Some(hit) = self.hits(key, since, now, &hash) {
                return hit;
            }
        }
    }

    /// `true` if one of the invalidations after `since`, up to `now`, is of `key`. `None`: another
    /// came during the search.
    fn hits(&self, key: &[u8], since: u64, now: u64, hash: impl Fn(&[u8]) -> u64) -> Option<bool> {
        let hit = (since + 1..=now).any(|count| {
            let record = self.record(count);
            let len = to_usize(record.len.load(Ordering::Relaxed));
            len == 0
                || key
                    .get(..len)
                    .is_some_and(|prefix| hash(prefix) == record.hash.load(Ordering::Relaxed))
        });
        // Acquire: partner of the Release of a record in `add`. If one of these records had been
        // overwritten, the count would be seen to have moved on.
        fence(Ordering::Acquire);
        (self.count.load(Ordering::Relaxed) == now).then_some(hit)
    }

    fn record(&self, count: u64) -> &Record {
        &self.records[low(count) as usize]
    }
}

/// Judgement of an item that is older than the last invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// It is dead.
    Invalid,
    /// No invalidation up to this generation was of its key.
    Survives(u32),
    /// Another invalidation came during the search: ask again.
    Unsure,
}

#[allow(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
fn low(count: u64) -> u32 {
    (count & (GENERATIONS - 1)) as u32
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn hash(bytes: &[u8]) -> u64 {
        bytes.iter().fold(7, |sum, &byte| sum * 31 + u64::from(byte))
    }

    fn add(all: &Invalidations, prefix: &str) {
        all.add((!prefix.is_empty()).then(|| (prefix.len(), hash(prefix.as_bytes()))));
    }

    #[test]
    fn an_item_dies_by_what_comes_after_its_birth_and_names_its_prefix() {
        let all = Invalidations::new();
        add(&all, "user:");
        let born = all.generation();
        add(&all, "cart:");
        assert_eq!(all.judge(b"user:1", born, hash), Judged::Survives(2));
        assert_eq!(all.judge(b"cart:1", born, hash), Judged::Invalid);
        assert_eq!(all.judge(b"cart", born, hash), Judged::Survives(2), "shorter than the prefix");
        add(&all, "");
        assert_eq!(all.judge(b"user:1", born, hash), Judged::Invalid);
        assert_eq!(all.judge(b"user:1", all.generation(), hash), Judged::Survives(3));
    }

    #[test]
    fn eight_outstanding_are_one_too_many() {
        let all = Invalidations::new();
        for _ in 0..7 {
            assert!(!all.is_full());
            add(&all, "a");
        }
        assert!(all.is_full());
        assert!(all.try_purged(3));
        assert!(!all.is_full());
        assert_eq!((all.outstanding(), all.prefixes()), (4, 7));
    }

    #[test]
    fn what_is_too_long_ago_counts_as_invalidated() {
        let all = Invalidations::new();
        for _ in 0..7 {
            add(&all, "other");
        }
        assert!(!all.since(b"k", 0, hash));
        assert!(!all.since(b"other", 7, hash) && all.since(b"other", 6, hash));
        assert!(all.try_purged(7));
        add(&all, "other");
        assert!(all.since(b"k", 0, hash) && !all.since(b"k", 1, hash));
    }
}
