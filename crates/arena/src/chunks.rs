//! Chunk memory, and the header with which every chunk begins.
//!
//! The arena is one region cut into pages; a page belongs to a slab class and is cut into its
//! chunks. A chunk is named by a `ChunkRef` (see [`crate::names`]).
//!
//! Every chunk begins with a `Header` made of atomics, which any thread may read at any time. The
//! bytes behind the header are plain memory under two rules:
//!
//! 1. Only the owner of a chunk that is not linked writes them (`write`).
//! 2. They are read (`bytes`) only while the chunk is linked or its grace period runs: by a reader
//!    that found it inside a section, by a holder of a pin, or by its owner.
//!
//! The header's `shape` gives the kind of a chunk. With a key length over zero it is an item.
//! Otherwise it is free, a draft, or a piece of a chained value. `pos` is not zero exactly while an
//! item is linked.
//!
//! Behind the header an item has these fields, if its shape says so, then its key:
//!
//! ```text
//!     cas unique (8)  client flags (4)  of a chained item: value length, pins, first piece (12)
//! ```
//!
//! A piece has its link there (8). These are atomics, too, and not among the bytes that `bytes`
//! gives out while others may change them.
//!
//! Relaxed is enough for the chain descriptor's words: they are written before the head is linked,
//! and published with it.
#![allow(unsafe_code, reason = "on the unsafe list in ARCHITECTURE.md")]

use crate::LINE_BYTES;
use crate::names::{ALIGNMENT, Names};
use crate::region::Region;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::{ChunkRef, birth, version};
use std::io;
use std::mem::MaybeUninit;

/// The first bytes of every chunk.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// Position in the bag blocks; zero unless linked. Changed only under the key's stripe.
    pub pos: AtomicU32,
    /// An item's recency mark (see `lru::recency`). A piece's head. The next free chunk.
    pub recency: AtomicU32,
    /// Second of expiry since the store's start; zero is never. The free chunk before this one.
    pub deadline: AtomicU32,
    /// Kind of the chunk, and facts about the item: see `Shape`.
    pub shape: AtomicU32,
}

/// Bytes of a header.
pub const HEADER: usize = size_of::<Header>();
/// Bytes of a cas unique, behind the header of an item that has one.
pub const CAS_BYTES: usize = size_of::<u64>();
/// Bytes of the client flags of an item that has some.
const FLAGS_BYTES: usize = size_of::<u32>();
/// First byte of a piece's part of the value.
pub const PIECE_AT: usize = HEADER + size_of::<u64>();
/// Header, cas unique, client flags and chain descriptor of a chained item's head, bytes before
/// the key.
pub const CHAINED_KEY_AT: usize = chain::FIRST + 4;
/// Largest chunk; an item that needs more is chained.
pub const CHUNK_BYTES_MAX: usize = 16 << 10;
/// Value bytes of a full piece.
pub const PIECE_BYTES: usize = CHUNK_BYTES_MAX - PIECE_AT;

/// Bytes of a stamp, and its alignment.
pub const STAMP_BYTES: usize = 4;

/// Bytes behind the last page: more than a header, a chain descriptor and a key.
pub const SLACK_BYTES: usize = 4096;

/// First byte of an item that [`Arena::prefetch_item`] may not have fetched.
const FETCHED_BYTES: usize = 112;

/// End of the bytes that [`Arena::prefetch_rest`] fetches: a larger value does not stay in the
/// nearest cache until it is copied.
const FETCHED_BYTES_MAX: usize = 4096;

const _: () = assert!(HEADER == 16 && ALIGNMENT == align_of::<AtomicU64>());

/// The decoded `shape` word: key length (8 bits), inline value length (14), seven facts, birth (3).
/// The maximum length, which no inline value has, marks a chained one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape(pub u32);

