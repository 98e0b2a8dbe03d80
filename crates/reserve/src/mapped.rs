//! Large blocks as separate mappings.
//!
//! A system allocator keeps memory freed between blocks that are still in use: a program whose
//! clients held much, and left, keeps twice its clients' memory. Here a block of [`LARGE_BYTES`] or
//! more is a mapping, so freed memory returns to the system, whatever lies next to it:
//!
//! ```text
//!     block < LARGE_BYTES -> the inner allocator
//!     others              -> kept (a few megabytes, of the same length) -> mmap
//!     freed               -> kept, in place of what was kept longest    -> munmap
//! ```
//!
//! A few are kept, so that a program that repeatedly takes and frees a buffer does not call the
//! system each time. A thread that finds the list of kept ones in use does not wait: a thread
//! stopped inside it delays no other.
#![allow(unsafe_code, reason = "on the unsafe list in ARCHITECTURE.md")]

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;
use std::ptr;

use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};
use rustix::mm::{madvise, mmap_anonymous, mremap, munmap};
use spinning_top::Spinlock;

/// Blocks of this many bytes and more are mappings.
pub const LARGE_BYTES: usize = 16 * 1024;

/// Maximum bytes of freed mappings that are kept.
pub const KEPT_BYTES: usize = 4 << 20;

/// Maximum number of freed mappings that are kept.
const KEPT_BLOCKS: usize = 64;

/// The longest mapping that is kept, in bytes. For a longer one the system calls cost little
/// compared with the bytes written into it.
const KEPT_LEN_MAX: usize = 512 * 1024;

/// The smallest page of any machine: mappings start at multiples of it.
const PAGE_BYTES: usize = 4096;

/// An allocator of large blocks in front of `inner`, which allocates the others.
#[derive(Debug)]
pub struct Mapped<A> {
    inner: A,
}

impl<A> Mapped<A> {
    /// In front of `inner`.
    #[must_use]
    pub const fn new(inner: A) -> Self {
        Self { inner }
    }
}

/// Freed mappings, in a ring: the next one replaces the oldest.
struct Kept {
    blocks: [Block; KEPT_BLOCKS],
    next: usize,
    bytes: usize,
}

/// An unused mapping; `len` is 0 if there is none.
#[derive(Clone, Copy)]
struct Block {
    address: usize,
    len: usize,
}

const NONE: Block = Block { address: 0, len: 0 };

static KEPT: Spinlock<Kept> =
    Spinlock::new(Kept { blocks: [NONE; KEPT_BLOCKS], next: 0, bytes: 0 });

impl Kept {
    /// One of this length.
    fn take(&mut self, len: usize) -> Option<Block> {
        let block = self.blocks.iter_mut().find(|block| block.len == len)?;
        self.bytes -= len;
        Some(std::mem::replace(block, NONE))
    }

    /// Keeps `block` in place of the oldest, which is returned, if there is one.
    fn put(&mut self, block: Block) -> Option<Block> {
        let oldest = std::mem::replace(&mut self.blocks[self.next], block);
        self.next = (self.next + 1) % KEPT_BLOCKS;
        self.bytes = self.bytes - oldest.len + block.len;
        (oldest.len > 0).then_some(oldest)
    }

    /// The oldest, if more bytes are kept than allowed.
    fn excess(&mut self) -> Option<Block> {
        while self.bytes > KEPT_BYTES {
            if let Some(oldest) = self.put(NONE) {
                return Some(oldest);
            }
        }
        None
    }

    /// Keeps `block`, and passes the mappings that it displaces to `gone`.
    fn keep(&mut self, block: Block, mut gone: impl FnMut(Block)) {
        self.put(block).into_iter().for_each(&mut gone);
        while let Some(oldest) = self.excess() {
            gone(oldest);
        }
    }
}

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE_BYTES && layout.align() <= PAGE_BYTES
}

/// The length of the mapping for a block of this many bytes. Kept ones have eight lengths between
/// one power of two and the next, so that one fits another block of about its size.
fn mapping_len(size: usize) -> usize {
    let step = if size < KEPT_LEN_MAX { (1 << size.ilog2()) / 8 } else { 0 };
    size.next_multiple_of(step.max(PAGE_BYTES))
}

/// A kept mapping, or null.
fn reuse(len: usize) -> *mut u8 {
    let block = KEPT.try_lock().and_then(|mut kept| kept.take(len));
    block.map_or(ptr::null_mut(), |block| ptr::with_exposed_provenance_mut(block.address))
}

/// A fresh mapping, which is zero, or null.
fn map(len: usize) -> *mut u8 {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the system's choice touches no other.
    let mapping = unsafe { mmap_anonymous(ptr::null_mut(), len, protection, MapFlags::PRIVATE) };
    let Ok(start) = mapping else { return ptr::null_mut() };
    // Huge pages would give memory to what nobody has written to. Without the advice, it works.
    // SAFETY: the mapping was just made, and has this length.
    let _ = unsafe { madvise(start, len, Advice::LinuxNoHugepage) };
    start.cast()
}

