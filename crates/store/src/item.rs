//! Items as readers see them.
//!
//! Relaxed is enough for an item's words. Its key, flags and length never change while it is
//! linked, and the load that found it made them visible. Deadline and facts change one word at a
//! time, under the key's stripe; a reader without the stripe may see the word before or after. For
//! the cas unique see `arena::version`.
#![allow(unsafe_code, reason = "on the unsafe list in ARCHITECTURE.md")]

use crate::expiry::invalidation::Births;
use crate::lru::Bag;
use crate::lru::recency::{self, Tick};
use crate::pin::Pin;
use crate::slabs::ClassId;
use crate::thread::ThreadState;
use arena::ChunkRef;
use arena::chunks::{Header, PIECE_AT, Shape, chain};
use arena::sync::{AtomicU64, Ordering};
use arena::version::{self, Version};
use std::rc::Rc;

/// State of an item that was found: only a live one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It counts.
    Live,
    /// Its deadline has passed.
    Expired,
    /// It was stored before a flush, or before an invalidation of a prefix of its key.
    Flushed,
    /// It was deleted, and may still be read as stale.
    Deleted,
    /// It was deleted, and its time as a stale item is over.
    Gone,
}

/// A linked item, or one that was linked when it was found. Its bytes stay valid and unchanged
/// until its section ends.
///
/// What is not inlined into the path of a get takes it by value: a reference would keep it in
/// memory on that path.
#[derive(Clone, Copy)]
pub struct Item<'s> {
    pub(crate) thread: &'s Rc<ThreadState>,
    pub(crate) chunk: ChunkRef,
    pub(crate) header: &'s Header,
    /// The state by which a change is decided; see [`Item::judge`].
    judged: Option<Liveness>,
}

impl std::fmt::Debug for Item<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item").field("chunk", &self.chunk).field("header", self.header).finish()
    }
}

impl<'s> Item<'s> {
    /// The item in `chunk`, found inside a section of `thread`.
    ///
    /// # Safety
    ///
    /// Within this section the reference was read from a table slot or a bag slot, or the chunk's
    /// own `pos` was seen not to be zero: so the chunk is linked or in its grace period until the
    /// section ends.
    #[inline]
    pub(crate) unsafe fn found(thread: &'s Rc<ThreadState>, chunk: ChunkRef) -> Self {
        Self { thread, chunk, header: thread.store.arena.header(chunk), judged: None }
    }

    #[inline]
    fn shape(&self) -> Shape {
        self.header.shape()
    }

    /// Judges the item once for the whole decision on a change, and returns the births of its
    /// replacement: `births`, which were read before. If the item is flushed, they are those after
    /// the flush: an item stored because of a flush is not covered by it.
    #[inline]
    pub(crate) fn judge(&mut self, births: Births) -> Births {
        let liveness = self.liveness();
        self.judged = Some(liveness);
        if liveness != Liveness::Flushed {
            return births;
        }
        self.thread.store.invalidations.births_after_seen()
    }