impl Shape {
    /// Deleted, and kept to be read as stale; no plain command sees it.
    pub const DELETED: u32 = 1 << 22;
    /// Client flags are stored between header and key.
    pub const FLAGS: u32 = 1 << 23;
    /// A cas unique is stored behind the header.
    pub const CAS: u32 = 1 << 24;
    /// The key came as base64.
    pub const BASE64: u32 = 1 << 25;
    /// Read at least once.
    pub const FETCHED: u32 = 1 << 26;
    /// Invalidated but readable.
    pub const STALE: u32 = version::STALE;
    /// A recache win was handed out.
    pub const WON: u32 = version::WON;

    /// A chunk on the free list of its class.
    pub const FREE: u32 = 1 << 8;
    /// A chunk being written.
    pub const DRAFT: u32 = 2 << 8;
    /// A piece of a chained value.
    pub const PIECE: u32 = 3 << 8;
    /// A piece that has left its chain, because another chunk replaced it.
    pub const MOVED: u32 = 4 << 8;
    /// A free chunk that a thread keeps.
    pub const KEPT: u32 = 5 << 8;

    /// The inline length of a chained value.
    const CHAINED: u32 = 0x3fff << 8;

    /// The shape of an item with these facts, by the bytes of its key and of its inline value.
    #[inline]
    #[must_use]
    pub fn item(key_len: u8, inline_len: u16, facts: u32) -> Self {
        Self(u32::from(key_len) | u32::from(inline_len) << 8 | facts)
    }

    /// The shape of a chained item with these facts. It has room for a cas unique and flags.
    #[must_use]
    pub fn chained(key_len: u8, facts: u32) -> Self {
        Self(u32::from(key_len) | Self::CHAINED | facts | Self::FLAGS | Self::CAS)
    }

    /// The same shape with another code of birth.
    #[inline]
    #[must_use]
    pub fn with_birth(self, code: u32) -> Self {
        let mask = 7 << birth::CODE_SHIFT;
        Self(self.0 & !mask | (code << birth::CODE_SHIFT) & mask)
    }

    /// Bytes of the key; zero if the chunk holds no item.
    #[inline]
    #[must_use]
    pub fn key_len(self) -> usize {
        (self.0 & 0xff) as usize
    }

    /// `true` if the value is a chain of pieces.
    #[inline]
    #[must_use]
    pub fn is_chained(self) -> bool {
        self.0 & Self::CHAINED == Self::CHAINED
    }

    /// Bytes of an inline value; zero if it is chained.
    #[inline]
    #[must_use]
    pub fn inline_len(self) -> usize {
        if self.is_chained() { 0 } else { ((self.0 & Self::CHAINED) >> 8) as usize }
    }

    /// `true` if one of these facts is true of the item.
    #[inline]
    #[must_use]
    pub fn has(self, fact: u32) -> bool {
        self.0 & fact != 0
    }

    /// The code of the item's birth.
    #[inline]
    #[must_use]
    pub fn birth(self) -> u32 {
        self.0 >> birth::CODE_SHIFT
    }

    /// `true` if it is not deleted, and its birth has this code, in its form in a shape. Nearly
    /// every item is plain, and one comparison shows it.
    #[inline]
    #[must_use]
    pub fn is_plain(self, plain: u32) -> bool {
        self.0 & (7 << birth::CODE_SHIFT | Self::DELETED) == plain
    }

    /// The end of the chunk's contents, counted from its start.
    #[inline]
    #[must_use]
    pub fn end(self) -> usize {
        self.key_at() + self.key_len() + self.inline_len()
    }

    /// A bound of [`Self::end`] of an item with an inline value, for a few instructions.
    #[inline]
    fn end_at_most(self) -> usize {
        let value = ((self.0 & Self::CHAINED) >> 8) as usize;
        HEADER + CAS_BYTES + FLAGS_BYTES + self.key_len() + value
    }

    /// First byte of the stamp of a stamped item, counted from the chunk's start.
    #[inline]
    #[must_use]
    pub fn stamp_at(self) -> usize {
        self.end().next_multiple_of(STAMP_BYTES)
    }

