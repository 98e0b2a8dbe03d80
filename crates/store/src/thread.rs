//! One thread's membership in a store: its clock, its retired items, its counters.

use crate::draft::{Draft, DraftError, NewItem};
use crate::expiry::transient::Note;
use crate::item::Item;
use crate::lru;
use crate::memory::arena::{ChunkRef, Header, Shape, chain};
use crate::section::Section;
use crate::slabs::ClassId;
use crate::stats::Count;
use crate::store::Store;
use crate::sync::Ordering;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// One thread's membership. A cheap handle: drafts and pins keep what is behind it alive.
pub struct Handle {
    pub(crate) thread: Rc<ThreadState>,
}

/// Something unlinked, and the epoch from which its grace period counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retired {
    pub epoch: u64,
    pub chunk: ChunkRef,
}

/// Told of items that are being evicted.
pub type Observer = Box<dyn Fn(&Item<'_>)>;

/// What a thread keeps for itself.
pub(crate) struct ThreadState {
    pub store: Arc<Store>,
    slot: usize,
    /// Read sections open now.
    pub depth: Cell<u32>,
    online: Cell<bool>,
    now_secs: Cell<u32>,
    /// The recency mark of the present: tick and second.
    recency: Cell<u32>,
    /// Unlinked since the last announcement, not yet dated: one fence dates them all.
    unlinked: RefCell<Vec<ChunkRef>>,
    retired: RefCell<VecDeque<Retired>>,
    /// Chunks on their way back to the slabs; empty between calls.
    free: RefCell<Vec<ChunkRef>>,
    /// Past their grace period, but still pinned by a sender.
    pinned: RefCell<Vec<ChunkRef>>,
    /// Cas uniques reserved for this thread.
    cas: Cell<(u64, u64)>,
    /// Items touched in this section, for the strict LRU.
    pub touched: RefCell<Vec<ChunkRef>>,
    /// Deadlines of items linked or touched since the last announcement, for the ring of transient items.
    pub notes: RefCell<Vec<Note>>,
    observer: RefCell<Option<Observer>>,
    /// Varies the pages that are looked at.
    pub turn: Cell<usize>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("slot", &self.thread.slot).finish_non_exhaustive()
    }
}

/// Cas uniques that a thread takes at one time, so that storing shares no counter.
const CAS_BLOCK: u64 = 1024;

impl Handle {
    pub(crate) fn new(store: &Arc<Store>, slot: usize) -> Self {
        let thread = ThreadState {
            store: Arc::clone(store),
            slot,
            depth: Cell::new(0),
            online: Cell::new(false),
            now_secs: Cell::new(0),
            recency: Cell::new(0),
            unlinked: RefCell::new(Vec::with_capacity(256)),
            retired: RefCell::new(VecDeque::with_capacity(1024)),
            free: RefCell::new(Vec::with_capacity(256)),
            pinned: RefCell::new(Vec::new()),
            cas: Cell::new((0, 0)),
            touched: RefCell::new(Vec::new()),
            notes: RefCell::new(Vec::new()),
            observer: RefCell::new(None),
            turn: Cell::new(slot),
        };
        Self { thread: Rc::new(thread) }
    }

    /// Begins a turn: the thread is about to use the store at this second since the store's start.
    pub fn begin_turn(&self, now_secs: u32) {
        self.thread.now_secs.set(now_secs);
        self.thread.wake();
        self.thread.refresh();
    }

    /// The second given to the last `begin_turn`.
    #[must_use]
    pub fn now_secs(&self) -> u32 {
        self.thread.now_secs()
    }

    /// Announces, between requests, that the thread holds no reference; frees what no one can read any more.
    ///
    /// # Panics
    ///
    /// If a section is open.
    #[inline]
    pub fn quiesce(&self) {
        assert_eq!(self.thread.depth.get(), 0, "quiesce inside a section");
        if self.thread.online.get() {
            self.thread.store.qsbr.quiesce(self.thread.slot);
        }
        self.thread.refresh();
        self.thread.file_notes();
        if self.thread.has_retired() {
            self.thread.date_unlinked();
            self.thread.store.qsbr.try_advance();
            self.thread.drain();
        }
    }

