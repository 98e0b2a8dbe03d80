//! Greedy dual size with frequency: evicts the item with the lowest frequency divided by bytes.
//! Each use counts from the worth of the last evicted item, so that formerly popular items age.
//!
//! Source: Cherkasova, "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching
//! Policy" (HP Laboratories, 1998).

use std::collections::{BTreeMap, HashMap};

use super::Cache;

pub(super) struct Gdsf {
    capacity: u64,
    used: u64,
    items: HashMap<u64, Item>,
    /// Keys by worth; the second number separates items of equal worth, older ones first.
    order: BTreeMap<Worth, u64>,
    /// The worth of the last evicted item.
    floor: f64,
    uses: u64,
}

struct Item {
    bytes: u32,
    frequency: u32,
    worth: Worth,
}

/// The bits of a nonnegative number, which sort like the number; and the time of assignment.
type Worth = (u64, u64);

impl Gdsf {
    pub(super) fn new(capacity: u64) -> Self {
        let (items, order) = (HashMap::new(), BTreeMap::new());
        Self { capacity, used: 0, items, order, floor: 0.0, uses: 0 }
    }

    fn store(&mut self, id: u64, bytes: u32, frequency: u32) {
        self.uses += 1;
        let worth = self.floor + f64::from(frequency) / f64::from(bytes.max(1));
        let worth = (worth.to_bits(), self.uses);
        self.items.insert(id, Item { bytes, frequency, worth });
        self.order.insert(worth, id);
        self.used += u64::from(bytes);
    }

    fn take(&mut self, id: u64) -> Option<Item> {
        let item = self.items.remove(&id)?;
        self.order.remove(&item.worth);
        self.used -= u64::from(item.bytes);
        Some(item)
    }
}

impl Cache for Gdsf {
    fn get(&mut self, id: u64) -> bool {
        let Some(item) = self.take(id) else { return false };
        self.store(id, item.bytes, item.frequency.saturating_add(1));
        true
    }

    fn put(&mut self, id: u64, bytes: u32) {
        let frequency = self.take(id).map_or(1, |old| old.frequency.saturating_add(1));
        self.store(id, bytes, frequency);
        while self.used > self.capacity {
            let Some((&worth, &least)) = self.order.first_key_value() else { return };
            self.floor = f64::from_bits(worth.0);
            self.take(least);
        }
    }

    fn remove(&mut self, id: u64) {
        self.take(id);
    }

    #[cfg(test)]
    fn used(&self) -> u64 {
        self.used
    }
}
