//! Linked items: reaching one by its chunk, and linking, moving and unlinking it.
//!
//! The passes over items (evictions, page moves, walks, expiry) know chunks, not keys. Each opens a
//! [`ReadGuard`], reads what it needs of an item, and changes it by [`with_linked`] under the lock
//! of its key.
#![allow(unsafe_code, reason = "on the unsafe list in ARCHITECTURE.md")]

use crate::expiry::invalidation::Births;
use crate::item::{Item, Liveness};
use crate::lru::{BagList, Part, recency};
use crate::namespaces::{Gauges, Row};
use crate::slabs::ClassId;
use crate::stats::Count;
use crate::store::Store;
use crate::table::{Split, Wanted};
use crate::thread::ThreadState;
use arena::ChunkRef;
use arena::birth::STAMPED;
use arena::blocks::Purpose;
use arena::chunks::{HEADER, Header, PIECE_AT, Shape, chain, piece_link};
use arena::sync::Ordering;
use narrow::to_u32;
use std::rc::Rc;

/// A read section of one thread: an item found in it stays valid until the guard is dropped.
pub(crate) struct ReadGuard<'s> {
    pub thread: &'s Rc<ThreadState>,
}

impl<'s> ReadGuard<'s> {
    #[inline(always)]
    pub(crate) fn open(thread: &'s Rc<ThreadState>) -> Self {
        thread.enter();
        Self { thread }
    }

    /// The item in `chunk`, if one is linked there.
    pub(crate) fn linked(&self, chunk: ChunkRef) -> Option<Item<'_>> {
        // Acquire: partner of the Release in `link` and `move_to`; the item's bytes are visible.
        let position = self.thread.store.arena.header(chunk).pos.load(Ordering::Acquire);
        // SAFETY: its position was not zero inside this section, so it is linked or in its grace
        // period.
        (position != 0).then(|| unsafe { Item::found(self.thread, chunk) })
    }

    /// The item in a chunk that was noted in an earlier section, if one is linked there. The page
    /// may have been recut since: then the chunk's first bytes may lie in the middle of another
    /// chunk, and be no header.
    pub(crate) fn noted(&self, chunk: ChunkRef) -> Option<Item<'_>> {
        let store = &self.thread.store;
        store.slabs.is_cut(&store.arena, chunk).then(|| self.linked(chunk)).flatten()
    }
}

impl Drop for ReadGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // For any present order of eviction: the next section must not find them.
        if self.thread.depth() == 1 && self.thread.has_touched() {
            move_touched(self.thread);
        }
        self.thread.leave();
    }
}

/// Decision of a pass about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It stays where it is.
    Stay,
    /// It is unlinked.
    Remove,
    /// It moves to this bag of its class.
    Move {
        bag: u8,
        /// The mark stays; otherwise the item counts as not used since that bag closed.
        keeps_mark: bool,
        /// The reason why it moves.
        purpose: Purpose,
    },
}

/// The key of an item of this shape left by another process. The caller has checked that the key
/// lies within its chunk, and no other thread uses the store.
#[cfg(not(miri))]
pub(crate) fn key_left(store: &Store, chunk: ChunkRef, shape: Shape) -> &[u8] {
    // SAFETY: a chunk begins within the pages, and the slack behind them is longer than any key;
    // nothing is written before a thread has joined.
    unsafe { store.arena.bytes(store.arena.header(chunk), shape.key_at(), shape.key_len()) }
}

/// Hash of the key of an item that the caller has found in its section, or whose stripe it holds.
#[inline]
pub(crate) fn hash_of(store: &Store, chunk: ChunkRef) -> u64 {
    with_key(store, chunk, |key| store.hash(key))
}

/// Passes to `look` the key of an item that the caller has found in its section, of one whose
/// stripe it holds, or of a draft that it owns.
#[inline]
pub(crate) fn with_key<T>(store: &Store, chunk: ChunkRef, look: impl FnOnce(&[u8]) -> T) -> T {
    let header = store.arena.header(chunk);
    let shape = header.shape();
    // SAFETY: linked, found within the caller's section, or the caller's own, so the key does not
    // change during the call.
    look(unsafe { store.arena.bytes(header, shape.key_at(), shape.key_len()) })
}

