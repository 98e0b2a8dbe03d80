//! Changes of the table, all made under the lock of the hash's stripe.

use super::bucket::{Bucket, LAST};
use super::pool::Wanted;
use super::{SlotHint, Stripe, Table, tag_of};
use arena::sync::{MutexGuard, Ordering};

/// A hash whose stripe the holder has locked. Only the holder splits its bucket or changes its
/// items.
#[derive(Debug)]
pub(crate) struct Locked<'t> {
    table: &'t Table,
    stripe: &'t Stripe,
    home: &'t Bucket,
    hash: u64,
    _guard: MutexGuard<'t, ()>,
}

/// A slot and the reference found in it. It borrows the lock, so no insertion can move the
/// item away.
#[derive(Debug)]
pub(crate) struct SlotRef<'l> {
    bucket: &'l Bucket,
    slot: usize,
    in_overflow: bool,
    reference: u32,
}

impl SlotRef<'_> {
    /// The item in the slot.
    #[inline]
    pub(crate) fn reference(&self) -> u32 {
        self.reference
    }
}

impl<'t> Locked<'t> {
    #[inline]
    pub(super) fn new(
        table: &'t Table,
        hash: u64,
        stripe: &'t Stripe,
        guard: MutexGuard<'t, ()>,
    ) -> Self {
        // Relaxed: the thread that split this hash's bucket held the lock that the guard has just
        // acquired.
        let home = &table.buckets[table.directory(Ordering::Relaxed).bucket_of(hash)];
        Self { table, stripe, home, hash, _guard: guard }
    }

    /// The slot of the item that `matches`, among the items with this hash's tag in its chain.
    #[inline]
    pub(crate) fn find(&self, mut matches: impl FnMut(u32) -> bool) -> Option<SlotRef<'_>> {
        let (mut bucket, mut in_overflow) = (self.home, false);
        loop {
            if let Some((slot, reference)) = bucket.find(tag_of(self.hash), &mut matches) {
                return Some(SlotRef { bucket, slot, in_overflow, reference });
            }
            (bucket, in_overflow) = (self.table.overflow.at(bucket.link()?), true);
        }
    }

    /// Like [`find`](Self::find), but starts at the slot where the item was seen.
    #[inline]
    pub(crate) fn find_from(
        &self,
        hint: SlotHint,
        mut matches: impl FnMut(u32) -> bool,
    ) -> Option<SlotRef<'_>> {
        let SlotHint { bucket, slot, reference } = hint;
        let slot = usize::from(slot);
        if reference != 0
            && std::ptr::eq(self.home, &raw const self.table.buckets[bucket])
            && self.home.holds(slot, reference)
            && matches(reference)
        {
            return Some(SlotRef { bucket: self.home, slot, in_overflow: false, reference });
        }
        self.find(matches)
    }

    /// The slot that holds exactly this reference.
    #[inline]
    pub(crate) fn find_ref(&self, reference: u32) -> Option<SlotRef<'_>> {
        self.find(|candidate| candidate == reference)
    }

    /// Calls `f` for each item of the stripe.
    pub(crate) fn for_each(&self, mut f: impl FnMut(u32)) {
        // Of the buckets that a bucket of this stripe is split into, each has the stripe, too: the
        // directory may grow in the meantime, but not by one of these.
        let (first, step) = (self.table.stripe_number(self.hash), self.table.stripes());
        for home in (first..self.table.buckets()).step_by(step) {
            for bucket in self.table.chain(&self.table.buckets[home]) {
                bucket.items().for_each(|(_, reference)| f(reference));
            }
        }
    }

    /// Exchanges the item in a slot for another with the same key: one store.
    #[inline]
    pub(crate) fn replace(&self, slot: SlotRef<'_>, reference: u32) {
        debug_assert_eq!(slot.bucket.item(slot.slot), Some(slot.reference));
        slot.bucket.replace(slot.slot, reference);
    }

    /// Adds an item with this hash. The caller knows that none with its key is there.
    ///
    /// `false`, and nothing is changed, if it needs an overflow bucket and there is none: the
    /// region is used up, or `grant` has refused to commit more. `grant` must not touch the table.
    #[inline]
    #[must_use]
    pub(crate) fn insert(
        &mut self,
        reference: u32,
        mut grant: impl FnMut(Wanted<'_>) -> bool,
    ) -> bool {
        let is_inserted = self.table.append(self.home, tag_of(self.hash), reference, &mut grant);
        if is_inserted {
            self.table.count(self.stripe, 1);
        }
        is_inserted
    }

    /// Takes the item out of its slot.
    #[inline]
    pub(crate) fn remove(&self, slot: SlotRef<'_>) {
        debug_assert_eq!(slot.bucket.item(slot.slot), Some(slot.reference));
        slot.bucket.clear(slot.slot);
        // The home bucket's line is at hand, and that of an overflow bucket may not be.
        let has_room = || self.home.link().is_some() && self.home.free_count() > 1;
        if slot.in_overflow || has_room() {
            self.table.compact(self.home);
        }
        self.table.count(self.stripe, -1);
    }
}

