//! The overflow buckets: a full bucket continues in them.
//!
//! They have a separate region and are never anything but buckets. So a lookup that has followed a
//! link to a bucket freed since reads other items' references, which is harmless, and its check
//! then shows that the chain has changed. A free bucket has all slots free; the free list runs
//! through `meta`, which lookups never read in an overflow bucket.
//!
//! While the pool shrinks, buckets behind the kept ones are *retired* instead of freed. A thread
//! that finds none free takes them all back, and the pool keeps its size. Free buckets are sifted,
//! and memory is freed, a part at a time: a thread that needs a bucket waits at most for one part.
//!
//! Relaxed is enough: `meta` of a free bucket is read and written under the list's lock, and the
//! copied number is a statistic.

use super::STEP_BUCKETS;
use super::bucket::{BUCKET_BYTES, Bucket, SLOTS};
use arena::region::Region;
use arena::sync::{AtomicUsize, Mutex, Ordering};

/// Maximum number of buckets whose memory is freed together: 1 MiB.
#[cfg(not(loom))]
const GIVEN_BACK: usize = 16 * STEP_BUCKETS;

/// Free overflow buckets kept in a file, because its file system may be full at the next insertion.
#[cfg(not(loom))]
const KEPT: usize = STEP_BUCKETS;

/// Buckets that come into use for the first time, at most 64 KiB of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'t> {
    buckets: &'t Region<Bucket>,
    from: usize,
    len: usize,
}

impl<'t> Wanted<'t> {
    /// Those behind the first `granted`; `None` if there are none.
    pub(super) fn behind(buckets: &'t Region<Bucket>, granted: usize) -> Option<Self> {
        let len = STEP_BUCKETS.min(buckets.len() - granted);
        (len > 0).then_some(Self { buckets, from: granted, len })
    }

    /// Their number.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Their size, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.len * BUCKET_BYTES) as u64
    }

    /// Makes them usable; `false` if the file system is full.
    pub(crate) fn commit(&self) -> bool {
        self.buckets.commit(self.from, self.len)
    }
}

/// Overflow buckets and their free list.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) buckets: Region<Bucket>,
    pub(super) list: Mutex<List>,
    /// Copy of `List::granted` for readers without the lock.
    pub(super) granted: AtomicUsize,
}

#[derive(Debug, Default)]
pub(super) struct List {
    /// Index of the first free bucket plus one; 0 when there is none.
    pub(super) first: u32,
    /// Buckets that were freed and neither taken again nor retired.
    pub(super) free: usize,
    /// The list of free buckets not yet checked for retirement, like `first`.
    unsifted: u32,
    /// The list of retired buckets, like `first`.
    retired: u32,
    /// Their number.
    retired_len: usize,
    /// Buckets from this index on will be retired; `usize::MAX` if the pool does not shrink.
    kept: usize,
    /// Buckets below this index have been in use.
    pub(super) used: usize,
    /// Buckets below this index are paid for.
    pub(super) granted: usize,
}

impl List {
    /// The list of the next free bucket. If only retired ones are free, the shrinking ends.
    fn next_free(&mut self) -> &mut u32 {
        if self.first == 0 && self.unsifted == 0 {
            self.first = std::mem::take(&mut self.retired);
            self.free = std::mem::take(&mut self.retired_len);
            self.kept = usize::MAX;
        }
        if self.first == 0 { &mut self.unsifted } else { &mut self.first }
    }

    #[cfg(not(loom))]
    fn has_retired_all(&self) -> bool {
        let behind = self.used.saturating_sub(self.kept);
        self.kept <= self.granted && self.unsifted == 0 && self.retired_len == behind
    }
}

impl Pool {
    /// Overflow buckets in a zeroed region, none in use.
    pub(super) fn new(buckets: Region<Bucket>) -> Self {
        assert!(buckets.len() < 1 << 31, "an overflow index has 31 bits");
        Self {
            buckets,
            list: Mutex::new(List { kept: usize::MAX, ..List::default() }),
            granted: AtomicUsize::new(0),
        }
    }

    /// The bucket a link leads to.
    #[inline]
    pub(super) fn at(&self, index: usize) -> &Bucket {
        &self.buckets[index]
    }

