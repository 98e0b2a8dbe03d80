//! Slab pages and classes: which chunks are free.
//!
//! A page belongs to no class or to one; a class cuts its pages into chunks of one size. Free chunks of a class
//! form a doubly linked list through their own headers, so that a page can be taken out of use
//! (`drain`) by unlinking just its chunks. Chunks of a draining page that come back later are
//! counted, not listed; with the last one the page is free for any class, after a grace period: whoever walks over a
//! page inside a section and has seen whose it is may go on reading headers where that class has its chunks.
//!
//! Chunk sizes grow by the factor of `-f`; a size is then widened to what its page divides into evenly, so
//! that page tails are not wasted. The largest chunk is 16 KiB: larger items are chained, so all
//! large values share one class whatever their size.

use crate::config::{Config, Layout};
use crate::memory::arena::{Arena, CHUNK_BYTES_MAX, ChunkRef, HEADER, Shape};
use crate::memory::budget::Budget;
use crate::memory::region::Region;
use crate::reclamation::qsbr::Qsbr;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use std::collections::VecDeque;

pub(crate) mod automove;
#[cfg(not(miri))]
mod record;
#[cfg(not(miri))]
mod recover;
#[cfg(not(miri))]
pub(crate) use recover::Chunks;

/// A slab class: 1 is the smallest; 0 is none.
pub(crate) type ClassId = u8;

/// Bytes of the class that holds heads of chained items: descriptor and the longest key.
const HEAD_BYTES: usize = 296;

/// Most chunks that are taken back under one lock.
const PUT_TOGETHER: usize = 64;

/// Whoever asks for a free page may have any.
const ANY: ClassId = ClassId::MAX;

/// All pages and classes of one store.
#[derive(Debug)]
pub(crate) struct Slabs {
    classes: Vec<Class>,
    /// The class for each size in steps of eight bytes.
    class_by_size: Vec<ClassId>,
    /// Class of each page, zero for none.
    page_class: Region<AtomicU32>,
    /// Chunks of each page that were handed out since its class got it; they are cut in order.
    page_cut: Vec<AtomicU32>,
    pages: Mutex<FreePages>,
    page_bytes: usize,
    /// Pages charged to the budget: in use by a class, or free and resident.
    pages_charged: AtomicU64,
    /// Times that a page went from one class to another use.
    pages_moved: AtomicU64,
}

#[derive(Debug)]
struct FreePages {
    /// Resident pages of no class, still charged, in the order in which they became free.
    resident: VecDeque<FreePage>,
    /// Pages whose memory went back to the system, uncharged.
    returned: Vec<usize>,
    /// First page that was never used.
    untouched: usize,
}

/// A resident page of no class.
#[derive(Clone, Copy, Debug)]
struct FreePage {
    page: usize,
    /// The epoch in which it became free.
    epoch: u64,
    /// The class that is to get it; 0: whoever asks first.
    promised_to: ClassId,
    /// Times that the promise was looked at.
    looked_at: u32,
}

/// A page on its way out of its class.
#[derive(Clone, Copy, Debug)]
struct Draining {
    page: usize,
    /// Chunks that are still held by someone.
    held: usize,
    promised_to: ClassId,
}

/// One chunk size.
#[derive(Debug)]
pub(crate) struct Class {
    /// Bytes of a chunk.
    pub chunk_bytes: usize,
    /// Chunks in a page.
    pub per_page: usize,
    state: Mutex<ClassState>,
    /// Chunks handed out; a copy of the state's count that is read without the lock.
    used: AtomicU64,
}

#[derive(Debug, Default)]
struct ClassState {
    free_head: ChunkRef,
    free_len: usize,
    /// The page being cut, and its first chunk that was never handed out.
    cutting: Option<(usize, usize)>,
    pages: Vec<usize>,
    used: u64,
    /// Pages on their way out.
    draining: Vec<Draining>,
}

/// What a class holds, for `stats slabs`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClassUse {
    pub pages: u64,
    pub used: u64,
    pub free: u64,
}

