//! Names of chunks: the meaning of the 31 bits of a reference.
//!
//! A reference is one more than a number of 31 bits, so that zero names no chunk and the top bit
//! stays free for the table. The number is one of two things:
//!
//! * the chunk's offset in the arena, in units of eight bytes. That reaches over 16 GB.
//! * the chunk's page, and its place among the page's chunks. That reaches over any memory whose
//!   chunks can be counted: a page has no more chunks than its references have places.
//!
//! A place costs a lookup of the size of the page's chunks, so offsets are used where they suffice.

use crate::ChunkRef;
use crate::region::Region;
use crate::sync::{AtomicU32, Ordering};
use narrow::to_u32;

/// Alignment of a chunk, for its header and the cas unique behind it: the unit of an offset.
pub const ALIGNMENT: usize = 8;

const UNIT_SHIFT: u32 = ALIGNMENT.trailing_zeros();

/// Target of a reference that names no page: behind any arena, and far from the largest number.
const NOWHERE: usize = usize::MAX / 2;

/// The references to the chunks of one arena.
#[derive(Debug)]
pub struct Names {
    page_shift: u32,
    /// Bits of a reference that do not name the page.
    bits_in_page: u32,
    /// If references name places, the bytes of each page's chunks.
    ///
    /// Relaxed: a thread that has a chunk learned of it by a Release and an Acquire, and the sizes
    /// change only while no thread can have one (see [`Names::cut_into`]).
    chunk_bytes: Option<Region<AtomicU32>>,
}

impl Names {
    /// References are offsets. A page has `page_bytes`, a power of two.
    #[must_use]
    pub fn by_offset(page_bytes: usize) -> Self {
        let page_shift = page_bytes.trailing_zeros();
        Self { page_shift, bits_in_page: page_shift - UNIT_SHIFT, chunk_bytes: None }
    }

    /// References are pages, of which there are as many as words of `chunk_bytes`, and places, of
    /// this many bits. A page has `page_bytes`, a power of two.
    #[must_use]
    pub fn by_place(page_bytes: usize, bits: u32, chunk_bytes: Region<AtomicU32>) -> Self {
        let page_shift = page_bytes.trailing_zeros();
        Self { page_shift, bits_in_page: bits, chunk_bytes: Some(chunk_bytes) }
    }

    /// Bytes of a page, as a power of two.
    pub(crate) fn page_shift(&self) -> u32 {
        self.page_shift
    }

    /// Records the size of the chunks that a page is cut into from now on. No thread has a chunk of
    /// it, or walks over it.
    pub(crate) fn cut_into(&self, page: usize, chunk_bytes: usize) {
        if let Some(sizes) = &self.chunk_bytes {
            debug_assert!(
                chunk_bytes << self.bits_in_page > 1 << self.page_shift,
                "more chunks of {chunk_bytes} bytes than places"
            );
            sizes[page].store(to_u32(chunk_bytes), Ordering::Relaxed);
        }
    }

    /// The chunk at this place of a page with chunks of this size.
    #[inline]
    pub(crate) fn chunk(&self, page: usize, place: usize, chunk_bytes: usize) -> ChunkRef {
        let in_page = match &self.chunk_bytes {
            None => (place * chunk_bytes) >> UNIT_SHIFT,
            Some(_) => place,
        };
        // The store's `Layout` keeps names within 31 bits.
        to_u32(page << self.bits_in_page | in_page) + 1
    }

    /// The page that holds `chunk`.
    #[inline]
    pub(crate) fn page_of(&self, chunk: ChunkRef) -> usize {
        number_of(chunk) >> self.bits_in_page
    }

    /// The place of `chunk` in its page, whose chunks have this size. `None` if no chunk starts
    /// there.
    #[inline]
    pub(crate) fn place_of(&self, chunk: ChunkRef, chunk_bytes: usize) -> Option<usize> {
        let in_page = self.in_page(chunk);
        if self.chunk_bytes.is_some() {
            return Some(in_page);
        }
        let at = in_page << UNIT_SHIFT;
        at.is_multiple_of(chunk_bytes).then(|| at / chunk_bytes)
    }

    /// The chunk's first byte, counted from the arena's. For a reference that names no chunk it is
    /// any number to which the bytes of a chunk can be added.
    #[inline(always)]
    pub(crate) fn offset(&self, chunk: ChunkRef) -> usize {
        match &self.chunk_bytes {
            None => number_of(chunk) << UNIT_SHIFT,
            Some(sizes) => self.offset_by_place(sizes, chunk),
        }
    }

    /// Not inlined, so that a store without places has almost none of its code on its path.
    #[inline(never)]
    fn offset_by_place(&self, sizes: &Region<AtomicU32>, chunk: ChunkRef) -> usize {
        let page = self.page_of(chunk);
        let Some(bytes) = sizes.get(page) else { return NOWHERE };
        (page << self.page_shift) + self.in_page(chunk) * bytes.load(Ordering::Relaxed) as usize
    }

    #[inline]
    fn in_page(&self, chunk: ChunkRef) -> usize {
        number_of(chunk) & ((1 << self.bits_in_page) - 1)
    }
}

/// The number below a reference. Zero gives the largest number, which names nothing.
#[inline]
fn number_of(chunk: ChunkRef) -> usize {
    (chunk as usize).wrapping_sub(1)
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test stops where it fails")]
mod tests {
    use super::*;

    const PAGE: usize = 1 << 20;

    /// Chunks of every size up to 16 KiB have distinct names that lead to them.
    fn all_have_names(names: &Names, pages: [usize; 2], least: usize) {
        for chunk_bytes in (least..=16 << 10).step_by(ALIGNMENT) {
            for page in pages {
                names.cut_into(page, chunk_bytes);
            }
            let mut before = 0;
            for page in pages {
                let last = PAGE / chunk_bytes - 1;
                for place in [0, 1, last / 2, last] {
                    let chunk = names.chunk(page, place, chunk_bytes);
                    assert!(chunk > before && chunk < 1 << 31, "{chunk} after {before}");
                    assert_eq!(names.page_of(chunk), page);
                    assert_eq!(names.place_of(chunk, chunk_bytes), Some(place));
                    assert_eq!(names.offset(chunk), page * PAGE + place * chunk_bytes);
                    before = if place == last { chunk } else { before };
                }
            }
        }
    }

    #[test]
    fn offsets_name_all_chunks_of_almost_16_gigabytes() {
        all_have_names(&Names::by_offset(PAGE), [0, (16 << 10) - 2], 24);
        let between = Names::by_offset(PAGE).chunk(3, 1, 1024) + 1;
        assert_eq!(Names::by_offset(PAGE).place_of(between, 1024), None);
    }

    #[test]
    fn places_name_all_chunks_of_16_terabytes() {
        for bits in [7, 11, 14] {
            let pages = 1 << (31 - bits);
            let names = Names::by_place(PAGE, bits, Region::reserve(pages).unwrap());
            all_have_names(&names, [0, pages - 1], (PAGE >> bits) + ALIGNMENT);
        }
    }

    /// Outdated words are also taken for references.
    #[test]
    fn invalid_names_yield_offsets_that_do_not_overflow() {
        let names = Names::by_place(PAGE, 14, Region::reserve(8).unwrap());
        names.cut_into(7, 16 << 10);
        for word in [0, 8 << 14 | 1, 1 << 31, u32::MAX] {
            let offset = names.offset(word);
            assert!(offset > 8 * PAGE && offset < usize::MAX - PAGE, "{word}: {offset}");
        }
    }
}
