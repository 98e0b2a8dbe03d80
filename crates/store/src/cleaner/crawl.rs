//! Crawls asked for by an operator (`lru_crawler crawl`): one pass over the items of some classes that frees the dead ones.
//!
//! It is a walk over the pages, not over the bags: nothing is put in order, and every item is looked at once. The cleaner's
//! thread does it in steps, as often as whoever runs that thread lets it.

use crate::cleaner::Cleaner;
use crate::reaping::walk::WalkCursor;
use crate::slabs::ClassId;
use crate::store::Store;
use crate::sync::{AtomicBool, Mutex, Ordering};

/// What a store knows of its crawls.
#[derive(Debug, Default)]
pub(crate) struct Crawls {
    asked: Mutex<Option<Crawl>>,
    is_running: AtomicBool,
}

/// A crawl and how far it has come.
#[derive(Debug)]
pub(crate) struct Crawl {
    /// Those to come, the last first.
    classes: Vec<ClassId>,
    cursor: WalkCursor,
    /// Items of a class to look at.
    most: u64,
    /// Of this class, still.
    left: u64,
}

/// Why a crawl does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrawlError {
    /// No such class.
    BadClass,
    /// Another is under way.
    Busy,
}

impl Store {
    /// Asks the cleaner for a crawl of these classes, all if there are none, looking at `most` items of each (0: at all).
    ///
    /// # Errors
    ///
    /// See [`CrawlError`].
    pub fn crawl(&self, classes: &[u8], most: u64) -> Result<(), CrawlError> {
        let every = 1..=self.slabs.count();
        if classes.iter().any(|class| !every.contains(class)) {
            return Err(CrawlError::BadClass);
        }
        let mut classes =
            if classes.is_empty() { every.collect::<Vec<_>>() } else { classes.to_vec() };
        classes.reverse();
        let most = if most == 0 { u64::MAX } else { most };
        let mut asked = self.crawls.asked.lock();
        if self.is_crawling() {
            return Err(CrawlError::Busy);
        }
        *asked = Some(Crawl { classes, cursor: WalkCursor::default(), most, left: 0 });
        self.crawls.is_running.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the crawl under way after its present step.
    pub fn stop_crawl(&self) {
        let mut asked = self.crawls.asked.lock();
        *asked = None;
        self.crawls.is_running.store(false, Ordering::Relaxed);
    }

    /// Whether a crawl was asked for and is not over.
    #[must_use]
    pub fn is_crawling(&self) -> bool {
        // Relaxed: what a crawl is, the lock hands over; this says only whether to look.
        self.crawls.is_running.load(Ordering::Relaxed)
    }
}

impl Cleaner {
    /// One step of the crawl that was asked for, if there is one: about `items` items, at this second since the store's start.
    pub fn crawl(&mut self, now_secs: u32, items: usize) {
        let crawls = &self.handle.store().crawls;
        if let Some(new) = crawls.asked.lock().take() {
            self.crawl = Some(new);
        }
        if !crawls.is_running.load(Ordering::Relaxed) {
            self.crawl = None;
        }
        let Some(crawl) = &mut self.crawl else { return };
        self.handle.begin_turn(now_secs);
        let mut left = items as u64;
        while left > 0 {
            if crawl.cursor.class.is_none() {
                crawl.cursor.class = crawl.classes.pop();
                crawl.left = crawl.most;
            }
            if crawl.cursor.class.is_none() {
                break;
            }
            let some = usize::try_from(left.min(crawl.left)).unwrap_or(usize::MAX);
            let reaped = self.handle.thread.reap(&mut crawl.cursor, some, |_| true);
            crawl.left -= reaped.checked.min(crawl.left);
            // A step with nothing in it has cost something, too.
            left -= reaped.checked.clamp(1, left);
            if !reaped.has_more || crawl.left == 0 {
                crawl.cursor = WalkCursor::default();
            }
        }
        let is_over = crawl.cursor.class.is_none() && crawl.classes.is_empty();
        self.handle.rest();
        if is_over {
            self.crawl = None;
            let crawls = &self.handle.store().crawls;
            let asked = crawls.asked.lock();
            // What was asked for meanwhile, after an end by order, is still to come.
            crawls.is_running.store(asked.is_some(), Ordering::Relaxed);
        }
    }
}