/// Splits one bucket of the table; `false` if it need not, or cannot. The caller is in a section.
pub(crate) fn grow_table(store: &Store) -> bool {
    let grant = |wanted: Wanted<'_>| commit(store, wanted);
    store.table.split_one(|chunk| hash_of(store, chunk), grant) == Split::Done
}

/// Commits and charges memory of the table; `false` if the file system is full.
pub(crate) fn commit(store: &Store, wanted: Wanted<'_>) -> bool {
    store.budget.take(wanted.bytes(), || wanted.commit())
}

/// Bytes of header, key and value.
#[inline]
pub(crate) fn item_bytes(store: &Store, header: &Header, shape: Shape) -> u64 {
    let value = if shape.is_chained() {
        // Relaxed: written before the item was linked, and never again.
        store.arena.word(header, chain::VALUE_LEN).load(Ordering::Relaxed)
    } else {
        0
    };
    shape.end() as u64 + u64::from(value)
}

/// Makes a finished draft's chunk an item, in the place of the item that it replaces or in the
/// newest bag of a queue, but not yet in the table. Returns the cas unique that `cas` gave it, 0 if
/// it has no room for one. `None`, and the chunk is freed, if no bag block is available. The caller
/// holds the key's stripe, took `births` under it before it decided to store, and unlinks `old`.
#[inline(always)]
pub(crate) fn link(
    thread: &ThreadState,
    class: ClassId,
    chunk: ChunkRef,
    part: Part,
    cas: impl FnOnce() -> u64,
    births: Births,
    old: Option<ChunkRef>,
) -> Option<u64> {
    let store = &*thread.store;
    let header = store.arena.header(chunk);
    let drafted = header.shape();
    // A draft with room for a stamp has the code of a stamped item.
    let birth = births.of(drafted.birth() == STAMPED);
    let shape = drafted.with_birth(birth.code);
    // Relaxed: no other thread reads these words before a position or a slot publishes them.
    if birth.code == STAMPED {
        store.arena.word(header, shape.stamp_at()).store(birth.stamp, Ordering::Relaxed);
    }
    header.shape.store(shape.0, Ordering::Relaxed);
    let mut unique = 0;
    if shape.has(Shape::CAS) {
        unique = cas();
        store.arena.long(header).store(unique, Ordering::Relaxed);
    }
    // Release: partner of the Acquire in `Arena::head_of_piece`.
    header.recency.store(thread.recency(class), Ordering::Release);
    let list = store.list(class);
    let own = thread.own_block(class, part);
    let ask_again = || {
        store.budget.forget_full();
        list.append(&store.blocks, &store.budget, list.newest(part), chunk, Purpose::Item)
    };
    let append = || {
        let appended = list.append_newest(&store.blocks, &store.budget, part, chunk, own);
        appended.or_else(ask_again)
    };
    let taken = old.and_then(|old| {
        // Relaxed: only the holder of the stripe changes the position.
        let position = store.arena.header(old).pos.load(Ordering::Relaxed);
        list.take_place(&store.blocks, position, chunk, store.is_strict_lru())
    });
    let Some(position) = taken.or_else(append) else {
        thread.free(chunk);
        return None;
    };
    // Release: partner of the Acquire in `ReadGuard::linked`.
    header.pos.store(position, Ordering::Release);
    thread.note_deadline(chunk, header.deadline.load(Ordering::Relaxed));
    count_linked(thread, chunk, class, shape, 1, item_bytes(store, header, shape));
    Some(unique)
}

/// Counts an item of these bytes that is linked (`sign` 1) or unlinked (-1).
#[inline]
fn count_linked(
    thread: &ThreadState,
    chunk: ChunkRef,
    class: ClassId,
    shape: Shape,
    sign: i64,
    bytes: u64,
) {
    // An item has at most 1 GiB (`item_bytes_max`), so its size fits.
    let bytes = sign * bytes.cast_signed();
    thread.count_items(class, sign, bytes);
    // A deleted one has left its namespace.
    if !shape.has(Shape::DELETED) {
        count_in_namespace(thread, chunk, |row| row.add_items(sign, bytes));
    }
}

