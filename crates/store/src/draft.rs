//! Drafts: items being written, in owned chunks that no reader can see.
//!
//! Relaxed is enough for every word of a draft: no other thread reads them before the draft is
//! linked, and the linking publishes them.
#![allow(unsafe_code, reason = "on the unsafe list in ARCHITECTURE.md")]

use crate::allocation::allocate;
use crate::item::Item;
use crate::slabs::ClassId;
use crate::thread::ThreadState;
use arena::ChunkRef;
use arena::birth::STAMPED;
use arena::chunks::{
    CAS_BYTES, CHAINED_KEY_AT, CHUNK_BYTES_MAX, HEADER, PIECE_AT, PIECE_BYTES, STAMP_BYTES, Shape,
    chain, piece_link,
};
use arena::sync::Ordering;
use narrow::{to_u16, to_u32};
use std::rc::Rc;

/// Key, flags, deadline and size of a new item.
#[derive(Clone, Copy, Debug)]
pub struct NewItem<'k> {
    /// 1 to 250 bytes.
    pub key: &'k [u8],
    /// Client flags.
    pub flags: u32,
    /// Second of expiry since the store's start; 0 is never.
    pub deadline: u32,
    /// Bytes of the value.
    pub value_len: usize,
    /// The key came as base64, and replies echo it in base64.
    pub base64_key: bool,
    /// It gets a cas unique when it is linked, because a client chose one or will receive it.
    pub has_cas: bool,
}

/// The reason for which an item gets no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftError {
    /// Header, key and value exceed the largest item (`-I`), or the key is not of 1 to 250 bytes.
    TooLarge,
    /// Nothing is evictable, or eviction is off (`-M`).
    OutOfMemory,
    /// The key's namespace has reached its limit of bytes (`Namespace::bytes_max`).
    OverQuota,
}

/// An item being written. Dropping it returns its memory.
///
/// It is moved several times on its way from the request to the table, so it is kept small.
pub struct Draft {
    thread: Rc<ThreadState>,
    head: ChunkRef,
    /// The last piece of a chained value; zero if there is none yet.
    piece: ChunkRef,
    value_len: u32,
    filled: u32,
    /// Byte at which an inline value starts; zero if the value is chained.
    inline_at: u16,
    class: ClassId,
}

const _: () = assert!(size_of::<Draft>() <= 32);

impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draft")
            .field("value_len", &self.value_len)
            .field("filled", &self.filled)
            .finish_non_exhaustive()
    }
}

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;

/// Bytes of an item with this key, flags and value: header, key and value.
/// [`crate::Item::total_bytes`] is a few bytes more if the item is chained, or has a cas unique.
#[must_use]
pub fn item_bytes(key_len: usize, flags: u32, value_len: usize) -> usize {
    HEADER + if flags == 0 { 0 } else { 4 } + key_len + value_len
}

impl Draft {
    #[inline(always)]
    pub(crate) fn new(thread: &Rc<ThreadState>, new: NewItem<'_>) -> Result<Self, DraftError> {
        let key_len = u8::try_from(new.key.len())
            .ok()
            .filter(|&len| (1..=KEY_BYTES_MAX).contains(&usize::from(len)))
            .ok_or(DraftError::TooLarge)?;
        let flags_len = if new.flags == 0 { 0 } else { 4 };
        let plain = HEADER + flags_len + new.key.len() + new.value_len;
        if plain as u64 > thread.store.item_bytes_max {
            return Err(DraftError::TooLarge);
        }
        let facts = if new.base64_key { Shape::BASE64 } else { 0 };
        let has_cas = new.has_cas || thread.store.gives_all_cas() || is_nearly_chained(plain);
        let (inline, facts) =
            if has_cas { (plain + CAS_BYTES, facts | Shape::CAS) } else { (plain, facts) };
        let is_stamped = thread.store.invalidations.needs_stamps();
        let room = if is_stamped { stamped(inline) } else { inline };
        let (head, shape) = if room <= CHUNK_BYTES_MAX {
            let len = u16::try_from(new.value_len).map_err(|_| DraftError::TooLarge)?;
            let facts = if flags_len == 0 { facts } else { facts | Shape::FLAGS };
            let shape = Shape::item(key_len, len, facts);
            let head = allocate::take_for(thread, room);
            (head, if is_stamped { with_room(shape) } else { shape })
        } else {
            // Every head has room.
            (allocate::take_head(thread), with_room(Shape::chained(key_len, facts)))
        };
        Ok(Self::begin(thread, head.ok_or(DraftError::OutOfMemory)?, new, shape))
    }

