//! Walks over all linked items, page by page, in steps: dumps, purges and crawls.

use crate::item::{Item, Liveness};
use crate::section::{Section, Verdict};
use crate::stats::Count;
use crate::thread::{Handle, ThreadState};
use std::rc::Rc;
use std::time::Duration;

/// Between two looks whether the others' sections have ended.
const NAP: Duration = Duration::from_micros(50);

/// Position of a walk over all items. Items that stay linked during the whole walk are visited exactly once.
#[derive(Clone, Copy, Debug, Default)]
pub struct WalkCursor {
    /// Visit this slab class alone.
    pub class: Option<u8>,
    page: usize,
    chunk: usize,
}

impl Handle {
    /// Visits the next linked items, about `limit` chunks' worth; `false` when the walk is complete.
    pub fn walk(
        &self,
        cursor: &mut WalkCursor,
        limit: usize,
        visit: impl FnMut(&Item<'_>),
    ) -> bool {
        self.thread.walk(cursor, limit, visit)
    }

    /// Everything linked before this call is dead from now on. Takes no time that grows with the number of items, but for the
    /// eighth invalidation during one pass of the cleaner: that one purges first.
    ///
    /// # Panics
    ///
    /// If a section is open: a purge has to wait for the others' sections.
    pub fn flush(&self) {
        self.thread.invalidate(None);
    }

    /// As [`Self::flush`], but only of keys that begin with `prefix`; an empty one is of all.
    ///
    /// # Panics
    ///
    /// If a section is open.
    pub fn flush_prefix(&self, prefix: &[u8]) {
        let hash = self.store().hash(prefix);
        self.thread.invalidate((!prefix.is_empty()).then_some((prefix.len(), hash)));
    }

    /// Does a flush that [`Store::claim_flush`](crate::Store::claim_flush) has given to the caller.
    pub fn flush_scheduled(&self) {
        self.flush();
        self.store().control().flush_done();
    }
}

/// What a part of a reaping walk came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaped {
    /// Items looked at.
    pub checked: u64,
    /// There are more chunks to look at.
    pub has_more: bool,
}

impl ThreadState {
    pub(crate) fn walk(
        self: &Rc<Self>,
        cursor: &mut WalkCursor,
        limit: usize,
        mut visit: impl FnMut(&Item<'_>),
    ) -> bool {
        let store = &*self.store;
        let section = Section::open(self);
        let mut looked = 0;
        while cursor.page < store.slabs.pages_touched() {
            let class = store.slabs.page_class(cursor.page);
            let wanted = class != 0 && cursor.class.is_none_or(|only| only == class);
            let cut = if wanted { store.slabs.cut_chunks(cursor.page) } else { 0 };
            while cursor.chunk < cut {
                if looked >= limit {
                    return true;
                }
                let at = cursor.chunk * store.slabs.class(class).chunk_bytes;
                let chunk = store.arena.chunk(cursor.page, at);
                cursor.chunk += 1;
                looked += 1;
                if let Some(item) = section.linked(chunk)
                    && store.slabs.page_class(cursor.page) == class
                {
                    visit(&item);
                }
            }
            (cursor.page, cursor.chunk) = (cursor.page + 1, 0);
        }
        false
    }

    fn invalidate(self: &Rc<Self>, prefix: Option<(usize, u64)>) {
        assert_eq!(self.depth.get(), 0, "an invalidation inside a section");
        let all = &self.store.invalidations;
        let _lock = loop {
            // Whoever holds the lock may wait for this thread's section to end.
            self.settle();
            match all.lock.try_lock() {
                Some(lock) => break lock,
                None => std::thread::sleep(NAP),
            }
        };
        while all.is_full() {
            let count = all.count();
            self.wait_for_grace();
            let mut cursor = WalkCursor::default();
            while self.purge(&mut cursor, usize::MAX) {}
            self.wait_for_grace();
            all.raise_purged(count);
        }
        all.add(prefix);
        self.store.control().record(all.words());
    }

    /// Waits until every section that is open now, of any thread, has ended.
    fn wait_for_grace(self: &Rc<Self>) {
        let epoch = self.store.qsbr.epoch();
        self.settle();
        while !self.store.qsbr.is_safe(epoch) {
            std::thread::sleep(NAP);
            self.settle();
        }
    }

    /// Frees flushed and expired items, and gives the others the present birth, about `limit` chunks' worth; `false` when all
    /// pages have been seen.
    pub(crate) fn purge(self: &Rc<Self>, cursor: &mut WalkCursor, limit: usize) -> bool {
        self.reap(cursor, limit.min(4096), |item| item.renew()).has_more
    }

    /// Frees dead items, and those that `keep` does not want, about `limit` chunks' worth.
    pub(crate) fn reap(
        self: &Rc<Self>,
        cursor: &mut WalkCursor,
        limit: usize,
        keep: impl Fn(&Item<'_>) -> bool,
    ) -> Reaped {
        let (mut dead, mut checked) = (Vec::new(), 0);
        // Items come class by class.
        let (mut class, mut of_class) = (0, 0);
        let has_more = self.walk(cursor, limit, |item| {
            if item.class() != class {
                self.count(class, Count::CleanerChecked, of_class);
                (class, of_class) = (item.class(), 0);
            }
            of_class += 1;
            checked += 1;
            let is_dead = !matches!(item.liveness(), Liveness::Live | Liveness::Deleted);
            if is_dead || !keep(item) {
                dead.push((item.chunk, item.class()));
            }
        });
        self.count(class, Count::CleanerChecked, of_class);
        let section = Section::open(self);
        for (chunk, class) in dead {
            let verdict = self.purge_one(&section, chunk);
            if verdict == Some(Verdict::Remove) {
                self.count(class, Count::Reclaimed, 1);
                self.count(class, Count::CleanerReclaimed, 1);
            }
        }
        drop(section);
        self.settle();
        Reaped { checked, has_more }
    }

    fn purge_one(self: &Rc<Self>, section: &Section<'_>, chunk: u32) -> Option<Verdict> {
        // Looked at anew: the section in which it was found has ended.
        section.linked(chunk)?;
        self.with_linked(chunk, self.hash_of(chunk), |item| match item.liveness() {
            Liveness::Live | Liveness::Deleted => Verdict::Stay,
            Liveness::Expired | Liveness::Flushed | Liveness::Gone => Verdict::Remove,
        })
    }
}
