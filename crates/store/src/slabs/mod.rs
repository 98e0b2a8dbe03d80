//! Slab pages and classes: the free chunks.
//!
//! A page belongs to no class or to one; a class cuts its pages into chunks of one size. A page is
//! taken out of use by [`drain`](Slabs::drain): its free chunks are unlinked at once, and chunks
//! that come back later are counted, not listed. With the last one the page is free for any class
//! after a grace period: a thread that walks over a page inside a section, and has seen its class,
//! may go on reading headers where that class has its chunks.
//!
//! A storing thread keeps a few free chunks of each class (see [`arena::kept`] and [`threads`]).
//! For the class, these chunks are in use.
//!
//! [`Slabs`] has its methods in five files: pages here, chunks for working threads in `chunks`,
//! chunk sizes that follow the items in `fitted`, exclusive use at a clean end and after a crash in
//! `record` and `recover`.
//!
//! # Locks
//!
//! A thread's list, then a class, then the free pages. No thread holds two lists. The lock of the
//! fitted classes comes before a class.
//!
//! # Orderings
//!
//! `page_class` and `page_cut` are published with Release, so that a walk never reads other bytes
//! as a header. So is `class_by_size`, with the chunk sizes of new classes. Everything else is
//! Relaxed: changed under a lock, or a number for statistics. A page's leaving is announced before
//! the lists of the threads are searched, and checked under their locks.

pub(crate) mod balance_settings;
mod chunks;
mod class;
mod fitted;
mod free_pages;
#[cfg(not(miri))]
mod record;
#[cfg(not(miri))]
mod recover;
mod sizes;
mod threads;

#[cfg(not(miri))]
pub(crate) use recover::Chunks;

use crate::config::{Config, Layout};
use arena::ChunkRef;
use arena::budget::Budget;
use arena::chunks::{Arena, CHUNK_BYTES_MAX, Shape};
use arena::control::FITTED_MAX;
use arena::qsbr::Qsbr;
use arena::region::Region;
use arena::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use class::{Class, ClassUse, Draining};
use fitted::Slots;
pub(crate) use free_pages::NEEDY;
use free_pages::{FreePages, Taker};
use threads::KeptByThreads;

/// A slab class: 1 is the smallest regular one; 0 is none.
pub(crate) type ClassId = u8;

/// Bytes of the class that holds heads of chained items: descriptor and the longest key.
const HEAD_BYTES: usize = 296;

/// In a word of `page_class`: the page is on its way out of its class.
const LEAVING: u32 = 1 << 8;

/// How urgently a class needs a page of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Its own coldest items are about as cold as others'.
    None,
    /// Others' coldest items are colder, so their pages come before its own evictions.
    Page,
    /// They are so much colder that its stores take a page if the cleaner has emptied none.
    PageNow,
}

/// All pages and classes of one store.
#[derive(Debug)]
pub(crate) struct Slabs {
    /// Regular classes, fitted ones, and that of heads.
    classes: Vec<Class>,
    /// Number of regular classes.
    regular: ClassId,
    fitted: Mutex<Slots>,
    /// The class for each size in steps of eight bytes.
    class_by_size: Box<[AtomicU32]>,
    /// Class of each page, zero for none.
    page_class: Region<AtomicU32>,
    /// Chunks of each page that were handed out since its class received it; they are cut in order.
    page_cut: Region<AtomicU32>,
    pages: Mutex<FreePages>,
    page_bytes: usize,
    /// Bytes of the smallest chunk that a page may have.
    chunk_bytes_least: usize,
    /// Pages charged to the budget: in use by a class, or free and resident.
    pages_charged: AtomicU64,
    /// Number of pages that went from one class to another use.
    pages_moved: AtomicU64,
    /// By class: its [`Need`], as a number.
    needs: Box<[AtomicU32]>,
    threads: KeptByThreads,
}

impl Slabs {
    /// Classes of these sizes, without a page yet.
    pub(crate) fn new(
        config: &Config,
        layout: &Layout,
        page_class: Region<AtomicU32>,
        page_cut: Region<AtomicU32>,
    ) -> Self {
        let page = layout.page_bytes;
        let mut chunk_bytes = sizes::chunk_sizes(config, layout);
        let regular = sizes::class_id(chunk_bytes.len());
        let with_ids = chunk_bytes.iter().copied().zip(1..).collect();
        let class_by_size = sizes::class_by_size(with_ids).into_iter().map(u32::from);
        // The sizes of the fitted classes are not yet known.
        chunk_bytes.extend([CHUNK_BYTES_MAX; FITTED_MAX]);
        chunk_bytes.push(HEAD_BYTES.max(layout.chunk_bytes_least));
        Self {
            class_by_size: class_by_size.map(AtomicU32::new).collect(),
            classes: chunk_bytes.iter().map(|&bytes| Class::new(bytes, page)).collect(),
            regular,
            fitted: Mutex::default(),
            chunk_bytes_least: layout.chunk_bytes_least,
            page_class,
            page_cut,
            pages: Mutex::new(FreePages::default()),
            page_bytes: page,
            pages_charged: AtomicU64::new(0),
            pages_moved: AtomicU64::new(0),
            needs: (0..=ClassId::MAX).map(|_| AtomicU32::new(0)).collect(),
            threads: KeptByThreads::new(config.threads_max),
        }
    }