    /// First byte behind the value and the stamp, if the item has one.
    #[must_use]
    pub fn end_with_stamp(self) -> usize {
        if self.birth() == birth::STAMPED { self.stamp_at() + STAMP_BYTES } else { self.end() }
    }

    /// First byte of the key, counted from the chunk's start.
    #[inline]
    #[must_use]
    pub fn key_at(self) -> usize {
        if self.is_chained() {
            CHAINED_KEY_AT
        } else {
            self.flags_at() + if self.has(Self::FLAGS) { FLAGS_BYTES } else { 0 }
        }
    }

    /// First byte of the client flags of an item that has some, counted from the chunk's start.
    #[inline]
    #[must_use]
    pub fn flags_at(self) -> usize {
        HEADER + if self.has(Self::CAS) { CAS_BYTES } else { 0 }
    }
}

/// All chunk memory of one store.
#[derive(Debug)]
pub struct Arena {
    words: Region<AtomicU64>,
    /// Offset of the last header that fits into the words.
    last: usize,
    names: Names,
}

impl Arena {
    /// Pages and some slack in `words`, whose chunks have these names.
    ///
    /// # Panics
    ///
    /// If there is no room for a header.
    pub fn new(words: Region<AtomicU64>, names: Names) -> Self {
        assert!(words.len() * 8 >= HEADER, "no room for a chunk");
        let last = words.len() * 8 - HEADER;
        Self { words, last, names }
    }

    /// Asks for huge pages under all pages (`-L`).
    pub fn prefer_huge_pages(&self) {
        self.words.prefer_huge_pages();
    }

    /// Spreads all pages over the memory nodes that the process may use (`-o numa_interleave`).
    ///
    /// # Errors
    ///
    /// The system's refusal: a kernel without memory policies, or a container that forbids them.
    pub fn interleave(&self) -> io::Result<()> {
        self.words.interleave()
    }

    /// Prepares a page for its first use, or for its use after `release_page`. `false` if the file
    /// system has no room for it.
    #[must_use]
    pub fn commit_page(&self, page: usize) -> bool {
        let words = self.page_words();
        self.words.commit(page * words, words)
    }

    /// Returns a page's memory to the system. No chunk of it is in use.
    pub fn release_page(&self, page: usize) {
        let words = self.page_words();
        self.words.release(page * words, words);
    }

    /// Returns the memory of these pages, none of which is in use.
    pub fn release_pages(&self, pages: std::ops::Range<usize>) {
        let words = self.page_words();
        self.words.release(pages.start * words, pages.len() * words);
    }

    fn page_words(&self) -> usize {
        (1 << self.names.page_shift()) / size_of::<AtomicU64>()
    }

    /// Records the size of the chunks that a page is cut into from now on. No thread has a chunk of
    /// it, or walks over it.
    pub fn cut_into(&self, page: usize, chunk_bytes: usize) {
        self.names.cut_into(page, chunk_bytes);
    }

    /// The chunk at this place of a page with chunks of this size.
    #[inline]
    pub fn chunk(&self, page: usize, place: usize, chunk_bytes: usize) -> ChunkRef {
        self.names.chunk(page, place, chunk_bytes)
    }

    /// The page that holds `chunk`.
    #[inline]
    pub fn page_of(&self, chunk: ChunkRef) -> usize {
        self.names.page_of(chunk)
    }

    /// The place of `chunk` in its page, whose chunks have this size. `None` if no chunk starts
    /// there.
    #[inline]
    pub fn place_of(&self, chunk: ChunkRef, chunk_bytes: usize) -> Option<usize> {
        self.names.place_of(chunk, chunk_bytes)
    }

    #[inline(always)]
    fn offset(&self, chunk: ChunkRef) -> usize {
        self.names.offset(chunk)
    }

