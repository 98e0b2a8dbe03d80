//! One class: its pages, its free chunks, and the pages on their way out.
//!
//! Free chunks are a doubly linked list through their own headers (`recency` holds the next chunk,
//! `deadline` the one before), so a page is taken out of use by unlinking just its chunks.
//!
//! Relaxed is enough for the words of free chunks: only the holder of the class's lock follows the
//! links, and a chunk is published as an item by its position and its slot in the table. It is
//! enough for the sizes, which change only under the lock of a class without a page (see `fitted`):
//! a thread that has a chunk or has seen a page of the class learned of it by Release and Acquire.

use super::ClassId;
use arena::ChunkRef;
use arena::chunks::{Arena, Shape};
use arena::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use crossbeam_utils::CachePadded;
use narrow::to_u32;

/// One chunk size. It starts a cache line, as [`CachePadded`] does.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Class {
    pub(super) state: Mutex<ClassState>,
    /// A copy of the state's count that is read without the lock.
    pub(super) used: AtomicU64,
    /// Read by each store, so separate from the line that threads write in turn.
    sizes: CachePadded<Sizes>,
}

/// A thread that takes chunks from the class, or returns some, writes one line of 64 bytes.
#[cfg(not(loom))]
const _: () = assert!(std::mem::offset_of!(Class, used) + size_of::<AtomicU64>() <= 64);

#[derive(Debug, Default)]
struct Sizes {
    chunk_bytes: AtomicU32,
    per_page: AtomicU32,
}

/// The part of a class that its lock guards.
#[derive(Debug, Default)]
pub(super) struct ClassState {
    pub(super) free_head: ChunkRef,
    /// The page being cut, and its first chunk that was never handed out.
    pub(super) cutting: Option<(usize, usize)>,
    /// Chunks handed out, those included that threads keep.
    pub(super) used: u64,
    /// On separate lines, because it changes only with pages.
    pub(super) pages: Box<ClassPages>,
}

/// The pages of a class.
#[derive(Debug, Default)]
pub(super) struct ClassPages {
    pub(super) owned: Vec<usize>,
    /// Pages that it ever received.
    pub(super) given: u64,
    /// Pages on their way out.
    pub(super) leaving: Vec<Draining>,
}

/// A page on its way out of its class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draining {
    pub(super) page: usize,
    /// Chunks that are not put back yet.
    pub(super) held: usize,
    /// The class that will get the page; 0: any.
    pub(super) promised_to: ClassId,
}

/// Contents of a class, for `stats slabs`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClassUse {
    pub pages: u64,
    /// Chunks handed out for use.
    pub used: u64,
    /// Chunks ever handed out for new items and pieces.
    pub stored: u64,
    /// Chunks that can be handed out at once, or are kept by threads.
    pub free: u64,
}

/// Numbers of the chunks of one class that threads keep or took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThreadsUse {
    /// Free chunks that threads keep.
    pub(super) kept: u64,
    /// Chunks ever taken for new items and pieces.
    pub(super) taken: u64,
}

impl Class {
    /// A class without a page, of chunks of this size.
    pub(super) fn new(chunk_bytes: usize, page_bytes: usize) -> Self {
        let class = Self::default();
        class.set_chunk_bytes(chunk_bytes, page_bytes);
        class
    }

    pub(super) fn set_chunk_bytes(&self, chunk_bytes: usize, page_bytes: usize) {
        self.sizes.chunk_bytes.store(to_u32(chunk_bytes), Ordering::Relaxed);
        self.sizes.per_page.store(to_u32(page_bytes / chunk_bytes), Ordering::Relaxed);
    }

