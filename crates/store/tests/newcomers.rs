//! Newcomers: items that were never read leave before items that were read, however recently they
//! were stored.
//!
//! One thread and explicit cleaner steps, so every run gives the same numbers.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test stops where it fails; it uses a part of what is shared"
)]

mod common;

use common::{TempFile, end, get, open, set};
use std::ops::Range;
use std::sync::Arc;
use store::{Cleaner, Config, EvictionSetting, Handle, Opened, Policy, Store};

/// Items of a sixth of the memory.
const SOME: Range<u32> = 0..8_000;
/// Items of twice the memory.
const MANY: Range<u32> = 1_000_000..1_100_000;

struct World {
    store: Arc<Store>,
    me: Handle,
    cleaner: Cleaner,
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:08}").into_bytes()
}

impl World {
    fn new(policy: Policy) -> Self {
        let config = Config { memory_bytes: 16 << 20, seed: 1, policy, ..Config::default() };
        Self::of(Store::new(config).unwrap())
    }

    fn of(store: Arc<Store>) -> Self {
        store.set_eviction(EvictionSetting { newcomer_factor: 8, weighs_size: false });
        let (me, cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
        me.begin_turn(1);
        Self { store, me, cleaner }
    }

    fn put(&mut self, numbers: Range<u32>) {
        for number in numbers {
            set(&self.me, &key(number), &[7; 256], 0, 0).unwrap();
            if number % 100 == 0 {
                self.me.rest();
                self.cleaner.step(1, 2000);
                self.me.begin_turn(1);
            }
        }
    }

    fn found(&self, numbers: Range<u32>) -> usize {
        numbers.filter(|&number| get(&self.me, &key(number)).is_some()).count()
    }
}

/// 8,000 items that were read once before twice the memory is stored.
fn left_of_read_items(policy: Policy) -> usize {
    let mut world = World::new(policy);
    world.put(SOME);
    assert_eq!(world.found(SOME), SOME.len());
    world.put(MANY);
    world.found(SOME)
}

#[test]
fn one_read_keeps_an_item_among_unread_newcomers() {
    assert_eq!(left_of_read_items(Policy::Auto), SOME.len());
    assert_eq!(left_of_read_items(Policy::Bag), 0, "an LRU keeps the newest");
}

#[test]
fn a_newcomer_stored_again_is_kept() {
    let mut world = World::new(Policy::Auto);
    world.put(SOME);
    // Others are stored until all of them are evicted.
    let mut next = MANY.start;
    while world.store.stats().evictions < SOME.len() as u64 {
        world.put(next..next + 100);
        next += 100;
    }
    assert!(world.found(SOME) < SOME.len() / 10);
    world.put(SOME);
    world.put(2_000_000..2_000_000 + 50_000);
    let left = world.found(SOME);
    assert!(left > SOME.len() / 2, "{left} of {} that came back", SOME.len());
}

#[test]
fn overwritten_items_do_not_count_as_newcomers() {
    let mut world = World::new(Policy::Auto);
    world.put(SOME);
    world.put(SOME);
    world.put(MANY);
    assert_eq!(world.found(SOME), SOME.len());
}

#[test]
fn a_factor_of_one_evicts_newcomers_and_others_by_age() {
    let mut world = World::new(Policy::Auto);
    world.store.set_eviction(EvictionSetting::LRU);
    world.put(SOME);
    assert_eq!(world.found(SOME), SOME.len());
    world.put(MANY);
    assert_eq!(world.found(SOME), 0);
}

#[test]
fn newcomers_are_still_distinguished_after_a_clean_end() {
    let path = TempFile::new();
    let (store, _) = open(&path, 1);
    let mut world = World::of(store);
    world.put(SOME);
    assert_eq!(world.found(SOME), SOME.len());
    world.put(MANY.start..MANY.start + 40_000);
    let World { store, me, cleaner } = world;
    drop((me, cleaner));
    end(store, 1);
    let (store, opened) = open(&path, 1);
    assert!(matches!(opened, Opened::Warm(_)), "{opened:?}");
    let mut world = World::of(store);
    world.put(2_000_000..2_000_000 + 40_000);
    assert_eq!(world.found(SOME), SOME.len());
}