    #[inline(always)]
    fn begin(
        thread: &Rc<ThreadState>,
        (class, head): (ClassId, ChunkRef),
        new: NewItem<'_>,
        shape: Shape,
    ) -> Self {
        let arena = &thread.store.arena;
        let header = arena.header(head);
        header.deadline.store(new.deadline, Ordering::Relaxed);
        if shape.has(Shape::FLAGS) {
            arena.word(header, shape.flags_at()).store(new.flags, Ordering::Relaxed);
        }
        if shape.is_chained() {
            // `item_bytes_max` is at most 1 GiB.
            arena.word(header, chain::VALUE_LEN).store(to_u32(new.value_len), Ordering::Relaxed);
            arena.word(header, chain::PINS).store(0, Ordering::Relaxed);
            arena.word(header, chain::FIRST).store(0, Ordering::Relaxed);
        }
        // SAFETY: `head` was just taken for us and is not linked; its class has room for the key at
        // this place.
        unsafe { arena.write(header, shape.key_at(), new.key) };
        // The key length makes it an item, but no thread reads it before `pos` is set.
        header.shape.store(shape.0, Ordering::Relaxed);
        Self {
            thread: Rc::clone(thread),
            head,
            piece: 0,
            // `item_bytes_max` is at most 1 GiB.
            value_len: to_u32(new.value_len),
            filled: 0,
            inline_at: if shape.is_chained() { 0 } else { to_u16(shape.key_at() + new.key.len()) },
            class,
        }
    }

