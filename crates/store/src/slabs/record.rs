//! Pages and classes in the record of a clean end. Each page's class, and the lists of free chunks,
//! are already in the file.
//!
//! Relaxed is enough: no other thread uses the store while it is saved or loaded.

use super::Slabs;
use super::class::{ClassPages, ClassState, Draining};
use super::free_pages::{FreePage, FreePages};
use arena::ChunkRef;
use arena::budget::Budget;
use arena::chunks::Arena;
use arena::codec::{Reader, Writer};
use arena::sync::Ordering;

/// The number after the head of each free list. Earlier builds wrote the list's length there; the
/// place is kept so that their files stay readable.
const UNUSED: u64 = 0;

impl Slabs {
    pub(crate) fn save(&self, out: &mut Writer) {
        let pages = self.pages.lock();
        out.count(pages.untouched);
        let cut = |page: usize| u64::from(self.page_cut[page].load(Ordering::Relaxed));
        out.numbers((0..pages.untouched).map(cut));
        out.numbers(pages.resident.iter().map(|free| free.page as u64));
        out.numbers(pages.returned.iter().map(|&page| page as u64));
        drop(pages);
        out.number(self.pages_charged.load(Ordering::Relaxed));
        for class in &self.classes {
            class.state.lock().save(out);
        }
    }

    /// Loads the output of `save`, and charges the pages. `None` if it is invalid.
    pub(crate) fn load(
        &self,
        input: &mut Reader<'_>,
        arena: &Arena,
        budget: &Budget,
    ) -> Option<()> {
        let mut pages = self.pages.lock();
        let untouched = input.index(self.page_class.len() + 1)?;
        for (page, saved) in input.numbers()?.into_iter().take(untouched).enumerate() {
            self.page_cut[page].store(saved, Ordering::Relaxed);
            let id = self.class_left(page)?;
            if id != 0 {
                arena.cut_into(page, self.class(id).chunk_bytes());
            }
        }
        *pages = FreePages {
            untouched,
            resident: input.numbers()?.into_iter().map(FreePage::at_start).collect(),
            returned: input.numbers()?,
        };
        let touched = pages.untouched;
        if pages.resident.iter().any(|free| free.page >= touched)
            || pages.returned.iter().any(|&page| page >= touched)
        {
            return None;
        }
        let charged = input.index(touched + 1)? as u64;
        self.pages_charged.store(charged, Ordering::Relaxed);
        // The file already has them.
        let _ = budget.take(charged * self.page_bytes(), || true);
        for (class, id) in self.classes.iter().zip(1..) {
            let state = ClassState::load(input, touched, class.per_page())?;
            if !self.is_open(id) && !state.pages.owned.is_empty() {
                return None;
            }
            class.used.store(state.used, Ordering::Relaxed);
            *class.state.lock() = state;
        }
        Some(())
    }

    /// Bytes of the arena that have been in use.
    pub(crate) fn touched_bytes(&self) -> u64 {
        (self.pages_touched() * self.page_bytes) as u64
    }
}

impl ClassState {
    fn save(&self, out: &mut Writer) {
        out.number(u64::from(self.free_head));
        out.number(UNUSED);
        let (page, next) = self.cutting.map_or((0, 0), |(page, next)| (page + 1, next));
        out.count(page);
        out.count(next);
        out.numbers(self.pages.owned.iter().map(|&page| page as u64));
        out.number(self.used);
        out.numbers(self.pages.leaving.iter().map(|draining| draining.page as u64));
        out.numbers(self.pages.leaving.iter().map(|draining| draining.held as u64));
    }

    fn load(input: &mut Reader<'_>, pages: usize, per_page: usize) -> Option<Self> {
        let free_head = input.small::<ChunkRef>()?;
        let _unused = input.number()?;
        let cutting = (input.index(pages + 1)?, input.index(per_page + 1)?);
        let owned: Vec<usize> = input.numbers()?;
        let used = input.number()?;
        let draining = input.numbers::<usize>()?.into_iter().zip(input.numbers()?);
        // The class that it was promised to may no longer need it.
        let draining =
            draining.map(|(page, held)| Draining { page, held, promised_to: 0 }).collect();
        let state = Self {
            free_head,
            cutting: cutting.0.checked_sub(1).map(|page| (page, cutting.1)),
            used,
            pages: Box::new(ClassPages { owned, given: 0, leaving: draining }),
        };
        state.pages.owned.iter().all(|&page| page < pages).then_some(state)
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test stops where it fails")]
mod tests {
    use super::super::LEAVING;
    use super::*;
    use crate::allocation::allocate;
    use crate::config::Config;
    use crate::store::Store;

    #[test]
    fn a_record_with_the_length_of_a_free_list_is_readable() {
        let state = ClassState { free_head: 7, used: 9, ..ClassState::default() };
        let mut record = Writer::default();
        state.save(&mut record);
        record.bytes[8..16].copy_from_slice(&3u64.to_le_bytes());
        let loaded = ClassState::load(&mut Reader::new(&record.bytes), 1, 1).unwrap();
        assert_eq!((loaded.free_head, loaded.used), (7, 9));
    }

    /// A damaged file may contain any page numbers. The fuzz target `restart_image` found it.
    #[test]
    fn a_page_with_an_unknown_class_is_damage() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
        let slabs = &store.slabs;
        allocate::take(&store.join().unwrap().thread, 1).unwrap();
        let mut record = Writer::default();
        slabs.save(&mut record);
        let load = |class: u32| {
            slabs.page_class[0].store(class, Ordering::Relaxed);
            slabs.load(&mut Reader::new(&record.bytes), &store.arena, &store.budget).is_some()
        };
        let unknown = u32::from(slabs.count()) + 1;
        let damaged = [unknown, 512 + 1, (1 << 16) + 1, u32::MAX];
        for class in damaged {
            assert!(!load(class), "{class} at a clean end");
            assert!(slabs.begin_recovery(&store.arena).is_none(), "{class} after a crash");
        }
        assert!(load(1) && load(LEAVING + 1), "as it was, and on its way out");
    }
}
