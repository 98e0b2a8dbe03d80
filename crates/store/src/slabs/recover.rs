//! Recovers pages and classes of a dead process: a chunk that no item holds is free.
//!
//! Relaxed is enough: each thread of the recovery works on separate pages, and ends before the
//! store is used.

use super::{ClassId, Slabs};
use crate::table::Marks;
use arena::ChunkRef;
use arena::budget::Budget;
use arena::chunks::{Arena, Shape};
use arena::sync::Ordering;
use narrow::to_u32;

/// The chunks of a dead process's pages that items or their pieces hold.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// The number of each page's first chunk, counted over all pages.
    first: Vec<usize>,
    held: Marks,
}

impl Slabs {
    /// Starts with the pages as they were left. `None` if they are inconsistent.
    pub(crate) fn begin_recovery(&self, arena: &Arena) -> Option<Chunks> {
        let is_touched = |&page: &usize| self.class_left(page) != Some(0);
        let touched = (0..self.page_class.len()).rev().find(is_touched);
        let touched = touched.map_or(0, |last| last + 1);
        let (mut first, mut chunks) = (Vec::with_capacity(touched), 0);
        for page in 0..touched {
            first.push(chunks);
            // A page that was leaving its class stays.
            let id = self.class_left(page)?;
            if id != 0 {
                arena.cut_into(page, self.class(id).chunk_bytes());
                chunks += self.class(id).per_page();
            }
        }
        Some(Chunks { first, held: Marks::new(chunks) })
    }

    /// The class of a chunk and its number over all pages; `None` if there is no such chunk.
    pub(crate) fn place(
        &self,
        arena: &Arena,
        chunks: &Chunks,
        chunk: ChunkRef,
    ) -> Option<(ClassId, usize)> {
        let page = chunk.checked_sub(1).map(|_| arena.page_of(chunk))?;
        let first = chunks.first.get(page)?;
        let id = self.page_class(page);
        let class = id.checked_sub(1).map(|_| self.class(id))?;
        let place = arena.place_of(chunk, class.chunk_bytes())?;
        (place < class.per_page()).then_some((id, first + place))
    }

    /// Gives the page its free chunks, or returns it to the system if all are free, and calls
    /// `item` with each item.
    pub(crate) fn recover_page(
        &self,
        arena: &Arena,
        chunks: &Chunks,
        page: usize,
        mut item: impl FnMut(ClassId, ChunkRef),
    ) {
        let id = self.page_class(page);
        let per_page = if id == 0 { 0 } else { self.class(id).per_page() };
        let first = chunks.first[page];
        if !(first..first + per_page).any(|number| chunks.held.is_set(number)) {
            self.page_class[page].store(0, Ordering::Relaxed);
            arena.release_page(page);
            self.pages.lock().returned.push(page);
            return;
        }
        let class = self.class(id);
        let chunk = |index: usize| arena.chunk(page, index, class.chunk_bytes());
        let (mut used, mut free) = (0, Vec::new());
        for index in 0..per_page {
            if !chunks.held.is_set(first + index) {
                free.push(chunk(index));
                continue;
            }
            used += 1;
            if arena.header(chunk(index)).shape() != Shape(Shape::PIECE) {
                item(id, chunk(index));
            }
        }
        self.pages_charged.fetch_add(1, Ordering::Relaxed);
        self.page_class[page].store(u32::from(id), Ordering::Relaxed);
        // A page holds at most 1 MiB / 8 B chunks.
        self.page_cut[page].store(to_u32(per_page), Ordering::Relaxed);
        // Locked only now: if most items are of one class, all processors work in it.
        let mut state = class.state.lock();
        state.pages.owned.push(page);
        state.used += used;
        for chunk in free {
            arena.header(chunk).pos.store(0, Ordering::Relaxed);
            state.link_free(arena, chunk);
        }
        class.used.store(state.used, Ordering::Relaxed);
    }

    /// Ends the recovery when every page has been recovered. Charges the pages in use.
    pub(crate) fn end_recovery(&self, arena: &Arena, chunks: &Chunks, budget: &Budget) {
        let mut pages = self.pages.lock();
        pages.untouched = chunks.pages();
        arena.release_pages(pages.untouched..self.page_class.len());
        // The file already has them.
        let _ = budget.take(self.bytes(), || true);
    }
}

impl Chunks {
    /// Pages that were ever used.
    pub(crate) fn pages(&self) -> usize {
        self.first.len()
    }

    /// Takes a chunk for an item; `false` if it was taken before.
    pub(crate) fn hold(&self, number: usize) -> bool {
        self.held.set(number)
    }

    /// Undoes a `hold`.
    pub(crate) fn let_go(&self, number: usize) {
        self.held.clear(number);
    }
}
