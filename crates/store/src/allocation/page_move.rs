//! Page moves: one page leaves its class, and its items move to other pages of the class.
//!
//! An item that is worth keeping is copied into a free chunk. If there is none, the class's coldest
//! items are evicted for it, wherever they lie, at most as many as the page holds. So a page costs
//! the class its coldest items, as any eviction does, and not the items that happen to lie on the
//! page. The freed chunks go through the same grace period as any other; the page is free when the
//! last of them has come back.
//!
//! Pieces of a chained item move separately, each with one store in its chain. Two kinds of items
//! do not move and are evicted with their page. Pieces and pins refer to the head of a chained
//! item, so the class of heads gives only idle pages. An item that has found no room after a long
//! wait, because other threads take all freed chunks, must not keep the page for ever.

use crate::eviction::evict::evict;
use crate::eviction::scan::count_evicted;
use crate::eviction::victim::next_victim;
use crate::item::Liveness;
use crate::linked::{
    ReadGuard, Relocated, Verdict, hash_of, relocate, relocate_piece, with_linked,
};
use crate::lru::{BagList, recency};
use crate::slabs::ClassId;
use crate::stats::Count;
use crate::store::Store;
use crate::thread::ThreadState;
use arena::ChunkRef;
use arena::chunks::{Header, Shape};
use arena::sync::Ordering;
use narrow::to_usize;
use std::rc::Rc;

/// Pages examined to find the one that costs least.
const PAGES_SAMPLED: usize = 6;
/// Cost of an item in use, in unused items.
const YOUNG: usize = 16;
/// Chunks emptied under one order lock, so that no store waits long.
pub(crate) const CHUNKS_PER_SECTION: usize = 32;
/// Attempts of a move to find room before it evicts the rest of the page.
const PATIENCE: usize = 500;
/// Attempts to find room by a thread that can do nothing else in the meantime.
const YIELDS: usize = 200;

/// A page that is being emptied.
pub(crate) struct PageMove {
    thread: Rc<ThreadState>,
    class: ClassId,
    page: usize,
    next_chunk: usize,
    /// Chunks for the items of the page, owned by this move.
    spare: Vec<ChunkRef>,
    /// Failed attempts to find room.
    waits: usize,
}

/// State of a move after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There are more chunks.
    More,
    /// The next item needs a chunk, which comes when other threads have ended their sections.
    Waits,
    /// The page has no items, or belongs to another class.
    Over,
}

impl PageMove {
    /// A move of a page that is already draining, from its first chunk on.
    pub(crate) fn of_draining(thread: &Rc<ThreadState>, class: ClassId, page: usize) -> Self {
        let thread = Rc::clone(thread);
        Self { thread, class, page, next_chunk: 0, spare: Vec::new(), waits: 0 }
    }

    /// Takes the cheapest page out of the class's use, for the class `to` (0: for all). Items used
    /// within the last `young` bytes of turnover count most. `None` if the class has no page to
    /// give, or the store evicts nothing and the class has no room for the page's items.
    pub(crate) fn begin(
        thread: &Rc<ThreadState>,
        class: ClassId,
        to: ClassId,
        young: u64,
    ) -> Option<Self> {
        let store = &*thread.store;
        let (slabs, per_page) = (&store.slabs, store.slabs.class(class).per_page());
        if !store.evict && slabs.class_use(class).free < per_page as u64 {
            return None;
        }
        let page = cheapest_page(thread, class, young)?;
        slabs
            .drain(&store.arena, &store.qsbr, class, page, to)
            .then(|| Self::of_draining(thread, class, page))
    }

    /// Empties the next `chunks` chunks of the page.
    pub(crate) fn empty_some(&mut self, chunks: usize) -> Progress {
        let slabs = &self.thread.store.slabs;
        let last = slabs.cut_chunks(self.page).min(self.next_chunk.saturating_add(chunks));
        while self.next_chunk < last {
            let end = last.min(self.next_chunk + CHUNKS_PER_SECTION);
            match self.vacate_until(end) {
                Progress::Waits if self.find_room() => {}
                Progress::More => {}
                other => return other,
            }
        }
        if last < self.thread.store.slabs.cut_chunks(self.page) {
            Progress::More
        } else {
            Progress::Over
        }
    }

