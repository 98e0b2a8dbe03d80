//! One thread's state in a store: its clock, its slot for reclamation, and its private data.
//!
//! Everything here belongs to one thread, so it is cells without atomics. A [`Handle`], its drafts
//! and its pins share the state by `Rc`; the last of them unregisters the thread.
//!
//! Modules above work on a store through this state: each takes `&ThreadState`, and
//! `&Rc<ThreadState>` where it opens a read section.
//!
//! [`Handle`]: crate::handle::Handle

use crate::expiry::transient::Note;
use crate::lru::append::OwnBlock;
use crate::lru::{Part, recency};
use crate::slabs::ClassId;
use crate::stats::{Count, ThreadCounts};
use crate::store::Store;
use arena::ChunkRef;
use arena::qsbr::{Qsbr, Slot};
use arena::retired::RetireList;
use arena::uniques::{self, UniqueBlock};
use crossbeam_utils::CachePadded;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Called with each item that the thread is about to evict, by its chunk.
pub(crate) type ChunkObserver = Box<dyn Fn(&Rc<ThreadState>, ChunkRef)>;

/// State of one thread that has joined a store.
pub(crate) struct ThreadState {
    pub store: Arc<Store>,
    /// The thread's number in reclamation and in the counters.
    pub slot: usize,
    /// Its announcements in reclamation. Kept here, so that a section costs only two stores.
    own: Arc<CachePadded<Slot>>,
    /// Its counters.
    counts: ThreadCounts,
    /// Read sections open now, nested.
    depth: Cell<u32>,
    online: Cell<bool>,
    now_secs: Cell<u32>,
    /// The part of the second that a recency word has.
    recency_second: Cell<u32>,
    retired: RetireList,
    /// Items unlinked since the thread last tried to free some, and their bytes.
    unlinked: Cell<(u32, u64)>,
    /// Bytes of unlinked items that can be freed without more of them.
    bytes_due: Cell<u64>,
    /// The memory in grace periods exceeds that number of bytes, or has since it was last empty.
    is_heavy: Cell<bool>,
    /// The epoch that did not advance while this thread waited for memory; 0: none.
    stuck_epoch: Cell<u64>,
    /// Chunks on their way back to the slabs; empty between calls.
    free: RefCell<Vec<ChunkRef>>,
    uniques: UniqueBlock,
    /// The blocks in which the thread appends, by class and queue.
    own_blocks: Box<[[Cell<OwnBlock>; 2]]>,
    /// Stores of each class, as counted by [`is_time_to_look`](Self::is_time_to_look).
    stores: Box<[Cell<u32>]>,
    /// Items touched in this section, for the strict LRU.
    pub touched: RefCell<Vec<ChunkRef>>,
    /// Deadlines of items linked or touched since the last announcement, for the transient ring.
    pub notes: RefCell<Vec<Note>>,
    pub observer: RefCell<Option<ChunkObserver>>,
    /// Varies the sampled pages (see [`next_sample`](Self::next_sample)).
    sample_start: Cell<usize>,
}

/// Unlinked items whose grace period a thread tries to end together.
const UNLINKED_TOGETHER: u32 = 16;
/// Bytes of the memory limit for each byte of such items, so that a small store has few of them.
const LIMIT_PER_UNLINKED: u64 = 1 << 13;

/// Number of items of a class from which only one store in [`LOOK_EVERY`] checks its newest bags.
/// They have 64 slots or more then, so a few beyond change nothing.
const MANY_ITEMS: u64 = 1 << 12;
const LOOK_EVERY: u32 = 8;

impl ThreadState {
    /// Start of the next sample of pages. The sample after that starts `step` further on.
    pub(crate) fn next_sample(&self, step: usize) -> usize {
        self.sample_start.replace(self.sample_start.get().wrapping_add(step))
    }

    /// State of the thread that has registered as `slot`.
    pub(crate) fn new(store: &Arc<Store>, slot: usize) -> Rc<Self> {
        Rc::new(Self {
            store: Arc::clone(store),
            slot,
            own: store.qsbr.slot(slot),
            counts: store.counters.of_thread(slot),
            depth: Cell::new(0),
            online: Cell::new(false),
            now_secs: Cell::new(0),
            recency_second: Cell::new(0),
            retired: RetireList::default(),
            unlinked: Cell::default(),
            bytes_due: Cell::new(0),
            is_heavy: Cell::new(false),
            stuck_epoch: Cell::new(0),
            free: RefCell::new(Vec::with_capacity(256)),
            uniques: UniqueBlock::default(),
            own_blocks: (0..store.slabs.count()).map(|_| Default::default()).collect(),
            stores: (0..store.slabs.count()).map(|_| Cell::new(0)).collect(),
            touched: RefCell::new(Vec::new()),
            notes: RefCell::new(Vec::new()),
            observer: RefCell::new(None),
            sample_start: Cell::new(slot),
        })
    }

