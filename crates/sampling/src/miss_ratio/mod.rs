//! The miss-ratio curve: the hit ratio with more memory, or less.
//!
//! Keys are kept in the order of their last use. When one is read again, the bytes of those used
//! since, and its own, are its *distance*: an LRU cache of at least that size would have hit. So
//! the counts of distances give the hit ratio at every size. Only keys of the sample are kept, and
//! the bytes of the others used since are divided by the sample's share of all keys.
//!
//! ```text
//!     order of use:  [c][a][e][b][d]       a is read: distance = bytes of e, b, d, and a
//!                     old      new
//! ```
//!
//! A server whose order of eviction weighs sizes keeps other items than an LRU. For that order a
//! second count of distances is kept ([`by_size`]), and the curve follows the order in use.
//!
//! The order ([`order`]) has room for a number of keys. When it is full, keys deeper than [`DEPTH`]
//! times the memory are dropped, and then the keys with the greatest hashes.
//!
//! # What counts as what
//!
//! * A read is counted. If the key was deleted or flushed, has expired, or was never stored, it
//!   misses at every size.
//! * A store is not counted; it makes the key the newest. So a read that misses and is filled
//!   behaves as in a real cache.
//! * A hit of an unknown key (stored before sampling started) is not counted.
//! * A flush of a prefix is noticed when the key is read again: each access has the number of the
//!   last flush that covers its key. Until then the key's bytes count in the distances of others.
//!
//! # What is known of all keys
//!
//! Two numbers need no sample, and correct it:
//!
//! * All reads. Chance decides whether a very hot key is in the sample, so the reads that the
//!   sample lacks are taken to be of short distance, as SHARDS-adj does.
//! * All hits: the curve has a known point at the present memory ([`actual`]).
//!
//! Source: Waldspurger and others, *Efficient MRC Construction with SHARDS* (FAST '15); Mattson's
//! stack distances. Sizes, deletes, deadlines and the known point are ours.

mod actual;
mod by_size;
mod order;

use crate::histogram::Histogram;
use crate::log::{Access, Kind};
use crate::{is_later_flush, rate};
use actual::Actual;
use by_size::{BySize, Clock};
use order::Order;

/// Keys used less recently than this multiple of the memory are forgotten.
pub const DEPTH: f64 = 8.0;

/// The estimator.
#[derive(Debug)]
pub struct MissRatio {
    order: Order,
    threshold: u64,
    distances: Histogram,
    by_size: Option<BySize>,
    /// The server's order weighs sizes.
    weighs_size: bool,
    clock: Clock,
    /// Reads that miss at every size.
    cold: f64,
    /// Reads that the sample lacks (or, if negative, has too many).
    missing: f64,
    /// Reads of the sample since the last call of [`Self::all_reads`].
    reads: f64,
    actual: Actual,
    /// Bytes of items that fit into the present memory.
    memory_bytes: f64,
}

/// Reads of all keys, in the sample or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllReads {
    /// Their number.
    pub(crate) reads: f64,
    /// The reads known to have found their key.
    pub(crate) hits: f64,
    /// The reads known not to have found it.
    pub(crate) misses: f64,
}