/// Lets `count` change this thread's numbers of the namespace of an item, if it has one. The caller
/// holds the key's stripe.
#[inline]
pub(crate) fn count_in_namespace(thread: &ThreadState, chunk: ChunkRef, count: impl FnOnce(&Row)) {
    if let Some(gauges) = thread.store.namespaces.gauges() {
        count_by_key(thread, gauges, chunk, count);
    }
}

#[inline(never)]
fn count_by_key(thread: &ThreadState, gauges: &Gauges, chunk: ChunkRef, count: impl FnOnce(&Row)) {
    let store = &*thread.store;
    with_key(store, chunk, |key| {
        let stripe = store.table.stripe_number(store.hash(key));
        gauges.row(thread.slot, stripe, key, count);
    });
}

/// `true` if the byte quota of the key's namespace lets a finished draft be linked in place of
/// `old`. The caller holds the key's stripe.
#[inline]
pub(crate) fn has_quota(thread: &ThreadState, draft: ChunkRef, old: Option<ChunkRef>) -> bool {
    let gauges = thread.store.namespaces.gauges();
    gauges.is_none_or(|gauges| is_admitted(thread, gauges, draft, old))
}

#[inline(never)]
fn is_admitted(
    thread: &ThreadState,
    gauges: &Gauges,
    draft: ChunkRef,
    old: Option<ChunkRef>,
) -> bool {
    let store = &*thread.store;
    let bytes_of = |chunk| {
        let header = store.arena.header(chunk);
        let shape = header.shape();
        if shape.has(Shape::DELETED) { 0 } else { item_bytes(store, header, shape) }
    };
    let (bytes, replaced) = (bytes_of(draft), old.map_or(0, bytes_of));
    with_key(store, draft, |key| {
        let stripe = store.table.stripe_number(store.hash(key));
        gauges.admits(thread.slot, stripe, key, bytes, replaced)
    })
}

/// Takes an item that has left the table out of its bag and retires it. The caller holds the key's
/// stripe.
#[inline]
pub(crate) fn unlink(thread: &ThreadState, chunk: ChunkRef) {
    let store = &*thread.store;
    let header = store.arena.header(chunk);
    // Relaxed: the fence of `Qsbr::epoch`, between here and the epoch of the retired item, orders
    // the unlinking before the reuse.
    let position = header.pos.load(Ordering::Relaxed);
    let slot = store.blocks.slot(position);
    // Another item, which replaces this one, may have taken the slot.
    if slot.load(Ordering::Relaxed) == chunk {
        slot.store(0, Ordering::Relaxed);
    }
    header.pos.store(0, Ordering::Relaxed);
    let class = store.slabs.class_of(&store.arena, chunk);
    let shape = header.shape();
    let bytes = item_bytes(store, header, shape);
    count_linked(thread, chunk, class, shape, -1, bytes);
    if shape.has(Shape::DELETED) {
        store.deleted.leave(bytes);
    }
    thread.retire(chunk, bytes);
}

/// Locks the key (of this hash) of an item found in the caller's section, and carries out the
/// verdict of `judge` if the item is still linked. `None` if it is not.
pub(crate) fn with_linked(
    thread: &Rc<ThreadState>,
    chunk: ChunkRef,
    hash: u64,
    judge: impl FnOnce(&Item<'_>) -> Verdict,
) -> Option<Verdict> {
    let locked = thread.store.table.lock(hash);
    let slot = locked.find_ref(chunk)?;
    // SAFETY: linked, and the caller is inside a section.
    let item = unsafe { Item::found(thread, chunk) };
    // Relaxed: a mark guards nothing.
    let seen = item.header.recency.load(Ordering::Relaxed);
    let verdict = judge(&item);
    match verdict {
        Verdict::Stay => {}
        Verdict::Remove => {
            locked.remove(slot);
            unlink(thread, chunk);
        }
        Verdict::Move { bag, keeps_mark, purpose } => {
            let is_moved = move_to(&item, bag, purpose);
            if !is_moved {
                // It stays where it is, and must not keep a mark for longer than a pass takes.
                recency::set_mark(&item.header.recency, seen, recency::low(item.tick()));
            } else if !keeps_mark {
                recency::set_mark(&item.header.recency, seen, recency::UNUSED);
            }
        }
    }
    Some(verdict)
}

/// Moves a linked item to another bag of its class. `false` if there is no block for it. The caller
/// holds its stripe.
fn move_to(item: &Item<'_>, bag: u8, purpose: Purpose) -> bool {
    let store = &*item.thread.store;
    let class = item.class();
    let list = store.list(class);
    let Some(to) = list.append(&store.blocks, &store.budget, bag, item.chunk, purpose) else {
        return false;
    };
    // Relaxed: only the holder of the stripe writes the position, and an emptied slot is skipped.
    let from = item.header.pos.load(Ordering::Relaxed);
    store.blocks.slot(from).store(0, Ordering::Relaxed);
    // Release: partner of the Acquire in `ReadGuard::linked`.
    item.header.pos.store(to, Ordering::Release);
    item.thread.count(class, Count::Moved, 1);
    true
}

/// Result of [`relocate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relocated {
    Moved,
    /// It was dead and is now unlinked, or it was no longer linked. The caller still owns `to`.
    NotLinked,
    /// Its bag has no block for it, or too many pieces of its item are moving. Nothing has changed.
    NoRoom,
}

