//! The hash table: from a key's hash to the reference of its item, without a lock for lookups.
//!
//! It knows nothing of items. It stores references (not 0, top bit clear) by 64-bit hash, and asks
//! the caller whether the item behind a reference has the key in question.
//!
//! # Picture
//!
//! ```text
//!     directory {level 2, split 1}            4 + 1 buckets; bucket 0 has been split into 0 and 4
//!
//!       0 [meta|tags|slots]                        a bucket is one cache line: 12 references, each
//!       1 [meta|tags|slots, link] -> [tags|slots]  with a tag; its last slot may hold a link to an
//!       2 [meta|tags|slots]                        overflow bucket instead
//!       3 [meta|tags|slots]
//!       4 [meta|tags|slots]
//! ```
//!
//! The low bits of a hash choose the bucket and its top eight are the tag. The table grows by
//! *linear hashing*: one bucket is split at a time, always the one at `split`, and its items are
//! shared out between it and a new bucket at the end. There is never a second table, and no pause
//! longer than one split. It shrinks the same way back: the last bucket is *merged* into the one
//! that it was split from.
//!
//! # Laws
//!
//! 1. Stores to a bucket are made under the lock of its stripe. A hash's stripe is in its low bits,
//!    which are at most as many as the smallest directory uses; so the two halves of a split, and a
//!    bucket's overflow, have the same stripe.
//! 2. A replacement is one store. A lookup sees the old item or the new, never neither.
//! 3. A moving reference is stored in its new place first, then the move is *announced*, then the
//!    old place is cleared. The announcement is `meta + 1` in the home bucket of the chain. For a
//!    split or a merge it is made in both home buckets, and the store of the directory follows.
//! 4. A link is stored only when the bucket it leads to holds the item whose slot it takes.
//! 5. An overflow bucket is freed only when it is the last of its chain and holds nothing that is
//!    not elsewhere, or when the merge of its home bucket is published.
//! 6. The memory of merged buckets is freed when every section has ended that was open at the
//!    merge, because `meta` starts at 0 again there.
//!
//! # Lookup
//!
//! A hit needs no check: the slot's load is the moment at which the item was in the table. A miss
//! is believed if, after the scan, the directory still maps the hash to the same bucket, and `meta`
//! there is unchanged. Otherwise the lookup starts again. It never waits: a thread preempted in the
//! middle of a move leaves the reference in both places.
//!
//! A believed miss is true: suppose the item was there throughout. The scan went past its
//! place, so it read a later value of it (0, another reference, a link, another tag), stored after
//! the item had moved away. All stores are Release and the check begins with an Acquire fence, so
//! the check sees the announcement, which preceded the clearing. If the first load of `meta` was
//! already the announced value, it is an Acquire load and the new place, stored before, was visible
//! to the scan; if the first directory was already the new one, likewise.
//!
//! # Price
//!
//! For random hashes the table costs 7.7 to 8.3 bytes per item, overflow included, and one item in
//! eight is in an overflow bucket. A load of 8 would cost 8.5 to 9.2 bytes, with one item in
//! seventeen. Before a split the bucket at `split` holds twice the items of one already split: 10
//! on average over the table, up to 20 there. So overflow buckets are common just ahead of the
//! split and rare behind it.
//!
//! Source: W. Litwin, "Linear hashing" (VLDB 1980), for the directory; the rest is argued here.
//! That GET takes no lock while writers take a stripe's is from Wiggins and Langston, "Enhancing
//! the Scalability of Memcached" (2012).
//!
//! [`Table`] has its methods in six files, by the state that they work in: lookups here, changes
//! under a stripe in `locked`, a split or a merge under the splitter's lock in `growth` and
//! `shrinking`, exclusive use at a clean end and after a crash in `record` and `recover`.
//!
//! Relaxed is enough for counts of items and memory, which guard nothing, and for the directory
//! where it is a hint or the stripe's lock is held. Each lookup argues its own loads.

mod bucket;
mod directory;
mod growth;
mod locked;
mod pool;
#[cfg(not(any(loom, miri)))]
mod record;
#[cfg(not(any(loom, miri)))]
mod recover;
mod shrinking;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use bucket::Bucket;
pub(crate) use growth::Split;
pub(crate) use locked::{Locked, SlotRef};
pub(crate) use pool::Wanted;
#[cfg(not(any(loom, miri)))]
pub(crate) use recover::{Judge, Marks};

use arena::region::Region;
use arena::sync::{
    AtomicI32, AtomicI64, AtomicU64, AtomicUsize, Mutex, Ordering, fence, spin_loop,
};
use bucket::BUCKET_BYTES;
use crossbeam_utils::CachePadded;
use directory::Directory;
use growth::Splitter;
use narrow::{to_u8, to_usize};
use pool::Pool;
use std::io;