    /// Bytes of value still to be pushed.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> usize {
        (self.value_len - self.filled) as usize
    }

    /// Slab class of the chunk, or of the head if the value is chained.
    #[inline]
    #[must_use]
    pub fn class(&self) -> u8 {
        self.class
    }

    /// `true` if the item gets a cas unique when it is linked.
    #[inline]
    #[must_use]
    pub fn has_cas(&self) -> bool {
        self.thread.store.arena.header(self.head).shape().has(Shape::CAS)
    }

    /// `true` if key length, flags and form of the key are those of the item; then the key is
    /// equal, too, if the draft is for the item's key.
    pub(crate) fn has_facts_of(&self, item: &Item<'_>) -> bool {
        let arena = &self.thread.store.arena;
        let header = arena.header(self.head);
        let shape = header.shape();
        let flags = match shape.has(Shape::FLAGS) {
            true => arena.word(header, shape.flags_at()).load(Ordering::Relaxed),
            false => 0,
        };
        flags == item.flags() && shape.has(Shape::BASE64) == item.is_base64_key()
    }

    /// Gives the draft the marks of the item that it replaces: whether it was read, is stale, and
    /// its recache win was handed out. For use inside
    /// [`Section::update`](crate::Section::update).
    pub fn copy_marks(&mut self, item: &Item<'_>) {
        const MARKS: u32 = Shape::FETCHED | Shape::STALE | Shape::WON;
        self.set(item.header.shape().0 & MARKS, true);
    }

    /// The second of expiry (0: never).
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> u32 {
        self.thread.store.arena.header(self.head).deadline.load(Ordering::Relaxed)
    }

    /// Sets the second of expiry (0: never).
    pub fn set_deadline(&mut self, deadline: u32) {
        self.thread.store.arena.header(self.head).deadline.store(deadline, Ordering::Relaxed);
    }

    /// Sets whether the item is stale from the start.
    pub fn set_stale(&mut self, stale: bool) {
        self.set(Shape::STALE, stale);
    }

    /// Sets whether a recache win of the item counts as handed out from the start.
    pub fn set_won(&mut self, won: bool) {
        self.set(Shape::WON, won);
    }

    fn set(&mut self, fact: u32, to: bool) {
        let shape = &self.thread.store.arena.header(self.head).shape;
        let others = shape.load(Ordering::Relaxed) & !fact;
        shape.store(if to { others | fact } else { others }, Ordering::Relaxed);
    }

    /// Appends bytes of the value.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if a chained value needs another piece and there is none. Drop the draft then.
    ///
    /// # Panics
    ///
    /// If `bytes` is longer than [`remaining`](Self::remaining).
    #[inline(always)]
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), DraftError> {
        assert!(bytes.len() <= self.remaining(), "more value than announced");
        if self.inline_at == 0 {
            return self.push_chained(bytes);
        }
        let at = usize::from(self.inline_at) + self.filled as usize;
        let arena = &self.thread.store.arena;
        // SAFETY: the draft owns the chunk, and its class has room for the announced value.
        unsafe { arena.write(arena.header(self.head), at, bytes) };
        self.filled += to_u32(bytes.len());
        Ok(())
    }

    fn push_chained(&mut self, mut bytes: &[u8]) -> Result<(), DraftError> {
        while !bytes.is_empty() {
            // All pieces but the last are full.
            let at = self.filled as usize % PIECE_BYTES;
            if at == 0 {
                self.add_piece()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - at));
            let arena = &self.thread.store.arena;
            // SAFETY: the draft owns its pieces. `PIECE_BYTES` fit behind a piece's header, or what
            // is left of the value if that is less, of which `bytes` are a part.
            unsafe { arena.write(arena.header(self.piece), PIECE_AT + at, now) };
            self.filled += to_u32(now.len());
            bytes = later;
        }
        Ok(())
    }

    fn add_piece(&mut self) -> Result<(), DraftError> {
        let len = self.remaining().min(PIECE_BYTES);
        // A piece is at most 16 KiB (`PIECE_BYTES`), so its length fits a link.
        let (_, piece) =
            allocate::take_for(&self.thread, PIECE_AT + len).ok_or(DraftError::OutOfMemory)?;
        let arena = &self.thread.store.arena;
        let header = arena.header(piece);
        header.recency.store(self.head, Ordering::Relaxed);
        arena.long(header).store(piece_link(0, to_u32(len)), Ordering::Relaxed);
        header.shape.store(Shape::PIECE, Ordering::Relaxed);
        if self.piece == 0 {
            let head = arena.header(self.head);
            arena.word(head, chain::FIRST).store(piece, Ordering::Relaxed);
        } else {
            let link = piece_link(piece, to_u32(PIECE_BYTES));
            arena.long(arena.header(self.piece)).store(link, Ordering::Relaxed);
        }
        self.piece = piece;
        Ok(())
    }

    /// The chunk, or the head of a chained value.
    #[inline]
    pub(crate) fn chunk(&self) -> ChunkRef {
        self.head
    }

    /// Gives the chunk up to the caller, who is about to link it.
    ///
    /// # Panics
    ///
    /// If the draft is unfinished.
    pub(crate) fn into_chunk(mut self) -> ChunkRef {
        assert_eq!(self.remaining(), 0, "an unfinished draft cannot be linked");
        std::mem::take(&mut self.head)
    }
}

impl Drop for Draft {
    #[inline]
    fn drop(&mut self) {
        if self.head != 0 {
            self.thread.free(self.head);
        }
    }
}

/// `true` if an inline item of these bytes would have to be chained to get a cas unique later. No
/// item changes so, because it is copied under its key's lock, where no memory is taken.
#[inline]
fn is_nearly_chained(plain: usize) -> bool {
    plain > CHUNK_BYTES_MAX - CAS_BYTES - 2 * STAMP_BYTES
}

/// Bytes with a stamp behind them.
fn stamped(bytes: usize) -> usize {
    bytes.next_multiple_of(STAMP_BYTES) + STAMP_BYTES
}

/// The shape of a draft that has room for a stamp.
fn with_room(shape: Shape) -> Shape {
    shape.with_birth(STAMPED)
}

const _: () = assert!(
    CHAINED_KEY_AT + KEY_BYTES_MAX + 2 * STAMP_BYTES - 2 <= 296 && CHUNK_BYTES_MAX <= 1 << 14
);