    /// Number of classes, including fitted ones that are not open; ids are 1 to this number. The
    /// last is the class of heads.
    pub(crate) fn count(&self) -> ClassId {
        sizes::class_id(self.classes.len())
    }

    /// The class with this id, which is not 0.
    #[inline]
    pub(crate) fn class(&self, id: ClassId) -> &Class {
        &self.classes[usize::from(id) - 1]
    }

    /// Bytes of an item's chunks in this class; approximate for a chained item with its pieces.
    pub(crate) fn bytes_per_item(&self, id: ClassId) -> u64 {
        let class = self.class(id);
        let pieces = self.class(self.largest());
        let of_pieces = if id == self.heads() {
            pieces.used() * pieces.chunk_bytes() as u64 / class.used().max(1)
        } else {
            0
        };
        class.chunk_bytes() as u64 + of_pieces
    }

    /// The class of chained items' heads.
    pub(crate) fn heads(&self) -> ClassId {
        self.count()
    }

    /// The class of the largest chunks.
    pub(crate) fn largest(&self) -> ClassId {
        self.regular
    }

    /// The class of the smallest chunks that hold `bytes`, at most [`CHUNK_BYTES_MAX`].
    #[inline]
    pub(crate) fn class_for(&self, bytes: usize) -> ClassId {
        // Acquire: partner of the Release in `map_sizes`; the class's sizes are visible.
        id_of(self.class_by_size[sizes::size_index(bytes)].load(Ordering::Acquire))
    }

    /// The class of the page that holds `chunk`, which the caller owns or has found in a section.
    #[inline]
    pub(crate) fn class_of(&self, arena: &Arena, chunk: ChunkRef) -> ClassId {
        // Relaxed: the page keeps its class for as long as the caller may use the chunk.
        id_of(self.page_class[arena.page_of(chunk)].load(Ordering::Relaxed))
    }

    /// Class of a page; zero for none.
    pub(crate) fn page_class(&self, page: usize) -> ClassId {
        // Acquire: partner of the Release in `add_page`; nothing of the page is cut yet.
        id_of(self.page_class[page].load(Ordering::Acquire))
    }

    /// Class of a page as the last process left it, in a file that may be damaged; zero for none.
    /// `None` if there is no such class.
    fn class_left(&self, page: usize) -> Option<ClassId> {
        let word = self.page_class[page].load(Ordering::Relaxed) & !LEAVING;
        let id = ClassId::try_from(word).ok()?;
        (id == 0 || self.is_open(id)).then_some(id)
    }

    /// `true` if the page is on its way out of its class.
    #[inline]
    pub(crate) fn is_leaving(&self, page: usize) -> bool {
        // Relaxed: a thread that must not miss it holds a lock that was taken after it was stored.
        self.page_class[page].load(Ordering::Relaxed) & LEAVING != 0
    }

    /// Gives the class one more page if there is one within the budget. Also `true` if another
    /// thread has given the class a chunk since the caller found none.
    pub(crate) fn add_page(
        &self,
        arena: &Arena,
        budget: &Budget,
        qsbr: &Qsbr,
        id: ClassId,
    ) -> bool {
        let class = self.class(id);
        let mut state = class.state.lock();
        if state.has_chunk(class.per_page()) {
            return true; // Another thread was faster.
        }
        let Some(page) = self.take_page(arena, budget, qsbr, id) else { return false };
        self.page_cut[page].store(0, Ordering::Relaxed);
        arena.cut_into(page, class.chunk_bytes());
        // Release: partner of the Acquire in `page_class`; a walk that sees the class sees that
        // nothing is cut yet.
        self.page_class[page].store(u32::from(id), Ordering::Release);
        state.cutting = Some((page, 0));
        state.pages.owned.push(page);
        state.pages.given += 1;
        true
    }