    /// The head of the item of which `chunk` is a piece. `None` if it is no longer a piece.
    pub fn head_of_piece(&self, chunk: ChunkRef) -> Option<ChunkRef> {
        let header = self.header(chunk);
        // Acquire: partner of the Release in the store's `linked::link`, which marks an item in the
        // same chunk after it stopped being a piece. A reader of that mark does not see a piece.
        let head = header.recency.load(Ordering::Acquire);
        let is_piece = header.shape() == Shape(Shape::PIECE);
        // A later bump has no Release, so the range is checked, too. No chunk begins in the slack.
        (is_piece && head != 0 && self.offset(head) + SLACK_BYTES < self.words.len() * 8)
            .then_some(head)
    }

    /// The header of `chunk`.
    #[inline(always)]
    pub fn header(&self, chunk: ChunkRef) -> &Header {
        // A reference of zero makes a number beyond any arena, or wraps to one within.
        self.header_at(self.offset(chunk))
    }

    /// The header at the offset that [`Self::offset`] returned for a reference.
    #[inline(always)]
    fn header_at(&self, offset: usize) -> &Header {
        assert!(offset <= self.last, "chunk reference outside of the arena");
        // SAFETY: just checked to lie inside the arena, as far as its last byte, and on an
        // eight-byte boundary, since units, pages and sizes of chunks are multiples of eight bytes;
        // a header is made of atomics, for which any bytes are valid.
        let header = unsafe { self.words.base().as_ptr().add(offset) }.cast::<Header>();
        // SAFETY: the same.
        unsafe { &*header }
    }

    /// Fetches the chunk's first line. The reference may be of an earlier section: if the page was
    /// recut since, it may name a byte outside of the arena, which is not fetched.
    #[inline]
    pub fn prefetch(&self, chunk: ChunkRef) {
        self.words.prefetch_byte(self.offset(chunk));
    }

    /// Fetches the lines of a small item. Chunks are not aligned to lines, so 112 bytes may touch
    /// three.
    #[inline(always)]
    pub fn prefetch_item(&self, chunk: ChunkRef) {
        let offset = self.offset(chunk);
        for ahead in [0, 56, FETCHED_BYTES] {
            self.words.prefetch_byte(offset.wrapping_add(ahead));
        }
    }

    /// Fetches the lines of an item that [`Self::prefetch_item`] leaves out. Its header should have
    /// arrived; for a chunk that is no longer an item, this fetches useless lines.
    #[inline(always)]
    pub fn prefetch_rest(&self, chunk: ChunkRef) {
        let offset = self.offset(chunk);
        let shape = self.header_at(offset).shape();
        if shape.end_at_most() <= FETCHED_BYTES || shape.is_chained() {
            return;
        }
        let line_of = |at: usize| (offset + at) / LINE_BYTES;
        for line in line_of(FETCHED_BYTES) + 1..=line_of(shape.end().min(FETCHED_BYTES_MAX) - 1) {
            self.words.prefetch_byte(line * LINE_BYTES);
        }
    }

    /// The byte `at` behind the first of a chunk with this header. As many bytes as a header has
    /// follow it in the arena.
    #[inline(always)]
    fn byte(&self, header: &Header, at: usize) -> *mut u8 {
        let base = self.words.base().as_ptr();
        // A header of another arena makes a number beyond this one.
        let offset = std::ptr::from_ref(header).addr().wrapping_sub(base.addr()).wrapping_add(at);
        assert!(offset <= self.last, "beyond the arena");
        // SAFETY: just checked to lie inside the region.
        unsafe { base.add(offset) }
    }

    /// Start of the `len` bytes from `at` on, which the caller guarantees to lie within the chunk.
    #[inline(always)]
    fn range(&self, header: &Header, at: usize, len: usize) -> *mut u8 {
        let base = self.words.base().as_ptr();
        let first = std::ptr::from_ref(header).addr() + at;
        debug_assert!(first - base.addr() + len <= self.words.len() * 8, "beyond the arena");
        base.with_addr(first)
    }

