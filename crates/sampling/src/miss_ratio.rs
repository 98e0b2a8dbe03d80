//! The miss-ratio curve: what the hit ratio would be with more memory, or less.
//!
//! Keys are kept in the order of their last use. When one is read again, the bytes of those used
//! since are its *distance*: an LRU cache of at least that size would have hit. So the counts of
//! distances tell the hit ratio at every size. Only keys of the sample are kept, and a distance
//! among them is divided by the part of all keys that they are.
//!
//! ```text
//!     order of use:  [c][a][e][b][d]       a is read: distance = bytes of a, e, b, d
//!                     old      new
//! ```
//!
//! The order is a Fenwick tree over places: sums of bytes from a place on take a logarithmic number
//! of steps. A key that is used gets the next place; when there is none, all are numbered anew, and
//! what lies deeper than [`DEPTH`] times the memory goes.
//!
//! # What counts as what
//!
//! * A read is counted. If the key was deleted, has expired, or was never stored, it misses at
//!   every size.
//! * A store is not counted; it makes the key the newest. So a read that misses and is filled
//!   behaves as in a real cache.
//! * A hit of a key that is not known (stored before sampling began) is not counted.
//!
//! Chance puts a very hot key into the sample or not; the number of all reads corrects it, as
//! SHARDS-adj does: reads that the sample has too few of are taken to be of short distance.
//!
//! Source: Waldspurger and others, *Efficient MRC Construction with SHARDS* (FAST '15); Mattson's
//! stack distances. Sizes, deletes and deadlines are ours.

use crate::histogram::Histogram;
use crate::log::{Access, Kind};
use crate::{HashTable, rate};

/// Keys used less recently than this many times the memory ago are forgotten.
pub const DEPTH: f64 = 8.0;

/// The estimator.
#[derive(Debug)]
pub struct MissRatio {
    keys: HashTable<Known>,
    keys_max: usize,
    threshold: u64,
    /// Fenwick tree: bytes by place, places from 1.
    tree: Box<[u64]>,
    next_place: u32,
    bytes: u64,
    distances: Histogram,
    /// Reads that miss at every size.
    cold: f64,
    /// Reads that the sample had too few (or, negative, too many) of.
    missing: f64,
    /// Reads of the sample since [`Self::all_reads`] was last told of all.
    reads: f64,
    /// The depth, in bytes of all keys, below which everything is forgotten.
    depth_bytes: f64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    place: u32,
    bytes: u32,
    deadline: u32,
}

