//! Making room: which memory a store takes when its class has no free chunk, and how a page changes hands.
//!
//! A store asks in this order: a free chunk of its class; a page within the limit, or one that the cleaner moved to
//! the class (see `balance`); its class's oldest item; where there is none, a page of the class whose next victim is the oldest. So
//! no store is refused while anything can be evicted, whatever its size.
//!
//! Taking a page evicts the items of that page alone. They go through the same grace period as any other; the page
//! is free when the last of its chunks has come back.

use crate::item::Liveness;
use crate::lru::low;
use crate::memory::arena::{ChunkRef, Shape};
use crate::section::{Section, Verdict};
use crate::slabs::ClassId;
use crate::stats::Count;
use crate::sync::Ordering;
use crate::thread::ThreadState;
use std::rc::Rc;
use std::time::Duration;

/// Items evicted in one go, so that most stores find a free chunk waiting.
const BATCH: usize = 32;
/// Most bytes evicted in one go.
const BATCH_BYTES: usize = 128 << 10;
/// Rounds of eviction after which a store gives up.
const ROUNDS: usize = 64;
/// Times that a store looks whether the sections that keep unlinked memory have ended, before it evicts.
const WAITS: usize = 2000;
/// The first of these times it just offers its turn; later it sleeps.
const YIELDS: usize = 200;
/// A sleep: long enough for a thread that lost its processor to get it back.
const NAP: Duration = Duration::from_micros(100);
/// Naps for which a store waits while nothing at all can be evicted: some tens of milliseconds, in which any other thread
/// gets its processor back and ends its section.
const PATIENCE: usize = 300;
/// Pages looked at for the one that costs least.
const PAGES_SAMPLED: usize = 6;
/// What an item in use costs, in items that are not.
const YOUNG: usize = 16;

impl ThreadState {
    /// A chunk of the class, owned by the caller.
    pub(crate) fn take(self: &Rc<Self>, class: ClassId) -> Option<ChunkRef> {
        self.open_if_full(class);
        let (slabs, arena) = (&self.store.slabs, &self.store.arena);
        slabs.take(arena, class).or_else(|| self.take_slowly(class))
    }

    fn add_page(&self, class: ClassId) -> bool {
        let store = &*self.store;
        store.slabs.add_page(&store.arena, &store.budget, &store.qsbr, class)
    }

    #[cold]
    fn take_slowly(self: &Rc<Self>, class: ClassId) -> Option<ChunkRef> {
        let (slabs, arena) = (&self.store.slabs, &self.store.arena);
        let patience = if self.store.evict { PATIENCE } else { 2 };
        let (mut round, mut fruitless) = (0, 0);
        while round < ROUNDS && fruitless <= patience {
            if self.add_page(class)
                && let Some(chunk) = slabs.take(arena, class)
            {
                return Some(chunk);
            }
            if self.depth.get() > 0 {
                break;
            }
            // What is on its way back comes before what is still of use.
            self.adopt();
            self.settle();
            if let Some(chunk) = slabs.take(arena, class) {
                return Some(chunk);
            }
            if self.free_oldest_deleted() > 0 {
                continue;
            }
            if let Some(chunk) = self.wait_for(class) {
                return Some(chunk);
            }
            if self.make_room(class, round) {
                (round, fruitless) = (round + 1, 0);
            } else {
                // Others may hold all there is, as drafts or unlinked within their sections: these end.
                fruitless += 1;
                if self.store.evict {
                    std::thread::sleep(NAP);
                }
            }
        }
        self.count(class, Count::OutOfMemory, 1);
        None
    }

    /// Lets other threads end the sections that keep what was unlinked, as long as that promises a chunk. Evicting more would
    /// not help: it would wait for the same sections.
    fn wait_for(self: &Rc<Self>, class: ClassId) -> Option<ChunkRef> {
        let (slabs, arena) = (&self.store.slabs, &self.store.arena);
        for turn in 0..WAITS {
            let promising = self.has_retired()
                || self.is_mostly_retired(class)
                || slabs.has_page_on_its_way(class);
            if !promising {
                return None;
            }
            if turn < YIELDS {
                std::thread::yield_now();
            } else {
                std::thread::sleep(NAP);
            }
            self.adopt();
            self.settle();
            if let Some(chunk) = slabs.take(arena, class) {
                return Some(chunk);
            }
            if self.add_page(class) {
                return slabs.take(arena, class);
            }
        }
        None
    }

    /// Whether most chunks of the class are neither free nor linked: their grace periods wait for threads that do not run.
    fn is_mostly_retired(&self, class: ClassId) -> bool {
        if class >= self.store.slabs.largest() {
            return false; // Their chunks are no items of their own.
        }
        let used = self.store.slabs.class(class).used();
        used > 64 && self.store.counters.of_class(class, Count::Items) * 2 < used
    }

