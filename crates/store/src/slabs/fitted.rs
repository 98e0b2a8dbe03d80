//! Fitted classes: chunk sizes that follow the observed item sizes.
//!
//! Neighbouring chunks of the regular classes differ by the factor of `-f`, so the items of a class
//! may be up to that much smaller than its chunks. If many items of a class have nearly the same
//! size, they get a separate class, whose chunks just hold them.
//!
//! A fitted class takes over the sizes up to its own from the class that had them. Existing items
//! stay where they are. Their pages move to the fitted class as they age, like those of any class.
//!
//! # Laws
//!
//! 1. The chunk size of a fitted class stands in [`Control`] before any thread can learn of the
//!    class, so that a start after a crash knows how the class's pages are cut.
//! 2. It changes only under the class's lock, when the class has had no page for a grace period: a
//!    section that saw a page of the class, and read the size after that, may read the page's
//!    headers.
//! 3. A thread that has looked its class up may be in no section, so the class may change before it
//!    takes a chunk. A thread that has a chunk checks that it is large enough
//!    (`allocate::take_for`): then the class has a page, and does not change.

use super::class::Class;
use super::{ClassId, Slabs, sizes};
use arena::chunks::{CHUNK_BYTES_MAX, HEADER};
use arena::control::{Control, FITTED_MAX};
use arena::names::ALIGNMENT;
use arena::qsbr::Qsbr;
use arena::sync::Ordering;
use narrow::to_u32;

/// A fitted class must save a 64th of the memory of the class that has its sizes,
const WORTH: usize = 64;
/// and this number of pages: each class has some that are partly used.
const PAGES_SAVED: usize = 4;
/// Minimum number of sizes by which a class is judged.
const SIZES_MIN: usize = 64;

/// Use of one of the [`FITTED_MAX`] classes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Slot {
    #[default]
    Unused,
    /// Sizes lead to it.
    InUse,
    /// No size leads to it.
    Leaving { seen_empty: Option<Emptied> },
}

/// A moment at which a class had no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Emptied {
    epoch: u64,
    /// Pages that the class had ever received.
    pages_given: u64,
}

/// All of them.
pub(super) type Slots = [Slot; FITTED_MAX];

impl Slabs {
    /// Opens a fitted class if that saves enough of the memory of class `id`; `seen` are the bytes
    /// of some of its items. `false` if it does not, or no more classes can be opened now. The
    /// caller is the cleaner.
    pub(crate) fn fit(
        &self,
        control: &Control,
        qsbr: &Qsbr,
        id: ClassId,
        seen: &mut [usize],
    ) -> bool {
        let chunk_bytes = self.class(id).chunk_bytes();
        let pages = self.pages_of(id);
        let widened =
            |size: usize| sizes::widened(self.page_bytes, size.max(self.chunk_bytes_least));
        let Some(bytes) = best_size(seen, chunk_bytes, pages, widened) else { return false };
        let mut slots = self.fitted.lock();
        let free = (0..FITTED_MAX).find(|&at| self.refit(at, &mut slots[at], bytes, qsbr));
        let Some(free) = free else {
            self.leave_one(&mut slots);
            return false;
        };
        // Relaxed: published with the sizes that lead to it.
        control.fitted[free].store(to_u32(bytes), Ordering::Relaxed);
        self.map_sizes(&slots);
        true
    }

    /// Opens the fitted classes that an earlier process left, except those with an invalid size.
    pub(crate) fn restore_fitted(&self, control: &Control) {
        let mut slots = self.fitted.lock();
        for (slot, bytes) in control.fitted.iter().enumerate() {
            let size = bytes.load(Ordering::Relaxed) as usize;
            let least = HEADER.max(self.chunk_bytes_least);
            if (least..CHUNK_BYTES_MAX).contains(&size) && size.is_multiple_of(ALIGNMENT) {
                self.fitted_class(slot).set_chunk_bytes(size, self.page_bytes);
                slots[slot] = Slot::InUse;
            } else {
                bytes.store(0, Ordering::Relaxed);
            }
        }
        self.map_sizes(&slots);
    }