    /// Moves the items in the chunks before `end`, until one needs room.
    fn vacate_until(&mut self, end: usize) -> Progress {
        let store = &*self.thread.store;
        let list = store.list(self.class);
        // This lock guards the bags that the items are in, and stay in.
        let _order = list.order.lock();
        let guard = ReadGuard::open(&self.thread);
        // A page that is free may become another class's, but not before this section has ended.
        if store.slabs.page_class(self.page) != self.class {
            return Progress::Over;
        }
        while self.next_chunk < end {
            let chunk_bytes = store.slabs.class(self.class).chunk_bytes();
            let chunk = store.arena.chunk(self.page, self.next_chunk, chunk_bytes);
            if !vacate(&guard, list, chunk, &mut self.spare) {
                return Progress::Waits;
            }
            self.next_chunk += 1;
        }
        Progress::More
    }

    /// Takes free chunks of the class, and evicts its coldest items if there are none. `true` if
    /// the move can continue.
    fn find_room(&mut self) -> bool {
        let wanted = self.items_left();
        let evicts = self.thread.store.evict;
        // While memory is in a grace period, more evictions would not help sooner.
        let found = self.take_spare(wanted)
            || self.take_returned(wanted)
            || evicts && !self.thread.has_retired() && self.evict_for(wanted);
        self.waits += usize::from(!found);
        found
    }

    /// Evicts for all of these items, so that the move waits for one grace period. `true` if it
    /// need not wait for that.
    fn evict_for(&mut self, wanted: usize) -> bool {
        let mut left = wanted;
        while left > 0 {
            let freed = self.evict_coldest(left);
            if freed == 0 {
                break;
            }
            left = left.saturating_sub(freed);
        }
        self.take_returned(wanted)
    }

    /// Ends grace periods, and takes the chunks that they return.
    fn take_returned(&mut self, wanted: usize) -> bool {
        self.thread.adopt();
        self.thread.settle();
        self.take_spare(wanted)
    }

    /// Evicts the class's coldest items, or the coldest chained one that has pieces in it. Returns
    /// the approximate number of chunks that will become free.
    fn evict_coldest(&self, wanted: usize) -> usize {
        let slabs = &self.thread.store.slabs;
        let victim = next_victim(&self.thread, self.class);
        match victim {
            None => 0,
            Some(victim) if victim.class == self.class => {
                evict(&self.thread, self.class, wanted.min(CHUNKS_PER_SECTION))
            }
            Some(victim) => {
                let (pieces, heads) = (slabs.class(self.class), slabs.class(victim.class));
                let pieces_each = to_usize(pieces.used() / heads.used().max(1));
                evict(&self.thread, victim.class, 1) * pieces_each.max(1)
            }
        }
    }

    /// Approximate number of items on the rest of the page that need another chunk.
    fn items_left(&self) -> usize {
        let store = &*self.thread.store;
        let _guard = ReadGuard::open(&self.thread);
        if store.slabs.page_class(self.page) != self.class {
            return 0;
        }
        let chunk_bytes = store.slabs.class(self.class).chunk_bytes();
        let moves = |index: &usize| {
            let header = store.arena.header(store.arena.chunk(self.page, *index, chunk_bytes));
            // Relaxed: an estimate.
            let is_linked = header.pos.load(Ordering::Relaxed) != 0;
            let shape = header.shape();
            shape == Shape(Shape::PIECE) || is_linked && !shape.is_chained()
        };
        (self.next_chunk..store.slabs.cut_chunks(self.page)).filter(moves).count()
    }

    /// Takes free chunks of the class. `true` if there was one.
    fn take_spare(&mut self, wanted: usize) -> bool {
        let store = &*self.thread.store;
        let (arena, qsbr) = (&store.arena, &store.qsbr);
        let free = std::iter::from_fn(|| store.slabs.take_to_move(arena, qsbr, self.class));
        self.spare.extend(free.take(wanted));
        !self.spare.is_empty()
    }

    /// `true` if the move has waited too long for room.
    pub(crate) fn has_waited_long(&self) -> bool {
        self.waits > PATIENCE
    }