/// Moves a linked item of one chunk into another chunk of its class, which the caller owns. It
/// stays in its bag. The old chunk is retired, so a thread that found the item there can still read
/// it.
///
/// The caller holds the order lock of the item's list.
pub(crate) fn relocate(
    guard: &ReadGuard<'_>,
    list: &BagList,
    from: ChunkRef,
    to: ChunkRef,
) -> Relocated {
    let thread = guard.thread;
    let store = &*thread.store;
    let locked = store.table.lock(hash_of(store, from));
    let Some(slot) = locked.find_ref(from) else { return Relocated::NotLinked };
    // SAFETY: linked, and the caller is inside a section.
    let item = unsafe { Item::found(thread, from) };
    // The copy is born at the newest code's number, or later. So a purge that misses it, because it
    // has already seen the page of `to`, leaves nothing older than itself behind.
    if item.liveness() != Liveness::Live || !item.renew() {
        thread.count(list.id(), Count::Reclaimed, 1);
        locked.remove(slot);
        unlink(thread, from);
        return Relocated::NotLinked;
    }
    // Relaxed: only the holder of the stripe changes the position.
    let position = item.header.pos.load(Ordering::Relaxed);
    let (_, bag) = store.blocks.bag_at(position);
    let seen = copy_item(store, &item, to);
    let header = store.arena.header(to);
    let Some(new_position) = list.append(&store.blocks, &store.budget, bag, to, Purpose::Move)
    else {
        header.shape.store(Shape::DRAFT, Ordering::Relaxed);
        return Relocated::NoRoom;
    };
    // Release: partner of the Acquire in `ReadGuard::linked`.
    header.pos.store(new_position, Ordering::Release);
    locked.replace(slot, to);
    store.blocks.slot(position).store(0, Ordering::Relaxed);
    item.header.pos.store(0, Ordering::Relaxed);
    thread.retire(from, item_bytes(store, item.header, header.shape()));
    // A GET may have left a mark in the old chunk in the meantime.
    let last = item.header.recency.load(Ordering::Relaxed);
    if last != seen {
        header.recency.store(last, Ordering::Relaxed);
    }
    thread.note_deadline(to, header.deadline.load(Ordering::Relaxed));
    Relocated::Moved
}

/// Copies a linked item of one chunk into the chunk `to`, which the caller owns, except its
/// position. Returns the recency word that was copied. The caller holds the item's stripe.
fn copy_item(store: &Store, item: &Item<'_>, to: ChunkRef) -> u32 {
    let (old, new) = (item.header, store.arena.header(to));
    let shape = old.shape();
    let len = shape.end_with_stamp() - HEADER;
    // SAFETY: cas unique, flags, key, value and stamp of a linked item lie behind its header, and
    // do not change while its stripe is held.
    let bytes = unsafe { store.arena.bytes(old, HEADER, len) };
    // SAFETY: the caller owns the chunk, which is of the class of the old one, and so as large.
    unsafe { store.arena.write(new, HEADER, bytes) };
    let seen = old.recency.load(Ordering::Relaxed);
    // Relaxed: no other thread reads these words before a position or a slot publishes them.
    new.shape.store(shape.0, Ordering::Relaxed);
    new.deadline.store(old.deadline.load(Ordering::Relaxed), Ordering::Relaxed);
    // Release: partner of the Acquire in `Arena::head_of_piece`.
    new.recency.store(seen, Ordering::Release);
    seen
}

