//! S3-FIFO: a small queue of new items, a main queue, and the keys of evicted new items. An item
//! that was used twice while new, or returns while its key is known, enters the main queue. There,
//! a used item is put back as the newest.
//!
//! Source: Yang et al., "FIFO Queues are All You Need for Cache Eviction" (SOSP 2023), algorithm 1.

use super::Cache;
use super::lists::Lists;

/// The lists.
const SMALL: usize = 0;
const MAIN: usize = 1;

/// Maximum number of counted uses.
const USES_MAX: u8 = 3;

pub(super) struct S3Fifo {
    capacity: u64,
    items: Lists,
    /// Keys without items, with their former bytes.
    ghosts: Lists,
}

impl S3Fifo {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, items: Lists::new(2), ghosts: Lists::new(1) }
    }

    fn evict(&mut self) {
        let small_max = self.capacity / 10;
        let is_small = self.items.bytes_in(SMALL) >= small_max.max(1);
        if is_small || self.items.oldest(MAIN).is_none() {
            self.evict_newcomer();
        } else {
            self.evict_main();
        }
    }

    fn evict_newcomer(&mut self) {
        let Some(at) = self.items.oldest(SMALL) else { return };
        if *self.items.uses(at) > 1 {
            *self.items.uses(at) = 0;
            self.items.move_to(at, MAIN);
            return;
        }
        let (id, bytes) = (self.items.id(at), self.items.bytes(at));
        self.items.remove(at);
        self.ghosts.insert(0, id, bytes);
        while self.ghosts.bytes_in(0) > self.capacity / 10 * 9 {
            let Some(oldest) = self.ghosts.oldest(0) else { return };
            self.ghosts.remove(oldest);
        }
    }

    fn evict_main(&mut self) {
        let Some(at) = self.items.oldest(MAIN) else { return };
        let uses = self.items.uses(at);
        if *uses > 0 {
            *uses -= 1;
            self.items.move_to(at, MAIN);
        } else {
            self.items.remove(at);
        }
    }

    fn fit(&mut self, more: u64) {
        while self.items.bytes_in_all() + more > self.capacity {
            self.evict();
        }
    }
}

impl Cache for S3Fifo {
    fn get(&mut self, id: u64) -> bool {
        let found = self.items.find(id);
        if let Some(at) = found {
            let uses = self.items.uses(at);
            *uses = (*uses + 1).min(USES_MAX);
        }
        found.is_some()
    }

    fn put(&mut self, id: u64, bytes: u32) {
        if let Some(at) = self.items.find(id) {
            self.items.resize(at, bytes);
            self.get(id);
            return self.fit(0);
        }
        let ghost = self.ghosts.find(id);
        if let Some(at) = ghost {
            self.ghosts.remove(at);
        }
        self.fit(u64::from(bytes));
        // Making room may have created a ghost, but not of this key.
        self.items.insert(if ghost.is_some() { MAIN } else { SMALL }, id, bytes);
    }

    fn remove(&mut self, id: u64) {
        if let Some(at) = self.items.find(id) {
            self.items.remove(at);
        }
    }

    #[cfg(test)]
    fn used(&self) -> u64 {
        self.items.bytes_in_all()
    }
}