/// Buckets that come into use, and are charged to the memory limit, together: 64 KiB.
const STEP_BUCKETS: usize = 64 * 1024 / BUCKET_BYTES;

/// Items per bucket, on average, above which the table wants to grow. Models split a bucket of two.
const LOAD_MAX: usize = if cfg!(loom) { 1 } else { 10 };

/// Size of a table, and the size to which it may grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Minimum number of buckets, a power of two. It does not depend on `stripes`, because a later
    /// process may need more.
    pub(crate) buckets: usize,
    /// Maximum number of buckets, at least `buckets` and `stripes`. Address space is reserved for
    /// all of them.
    pub(crate) buckets_max: usize,
    /// Maximum number of overflow buckets, at least 1. Address space is reserved for all of them.
    pub(crate) overflow_max: usize,
    /// Locks for writers, a power of two. An empty table has at least as many buckets.
    pub(crate) stripes: usize,
}

impl Shape {
    /// Locks for writers of the table with this directory; zero means no table.
    ///
    /// A stripe has at least one bucket (law 1). So a table that was made for fewer stripes, and
    /// has not grown since, uses fewer.
    fn stripes_over(&self, recorded: u64) -> usize {
        match Directory::checked(recorded) {
            Some(directory) if recorded != 0 => self.stripes.min(1 << directory.level()),
            _ => self.stripes,
        }
    }
}

/// The memory of a table.
#[derive(Debug)]
pub(crate) struct Memory {
    /// One word.
    pub(crate) directory: Region<AtomicU64>,
    /// `buckets_max` of the table's shape.
    pub(crate) buckets: Region<Bucket>,
    /// `overflow_max`.
    pub(crate) overflow: Region<Bucket>,
}

impl Memory {
    /// Anonymous memory.
    ///
    /// # Errors
    ///
    /// The system's refusal to map the address space.
    pub(crate) fn reserve(shape: &Shape) -> io::Result<Self> {
        Ok(Self {
            directory: Region::reserve(1)?,
            buckets: Region::reserve(shape.buckets_max)?,
            overflow: Region::reserve(shape.overflow_max)?,
        })
    }
}

/// A hash table of references. The module's header describes it.
#[derive(Debug)]
pub(crate) struct Table {
    directory: AtomicU64,
    /// The directory, in memory that outlives the process.
    recorded: Region<AtomicU64>,
    buckets: Region<Bucket>,
    overflow: Pool,
    stripes: Box<[CachePadded<Stripe>]>,
    splitter: Mutex<Splitter>,
    /// Buckets paid for.
    granted: AtomicUsize,
    /// The table does not shrink below this number.
    buckets_min: usize,
    /// Items, except those not yet carried over from the stripes.
    items: CachePadded<AtomicI64>,
}

/// A lock for writers, with the change of the item count not yet carried over to the table.
#[derive(Debug)]
struct Stripe {
    lock: Mutex<()>,
    uncounted: AtomicI32,
}

/// The bucket of a hash, and a slot there in which a reference was seen: a hint from which a lookup
/// can start. The default is no hint.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotHint {
    bucket: usize,
    slot: u8,
    /// Zero: nothing was seen.
    reference: u32,
}

impl SlotHint {
    /// The reference that was seen there.
    #[inline]
    pub(crate) fn reference(self) -> Option<u32> {
        (self.reference != 0).then_some(self.reference)
    }
}

/// The tag of a hash.
#[inline]
fn tag_of(hash: u64) -> u8 {
    hash.to_be_bytes()[0]
}

impl Table {
    /// An empty table in anonymous memory.
    ///
    /// # Errors
    ///
    /// The system's refusal to map the address space.
    #[cfg(test)]
    pub(crate) fn new(shape: Shape) -> io::Result<Self> {
        Self::over(shape, Memory::reserve(&shape)?)
    }