/// Moves a piece of a linked item's chain into another chunk of its class, which the caller owns.
///
/// The old chunk is retired, and until it is free a pin keeps the head. So a sender that pinned the
/// value while the old chunk was in the chain, and may return to it, shows as one more pin by then.
pub(crate) fn relocate_piece(guard: &ReadGuard<'_>, from: ChunkRef, to: ChunkRef) -> Relocated {
    let thread = guard.thread;
    let (store, arena) = (&*thread.store, &thread.store.arena);
    let Some(head) = arena.head_of_piece(from).filter(|&head| guard.noted(head).is_some()) else {
        return Relocated::NotLinked;
    };
    let locked = store.table.lock(hash_of(store, head));
    if locked.find_ref(head).is_none() {
        return Relocated::NotLinked;
    }
    let Some(before) = piece_before(store, head, from) else { return Relocated::NotLinked };
    if !arena.keep_head(head) {
        return Relocated::NoRoom;
    }
    let (old, new) = (arena.header(from), arena.header(to));
    let link = arena.long(old).load(Ordering::Relaxed);
    let (_, len) = arena.piece(from);
    // SAFETY: the bytes of a piece of a linked item do not change.
    let bytes = unsafe { arena.bytes(old, PIECE_AT, len) };
    // SAFETY: the caller owns the chunk, which is of the class of the old one, and so as large.
    unsafe { arena.write(new, PIECE_AT, bytes) };
    // Relaxed: no other thread reads these words before the chain has the chunk.
    arena.long(new).store(link, Ordering::Relaxed);
    new.recency.store(head, Ordering::Relaxed);
    new.shape.store(Shape::PIECE, Ordering::Relaxed);
    // Release: partner of the Acquire in `Arena::piece` and `Item::first_piece`.
    match before {
        None => arena.word(arena.header(head), chain::FIRST).store(to, Ordering::Release),
        Some(piece) => {
            let (_, len) = arena.piece(piece);
            let link = piece_link(to, to_u32(len));
            arena.long(arena.header(piece)).store(link, Ordering::Release);
        }
    }
    // Relaxed: readers of the chain do not look at it.
    old.shape.store(Shape::MOVED, Ordering::Relaxed);
    thread.retire(from, len as u64);
    Relocated::Moved
}

/// The piece before this one in the chain of a head; `Some(None)` if it is the first, and `None` if
/// it is not in the chain. The caller holds the head's stripe.
fn piece_before(store: &Store, head: ChunkRef, piece: ChunkRef) -> Option<Option<ChunkRef>> {
    let arena = &store.arena;
    let header = arena.header(head);
    if !header.shape().is_chained() {
        return None;
    }
    let (mut before, mut at) = (None, arena.word(header, chain::FIRST).load(Ordering::Relaxed));
    while at != 0 && at != piece {
        before = Some(at);
        (at, _) = arena.piece(at);
    }
    (at != 0).then_some(before)
}

/// Strict LRU: moves the items touched in this section to the newest end, in the order of touch.
#[cold]
fn move_touched(thread: &Rc<ThreadState>) {
    let store = &*thread.store;
    let touched = std::mem::take(&mut *thread.touched.borrow_mut());
    for &chunk in &touched {
        // A held stripe may be this thread's own: the item keeps its place.
        let Some(locked) = store.table.try_lock(hash_of(store, chunk)) else { continue };
        if locked.find_ref(chunk).is_some() {
            // SAFETY: linked, and the section is still open.
            let item = unsafe { Item::found(thread, chunk) };
            let newest = store.list(item.class()).newest(Part::Proven);
            move_to(&item, newest, Purpose::Move);
        }
    }
    // Returns the vector, so that a section allocates nothing.
    let mut kept = thread.touched.borrow_mut();
    *kept = touched;
    kept.clear();
}