    /// The thread is about to sleep: it holds no reference until the next `begin_turn`.
    ///
    /// # Panics
    ///
    /// If a section is open.
    pub fn rest(&self) {
        assert_eq!(self.thread.depth.get(), 0, "rest inside a section");
        self.thread.rest();
    }

    /// Memory for a new item, evicting if need be.
    ///
    /// # Errors
    ///
    /// The item is too large, or nothing can be evicted. Inside an open section nothing can be waited for, so there it
    /// may report `OutOfMemory` though something is evictable.
    #[inline]
    pub fn draft(&self, new: NewItem<'_>) -> Result<Draft, DraftError> {
        Draft::new(&self.thread, new)
    }

    /// Opens a read section: what is found in it stays valid until it is dropped.
    #[inline]
    #[must_use]
    pub fn section(&self) -> Section<'_> {
        Section::open(&self.thread)
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.thread.store
    }

    /// Calls `observer` for each item that this handle evicts from now on; `None` stops it.
    pub fn on_evict(&self, observer: Option<Observer>) {
        *self.thread.observer.borrow_mut() = observer;
    }
}

impl ThreadState {
    #[inline]
    pub(crate) fn now_secs(&self) -> u32 {
        self.now_secs.get()
    }

    #[inline]
    pub(crate) fn recency(&self) -> u32 {
        self.recency.get()
    }

    /// Takes the store's tick into the mark that touches leave.
    #[inline]
    pub(crate) fn refresh(&self) {
        let tick = self.store.control().tick.load(Ordering::Relaxed);
        self.recency.set(tick << 16 | self.now_secs.get() & 0xffff);
    }

    #[inline]
    pub(crate) fn wake(&self) {
        if !self.online.replace(true) {
            self.store.qsbr.online(self.slot);
        }
    }

    fn rest(&self) {
        self.file_notes();
        self.date_unlinked();
        if self.online.replace(false) {
            self.store.qsbr.offline(self.slot);
        }
        if !self.retired.borrow().is_empty() {
            self.store.qsbr.try_advance();
            self.store.qsbr.try_advance();
            self.drain();
        }
        self.hand_over();
    }

    /// Leaves what still waits for its grace period to the cleaner, since this thread may sleep for long.
    fn hand_over(&self) {
        let mut retired = self.retired.borrow_mut();
        let mut pinned = self.pinned.borrow_mut();
        if retired.is_empty() && pinned.is_empty() {
            return;
        }
        let mut orphans = self.store.orphans.lock();
        orphans.extend(retired.drain(..));
        orphans.extend(pinned.drain(..).map(|chunk| Retired { epoch: 0, chunk }));
    }

    /// Takes over what sleeping threads left.
    pub(crate) fn adopt(&self) {
        let orphans = std::mem::take(&mut *self.store.orphans.lock());
        let mut retired = self.retired.borrow_mut();
        retired.extend(orphans);
        retired.make_contiguous().sort_unstable_by_key(|item| item.epoch);
    }

    /// Waits out what can be waited out without other threads: with none online, everything retired is freed.
    pub(crate) fn settle(&self) {
        if self.depth.get() > 0 {
            return;
        }
        self.date_unlinked();
        for _ in 0..2 {
            if self.online.get() {
                self.store.qsbr.quiesce(self.slot);
            }
            self.store.qsbr.try_advance();
        }
        if self.online.get() {
            self.store.qsbr.quiesce(self.slot);
        }
        self.drain();
    }

    /// The item was unlinked: its memory is freed after a grace period.
    pub(crate) fn retire(&self, chunk: ChunkRef) {
        self.unlinked.borrow_mut().push(chunk);
    }

    /// Begins the grace period of what was unlinked since the last call.
    fn date_unlinked(&self) {
        let mut unlinked = self.unlinked.borrow_mut();
        if unlinked.is_empty() {
            return;
        }
        let epoch = self.store.qsbr.epoch();
        self.retired.borrow_mut().extend(unlinked.drain(..).map(|chunk| Retired { epoch, chunk }));
    }