    /// Evicts the rest of the page. Does nothing if the store evicts nothing.
    pub(crate) fn evict_rest(&mut self) {
        let store = &*self.thread.store;
        let guard = ReadGuard::open(&self.thread);
        if store.slabs.page_class(self.page) != self.class {
            return;
        }
        for index in self.next_chunk..store.slabs.cut_chunks(self.page) {
            let chunk_bytes = store.slabs.class(self.class).chunk_bytes();
            evict_chunk(&guard, store.arena.chunk(self.page, index, chunk_bytes));
        }
    }
}

impl Drop for PageMove {
    fn drop(&mut self) {
        let store = &*self.thread.store;
        store.slabs.put(&store.arena, &store.qsbr, self.thread.slot, &self.spare);
    }
}

impl std::fmt::Debug for PageMove {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageMove").field("class", &self.class).field("page", &self.page).finish()
    }
}

/// Empties one page of the class at once and takes it out of the class's use, for the class `to`
/// (0: for all). `false` if the class has no page to give. The caller is in no section.
pub(crate) fn take_page(thread: &Rc<ThreadState>, class: ClassId, to: ClassId) -> bool {
    let Some(mut page_move) = PageMove::begin(thread, class, to, 0) else { return false };
    for _ in 0..YIELDS {
        match page_move.empty_some(usize::MAX) {
            Progress::Over => break,
            Progress::More | Progress::Waits => arena::sync::yield_now(),
        }
    }
    page_move.evict_rest();
    drop(page_move);
    thread.settle();
    true
}

/// Frees a chunk of the page: a live item moves to one of the `spare` chunks, a dead one goes.
/// `false` if a chunk is needed. The caller holds the order lock of the list of the page's class.
fn vacate(
    guard: &ReadGuard<'_>,
    list: &BagList,
    chunk: ChunkRef,
    spare: &mut Vec<ChunkRef>,
) -> bool {
    let store = &*guard.thread.store;
    let shape = store.arena.header(chunk).shape();
    if shape.is_chained() {
        return evict_chunk(guard, chunk);
    }
    let is_piece = shape == Shape(Shape::PIECE);
    // Free, a draft, or in its grace period: it comes back without help.
    if !is_piece && guard.linked(chunk).is_none() {
        return true;
    }
    let Some(to) = spare.pop() else { return false };
    let relocated =
        if is_piece { relocate_piece(guard, chunk, to) } else { relocate(guard, list, chunk, to) };
    match relocated {
        Relocated::Moved => true,
        Relocated::NotLinked => {
            spare.push(to);
            true
        }
        Relocated::NoRoom => {
            spare.push(to);
            evict_chunk(guard, chunk)
        }
    }
}

/// Evicts the item that holds a chunk: the item in it, or the item of which it is a piece. `false`
/// if the store evicts nothing.
fn evict_chunk(guard: &ReadGuard<'_>, chunk: ChunkRef) -> bool {
    let thread = guard.thread;
    let store = &*thread.store;
    let item = match store.arena.header(chunk).shape() {
        Shape(Shape::PIECE) => store.arena.head_of_piece(chunk).unwrap_or(0),
        _ => chunk,
    };
    // Free, a draft, or in its grace period: it comes back without help. The head that a piece
    // names may be a word of the item that was in the chunk before, and no chunk.
    if item == 0 || guard.noted(item).is_none() {
        return true;
    }
    let class = store.slabs.class_of(&store.arena, item);
    let verdict = with_linked(thread, item, hash_of(store, item), |item| {
        if item.liveness() != Liveness::Live {
            thread.count(class, Count::Reclaimed, 1);
            return Verdict::Remove;
        }
        if !store.evict {
            return Verdict::Stay;
        }
        count_evicted(thread, class, item, item.idle_secs());
        thread.count(class, Count::EvictedByMove, 1);
        Verdict::Remove
    });
    verdict != Some(Verdict::Stay)
}

