//! The largest items of a server, and the prefixes that use most memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::connection::Error;
use crate::keys::Entry;

/// Maximum number of separate prefixes; later ones are counted together.
const PREFIXES_MAX: usize = 10_000;

/// A server's items, by size.
#[derive(Debug, Default)]
pub struct BigKeys {
    /// The largest items, largest first.
    pub largest: Vec<(u64, Vec<u8>)>,
    /// Prefixes with items and bytes, largest first.
    pub prefixes: Vec<(Vec<u8>, u64, u64)>,
    /// All items.
    pub items: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Reads all entries; keeps `most` items and prefixes. A prefix ends with the first `separator`.
///
/// # Errors
///
/// Returns the first error among the entries.
pub fn big_keys(
    entries: impl Iterator<Item = Result<Entry, Error>>,
    most: usize,
    separator: u8,
) -> Result<BigKeys, Error> {
    let mut found = BigKeys::default();
    let mut largest = BinaryHeap::new();
    let mut prefixes: BTreeMap<Vec<u8>, (u64, u64)> = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        found.items += 1;
        found.bytes += entry.size;
        let end = entry.key.iter().position(|byte| *byte == separator);
        let prefix = end.map_or(&[][..], |end| &entry.key[..=end]);
        let is_kept = prefixes.len() < PREFIXES_MAX || prefixes.contains_key(prefix);
        let counts =
            prefixes.entry(if is_kept { prefix.to_vec() } else { Vec::new() }).or_default();
        *counts = (counts.0 + 1, counts.1 + entry.size);
        largest.push(Reverse((entry.size, entry.key)));
        if largest.len() > most {
            largest.pop();
        }
    }
    found.largest = largest.into_sorted_vec().into_iter().map(|Reverse(item)| item).collect();
    found.prefixes =
        prefixes.into_iter().map(|(prefix, (items, bytes))| (prefix, items, bytes)).collect();
    found.prefixes.sort_by_key(|(_, _, bytes)| Reverse(*bytes));
    found.prefixes.truncate(most);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_keys_come_first_and_prefixes_are_summed() {
        let entries = (1..=100_u64).map(|size| {
            let kind = if size % 2 == 0 { "even" } else { "odd" };
            Ok(Entry { key: format!("{kind}:{size}").into_bytes(), expires: None, size })
        });
        let found = big_keys(entries, 3, b':').unwrap_or_else(|error| panic!("{error}"));
        let sizes: Vec<u64> = found.largest.iter().map(|(size, _)| *size).collect();
        assert_eq!(sizes, [100, 99, 98]);
        assert_eq!((found.items, found.bytes), (100, 5050));
        assert_eq!(found.prefixes, [(b"even:".to_vec(), 50, 2550), (b"odd:".to_vec(), 50, 2500)]);
    }

    #[test]
    fn unlimited_prefixes_use_bounded_memory() {
        let entries = (0..30_000_u64).map(|number| {
            Ok(Entry { key: format!("{number}:x").into_bytes(), expires: None, size: 1 })
        });
        let found = big_keys(entries, 1, b':').unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(found.prefixes, [(Vec::new(), 20_000, 20_000)]);
    }
}