    /// An empty table in zeroed memory, or one yet to be loaded. It requests no memory for its
    /// first [`bytes`](Self::bytes): the caller counts them.
    ///
    /// # Errors
    ///
    /// There is no room for the first buckets.
    pub(crate) fn over(shape: Shape, memory: Memory) -> io::Result<Self> {
        assert!(shape.buckets.is_power_of_two() && shape.buckets <= shape.buckets_max);
        assert!(shape.buckets_max <= 1 << 31, "a bucket index has 31 bits");
        assert!(shape.stripes.is_power_of_two() && shape.stripes <= shape.buckets_max);
        let stripe = || Stripe { lock: Mutex::new(()), uncounted: AtomicI32::new(0) };
        // Not zero if the memory already holds a table: `load` or `recover` decides whether it is
        // valid.
        let recorded = memory.directory[0].load(Ordering::Relaxed);
        let stripes = shape.stripes_over(recorded);
        let buckets = shape.buckets.max(stripes);
        if !memory.buckets.commit(0, buckets) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let directory = Directory::new(buckets).to_bits();
        if recorded == 0 {
            memory.directory[0].store(directory, Ordering::Relaxed);
        }
        Ok(Self {
            directory: AtomicU64::new(directory),
            recorded: memory.directory,
            buckets: memory.buckets,
            overflow: Pool::new(memory.overflow),
            stripes: (0..stripes).map(|_| CachePadded::new(stripe())).collect(),
            splitter: Mutex::new(Splitter::default()),
            granted: AtomicUsize::new(buckets),
            buckets_min: buckets,
            items: CachePadded::new(AtomicI64::new(0)),
        })
    }

    #[inline]
    fn directory(&self, order: Ordering) -> Directory {
        Directory::from_bits(self.directory.load(order))
    }

