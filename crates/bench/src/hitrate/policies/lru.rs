//! Least recently used.

use super::Cache;
use super::lists::Lists;

pub(super) struct Lru {
    capacity: u64,
    items: Lists,
}

impl Lru {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, items: Lists::new(1) }
    }
}

impl Cache for Lru {
    fn get(&mut self, id: u64) -> bool {
        let found = self.items.find(id);
        if let Some(at) = found {
            self.items.move_to(at, 0);
        }
        found.is_some()
    }

    fn put(&mut self, id: u64, bytes: u32) {
        self.remove(id);
        self.items.insert(0, id, bytes);
        while self.items.bytes_in(0) > self.capacity {
            let Some(oldest) = self.items.oldest(0) else { return };
            self.items.remove(oldest);
        }
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