impl MissRatio {
    /// An estimator that knows `keys_max` keys at most.
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        Self {
            order: Order::new(keys_max),
            threshold: u64::MAX,
            distances: Histogram::default(),
            by_size: knows_sizes(keys_max).then(BySize::new),
            weighs_size: false,
            clock: Clock::default(),
            cold: 0.0,
            missing: 0.0,
            reads: 0.0,
            actual: Actual::default(),
            memory_bytes: f64::INFINITY,
        }
    }

    /// Memory, in bytes.
    #[must_use]
    pub fn bytes_max(keys_max: usize) -> usize {
        let by_size = if knows_sizes(keys_max) { BySize::BYTES } else { 0 };
        Order::bytes_max(keys_max) + Histogram::BYTES + by_size
    }

    /// Keys above it are not needed.
    #[must_use]
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Sets the bytes of items that fit into the present memory.
    pub fn set_memory(&mut self, bytes: f64) {
        self.memory_bytes = bytes;
    }

    /// Sets whether the server's order of eviction weighs sizes now.
    pub fn set_weighs_size(&mut self, weighs_size: bool) {
        self.weighs_size = weighs_size && self.by_size.is_some();
    }

    /// True if the curve is that of an order of eviction that weighs sizes.
    #[must_use]
    pub fn weighs_size(&self) -> bool {
        self.weighs_size
    }

    /// Takes an operation on a sampled key, in the order of time.
    pub fn access(&mut self, access: &Access, now_secs: u32) {
        if access.hash >= self.threshold {
            return;
        }
        match access.kind {
            Kind::Hit | Kind::Miss => self.read(access, now_secs),
            Kind::Removed => self.order.forget(access.hash),
            Kind::Stored | Kind::Touched => self.use_key(access),
        }
    }

    /// Takes the counts of all keys for the accesses taken since the last call; `None` if accesses
    /// were left out.
    pub(crate) fn all_reads(&mut self, all: Option<AllReads>) {
        if let Some(AllReads { reads, hits, misses }) = all {
            self.missing += reads * rate(self.threshold) - self.reads;
            self.actual.add(hits, misses);
        }
        self.reads = 0.0;
    }

    /// The hit ratio with room for `bytes` bytes of items; `None` while there were no reads.
    ///
    /// At the present memory it is the server's own.
    #[must_use]
    pub fn hit_ratio(&self, bytes: u64) -> Option<f64> {
        let total = self.reads();
        (total > 0.0).then(|| {
            let by_size = self.by_size.as_ref().filter(|_| self.weighs_size);
            let distances = by_size.map_or(&self.distances, |by_size| &by_size.distances);
            let hits = |bytes| (distances.up_to(bytes) + self.missing).max(0.0) / total;
            let point = actual::Point { hits: hits(bytes), present: hits(cut(self.memory_bytes)) };
            self.actual.correct(point, self.cold / total).clamp(0.0, 1.0)
        })
    }

    /// Reads that the curve stands for, sampled ones and corrections.
    #[must_use]
    pub fn reads(&self) -> f64 {
        (self.distances.total() + self.cold + self.missing).max(0.0)
    }

    /// Keys known.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.order.len()
    }

    /// Fades for `secs` seconds: half of the old samples fade in ten minutes.
    pub fn fade(&mut self, secs: f64) {
        let factor = (-secs / HALF_LIFE_SECS).exp2();
        self.scale(factor);
        self.actual.scale(factor);
    }

    /// Counts from zero. The order of the keys stays: without it, the next read of each evicted key
    /// would count as one that misses at every size.
    pub(crate) fn restart(&mut self) {
        self.scale(0.0);
        self.actual = Actual::default();
    }

    /// Forgets the keys that this flush of everything covers.
    pub(crate) fn flushed(&mut self, flush: u32) {
        self.order.forget_before(flush);
    }

    /// Notes that keys above `threshold` are no longer reported.
    pub fn lower(&mut self, threshold: u64) {
        if threshold >= self.threshold {
            return;
        }
        self.scale(rate(threshold) / rate(self.threshold));
        self.threshold = threshold;
        self.order.keep_below(threshold);
    }

    fn read(&mut self, access: &Access, now_secs: u32) {
        let (first, repeats) = (1.0, f64::from(access.repeats));
        self.reads += first + repeats;
        self.clock.pass((first + repeats) / rate(self.threshold));
        let is_alive = |known: &order::Known| {
            (known.deadline == 0 || known.deadline > now_secs)
                && !is_later_flush(access.flush, known.flush)
        };
        match self.order.get(access.hash).filter(is_alive) {
            Some(known) => {
                self.distances.add(self.distance(known), first);
                let by_size = self.distance_by_size(known);
                let mut used = *access;
                if access.kind == Kind::Miss {
                    (used.bytes, used.deadline) = (known.bytes, known.deadline);
                }
                self.put(&used);
                let bytes = used.bytes;
                self.distances.add(u64::from(bytes), repeats);
                if let Some(counts) = &mut self.by_size {
                    counts.distances.add(by_size, first);
                    counts.distances.add(u64::from(bytes), repeats);
                }
            }
            None if access.kind == Kind::Hit => self.use_key(access),
            None => {
                self.order.forget(access.hash);
                self.cold += first + repeats;
            }
        }
    }

    fn use_key(&mut self, access: &Access) {
        if access.bytes > 0 {
            self.put(access);
        }
    }

    /// Makes a key the newest.
    fn put(&mut self, access: &Access) {
        let tick = self.clock.tick();
        if !self.order.put(access, tick) {
            self.make_room();
            if access.hash < self.threshold {
                let _ = self.order.put(access, tick);
            }
        }
    }

    /// Makes room: drops deep keys, or else the quarter with the greatest hashes.
    #[cold]
    fn make_room(&mut self) {
        let depth_bytes = DEPTH * self.memory_bytes * rate(self.threshold);
        let clock = self.clock;
        let weighed = self.weighs_size.then_some(|known: &order::Known| clock.weighed_age(known));
        if !self.order.renumber(depth_bytes, weighed)
            && let Some(threshold) = self.order.hash_of_three_quarters()
        {
            self.lower(threshold);
        }
    }

    fn scale(&mut self, factor: f64) {
        self.distances.scale(factor);
        if let Some(by_size) = &mut self.by_size {
            by_size.distances.scale(factor);
        }
        self.cold *= factor;
        self.missing *= factor;
        self.reads *= factor;
    }

    /// Bytes of all keys, in the sample or not, of less weighed age than this one, and its own.
    fn distance_by_size(&mut self, known: order::Known) -> u64 {
        let Some(by_size) = &mut self.by_size else { return 0 };
        let others = by_size.distance(&known, self.clock, &self.order);
        cut(others / rate(self.threshold)) + u64::from(known.bytes)
    }

    /// Bytes of all keys, in the sample or not, that were used since this one, and its own.
    fn distance(&self, known: order::Known) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are more than a sample is worth")]
        let others = self.order.bytes_since(known) as f64;
        cut(others / rate(self.threshold)) + u64::from(known.bytes)
    }
}

const HALF_LIFE_SECS: f64 = 600.0;

/// `true` if a sample of at most `keys_max` keys is worth the memory of a second count.
fn knows_sizes(keys_max: usize) -> bool {
    keys_max >= KEYS_MIN_BY_SIZE
}

/// Keys of such a sample.
const KEYS_MIN_BY_SIZE: usize = 2048;

/// A positive number without its fraction, cut at the maximum.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive number, cut at the greatest"
)]
fn cut(value: f64) -> u64 {
    value as u64
}
