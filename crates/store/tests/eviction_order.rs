//! The coldest items make room, whatever needs the memory: stores of other sizes, buffers, the
//! index, a lower limit. No more is evicted than is needed.
//!
//! One thread and explicit cleaner steps, so every run gives the same numbers.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    dead_code,
    reason = "a test stops where it fails; it uses a part of what is shared"
)]

mod common;

use common::{get, set};
use std::sync::Arc;
use store::{Cleaner, Config, Handle, Store};

struct Bench {
    store: Arc<Store>,
    me: Handle,
    cleaner: Cleaner,
    stores: u64,
    fresh: u32,
    hot: u32,
}

impl Bench {
    /// A full store of small items, whose oldest fifth was then read.
    fn with_hot_items() -> Self {
        let config = Config { memory_bytes: 16 << 20, seed: 1, ..Config::default() };
        let store = Store::new(config).unwrap();
        let (me, cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
        let mut bench = Self { store, me, cleaner, stores: 0, fresh: 0, hot: 25_000 };
        bench.me.begin_turn(1);
        for number in 0..bench.hot {
            bench.put(&hot(number), 64);
        }
        while bench.fresh < 95_000 {
            bench.put_fresh();
        }
        assert_eq!(bench.store.stats().evictions, 0);
        assert_eq!(bench.hot_left(), bench.hot);
        // Until the cleaner has put them in place, as it does in a second.
        (0..200).for_each(|_| bench.clean());
        while bench.store.stats().evictions == 0 {
            bench.put_fresh();
        }
        bench
    }

    fn clean(&mut self) {
        self.me.rest();
        self.cleaner.step(1, 2000);
        self.me.begin_turn(1);
    }

    fn put(&mut self, key: &[u8], value_len: usize) {
        set(&self.me, key, &vec![b'v'; value_len], 0, 0).unwrap();
        self.stores += 1;
        if self.stores.is_multiple_of(256) {
            self.clean();
        }
    }

    fn put_fresh(&mut self) {
        self.fresh += 1;
        self.put(format!("fresh-{:08}", self.fresh).as_bytes(), 64);
    }

    /// Reads the hot items. Returns the number found.
    fn hot_left(&mut self) -> u32 {
        let found = (0..self.hot).filter(|&number| get(&self.me, &hot(number)).is_some());
        u32::try_from(found.count()).unwrap()
    }

    /// Asserts that as many hot items are left as an LRU keeps, which is all.
    fn assert_hot(&mut self, after: &str) {
        let evicted = self.store.stats().evictions;
        let left = f64::from(self.hot_left()) / f64::from(self.hot);
        eprintln!("{after}: {evicted} evicted, {left:.3} of the hot items left");
        assert!(left > 0.98, "{after}: {left:.3}");
    }

    /// Number of items that these bytes held.
    fn items_in(&self, bytes: u64) -> u64 {
        bytes * self.store.stats().items / self.store.memory().arena
    }
}

fn hot(number: u32) -> Vec<u8> {
    format!("hot-{number:010}").into_bytes()
}

#[test]
fn buffers_evict_the_coldest_items() {
    let mut bench = Bench::with_hot_items();
    let before = bench.store.stats();
    // A quarter of the memory, in many steps.
    for _ in 0..64 {
        bench.store.charge_buffers(64 << 10);
        (0..20).for_each(|_| bench.clean());
    }
    bench.assert_hot("4 MB of buffers");
    let evicted = bench.store.stats().evictions - before.evictions;
    let needed = bench.items_in(4 << 20);
    assert!(evicted < needed * 110 / 100, "{evicted} evicted where {needed} are enough");
    let memory = bench.store.memory();
    let used = memory.arena + memory.index + memory.bags + memory.buffers + memory.fixed;
    assert!(used <= memory.limit, "{used} of {}", memory.limit);
}

#[test]
fn a_lower_limit_evicts_the_coldest_items() {
    let mut bench = Bench::with_hot_items();
    let before = bench.store.stats();
    bench.store.set_memory_limit(10 << 20).unwrap();
    (0..2000).for_each(|_| bench.clean());
    bench.assert_hot("limit of 10 MB");
    let evicted = bench.store.stats().evictions - before.evictions;
    let needed = bench.items_in(6 << 20);
    assert!(evicted < needed * 110 / 100, "{evicted} evicted where {needed} are enough");
    assert!(bench.store.memory().arena <= 10 << 20);
}

#[test]
fn pages_for_other_sizes_evict_the_coldest_items() {
    let mut bench = Bench::with_hot_items();
    // One item each of forty classes without a page.
    for class in 0..40usize {
        let value_len = 120 + 60 * class + (1 << (class / 4));
        bench.put(format!("size-{class}").as_bytes(), value_len);
    }
    (0..200).for_each(|_| bench.clean());
    bench.assert_hot("40 other sizes");
}

#[test]
fn growth_of_index_and_bags_evicts_the_coldest_items() {
    let mut bench = Bench::with_hot_items();
    // Very small items: the index grows, and blocks of bags with it.
    for number in 0..60_000u32 {
        bench.put(&number.to_le_bytes(), 8);
    }
    bench.assert_hot("60,000 items of another size");
}

#[test]
fn a_class_of_few_items_evicts_few_at_once() {
    let store = Store::new(Config { memory_bytes: 8 << 20, ..Config::default() }).unwrap();
    let me = store.join().unwrap();
    me.begin_turn(1);
    let mut stored = 0_u64;
    while store.stats().evictions == 0 {
        me.quiesce();
        set(&me, format!("key-{stored}").as_bytes(), &[b'v'; 5000], 0, 0).unwrap();
        stored += 1;
    }
    let evicted = store.stats().evictions;
    assert!(evicted <= stored / 128, "{evicted} of {stored} for one store");
}

impl Bench {
    /// A store with some small items, and then large ones until it is full. The small ones were
    /// read, except the first `cold` ones.
    fn with_small_and_large(cold: u32, hot: u32) -> Self {
        let config = Config { memory_bytes: 16 << 20, seed: 1, ..Config::default() };
        let store = Store::new(config).unwrap();
        let (me, cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
        let mut bench = Self { store, me, cleaner, stores: 0, fresh: 0, hot };
        bench.me.begin_turn(1);
        for number in 0..cold {
            bench.put(format!("cold-{number:09}").as_bytes(), 40);
        }
        for number in 0..bench.hot {
            bench.put(&self::hot(number), 40);
        }
        bench.put_large(2000, 4 << 20);
        while bench.store.stats().evictions == 0 {
            bench.put_large(2000, 64 << 10);
        }
        (0..3).for_each(|_| assert_eq!(bench.hot_left(), hot));
        (0..200).for_each(|_| bench.clean());
        bench
    }

    /// Stores new values of this size, with this total number of bytes.
    fn put_large(&mut self, value_len: usize, bytes: usize) {
        for _ in 0..bytes / value_len {
            self.fresh += 1;
            self.put(format!("large-{:08}", self.fresh).as_bytes(), value_len);
        }
    }
}

#[test]
fn a_class_gives_no_page_for_a_few_cold_items() {
    // Two pages, of which a fifth is free.
    let mut bench = Bench::with_small_and_large(150, 1150);
    for value_len in [600, 900, 1300, 3000, 5000, 7000] {
        bench.put_large(value_len, 1 << 20);
    }
    bench.assert_hot("other large values");
}

#[test]
fn stores_take_pages_of_much_older_items_if_the_cleaner_lags() {
    let mut bench = Bench::with_small_and_large(0, 1150);
    for number in 0..100_000 {
        set(&bench.me, format!("next-{number:09}").as_bytes(), &[b'v'; 40], 0, 0).unwrap();
        if number % 4096 == 0 {
            bench.clean();
        }
    }
    assert!(bench.store.stats().direct_reclaims < 1000, "{:?}", bench.store.stats());
    bench.assert_hot("small values");
}
