//! Namespaces: the keys that start with one prefix, counted and limited together.
//!
//! ```text
//!     Namespaces: prefix -> number, bytes allowed      an operator's table, replaced as a whole
//!     Gauges:     stripe -> the table it is counted by
//!                 thread -> number -> items, bytes, ...
//! ```
//!
//! An item is counted under the namespace that the table of its stripe names, by the thread that
//! links or unlinks it under the stripe's lock. A new table is given to each stripe in turn, under
//! its lock, and the stripe's items are counted again there. So an item is counted once at every
//! moment, and counted down where it was counted up.
//!
//! Until a table is set there are no gauges, and a change of an item costs one more load.
//!
//! Relaxed is enough for the gauges: only its thread writes a row, and it guards nothing. A sum may
//! miss what another thread is counting at that moment.

use arena::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crossbeam_utils::CachePadded;
use narrow::to_u16;
use std::sync::{Arc, OnceLock};

/// Numbers that namespaces may have.
pub const NAMESPACES_MAX: usize = 1024;

/// The keys that start with one prefix, unless a longer prefix has its own namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The start of its keys; empty for every key.
    pub prefix: Box<[u8]>,
    /// The number under which it is counted, below [`NAMESPACES_MAX`]; always the same for one
    /// prefix.
    pub number: u16,
    /// Maximum total bytes of its items: header, key and value. `None`: no limit.
    pub bytes_max: Option<u64>,
}

/// The namespaces of a store, by their prefixes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// In the order of their prefixes.
    sorted: Vec<Namespace>,
    /// For each, the index of the namespace with the longest shorter prefix of its keys.
    parents: Vec<Option<usize>>,
}

impl Namespaces {
    /// The table of these namespaces, whose prefixes differ.
    ///
    /// # Panics
    ///
    /// If a number is not below [`NAMESPACES_MAX`].
    #[must_use]
    pub fn new(mut namespaces: Vec<Namespace>) -> Self {
        assert!(namespaces.iter().all(|one| usize::from(one.number) < NAMESPACES_MAX));
        namespaces.sort_unstable_by(|one, other| one.prefix.cmp(&other.prefix));
        let mut table = Self { parents: Vec::with_capacity(namespaces.len()), sorted: namespaces };
        for place in 0..table.sorted.len() {
            let before = place.checked_sub(1);
            let parent = before.and_then(|at| table.covering(at, &table.sorted[place].prefix));
            table.parents.push(parent);
        }
        table
    }

    /// The namespace of `key`: that of its longest prefix.
    #[must_use]
    pub fn of(&self, key: &[u8]) -> Option<&Namespace> {
        let behind = self.sorted.partition_point(|one| *one.prefix <= *key);
        self.covering(behind.checked_sub(1)?, key).map(|place| &self.sorted[place])
    }

    /// The first of this place, its parent, and so on, whose prefix `key` starts with.
    fn covering(&self, mut place: usize, key: &[u8]) -> Option<usize> {
        while !key.starts_with(&self.sorted[place].prefix) {
            place = self.parents[place]?;
        }
        Some(place)
    }

    /// `true` if every key has the same number in both tables.
    fn counts_as(&self, other: &Self) -> bool {
        self.sorted.len() == other.sorted.len()
            && self
                .sorted
                .iter()
                .zip(&other.sorted)
                .all(|(one, other)| one.number == other.number && one.prefix == other.prefix)
    }
}

/// Numbers of one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceStats {
    /// Linked items, without the deleted ones.
    pub items: u64,
    /// Header, key and value of these, in bytes.
    pub bytes: u64,
    /// Items evicted, since the last reset.
    pub evicted: u64,
    /// Values refused because of `bytes_max`, since the last reset.
    pub refused: u64,
}

/// One thread's part of a namespace's numbers.
#[derive(Debug, Default)]
pub(crate) struct Row {
    items: AtomicU64,
    bytes: AtomicU64,
    evicted: AtomicU64,
    refused: AtomicU64,
}