    /// `true` if the class could get a page now, or after a grace period, without any eviction.
    pub(crate) fn may_add_page(&self, budget: &Budget, id: ClassId) -> bool {
        let pages = self.pages.lock();
        let fresh = pages.untouched < self.page_class.len() || !pages.returned.is_empty();
        fresh && budget.has_room(self.page_bytes()) || pages.has_for(self.taker(budget, id))
    }

    fn taker(&self, budget: &Budget, class: ClassId) -> Taker {
        // An excess free page must leave the store, unless it was promised.
        Taker { class, is_needy: self.is_needy(class), promised_only: budget.excess() > 0 }
    }

    /// A page that the class may have: free and resident, returned, or never used.
    fn take_page(&self, arena: &Arena, budget: &Budget, qsbr: &Qsbr, id: ClassId) -> Option<usize> {
        let mut pages = self.pages.lock();
        if let Some(page) = pages.pop_for(qsbr, self.taker(budget, id)) {
            // It is still charged.
            return Some(page);
        }
        let fresh = pages.untouched < self.page_class.len();
        if pages.returned.is_empty() && !fresh {
            return None;
        }
        // A returned page comes before a page never used, so that the file stays short.
        let page = pages.returned.last().copied().unwrap_or(pages.untouched);
        if !budget.try_take(self.page_bytes(), || arena.commit_page(page)) {
            return None;
        }
        if pages.returned.pop().is_none() {
            pages.untouched += 1;
        }
        self.pages_charged.fetch_add(1, Ordering::Relaxed);
        Some(page)
    }

    /// Returns one free resident page to the system; `false` if there is none.
    pub(crate) fn return_page(&self, arena: &Arena, budget: &Budget, qsbr: &Qsbr) -> bool {
        let mut pages = self.pages.lock();
        let Some(page) = pages.pop_any(qsbr) else { return false };
        arena.release_page(page);
        pages.returned.push(page);
        self.pages_charged.fetch_sub(1, Ordering::Relaxed);
        budget.give_back(self.page_bytes());
        true
    }

    /// Takes `page` out of the class's use, for the class `to` (0: for all). Its free chunks are
    /// forgotten at once; the others must still be put back. `false` if the class cannot give the
    /// page.
    pub(crate) fn drain(
        &self,
        arena: &Arena,
        qsbr: &Qsbr,
        id: ClassId,
        page: usize,
        to: ClassId,
    ) -> bool {
        let (class, leaving) = (self.class(id), u32::from(id) | LEAVING);
        let mut state = class.state.lock();
        let Some(at) = state.pages.owned.iter().position(|&owned| owned == page) else {
            return false;
        };
        state.pages.owned.swap_remove(at);
        if state.cutting.is_some_and(|(cutting, _)| cutting == page) {
            // Its chunks that were never cut are not counted anywhere.
            state.cutting = None;
        }
        // No thread keeps a chunk of the page from now on (law 1 of `arena::kept`).
        // Release: partner of the Acquire in `page_class`, as where a page gets its class.
        self.page_class[page].store(leaving, Ordering::Release);
        let mut held = 0;
        for index in 0..self.cut_chunks(page) {
            let chunk = arena.chunk(page, index, class.chunk_bytes());
            if arena.header(chunk).shape() == Shape(Shape::FREE) {
                // Free: out of the list, so that it is not handed out again.
                state.unlink_free(arena, chunk);
                arena.header(chunk).shape.store(Shape::DRAFT, Ordering::Relaxed);
            } else {
                // An item, a draft, a piece, retired or kept: `put_back` counts it down.
                held += 1;
            }
        }
        let draining = Draining { page, held, promised_to: to };
        if held == 0 {
            drop(state);
            self.page_freed(qsbr, draining);
            return true;
        }
        state.pages.leaving.push(draining);
        let most = self.most_kept(class, &state);
        drop(state);
        self.take_back_kept(arena, qsbr, id, page, most);
        true
    }

    /// `true` if pages of other classes come before evictions from this class.
    pub(crate) fn is_needy(&self, class: ClassId) -> bool {
        self.need(class) != Need::None
    }

    /// The class's need, as of the cleaner's last look.
    // Relaxed: a hint.
    pub(crate) fn need(&self, class: ClassId) -> Need {
        match self.needs[usize::from(class)].load(Ordering::Relaxed) {
            0 => Need::None,
            1 => Need::Page,
            _ => Need::PageNow,
        }
    }

    /// Sets the class's need.
    pub(crate) fn set_need(&self, class: ClassId, need: Need) {
        let number = match need {
            Need::None => 0,
            Need::Page => 1,
            Need::PageNow => 2,
        };
        self.needs[usize::from(class)].store(number, Ordering::Relaxed);
    }

