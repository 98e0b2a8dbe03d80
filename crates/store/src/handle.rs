//! A thread's handle to a store: joining, turns, and the way to sections, drafts and walks.

use crate::draft::{Draft, DraftError, NewItem};
use crate::error::TooManyPrefixes;
use crate::item::{Item, Liveness};
use crate::linked::ReadGuard;
use crate::namespaces::Namespaces;
use crate::reaping::recount::set_namespaces;
use crate::reaping::walk::{self, WalkCursor};
use crate::section::Section;
use crate::store::Store;
use crate::thread::{ChunkObserver, ThreadState};
use std::rc::Rc;
use std::sync::Arc;

/// One thread's membership in a store. Drafts and pins keep the membership alive after it.
pub struct Handle {
    pub(crate) thread: Rc<ThreadState>,
}

/// Called with each item that a thread evicts, before it is unlinked.
pub type Observer = Box<dyn Fn(&Item<'_>)>;

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("slot", &self.thread.slot).finish_non_exhaustive()
    }
}

impl Store {
    /// Joins the calling thread. `None` if [`threads_max`](crate::Config::threads_max) threads have
    /// joined already.
    #[must_use]
    pub fn join(self: &Arc<Self>) -> Option<Handle> {
        let slot = self.qsbr.register()?;
        Some(Handle { thread: ThreadState::new(self, slot) })
    }
}

impl Handle {
    /// Starts a turn: the thread is about to use the store. `now_secs` is the present second since
    /// the store's start.
    pub fn begin_turn(&self, now_secs: u32) {
        self.thread.begin_turn(now_secs);
    }

    /// The second given to the last [`begin_turn`](Self::begin_turn).
    #[must_use]
    pub fn now_secs(&self) -> u32 {
        self.thread.now_secs()
    }

    /// Announces, between requests, that the thread holds no reference. Frees memory that no thread
    /// can read any more.
    ///
    /// # Panics
    ///
    /// If a section is open.
    #[inline]
    pub fn quiesce(&self) {
        assert_eq!(self.thread.depth(), 0, "quiesce inside a section");
        self.thread.quiesce();
    }

    /// Announces that the thread is about to sleep: it holds no reference until the next
    /// [`begin_turn`](Self::begin_turn).
    ///
    /// # Panics
    ///
    /// If a section is open.
    pub fn rest(&self) {
        assert_eq!(self.thread.depth(), 0, "rest inside a section");
        self.thread.rest();
    }

    /// Takes memory for a new item, and evicts other items if necessary.
    ///
    /// # Errors
    ///
    /// The item is too large, or nothing can be evicted. Inside an open section the thread cannot
    /// wait, so there it may report `OutOfMemory` although something is evictable.
    #[inline]
    pub fn draft(&self, new: NewItem<'_>) -> Result<Draft, DraftError> {
        Draft::new(&self.thread, new)
    }

    /// Gives the key's item a cas unique, if it lives and has none: it is replaced by a copy that
    /// has room for one. `false` if there is no memory for the copy. No section may be open.
    pub fn give_cas(&self, hash: u64, key: &[u8]) -> bool {
        loop {
            let new = {
                let section = self.section();
                let found = section.find(hash, key);
                let found = found.filter(|item| item.liveness() == Liveness::Live);
                let Some(item) = found.filter(|item| !item.has_cas()) else { return true };
                // The eviction that makes room for the copy skips the item.
                item.spare();
                NewItem {
                    key,
                    flags: item.flags(),
                    deadline: item.deadline(),
                    value_len: item.value_len(),
                    base64_key: item.is_base64_key(),
                    has_cas: true,
                }
            };
            let Ok(draft) = self.draft(new) else { return false };
            let given = self.section().give_cas(hash, key, draft);
            // `None`: another item has been stored in the meantime.
            if let Some(is_given) = given {
                return is_given;
            }
        }
    }

    /// A cas unique that no item has or will have.
    #[must_use]
    pub fn spare_cas(&self) -> u64 {
        self.thread.cas_of_change(None, Some(0))
    }

    /// Opens a read section: an item found in it stays valid until the section is dropped.
    #[inline]
    #[must_use]
    pub fn section(&self) -> Section<'_> {
        Section::open(&self.thread)
    }

    /// The store that the thread has joined.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.thread.store
    }

    /// Calls `observer` for each item that this thread evicts from now on. `None` stops it.
    pub fn on_evict(&self, observer: Option<Observer>) {
        let by_chunk = observer.map(|observer| -> ChunkObserver {
            Box::new(move |thread, chunk| {
                // Still linked: an eviction calls this under the stripe, before it unlinks.
                if let Some(item) = ReadGuard::open(thread).linked(chunk) {
                    observer(&item);
                }
            })
        });
        *self.thread.observer.borrow_mut() = by_chunk;
    }

    /// Visits the next linked items, about `limit` chunks' worth. `false` when the walk is
    /// complete.
    pub fn walk(
        &self,
        cursor: &mut WalkCursor,
        limit: usize,
        visit: impl FnMut(&Item<'_>),
    ) -> bool {
        walk::walk(&self.thread, cursor, limit, visit)
    }

    /// Kills everything that was linked before this call. The time does not grow with the number of
    /// items.
    pub fn flush(&self) {
        let flushed = self.store().invalidations.add(None);
        debug_assert!(flushed.is_ok(), "a flush of everything needs no place");
    }

    /// Kills every linked item whose key starts with `prefix`. The time does not grow with the
    /// number of items. An empty prefix kills all, as [`flush`](Self::flush) does.
    ///
    /// # Errors
    ///
    /// Too many prefixes have been invalidated since the cleaner's last purge. Nothing has changed.
    pub fn flush_prefix(&self, prefix: &[u8]) -> Result<(), TooManyPrefixes> {
        let hash = self.store().hash(prefix);
        let named = (!prefix.is_empty()).then_some((prefix.len(), hash));
        self.store().invalidations.add(named).map_err(|_| TooManyPrefixes)
    }

    /// Counts items by these namespaces from now on, and limits their bytes. Numbers keep their
    /// counts. Every item is examined, unless the prefixes are unchanged: stores wait while the
    /// items of their stripe of the table are examined.
    pub fn set_namespaces(&self, namespaces: &Arc<Namespaces>) {
        set_namespaces(&self.thread, namespaces);
    }

    /// Does the scheduled flush that the caller got from [`Store::claim_flush`].
    pub fn flush_scheduled(&self) {
        self.flush();
        self.store().control().flush_done();
    }
}