impl Row {
    /// Counts items linked, or unlinked.
    pub(crate) fn add_items(&self, items: i64, bytes: i64) {
        add(&self.items, items);
        add(&self.bytes, bytes);
    }

    /// Counts an eviction.
    pub(crate) fn add_evicted(&self) {
        add(&self.evicted, 1);
    }
}

fn add(cell: &AtomicU64, by: i64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add_signed(by), Ordering::Relaxed);
}

/// The numbers of all namespaces, and the tables by which items are counted.
#[derive(Debug)]
pub(crate) struct Gauges {
    by_stripe: Box<[Mutex<Arc<Namespaces>>]>,
    threads: Box<[CachePadded<Box<[Row]>>]>,
    /// Held while a new table is passed to the stripes.
    changing: Mutex<()>,
    /// Evictions and refusals by number at the last reset; empty before.
    at_reset: Mutex<Vec<[u64; 2]>>,
}

impl Gauges {
    /// Bytes of gauges for this number of threads.
    fn bytes(threads: usize) -> u64 {
        (threads * NAMESPACES_MAX * size_of::<Row>()) as u64
    }

    fn new(threads: usize, stripes: usize) -> Self {
        let row = || CachePadded::new((0..NAMESPACES_MAX).map(|_| Row::default()).collect());
        let none = Arc::new(Namespaces::default());
        Self {
            by_stripe: (0..stripes).map(|_| Mutex::new(Arc::clone(&none))).collect(),
            threads: (0..threads).map(|_| row()).collect(),
            changing: Mutex::new(()),
            at_reset: Mutex::new(Vec::new()),
        }
    }

    /// Lets `count` change the thread's numbers of the namespace of `key`, if it has one. The
    /// thread holds the key's stripe.
    pub(crate) fn row(&self, thread: usize, stripe: usize, key: &[u8], count: impl FnOnce(&Row)) {
        let namespaces = self.by_stripe[stripe].lock();
        if let Some(namespace) = namespaces.of(key) {
            count(&self.threads[thread][usize::from(namespace.number)]);
        }
    }

    /// `true` if an item of `key` with these `bytes` may be linked in place of one that has
    /// `replaced` bytes; a refusal is counted. The thread holds the key's stripe.
    ///
    /// A value that is not larger than the one that it replaces is never refused.
    pub(crate) fn admits(
        &self,
        thread: usize,
        stripe: usize,
        key: &[u8],
        bytes: u64,
        replaced: u64,
    ) -> bool {
        let namespaces = self.by_stripe[stripe].lock();
        let Some(namespace) = namespaces.of(key) else { return true };
        let Some(most) = namespace.bytes_max else { return true };
        let Some(more) = bytes.checked_sub(replaced).filter(|more| *more > 0) else { return true };
        let used = self.sum(namespace.number, |row| &row.bytes);
        let is_admitted = used.saturating_add(more) <= most;
        if !is_admitted {
            add(&self.threads[thread][usize::from(namespace.number)].refused, 1);
        }
        is_admitted
    }

    /// The sum over all threads. A sum that is below zero for a moment, because an item's unlinking
    /// is seen before its linking, is 0.
    fn sum(&self, number: u16, field: impl Fn(&Row) -> &AtomicU64) -> u64 {
        let cells = self.threads.iter().map(|rows| field(&rows[usize::from(number)]));
        let sum = cells.fold(0u64, |sum, cell| sum.wrapping_add(cell.load(Ordering::Relaxed)));
        sum.cast_signed().max(0).cast_unsigned()
    }

    /// Evictions and refusals since the start.
    fn events(&self, number: u16) -> [u64; 2] {
        [self.sum(number, |row| &row.evicted), self.sum(number, |row| &row.refused)]
    }