impl Slabs {
    pub(crate) fn new(config: &Config, layout: &Layout, page_class: Region<AtomicU32>) -> Self {
        let page = layout.page_bytes;
        let mut sizes = chunk_sizes(config, page, layout.unit);
        sizes.push(HEAD_BYTES.next_multiple_of(layout.unit));
        Self {
            class_by_size: class_by_size(&sizes[..sizes.len() - 1]),
            classes: sizes.iter().map(|&bytes| Class::new(bytes, page / bytes)).collect(),
            page_class,
            page_cut: (0..layout.pages_max).map(|_| AtomicU32::new(0)).collect(),
            pages: Mutex::new(FreePages {
                resident: VecDeque::new(),
                returned: Vec::new(),
                untouched: 0,
            }),
            page_bytes: page,
            pages_charged: AtomicU64::new(0),
            pages_moved: AtomicU64::new(0),
        }
    }

    /// Number of classes; ids are 1 to this number. The last is the class of heads.
    pub(crate) fn count(&self) -> ClassId {
        u8::try_from(self.classes.len()).unwrap_or(u8::MAX)
    }

    pub(crate) fn class(&self, id: ClassId) -> &Class {
        &self.classes[usize::from(id) - 1]
    }

    /// The class of chained items' heads.
    pub(crate) fn heads(&self) -> ClassId {
        self.count()
    }

    /// The class of the largest chunks.
    pub(crate) fn largest(&self) -> ClassId {
        self.count() - 1
    }

    /// The smallest class whose chunks hold `bytes`; `None` if only a chain does.
    pub(crate) fn class_for(&self, bytes: usize) -> Option<ClassId> {
        self.class_by_size.get(bytes.div_ceil(SIZE_STEP)).copied()
    }

    /// The class of the page that holds `chunk`.
    #[inline]
    pub(crate) fn class_of(&self, arena: &Arena, chunk: ChunkRef) -> ClassId {
        u8::try_from(self.page_class[arena.page_of(chunk)].load(Ordering::Relaxed))
            .unwrap_or(u8::MAX)
    }

    /// A free chunk of the class, owned by the caller and marked as a draft.
    pub(crate) fn take(&self, arena: &Arena, id: ClassId) -> Option<ChunkRef> {
        let class = self.class(id);
        let mut state = class.state.lock();
        let chunk = match state.free_head {
            0 => self.cut(class, &mut state, arena)?,
            head => {
                state.unlink_free(arena, head);
                head
            }
        };
        arena.header(chunk).shape.store(Shape::DRAFT, Ordering::Relaxed);
        state.used += 1;
        class.used.store(state.used, Ordering::Relaxed);
        Some(chunk)
    }

    fn cut(&self, class: &Class, state: &mut ClassState, arena: &Arena) -> Option<ChunkRef> {
        let (page, next) = state.cutting.filter(|&(_, next)| next < class.per_page)?;
        state.cutting = Some((page, next + 1));
        let chunk = arena.chunk(page, next * class.chunk_bytes);
        // What the page's former class left here must not look like a linked item.
        arena.header(chunk).pos.store(0, Ordering::Relaxed);
        // Release: pairs with `cut_chunks`; whoever counts this chunk in sees the line above.
        self.page_cut[page].fetch_add(1, Ordering::Release);
        Some(chunk)
    }

    /// Takes back chunks that no one can read any more. Neighbours of one class cost one lock, which is not held for long
    /// however many they are.
    pub(crate) fn put(&self, arena: &Arena, qsbr: &Qsbr, chunks: &[ChunkRef]) {
        let class_of = |chunk: &ChunkRef| self.class_of(arena, *chunk);
        let same = |one: &ChunkRef, other: &ChunkRef| class_of(one) == class_of(other);
        for group in chunks.chunk_by(same).flat_map(|group| group.chunks(PUT_TOGETHER)) {
            let class = self.class(class_of(&group[0]));
            let mut freed_pages = Vec::new();
            let mut state = class.state.lock();
            for &chunk in group {
                freed_pages.extend(state.put(arena, chunk));
            }
            class.used.store(state.used, Ordering::Relaxed);
            drop(state);
            freed_pages.into_iter().for_each(|page| self.page_freed(qsbr, page));
        }
    }

    fn page_freed(&self, qsbr: &Qsbr, freed: Draining) {
        let Draining { page, promised_to, .. } = freed;
        self.page_class[page].store(0, Ordering::Relaxed);
        self.pages_moved.fetch_add(1, Ordering::Relaxed);
        let free = FreePage { page, epoch: qsbr.epoch(), promised_to, looked_at: 0 };
        self.pages.lock().resident.push_back(free);
    }

