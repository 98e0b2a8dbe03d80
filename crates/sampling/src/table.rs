//! A table by key hash that never takes more memory than it had when it was made.

use crate::index::Index;

/// Values of keys, in any order.
#[derive(Debug)]
pub(crate) struct Table<T> {
    entries: Vec<(u64, T)>,
    index: Index,
}

impl<T> Table<T> {
    /// An empty one of at most `entries_max` keys.
    pub(crate) fn new(entries_max: usize) -> Self {
        Self { entries: Vec::with_capacity(entries_max), index: Index::new(entries_max) }
    }

    /// Memory, in bytes.
    pub(crate) const fn bytes(entries_max: usize) -> usize {
        entries_max * size_of::<(u64, T)>() + Index::bytes(entries_max)
    }

    /// Keys in it.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// `true` if there is no place for another key.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.index.entries_max()
    }

    /// Keys' hashes and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(u64, T)> {
        self.entries.iter()
    }

    /// The value of a key.
    pub(crate) fn get(&self, hash: u64) -> Option<&T> {
        self.find(hash).map(|at| &self.entries[at].1)
    }

    /// The mutable value of a key.
    pub(crate) fn get_mut(&mut self, hash: u64) -> Option<&mut T> {
        self.find(hash).map(|at| &mut self.entries[at].1)
    }

    /// The value of a key; for an absent key, `value` from now on.
    ///
    /// # Panics
    ///
    /// When the table is full.
    pub(crate) fn get_or_insert(&mut self, hash: u64, value: T) -> &mut T {
        let at = self.find(hash).unwrap_or_else(|| {
            let at = self.entries.len();
            self.index.insert(hash, at);
            self.entries.push((hash, value));
            at
        });
        &mut self.entries[at].1
    }

    /// Removes a key; returns its value.
    pub(crate) fn remove(&mut self, hash: u64) -> Option<T> {
        let (at, last) = (self.find(hash)?, self.entries.len() - 1);
        self.index.remove(hash, at);
        if at < last {
            let moved = self.entries[last].0;
            self.index.remove(moved, last);
            self.index.insert(moved, at);
        }
        Some(self.entries.swap_remove(at).1)
    }

    /// Removes the keys for which `stays` is `false`.
    pub(crate) fn retain(&mut self, stays: impl FnMut(&(u64, T)) -> bool) {
        self.entries.retain(stays);
        self.rebuild_index();
    }

    /// Lets `change` put the keys in another order, and remove some.
    pub(crate) fn rearrange(&mut self, change: impl FnOnce(&mut Vec<(u64, T)>)) {
        change(&mut self.entries);
        self.rebuild_index();
    }

    fn find(&self, hash: u64) -> Option<usize> {
        self.index.find(hash, |at| self.entries[at].0 == hash)
    }

    fn rebuild_index(&mut self) {
        self.index.clear();
        for (at, (hash, _)) in self.entries.iter().enumerate() {
            self.index.insert(*hash, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_table_agrees_with_a_map() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut table, mut map) = (Table::new(100), BTreeMap::new());
        for round in 0..20_000 {
            let hash = rng.u64(..150);
            match rng.usize(..8) {
                0..4 if !table.is_full() => {
                    let value = *map.entry(hash).or_insert(round);
                    assert_eq!(*table.get_or_insert(hash, round), value);
                }
                4..7 => assert_eq!(table.remove(hash), map.remove(&hash)),
                _ if round % 100 == 0 => {
                    let least = rng.u64(..20);
                    table.retain(|(hash, _)| *hash >= least);
                    map.retain(|hash, _| *hash >= least);
                }
                _ => table.rearrange(|entries| entries.reverse()),
            }
            assert_eq!(table.get(hash), map.get(&hash));
            assert_eq!(table.get_mut(hash), map.get_mut(&hash));
            assert_eq!(table.len(), map.len());
        }
        let mut all: Vec<_> = table.iter().copied().collect();
        all.sort_unstable();
        assert_eq!(all, map.into_iter().collect::<Vec<_>>());
    }
}