    /// `len` bytes of the chunk with this header, from `at` on.
    ///
    /// # Safety
    ///
    /// Rule 2 of the module: the chunk is linked or in its grace period for as long as `'a`, or the
    /// caller owns it. Nobody writes these bytes while the slice lives, by whatever function, or
    /// releases their page. The header is one of this arena, and the range lies within the chunk.
    #[inline]
    pub unsafe fn bytes<'a>(&self, header: &Header, at: usize, len: usize) -> &'a [u8] {
        // SAFETY: in bounds by the caller's range; unchanged for `'a` by rule 1, which the caller
        // upholds.
        unsafe { std::slice::from_raw_parts(self.range(header, at, len), len) }
    }

    /// Copies `bytes` into the chunk with this header, at `at`.
    ///
    /// # Safety
    ///
    /// Rule 1 of the module: the caller owns the chunk and no other thread can read it. The header
    /// is one of this arena, and the range lies within the chunk.
    #[inline]
    pub unsafe fn write(&self, header: &Header, at: usize, bytes: &[u8]) {
        let to = self.range(header, at, bytes.len()).cast::<MaybeUninit<u8>>();
        // SAFETY: in bounds by the caller's range, and no other reference leads there, since the
        // caller owns the chunk.
        short::copy(unsafe { std::slice::from_raw_parts_mut(to, bytes.len()) }, bytes);
    }

    /// A 32-bit atomic behind a header, at byte `at` rounded down to a multiple of four. It lies in
    /// a chain descriptor, or is a stamp's: none of the bytes that `bytes` gives out.
    #[inline]
    pub fn word(&self, header: &Header, at: usize) -> &AtomicU32 {
        let address = self.byte(header, at & !3).cast::<AtomicU32>();
        // SAFETY: inside the arena, aligned, and only ever used as an atomic: who holds bytes of a
        // chunk has promised (`bytes`) that nothing writes them.
        unsafe { &*address }
    }

    /// The cas unique of an item that has one, or the link of a piece (see [`piece_link`]). None of
    /// the bytes that `bytes` gives out while others may change it.
    #[inline]
    pub fn long(&self, header: &Header) -> &AtomicU64 {
        let address = self.byte(header, HEADER).cast::<AtomicU64>();
        // SAFETY: inside the arena, aligned, since a header is on an eight-byte boundary, and only
        // ever used as an atomic while several threads can read it.
        unsafe { &*address }
    }
}

/// Chained items.
impl Arena {
    /// `true` if a sender keeps this item's chain, or a piece that was moved still names its head.
    #[inline]
    pub fn is_pinned(&self, chunk: ChunkRef) -> bool {
        self.header(chunk).shape().is_chained() && self.pins(chunk) > 0
    }

    /// Adds the chunks of a retired item, or the moved piece, to `into`; `false`, and nothing is
    /// changed, if a sender keeps it.
    #[inline]
    pub fn take_apart(&self, retired: ChunkRef, into: &mut Vec<ChunkRef>) -> bool {
        let shape = self.header(retired).shape();
        if shape != Shape(Shape::MOVED) && !shape.is_chained() {
            // Of one chunk, as nearly all are.
            into.push(retired);
            return true;
        }
        let is_free = !self.is_kept(retired);
        if is_free {
            self.chunks_of(retired, into);
        }
        is_free
    }

    /// `true` if a sender keeps this retired item, or the item that had this moved piece and may so
    /// come back to the piece.
    fn is_kept(&self, retired: ChunkRef) -> bool {
        if self.header(retired).shape() == Shape(Shape::MOVED) {
            return self.pins(self.former_head(retired)) & (chain::MOVED - 1) > 0;
        }
        self.is_pinned(retired)
    }

    /// Keeps a head from being freed before a piece that leaves its chain. `false` if too many of
    /// its pieces are already leaving. The caller holds the head's stripe.
    #[must_use]
    pub fn keep_head(&self, head: ChunkRef) -> bool {
        if self.pins(head) / chain::MOVED == u32::MAX / chain::MOVED {
            return false;
        }
        self.word(self.header(head), chain::PINS).fetch_add(chain::MOVED, Ordering::Relaxed);
        true
    }