    /// Gives the class one more page if there is one within the budget.
    pub(crate) fn add_page(
        &self,
        arena: &Arena,
        budget: &Budget,
        qsbr: &Qsbr,
        id: ClassId,
    ) -> bool {
        let class = self.class(id);
        let mut state = class.state.lock();
        if state.free_head != 0 || state.cutting.is_some_and(|(_, next)| next < class.per_page) {
            return true; // Another thread was faster.
        }
        let Some(page) = self.take_page(arena, budget, qsbr, id) else { return false };
        self.page_cut[page].store(0, Ordering::Relaxed);
        // Release: pairs with `page_class`; whoever sees the class sees that nothing is cut yet.
        self.page_class[page].store(u32::from(id), Ordering::Release);
        state.cutting = Some((page, 0));
        state.pages.push(page);
        true
    }

    fn take_page(&self, arena: &Arena, budget: &Budget, qsbr: &Qsbr, id: ClassId) -> Option<usize> {
        let mut pages = self.pages.lock();
        if let Some(page) = pages.pop_resident(qsbr, id) {
            return Some(page);
        }
        let fresh = pages.untouched < self.page_class.len();
        if (pages.returned.is_empty() && !fresh) || !budget.try_charge(self.page_bytes as u64) {
            return None;
        }
        let page = pages.returned.last().copied().unwrap_or(pages.untouched);
        if !arena.commit_page(page) {
            budget.refund(self.page_bytes as u64);
            return None;
        }
        if pages.returned.pop().is_none() {
            pages.untouched += 1;
        }
        self.pages_charged.fetch_add(1, Ordering::Relaxed);
        Some(page)
    }

    /// Gives one free resident page back to the system; `false` if there is none.
    pub(crate) fn return_page(&self, arena: &Arena, budget: &Budget, qsbr: &Qsbr) -> bool {
        let mut pages = self.pages.lock();
        let Some(page) = pages.pop_resident(qsbr, ANY) else { return false };
        arena.release_page(page);
        pages.returned.push(page);
        self.pages_charged.fetch_sub(1, Ordering::Relaxed);
        budget.refund(self.page_bytes as u64);
        true
    }

    /// Takes `page` out of the class's use, for the class `to` (0: for all). Its free chunks are forgotten at once; the rest
    /// must still be put back. Returns `false` if the page is not the class's to give.
    pub(crate) fn drain(
        &self,
        arena: &Arena,
        qsbr: &Qsbr,
        id: ClassId,
        page: usize,
        to: ClassId,
    ) -> bool {
        let class = self.class(id);
        let mut state = class.state.lock();
        let Some(at) = state.pages.iter().position(|&owned| owned == page) else { return false };
        state.pages.swap_remove(at);
        if state.cutting.is_some_and(|(cutting, _)| cutting == page) {
            state.cutting = None;
        }
        let mut held = 0;
        for index in 0..self.cut_chunks(page) {
            let chunk = arena.chunk(page, index * class.chunk_bytes);
            if arena.header(chunk).shape() == Shape(Shape::FREE) {
                state.unlink_free(arena, chunk);
                arena.header(chunk).shape.store(Shape::DRAFT, Ordering::Relaxed);
            } else {
                held += 1;
            }
        }
        let draining = Draining { page, held, promised_to: to };
        if held > 0 {
            state.draining.push(draining);
        } else {
            drop(state);
            self.page_freed(qsbr, draining);
        }
        true
    }

    /// Up to `count` pages of the class, spread evenly, starting at a varying place.
    pub(crate) fn sample_pages(&self, id: ClassId, count: usize, start: usize) -> Vec<usize> {
        let state = self.class(id).state.lock();
        let len = state.pages.len();
        let cutting = state.cutting.filter(|&(_, next)| next < self.class(id).per_page);
        (0..count.min(len))
            .map(|nth| state.pages[(start + nth * len.div_ceil(count)) % len])
            .filter(|&page| len == 1 || cutting.is_none_or(|(cut, _)| cut != page))
            .collect()
    }

