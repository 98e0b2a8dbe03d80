//! Recency does not wrap: items just read outlive items not read, however many bags were opened
//! before, in any class.
//!
//! One thread and explicit cleaner steps, so every run gives the same numbers.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    dead_code,
    reason = "a test stops where it fails; it uses a part of what is shared"
)]

mod common;

use common::set;
use std::sync::Arc;
use store::{Cleaner, Config, Handle, Policy, Store};

/// Bags opened in all, over the tests of this file.
const OPENINGS: u64 = 1_000_000;

/// Parts of a test's openings after which the hot items are read and others are evicted. Each is a
/// number of openings that 16 bits cannot represent unchanged.
const PARTS: [u64; 6] = [1_000, 42_000, 65_536, 40_000, 33_000, 68_464];

/// The classes in which bags are opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Churn {
    /// The class of the hot items.
    Own,
    /// Many others.
    Others,
    Both,
}

struct Bench {
    store: Arc<Store>,
    me: Handle,
    cleaner: Cleaner,
    churn: Churn,
    /// Bytes of a hot item's value.
    value_len: usize,
    stores: u64,
    fresh: u32,
}

impl Bench {
    fn new(megabytes: u64, churn: Churn, value_len: usize) -> Self {
        let config = Config {
            memory_bytes: megabytes << 20,
            item_bytes_max: 256 << 10,
            seed: 1,
            ..Config::default()
        };
        let store = Store::new(config).unwrap();
        let (me, cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
        Self { store, me, cleaner, churn, value_len, stores: 0, fresh: 0 }
    }

    fn put(&mut self, key: &[u8], value_len: usize) {
        self.me.begin_turn(1);
        set(&self.me, key, &vec![b'v'; value_len], 0, 0).unwrap();
        self.stores += 1;
        if self.stores.is_multiple_of(64) {
            self.me.rest();
            self.cleaner.step(1, 500);
        }
    }

    fn put_fresh(&mut self) {
        self.fresh += 1;
        self.put(format!("fresh-{:08}", self.fresh).as_bytes(), self.value_len);
    }

    /// Fills the memory with items of the hot ones' class.
    fn fill(&mut self) {
        while self.store.stats().evictions == 0 {
            self.put_fresh();
        }
    }

    /// Deletes a key and stores it again, in the newest bag.
    fn put_anew(&mut self, key: &[u8], value_len: usize) {
        common::delete(&self.me, key);
        self.put(key, value_len);
    }

    /// Stores single keys again and again until this number of bags was opened.
    fn open_bags(&mut self, openings: u64) {
        let goal = self.store.stats().bags_opened + openings;
        while self.store.stats().bags_opened < goal {
            for number in 0..8 {
                if self.churn != Churn::Own {
                    // Sizes of eight classes, other than that of the hot items.
                    let len = 200 + 100 * number;
                    self.put_anew(format!("churn-{number:02}").as_bytes(), len);
                }
                if self.churn != Churn::Others {
                    self.put_anew(b"churn-own-size", self.value_len);
                }
            }
        }
    }

    /// Reads the hot items three times. Returns the number found.
    fn read_hot(&mut self, hot: u32) -> u32 {
        self.me.begin_turn(1);
        let key = |number: u32| format!("hot-{number:06}").into_bytes();
        for _ in 0..2 {
            (0..hot).for_each(|number| _ = common::get(&self.me, &key(number)));
        }
        let found = (0..hot).filter(|&number| common::get(&self.me, &key(number)).is_some());
        u32::try_from(found.count()).unwrap()
    }

    /// Runs the parts. Returns the smallest share of the read hot items that was left after an
    /// eviction of half as many items as the store holds.
    fn run(&mut self, name: &str) -> f64 {
        self.fill();
        let items = self.store.stats().items;
        let hot = u32::try_from(items / 5).unwrap();
        let mut least = 1.0f64;
        for part in PARTS.map(|part| part * (OPENINGS / 4) / PARTS.iter().sum::<u64>()) {
            for number in 0..hot {
                self.put(format!("hot-{number:06}").as_bytes(), self.value_len);
            }
            // So that their bags have closed.
            (0..items / 4).for_each(|_| self.put_fresh());
            self.open_bags(part);
            let read = self.read_hot(hot);
            let goal = self.store.stats().evictions + items / 2;
            while self.store.stats().evictions < goal {
                self.put_fresh();
            }
            assert!(read > 0, "nothing was there to be read");
            let left = f64::from(self.read_hot(hot)) / f64::from(read);
            eprintln!("{name}: {part} openings, {read} of {hot} read, {left:.3} left");
            least = least.min(left);
        }
        let stats = self.store.stats();
        eprintln!("{name}: {items} items, {} bags opened", stats.bags_opened);
        assert!(stats.bags_opened >= OPENINGS / 4);
        least
    }
}

#[test]
fn openings_in_other_classes_cost_no_recency() {
    let left = Bench::new(8, Churn::Others, 64).run("others");
    assert!(left > 0.98, "{left:.3}");
}

#[test]
fn openings_in_other_classes_cost_large_items_no_recency() {
    let left = Bench::new(4, Churn::Others, 4000).run("others, large");
    assert!(left > 0.98, "{left:.3}");
}

#[test]
fn openings_in_the_same_class_cost_no_recency() {
    let left = Bench::new(2, Churn::Own, 8000).run("own");
    assert!(left > 0.98, "{left:.3}");
}

#[test]
fn openings_everywhere_cost_no_recency() {
    let left = Bench::new(4, Churn::Both, 8000).run("both");
    assert!(left > 0.98, "{left:.3}");
}

/// Heads of chained values are so small that a page holds those of hundreds. When it is full, the
/// next one gets a page of the items that were unused longest.
#[test]
fn a_full_page_of_heads_evicts_no_recently_read_value() {
    let config = Config {
        memory_bytes: 64 << 20,
        item_bytes_max: 256 << 10,
        policy: Policy::Bag,
        seed: 1,
        ..Config::default()
    };
    let store = Store::new(config).unwrap();
    let (me, cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
    let (churn, value_len) = (Churn::Own, 2000);
    let mut bench = Bench { store, me, cleaner, churn, value_len, stores: 0, fresh: 0 };
    for number in 0..200 {
        bench.put(format!("hot-{number:06}").as_bytes(), 40_000);
        bench.cleaner.step(1, 500);
    }
    bench.fill();
    assert_eq!(bench.read_hot(200), 200);
    for number in 0..200 {
        bench.put(format!("next-{number:06}").as_bytes(), 40_000);
        bench.me.rest();
        bench.cleaner.step(1, 500);
    }
    let left = bench.read_hot(200);
    assert!(left >= 196, "{left} of 200");
}