    /// Whether anything waits for its grace period.
    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.borrow().is_empty() || !self.unlinked.borrow().is_empty()
    }

    /// Items that wait for their grace period.
    pub(crate) fn retired_count(&self) -> usize {
        self.retired.borrow().len()
    }

    /// Frees what has passed its grace period and is not pinned.
    pub(crate) fn drain(&self) {
        let mut free = self.free.borrow_mut();
        let mut retired = self.retired.borrow_mut();
        let mut pinned = self.pinned.borrow_mut();
        let was_pinned = std::mem::take(&mut *pinned);
        let mut sort = |chunk| {
            if self.is_pinned(chunk) {
                pinned.push(chunk);
            } else {
                self.dismantle(chunk, &mut free);
            }
        };
        was_pinned.into_iter().for_each(&mut sort);
        while let Some(oldest) = retired.front()
            && self.store.qsbr.is_safe(oldest.epoch)
        {
            sort(oldest.chunk);
            retired.pop_front();
        }
        self.store.slabs.put(&self.store.arena, &self.store.qsbr, &free);
        free.clear();
    }

    /// Whether a sender keeps this item's chain.
    pub(crate) fn is_pinned(&self, chunk: ChunkRef) -> bool {
        let arena = &self.store.arena;
        // Acquire: pairs with the Release of `Pin::drop`.
        arena.header(chunk).shape().has(Shape::CHAINED)
            && arena.word(chunk, chain::PINS).load(Ordering::Acquire) > 0
    }

    /// Returns the chunks of an item that no one can read any more.
    pub(crate) fn free(&self, chunk: ChunkRef) {
        let mut chunks = Vec::new();
        self.dismantle(chunk, &mut chunks);
        self.store.slabs.put(&self.store.arena, &self.store.qsbr, &chunks);
    }

    /// Lists the chunks of an item: its pieces, if it is chained, and its head.
    fn dismantle(&self, chunk: ChunkRef, into: &mut Vec<ChunkRef>) {
        let arena = &self.store.arena;
        if arena.header(chunk).shape().has(Shape::CHAINED) {
            let mut piece = arena.word(chunk, chain::FIRST).load(Ordering::Relaxed);
            while piece != 0 {
                into.push(piece);
                (piece, _) = arena.header(piece).piece();
            }
        }
        into.push(chunk);
    }

    /// A cas unique of this thread's, greater than `old` if any that the store gives out is.
    pub(crate) fn next_cas(&self, old: u64) -> u64 {
        let (mut next, mut end) = self.cas.get();
        if next == end || next <= old {
            next = self.store.control().cas.fetch_add(CAS_BLOCK, Ordering::Relaxed);
            end = next + CAS_BLOCK;
        }
        self.cas.set((next + 1, end));
        if next <= old { old.saturating_add(1) } else { next }
    }

    #[inline]
    pub(crate) fn count(&self, class: ClassId, count: Count, by: i64) {
        self.store.counters.add(self.slot, class, count, by);
    }

    #[inline]
    pub(crate) fn count_items(&self, class: ClassId, items: i64, bytes: i64) {
        self.store.counters.add_items(self.slot, class, items, bytes);
    }

    pub(crate) fn set_count(&self, class: ClassId, count: Count, to: u64) {
        self.store.counters.set(self.slot, class, count, to);
    }

    #[inline]
    pub(crate) fn note_touch(&self, chunk: ChunkRef) {
        if self.store.is_strict_lru {
            self.touched.borrow_mut().push(chunk);
        }
    }

    pub(crate) fn observe_eviction(&self, item: &Item<'_>) {
        if let Some(observer) = &*self.observer.borrow() {
            observer(item);
        }
    }

    /// The second at which the item's bag closed, if it was not touched since.
    pub(crate) fn untouched_since(&self, header: &Header, mark: u16) -> Option<u32> {
        let pos = header.pos.load(Ordering::Relaxed);
        if pos == 0 {
            return None;
        }
        let (list, index) = self.store.bag_at(pos)?;
        let bag = list.bag(index);
        (bag.closed_secs() > 0 && !bag.is_touched(mark)).then(|| bag.closed_secs())
    }

    /// The tick part of a recency word.
    pub(crate) fn mark_of(header: &Header) -> u16 {
        lru::low(header.recency.load(Ordering::Relaxed) >> 16)
    }
}

impl Drop for ThreadState {
    fn drop(&mut self) {
        self.rest();
        self.store.qsbr.unregister(self.slot);
    }
}