    /// What the class holds now.
    pub(crate) fn class_use(&self, id: ClassId) -> ClassUse {
        let class = self.class(id);
        let state = class.state.lock();
        let leaving: usize = state.draining.iter().map(|draining| draining.held).sum();
        let staying = (state.pages.len() * class.per_page) as u64;
        ClassUse {
            pages: (state.pages.len() + state.draining.len()) as u64,
            used: state.used,
            free: (staying + leaving as u64).saturating_sub(state.used),
        }
    }

    /// Chunks of a page that were ever handed out, in order from its start.
    pub(crate) fn cut_chunks(&self, page: usize) -> usize {
        self.page_cut[page].load(Ordering::Acquire) as usize
    }

    /// Whether a chunk of some class begins here that was handed out before. The answer holds, as far as reading its header
    /// goes, until the caller's section ends.
    pub(crate) fn is_cut(&self, arena: &Arena, chunk: ChunkRef) -> bool {
        let page = arena.page_of(chunk);
        let id = self.page_class(page);
        if id == 0 {
            return false;
        }
        let chunk_bytes = self.class(id).chunk_bytes;
        let at = arena.offset_in_page(chunk);
        at.is_multiple_of(chunk_bytes) && at / chunk_bytes < self.cut_chunks(page)
    }

    /// Pages that the class can give: not draining ones.
    pub(crate) fn pages_of(&self, id: ClassId) -> usize {
        self.class(id).state.lock().pages.len()
    }

    /// Whether a free page that this class may have waits for the end of its grace period.
    pub(crate) fn has_page_on_its_way(&self, id: ClassId) -> bool {
        self.pages.lock().resident.iter().any(|free| free.is_for(id))
    }

    /// Pages on their way to a class, for each class. In the first place those that are for all.
    pub(crate) fn pages_on_their_way(&self) -> Vec<usize> {
        let mut count = vec![0; self.classes.len() + 1];
        for free in &self.pages.lock().resident {
            count[usize::from(free.promised_to)] += 1;
        }
        for class in &self.classes {
            for draining in &class.state.lock().draining {
                count[usize::from(draining.promised_to)] += 1;
            }
        }
        count
    }

    /// Pages whose class did not take them while this was called so many times are for all.
    pub(crate) fn release_promises(&self, times: u32) {
        for free in &mut self.pages.lock().resident {
            free.looked_at += 1;
            if free.looked_at > times {
                free.promised_to = 0;
            }
        }
    }

    /// Pages on their way out, with their classes.
    pub(crate) fn draining_pages(&self) -> Vec<(ClassId, usize)> {
        let of_class = |id: ClassId| {
            let state = self.class(id).state.lock();
            state.draining.iter().map(|draining| (id, draining.page)).collect::<Vec<_>>()
        };
        (1..=self.count()).flat_map(of_class).collect()
    }

    /// Resident pages of no class.
    pub(crate) fn free_pages(&self) -> u64 {
        self.pages.lock().resident.len() as u64
    }