    /// The second given to the last [`begin_turn`](Self::begin_turn).
    #[inline]
    pub(crate) fn now_secs(&self) -> u32 {
        self.now_secs.get()
    }

    /// The recency word that a use of an item of this class leaves now. The thread is in a section.
    #[inline]
    pub(crate) fn recency(&self, class: ClassId) -> u32 {
        recency::word_of(self.store.tick(class), self.recency_second.get())
    }

    /// Read sections open now.
    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        self.depth.get()
    }

    /// Starts a read section, or a nested one.
    #[inline(always)]
    pub(crate) fn enter(&self) {
        if self.depth.replace(self.depth.get() + 1) == 0 {
            self.wake();
            self.own.enter();
        }
    }

    /// Ends the read section that started last.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if depth == 0 {
            self.own.leave();
        }
    }

    /// Announces that the thread may open sections from now on.
    #[inline]
    fn wake(&self) {
        if !self.online.replace(true) {
            self.store.qsbr.online(self.slot);
        }
    }

    /// See [`Handle::begin_turn`](crate::handle::Handle::begin_turn).
    pub(crate) fn begin_turn(&self, now_secs: u32) {
        if self.now_secs.replace(now_secs) != now_secs {
            self.bytes_due.set(self.store.budget.limit() / LIMIT_PER_UNLINKED);
        }
        self.recency_second.set(recency::second_of(now_secs));
        self.wake();
    }

    /// See [`Handle::quiesce`](crate::handle::Handle::quiesce). No section is open.
    #[inline]
    pub(crate) fn quiesce(&self) {
        if self.online.get() {
            self.store.qsbr.quiesce(self.slot);
        }
        self.file_notes();
        let (items, bytes) = self.unlinked.get();
        if items >= UNLINKED_TOGETHER || bytes > self.bytes_due.get() || self.is_heavy.get() {
            self.free_retired();
        }
    }

    /// The rest of `quiesce`, separate so that most turns stay short. It reads a line of each
    /// thread, and takes the epoch's line, so it serves several unlinked items together.
    #[inline(never)]
    fn free_retired(&self) {
        let (_, bytes) = self.unlinked.take();
        self.retired.date(&self.store.qsbr);
        self.store.qsbr.try_advance();
        self.drain();
        let was_heavy = self.is_heavy.get() || bytes > self.bytes_due.get();
        self.is_heavy.set(was_heavy && self.retired.is_waiting());
    }

    /// See [`Handle::rest`](crate::handle::Handle::rest). No section is open.
    pub(crate) fn rest(&self) {
        self.file_notes();
        self.retired.date(&self.store.qsbr);
        if self.online.replace(false) {
            self.store.qsbr.offline(self.slot);
        }
        if self.retired.is_waiting() {
            // Two advances are a whole grace period, if no other thread is in a section.
            self.store.qsbr.try_advance();
            self.store.qsbr.try_advance();
            self.drain();
        }
        // This thread may sleep for long: the cleaner frees the rest.
        self.retired.hand_over(&self.store.orphans);
    }

    /// Takes over the retired items of sleeping threads.
    pub(crate) fn adopt(&self) {
        self.retired.adopt(&self.store.orphans);
    }

    /// Frees memory that can be freed without waiting for other threads: everything retired, if
    /// none is online. Does nothing inside a section.
    pub(crate) fn settle(&self) {
        self.settle_by(Qsbr::try_advance);
    }

    /// Like [`settle`](Self::settle), but frees everything retired if no other thread is in a
    /// section, whether it runs or not. Costs a system call and interrupts the others.
    pub(crate) fn force(&self) {
        self.settle_by(Qsbr::force_advance);
    }

    fn settle_by(&self, advance: impl Fn(&Qsbr) -> u64) {
        if self.depth.get() > 0 {
            return;
        }
        self.retired.date(&self.store.qsbr);
        // A grace period is two advances, and each needs this thread's own announcement before it.
        for _ in 0..2 {
            if self.online.get() {
                self.store.qsbr.quiesce(self.slot);
            }
            advance(&self.store.qsbr);
        }
        if self.online.get() {
            self.store.qsbr.quiesce(self.slot);
        }
        self.drain();
    }

    /// Remembers that the thread has waited in vain for the end of the present epoch.
    pub(crate) fn note_stuck(&self) {
        self.stuck_epoch.set(self.store.qsbr.now());
    }

    /// `true` if the thread has waited in vain for the end of this epoch before.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck_epoch.get() == self.store.qsbr.now()
    }

    /// The block in which the thread appends to the newest bag of a queue.
    #[inline]
    pub(crate) fn own_block(&self, class: ClassId, part: Part) -> &Cell<OwnBlock> {
        &self.own_blocks[usize::from(class) - 1][part as usize]
    }

    /// `true` if this store of an item of the class should check whether the newest bags are full.
    #[inline]
    pub(crate) fn is_time_to_look(&self, class: ClassId) -> bool {
        let stores = &self.stores[usize::from(class) - 1];
        stores.set(stores.get().wrapping_add(1));
        stores.get().is_multiple_of(LOOK_EVERY) || self.store.slabs.class(class).used() < MANY_ITEMS
    }

    /// Retires the unlinked item of these bytes: its memory is freed after a grace period.
    #[inline]
    pub(crate) fn retire(&self, chunk: ChunkRef, bytes: u64) {
        self.retired.push(chunk);
        let (items, sum) = self.unlinked.get();
        self.unlinked.set((items + 1, sum + bytes));
    }

    /// `true` if an unlinked item waits for its grace period.
    pub(crate) fn has_retired(&self) -> bool {
        self.retired.is_waiting()
    }

    /// Items that wait for their grace period.
    pub(crate) fn retired_count(&self) -> usize {
        self.retired.waiting_count()
    }

    /// Frees items that have passed their grace period and are not pinned.
    fn drain(&self) {
        let store = &*self.store;
        let mut free = self.free.borrow_mut();
        self.retired.drain(&store.qsbr, |chunk| store.arena.take_apart(chunk, &mut free));
        store.slabs.put(&store.arena, &store.qsbr, self.slot, &free);
        free.clear();
    }

    /// Returns the chunks of an item that no other thread can read.
    #[inline(never)]
    pub(crate) fn free(&self, chunk: ChunkRef) {
        let store = &*self.store;
        let mut chunks = Vec::new();
        store.arena.chunks_of(chunk, &mut chunks);
        store.slabs.put(&store.arena, &store.qsbr, self.slot, &chunks);
    }

    /// The cas unique of an item that has one, at a change of its key: the one that a client chose,
    /// or the store's next. `old` is the replaced item's, if there is one: 0 if that has none.
    pub(crate) fn cas_of_change(&self, chosen: Option<u64>, old: Option<u64>) -> u64 {
        let counter = &self.store.control().cas;
        match (chosen, old) {
            (Some(chosen), _) => {
                uniques::note_chosen(counter, chosen);
                chosen
            }
            (None, Some(0)) => self.uniques.fresh(counter),
            (None, old) => self.uniques.next(counter, old.unwrap_or(0)),
        }
    }

    #[inline]
    pub(crate) fn count(&self, class: ClassId, count: Count, by: i64) {
        self.counts.add(class, count, by);
    }

    #[inline]
    pub(crate) fn count_items(&self, class: ClassId, items: i64, bytes: i64) {
        self.counts.add_items(class, items, bytes);
    }

    pub(crate) fn set_count(&self, class: ClassId, count: Count, to: u64) {
        self.counts.set(class, count, to);
    }

    /// Remembers a touched item until the end of the section, if the store keeps a strict LRU.
    #[inline]
    pub(crate) fn note_touch(&self, chunk: ChunkRef) {
        if self.store.is_strict_lru() {
            self.touched.borrow_mut().push(chunk);
        }
    }

    /// `true` if an item was touched in this section, and the store kept a strict LRU.
    #[inline]
    pub(crate) fn has_touched(&self) -> bool {
        !self.touched.borrow().is_empty()
    }

    /// Notes a linked item's deadline (second of death; 0: never) if it is near. The caller holds
    /// the item's stripe.
    #[inline]
    pub(crate) fn note_deadline(&self, chunk: ChunkRef, deadline: u32) {
        if deadline == 0 {
            return;
        }
        let threshold = self.store.transients.threshold_secs();
        if threshold != 0 && deadline.saturating_sub(self.now_secs()) <= threshold {
            self.notes.borrow_mut().push(Note { deadline, chunk });
        }
    }

    /// Files this thread's notes in the transient ring. The caller holds no lock.
    pub(crate) fn file_notes(&self) {
        let mut notes = self.notes.borrow_mut();
        if notes.is_empty() {
            return;
        }
        let store = &*self.store;
        store.transients.file(&store.blocks, &store.budget, &mut notes, self.now_secs());
    }
}

impl Drop for ThreadState {
    fn drop(&mut self) {
        self.rest();
        let store = &*self.store;
        store.slabs.leave(&store.arena, &store.qsbr, self.slot);
        store.qsbr.unregister(self.slot);
    }
}