/// The cheapest page to give, of a few: the page of the class's next victim, and a sample.
fn cheapest_page(thread: &Rc<ThreadState>, class: ClassId, young: u64) -> Option<usize> {
    let store = &*thread.store;
    let start = thread.next_sample(7);
    let victim = next_victim(thread, class);
    // Inside a section, so no page goes to another class until it ends.
    let _guard = ReadGuard::open(thread);
    // A chained victim's head is in a page of another class.
    let of_victim = victim
        .map(|victim| store.arena.page_of(victim.chunk))
        .filter(|&page| store.slabs.page_class(page) == class && !store.slabs.is_leaving(page));
    let sample = store.slabs.sample_pages(class, PAGES_SAMPLED, start);
    of_victim
        .into_iter()
        .chain(sample)
        .map(|page| (page_cost(store, class, page, young), page))
        .min()
        .map(|(_, page)| page)
}

/// Cost of giving a page: one for each held chunk, more for items used within the last `young`
/// bytes of turnover, and a whole page for a chunk that cannot be evicted.
fn page_cost(store: &Store, class: ClassId, page: usize, young: u64) -> usize {
    let arena = &store.arena;
    // Relaxed: the cost is an estimate, and a chunk may change while it is made.
    let sizes = store.slabs.class(class);
    (0..store.slabs.cut_chunks(page))
        .map(|index| {
            let chunk = arena.chunk(page, index, sizes.chunk_bytes());
            let header = arena.header(chunk);
            match header.shape() {
                Shape(Shape::FREE | Shape::KEPT) => 0,
                // Its writer holds it as long as its client needs.
                Shape(Shape::DRAFT) => sizes.per_page(),
                Shape(Shape::PIECE) => match arena.head_of_piece(chunk) {
                    Some(head) if is_evictable_head(store, head) => 1,
                    _ => sizes.per_page(),
                },
                // Not linked: a draft with its key, or unlinked and soon free.
                _ if header.pos.load(Ordering::Relaxed) == 0 => sizes.per_page() / 8 + 1,
                _ if young > 0 && is_young(store, header, young) => YOUNG,
                _ => 1,
            }
        })
        .sum()
}

/// `true` if the item was used after its bag closed, or that bag was opened within the last `young`
/// bytes of turnover.
fn is_young(store: &Store, header: &Header, young: u64) -> bool {
    let Some((list, bag)) = store.bag_at(header.pos.load(Ordering::Relaxed)) else { return false };
    let (bag, tick) = (list.bag(bag), store.tick(list.id()));
    let mark = recency::mark_of(header.recency.load(Ordering::Relaxed));
    let age = store.turnover().saturating_sub(bag.opened_at());
    store.tuning.age_of(bag.part(), age) < young || bag.touched_tick(mark, tick).is_some()
}

fn is_evictable_head(store: &Store, head: ChunkRef) -> bool {
    let linked = store.arena.header(head).pos.load(Ordering::Relaxed) != 0;
    linked && !store.arena.is_pinned(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::allocate::take_for;
    use crate::{Change, Config, NewItem};

    /// A move whose thread is preempted keeps its page, which holds the coldest item, and no other
    /// page.
    #[test]
    fn a_store_takes_a_page_during_a_stalled_move() {
        let store = Store::new(Config { memory_bytes: 2 << 20, ..Config::default() }).unwrap();
        let (me, other) = (store.join().unwrap(), store.join().unwrap());
        me.begin_turn(1);
        for number in 0_u32.. {
            if store.stats().evictions > 0 {
                break;
            }
            let (key, value_len) = (number.to_le_bytes(), 12_000);
            let new = NewItem {
                key: &key,
                flags: 0,
                deadline: 0,
                value_len,
                base64_key: false,
                has_cas: false,
            };
            let mut draft = me.draft(new).unwrap();
            draft.push(&[b'v'; 12_000]).unwrap();
            me.section().update(store.hash(&key), &key, |_| Change::Put { draft, cas: None });
            me.quiesce();
        }
        let full = store.slabs.class_for(24 + 4 + 12_000);
        let stopped = PageMove::begin(&other.thread, full, 0, 0).unwrap();
        other.rest();
        let coldest = next_victim(&me.thread, full).unwrap();
        assert_eq!(store.arena.page_of(coldest.chunk), stopped.page, "else nothing is shown");
        assert!(take_for(&me.thread, 100).is_some());
        drop(stopped);
    }
}
