//! One bucket: a cache line of tags and references.
//!
//! Slot `i` holds a reference, or 0 when free. Lane `i` of the tags holds eight bits of its hash,
//! so that a lookup reads an item's line only when it is very likely the right one. The tag of a
//! free slot is the last one stored there. The last slot may hold a link to an overflow bucket in
//! place of a reference, marked by its top bit.
//!
//! Stores are made only under the stripe's lock, and every one of them is a Release: a lookup that
//! reads a stored value, and then acquires by its own load or by a fence, also sees all writes
//! before the store. Relaxed is enough for loads under the stripe's lock, and for a lookup's load
//! of the tags: the slot's Acquire or the fence of a miss follows it.
#![allow(unsafe_code, reason = "on the unsafe list in ARCHITECTURE.md")]

use arena::region::AnyBytes;
use arena::sync::{AtomicU32, Ordering};

/// Words of packed tags. Models use one, so that three items and a link fill a bucket.
const TAG_WORDS: usize = if cfg!(loom) { 1 } else { 3 };

/// Tags in a word.
const LANES: usize = 4;

/// Slots in a bucket.
pub(super) const SLOTS: usize = TAG_WORDS * LANES;

/// The slot that may hold a link.
pub(super) const LAST: usize = SLOTS - 1;

/// Marks the content of the last slot as the index of an overflow bucket.
const LINK: u32 = 1 << 31;

/// Memory of a bucket, for accounting.
pub(super) const BUCKET_BYTES: usize = 64;

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == BUCKET_BYTES && align_of::<Bucket>() == BUCKET_BYTES);

/// Twelve slots with their tags, and the count of relocations of the chain that starts here.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    /// In a home bucket, the relocations in its chain so far; in a free overflow bucket, the free
    /// list's link.
    pub(super) meta: AtomicU32,
    tags: [AtomicU32; TAG_WORDS],
    slots: [AtomicU32; SLOTS],
}

// SAFETY: made only of atomic integers, whose every bit pattern is a value.
unsafe impl AnyBytes for Bucket {}

/// `true` if the content of a slot is a reference: neither free nor a link.
#[inline]
fn is_item(content: u32) -> bool {
    content != 0 && content & LINK == 0
}

/// A word whose bytes that equal those of `pattern` have only their top bit set; others are 0.
#[inline]
fn equal_lanes(tags: u32, pattern: u32) -> u32 {
    const LOW: u32 = 0x7f7f_7f7f;
    let differ = tags ^ pattern;
    // Carries stay within a byte: the top bit of a sum shows that one of the lower seven differs.
    !(((differ & LOW) + LOW) | differ | LOW)
}

impl Bucket {
    /// The first item with this tag that `matches`: its slot and reference.
    #[inline]
    pub(super) fn find(
        &self,
        tag: u8,
        matches: &mut impl FnMut(u32) -> bool,
    ) -> Option<(usize, u32)> {
        let pattern = u32::from_le_bytes([tag; LANES]);
        for (word, tags) in self.tags.iter().enumerate() {
            let mut lanes = equal_lanes(tags.load(Ordering::Relaxed), pattern);
            while lanes != 0 {
                let slot = word * LANES + (lanes.trailing_zeros() / 8) as usize % LANES;
                lanes &= lanes - 1;
                // Acquire: partner of the Release in `put` and `replace`; the item's bytes are
                // visible.
                let content = self.slots[slot].load(Ordering::Acquire);
                if is_item(content) && matches(content) {
                    return Some((slot, content));
                }
            }
        }
        None
    }

    /// `true` if the slot holds exactly this item.
    #[inline]
    pub(super) fn holds(&self, slot: usize, reference: u32) -> bool {
        // Acquire: partner of the Release in `put` and `replace`; the item's bytes are visible.
        self.slots[slot].load(Ordering::Acquire) == reference
    }

    /// The index of the overflow bucket that follows.
    #[inline]
    pub(super) fn link(&self) -> Option<usize> {
        // Acquire: partner of the Release in `set_link`. `find`'s load of this slot has already
        // seen an item that was there before the link, so no model fails without this one; it keeps
        // a lookup from reading what an earlier user of the next bucket left there.
        let content = self.slots[LAST].load(Ordering::Acquire);
        (content & LINK != 0).then_some((content & !LINK) as usize)
    }

    /// Puts an overflow bucket into the last slot, in place of the item there, which the overflow
    /// bucket already holds.
    pub(super) fn set_link(&self, overflow: u32) {
        // Release: partner of the Acquire in `link`.
        self.slots[LAST].store(LINK | overflow, Ordering::Release);
    }

    /// Frees the last slot, which holds a link.
    pub(super) fn clear_link(&self) {
        debug_assert!(self.link().is_some(), "no link to clear");
        // Release: partner of the fence of a lookup that misses.
        self.slots[LAST].store(0, Ordering::Release);
    }

    /// The item in a slot. The caller holds the stripe's lock.
    pub(super) fn item(&self, slot: usize) -> Option<u32> {
        let content = self.slots[slot].load(Ordering::Relaxed);
        is_item(content).then_some(content)
    }

    /// The slots that hold an item. The caller holds the stripe's lock.
    pub(super) fn items(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        (0..SLOTS).filter_map(|slot| Some((slot, self.item(slot)?)))
    }

    /// The first free slot. The caller holds the stripe's lock.
    pub(super) fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.load(Ordering::Relaxed) == 0)
    }

    /// Free slots. The caller holds the stripe's lock.
    pub(super) fn free_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.load(Ordering::Relaxed) == 0).count()
    }

    /// The tag of a slot. The caller holds the stripe's lock.
    pub(super) fn tag(&self, slot: usize) -> u8 {
        self.tags[slot / LANES].load(Ordering::Relaxed).to_le_bytes()[slot % LANES]
    }

    /// Puts an item into a free slot.
    pub(super) fn put(&self, slot: usize, tag: u8, reference: u32) {
        debug_assert!(is_item(reference), "not a reference: {reference:#x}");
        let word = &self.tags[slot / LANES];
        let mut lanes = word.load(Ordering::Relaxed).to_le_bytes();
        lanes[slot % LANES] = tag;
        // Release: partner of the fence of a lookup that misses. This tag may turn a lookup away
        // without a load of the slot; that lookup must then see that its item has moved.
        word.store(u32::from_le_bytes(lanes), Ordering::Release);
        self.replace(slot, reference);
    }

    /// Exchanges the item in a slot for another with the same hash.
    pub(super) fn replace(&self, slot: usize, reference: u32) {
        // Release: partner of the Acquire in `find`.
        self.slots[slot].store(reference, Ordering::Release);
    }

    /// Frees a slot.
    pub(super) fn clear(&self, slot: usize) {
        // Release: partner of the fence of a lookup that misses.
        self.slots[slot].store(0, Ordering::Release);
    }

    /// Makes an empty bucket a copy of another, with its link. The caller holds the stripe's lock.
    pub(super) fn copy(&self, other: &Self) {
        other.items().for_each(|(slot, reference)| self.put(slot, other.tag(slot), reference));
        // Relaxed: see the header.
        let last = other.slots[LAST].load(Ordering::Relaxed);
        if last & LINK != 0 {
            self.set_link(last & !LINK);
        }
    }
}
