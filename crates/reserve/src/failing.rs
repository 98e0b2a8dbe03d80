//! An allocator that refuses, for tests of failed allocations: SQLite's method, which fails the
//! k-th allocation for every k.
//!
//! Relaxed is enough for the counts and settings: threads see them by the flag that arms, and the
//! caller reads them after its own work.
#![allow(unsafe_code, reason = "on the unsafe list in ARCHITECTURE.md")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The system's allocator, which refuses as [`failing_from`] directs.
#[derive(Clone, Copy, Debug)]
pub struct Failing;

/// The allocations counted while it was armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Requested allocations.
    pub asked: u64,
    /// Of those, the refused ones.
    pub refused: u64,
}

static IS_ARMED: AtomicBool = AtomicBool::new(false);
static IS_LASTING: AtomicBool = AtomicBool::new(false);
/// The first to refuse, counted from one.
static FIRST: AtomicU64 = AtomicU64::new(0);
static ASKED: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_EXEMPT: Cell<bool> = const { Cell::new(false) };
}

/// Exempts the calling thread's own allocations, or no longer: for a test's side of the
/// conversation.
pub fn exempt_thread(is_exempt: bool) {
    IS_EXEMPT.with(|exempt| exempt.set(is_exempt));
}

/// Runs `act` while the `first`th allocation (from one) is refused and, if `is_lasting`, all after
/// it.
pub fn failing_from<T>(first: u64, is_lasting: bool, act: impl FnOnce() -> T) -> (T, Outcome) {
    FIRST.store(first, Ordering::Relaxed);
    IS_LASTING.store(is_lasting, Ordering::Relaxed);
    ASKED.store(0, Ordering::Relaxed);
    REFUSED.store(0, Ordering::Relaxed);
    // Release pairs with the Acquire of `refuses`, which then sees the numbers above.
    IS_ARMED.store(true, Ordering::Release);
    let result = act();
    IS_ARMED.store(false, Ordering::Release);
    let (asked, refused) = (ASKED.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed));
    (result, Outcome { asked, refused })
}

fn refuses() -> bool {
    // Acquire pairs with the Release of `failing_from`.
    if !IS_ARMED.load(Ordering::Acquire) || IS_EXEMPT.with(Cell::get) {
        return false;
    }
    let nth = ASKED.fetch_add(1, Ordering::Relaxed) + 1;
    let first = FIRST.load(Ordering::Relaxed);
    let refused = nth == first || nth > first && IS_LASTING.load(Ordering::Relaxed);
    REFUSED.fetch_add(u64::from(refused), Ordering::Relaxed);
    refused
}

// SAFETY: null, or what the system's allocator answers.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refuses() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if refuses() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's contract is the same.
        unsafe { System.realloc(block, layout, new_size) }
    }
}
