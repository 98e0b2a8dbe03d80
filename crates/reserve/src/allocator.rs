//! The allocator that has a reserve.
//!
//! Relaxed is enough for the counts: they are a hint to the caller and statistics. The lock orders
//! the accesses to the memory.
#![allow(unsafe_code, reason = "on the unsafe list in ARCHITECTURE.md")]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use spinning_top::RawSpinlock;
use talc::TalcLock;
use talc::source::Claim;

/// Bytes held back. They are zero pages of the program until they are needed.
const RESERVE_BYTES: usize = 1 << 20;

static mut MEMORY: [u8; RESERVE_BYTES] = [0; RESERVE_BYTES];

/// A spin lock, because a lock that lets threads sleep may allocate.
static RESERVE: TalcLock<RawSpinlock, Claim> = {
    let memory = &raw mut MEMORY;
    // SAFETY: nobody else uses the array, which lives as long as the program.
    TalcLock::new(unsafe { Claim::array(memory) })
};

/// Bytes of the reserve in use, and the number of its successful allocations.
static USED: AtomicUsize = AtomicUsize::new(0);
static GRANTS: AtomicU64 = AtomicU64::new(0);

/// Bytes of the reserve in use.
#[must_use]
pub fn used() -> usize {
    USED.load(Ordering::Relaxed)
}

/// Allocations so far that the system refused and the reserve granted.
#[must_use]
pub fn grants() -> u64 {
    GRANTS.load(Ordering::Relaxed)
}

/// `true` if a quarter of the reserve is in use: time to free dispensable memory.
#[inline]
#[must_use]
pub fn is_low() -> bool {
    used() > RESERVE_BYTES / 4
}

/// An allocator that uses the reserve if `inner` gives nothing. One per program, as its global
/// allocator.
#[derive(Debug)]
pub struct Allocator<A> {
    inner: A,
}

impl<A> Allocator<A> {
    /// Over `inner`.
    #[must_use]
    pub const fn new(inner: A) -> Self {
        Self { inner }
    }
}

fn is_of_reserve(block: *mut u8) -> bool {
    let begin = (&raw const MEMORY).addr();
    (begin..begin + RESERVE_BYTES).contains(&block.addr())
}

/// A block of the reserve, or null.
#[cold]
fn take(layout: Layout) -> *mut u8 {
    // SAFETY: the caller's layout has a size, by the contract of `GlobalAlloc`, of which all
    // callers are methods.
    let block = unsafe { RESERVE.alloc(layout) };
    if !block.is_null() {
        USED.fetch_add(layout.size(), Ordering::Relaxed);
        GRANTS.fetch_add(1, Ordering::Relaxed);
    }
    block
}

/// # Safety
///
/// `block` is one of [`take`]'s, with this layout, and no longer used.
#[cold]
unsafe fn give_back(block: *mut u8, layout: Layout) {
    // SAFETY: by the caller.
    unsafe { RESERVE.dealloc(block, layout) };
    USED.fetch_sub(layout.size(), Ordering::Relaxed);
}

// SAFETY: every block comes from one of two allocators and goes back to the one whose it is, which
// its address tells.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Allocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the same.
        let block = unsafe { self.inner.alloc(layout) };
        if block.is_null() { take(layout) } else { block }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the same.
        let block = unsafe { self.inner.alloc_zeroed(layout) };
        if !block.is_null() {
            return block;
        }
        let block = take(layout);
        if !block.is_null() {
            // SAFETY: a block of this size, just taken.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_of_reserve(block) {
            // SAFETY: the caller gives up a block of this layout, whose address says that it is the
            // reserve's.
            unsafe { give_back(block, layout) }
        } else {
            // SAFETY: the caller's contract is the same, and the block is not the reserve's.
            unsafe { self.inner.dealloc(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !is_of_reserve(block) {
            // SAFETY: the caller's contract is the same, and the block is not the reserve's.
            let grown = unsafe { self.inner.realloc(block, layout, new_size) };
            if !grown.is_null() {
                return grown;
            }
        }
        // SAFETY: the caller's alignment, and a size that does not overflow with it.
        let wanted = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
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