/// # Safety
///
/// `block` is a mapping of this length, and no longer used.
unsafe fn unmap(block: *mut c_void, len: usize) {
    // SAFETY: by the caller. A refusal leaves it mapped, which costs memory and nothing else.
    let _ = unsafe { munmap(block, len) };
}

/// # Safety
///
/// `block` is a mapping of this length, and no longer used.
unsafe fn release(block: *mut u8, len: usize) {
    if len <= KEPT_LEN_MAX
        && let Some(mut kept) = KEPT.try_lock()
    {
        kept.keep(Block { address: block.expose_provenance(), len }, |gone| {
            // SAFETY: what was kept is a mapping of its length that nobody uses.
            unsafe { unmap(ptr::with_exposed_provenance_mut(gone.address), gone.len) };
        });
        return;
    }
    // SAFETY: by the caller.
    unsafe { unmap(block.cast(), len) };
}

// SAFETY: a block is a mapping of at least its size, aligned to a page, or the inner allocator's;
// which of the two, its layout tells, which is the same when it is freed.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Mapped<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_large(layout) {
            // SAFETY: the caller's contract is the same.
            return unsafe { self.inner.alloc(layout) };
        }
        let len = mapping_len(layout.size());
        let block = reuse(len);
        if block.is_null() { map(len) } else { block }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !is_large(layout) {
            // SAFETY: the caller's contract is the same.
            return unsafe { self.inner.alloc_zeroed(layout) };
        }
        map(mapping_len(layout.size()))
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_large(layout) {
            // SAFETY: the caller gives up a block of this layout, so a mapping of this length.
            unsafe { release(block, mapping_len(layout.size())) }
        } else {
            // SAFETY: the caller's contract is the same.
            unsafe { self.inner.dealloc(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's alignment, and a size that does not overflow with it.
        let wanted = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (is_large(layout), is_large(wanted)) {
            // SAFETY: the caller's contract is the same.
            (false, false) => return unsafe { self.inner.realloc(block, layout, new_size) },
            (true, true) => {
                let (len, new_len) = (mapping_len(layout.size()), mapping_len(new_size));
                if len == new_len {
                    return block;
                }
                // Copying into existing pages costs less than creating new ones.
                let kept = reuse(new_len);
                if !kept.is_null() {
                    // SAFETY: both mappings have at least this number of bytes, and the kept one is
                    // nobody else's.
                    unsafe { block.copy_to_nonoverlapping(kept, layout.size().min(new_size)) };
                    // SAFETY: the caller gives up the old block, a mapping of this length.
                    unsafe { release(block, len) };
                    return kept;
                }
                // SAFETY: a mapping of this length; the caller uses what is returned alone.
                let moved = unsafe { mremap(block.cast(), len, new_len, MremapFlags::MAYMOVE) };
                return moved.map_or(ptr::null_mut(), |moved| moved.cast());
            }
            _ => {}
        }
        // SAFETY: the size is not zero, by the caller.
        let moved = unsafe { self.alloc(wanted) };
        if moved.is_null() {
            return moved;
        }
        // SAFETY: both blocks have at least this number of bytes; the new one is no one else's.
        unsafe { block.copy_to_nonoverlapping(moved, layout.size().min(new_size)) };
        // SAFETY: the caller gives up the old block, which has this layout.
        unsafe { self.dealloc(block, layout) };
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_lengths_fit_their_blocks_with_little_waste() {
        for size in (LARGE_BYTES..2 * KEPT_LEN_MAX).step_by(1013) {
            let len = mapping_len(size);
            assert!(len >= size && len.is_multiple_of(PAGE_BYTES), "{size}");
            assert!(len - size < PAGE_BYTES.max(size / 8 + 1), "{size}");
            assert_eq!(mapping_len(len), len, "a block of the length has the same");
        }
    }

    #[test]
    fn kept_blocks_are_bounded_and_the_oldest_is_released() {
        let mut kept = Kept { blocks: [NONE; KEPT_BLOCKS], next: 0, bytes: 0 };
        let mut gone = Vec::new();
        for number in 1..=200 {
            let len = if number <= 100 { LARGE_BYTES } else { KEPT_LEN_MAX };
            kept.keep(Block { address: number, len }, |block| gone.push(block.address));
            let there: usize = kept.blocks.iter().map(|block| block.len).sum();
            assert_eq!(there, kept.bytes);
            assert!(kept.bytes <= KEPT_BYTES, "{} bytes", kept.bytes);
        }
        assert_eq!(gone, (1..=192).collect::<Vec<_>>(), "eight of the long ones are left");
        assert!(kept.take(LARGE_BYTES).is_none());
        assert_eq!(kept.take(KEPT_LEN_MAX).map(|block| block.len), Some(KEPT_LEN_MAX));
        assert_eq!(kept.bytes, KEPT_BYTES - KEPT_LEN_MAX);
    }
}
