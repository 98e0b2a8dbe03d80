//! The last pool that a client's request reached, the counts of such pools, and whether a delete
//! was kept on the way, or reached a server that gets do not read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::reply::Outcome;

/// The results of the requests that reached a pool, over all workers. Relaxed is enough: a reader
/// may see one sum newer than another.
#[derive(Debug, Default)]
pub struct PoolCounts {
    /// Requests to servers of the pool, whatever their outcome.
    pub asked: AtomicU64,
    /// Replies to clients for which this pool was used last.
    pub replied: AtomicU64,
    /// Those of them that were errors.
    pub failed: AtomicU64,
    /// The microseconds from these clients' requests to their replies.
    pub total_us: AtomicU64,
}

/// The pool used last for one request of a client; whether a server's part was kept for later;
/// whether one reached a server whose gets are held.
#[derive(Debug, Default)]
pub struct Trail {
    last: Mutex<Option<Arc<PoolCounts>>>,
    is_kept: AtomicBool,
    is_held: AtomicBool,
}

impl Trail {
    /// Records the pool that is about to be used.
    pub fn note(&self, counts: &Arc<PoolCounts>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(counts));
    }

    /// Records that a server did not execute the delete, and that it is kept.
    pub fn note_kept(&self) {
        // Relaxed: one thread runs the request's task.
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// True once a server's delete was kept.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        // Relaxed: see above.
        self.is_kept.load(Ordering::Relaxed)
    }

    /// Records that the delete goes to a server whose gets are held.
    pub fn note_held(&self) {
        // Relaxed: see above.
        self.is_held.store(true, Ordering::Relaxed);
    }

    /// True once a server's delete was kept, or went to a server whose gets are held: gets of the
    /// key go to another server.
    #[must_use]
    pub fn is_read_elsewhere(&self) -> bool {
        // Relaxed: see above.
        self.is_kept() || self.is_held.load(Ordering::Relaxed)
    }

    /// Takes over the current notes of `other`.
    pub fn follow(&self, other: &Self) {
        let last = other.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(counts) = last {
            self.note(&counts);
        }
        if other.is_kept() {
            self.note_kept();
        }
        if other.is_held.load(Ordering::Relaxed) {
            self.note_held();
        }
    }

    /// Counts the reply that the client gets, `us` microseconds after its request.
    pub fn finish(self, outcome: Outcome, us: u64) {
        let last = self.last.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(counts) = last else { return };
        counts.replied.fetch_add(1, Ordering::Relaxed);
        counts.failed.fetch_add(u64::from(outcome.failure().is_some()), Ordering::Relaxed);
        counts.total_us.fetch_add(us, Ordering::Relaxed);
    }
}

impl PartialEq for Trail {
    /// Identity: a trail equals only itself.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Trail {}
