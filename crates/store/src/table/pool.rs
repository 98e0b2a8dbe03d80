//! The overflow buckets: where a full bucket continues.
//!
//! They come from a region of their own and are never anything but buckets, so a lookup that has
//! followed a link to a bucket since given back reads other items' references, which is harmless,
//! and then learns from its check that the chain has changed. A free bucket has all slots free; the
//! free list runs through `meta`, which lookups never read in an overflow bucket.
//!
//! Relaxed is enough: `meta` of a free bucket is read and written under the list's lock, and the
//! copied number is a statistic.

use super::STEP_BUCKETS;
use super::bucket::{BUCKET_BYTES, Bucket, SLOTS};
use arena::region::Region;
use arena::sync::{AtomicUsize, Mutex, Ordering};

/// Free overflow buckets kept in a file whose file system may be full at the next insertion.
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

#[derive(Debug)]
pub(super) struct List {
    /// Index of the first free bucket plus one; 0 when there is none.
    pub(super) first: u32,
    /// Buckets that were given back and not taken again.
    pub(super) free: usize,
    /// Buckets below this index have been in use.
    pub(super) used: usize,
    /// Buckets below this index are paid for.
    pub(super) granted: usize,
}

impl Pool {
    /// Overflow buckets in a zeroed region, none in use.
    pub(super) fn new(buckets: Region<Bucket>) -> Self {
        assert!(buckets.len() < 1 << 31, "an overflow index has 31 bits");
        Self {
            buckets,
            list: Mutex::new(List { first: 0, free: 0, used: 0, granted: 0 }),
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
        if let Some(index) = list.first.checked_sub(1) {
            list.free -= 1;
            list.first = self.at(index as usize).meta.load(Ordering::Relaxed);
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

    /// Grows ahead of the insertions to come. Returns the bytes that could not be had.
    #[cfg(not(loom))]
    pub(super) fn reserve(&self, grant: &mut impl FnMut(Wanted<'_>) -> bool) -> u64 {
        let mut list = self.list.lock();
        if list.free + list.granted - list.used >= KEPT || list.granted == self.buckets.len() {
            return 0;
        }
        let is_grown = self.grow(&mut list, grant).is_some();
        if is_grown { 0 } else { (KEPT * BUCKET_BYTES) as u64 }
    }

    /// Gives a bucket back. No link leads to it any more, although a lookup may still stand in it.
    pub(super) fn give_back(&self, index: u32) {
        let bucket = self.at(index as usize);
        (0..SLOTS).for_each(|slot| bucket.clear(slot));
        let mut list = self.list.lock();
        bucket.meta.store(list.first, Ordering::Relaxed);
        list.first = index + 1;
        list.free += 1;
    }

    /// Buckets paid for so far; they are never given back to the system.
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
        assert_eq!(list.free, self.free_after(list.first).count(), "free buckets are counted");
        list.used - list.free
    }
}
