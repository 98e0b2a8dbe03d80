//! Page moves: one page leaves its class, and its items are evicted.
//!
//! The items go through the same grace period as any other; the page is free when the last of its
//! chunks has come back.

use crate::eviction::scan::count_evicted;
use crate::eviction::victim::next_victims;
use crate::item::Liveness;
use crate::linked::{ReadGuard, Verdict, hash_of, with_linked};
use crate::lru::recency;
use crate::memory::ChunkRef;
use crate::memory::arena::{Header, Shape};
use crate::slabs::ClassId;
use crate::stats::Count;
use crate::store::Store;
use crate::sync::Ordering;
use crate::thread::ThreadState;
use std::rc::Rc;

/// Pages looked at for the one that costs least.
const PAGES_SAMPLED: usize = 6;
/// Cost of an item in use, in items that are not.
const YOUNG: usize = 16;
/// Chunks emptied in one section.
pub(crate) const CHUNKS_PER_SECTION: usize = 64;

/// A page that is being emptied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageMove {
    class: ClassId,
    page: usize,
    next_chunk: usize,
}

impl PageMove {
    /// A move of a page that is draining already, from its first chunk on.
    pub(crate) fn of_draining(class: ClassId, page: usize) -> Self {
        Self { class, page, next_chunk: 0 }
    }

    /// Takes the cheapest page out of the class's use, for the class `to` (0: for all). Items used
    /// within the last `young` openings of bags count most. `None` if the class has no page to
    /// give.
    pub(crate) fn begin(
        thread: &Rc<ThreadState>,
        class: ClassId,
        to: ClassId,
        young: u64,
    ) -> Option<Self> {
        let store = &*thread.store;
        let page = cheapest_page(thread, class, young)?;
        store
            .slabs
            .drain(&store.arena, &store.qsbr, class, page, to)
            .then(|| Self::of_draining(class, page))
    }

    /// Evicts from the next `chunks` chunks of the page; `false` at its end.
    pub(crate) fn empty_some(&mut self, thread: &Rc<ThreadState>, chunks: usize) -> bool {
        let store = &*thread.store;
        let guard = ReadGuard::open(thread);
        // A page that is free may become another class's, but not before this section has ended.
        if store.slabs.page_class(self.page) != self.class {
            return false;
        }
        let cut = store.slabs.cut_chunks(self.page);
        let end = cut.min(self.next_chunk + chunks);
        for index in self.next_chunk..end {
            let at = index * store.slabs.class(self.class).chunk_bytes;
            evict_chunk(&guard, store.arena.chunk(self.page, at));
        }
        self.next_chunk = end;
        end < cut
    }

    /// Evicts from all chunks of the page.
    pub(crate) fn empty(mut self, thread: &Rc<ThreadState>) {
        while self.empty_some(thread, CHUNKS_PER_SECTION) {}
        thread.settle();
    }
}

/// Evicts the items of one page of the class and takes the page out of its use, for the class `to`
/// (0: for all). `false` if the class has no page to give.
pub(crate) fn take_page(thread: &Rc<ThreadState>, class: ClassId, to: ClassId) -> bool {
    let begun = PageMove::begin(thread, class, to, 0);
    if let Some(page_move) = begun {
        page_move.empty(thread);
    }
    begun.is_some()
}

/// Evicts the item that holds a chunk: the item in it, or the item of which it is a piece.
fn evict_chunk(guard: &ReadGuard<'_>, chunk: ChunkRef) {
    let thread = guard.thread;
    let store = &*thread.store;
    let item = match store.arena.header(chunk).shape() {
        Shape(Shape::PIECE) => store.arena.head_of_piece(chunk).unwrap_or(0),
        _ => chunk,
    };
    // Free, a draft, or in its grace period: it comes back by itself.
    if item == 0 || guard.linked(item).is_none() {
        return;
    }
    let class = store.slabs.class_of(&store.arena, item);
    with_linked(thread, item, hash_of(store, item), |item| {
        if item.liveness() == Liveness::Live {
            count_evicted(thread, class, item);
            thread.count(class, Count::EvictedByMove, 1);
        } else {
            thread.count(class, Count::Reclaimed, 1);
        }
        Verdict::Remove
    });
}

/// The page that costs least to give, of a few: the page of the class's next victim, and a sample.
fn cheapest_page(thread: &Rc<ThreadState>, class: ClassId, young: u64) -> Option<usize> {
    let store = &*thread.store;
    let start = thread.sample_start.replace(thread.sample_start.get().wrapping_add(7));
    let victim = next_victims(thread, class).max_by_key(|victim| victim.age);
    // Inside a section, so no page goes to another class until it ends.
    let _guard = ReadGuard::open(thread);
    // A chained victim's head is in a page of another class.
    let of_victim = victim
        .map(|victim| store.arena.page_of(victim.chunk))
        .filter(|&page| store.slabs.page_class(page) == class);
    let sample = store.slabs.sample_pages(class, PAGES_SAMPLED, start);
    of_victim
        .into_iter()
        .chain(sample)
        .map(|page| (page_cost(store, class, page, young), page))
        .min()
        .map(|(_, page)| page)
}

/// Cost of giving a page: one for each held chunk, more for items used within the last `young`
/// openings of bags, and a whole page for a chunk that cannot be evicted.
fn page_cost(store: &Store, class: ClassId, page: usize, young: u64) -> usize {
    let arena = &store.arena;
    // Relaxed: the cost is an estimate, and a chunk may change while it is made.
    let sizes = store.slabs.class(class);
    (0..store.slabs.cut_chunks(page))
        .map(|index| {
            let chunk = arena.chunk(page, index * sizes.chunk_bytes);
            let header = arena.header(chunk);
            match header.shape() {
                Shape(Shape::FREE) => 0,
                // Its writer holds it for as long as its client takes.
                Shape(Shape::DRAFT) => sizes.per_page,
                Shape(Shape::PIECE) => match arena.head_of_piece(chunk) {
                    Some(head) if is_evictable_head(store, head) => 1,
                    _ => sizes.per_page,
                },
                // Not linked: a draft with its key, or unlinked and soon free.
                _ if header.pos.load(Ordering::Relaxed) == 0 => sizes.per_page / 8 + 1,
                _ if young > 0 && is_young(store, header, young) => YOUNG,
                _ => 1,
            }
        })
        .sum()
}

/// `true` if the item was used after its bag closed, or that bag is one of the last `young`.
fn is_young(store: &Store, header: &Header, young: u64) -> bool {
    let Some((list, bag)) = store.bag_at(header.pos.load(Ordering::Relaxed)) else { return false };
    let (bag, tick) = (list.bag(bag), store.tick(list.id()));
    let mark = recency::mark_of(header.recency.load(Ordering::Relaxed));
    let age = store.openings().saturating_sub(bag.opened_at());
    age < young || bag.touched_tick(mark, tick).is_some()
}

fn is_evictable_head(store: &Store, head: ChunkRef) -> bool {
    let linked = store.arena.header(head).pos.load(Ordering::Relaxed) != 0;
    linked && !store.arena.is_pinned(head)
}
