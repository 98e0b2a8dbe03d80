//! The purge after a flush: `flush_all`, or the invalidation of a prefix.
//!
//! The invalidation itself is a number and an entry in a table (`expiry::invalidation`). Its time
//! does not grow with the number of items. The purge frees the dead items later, step by step.

use super::Step;
use crate::reaping::walk::{WalkCursor, reap};
use crate::thread::ThreadState;
use std::rc::Rc;

/// Chunks examined in one section.
const CHUNKS_PER_SECTION: usize = 4096;

/// Progress of a purge.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Purge {
    /// Nothing to purge.
    #[default]
    Idle,
    /// Waiting for the end of the sections in which an older code may have been read.
    Before { count: u64, epoch: u64 },
    /// Freeing dead items, page by page.
    Walking { count: u64, cursor: WalkCursor },
    /// Waiting for the end of the sections in which an item that is gone or renewed may have been
    /// found.
    After { count: u64, epoch: u64 },
}

impl Purge {
    /// Frees items that invalidations have killed, from the first page to the last. `true` if there
    /// is more to do at once.
    pub(super) fn step(
        &mut self,
        thread: &Rc<ThreadState>,
        budget: usize,
        step: &mut Step,
    ) -> bool {
        let store = &*thread.store;
        loop {
            match *self {
                Self::Idle if store.invalidations.outstanding() == 0 => return false,
                Self::Idle => {
                    // Invalidations have come since the last purge (law 3 of
                    // `expiry::invalidation`).
                    let count = store.invalidations.begin_purge();
                    *self = Self::Before { count, epoch: store.qsbr.epoch() };
                    thread.settle();
                }
                Self::Before { epoch, .. } | Self::After { epoch, .. }
                    if !store.qsbr.is_safe(epoch) =>
                {
                    thread.settle();
                    if !store.qsbr.is_safe(epoch) {
                        // A section of another thread is still open: look again at the next step.
                        return false;
                    }
                }
                Self::Before { count, .. } => {
                    // Every thread that read an older code has linked its item.
                    *self = Self::Walking { count, cursor: WalkCursor::default() };
                }
                Self::Walking { count, mut cursor } => {
                    for _ in 0..budget.div_ceil(CHUNKS_PER_SECTION) {
                        step.checked += CHUNKS_PER_SECTION;
                        let limit = budget.min(CHUNKS_PER_SECTION);
                        if !reap(thread, &mut cursor, limit, |item| item.renew()).has_more {
                            // All pages have been seen.
                            *self = Self::After { count, epoch: store.qsbr.epoch() };
                            break;
                        }
                    }
                    if let Self::Walking { cursor: reached, .. } = self {
                        // The budget is used up before the last page.
                        *reached = cursor;
                        return true;
                    }
                }
                Self::After { count, .. } => {
                    store.invalidations.end_purge(count);
                    *self = Self::Idle;
                }
            }
        }
    }
}
