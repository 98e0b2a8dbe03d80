//! Chunks for working threads: taken for items, and put back.

use super::class::{Class, ClassState, Draining};
use super::free_pages::FreePage;
use super::{ClassId, Slabs};
use arena::ChunkRef;
use arena::chunks::{Arena, Shape};
use arena::kept::{KEPT_MAX, Keeping, Refill};
use arena::qsbr::Qsbr;
use arena::sync::Ordering;
use narrow::to_usize;

/// Maximum number of chunks that are taken back under one lock.
const PUT_TOGETHER: usize = 64;
/// Chunks of a class for each chunk that threads may keep of it. So threads keep no chunks of small
/// classes, and the memory that lies idle in others is at most a 256th.
const SHARE: u64 = 256;

/// Marks free chunks that a thread keeps, unless their page is leaving its class.
struct KeptOf<'s> {
    slabs: &'s Slabs,
    arena: &'s Arena,
}

impl Keeping for KeptOf<'_> {
    #[inline]
    fn refuses(&self, chunk: ChunkRef) -> bool {
        // Stored before the thread's list is searched, whose lock the caller holds.
        self.slabs.is_leaving(self.arena.page_of(chunk))
    }

    #[inline]
    fn mark(&self, chunk: ChunkRef) {
        let header = self.arena.header(chunk);
        // Relaxed: the caller holds the lock of the thread's list.
        header.pos.store(0, Ordering::Relaxed);
        header.shape.store(Shape::KEPT, Ordering::Relaxed);
    }
}

impl Slabs {
    /// A free chunk of the class, owned by the caller and marked as a draft: one that the thread
    /// keeps, or one of the class.
    #[inline(always)]
    pub(crate) fn take(&self, arena: &Arena, slot: usize, id: ClassId) -> Option<ChunkRef> {
        let list = self.threads.list(slot, id, self.classes.len());
        let class = self.class(id);
        // The chunk of the next store, which another processor may have written last.
        let soon = |next| arena.prefetch_item(next);
        let chunk = list.take(|| self.refill(arena, class), soon)?;
        arena.header(chunk).shape.store(Shape::DRAFT, Ordering::Relaxed);
        Some(chunk)
    }

    /// Free chunks of a class for a thread that has none, each handed out and marked as kept when
    /// requested, and the number that the thread may keep. Holds the class's lock.
    fn refill(&self, arena: &Arena, class: &Class) -> Refill<impl Iterator<Item = ChunkRef>> {
        let mut state = class.state.lock();
        let most = self.most_kept(class, &state);
        let chunks = std::iter::from_fn(move || {
            let chunk = self.hand_out(class, &mut state, arena)?;
            class.used.store(state.used, Ordering::Relaxed);
            arena.header(chunk).shape.store(Shape::KEPT, Ordering::Relaxed);
            Some(chunk)
        });
        Refill { chunks, most }
    }

    /// Threads that store, or stored before they left.
    pub(crate) fn threads_storing(&self) -> u64 {
        self.threads.storing()
    }

    /// Chunks that one thread may keep of the class.
    pub(super) fn most_kept(&self, class: &Class, state: &ClassState) -> usize {
        let chunks = (state.pages.owned.len() * class.per_page()) as u64;
        to_usize(chunks / (SHARE * self.threads.storing().max(1))).min(KEPT_MAX)
    }

    /// A free chunk of the class for an item that is already in the class, owned by the caller and
    /// marked as a draft. It does not count as stored.
    pub(crate) fn take_to_move(&self, arena: &Arena, qsbr: &Qsbr, id: ClassId) -> Option<ChunkRef> {
        let class = self.class(id);
        let hand_out = || {
            let mut state = class.state.lock();
            let chunk = self.hand_out(class, &mut state, arena)?;
            class.used.store(state.used, Ordering::Relaxed);
            arena.header(chunk).shape.store(Shape::DRAFT, Ordering::Relaxed);
            Some(chunk)
        };
        hand_out().or_else(|| self.share_kept(arena, qsbr, id).then(hand_out)?)
    }

    /// Returns to the class half of the chunks that some thread keeps of it, for a thread that
    /// found no free chunk. `false` if no thread keeps any.
    pub(crate) fn share_kept(&self, arena: &Arena, qsbr: &Qsbr, id: ClassId) -> bool {
        let mut shared = Vec::new();
        for list in self.threads.lists(id).filter(|list| !list.is_empty()) {
            list.share(&mut shared);
            if !shared.is_empty() {
                self.put_back(arena, qsbr, id, &shared);
                return true;
            }
        }
        false
    }

