//! Crawls: one pass over the items of some classes that frees dead items.
//!
//! A crawl walks over the pages, not over the bags: it reorders nothing and examines every item
//! once. The cleaner's thread does it in steps.

use super::Cleaner;
use crate::reaping::walk::{WalkCursor, reap};
use crate::store::requests::CrawlRequest;
use narrow::to_usize;

/// A crawl and its progress.
#[derive(Debug)]
pub(crate) struct Crawl {
    request: CrawlRequest,
    /// Its class is the one being visited.
    cursor: WalkCursor,
    /// Items of this class not yet examined.
    left: u64,
}

impl Cleaner {
    /// Does one step of the requested crawl, if there is one: examines about `items` items.
    /// `now_secs` is the present second since the store's start.
    pub fn crawl(&mut self, now_secs: u32, items: usize) {
        let crawls = &self.handle.store().crawls;
        if let Some(request) = crawls.take() {
            self.crawl = Some(Crawl { request, cursor: WalkCursor::default(), left: 0 });
        }
        if !crawls.is_running() {
            self.crawl = None;
        }
        let Some(crawl) = &mut self.crawl else { return };
        self.handle.begin_turn(now_secs);
        let mut left = items as u64;
        while left > 0 {
            if crawl.cursor.class.is_none() {
                crawl.cursor.class = crawl.request.classes.pop();
                crawl.left = crawl.request.most;
            }
            if crawl.cursor.class.is_none() {
                break;
            }
            // At most `items`, so it fits.
            let some = to_usize(left.min(crawl.left));
            let reaped = reap(&self.handle.thread, &mut crawl.cursor, some, |_| true);
            crawl.left -= reaped.checked.min(crawl.left);
            // A step without an item costs something, too.
            left -= reaped.checked.clamp(1, left);
            if !reaped.has_more || crawl.left == 0 {
                crawl.cursor = WalkCursor::default();
            }
        }
        let is_over = crawl.cursor.class.is_none() && crawl.request.classes.is_empty();
        self.handle.rest();
        if is_over {
            self.crawl = None;
            self.handle.store().crawls.finish();
        }
    }
}