    /// State of the item at the thread's present second.
    #[inline]
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        self.judged.unwrap_or_else(|| self.present_liveness())
    }

    #[inline]
    fn present_liveness(&self) -> Liveness {
        let is_plain = self.shape().is_plain(self.thread.store.invalidations.plain());
        let kind = if is_plain { Liveness::Live } else { self.unusual() };
        let deadline = self.deadline();
        if deadline == 0 || deadline > self.thread.now_secs() {
            return kind;
        }
        match kind {
            Liveness::Live => Liveness::Expired,
            Liveness::Deleted => Liveness::Gone,
            dead => dead,
        }
    }

    /// State of an item that was deleted, or is older than the last invalidation, apart from its
    /// deadline.
    #[cold]
    fn unusual(self) -> Liveness {
        match self.survives() {
            None => Liveness::Flushed,
            Some(_) if self.is_deleted() => Liveness::Deleted,
            Some(_) => Liveness::Live,
        }
    }

    /// `Some` if no invalidation since the item's birth covers its key: its shape, and its birth.
    fn survives(&self) -> Option<(Shape, u64)> {
        let store = &*self.thread.store;
        // Acquire: partner of the Release in `renew`; the code's number is visible.
        let shape = Shape(self.header.shape.load(Ordering::Acquire));
        let birth = store.invalidations.born(shape.birth(), || self.word(shape.stamp_at()));
        let is_hit = store.invalidations.hits(self.key(), birth, |prefix| store.hash(prefix));
        (!is_hit).then_some((shape, birth))
    }

    /// Gives the newest code to an item that is older and has survived all invalidations so far;
    /// `false` if it has not survived. Needs no lock: no other thread relies on the birth.
    pub(crate) fn renew(&self) -> bool {
        // Before the judgement: the item survives everything up to this number.
        let (code, newest) = self.thread.store.invalidations.newest();
        while let Some((shape, birth)) = self.survives() {
            let renewed = shape.with_birth(code).0;
            let word = &self.header.shape;
            // Release: partner of the Acquire in `survives`.
            let exchange =
                || word.compare_exchange(shape.0, renewed, Ordering::Release, Ordering::Relaxed);
            if birth >= newest || exchange().is_ok() {
                return true;
            }
        }
        false
    }

    /// `true` for a deleted item, readable as stale or not.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.shape().has(Shape::DELETED)
    }

    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &'s [u8] {
        let shape = self.shape();
        // SAFETY: the item was found in section `'s` (see `found`), and its key lies where its
        // shape says.
        unsafe { self.thread.store.arena.bytes(self.header, shape.key_at(), shape.key_len()) }
    }

    /// Client flags.
    #[inline]
    #[must_use]
    pub fn flags(&self) -> u32 {
        let shape = self.shape();
        if shape.has(Shape::FLAGS) { self.word(shape.flags_at()) } else { 0 }
    }

    fn word(&self, at: usize) -> u32 {
        self.thread.store.arena.word(self.header, at).load(Ordering::Relaxed)
    }

    /// `true` if it has a cas unique. An item without one has never been shown with one; see
    /// [`Handle::give_cas`](crate::Handle::give_cas).
    #[inline]
    #[must_use]
    pub fn has_cas(&self) -> bool {
        self.shape().has(Shape::CAS)
    }

    /// The cas unique; 0 if it has none.
    #[inline]
    #[must_use]
    pub fn cas(&self) -> u64 {
        self.unique().map_or(0, version::cas)
    }

    #[inline]
    fn unique(&self) -> Option<&'s AtomicU64> {
        self.has_cas().then(|| self.thread.store.arena.long(self.header))
    }

    /// The cas unique with the marks of the invalidation that gave it. Separate calls of
    /// [`cas`](Self::cas), [`is_stale`](Self::is_stale) and [`is_won`](Self::is_won) may differ in
    /// time.
    #[inline]
    #[must_use]
    pub fn version(&self) -> Version {
        version::read(self.unique(), &self.header.shape)
    }

    /// Second of expiry since the store's start; 0 is never.
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> u32 {
        self.header.deadline.load(Ordering::Relaxed)
    }

    /// Bytes of the value.
    #[inline]
    #[must_use]
    pub fn value_len(&self) -> usize {
        let shape = self.shape();
        if shape.is_chained() { self.word(chain::VALUE_LEN) as usize } else { shape.inline_len() }
    }

    /// Header, key and value, in bytes.
    #[must_use]
    pub fn total_bytes(self) -> usize {
        let shape = self.shape();
        shape.key_at() + shape.key_len() + self.value_len()
    }

    /// Bytes of its chunk that it needs.
    pub(crate) fn bytes_in_chunk(&self) -> usize {
        self.shape().end_with_stamp()
    }

    /// Slab class of the item's chunk (of its head, if it is chained).
    #[inline]
    #[must_use]
    pub fn class(&self) -> u8 {
        self.thread.store.slabs.class_of(&self.thread.store.arena, self.chunk)
    }

    /// The key came as base64 and is echoed as base64.
    #[must_use]
    pub fn is_base64_key(&self) -> bool {
        self.shape().has(Shape::BASE64)
    }

    /// Read at least once since it was stored.
    #[must_use]
    pub fn is_fetched(&self) -> bool {
        self.shape().has(Shape::FETCHED)
    }

    /// Invalidated, but still readable as stale.
    #[inline]
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.shape().has(Shape::STALE)
    }

    /// A recache win has been handed out.
    #[inline]
    #[must_use]
    pub fn is_won(&self) -> bool {
        self.shape().has(Shape::WON)
    }

    /// Seconds since last access. Exact for an item accessed within the last 18 hours, or not since
    /// its bag closed.
    #[must_use]
    pub fn idle_secs(&self) -> u32 {
        let position = self.header.pos.load(Ordering::Relaxed);
        let bag = if position == 0 { None } else { self.thread.store.bag_at(position) };
        self.idle_secs_in(bag.map(|(list, bag)| (list.id(), list.bag(bag))))
    }

    /// Seconds since last access of an item that is in this bag of the class, if it is in any.
    #[inline]
    pub(crate) fn idle_secs_in(&self, bag: Option<(ClassId, &Bag)>) -> u32 {
        let recency = self.header.recency.load(Ordering::Relaxed);
        let (mark, second) = (recency::mark_of(recency), recency & 0xffff);
        let now = self.thread.now_secs();
        let bound = bag.and_then(|(class, bag)| self.untouched_since(mark, class, bag));
        let bound = bound.unwrap_or(now).min(now);
        match bound.wrapping_sub(second) & 0xffff {
            // Written by a thread whose clock was a little ahead of ours.
            0xfff0.. => now - bound,
            ago => (now - bound).saturating_add(ago),
        }
    }

    /// The second at which the item's bag closed, if this mark is older than the closing.
    #[inline]
    fn untouched_since(&self, mark: u16, class: ClassId, bag: &Bag) -> Option<u32> {
        let is_touched = bag.touched_tick(mark, self.thread.store.tick(class)).is_some();
        (bag.closed_secs() > 0 && !is_touched).then(|| bag.closed_secs())
    }

    /// Bags that the item's class has opened.
    pub(crate) fn tick(&self) -> Tick {
        self.thread.store.tick(self.class())
    }

    /// The value if it is inline; `None` for a chained one.
    #[inline]
    #[must_use]
    pub fn inline_value(&self) -> Option<&'s [u8]> {
        let shape = self.shape();
        if shape.is_chained() {
            return None;
        }
        let at = shape.key_at() + shape.key_len();
        // SAFETY: the item was found in section `'s` (see `found`), and an inline value follows the
        // key.
        Some(unsafe { self.thread.store.arena.bytes(self.header, at, shape.inline_len()) })
    }

    /// Calls `f` with the pieces of the value in order; one piece if it is inline.
    pub fn for_each_piece(&self, mut f: impl FnMut(&'s [u8])) {
        if let Some(value) = self.inline_value() {
            return f(value);
        }
        let arena = &self.thread.store.arena;
        let mut piece = self.first_piece();
        while piece != 0 {
            let (next, len) = arena.piece(piece);
            // SAFETY: a chained item's pieces are freed with its head, which is valid for `'s`.
            f(unsafe { arena.bytes(arena.header(piece), PIECE_AT, len) });
            piece = next;
        }
    }

    /// The first piece of a chained value.
    fn first_piece(&self) -> ChunkRef {
        // Acquire: partner of the Release in `linked::relocate_piece`; the bytes of a piece that
        // was moved are visible.
        self.thread.store.arena.word(self.header, chain::FIRST).load(Ordering::Acquire)
    }

    /// Keeps a chained value readable after the section for as long as the pin lives. `None`: the
    /// value is inline.
    #[must_use]
    pub fn pin(self) -> Option<Pin> {
        if !self.shape().is_chained() {
            return None;
        }
        // Relaxed: the section protects the item until the freeing thread has seen this section's
        // end, and with it the pin.
        let pins = self.thread.store.arena.word(self.header, chain::PINS);
        pins.fetch_add(1, Ordering::Relaxed);
        let head = self.chunk;
        Some(Pin::counted(self.thread, head, self.value_len(), self.first_piece()))
    }

    /// Marks the item as used now, and as read. Stores only if the mark changes: at most once per
    /// second, and once for each bag of its class opened since. Returns the class, which it had to
    /// look up.
    #[inline(always)]
    pub fn touch(&self) -> u8 {
        let class = self.class();
        self.bump_in(class);
        if !self.shape().has(Shape::FETCHED) {
            self.header.shape.fetch_or(Shape::FETCHED, Ordering::Relaxed);
        }
        class
    }

    /// Marks the item as used now, but not as read (for an `add` that finds the item).
    #[inline]
    pub fn bump(&self) {
        self.bump_in(self.class());
    }

    /// Makes the next passes over the item keep it as just used. Its last access does not change.
    pub(crate) fn spare(&self) {
        let word = &self.header.recency;
        let mark = recency::mark_of(self.thread.recency(self.class()));
        recency::set_mark(word, word.load(Ordering::Relaxed), mark);
    }

    #[inline(always)]
    fn bump_in(&self, class: u8) {
        recency::bump(&self.header.recency, self.thread.recency(class));
        self.thread.note_touch(self.chunk);
    }

    /// Sets the second of expiry (0: never). For use inside
    /// [`Section::update`](crate::Section::update).
    pub fn set_deadline(&self, deadline: u32) {
        self.header.deadline.store(deadline, Ordering::Relaxed);
        self.thread.note_deadline(self.chunk, deadline);
    }

    /// Makes the item stale, with its recache win not handed out. If it has a cas unique, it gets
    /// this one, or else the store's next. For use inside
    /// [`Section::update`](crate::Section::update).
    pub fn invalidate(&self, chosen: Option<u64>) {
        let unique = self.unique().map(|word| {
            (word, self.thread.cas_of_change(chosen, Some(word.load(Ordering::Relaxed))))
        });
        version::invalidate(unique, &self.header.shape);
    }

    /// Marks the recache win as handed out. For use inside
    /// [`Section::update`](crate::Section::update).
    pub fn set_won(&self) {
        self.header.shape.fetch_or(Shape::WON, Ordering::Relaxed);
    }
}
