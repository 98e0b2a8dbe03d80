//! Allocation: the memory that a store takes when its class has no free chunk.
//!
//! A store tries these sources in order: a free chunk that its thread keeps, or one of its class; a
//! page within the limit, or one that the cleaner moved to the class (see `rebalance`); a free
//! chunk that another thread keeps; its class's oldest item. If there is none, or if another
//! class's items are much older, it takes a page of the class whose next victim is the oldest, or
//! an idle page. So no store is refused while anything can be evicted, whatever its size. A store
//! that evicts nothing takes only idle pages.
//!
//! An evicted chunk becomes free when the sections end in which it may have been found. A thread
//! preempted outside a section delays nothing. A thread preempted inside one delays each other
//! thread once, for some tenths of a second. Then that thread's stores are refused until the
//! section ends. The cleaner keeps chunks free (see [`super::ahead`]), so this happens only if the
//! section lasts longer than these chunks do.

use super::candidate::Candidate;
use super::page_move::take_page;
use crate::eviction::evict::{evict, open_if_full};
use crate::eviction::victim::{lists_of, next_victim};
use crate::lru::PARTS;
use crate::reaping::deleted;
use crate::slabs::{ClassId, Need};
use crate::stats::Count;
use crate::store::Store;
use crate::thread::ThreadState;
use arena::ChunkRef;
use narrow::to_usize;
use std::rc::Rc;
use std::time::Duration;

/// Maximum number of items evicted together, so that most stores find a free chunk.
pub(super) const BATCH: usize = 32;
/// Chunks of a class for each item evicted together, so that a class of few chunks evicts few items
/// early.
const SHARE: u64 = 128;
/// Maximum number of bytes evicted together.
const BATCH_BYTES: usize = 128 << 10;
/// Rounds of eviction after which a store gives up. In each of them other threads have taken the
/// chunks that it evicted.
const ROUNDS: usize = 512;
/// Checks whether the sections that keep unlinked memory have ended, before a store gives up.
const WAITS: usize = 75 * LOOKS_PER_FORCE;
/// The first of these checks, after which the thread only yields; after a later one it sleeps.
const YIELDS: usize = 200;
/// One check in this number passes threads that do not run, which costs a system call.
const LOOKS_PER_FORCE: usize = 16;
/// A sleep: long enough for a preempted thread to run again.
const NAP: Duration = Duration::from_micros(100);
/// Naps for which a store waits while nothing can be evicted: some tens of milliseconds, in which
/// any other preempted thread runs again and ends its section.
const PATIENCE: usize = 300;

/// A chunk that holds these bytes, at most the largest chunk's, owned by the caller, and its class.
/// Evicts if necessary; `None` if no chunk is available.
#[inline(always)]
pub(crate) fn take_for(thread: &Rc<ThreadState>, bytes: usize) -> Option<(ClassId, ChunkRef)> {
    loop {
        let class = thread.store.slabs.class_for(bytes);
        let chunk = take(thread, class)?;
        if let Some(chunk) = if_it_holds(thread, class, chunk, bytes) {
            return Some((class, chunk));
        }
    }
}

/// A chunk for the head of a chained item, and its class.
#[inline(never)]
pub(crate) fn take_head(thread: &Rc<ThreadState>) -> Option<(ClassId, ChunkRef)> {
    let class = thread.store.slabs.heads();
    Some((class, take(thread, class)?))
}

/// The chunk, if these bytes fit into it. Otherwise the class was refitted after it was looked up
/// (law 3 of `slabs::fitted`), and the chunk is freed.
#[inline]
pub(crate) fn if_it_holds(
    thread: &Rc<ThreadState>,
    class: ClassId,
    chunk: ChunkRef,
    bytes: usize,
) -> Option<ChunkRef> {
    if bytes <= thread.store.slabs.class(class).chunk_bytes() {
        return Some(chunk);
    }
    thread.free(chunk);
    None
}