    /// The next free chunk of the class, or of the page being cut.
    #[inline(always)]
    fn hand_out(&self, class: &Class, state: &mut ClassState, arena: &Arena) -> Option<ChunkRef> {
        let chunk = match state.pop_free(arena) {
            Some(chunk) => chunk,
            None => self.cut(class, state, arena)?,
        };
        state.used += 1;
        Some(chunk)
    }

    /// The next chunk of the page being cut.
    fn cut(&self, class: &Class, state: &mut ClassState, arena: &Arena) -> Option<ChunkRef> {
        let (page, next) = state.cutting.filter(|&(_, next)| next < class.per_page())?;
        state.cutting = Some((page, next + 1));
        let chunk = arena.chunk(page, next, class.chunk_bytes());
        // A header that the page's former class left here must not look like a linked item.
        arena.header(chunk).pos.store(0, Ordering::Relaxed);
        // Release: partner of the Acquire in `cut_chunks`; a walk that counts this chunk in sees
        // the line above.
        self.page_cut[page].fetch_add(1, Ordering::Release);
        Some(chunk)
    }

    /// Takes back chunks that no thread can read. The calling thread keeps some of them, if it
    /// stores. Neighbours of one class share one lock, which is held briefly for any number of
    /// them.
    #[inline]
    pub(crate) fn put(&self, arena: &Arena, qsbr: &Qsbr, slot: usize, chunks: &[ChunkRef]) {
        let mut rest = chunks;
        while let Some(&first) = rest.first() {
            let id = self.class_of(arena, first);
            let is_other = |&chunk: &ChunkRef| self.class_of(arena, chunk) != id;
            let most = rest.len().min(PUT_TOGETHER);
            let end = rest[1..most].iter().position(is_other).map_or(most, |at| at + 1);
            let (group, others) = rest.split_at(end);
            rest = others;
            let Some(list) = self.threads.existing(slot, id) else {
                self.put_back(arena, qsbr, id, group);
                continue;
            };
            let mut back = Vec::new();
            list.keep(group, &KeptOf { slabs: self, arena }, &mut back);
            if !back.is_empty() {
                self.put_back(arena, qsbr, id, &back);
            }
        }
    }

    /// Returns chunks to their class.
    fn put_back(&self, arena: &Arena, qsbr: &Qsbr, id: ClassId, chunks: &[ChunkRef]) {
        let class = self.class(id);
        let mut freed_pages = Vec::new();
        let mut state = class.state.lock();
        for &chunk in chunks {
            freed_pages.extend(state.put(arena, chunk));
        }
        class.used.store(state.used, Ordering::Relaxed);
        // Before the lock of the pages: a class's lock is never taken under it.
        drop(state);
        freed_pages.into_iter().for_each(|page| self.page_freed(qsbr, page));
    }

    /// The last chunk of a draining page has come back.
    pub(super) fn page_freed(&self, qsbr: &Qsbr, freed: Draining) {
        let Draining { page, promised_to, .. } = freed;
        self.page_class[page].store(0, Ordering::Relaxed);
        self.pages_moved.fetch_add(1, Ordering::Relaxed);
        // Dated after the store above: a section of a later epoch finds the page without a class.
        let free = FreePage::new(page, qsbr.epoch(), promised_to);
        self.pages.lock().resident.push_back(free);
    }

    /// Takes back the chunks that threads keep of a page leaving the class, and those that they
    /// keep beyond their present share.
    pub(super) fn take_back_kept(
        &self,
        arena: &Arena,
        qsbr: &Qsbr,
        id: ClassId,
        page: usize,
        most: usize,
    ) {
        let mut back = Vec::new();
        for list in self.threads.lists(id) {
            list.give_up(|chunk| arena.page_of(chunk) == page, &mut back);
            list.limit(most, &mut back);
        }
        self.put_back(arena, qsbr, id, &back);
    }

    /// The thread leaves: other threads get the chunks that it kept.
    pub(crate) fn leave(&self, arena: &Arena, qsbr: &Qsbr, slot: usize) {
        for id in 1..=self.count() {
            let Some(list) = self.threads.existing(slot, id) else { return };
            let mut back = Vec::new();
            list.limit(0, &mut back);
            if !back.is_empty() {
                self.put_back(arena, qsbr, id, &back);
            }
        }
    }
}