    /// The reference of the item that `matches`. Takes no lock and stores nothing.
    ///
    /// `matches` is called for items whose tag is equal, linked or just unlinked; the caller is in
    /// a section of the [`Qsbr`](arena::qsbr::Qsbr) under which such an item's bytes
    /// are intact.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut matches: impl FnMut(u32) -> bool) -> Option<u32> {
        loop {
            // Acquire: partner of the Release in `publish`; the bucket's content is visible.
            let home = self.directory(Ordering::Acquire).bucket_of(hash);
            let bucket = &self.buckets[home];
            // Acquire: partner of the Release in `announce_move`; the new places are visible.
            let moves = bucket.meta.load(Ordering::Acquire);
            if let Some(reference) = self.scan(bucket, tag_of(hash), &mut matches) {
                return Some(reference);
            }
            // Partner: the Release of whichever store turned the scan away.
            fence(Ordering::Acquire);
            // Acquire: partner of the Release in `publish`; the moves announced before are seen.
            if self.directory(Ordering::Acquire).bucket_of(hash) == home
                && bucket.meta.load(Ordering::Relaxed) == moves
            {
                return None;
            }
            spin_loop();
        }
    }

    #[inline]
    fn scan(&self, home: &Bucket, tag: u8, matches: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let mut bucket = home;
        loop {
            if let Some((_, reference)) = bucket.find(tag, matches) {
                return Some(reference);
            }
            bucket = self.overflow.at(bucket.link()?);
        }
    }

    /// Prefetches the line of the hash's bucket, and returns which it is.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) -> SlotHint {
        let bucket = self.directory(Ordering::Relaxed).bucket_of(hash);
        self.buckets.prefetch_byte(bucket * BUCKET_BYTES);
        SlotHint { bucket, slot: 0, reference: 0 }
    }

    /// Asks for huge pages under the buckets.
    #[cfg(not(loom))]
    pub(crate) fn prefer_huge_pages(&self) {
        self.buckets.prefer_huge_pages();
    }

    /// Spreads all buckets over the memory nodes that the process may use.
    ///
    /// # Errors
    ///
    /// The system's refusal.
    #[cfg(not(loom))]
    pub(crate) fn interleave(&self) -> io::Result<()> {
        self.buckets.interleave().and_then(|()| self.overflow.buckets.interleave())
    }

    /// The first slot that a lookup of this hash would examine, if that is in the bucket that
    /// [`prefetch`](Self::prefetch) has named. Whether the item there has the key is not known.
    /// Calls `prefetch` for that item, or else for each item beyond the bucket that the lookup
    /// would have to examine, unchecked.
    ///
    /// If the hash has moved to another bucket since, the hint finds less, or nothing.
    #[inline(always)]
    pub(crate) fn hint(
        &self,
        hash: u64,
        SlotHint { bucket: home, .. }: SlotHint,
        mut prefetch: impl FnMut(u32),
    ) -> SlotHint {
        let bucket = &self.buckets[home];
        if let Some((slot, reference)) = bucket.find(tag_of(hash), &mut |_| true) {
            prefetch(reference);
            return SlotHint { bucket: home, slot: to_u8(slot), reference };
        }
        if let Some(next) = bucket.link() {
            self.scan(self.overflow.at(next), tag_of(hash), &mut |reference| {
                prefetch(reference);
                false
            });
        }
        SlotHint::default()
    }

    /// The reference in `hint`, if it is still there: a hit needs no other check, wherever the hash
    /// belongs now.
    #[inline]
    pub(crate) fn at(&self, hint: SlotHint) -> Option<u32> {
        let is_there = hint.reference != 0
            && self.buckets[hint.bucket].holds(usize::from(hint.slot), hint.reference);
        is_there.then_some(hint.reference)
    }

    /// Takes the lock under which the hash's items change.
    #[inline]
    pub(crate) fn lock(&self, hash: u64) -> Locked<'_> {
        let stripe = self.stripe(hash);
        Locked::new(self, hash, stripe, stripe.lock.lock())
    }

    /// Like [`lock`](Self::lock), but `None` when a thread, perhaps the caller's own, holds the
    /// lock.
    #[inline]
    pub(crate) fn try_lock(&self, hash: u64) -> Option<Locked<'_>> {
        let stripe = self.stripe(hash);
        Some(Locked::new(self, hash, stripe, stripe.lock.try_lock()?))
    }

    #[inline]
    fn stripe(&self, hash: u64) -> &Stripe {
        &self.stripes[self.stripe_number(hash)]
    }

    /// The number of the stripe of this hash, below [`stripes`](Self::stripes). It is the low bits
    /// of the hash.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
    pub(crate) fn stripe_number(&self, hash: u64) -> usize {
        hash as usize & (self.stripes.len() - 1)
    }

    /// Locks for writers.
    pub(crate) fn stripes(&self) -> usize {
        self.stripes.len()
    }

    /// Memory paid for, in bytes: buckets and overflow buckets.
    pub(crate) fn bytes(&self) -> usize {
        (self.granted.load(Ordering::Relaxed) + self.overflow.granted()) * BUCKET_BYTES
    }

    /// A table in a file commits memory ahead of insertions, which cannot wait until its file
    /// system has room. Returns the number of bytes that it did not get.
    #[cfg(not(loom))]
    pub(crate) fn reserve(&self, mut grant: impl FnMut(Wanted<'_>) -> bool) -> u64 {
        if !self.buckets.is_in_file() {
            return 0;
        }
        let is_spent = self.buckets() == self.granted.load(Ordering::Relaxed);
        // The next split will request it.
        let step = if is_spent && self.wants_growth() { STEP_BUCKETS * BUCKET_BYTES } else { 0 };
        self.overflow.reserve(&mut grant) + step as u64
    }

    /// Buckets in the directory, without overflow.
    pub(crate) fn buckets(&self) -> usize {
        self.directory(Ordering::Relaxed).buckets()
    }

    /// Overflow buckets in use.
    #[cfg(test)]
    pub(crate) fn overflow_buckets(&self) -> usize {
        self.overflow.in_use()
    }

    /// The power of two up to which all buckets have been split: memcached's `hash_power_level`, in
    /// buckets.
    pub(crate) fn level(&self) -> u32 {
        self.directory(Ordering::Relaxed).level()
    }

    /// Items in the table; the sum is taken stripe by stripe, so it is exact only when no thread
    /// writes.
    pub(crate) fn items(&self) -> usize {
        let uncounted = |stripe: &CachePadded<Stripe>| stripe.uncounted.load(Ordering::Relaxed);
        let rest: i64 = self.stripes.iter().map(|stripe| i64::from(uncounted(stripe))).sum();
        // Below zero for a moment, where a removal is counted before its insertion.
        to_usize((self.items.load(Ordering::Relaxed) + rest).max(0).unsigned_abs())
    }

    /// `true` if there are more items than [`LOAD_MAX`] per bucket, plus or minus a sixteenth.
    #[inline]
    pub(crate) fn wants_growth(&self) -> bool {
        let items = self.items.load(Ordering::Relaxed);
        let buckets = self.buckets();
        // There are at most 2^32 buckets, so the product fits.
        items > ((buckets * LOAD_MAX) as u64).cast_signed() && buckets < self.buckets.len()
    }

    /// Counts one item more or less. The caller holds the stripe's lock.
    ///
    /// A stripe carries its count over when it reaches a sixteenth of the table's room per stripe,
    /// so that a large table's writers seldom share a line.
    #[inline]
    fn count(&self, stripe: &Stripe, change: i32) {
        let uncounted = stripe.uncounted.load(Ordering::Relaxed) + change;
        // The stripes are a power of two: a shift, because a division takes as long as the rest.
        let per_stripe = self.buckets() >> self.stripes.len().trailing_zeros();
        let limit = (per_stripe * LOAD_MAX / 16).max(1);
        if uncounted.unsigned_abs() as usize >= limit {
            self.items.fetch_add(i64::from(uncounted), Ordering::Relaxed);
            stripe.uncounted.store(0, Ordering::Relaxed);
        } else {
            stripe.uncounted.store(uncounted, Ordering::Relaxed);
        }
    }
}
