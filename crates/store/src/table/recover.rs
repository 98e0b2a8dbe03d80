//! Recovers a table that a dead process left. The table alone defines which items are linked.
//!
//! A dead process leaves every store that it made, in order; so at any moment a lookup by the
//! recorded directory would have found each item. It may also leave: an item that is both in the
//! bucket being split and in the new one, or twice in one chain; a new bucket to which no directory
//! leads; overflow buckets to which no link leads. The recovery recognises them by a reference's
//! hash, by its second occurrence, and by the missing link.
//!
//! Relaxed is enough: each thread works on separate buckets, and the end of the recovery orders its
//! work before the store is used.

use super::bucket::{Bucket, SLOTS};
use super::pool::Pool;
use super::{STEP_BUCKETS, Table, tag_of};
use arena::region::Region;
use arena::sync::{AtomicU64, Ordering};
use std::ops::Range;

/// The store's knowledge of the references that a table finds.
pub(crate) trait Judge {
    /// Hash of the key of the whole item there; `None` if there is none.
    fn hash(&mut self, reference: u32) -> Option<u64>;
    /// `true` if the reference should be kept: a live item, met for the first time.
    fn claim(&mut self, reference: u32) -> bool;
    /// An item's reference was met where its key does not belong.
    fn misplaced(&mut self);
    /// The reference will be checked soon.
    fn prefetch(&self, reference: u32);
}

/// Numbers met so far.
#[derive(Debug)]
pub(crate) struct Marks {
    words: Vec<AtomicU64>,
}

/// Buckets ahead of which items are fetched.
const AHEAD: usize = 3;

impl Marks {
    pub(crate) fn new(len: usize) -> Self {
        Self { words: (0..len.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Marks a number; `false` if it was marked before.
    pub(crate) fn set(&self, index: usize) -> bool {
        let bit = 1 << (index % 64);
        self.words[index / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    pub(crate) fn clear(&self, index: usize) {
        self.words[index / 64].fetch_and(!(1 << (index % 64)), Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self, index: usize) -> bool {
        self.words[index / 64].load(Ordering::Relaxed) & 1 << (index % 64) != 0
    }
}

impl Table {
    /// Starts with the recorded directory; `None` if it is invalid.
    pub(crate) fn begin_recovery(&self) -> Option<Marks> {
        self.set_directory(self.recorded[0].load(Ordering::Relaxed))?;
        Some(Marks::new(self.overflow.buckets.len()))
    }

    /// Keeps in these home buckets, and in their chains, the items that `judge` knows. Returns
    /// their number.
    pub(crate) fn recover(
        &self,
        homes: Range<usize>,
        reached: &Marks,
        judge: &mut impl Judge,
    ) -> usize {
        let mut items = 0;
        for home in homes.clone() {
            if home + AHEAD < homes.end {
                self.buckets[home + AHEAD].items().for_each(|(_, item)| judge.prefetch(item));
            }
            let mut bucket = &self.buckets[home];
            loop {
                items += self.recover_bucket(home, bucket, judge);
                let Some(next) = bucket.link() else { break };
                if next >= self.overflow.buckets.len() || !reached.set(next) {
                    bucket.clear_link();
                    break;
                }
                bucket = self.overflow.at(next);
            }
        }
        items
    }

    fn recover_bucket(&self, home: usize, bucket: &Bucket, judge: &mut impl Judge) -> usize {
        let directory = self.directory(Ordering::Relaxed);
        let mut kept = 0;
        for (slot, reference) in bucket.items() {
            let hash = judge.hash(reference);
            let is_here = hash.is_some_and(|hash| {
                directory.bucket_of(hash) == home && tag_of(hash) == bucket.tag(slot)
            });
            if is_here && judge.claim(reference) {
                kept += 1;
                continue;
            }
            if hash.is_some() && !is_here {
                judge.misplaced();
            }
            bucket.clear(slot);
        }
        kept
    }

    /// Ends with this many items kept: buckets to which no directory and no link leads are free.
    pub(crate) fn end_recovery(&self, items: usize, reached: &Marks) -> Option<()> {
        let granted = clear_from(&self.buckets, self.buckets())?;
        self.granted.store(granted, Ordering::Relaxed);
        self.items.store(i64::try_from(items).ok()?, Ordering::Relaxed);
        self.overflow.end_recovery(reached)
    }
}

impl Pool {
    fn end_recovery(&self, reached: &Marks) -> Option<()> {
        let used = (0..self.buckets.len()).rev().find(|&index| reached.is_set(index));
        let used = used.map_or(0, |last| last + 1);
        let granted = clear_from(&self.buckets, used)?;
        let mut list = self.list.lock();
        (list.first, list.used, list.granted) = (0, used, granted);
        self.granted.store(granted, Ordering::Relaxed);
        drop(list);
        for index in (0..used).filter(|&index| !reached.is_set(index)) {
            self.give_back(u32::try_from(index).ok()?);
        }
        Some(())
    }
}

/// Resets all buckets from `used` on. Returns the number of buckets paid for; `None` if there is no
/// room for them.
fn clear_from(buckets: &Region<Bucket>, used: usize) -> Option<usize> {
    let granted = used.next_multiple_of(STEP_BUCKETS).min(buckets.len());
    if granted < buckets.len() {
        buckets.release(granted, buckets.len() - granted);
    }
    if granted > 0 && !buckets.commit(0, granted) {
        return None;
    }
    for index in used..granted {
        (0..SLOTS).for_each(|slot| buckets[index].clear(slot));
    }
    Some(granted)
}
