//! The reference model: one LRU over items of all sizes.

use std::collections::{HashMap, VecDeque};

/// One LRU over items of all sizes, in this many bytes.
#[derive(Default)]
pub(crate) struct ExactLru {
    /// Maximum bytes of its items.
    pub(crate) room: u64,
    /// Bytes of its items.
    pub(crate) used: u64,
    /// Bytes evicted so far.
    pub(crate) evicted: u64,
    uses: u64,
    /// By key: its last use, and its bytes.
    pub(crate) items: HashMap<u64, (u64, u64)>,
    /// All uses, oldest first, with keys. Uses that are not a key's last do not count.
    order: VecDeque<(u64, u64)>,
}

impl ExactLru {
    /// Stores an item, which counts as a use.
    pub(crate) fn put(&mut self, key: u64, bytes: u64) {
        let before = self.items.insert(key, (0, bytes));
        self.used = self.used + bytes - before.map_or(0, |(_, bytes)| bytes);
        self.get(key);
        self.fit();
    }

    /// Uses an item, if it is there.
    pub(crate) fn get(&mut self, key: u64) {
        self.uses += 1;
        if let Some((last, _)) = self.items.get_mut(&key) {
            *last = self.uses;
            self.order.push_back((self.uses, key));
        }
    }

    /// Evicts until the items fit.
    pub(crate) fn fit(&mut self) {
        while self.used > self.room {
            let (used_at, key) = self.order.pop_front().unwrap();
            if let Some(&(last, bytes)) = self.items.get(&key)
                && last == used_at
            {
                self.items.remove(&key);
                self.used -= bytes;
                self.evicted += bytes;
            }
        }
    }
}
