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
            list: Mutex::new(List { first: 0, used: 0, granted: 0 }),
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
    pub(super) fn take(&self, grant: &mut impl FnMut(usize) -> bool) -> Option<u32> {
        let mut list = self.list.lock();
        if let Some(index) = list.first.checked_sub(1) {
            list.first = self.at(index as usize).meta.load(Ordering::Relaxed);
            return Some(index);
        }
        if list.used == list.granted {
            let step = STEP_BUCKETS.min(self.buckets.len() - list.granted);
            let has_room = step > 0 && self.buckets.commit(list.granted, step);
            if !has_room || !grant(step * BUCKET_BYTES) {
                return None;
            }
            list.granted += step;
            self.granted.store(list.granted, Ordering::Relaxed);
        }
        let index = u32::try_from(list.used).ok()?;
        list.used += 1;
        Some(index)
    }

    /// Gives a bucket back. No link leads to it any more, although a lookup may still stand in it.
    pub(super) fn give_back(&self, index: u32) {
        let bucket = self.at(index as usize);
        (0..SLOTS).for_each(|slot| bucket.clear(slot));
        let mut list = self.list.lock();
        bucket.meta.store(list.first, Ordering::Relaxed);
        list.first = index + 1;
    }

    /// Buckets paid for so far; they are never given back to the system.
    pub(super) fn granted(&self) -> usize {
        self.granted.load(Ordering::Relaxed)
    }

    /// Buckets linked into a chain at this moment.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        let list = self.list.lock();
        let next = |first: u32| first.checked_sub(1).map(|index| self.at(index as usize));
        let free = std::iter::successors(next(list.first), |bucket| {
            next(bucket.meta.load(Ordering::Relaxed))
        });
        list.used - free.count()
    }
}
