//! Requests of an operator to the cleaner: a page move (`slabs reassign`), and a crawl
//! (`lru_crawler crawl`).

use super::Store;
use crate::slabs::ClassId;
use crate::slabs::balance_settings::{MoveRequest, ReassignError};
use arena::sync::{AtomicBool, Mutex, Ordering};

/// The reason why a crawl does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrawlError {
    /// No such class.
    BadClass,
    /// Another is under way.
    Busy,
}

/// A crawl that an operator requested.
#[derive(Debug)]
pub(crate) struct CrawlRequest {
    /// Classes to visit, the last first.
    pub classes: Vec<ClassId>,
    /// Maximum number of items of each class to examine.
    pub most: u64,
}

/// The requested crawl, and whether one is under way.
#[derive(Debug, Default)]
pub(crate) struct Crawls {
    asked: Mutex<Option<CrawlRequest>>,
    /// Relaxed: the lock hands the request over; this flag only says whether to look.
    is_running: AtomicBool,
}

impl Crawls {
    /// Takes the request that has not started.
    pub(crate) fn take(&self) -> Option<CrawlRequest> {
        self.asked.lock().take()
    }

    /// `true` if a requested crawl is not over.
    pub(crate) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Relaxed)
    }

    /// The crawl under way is over.
    pub(crate) fn finish(&self) {
        let asked = self.asked.lock();
        // A request that came after a stop is still pending.
        self.is_running.store(asked.is_some(), Ordering::Relaxed);
    }
}

impl Store {
    /// Asks the cleaner to move a page between slab classes. Returns at once; `slabs_moved` in
    /// [`StoreStats`](crate::StoreStats) rises when it is done.
    ///
    /// `from` -1 is the class with the oldest item. `to` 0 is the first class that needs a page.
    ///
    /// # Errors
    ///
    /// See [`ReassignError`].
    pub fn reassign(&self, from: i32, to: i32) -> Result<(), ReassignError> {
        if self.balance.request().is_some() {
            return Err(ReassignError::Busy);
        }
        if from == to {
            return Err(ReassignError::Same);
        }
        let class = |id: i32| u8::try_from(id).ok().filter(|&id| id == 0 || self.slabs.is_open(id));
        let to = class(to).ok_or(ReassignError::BadClass)?;
        let from = match from {
            -1 => None,
            0 => return Err(ReassignError::NoSpare),
            id => Some(class(id).ok_or(ReassignError::BadClass)?),
        };
        if from.is_some_and(|from| self.slabs.pages_of(from) == 0) {
            return Err(ReassignError::NoSpare);
        }
        self.balance.ask(MoveRequest { from, to })
    }

    /// Asks the cleaner for a crawl of these classes, or of all if there are none. `most` is the
    /// number of items of each class to examine; 0 is no limit.
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
        *asked = Some(CrawlRequest { classes, most });
        self.crawls.is_running.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the crawl under way after its present step.
    pub fn stop_crawl(&self) {
        let mut asked = self.crawls.asked.lock();
        *asked = None;
        self.crawls.is_running.store(false, Ordering::Relaxed);
    }

    /// `true` if a requested crawl is not over.
    #[must_use]
    pub fn is_crawling(&self) -> bool {
        self.crawls.is_running()
    }
}
