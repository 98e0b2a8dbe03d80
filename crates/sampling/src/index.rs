//! Finds the entries of a table by their hashes: chains of 16-bit numbers.
//!
//! The caller owns the entries and their hashes. The index takes four bytes per entry, and keeps
//! that size after any removals; a general hash table may double itself because of removed entries.

use narrow::{low_u32, to_u16};

/// No entry.
const NONE: u16 = u16::MAX;

/// Numbers of entries, by hash.
#[derive(Debug)]
pub(crate) struct Index {
    /// The first entry of each chain; a power of two of them.
    heads: Box<[u16]>,
    /// The entry behind each one.
    next: Box<[u16]>,
}

impl Index {
    /// For entries with numbers below `entries_max`.
    ///
    /// # Panics
    ///
    /// When these are more than 65,535.
    pub(crate) fn new(entries_max: usize) -> Self {
        assert!(entries_max <= usize::from(NONE), "{entries_max} entries have no numbers");
        let none = |length| vec![NONE; length].into_boxed_slice();
        Self { heads: none(chains(entries_max)), next: none(entries_max) }
    }

    /// Memory, in bytes.
    pub(crate) const fn bytes(entries_max: usize) -> usize {
        (chains(entries_max) + entries_max) * size_of::<u16>()
    }

    /// Entries have numbers below this one.
    pub(crate) fn entries_max(&self) -> usize {
        self.next.len()
    }

    /// The entry with this hash for which `is_it` holds.
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let mut at = self.heads[self.chain(hash)];
        while at != NONE && !is_it(usize::from(at)) {
            at = self.next[usize::from(at)];
        }
        (at != NONE).then_some(usize::from(at))
    }

    /// Adds an entry that is not there.
    pub(crate) fn insert(&mut self, hash: u64, entry: usize) {
        let chain = self.chain(hash);
        self.next[entry] = std::mem::replace(&mut self.heads[chain], to_u16(entry));
    }

    /// Removes an entry that is there.
    pub(crate) fn remove(&mut self, hash: u64, entry: usize) {
        let (chain, behind) = (self.chain(hash), self.next[entry]);
        let mut before = usize::from(self.heads[chain]);
        if before == entry {
            self.heads[chain] = behind;
            return;
        }
        while usize::from(self.next[before]) != entry {
            before = usize::from(self.next[before]);
        }
        self.next[before] = behind;
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.heads.fill(NONE);
    }

    /// By the low bits: sampled hashes are small numbers.
    fn chain(&self, hash: u64) -> usize {
        low_u32(hash) as usize & (self.heads.len() - 1)
    }
}

const fn chains(entries_max: usize) -> usize {
    entries_max.next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_present_entries_are_found() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut index = Index::new(100);
        let mut entries: Vec<Option<u64>> = vec![None; 100];
        for _ in 0..10_000 {
            let entry = rng.usize(..entries.len());
            // Few enough that some are the same, and of one chain.
            let hash = rng.u64(..300);
            let is_it = |at: usize| entries[at] == Some(hash);
            let found = index.find(hash, is_it);
            assert_eq!(found.is_some(), entries.contains(&Some(hash)));
            assert!(found.is_none_or(is_it));
            match entries[entry].take() {
                Some(before) => index.remove(before, entry),
                None => {
                    index.insert(hash, entry);
                    entries[entry] = Some(hash);
                }
            }
        }
        index.clear();
        assert_eq!(index.find(1, |_| true), None);
    }
}