    /// Evicts from the class itself, or takes a page from another if it has nothing or got nowhere with its own; `false` if there
    /// is nothing that ever could be evicted.
    fn make_room(self: &Rc<Self>, class: ClassId, round: usize) -> bool {
        let own = self.next_victims(class).max_by_key(|victim| victim.age);
        let look_around = self.store.evict && (own.is_none() || round % 4 == 3);
        let other = look_around.then(|| self.oldest(class)).flatten();
        let stolen = other.is_some_and(|victim| self.take_page_from(victim.class, class));
        if !stolen && let Some(victim) = own {
            self.evict_own(class, victim.class);
        }
        own.is_some() && self.store.evict || other.is_some()
    }

    fn evict_own(self: &Rc<Self>, class: ClassId, list: ClassId) {
        self.count(class, Count::DirectReclaims, 1);
        let bytes = self.store.slabs.class(list).chunk_bytes;
        let want = if list == self.store.slabs.heads() {
            1
        } else {
            (BATCH_BYTES / bytes).clamp(1, BATCH)
        };
        self.evict(list, want);
    }

    /// Evicts what a chunk belongs to: the item in it, or the item of which it is a piece.
    pub(crate) fn evict_chunk(self: &Rc<Self>, section: &Section<'_>, chunk: ChunkRef) {
        let arena = &self.store.arena;
        let item = match arena.header(chunk).shape() {
            Shape(Shape::PIECE) => arena.head_of_piece(chunk).unwrap_or(0),
            _ => chunk,
        };
        if item == 0 || section.linked(item).is_none() {
            return;
        }
        let class = self.store.slabs.class_of(arena, item);
        self.with_linked(item, self.hash_of(item), |item| {
            if item.liveness() == Liveness::Live {
                self.count_evicted(class, item);
                self.count(class, Count::EvictedByMove, 1);
            } else {
                self.count(class, Count::Reclaimed, 1);
            }
            Verdict::Remove
        });
    }

    /// The page that costs least to give, of a few: that of the item that would be evicted next, and some others. A page
    /// costs its items, those used within the last `young` ticks most.
    pub(crate) fn page_to_give(self: &Rc<Self>, class: ClassId, young: u64) -> Option<usize> {
        let (slabs, arena) = (&self.store.slabs, &self.store.arena);
        let start = self.turn.replace(self.turn.get().wrapping_add(7));
        let victim = self.next_victims(class).max_by_key(|victim| victim.age);
        // Inside a section: the pages stay the class's, or no one's, until it ends.
        let _section = Section::open(self);
        let victims = victim.map(|victim| arena.page_of(victim.chunk));
        let victims = victims.filter(|&page| slabs.page_class(page) == class);
        let sample = slabs.sample_pages(class, PAGES_SAMPLED, start);
        victims
            .into_iter()
            .chain(sample)
            .map(|page| (self.page_load(class, page, young), page))
            .min()
            .map(|(_, page)| page)
    }

    /// Held chunks of a page, those that cannot be evicted counting for a whole page.
    fn page_load(&self, class: ClassId, page: usize, young: u64) -> usize {
        let (arena, slabs) = (&self.store.arena, &self.store.slabs);
        let tick = low(self.store.control().tick.load(Ordering::Relaxed));
        let kind = slabs.class(class);
        (0..slabs.cut_chunks(page))
            .map(|index| {
                let chunk = arena.chunk(page, index * kind.chunk_bytes);
                let header = arena.header(chunk);
                match header.shape() {
                    Shape(Shape::FREE) => 0,
                    Shape(Shape::DRAFT) => kind.per_page,
                    Shape(Shape::PIECE) => match arena.head_of_piece(chunk) {
                        Some(head) if self.is_evictable_head(head) => 1,
                        _ => kind.per_page,
                    },
                    _ if header.pos.load(Ordering::Relaxed) == 0 => kind.per_page / 8 + 1,
                    _ if u64::from(tick.wrapping_sub(Self::mark_of(header))) < young => YOUNG,
                    _ => 1,
                }
            })
            .sum()
    }

    fn is_evictable_head(&self, head: ChunkRef) -> bool {
        let linked = self.store.arena.header(head).pos.load(Ordering::Relaxed) != 0;
        linked && !self.is_pinned(head)
    }

    /// Gives memory back to the system until the budget fits; at most `pages` pages now. `true` if more is to be done.
    pub(crate) fn shrink(self: &Rc<Self>, pages: usize) -> bool {
        let store = &*self.store;
        for _ in 0..pages {
            if store.budget.excess() == 0 {
                return false;
            }
            if store.slabs.return_page(&store.arena, &store.budget, &store.qsbr) {
                continue;
            }
            let Some(victim) = self.oldest(0) else { return false };
            if !self.take_page_from(victim.class, 0) {
                return false;
            }
        }
        store.budget.excess() > 0
    }
}
