//! SIEVE: one queue in the order of arrival, and a hand that moves from the oldest to the newest.
//! It spares items used since its last pass, and evicts the others. Nothing moves in the queue.
//!
//! Source: Zhang et al., "SIEVE is Simpler than LRU" (NSDI 2024), algorithm 1.

use super::Cache;
use super::lists::{At, Lists};

pub(super) struct Sieve {
    capacity: u64,
    items: Lists,
    hand: Option<At>,
}

impl Sieve {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, items: Lists::new(1), hand: None }
    }

    fn evict(&mut self) {
        let mut at = self.hand.or_else(|| self.items.oldest(0));
        while let Some(looked_at) = at {
            if std::mem::take(self.items.uses(looked_at)) == 0 {
                self.hand = self.items.newer(looked_at);
                self.items.remove(looked_at);
                return;
            }
            at = self.items.newer(looked_at).or_else(|| self.items.oldest(0));
        }
    }
}

impl Cache for Sieve {
    fn get(&mut self, id: u64) -> bool {
        let found = self.items.find(id);
        if let Some(at) = found {
            *self.items.uses(at) = 1;
        }
        found.is_some()
    }

    fn put(&mut self, id: u64, bytes: u32) {
        if let Some(at) = self.items.find(id) {
            *self.items.uses(at) = 1;
            self.items.resize(at, bytes);
            while self.items.bytes_in(0) > self.capacity {
                self.evict();
            }
            return;
        }
        while self.items.bytes_in(0) + u64::from(bytes) > self.capacity {
            self.evict();
        }
        self.items.insert(0, id, bytes);
    }

    fn remove(&mut self, id: u64) {
        let Some(at) = self.items.find(id) else { return };
        if self.hand == Some(at) {
            self.hand = self.items.newer(at);
        }
        self.items.remove(at);
    }

    #[cfg(test)]
    fn used(&self) -> u64 {
        self.items.bytes_in_all()
    }
}