/// Changes of a chain. The caller holds the stripe's lock, or no directory in use leads to the
/// chain yet.
impl Table {
    /// Puts an item into the chain's first free slot, or into a new overflow bucket at its end.
    #[inline]
    pub(super) fn append(
        &self,
        home: &Bucket,
        tag: u8,
        reference: u32,
        grant: &mut impl FnMut(Wanted<'_>) -> bool,
    ) -> bool {
        match home.free_slot() {
            Some(slot) => {
                // One store links the item.
                home.put(slot, tag, reference);
                true
            }
            None => self.append_behind(home, tag, reference, grant),
        }
    }

    /// The same behind a bucket that is full.
    #[inline(never)]
    fn append_behind<'t>(
        &'t self,
        mut full: &'t Bucket,
        tag: u8,
        reference: u32,
        grant: &mut impl FnMut(Wanted<'_>) -> bool,
    ) -> bool {
        loop {
            let Some(displaced) = full.item(LAST) else {
                // A full bucket whose last slot holds no item holds a link there.
                let Some(next) = full.link() else { return false };
                full = self.overflow.at(next);
                if let Some(slot) = full.free_slot() {
                    full.put(slot, tag, reference);
                    return true;
                }
                continue;
            };
            let Some(index) = self.overflow.take(grant) else { return false };
            // The chain's last bucket is full. Its last item moves into the new bucket before the
            // link takes its slot (law 4).
            let overflow = self.overflow.at(index as usize);
            overflow.put(0, full.tag(LAST), displaced);
            overflow.put(1, tag, reference);
            full.set_link(index);
            return true;
        }
    }

    /// Announces that items of the chain have been stored in new places. The caller clears their
    /// old places after this.
    pub(super) fn announce_move(&self, home: &Bucket) {
        // Release: partner of the first load of `meta` in `find`.
        let moves = home.meta.load(Ordering::Relaxed);
        home.meta.store(moves.wrapping_add(1), Ordering::Release);
    }

    /// The chain's last bucket if it is an overflow bucket: the bucket before it, and its index.
    fn tail<'t>(&'t self, home: &'t Bucket) -> Option<(&'t Bucket, u32)> {
        let (mut before, mut index) = (home, home.link()?);
        while let Some(next) = self.overflow.at(index).link() {
            (before, index) = (self.overflow.at(index), next);
        }
        Some((before, u32::try_from(index).ok()?))
    }

    /// Moves items forward to free slots and frees the overflow buckets at the chain's end that
    /// this empties.
    #[inline(never)]
    pub(super) fn compact(&self, home: &Bucket) {
        while let Some((before, index)) = self.tail(home) {
            let tail = self.overflow.at(index as usize);
            if self.free_before(home, tail) < tail.items().count() {
                // The buckets before it have no room for all of the tail.
                return;
            }
            let mut bucket = home;
            for (slot, reference) in tail.items() {
                let free = loop {
                    if let Some(free) = bucket.free_slot() {
                        break free;
                    }
                    let Some(next) = bucket.link() else { return };
                    bucket = self.overflow.at(next);
                };
                bucket.put(free, tail.tag(slot), reference);
            }
            self.drop_tail(home, before, index);
        }
    }

    /// Free slots in the chain ahead of its tail.
    fn free_before(&self, home: &Bucket, tail: &Bucket) -> usize {
        let (mut bucket, mut free) = (home, 0);
        while !std::ptr::eq(bucket, tail) {
            free += bucket.free_count();
            let Some(next) = bucket.link() else { break };
            bucket = self.overflow.at(next);
        }
        free
    }

    /// Frees the chain's last bucket. Its items are also elsewhere in the chain.
    fn drop_tail(&self, home: &Bucket, before: &Bucket, index: u32) {
        self.announce_move(home);
        before.clear_link();
        self.overflow.give_back(index);
    }
}