    /// Takes a bucket with all slots free. `None` when the region is used up or `grant` refuses
    /// more memory.
    pub(super) fn take(&self, grant: &mut impl FnMut(Wanted<'_>) -> bool) -> Option<u32> {
        let mut list = self.list.lock();
        let next = list.next_free();
        if let Some(index) = next.checked_sub(1) {
            *next = self.at(index as usize).meta.load(Ordering::Relaxed);
            list.free -= 1;
            return Some(index);
        }
        if list.used == list.granted {
            self.grow(&mut list, grant)?;
        }
        let index = u32::try_from(list.used).ok()?;
        list.used += 1;
        Some(index)
    }

    fn grow(&self, list: &mut List, grant: &mut impl FnMut(Wanted<'_>) -> bool) -> Option<()> {
        let wanted = Wanted::behind(&self.buckets, list.granted)?;
        if !grant(wanted) {
            return None;
        }
        list.granted += wanted.len();
        self.granted.store(list.granted, Ordering::Relaxed);
        Some(())
    }

    /// Grows ahead of insertions. Returns the number of bytes that it did not get.
    #[cfg(not(loom))]
    pub(super) fn reserve(&self, grant: &mut impl FnMut(Wanted<'_>) -> bool) -> u64 {
        let mut list = self.list.lock();
        if list.free + list.granted - list.used >= KEPT || list.granted == self.buckets.len() {
            return 0;
        }
        let is_grown = self.grow(&mut list, grant).is_some();
        if is_grown { 0 } else { (KEPT * BUCKET_BYTES) as u64 }
    }

    /// Frees a bucket. No link leads to it any more, although a lookup may still read it.
    pub(super) fn give_back(&self, index: u32) {
        let bucket = self.at(index as usize);
        (0..SLOTS).for_each(|slot| bucket.clear(slot));
        let mut list = self.list.lock();
        self.put(&mut list, index);
    }

    /// Puts a bucket into the list that it belongs to.
    fn put(&self, list: &mut List, index: u32) {
        let is_kept = (index as usize) < list.kept;
        let (first, len) = if is_kept {
            (&mut list.first, &mut list.free)
        } else {
            (&mut list.retired, &mut list.retired_len)
        };
        self.at(index as usize).meta.store(*first, Ordering::Relaxed);
        *first = index + 1;
        *len += 1;
    }

    /// Starts to shrink if less than a third of the buckets is in use, or continues. Returns the
    /// index of the first bucket to retire; `None` if it would free little.
    #[cfg(not(loom))]
    pub(super) fn begin_shrinking(&self) -> Option<usize> {
        let mut list = self.list.lock();
        if list.kept < usize::MAX {
            return Some(list.kept);
        }
        let in_use = list.used - list.free;
        // As many again remain free; in a file, some are kept.
        let kept = (in_use * 2 + STEP_BUCKETS).next_multiple_of(STEP_BUCKETS);
        if kept + STEP_BUCKETS > list.granted {
            return None;
        }
        list.kept = kept;
        list.unsifted = std::mem::take(&mut list.first);
        Some(kept)
    }

    /// Retires the free ones among the next `buckets`; `true` if there are no more.
    #[cfg(not(loom))]
    pub(super) fn sift(&self, buckets: usize) -> bool {
        let mut list = self.list.lock();
        for _ in 0..buckets {
            let Some(index) = list.unsifted.checked_sub(1) else { break };
            list.unsifted = self.at(index as usize).meta.load(Ordering::Relaxed);
            list.free -= 1;
            self.put(&mut list, index);
        }
        list.unsifted == 0
    }

    /// Ends the shrinking without any effect. No other thread uses the pool.
    #[cfg(not(any(loom, miri)))]
    pub(super) fn keep_all(&self) {
        self.list.lock().kept = usize::MAX;
        self.sift(usize::MAX);
        let mut list = self.list.lock();
        let mut retired = std::mem::take(&mut list.retired);
        list.retired_len = 0;
        while let Some(index) = retired.checked_sub(1) {
            retired = self.at(index as usize).meta.load(Ordering::Relaxed);
            self.put(&mut list, index);
        }
    }

    /// `true` if all buckets that are not kept are retired.
    #[cfg(not(loom))]
    pub(super) fn has_retired_all(&self) -> bool {
        self.list.lock().has_retired_all()
    }

    /// Makes retired buckets like buckets that were never in use, if all unneeded ones are still
    /// retired. No lookup may be in one of them.
    #[cfg(not(loom))]
    pub(super) fn end_shrinking(&self) {
        let mut list = self.list.lock();
        if list.has_retired_all() {
            list.used = list.used.min(list.kept);
            (list.retired, list.retired_len, list.kept) = (0, 0, usize::MAX);
        }
    }

    /// Returns memory of buckets that were never in use to the system. Returns the number of these
    /// buckets; 0 if there are no more.
    #[cfg(not(loom))]
    pub(super) fn release(&self) -> usize {
        let mut list = self.list.lock();
        let needed = list.used.next_multiple_of(STEP_BUCKETS);
        let part = list.granted.saturating_sub(1) / GIVEN_BACK * GIVEN_BACK;
        let (from, granted) = (needed.max(part), list.granted);
        if from >= granted {
            return 0;
        }
        self.buckets.release(from, granted - from);
        list.granted = from;
        self.granted.store(from, Ordering::Relaxed);
        granted - from
    }

    /// Buckets paid for so far.
    pub(super) fn granted(&self) -> usize {
        self.granted.load(Ordering::Relaxed)
    }

    /// The free buckets from this one on: an index plus one.
    #[cfg(any(test, not(any(loom, miri))))]
    pub(super) fn free_after(&self, first: u32) -> impl Iterator<Item = &Bucket> {
        let next = |first: u32| self.buckets.get(first.checked_sub(1)? as usize);
        std::iter::successors(next(first), move |bucket| next(bucket.meta.load(Ordering::Relaxed)))
    }

    /// Buckets linked into a chain at this moment.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        let list = self.list.lock();
        let free = |first| self.free_after(first).count();
        let counted = free(list.first) + free(list.unsifted);
        assert_eq!(list.free, counted, "free buckets are counted");
        assert_eq!(list.retired_len, self.free_after(list.retired).count());
        list.used - list.free - list.retired_len
    }
}