/// A chunk of the class, owned by the caller. Evicts if necessary; `None` if none is available.
#[inline(always)]
pub(crate) fn take(thread: &Rc<ThreadState>, class: ClassId) -> Option<ChunkRef> {
    if thread.is_time_to_look(class) {
        open_if_full(thread, class);
    }
    let (slabs, arena) = (&thread.store.slabs, &thread.store.arena);
    slabs.take(arena, thread.slot, class).or_else(|| take_slowly(thread, class))
}

fn add_page(thread: &ThreadState, class: ClassId) -> bool {
    let store = &*thread.store;
    store.slabs.add_page(&store.arena, &store.budget, &store.qsbr, class)
}

#[cold]
fn take_slowly(thread: &Rc<ThreadState>, class: ClassId) -> Option<ChunkRef> {
    let store = &*thread.store;
    let (slabs, arena) = (&store.slabs, &store.arena);
    let take_free = || slabs.take(arena, thread.slot, class);
    // Without eviction the store waits only for memory in grace periods.
    let patience = if store.evict { PATIENCE } else { 2 };
    let (mut round, mut fruitless) = (0, 0);
    while round < ROUNDS && fruitless <= patience {
        if add_page(thread, class)
            && let Some(chunk) = take_free()
        {
            return Some(chunk);
        }
        // Chunks that other threads keep come before any item.
        if slabs.share_kept(arena, &store.qsbr, class)
            && let Some(chunk) = take_free()
        {
            return Some(chunk);
        }
        if thread.depth() > 0 {
            // Inside a section a wait is useless: this thread itself delays the memory.
            break;
        }
        // Chunks in grace periods come before items that are still of use.
        thread.adopt();
        thread.settle();
        if let Some(chunk) = take_free() {
            return Some(chunk);
        }
        // Then items that only serve stale reads.
        if deleted::free_oldest(thread) > 0 {
            continue;
        }
        match wait_for(thread, class) {
            Waited::Got(chunk) => return Some(chunk),
            Waited::InVain => break,
            Waited::ForNothing => {}
        }
        // Three rounds in the class's own bags gained nothing, or a store that evicts nothing looks
        // once for idle pages.
        let looks_around = if store.evict { (round + fruitless) % 4 == 3 } else { fruitless == 0 };
        if make_room(thread, class, looks_around) {
            (round, fruitless) = (round + 1, 0);
        } else {
            // Other threads may hold all memory, as drafts or unlinked within their sections. These
            // end.
            fruitless += 1;
            if store.evict {
                arena::sync::sleep(NAP);
            }
        }
    }
    // Nothing can be evicted. A file system that was full may have room by now.
    store.budget.forget_full();
    if add_page(thread, class)
        && let Some(chunk) = take_free()
    {
        return Some(chunk);
    }
    thread.count(class, Count::OutOfMemory, 1);
    None
}

/// Result of [`wait_for`].
enum Waited {
    Got(ChunkRef),
    /// No memory is in a grace period.
    ForNothing,
    /// A thread has stopped within a section, and may hold all memory in grace periods.
    InVain,
}

/// Lets other threads end the sections that keep unlinked memory, as long as that promises a chunk.
/// Evicting more would not help: it would wait for these sections, too.
fn wait_for(thread: &Rc<ThreadState>, class: ClassId) -> Waited {
    let store = &*thread.store;
    let (slabs, arena) = (&store.slabs, &store.arena);
    let take_free = || slabs.take(arena, thread.slot, class);
    let epoch = store.qsbr.now();
    for turn in 1..=WAITS {
        let promising = thread.has_retired()
            || is_mostly_retired(thread, class)
            || awaits_bag(thread, class)
            || slabs.has_page_on_its_way(&store.budget, class);
        if !promising {
            return Waited::ForNothing;
        }
        if thread.is_stuck() {
            // It has waited for this section before. The section may have ended without an
            // announcement.
            thread.force();
            if thread.is_stuck() {
                return Waited::InVain;
            }
        } else if turn % LOOKS_PER_FORCE == 0 {
            thread.force();
        } else if turn < YIELDS {
            arena::sync::yield_now();
        } else {
            arena::sync::sleep(NAP);
        }
        thread.adopt();
        thread.settle();
        if let Some(chunk) = take_free() {
            return Waited::Got(chunk);
        }
        if add_page(thread, class) {
            return take_free().map_or(Waited::ForNothing, Waited::Got);
        }
    }
    if store.qsbr.now() != epoch {
        return Waited::ForNothing;
    }
    thread.note_stuck();
    Waited::InVain
}

