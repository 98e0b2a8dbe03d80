//! Purges after a flush: `flush_all`, or the invalidation of a prefix.
//!
//! The invalidation itself is a number and an entry in a table (`expiry::invalidation`). Its time
//! does not grow with the number of items. The cleaner frees the dead items later, step by step.

use super::walk::{WalkCursor, reap};
use crate::thread::ThreadState;
use std::rc::Rc;

/// Chunks examined in one section of a purge.
pub(crate) const CHUNKS_PER_STEP: usize = 4096;

/// Frees flushed and expired items, and renews the others, about `limit` chunks' worth. `false`
/// when all pages have been seen.
pub(crate) fn purge(thread: &Rc<ThreadState>, cursor: &mut WalkCursor, limit: usize) -> bool {
    reap(thread, cursor, limit.min(CHUNKS_PER_STEP), |item| item.renew()).has_more
}
