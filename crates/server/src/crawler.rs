//! Settings of crawls for dead items, which administrators change and the cleaner's thread reads.
//!
//! The cleaner's own passes continuously free dead items. A crawl is one additional pass of the
//! same thread over all items of some classes. `enable`, `sleep` and `tocrawl` apply only to
//! crawls.
//!
//! Relaxed: the settings are independent, and the next step of a crawl sees a new one.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use options::Options;

/// Settings of crawls, which the cleaner's thread reads.
#[derive(Debug)]
pub(crate) struct Crawler {
    is_enabled: AtomicBool,
    sleep_micros: AtomicU32,
    to_crawl: AtomicU32,
}

impl Crawler {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            is_enabled: AtomicBool::new(options.crawler),
            sleep_micros: AtomicU32::new(options.crawler_sleep_micros),
            to_crawl: AtomicU32::new(options.crawler_to_crawl),
        }
    }

    /// The pause between two steps of [`CRAWLED_AT_ONCE`] items.
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_micros(u64::from(self.sleep_micros()))
    }

    /// The same in microseconds.
    pub(crate) fn sleep_micros(&self) -> u32 {
        self.sleep_micros.load(Ordering::Relaxed)
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    pub(crate) fn enable(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
    }

    pub(crate) fn set_sleep_micros(&self, micros: u32) {
        self.sleep_micros.store(micros, Ordering::Relaxed);
    }

    /// The maximum number of items that a crawl checks; 0 for all.
    pub(crate) fn to_crawl(&self) -> u32 {
        self.to_crawl.load(Ordering::Relaxed)
    }

    pub(crate) fn set_to_crawl(&self, items: u32) {
        self.to_crawl.store(items, Ordering::Relaxed);
    }

    /// The settings under memcached's names.
    pub(crate) fn settings(&self) -> [(&'static str, String); 3] {
        let yes_no = if self.is_enabled.load(Ordering::Relaxed) { "yes" } else { "no" };
        [
            ("lru_crawler", yes_no.to_owned()),
            ("lru_crawler_sleep", self.sleep_micros().to_string()),
            ("lru_crawler_tocrawl", self.to_crawl.load(Ordering::Relaxed).to_string()),
        ]
    }
}

/// Items that a crawl checks before it pauses, as in memcached.
pub(crate) const CRAWLED_AT_ONCE: usize = 1000;