    fn pins(&self, head: ChunkRef) -> u32 {
        // Acquire: partner of the Release in the store's `Pin::drop`; the sender reads before a
        // reuse.
        self.word(self.header(head), chain::PINS).load(Ordering::Acquire)
    }

    /// The head of a moved piece, which `keep_head` keeps.
    fn former_head(&self, piece: ChunkRef) -> ChunkRef {
        self.header(piece).recency.load(Ordering::Relaxed)
    }

    /// Adds the chunks being freed to `into`: an item's pieces, if it is chained, and its head. A
    /// moved piece releases its head.
    pub fn chunks_of(&self, chunk: ChunkRef, into: &mut Vec<ChunkRef>) {
        let shape = self.header(chunk).shape();
        if shape == Shape(Shape::MOVED) {
            let pins = self.word(self.header(self.former_head(chunk)), chain::PINS);
            // Release: partner of the Acquire in `pins`; the head is read before its reuse.
            pins.fetch_sub(chain::MOVED, Ordering::Release);
        } else if shape.is_chained() {
            let first = self.word(self.header(chunk), chain::FIRST);
            let mut piece = first.load(Ordering::Relaxed);
            while piece != 0 {
                into.push(piece);
                (piece, _) = self.piece(piece);
            }
        }
        into.push(chunk);
    }

    /// Next piece, and bytes in this one.
    pub fn piece(&self, piece: ChunkRef) -> (ChunkRef, usize) {
        // Acquire: the load that found the head has made this word visible, so there is no partner.
        // It keeps the reads through the link behind it, whatever that load was.
        let link = self.long(self.header(piece)).load(Ordering::Acquire);
        ((link & 0xffff_ffff) as u32, (link >> 32) as usize)
    }
}

/// The chain descriptor of a chained item's head, as offsets of 32-bit atomics from the chunk's
/// start.
pub mod chain {
    use super::{CAS_BYTES, HEADER};

    /// Client flags.
    pub const FLAGS: usize = HEADER + CAS_BYTES;
    /// Value length in bytes.
    pub const VALUE_LEN: usize = FLAGS + 4;
    /// Readers that keep the value after their section, and [`MOVED`] for each moved piece.
    pub const PINS: usize = FLAGS + 8;
    /// In `PINS`: a piece that has left the chain and is not free yet.
    pub const MOVED: u32 = 1 << 24;
    /// First piece.
    pub const FIRST: usize = FLAGS + 12;
}

/// Link of a piece: next piece in the low half, bytes in the high half.
#[must_use]
pub fn piece_link(next: ChunkRef, len: u32) -> u64 {
    u64::from(next) | u64::from(len) << 32
}

impl Header {
    /// The decoded shape.
    #[inline]
    pub fn shape(&self) -> Shape {
        // Acquire: partner of the Release in the store's `deleted::keep` and `Item::renew`; the
        // deadline of a deleted item is visible.
        Shape(self.shape.load(Ordering::Acquire))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A note of an earlier section may name a high place of a page that has few chunks now.
    #[test]
    fn a_chunk_of_an_earlier_cut_is_fetched_without_a_check() {
        let (page_bytes, pages) = (1 << 16, 2);
        let names = Names::by_place(page_bytes, 12, Region::reserve(pages).unwrap());
        let words = (pages * page_bytes + SLACK_BYTES) / size_of::<AtomicU64>();
        let arena = Arena::new(Region::reserve(words).unwrap(), names);
        arena.cut_into(1, 72);
        let last = arena.chunk(1, page_bytes / 72 - 1, 72);
        arena.prefetch(last);
        arena.cut_into(1, CHUNK_BYTES_MAX);
        assert!(arena.offset(last) > words * size_of::<AtomicU64>(), "else nothing is shown");
        arena.prefetch(last);
    }
}