    /// Up to `count` pages of the class, spread evenly, starting at a varying place.
    pub(crate) fn sample_pages(&self, id: ClassId, count: usize, start: usize) -> Vec<usize> {
        self.class(id).sample_pages(count, start)
    }

    /// Chunks ever handed out for new items and pieces of the class.
    pub(crate) fn stored(&self, id: ClassId) -> u64 {
        self.threads.usage(id).taken
    }

    /// Contents of the class now.
    pub(crate) fn class_use(&self, id: ClassId) -> ClassUse {
        self.class(id).usage(self.threads.usage(id))
    }

    /// Chunks of a page that were ever handed out, in order from its start.
    pub(crate) fn cut_chunks(&self, page: usize) -> usize {
        // Acquire: partner of the Release in `cut`; the chunks' headers are headers.
        self.page_cut[page].load(Ordering::Acquire) as usize
    }

    /// `true` if a chunk of some class starts here that was handed out before. The answer stays
    /// valid for reading its header until the caller's section ends.
    pub(crate) fn is_cut(&self, arena: &Arena, chunk: ChunkRef) -> bool {
        let page = arena.page_of(chunk);
        let id = self.page_class(page);
        if id == 0 {
            return false;
        }
        let place = arena.place_of(chunk, self.class(id).chunk_bytes());
        place.is_some_and(|place| place < self.cut_chunks(page))
    }

    /// Pages that the class can give: not draining ones.
    pub(crate) fn pages_of(&self, id: ClassId) -> usize {
        self.class(id).state.lock().pages.owned.len()
    }

    /// `true` if a free page that this class may have waits for the end of its grace period.
    pub(crate) fn has_page_on_its_way(&self, budget: &Budget, id: ClassId) -> bool {
        self.pages.lock().has_for(self.taker(budget, id))
    }

    /// Bytes of the pages that are promised to no class: free, or on their way out of their class.
    pub(crate) fn bytes_on_their_way_out(&self) -> u64 {
        self.pages_on_their_way()[0] as u64 * self.page_bytes()
    }

    /// Pages on their way to each class, by id. Index 0 counts those for all classes, and [`NEEDY`]
    /// those for needy classes.
    pub(crate) fn pages_on_their_way(&self) -> Vec<usize> {
        let mut count = vec![0; usize::from(NEEDY) + 1];
        for free in &self.pages.lock().resident {
            count[usize::from(free.promised_to)] += 1;
        }
        for class in &self.classes {
            for draining in &class.state.lock().pages.leaving {
                count[usize::from(draining.promised_to)] += 1;
            }
        }
        count
    }

    /// Frees a page for all if its class has not taken it within this many calls.
    pub(crate) fn release_promises(&self, calls: u32) {
        self.pages.lock().release_promises(calls);
    }

    /// Pages on their way out, with their classes.
    pub(crate) fn draining_pages(&self) -> Vec<(ClassId, usize)> {
        let of_class = |id: ClassId| {
            let state = self.class(id).state.lock();
            state.pages.leaving.iter().map(|draining| (id, draining.page)).collect::<Vec<_>>()
        };
        (1..=self.count()).flat_map(of_class).collect()
    }

    /// Resident pages of no class.
    pub(crate) fn free_pages(&self) -> u64 {
        self.pages.lock().resident.len() as u64
    }

    /// Resident pages.
    pub(crate) fn pages_in_use(&self) -> u64 {
        self.pages_charged.load(Ordering::Relaxed)
    }

    /// Bytes of resident pages.
    pub(crate) fn bytes(&self) -> u64 {
        self.pages_in_use() * self.page_bytes()
    }

    /// Bytes of a page.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.page_bytes as u64
    }

    /// Bytes of all pages that were reserved.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.page_class.len() as u64 * self.page_bytes()
    }

    /// Number of pages that went from one class to another use.
    pub(crate) fn pages_moved(&self) -> u64 {
        self.pages_moved.load(Ordering::Relaxed)
    }

    /// Counts moved pages from zero again.
    pub(crate) fn reset_pages_moved(&self) {
        self.pages_moved.store(0, Ordering::Relaxed);
    }

    /// One past the last page ever used.
    pub(crate) fn pages_touched(&self) -> usize {
        self.pages.lock().untouched
    }
}

/// The id in a word of `page_class` or `class_by_size`.
#[inline]
fn id_of(word: u32) -> ClassId {
    debug_assert!(word & !LEAVING <= u32::from(ClassId::MAX), "not a class: {word}");
    word.to_le_bytes()[0]
}