    /// Held by a thread that gives a new table to the stripes.
    pub(crate) fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// Gives `table` to a stripe whose lock the thread holds. `visit` calls its argument with key
    /// and bytes of each counted item there; it is not called if the counts stay the same.
    pub(crate) fn change(
        &self,
        thread: usize,
        stripe: usize,
        table: &Arc<Namespaces>,
        visit: impl FnOnce(&mut dyn FnMut(&[u8], u64)),
    ) {
        let mut present = self.by_stripe[stripe].lock();
        if !present.counts_as(table) {
            let rows = &self.threads[thread];
            visit(&mut |key, bytes| {
                let [from, to] = [&present, table].map(|table| table.of(key).map(|one| one.number));
                if from == to {
                    return;
                }
                // An item has at most 1 GiB, so its size fits.
                let bytes = bytes.cast_signed();
                for (number, sign) in [(from, -1), (to, 1)] {
                    if let Some(number) = number {
                        rows[usize::from(number)].add_items(sign, sign * bytes);
                    }
                }
            });
        }
        *present = Arc::clone(table);
    }
}

/// The gauges of a store, once it has namespaces.
#[derive(Debug, Default)]
pub(crate) struct Counted(OnceLock<Gauges>);

impl Counted {
    /// The gauges, if there are any.
    #[inline]
    pub(crate) fn gauges(&self) -> Option<&Gauges> {
        self.0.get()
    }

    /// The gauges, made at the first use for this many threads and stripes. `charge` receives
    /// the bytes of new ones.
    pub(crate) fn make(&self, threads: usize, stripes: usize, charge: impl FnOnce(u64)) -> &Gauges {
        self.0.get_or_init(|| {
            charge(Gauges::bytes(threads));
            Gauges::new(threads, stripes)
        })
    }

    /// The numbers of one namespace.
    pub(crate) fn stats(&self, number: u16) -> NamespaceStats {
        let Some(gauges) = self.gauges() else { return NamespaceStats::default() };
        let [evicted, refused] = gauges.events(number);
        let at_reset = gauges.at_reset.lock().get(usize::from(number)).copied();
        let [evicted_then, refused_then] = at_reset.unwrap_or_default();
        NamespaceStats {
            items: gauges.sum(number, |row| &row.items),
            bytes: gauges.sum(number, |row| &row.bytes),
            evicted: evicted.saturating_sub(evicted_then),
            refused: refused.saturating_sub(refused_then),
        }
    }

    /// Sets evictions and refusals back to zero for readers.
    pub(crate) fn reset(&self) {
        if let Some(gauges) = self.gauges() {
            let numbers = 0..to_u16(NAMESPACES_MAX);
            *gauges.at_reset.lock() = numbers.map(|number| gauges.events(number)).collect();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn table(prefixes: &[&str]) -> Namespaces {
        let numbered = (0..).zip(prefixes).map(|(number, prefix)| Namespace {
            prefix: prefix.as_bytes().into(),
            number,
            bytes_max: None,
        });
        Namespaces::new(numbered.collect())
    }

    #[test]
    fn the_longest_prefix_wins() {
        let all = ["a:", "a:b:", "a:b:c", "b", "", "a:a", "ba"];
        let named = |table: &Namespaces, key: &str| {
            table.of(key.as_bytes()).map(|one| all[usize::from(one.number)])
        };
        let table = table(&all);
        for (key, want) in [
            ("a:", "a:"),
            ("a:b", "a:"),
            ("a:b:", "a:b:"),
            ("a:b:b", "a:b:"),
            ("a:b:cd", "a:b:c"),
            ("a:b:d", "a:b:"),
            ("a:c", "a:"),
            ("a:az", "a:a"),
            ("bb", "b"),
            ("bab", "ba"),
            ("a", ""),
            ("c", ""),
        ] {
            assert_eq!(named(&table, key), Some(want), "{key}");
        }
    }

    #[test]
    fn a_key_without_a_prefix_has_no_namespace() {
        assert_eq!(table(&[]).of(b"k"), None);
        let table = table(&["b:", "d:"]);
        for key in ["a", "b", "b9", "c", "d", "e", "zz"] {
            assert_eq!(table.of(key.as_bytes()), None, "{key}");
        }
    }
}