    /// `true` if there is such a class now, and pages may be of it.
    pub(crate) fn is_open(&self, id: ClassId) -> bool {
        let slot = usize::from(id).checked_sub(self.first_fitted());
        match slot.and_then(|slot| self.fitted.lock().get(slot).copied()) {
            Some(slot) => !matches!(slot, Slot::Unused),
            None => (1..=self.count()).contains(&id),
        }
    }

    /// The id of the first fitted class. The regular ones precede them; that of heads follows them.
    fn first_fitted(&self) -> usize {
        usize::from(self.largest()) + 1
    }

    fn fitted_class(&self, slot: usize) -> &Class {
        &self.classes[self.first_fitted() - 1 + slot]
    }

    /// Gives the class of a slot this chunk size, if law 2 allows it.
    fn refit(&self, at: usize, slot: &mut Slot, bytes: usize, qsbr: &Qsbr) -> bool {
        let class = self.fitted_class(at);
        let state = class.state.lock();
        let pages_given = state.pages.given;
        let may_change = match slot {
            Slot::Unused => true,
            Slot::InUse => false,
            Slot::Leaving { seen_empty: Some(seen) } if seen.pages_given == pages_given => {
                qsbr.is_safe(seen.epoch)
            }
            Slot::Leaving { seen_empty } => {
                let now = Emptied { epoch: qsbr.epoch(), pages_given };
                *seen_empty = state.is_empty().then_some(now);
                false
            }
        };
        if may_change {
            class.set_chunk_bytes(bytes, self.page_bytes);
            *slot = Slot::InUse;
        }
        may_change
    }

    /// Starts to release a fitted class without a page, unless one is already leaving without one.
    fn leave_one(&self, slots: &mut Slots) {
        if slots.iter().any(|slot| matches!(slot, Slot::Leaving { seen_empty: Some(_) })) {
            return;
        }
        let is_idle = |at: &usize| {
            matches!(slots[*at], Slot::InUse) && self.fitted_class(*at).state.lock().is_empty()
        };
        if let Some(idle) = (0..FITTED_MAX).find(is_idle) {
            slots[idle] = Slot::Leaving { seen_empty: None };
            self.map_sizes(slots);
        }
    }

    /// Maps each size to the smallest chunks that hold it.
    fn map_sizes(&self, slots: &Slots) {
        let is_in_use = |id: &ClassId| match usize::from(*id).checked_sub(self.first_fitted()) {
            Some(slot) => matches!(slots.get(slot), Some(Slot::InUse)),
            None => true,
        };
        let ids = (1..self.heads()).filter(is_in_use);
        let map = sizes::class_by_size(ids.map(|id| (self.class(id).chunk_bytes(), id)).collect());
        for (entry, id) in self.class_by_size.iter().zip(map) {
            // Release: partner of the Acquire in `class_for`; the class's sizes are visible.
            entry.store(u32::from(id), Ordering::Release);
        }
    }
}