    /// Resident pages.
    pub(crate) fn pages_in_use(&self) -> usize {
        usize::try_from(self.pages_charged.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Bytes of resident pages.
    pub(crate) fn bytes(&self) -> u64 {
        self.pages_charged.load(Ordering::Relaxed) * self.page_bytes as u64
    }

    pub(crate) fn pages_moved(&self) -> u64 {
        self.pages_moved.load(Ordering::Relaxed)
    }

    /// One past the last page ever used.
    pub(crate) fn pages_touched(&self) -> usize {
        self.pages.lock().untouched
    }

    /// Class of a page; zero for none.
    pub(crate) fn page_class(&self, page: usize) -> ClassId {
        u8::try_from(self.page_class[page].load(Ordering::Acquire)).unwrap_or(u8::MAX)
    }
}

impl Class {
    fn new(chunk_bytes: usize, per_page: usize) -> Self {
        let state = Mutex::new(ClassState::default());
        Self { chunk_bytes, per_page, state, used: AtomicU64::new(0) }
    }

    /// Chunks handed out.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl FreePages {
    /// The page that has been free for longest of those that the class may have, if its grace period is over.
    fn pop_resident(&mut self, qsbr: &Qsbr, id: ClassId) -> Option<usize> {
        let at = self.resident.iter().position(|free| free.is_for(id))?;
        qsbr.is_safe(self.resident[at].epoch)
            .then(|| self.resident.remove(at))?
            .map(|free| free.page)
    }
}

impl FreePage {
    /// A page that was free when the store was opened again.
    fn at_start(page: usize) -> Self {
        Self { page, epoch: 0, promised_to: 0, looked_at: 0 }
    }

    fn is_for(&self, id: ClassId) -> bool {
        id == ANY || self.promised_to == 0 || self.promised_to == id
    }
}

impl ClassState {
    /// Takes a chunk back; answers the page that became free with it.
    fn put(&mut self, arena: &Arena, chunk: ChunkRef) -> Option<Draining> {
        self.used -= 1;
        arena.header(chunk).pos.store(0, Ordering::Relaxed);
        let page = arena.page_of(chunk);
        let Some(at) = self.draining.iter().position(|draining| draining.page == page) else {
            self.link_free(arena, chunk);
            return None;
        };
        arena.header(chunk).shape.store(Shape::DRAFT, Ordering::Relaxed);
        self.draining[at].held -= 1;
        (self.draining[at].held == 0).then(|| self.draining.swap_remove(at))
    }

    fn link_free(&mut self, arena: &Arena, chunk: ChunkRef) {
        let header = arena.header(chunk);
        header.shape.store(Shape::FREE, Ordering::Relaxed);
        header.cas.store(links(0, self.free_head), Ordering::Relaxed);
        if self.free_head != 0 {
            let (_, next) = free_links(arena, self.free_head);
            arena.header(self.free_head).cas.store(links(chunk, next), Ordering::Relaxed);
        }
        self.free_head = chunk;
        self.free_len += 1;
    }

    fn unlink_free(&mut self, arena: &Arena, chunk: ChunkRef) {
        let (previous, next) = free_links(arena, chunk);
        if previous == 0 {
            self.free_head = next;
        } else {
            let (before, _) = free_links(arena, previous);
            arena.header(previous).cas.store(links(before, next), Ordering::Relaxed);
        }
        if next != 0 {
            let (_, after) = free_links(arena, next);
            arena.header(next).cas.store(links(previous, after), Ordering::Relaxed);
        }
        self.free_len -= 1;
    }
}

fn links(previous: ChunkRef, next: ChunkRef) -> u64 {
    u64::from(previous) << 32 | u64::from(next)
}

fn free_links(arena: &Arena, chunk: ChunkRef) -> (ChunkRef, ChunkRef) {
    let links = arena.header(chunk).cas.load(Ordering::Relaxed);
    ((links >> 32) as u32, (links & 0xffff_ffff) as u32)
}

/// Granularity of `class_by_size`; chunk sizes are multiples of it.
const SIZE_STEP: usize = 8;

/// The smallest class (from 1) whose chunks hold each multiple of `SIZE_STEP`.
fn class_by_size(sizes: &[usize]) -> Vec<ClassId> {
    let class_for = |bytes: usize| sizes.partition_point(|&size| size < bytes) + 1;
    (0..=CHUNK_BYTES_MAX / SIZE_STEP)
        .map(|step| u8::try_from(class_for(step * SIZE_STEP)).unwrap_or(u8::MAX))
        .collect()
}

/// Chunk sizes from the smallest to `CHUNK_BYTES_MAX`, each a multiple of `unit`; at most 253 of them.
fn chunk_sizes(config: &Config, page: usize, unit: usize) -> Vec<usize> {
    let mut factor = config.growth_factor;
    loop {
        let sizes = sizes_by(config.chunk_bytes_min as usize, factor, page, unit);
        if sizes.len() <= 253 {
            return sizes;
        }
        factor += 0.01;
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "sizes are below 16 KiB, far inside of both types"
)]
fn sizes_by(min: usize, factor: f64, page: usize, unit: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut size = (HEADER + min).next_multiple_of(unit);
    while size < CHUNK_BYTES_MAX {
        // The widest chunk of which the page holds as many.
        let even = (page / (page / size)) / unit * unit;
        sizes.push(even);
        size = ((even as f64 * factor) as usize / unit * unit).max(even + unit);
    }
    sizes.push(CHUNK_BYTES_MAX);
    sizes.dedup();
    sizes
}