impl MissRatio {
    /// An estimator that knows `keys_max` keys at most.
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        Self {
            keys: HashTable::with_capacity_and_hasher(keys_max, Default::default()),
            keys_max,
            threshold: u64::MAX,
            tree: vec![0; 2 * keys_max + 1].into_boxed_slice(),
            next_place: 1,
            bytes: 0,
            distances: Histogram::default(),
            cold: 0.0,
            missing: 0.0,
            reads: 0.0,
            depth_bytes: f64::INFINITY,
        }
    }

    /// Memory, in bytes.
    #[must_use]
    pub fn bytes_max(keys_max: usize) -> usize {
        let table = (keys_max * 8 / 7).next_power_of_two() * (size_of::<(u64, Known)>() + 1);
        // Numbering anew needs the keys in order, for a moment.
        table + (2 * keys_max + 1) * 8 + keys_max * size_of::<(u32, u64)>() + Histogram::BYTES
    }

    /// Keys above it are not wanted.
    #[must_use]
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// The bytes of items that fit into the memory as it is.
    pub fn set_memory(&mut self, bytes: f64) {
        self.depth_bytes = DEPTH * bytes;
    }

    /// Takes an operation on a sampled key, in the order of time.
    pub fn access(&mut self, access: &Access, now_secs: u32) {
        if access.hash >= self.threshold {
            return;
        }
        match access.kind {
            Kind::Hit | Kind::Miss => self.read(access, now_secs),
            Kind::Removed => self.forget(access.hash),
            Kind::Stored | Kind::Touched => self.use_key(access),
        }
    }

    /// Takes the number of reads, of all keys, that belong to the accesses taken since the last
    /// call; `None` when accesses were left out.
    pub fn all_reads(&mut self, reads: Option<f64>) {
        if let Some(reads) = reads {
            self.missing += reads * rate(self.threshold) - self.reads;
        }
        self.reads = 0.0;
    }

    /// The hit ratio with room for `bytes` bytes of items; `None` while there were no reads.
    #[must_use]
    pub fn hit_ratio(&self, bytes: u64) -> Option<f64> {
        let total = self.distances.total() + self.cold + self.missing;
        (total > 0.0).then(|| {
            let hits = self.distances.up_to(bytes) + self.missing;
            (hits / total).clamp(0.0, 1.0)
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
        self.keys.len()
    }

    /// Takes note that `secs` seconds have passed: old samples fade, half of them in ten minutes.
    pub fn fade(&mut self, secs: f64) {
        self.scale((-secs / HALF_LIFE_SECS).exp2());
    }

    /// Keys above `threshold` are not reported any more.
    pub fn lower(&mut self, threshold: u64) {
        if threshold >= self.threshold {
            return;
        }
        self.scale(rate(threshold) / rate(self.threshold));
        self.threshold = threshold;
        let gone: Vec<u64> = self.keys.keys().copied().filter(|hash| *hash >= threshold).collect();
        gone.into_iter().for_each(|hash| self.forget(hash));
    }

    fn read(&mut self, access: &Access, now_secs: u32) {
        let (first, repeats) = (1.0, f64::from(access.repeats));
        self.reads += first + repeats;
        let known = self.keys.get(&access.hash).copied();
        let is_alive = |known: &Known| known.deadline == 0 || known.deadline > now_secs;
        match known.filter(is_alive) {
            Some(known) => {
                let distance = self.bytes - self.sum_before(known.place);
                self.distances.add(self.of_all_keys(distance), first);
                let bytes = if access.kind == Kind::Hit { access.bytes } else { known.bytes };
                let deadline =
                    if access.kind == Kind::Hit { access.deadline } else { known.deadline };
                self.put(access.hash, bytes, deadline);
                self.distances.add(u64::from(bytes), repeats);
            }
            None if access.kind == Kind::Hit => self.use_key(access),
            None => {
                self.forget(access.hash);
                self.cold += first + repeats;
            }
        }
    }

    fn use_key(&mut self, access: &Access) {
        if access.bytes > 0 {
            self.put(access.hash, access.bytes, access.deadline);
        }
    }

    /// Makes a key the newest.
    fn put(&mut self, hash: u64, bytes: u32, deadline: u32) {
        self.forget(hash);
        if self.keys.len() >= self.keys_max {
            self.halve();
            if hash >= self.threshold {
                return;
            }
        }
        if self.next_place as usize >= self.tree.len() {
            self.number_anew();
        }
        let place = self.next_place;
        self.next_place += 1;
        self.keys.insert(hash, Known { place, bytes, deadline });
        self.bytes += u64::from(bytes);
        self.add_at(place, i64::from(bytes));
    }

    fn forget(&mut self, hash: u64) {
        if let Some(known) = self.keys.remove(&hash) {
            self.bytes -= u64::from(known.bytes);
            self.add_at(known.place, -i64::from(known.bytes));
        }
    }

    /// Bytes of the keys in places before `place`.
    fn sum_before(&self, place: u32) -> u64 {
        let (mut sum, mut index) = (0, place as usize - 1);
        while index > 0 {
            sum += self.tree[index];
            index &= index - 1;
        }
        sum
    }

    fn add_at(&mut self, place: u32, bytes: i64) {
        let mut index = place as usize;
        while let Some(sum) = self.tree.get_mut(index) {
            *sum = sum.wrapping_add_signed(bytes);
            index += index & index.wrapping_neg();
        }
    }

    /// Gives the keys places from 1 on, in their order, and forgets those that lie too deep.
    fn number_anew(&mut self) {
        let mut order: Vec<(u32, u64)> =
            self.keys.iter().map(|(hash, known)| (known.place, *hash)).collect();
        order.sort_unstable();
        let mut deepest = 0;
        for (_, hash) in &order {
            if self.as_bytes_of_all_keys(self.bytes) <= self.depth_bytes {
                break;
            }
            deepest += 1;
            if let Some(known) = self.keys.remove(hash) {
                self.bytes -= u64::from(known.bytes);
            }
        }
        self.tree.fill(0);
        self.next_place = 1;
        for (_, hash) in &order[deepest..] {
            let place = self.next_place;
            let Some(known) = self.keys.get_mut(hash) else { continue };
            known.place = place;
            let bytes = known.bytes;
            self.next_place += 1;
            self.add_at(place, i64::from(bytes));
        }
    }

    /// Makes room: deep keys go, or else the quarter with the greatest hashes.
    #[cold]
    fn halve(&mut self) {
        self.number_anew();
        if self.keys.len() < self.keys_max {
            return;
        }
        let mut hashes: Vec<u64> = self.keys.keys().copied().collect();
        let kept = hashes.len() * 3 / 4;
        let threshold = *hashes.select_nth_unstable(kept).1;
        self.lower(threshold);
    }

    fn scale(&mut self, factor: f64) {
        self.distances.scale(factor);
        self.cold *= factor;
        self.missing *= factor;
        self.reads *= factor;
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits are more than a sample is worth")]
    fn as_bytes_of_all_keys(&self, bytes: u64) -> f64 {
        bytes as f64 / rate(self.threshold)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number, cut at the greatest"
    )]
    fn of_all_keys(&self, bytes: u64) -> u64 {
        self.as_bytes_of_all_keys(bytes) as u64
    }
}

const HALF_LIFE_SECS: f64 = 600.0;