/// The chunk size that saves most if the items that fit into its chunks have them, and the others
/// stay in chunks of `chunk_bytes`, of which there are this number of pages. `None` if that is not
/// worth a class. `widened` makes a chunk size of the bytes of an item.
fn best_size(
    seen: &mut [usize],
    chunk_bytes: usize,
    pages: usize,
    widened: impl Fn(usize) -> usize,
) -> Option<usize> {
    seen.sort_unstable();
    let saved = |(at, &bytes): (usize, &usize)| {
        let size = widened(bytes);
        (chunk_bytes.saturating_sub(size) * (at + 1), size)
    };
    let (saved, size) = seen.iter().enumerate().map(saved).max()?;
    let all = chunk_bytes * seen.len();
    let is_worth_it = saved * WORTH >= all && saved * pages >= PAGES_SAVED * all;
    (seen.len() >= SIZES_MIN && is_worth_it).then_some(size)
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test stops where it fails")]
mod tests {
    use super::*;
    use crate::allocation::allocate;
    use crate::config::Config;
    use crate::store::Store;
    use std::sync::Arc;

    /// The size chosen among chunks that are multiples of eight.
    fn chosen(mut seen: Vec<usize>, chunk_bytes: usize) -> Option<usize> {
        best_size(&mut seen, chunk_bytes, 200, |bytes| bytes.next_multiple_of(8))
    }

    #[test]
    fn items_of_one_size_get_fitting_chunks() {
        assert_eq!(chosen(vec![1069; 100], 1144), Some(1072));
        assert_eq!(chosen(vec![1069; 10], 1144), None, "so few say nothing");
    }

    #[test]
    fn small_savings_create_no_class() {
        assert_eq!(chosen(vec![1128; 100], 1144), None);
        let few_pages = best_size(&mut [1072; 100], 1144, 40, |bytes| bytes);
        assert_eq!(few_pages, None);
    }

    #[test]
    fn the_size_that_saves_more_is_chosen() {
        let mixed = |small: usize| {
            let of = |at| if at < small { 1072 } else { 1136 };
            chosen((0..100).map(of).collect(), 1144)
        };
        assert_eq!(mixed(80), Some(1072));
        assert_eq!(mixed(20), None);
    }

    /// Law 2.
    #[test]
    fn a_class_changes_once_no_section_can_see_its_pages() {
        let (store, first) = refitted();
        assert_eq!(
            (store.slabs.class_for(600), store.slabs.class(first).chunk_bytes()),
            (first, 600)
        );
    }

    /// Law 3.
    #[test]
    fn a_chunk_too_small_after_its_class_shrank_is_returned() {
        let (store, looked_up_for_640) = refitted();
        let thread = &store.join().unwrap().thread;
        let chunk = allocate::take(thread, looked_up_for_640).unwrap();
        let held = |bytes| allocate::if_it_holds(thread, looked_up_for_640, chunk, bytes);
        assert_eq!(held(600), Some(chunk));
        assert_eq!(held(640), None, "it has 600 bytes");
        assert_eq!(allocate::take(thread, looked_up_for_640), Some(chunk), "it is free again");
    }

    /// A store, and a class fitted to 640 bytes, and then to 600 as soon as law 2 allowed it.
    fn refitted() -> (Arc<Store>, ClassId) {
        let config = Config { memory_bytes: 16 << 20, growth_factor: 2.0, ..Config::default() };
        let store = Store::new(config).unwrap();
        let (arena, budget, qsbr) = (&store.arena, &store.budget, &store.qsbr);
        let slabs = &store.slabs;
        let class = slabs.class_for(1000);
        let seen_by = |bytes: usize| slabs.fit(store.control(), qsbr, class, &mut [bytes; 100]);
        let grace = || (0..4).for_each(|_| _ = qsbr.try_advance());
        // As many pages as make a class worth it.
        for _ in 0..64 {
            assert!(slabs.add_page(arena, budget, qsbr, class));
            while slabs.take_to_move(arena, qsbr, class).is_some() {}
        }
        let sizes = (0..FITTED_MAX).map(|n| 640 + 8 * n);
        for bytes in sizes.clone() {
            assert!(seen_by(bytes), "{bytes}");
        }
        let first = slabs.class_for(640);
        assert!(!seen_by(600), "all are in use");
        assert_ne!(slabs.class_for(640), first, "no size leads to the one that leaves");
        assert!(!seen_by(600), "it has no page");
        let reader = store.join().unwrap();
        let section = reader.section();
        grace();
        assert!(!seen_by(600), "a section is open that began before");
        drop(section);
        // A thread that has looked the class up before gives it a page, and another takes it away.
        assert!(slabs.add_page(arena, budget, qsbr, first));
        let page = slabs.sample_pages(first, 1, 0)[0];
        assert!(slabs.drain(arena, qsbr, first, page, 0));
        reader.rest();
        grace();
        assert!(!seen_by(600), "it has had a page since");
        grace();
        assert!(seen_by(600));
        drop(reader);
        (store, first)
    }
}
