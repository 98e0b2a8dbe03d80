//! W-TinyLFU: new items pass through a small LRU, the window. An item that leaves it is compared
//! with the next eviction candidate: the one that was requested more often stays. Items used again
//! after the window are protected from that.
//!
//! Source: Einziger, Friedman and Manes, "TinyLFU: A Highly Efficient Cache Admission Policy" (ACM
//! Transactions on Storage, 2017): a window of a hundredth, four fifths of the rest protected.

use super::Cache;
use super::lists::Lists;
use super::sketch::Sketch;

/// The lists.
const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Requests after which all counts are halved, as a multiple of the number of items.
const PERIOD: u64 = 10;

/// Bytes of an item, only for the size of the sketch.
const ITEM_BYTES: u64 = 128;

pub(super) struct WTinyLfu {
    capacity: u64,
    window_max: u64,
    protected_max: u64,
    items: Lists,
    sketch: Sketch,
}

impl WTinyLfu {
    pub(super) fn new(capacity: u64) -> Self {
        let window_max = capacity / 100;
        Self {
            capacity,
            window_max,
            protected_max: (capacity - window_max) / 5 * 4,
            items: Lists::new(3),
            sketch: Sketch::new(capacity / ITEM_BYTES),
        }
    }

    fn note(&mut self, id: u64) {
        let items = self.items.items() as u64;
        self.sketch.add(id, (items * PERIOD).max(1000));
    }

    /// The item is used again.
    fn promote(&mut self, at: usize) {
        if self.items.list(at) == WINDOW {
            return self.items.move_to(at, WINDOW);
        }
        self.items.move_to(at, PROTECTED);
        while self.items.bytes_in(PROTECTED) > self.protected_max {
            let Some(oldest) = self.items.oldest(PROTECTED) else { return };
            self.items.move_to(oldest, PROBATION);
        }
    }

    fn fit(&mut self) {
        while self.items.bytes_in(WINDOW) > self.window_max {
            let Some(candidate) = self.items.oldest(WINDOW) else { break };
            self.items.move_to(candidate, PROBATION);
            self.admit(candidate);
        }
        while self.items.bytes_in_all() > self.capacity {
            let mut lists = [PROBATION, PROTECTED, WINDOW].into_iter();
            let Some(oldest) = lists.find_map(|list| self.items.oldest(list)) else { return };
            self.items.remove(oldest);
        }
    }

    /// Makes room for an item that has left the window, or removes it.
    fn admit(&mut self, candidate: usize) {
        let wanted = self.sketch.count(self.items.id(candidate));
        while self.items.bytes_in_all() > self.capacity {
            let mut lists = [PROBATION, PROTECTED].into_iter();
            let Some(victim) = lists.find_map(|list| self.items.oldest(list)) else { return };
            let is_better = wanted > self.sketch.count(self.items.id(victim));
            if victim == candidate || !is_better {
                return self.items.remove(candidate);
            }
            self.items.remove(victim);
        }
    }
}

impl Cache for WTinyLfu {
    fn get(&mut self, id: u64) -> bool {
        self.note(id);
        let found = self.items.find(id);
        if let Some(at) = found {
            self.promote(at);
        }
        found.is_some()
    }

    fn put(&mut self, id: u64, bytes: u32) {
        if let Some(at) = self.items.find(id) {
            self.items.resize(at, bytes);
            self.promote(at);
        } else {
            self.items.insert(WINDOW, id, bytes);
        }
        self.fit();
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
