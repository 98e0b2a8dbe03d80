//! Growth: one bucket split at a time.
//!
//! A split fills the new bucket while no directory leads to it, publishes the directory, and then
//! clears the moved references from the old bucket. Between the last two steps they are in both,
//! which is harmless: writers wait for the stripe, and a lookup finds the same item either way.

use super::bucket::Bucket;
use super::directory::Directory;
use super::pool::Wanted;
use super::{Table, tag_of};
use arena::sync::Ordering;

/// Result of an attempt to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// Another thread is splitting.
    Busy,
    /// One bucket has been split.
    Done,
    /// The memory limit, or the overflow region, has no room. Nothing has changed.
    NoMemory,
    /// There are not enough items, or the table has its maximum size.
    NotNeeded,
}

/// Working memory of the one thread that splits.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    /// For each bucket of the chain being split, the slots whose items move, one bit each.
    moved: Vec<u16>,
}

impl Table {
    /// Splits the next bucket if the table wants to grow.
    ///
    /// `rehash` returns the hash of the item behind a reference. `grant` commits memory that comes
    /// into use for the first time; if it refuses, nothing is changed. Neither may touch the table.
    pub(crate) fn split_one(
        &self,
        rehash: impl FnMut(u32) -> u64,
        mut grant: impl FnMut(Wanted<'_>) -> bool,
    ) -> Split {
        if !self.wants_growth() {
            return Split::NotNeeded;
        }
        let Some(mut splitter) = self.splitter.try_lock() else { return Split::Busy };
        let buckets = self.buckets();
        if buckets == self.buckets.len() {
            // Another thread has made the last split since `wants_growth`.
            return Split::NotNeeded;
        }
        let granted = self.granted.load(Ordering::Relaxed);
        if buckets == granted {
            // The new bucket is the first beyond the memory that is paid for.
            match Wanted::behind(&self.buckets, granted) {
                Some(wanted) if grant(wanted) => {
                    self.granted.store(granted + wanted.len(), Ordering::Relaxed);
                }
                _ => return Split::NoMemory,
            }
        }
        self.split(&mut splitter.moved, rehash, &mut grant)
    }

    /// Splits the next bucket. The caller holds the splitter's lock, and the new bucket is in the
    /// region.
    fn split(
        &self,
        moved: &mut Vec<u16>,
        mut rehash: impl FnMut(u32) -> u64,
        grant: &mut impl FnMut(Wanted<'_>) -> bool,
    ) -> Split {
        // Relaxed: stored only under the splitter's lock.
        let directory = self.directory(Ordering::Relaxed);
        let (old, new) = (directory.next(), directory.buckets());
        let _stripe = self.stripe(old as u64).lock.lock();
        let (old, new) = (&self.buckets[old], &self.buckets[new]);
        moved.clear();
        for bucket in self.chain(old) {
            let mut mask = 0;
            for (slot, reference) in bucket.items() {
                let hash = rehash(reference);
                if !directory.moves(hash) {
                    // The item stays in the old bucket.
                    continue;
                }
                mask |= 1 << slot;
                if !self.append(new, tag_of(hash), reference, grant) {
                    // No overflow bucket: no lookup has seen the new chain, so it is undone.
                    self.discard(new);
                    return Split::NoMemory;
                }
            }
            moved.push(mask);
        }
        self.publish(directory.after_split(), old, new);
        for (bucket, mask) in self.chain(old).zip(moved.iter()) {
            (0..u16::BITS as usize)
                .filter(|slot| mask & (1 << slot) != 0)
                .for_each(|slot| bucket.clear(slot));
        }
        self.compact(old);
        Split::Done
    }

    /// Publishes the directory after a split of `old`, or a merge of `new` into it: the bucket that
    /// it leads to is complete, and the caller clears the other one afterwards.
    pub(super) fn publish(&self, directory: Directory, old: &Bucket, new: &Bucket) {
        // A lookup may see the same directory before a split and after the merge that undid it, or
        // vice versa. The count of moves shows it that its bucket changed.
        self.announce_move(old);
        self.announce_move(new);
        // Release: partner of the Acquires in `find`; the bucket is complete, and the moves are
        // announced.
        self.directory.store(directory.to_bits(), Ordering::Release);
        // Release: after the bucket's content, as above. A recovery that knows only this directory
        // finds the moved items in both buckets, since no thread writes to either before the stripe
        // is free. Partner: none in this process.
        self.recorded[0].store(directory.to_bits(), Ordering::Release);
    }

    /// The buckets of a chain, the home bucket first.
    pub(super) fn chain<'t>(&'t self, home: &'t Bucket) -> impl Iterator<Item = &'t Bucket> {
        std::iter::successors(Some(home), |bucket| Some(self.overflow.at(bucket.link()?)))
    }

    /// Empties a chain to which no directory leads.
    pub(super) fn discard(&self, home: &Bucket) {
        let mut next = home.link();
        (0..super::bucket::SLOTS).for_each(|slot| home.clear(slot));
        while let Some(index) = next {
            next = self.overflow.at(index).link();
            if let Ok(index) = u32::try_from(index) {
                self.overflow.give_back(index);
            }
        }
    }
}
