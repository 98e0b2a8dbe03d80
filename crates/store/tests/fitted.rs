//! Chunk sizes that follow the sizes of arriving items.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::sync::Arc;
use store::{ClassStats, Cleaner, Config, Handle, Store};

/// Items between two steps of the cleaner.
const PER_STEP: u64 = 64;

/// A store, its cleaner, and the number of the next key.
struct Bench {
    store: Arc<Store>,
    me: Handle,
    cleaner: Cleaner,
    next: u64,
}

fn config() -> Config {
    Config { memory_bytes: 16 << 20, seed: 3, ..Config::default() }
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:012}").into_bytes()
}

/// A value that identifies its key.
fn value(number: u64, len: usize) -> Vec<u8> {
    number.to_le_bytes().iter().copied().cycle().take(len).collect()
}

impl Bench {
    fn over(store: Arc<Store>) -> Self {
        let (me, cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
        Self { store, me, cleaner, next: 0 }
    }

    fn new() -> Self {
        Self::over(Store::new(config()).unwrap())
    }

    /// Stores `count` more items with values of this length.
    fn store_items(&mut self, count: u64, len: usize) {
        for _ in 0..count {
            self.me.begin_turn(2);
            common::set(&self.me, &key(self.next), &value(self.next, len), 0, 0).unwrap();
            self.next += 1;
            if self.next.is_multiple_of(PER_STEP) {
                self.me.rest();
                let _ = self.cleaner.step(2, 1000);
            }
        }
    }

    fn classes(&self) -> Vec<ClassStats> {
        self.store.class_stats(2)
    }

    /// Checks that every existing item is whole. Returns their number.
    fn probe(&self, len: usize) -> u64 {
        let items = (0..self.next).filter(|&number| {
            self.me.begin_turn(2);
            let found = common::get(&self.me, &key(number));
            assert!(found.as_ref().is_none_or(|found| *found == value(number, len)));
            found.is_some()
        });
        items.count() as u64
    }
}

/// Header, key and value of the items above.
fn bytes(value_len: usize) -> u64 {
    store::item_bytes(16, 0, value_len) as u64
}

/// Bytes of a page of a store as small as these.
const PAGE_BYTES: u64 = 32 << 10;

/// The widest chunk size of which a page holds as many chunks as of these bytes.
fn best_chunk(bytes: u64) -> u64 {
    let per_page = PAGE_BYTES / bytes.next_multiple_of(8);
    PAGE_BYTES / per_page / 8 * 8
}

/// A length of values of which a regular class wastes more than a twentieth. Its items have no cas
/// unique, since it is odd.
fn wasteful_len() -> usize {
    let is_wasteful = |len: &usize| {
        let mut bench = Bench::new();
        bench.store_items(1, *len);
        u64::from(bench.classes()[0].chunk_bytes) * 19 > best_chunk(bytes(*len)) * 20
    };
    (301..700).step_by(2).find(is_wasteful).unwrap()
}

#[test]
fn items_of_one_size_fill_memory() {
    let len = wasteful_len();
    let mut bench = Bench::new();
    bench.store_items(40_000, len);
    let largest = bench.classes().into_iter().max_by_key(|class| class.items).unwrap();
    assert_eq!(u64::from(largest.chunk_bytes), best_chunk(bytes(len)), "{largest:?}");
    let items = bench.probe(len);
    assert_eq!(items, bench.store.stats().items);
    // Index and bags have some 16 bytes per item; less than a page of each class is idle.
    let most = (config().memory_bytes - (1 << 20)) / (best_chunk(bytes(len)) + 16);
    assert!(items > most * 97 / 100, "{items} items of {most}");
}

#[test]
fn fitted_classes_require_eviction() {
    let len = wasteful_len();
    let mut bench = Bench::over(Store::new(Config { evict: false, ..config() }).unwrap());
    bench.store_items(8_000, len);
    let classes = bench.classes().len();
    assert_eq!(classes, 1, "chunks that are freed serve the next item of the size");
}

/// More sizes come and go than there can be fitted classes at one time.
#[test]
fn classes_follow_changing_sizes() {
    let coarse = Config { growth_factor: 1.5, ..config() };
    let mut bench = Bench::over(Store::new(coarse).unwrap());
    for len in (0..40).map(|round| 201 + round * 36) {
        bench.store_items(2 * config().memory_bytes / bytes(len), len);
        let largest = bench.classes().into_iter().max_by_key(|class| class.items).unwrap();
        let saving = u64::from(largest.chunk_bytes) - best_chunk(bytes(len));
        assert!(saving * 32 <= u64::from(largest.chunk_bytes), "values of {len}: {largest:?}");
        let items = bench.store.stats().items;
        assert!(items * bytes(len) > config().memory_bytes * 8 / 10, "{items} of {len}");
    }
}

#[cfg(not(miri))]
mod after_a_restart {
    use super::*;
    use common::TempFile;
    use store::{MemoryFile, Opened};

    fn open(path: &TempFile) -> (Bench, Opened) {
        let file = MemoryFile::open(path.path(), &config()).unwrap();
        let (store, opened) = Store::open(&config(), file, common::at(2)).unwrap();
        (Bench::over(store), opened)
    }

    fn fitted_items_are_there(end: impl Fn(Arc<Store>)) {
        let len = wasteful_len();
        let path = TempFile::new();
        let (mut bench, _) = open(&path);
        bench.store_items(40_000, len);
        let (there, next) = (bench.probe(len), bench.next);
        let classes = bench.classes();
        let Bench { store, me, cleaner, .. } = bench;
        drop((me, cleaner));
        end(store);
        let (mut bench, opened) = open(&path);
        assert!(!matches!(opened, Opened::Cold(_)), "{opened:?}");
        bench.next = next;
        assert_eq!(bench.probe(len), there);
        let sizes =
            |of: &[ClassStats]| of.iter().map(|class| class.chunk_bytes).collect::<Vec<_>>();
        assert_eq!(sizes(&bench.classes()), sizes(&classes));
        bench.store_items(20_000, len);
        bench.probe(len);
    }

    #[test]
    fn fitted_items_survive_a_clean_end() {
        fitted_items_are_there(|store| store.close(common::at(2), 0).unwrap());
    }

    #[test]
    fn fitted_items_survive_a_crash() {
        fitted_items_are_there(drop);
    }
}
