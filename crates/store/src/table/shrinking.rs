//! Shrinking: the last bucket merged into the one that it was split from.
//!
//! A merge is a split backwards. It copies the references of the last bucket, publishes the
//! directory without it, and then clears it. Between the last two steps they are in both buckets,
//! as in a split.

use super::Table;
use super::bucket::Bucket;
use arena::sync::Ordering;

#[cfg(not(loom))]
use super::STEP_BUCKETS;
#[cfg(not(loom))]
use super::bucket::BUCKET_BYTES;

/// Items per bucket, on average, to which the table shrinks. It is so far below the load of growth
/// that a number of items that varies by a fifth changes nothing.
const LOAD_MIN: usize = 7;

impl Table {
    /// Buckets that the items do not need. It reads each stripe's count.
    pub(crate) fn surplus(&self) -> usize {
        let needed = self.items().div_ceil(LOAD_MIN).max(self.buckets_min);
        self.buckets().saturating_sub(needed)
    }

    /// Merges the last bucket into the one that it was split from. `false`, and nothing is changed,
    /// if there is no other bucket, another thread is splitting, or the chain would need an
    /// overflow bucket and none is free, because a shrinking table takes no memory.
    pub(crate) fn merge_one(&self) -> bool {
        let Some(_splitter) = self.splitter.try_lock() else { return false };
        // Relaxed: stored only under the splitter's lock.
        let directory = self.directory(Ordering::Relaxed);
        if directory.buckets() <= self.buckets_min {
            return false;
        }
        let before = directory.before_split();
        let (old, new) = (before.next(), before.buckets());
        let _stripe = self.stripe(old as u64).lock.lock();
        let (old, new) = (&self.buckets[old], &self.buckets[new]);
        let is_copied = self.chain(new).all(|bucket| {
            bucket.items().all(|(slot, reference)| {
                self.append(old, bucket.tag(slot), reference, &mut |_| false)
            })
        });
        if is_copied {
            self.publish(before, old, new);
            self.discard(new);
        } else {
            self.take_back(old, new);
        }
        is_copied
    }

    /// Clears from one chain the items that are in the other. Lookups find them there.
    fn take_back(&self, copied: &Bucket, home: &Bucket) {
        for (_, reference) in self.chain(home).flat_map(Bucket::items) {
            for bucket in self.chain(copied) {
                bucket
                    .items()
                    .filter(|&(_, copy)| copy == reference)
                    .for_each(|(slot, _)| bucket.clear(slot));
            }
        }
        self.compact(copied);
    }

    /// Moves the items of this home bucket's chain that are in overflow buckets from `kept` on into
    /// free ones before them.
    pub(crate) fn move_overflow(&self, home: usize, kept: usize) {
        let _stripe = self.stripe(home as u64).lock.lock();
        let home = &self.buckets[home];
        let mut before = home;
        while let Some(index) = before.link() {
            let next = self.overflow.at(index);
            before = match u32::try_from(index) {
                Ok(moved) if index >= kept => {
                    let Some(free) = self.overflow.take(&mut |_| false) else { return };
                    let copy = self.overflow.at(free as usize);
                    copy.copy(next);
                    before.set_link(free);
                    self.announce_move(home);
                    self.overflow.give_back(moved);
                    copy
                }
                _ => next,
            };
        }
    }
}

/// Memory that is freed. No section that was open when its buckets were emptied may still be open:
/// a lookup in a bucket there must find the unchanged count of moves.
#[cfg(not(loom))]
impl Table {
    /// `true` if merges have left memory that [`give_back`](Self::give_back) would free.
    pub(crate) fn has_unused(&self) -> bool {
        self.granted.load(Ordering::Relaxed) >= self.buckets() + STEP_BUCKETS
    }

    /// Returns the memory behind the last bucket to the system, and returns the number of bytes.
    pub(crate) fn give_back(&self) -> u64 {
        let _splitter = self.splitter.lock();
        let granted = self.granted.load(Ordering::Relaxed);
        // A multiple of whole pages, wherever a recovery or the first buckets ended.
        let kept = self.buckets().next_multiple_of(STEP_BUCKETS).min(granted);
        if kept < granted {
            self.buckets.release(kept, granted - kept);
            self.granted.store(kept, Ordering::Relaxed);
        }
        ((granted - kept) * BUCKET_BYTES) as u64
    }

    /// Starts to retire overflow buckets, if few of them are in use. Returns the first one to
    /// retire.
    pub(crate) fn begin_without_overflow(&self) -> Option<usize> {
        self.overflow.begin_shrinking()
    }

    /// Retires the free ones among the next `buckets`; `true` if there are no more. The buckets in
    /// chains must be emptied afterwards, by [`move_overflow`](Self::move_overflow).
    pub(crate) fn sift_overflow(&self, buckets: usize) -> bool {
        self.overflow.sift(buckets)
    }

    /// `true` if all of these have been emptied, and none was needed in the meantime.
    pub(crate) fn is_without_overflow(&self) -> bool {
        self.overflow.has_retired_all()
    }

    /// Ends the retiring, if that is still so.
    pub(crate) fn end_without_overflow(&self) {
        self.overflow.end_shrinking();
    }

    /// Returns a part of their memory to the system, and returns the number of bytes; 0 if nothing
    /// is left.
    pub(crate) fn give_back_overflow(&self) -> u64 {
        (self.overflow.release() * BUCKET_BYTES) as u64
    }
}
