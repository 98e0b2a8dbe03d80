//! Flushes: `flush_all`, and the invalidation of a prefix.
//!
//! An invalidation is a record (`expiry::invalidation`), made here in no time that grows with the
//! number of items. The purge frees the dead items later, step by step, in the cleaner. Only a
//! thread that finds all records taken purges by itself.

use super::walk::{WalkCursor, reap};
use crate::thread::ThreadState;
use std::rc::Rc;
use std::time::Duration;

/// Sleep between two looks whether other threads' sections have ended.
const NAP: Duration = Duration::from_micros(50);
/// Chunks looked at in one section of a purge.
pub(crate) const CHUNKS_PER_STEP: usize = 4096;

/// Records that everything linked before this call is dead, or everything under the prefix of this
/// length and hash.
///
/// # Panics
///
/// If the thread is in a section.
pub(crate) fn invalidate(thread: &Rc<ThreadState>, prefix: Option<(usize, u64)>) {
    assert_eq!(thread.depth.get(), 0, "an invalidation inside a section");
    let all = &thread.store.invalidations;
    let _lock = loop {
        // The holder of the lock may wait for this thread's section to end.
        thread.settle();
        match all.lock.try_lock() {
            Some(lock) => break lock,
            None => std::thread::sleep(NAP),
        }
    };
    while all.is_full() {
        let count = all.count();
        wait_for_grace(thread);
        let mut cursor = WalkCursor::default();
        while purge(thread, &mut cursor, usize::MAX) {}
        wait_for_grace(thread);
        all.raise_purged(count);
    }
    all.add(prefix);
    thread.store.control().record(all.words());
}

/// Waits until every section that is open now, of any thread, has ended.
fn wait_for_grace(thread: &ThreadState) {
    let epoch = thread.store.qsbr.epoch();
    thread.settle();
    while !thread.store.qsbr.is_safe(epoch) {
        std::thread::sleep(NAP);
        thread.settle();
    }
}

/// Frees flushed and expired items, and gives the others the present birth, about `limit` chunks'
/// worth. `false` when all pages have been seen.
pub(crate) fn purge(thread: &Rc<ThreadState>, cursor: &mut WalkCursor, limit: usize) -> bool {
    reap(thread, cursor, limit.min(CHUNKS_PER_STEP), |item| item.renew()).has_more
}