/// `true` if most chunks of the class are neither free nor linked: their grace periods wait for
/// threads that do not run.
fn is_mostly_retired(thread: &ThreadState, class: ClassId) -> bool {
    let store = &*thread.store;
    if class == store.slabs.largest() || class == store.slabs.heads() {
        return false; // Their chunks are no items of their own.
    }
    let used = store.slabs.class(class).used();
    used > 64 && store.counters.of_class(class, Count::Items) * 2 < used
}

/// `true` if the oldest items that hold chunks of the class are in a bag that closed a short time
/// ago: they can be evicted when the sections have ended in which others may have appended to it.
fn awaits_bag(thread: &ThreadState, class: ClassId) -> bool {
    let store = &*thread.store;
    lists_of(store, class).any(|list| {
        let list = store.list(list);
        let order = list.order.lock();
        PARTS.iter().any(|&part| {
            let oldest = order.of(part).bags.front().copied();
            let closed = oldest.filter(|&bag| bag != list.newest(part));
            closed.is_some_and(|bag| !list.bag(bag).is_settled(&store.qsbr))
        })
    })
}

/// Evicts from the class itself, or takes a page from another class, which it prefers if it
/// `looks_around`. `false` if nothing was evicted and no page taken, because there is none or other
/// threads delay it.
fn make_room(thread: &Rc<ThreadState>, class: ClassId, looks_around: bool) -> bool {
    let evicts = thread.store.evict;
    let own = next_victim(thread, class);
    let other = match evicts {
        true if looks_around || own.is_none() => Candidate::oldest(thread, class),
        false if looks_around => Candidate::idle(thread, class),
        _ => None,
    };
    let stolen = match other {
        Some(giver) => take_page(thread, giver.class, class),
        None => evicts && take_much_older(thread, class),
    };
    if stolen {
        return true;
    }
    own.is_some_and(|victim| {
        thread.count(class, Count::DirectReclaims, 1);
        evict_own(thread, victim.class) > 0 && evicts
    })
}

/// Takes a page of a class whose items are much older. `false` if there is none, or the cleaner
/// sees no urgency.
fn take_much_older(thread: &Rc<ThreadState>, class: ClassId) -> bool {
    let slabs = &thread.store.slabs;
    if slabs.need(class) != Need::PageNow {
        return false;
    }
    let giver = Candidate::much_older(thread, class);
    let is_taken = giver.is_some_and(|giver| take_page(thread, giver.class, class));
    if !is_taken {
        // All classes are searched for one page, or once until the cleaner has looked.
        slabs.set_need(class, Need::Page);
    }
    is_taken
}

/// Evicts a batch from the list of a class. Returns the number of items evicted or reclaimed.
pub(super) fn evict_own(thread: &Rc<ThreadState>, list: ClassId) -> usize {
    let slabs = &thread.store.slabs;
    let class = slabs.class(list);
    let want = if list == slabs.heads() {
        // One chained item gives many pieces.
        1
    } else {
        let share = to_usize(class.used() / SHARE);
        share.min(BATCH_BYTES / class.chunk_bytes()).clamp(1, BATCH)
    };
    evict(thread, list, want)
}

/// Returns free pages to the system until the budget fits, at most `pages` now. If there are none,
/// the mover empties some (see `rebalance`).
pub(crate) fn return_pages(store: &Store, pages: usize) {
    for _ in 0..pages {
        let is_over = store.budget.excess() > 0;
        if !is_over || !store.slabs.return_page(&store.arena, &store.budget, &store.qsbr) {
            return;
        }
    }
}
