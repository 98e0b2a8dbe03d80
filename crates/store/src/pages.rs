//! Making room: which memory a store takes when its class has no free chunk, and how a page changes hands.
//!
//! A store asks in this order: a free chunk of its class; a page within the limit; its class's oldest
//! item; a page of the class whose oldest item is older still. So no store is refused while anything can be
//! evicted, whatever its size, and no class keeps memory that another needs more.
//!
//! Taking a page evicts the items of that page alone. They go through the same grace period as any other; the page
//! is free when the last of its chunks has come back.

use crate::arena::{ChunkRef, Shape};
use crate::participant::Local;
use crate::section::{Section, Verdict};
use crate::slab::ClassId;
use crate::stats::Count;
use crate::sync::Ordering;
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
/// Evictions between two looks at the other classes' ages.
const TURNS_PER_LOOK: usize = 16;
/// Pages looked at for the emptiest.
const PAGES_SAMPLED: usize = 6;

impl Local {
    /// A chunk of the class, owned by the caller.
    pub(crate) fn take(self: &Rc<Self>, class: ClassId) -> Option<ChunkRef> {
        self.open_if_full(class);
        let (slabs, arena) = (&self.store.slabs, &self.store.arena);
        slabs.take(arena, class).or_else(|| self.take_slowly(class))
    }

    #[cold]
    fn take_slowly(self: &Rc<Self>, class: ClassId) -> Option<ChunkRef> {
        let (slabs, arena) = (&self.store.slabs, &self.store.arena);
        let patience = if self.store.evict { PATIENCE } else { 2 };
        let (mut round, mut fruitless) = (0, 0);
        while round < ROUNDS && fruitless <= patience {
            if slabs.add_page(arena, &self.store.budget, &self.store.qsbr, class)
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
            let promising =
                self.has_retired() || self.is_mostly_retired(class) || slabs.has_page_on_its_way();
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
            if slabs.add_page(arena, &self.store.budget, &self.store.qsbr, class) {
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

    /// Evicts from the class itself or takes a page from another; `false` if there is nothing that ever could be evicted.
    fn make_room(self: &Rc<Self>, class: ClassId, round: usize) -> bool {
        let own = self.lists_of(class).max_by_key(|&(_, age)| age);
        let turn = self.turn.replace(self.turn.get().wrapping_add(1));
        // Other classes are looked at now and then, or when this one alone does not do.
        let look_around = own.is_none() || round > 0 || turn.is_multiple_of(TURNS_PER_LOOK);
        let other = (self.store.evict && look_around).then(|| self.victim(class)).flatten();
        // A class whose own items are clearly younger than another's oldest gets a page; so does one that has none, or
        // one that got nowhere with its own.
        let steal = match (own, other) {
            (None, Some(_)) => true,
            (Some((_, age)), Some((_, oldest))) => round % 4 == 3 || u64::from(age) * 2 < oldest,
            (_, None) => false,
        };
        let stolen = match other {
            Some((victim, _)) if steal => self.take_page_from(victim),
            _ => false,
        };
        if !stolen && let Some((list, _)) = own {
            self.evict_own(class, list);
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

    /// The bag lists whose items hold chunks of this class, with the age of their oldest item in ticks.
    fn lists_of(&self, class: ClassId) -> impl Iterator<Item = (ClassId, u32)> {
        let slabs = &self.store.slabs;
        let heads = slabs.heads();
        let pieces = (class == slabs.largest()).then_some(heads);
        let age = |list: ClassId| self.store.oldest_age(list).map(|age| (list, age));
        [Some(class), pieces].into_iter().flatten().filter_map(age)
    }

    /// The class from which a page should be taken for `class`, and how old its oldest item is, in ticks.
    fn victim(&self, class: ClassId) -> Option<(ClassId, u64)> {
        let slabs = &self.store.slabs;
        let chains_age = self.store.oldest_age(slabs.heads());
        (1..=slabs.count())
            .filter(|&other| other != class && slabs.pages_of(other) > 0)
            .filter_map(|other| {
                let held = slabs.class_use(other);
                if held.free >= slabs.class(other).per_page as u64 {
                    return Some((other, u64::from(u32::MAX) + held.free)); // A page's worth lies idle.
                }
                let own = self.store.oldest_age(other);
                let age = own.max(chains_age.filter(|_| own.is_none() || other == slabs.largest()));
                age.map(|age| (other, u64::from(age)))
            })
            .max_by_key(|&(_, age)| age)
    }

    /// Evicts the items of one page of the class and takes the page out of its use.
    pub(crate) fn take_page_from(self: &Rc<Self>, class: ClassId) -> bool {
        let Some(page) = self.emptiest_page(class) else { return false };
        let store = &*self.store;
        let cut = store.slabs.cut_chunks(page);
        if !store.slabs.drain(&store.arena, &store.qsbr, class, page) {
            return false;
        }
        let chunk_bytes = store.slabs.class(class).chunk_bytes;
        for first in (0..cut).step_by(64) {
            let section = Section::open(self);
            // Once it is free it may become another class's, when this section has ended.
            if store.slabs.page_class(page) != class {
                break;
            }
            for index in first..cut.min(first + 64) {
                self.evict_chunk(&section, store.arena.chunk(page, index * chunk_bytes));
            }
            drop(section);
        }
        self.settle();
        true
    }

    /// Evicts what a chunk belongs to: the item in it, or the item of which it is a piece.
    fn evict_chunk(self: &Rc<Self>, section: &Section<'_>, chunk: ChunkRef) {
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
            self.count_evicted(class, item);
            Verdict::Remove
        });
    }

    /// The page with the fewest items, of a few; pages that hold drafts or pinned pieces are avoided.
    fn emptiest_page(self: &Rc<Self>, class: ClassId) -> Option<usize> {
        let slabs = &self.store.slabs;
        let start = self.turn.replace(self.turn.get().wrapping_add(7));
        // Inside a section: the pages stay the class's, or no one's, until it ends.
        let _section = Section::open(self);
        slabs
            .sample_pages(class, PAGES_SAMPLED, start)
            .into_iter()
            .map(|page| (self.page_load(class, page), page))
            .min()
            .map(|(_, page)| page)
    }

    /// Held chunks of a page, those that cannot be evicted counting for a whole page.
    fn page_load(&self, class: ClassId, page: usize) -> usize {
        let (arena, slabs) = (&self.store.arena, &self.store.slabs);
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
            let Some((victim, _)) = self.victim(0) else { return false };
            if !self.take_page_from(victim) {
                return false;
            }
        }
        store.budget.excess() > 0
    }
}