    /// Bytes of a chunk.
    #[inline]
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.sizes.chunk_bytes.load(Ordering::Relaxed) as usize
    }

    /// Chunks in a page.
    #[inline]
    pub(crate) fn per_page(&self) -> usize {
        self.sizes.per_page.load(Ordering::Relaxed) as usize
    }

    /// Chunks handed out, those included that threads keep.
    pub(crate) fn used(&self) -> u64 {
        // Relaxed: a number for estimates and statistics.
        self.used.load(Ordering::Relaxed)
    }

    /// Maximum number of chunks that the cleaner may keep free for the next stores: little memory
    /// lies idle, and a class of few chunks evicts few items early.
    pub(crate) fn most_kept_free(&self) -> u64 {
        const SHARE: u64 = 128;
        const BYTES: u64 = 1 << 20;
        (self.used() / SHARE).min(BYTES / self.chunk_bytes() as u64)
    }

    /// Contents of the class now.
    pub(super) fn usage(&self, threads: ThreadsUse) -> ClassUse {
        let state = self.state.lock();
        // Of a draining page only the held chunks belong to the class, and none of them comes back.
        let leaving: usize = state.pages.leaving.iter().map(|draining| draining.held).sum();
        let staying = (state.pages.owned.len() * self.per_page()) as u64;
        let used = state.used.saturating_sub(threads.kept);
        ClassUse {
            pages: (state.pages.owned.len() + state.pages.leaving.len()) as u64,
            used,
            stored: threads.taken,
            free: (staying + leaving as u64).saturating_sub(used),
        }
    }

    /// Up to `count` pages, spread evenly, starting at a varying place.
    pub(super) fn sample_pages(&self, count: usize, start: usize) -> Vec<usize> {
        let state = self.state.lock();
        let len = state.pages.owned.len();
        let cutting = state.cutting.filter(|&(_, next)| next < self.per_page());
        (0..count.min(len))
            .map(|nth| state.pages.owned[(start + nth * len.div_ceil(count)) % len])
            // The page being cut is new, and serves the next stores.
            .filter(|&page| len == 1 || cutting.is_none_or(|(cut, _)| cut != page))
            .collect()
    }
}

impl ClassState {
    /// `true` if it has no page, not even one on its way out.
    pub(super) fn is_empty(&self) -> bool {
        self.pages.owned.is_empty() && self.pages.leaving.is_empty()
    }

    /// `true` if it can hand out a chunk without another page.
    pub(super) fn has_chunk(&self, per_page: usize) -> bool {
        self.free_head != 0 || self.cutting.is_some_and(|(_, next)| next < per_page)
    }

    /// Takes the first free chunk.
    #[inline]
    pub(super) fn pop_free(&mut self, arena: &Arena) -> Option<ChunkRef> {
        let head = self.free_head;
        if head == 0 {
            return None;
        }
        self.free_head = arena.header(head).recency.load(Ordering::Relaxed);
        if self.free_head != 0 {
            arena.header(self.free_head).deadline.store(0, Ordering::Relaxed);
        }
        Some(head)
    }

    /// Takes a chunk back. Returns the page that became free with it.
    pub(super) fn put(&mut self, arena: &Arena, chunk: ChunkRef) -> Option<Draining> {
        self.used -= 1;
        arena.header(chunk).pos.store(0, Ordering::Relaxed);
        let page = arena.page_of(chunk);
        let Some(at) = self.pages.leaving.iter().position(|draining| draining.page == page) else {
            self.link_free(arena, chunk);
            return None;
        };
        // The page is on its way out: its chunks are counted, but no longer handed out.
        arena.header(chunk).shape.store(Shape::DRAFT, Ordering::Relaxed);
        self.pages.leaving[at].held -= 1;
        (self.pages.leaving[at].held == 0).then(|| self.pages.leaving.swap_remove(at))
    }

    /// Puts a chunk at the front of the free list.
    pub(super) fn link_free(&mut self, arena: &Arena, chunk: ChunkRef) {
        let header = arena.header(chunk);
        header.shape.store(Shape::FREE, Ordering::Relaxed);
        header.deadline.store(0, Ordering::Relaxed);
        header.recency.store(self.free_head, Ordering::Relaxed);
        if self.free_head != 0 {
            arena.header(self.free_head).deadline.store(chunk, Ordering::Relaxed);
        }
        self.free_head = chunk;
    }

    /// Takes a chunk out of the free list, wherever it stands.
    pub(super) fn unlink_free(&mut self, arena: &Arena, chunk: ChunkRef) {
        let header = arena.header(chunk);
        let previous = header.deadline.load(Ordering::Relaxed);
        let next = header.recency.load(Ordering::Relaxed);
        if previous == 0 {
            // The first of the list.
            self.free_head = next;
        } else {
            arena.header(previous).recency.store(next, Ordering::Relaxed);
        }
        if next != 0 {
            arena.header(next).deadline.store(previous, Ordering::Relaxed);
        }
    }
}
