//! The memory limit: a store that evicts nothing keeps all acknowledged items, and a change of the
//! limit takes effect or is refused.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test stops where it fails; it uses a part of what is shared"
)]

mod common;

use common::{delete, get, set};
use std::sync::Arc;
use store::{Change, Cleaner, Config, DraftError, Handle, LimitError, NewItem, Policy, Store};

const MIB: u64 = 1 << 20;

fn store_of(megabytes: u64, evict: bool) -> Arc<Store> {
    let memory_bytes = megabytes * MIB;
    Store::new(Config { memory_bytes, evict, seed: 1, ..Config::default() }).unwrap()
}

fn key(number: u32) -> [u8; 12] {
    let mut key = *b"key-00000000";
    key[4..8].copy_from_slice(&number.to_be_bytes());
    key
}

/// Stores values of this size until `most` are stored or one is refused. Returns the number stored.
fn fill(me: &Handle, cleaner: &mut Cleaner, first: u32, most: u32, value_len: usize) -> u32 {
    let value = vec![b'v'; value_len];
    for number in 0..most {
        let name = key(first + number);
        let new = NewItem {
            key: &name,
            flags: 0,
            deadline: 0,
            value_len,
            base64_key: false,
            has_cas: false,
        };
        let mut draft = match me.draft(new) {
            Ok(draft) => draft,
            Err(DraftError::OutOfMemory) => return number,
            Err(other) => panic!("{other:?}"),
        };
        draft.push(&value).unwrap();
        let hash = me.store().hash(&name);
        me.section().update(hash, &name, |_| Change::Put { draft, cas: None });
        if number % 500 == 499 {
            work(me, cleaner, 1);
        }
    }
    most
}

fn work(me: &Handle, cleaner: &mut Cleaner, steps: usize) {
    me.rest();
    (0..steps).for_each(|_| _ = cleaner.step(1, 2000));
    me.begin_turn(1);
}

fn found(me: &Handle, numbers: std::ops::Range<u32>) -> usize {
    numbers.filter(|&number| get(me, &key(number)).is_some()).count()
}

#[test]
fn a_store_without_eviction_keeps_all_acknowledged_items() {
    let store = store_of(16, false);
    let (me, mut cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
    me.begin_turn(1);
    // The index and the bags keep growing.
    let stored = fill(&me, &mut cleaner, 0, u32::MAX / 2, 64);
    assert!(stored > 80_000, "{stored}");
    for _ in 0..20 {
        store.charge_buffers(200 << 10);
        work(&me, &mut cleaner, 50);
        assert_eq!(fill(&me, &mut cleaner, stored + 1, 1, 64), 0, "refused, as nothing is evicted");
    }
    assert_eq!(found(&me, 0..stored), stored as usize, "after buffers");
    store.reassign(-1, 0).unwrap();
    work(&me, &mut cleaner, 500);
    assert_eq!(found(&me, 0..stored), stored as usize, "after a request for a page");
    let refused = store.set_memory_limit(8 * MIB).unwrap_err();
    assert!(matches!(refused, LimitError::InUse { least } if least > 15 * MIB), "{refused:?}");
    work(&me, &mut cleaner, 500);
    assert_eq!(found(&me, 0..stored), stored as usize, "after a limit that was refused");
    assert_eq!(store.memory().limit, 16 * MIB);
    assert_eq!(store.stats().evictions, 0);
}

#[test]
fn a_store_without_eviction_releases_free_memory() {
    let store = store_of(16, false);
    let (me, mut cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
    me.begin_turn(1);
    let stored = fill(&me, &mut cleaner, 0, u32::MAX / 2, 200);
    // All but one in eight are deleted, so every page keeps some.
    for number in (0..stored).filter(|number| number % 8 != 0) {
        assert!(delete(&me, &key(number)));
    }
    work(&me, &mut cleaner, 10);
    let before = store.memory().arena;
    store.charge_buffers(8 << 20);
    work(&me, &mut cleaner, 3000);
    let memory = store.memory();
    assert!(memory.arena + (7 << 20) < before, "{} of {before} bytes left", memory.arena);
    let left = (0..stored).filter(|number| number % 8 == 0);
    assert!(left.clone().all(|number| get(&me, &key(number)).is_some()));
    assert_eq!(store.stats().evictions, 0);
}

#[test]
fn a_higher_limit_is_used_or_refused() {
    let store = store_of(16, true);
    let (me, mut cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
    me.begin_turn(1);
    let refused = store.set_memory_limit(65 * MIB).unwrap_err();
    assert_eq!(refused, LimitError::TooLarge { most: 64 * MIB });
    assert_eq!(store.memory().limit, 16 * MIB, "a refused limit changes nothing");
    store.set_memory_limit(64 * MIB).unwrap();
    let stored = 56 * 1024;
    assert_eq!(fill(&me, &mut cleaner, 0, stored, 950), stored);
    assert_eq!(store.stats().evictions, 0);
    assert_eq!(found(&me, 0..stored), stored as usize);
}

/// Memory other than items cannot be evicted.
#[test]
fn a_limit_that_leaves_no_room_for_items_is_refused() {
    let store = store_of(16, true);
    let (me, mut cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
    me.begin_turn(1);
    fill(&me, &mut cleaner, 0, 10_000, 100);
    store.charge_buffers(6 << 20);
    let refused = store.set_memory_limit(6 * MIB).unwrap_err();
    assert!(matches!(refused, LimitError::InUse { least } if least < 9 * MIB), "{refused:?}");
    store.set_memory_limit(9 * MIB).unwrap();
    work(&me, &mut cleaner, 2000);
    let memory = store.memory();
    let used = memory.arena + memory.index + memory.bags + memory.buffers + memory.fixed;
    assert!(used <= 9 * MIB, "{used}");
    set(&me, b"k", b"v", 0, 0).unwrap();
    assert!(get(&me, b"k").is_some());
}

#[test]
fn empty_bags_release_their_memory() {
    let store = store_of(16, true);
    let (me, mut cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
    me.begin_turn(1);
    for round in 0..3 {
        assert_eq!(fill(&me, &mut cleaner, 0, 80_000, 64), 80_000);
        let most = store.memory().bags;
        assert!(most >= 80_000 * 4, "round {round}: {most}");
        for number in 0..80_000 {
            assert!(delete(&me, &key(number)));
        }
        work(&me, &mut cleaner, 1000);
        let left = store.memory().bags;
        assert!(left <= 256 << 10, "round {round}: {left} of {most} bytes are left");
    }
}

#[test]
fn a_store_with_any_small_limit_holds_items() {
    for megabytes in 1..=20 {
        let memory_bytes = megabytes << 20;
        let item_bytes_max = memory_bytes / 2;
        let store =
            Store::new(Config { memory_bytes, item_bytes_max, ..Config::default() }).unwrap();
        let me = store.join().unwrap();
        me.begin_turn(1);
        set(&me, b"key", &[7; 1000], 0, 0).unwrap();
        assert!(get(&me, b"key").is_some(), "{megabytes} MB");
    }
}

/// Calls `change` with random keys of the first `items`.
fn at_random(items: u32, times: u32, mut change: impl FnMut(u32, &[u8])) {
    let mut random = 1_u32;
    for time in 0..times {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        change(time, &key((random >> 8) % items));
    }
}

#[test]
fn overwrites_leave_no_holes_in_bags() {
    for policy in [Policy::Auto, Policy::Bag] {
        let store = Store::new(Config { memory_bytes: 4 * MIB, policy, ..Config::default() });
        let store = store.unwrap();
        let (me, mut cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
        me.begin_turn(1);
        let items = 20_000;
        assert_eq!(fill(&me, &mut cleaner, 0, items, 4), items);
        at_random(items, 700_000, |_, key| _ = set(&me, key, b"abcd", 0, 0).unwrap());
        let slots: u64 = common::bag_stats(&store).iter().map(|bag| u64::from(bag.slots)).sum();
        // A newcomer leaves its bag when it is overwritten first.
        assert!(slots < 2 * u64::from(items) + 1000, "{slots} slots");
        assert_eq!((found(&me, 0..items), store.stats().evictions), (items as usize, 0));
    }
}

/// Each deletion leaves a hole in a bag. While the cleaner stands still, that uses up all blocks of
/// bags. Stores are then refused until the cleaner has merged bags.
#[test]
fn bags_are_merged_even_if_no_block_is_left() {
    for evict in [true, false] {
        let config = Config { memory_bytes: MIB, evict, seed: 1, ..Config::default() };
        let store = Store::new(Config { item_bytes_max: 64 << 10, ..config }).unwrap();
        let (me, mut cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
        cleaner.step(1, 1);
        store.set_memory_limit(4 * MIB).unwrap();
        me.begin_turn(1);
        let items = 20_000;
        assert_eq!(fill(&me, &mut cleaner, 0, items, 4), items);
        let restore = |key: &[u8]| {
            delete(&me, key);
            me.quiesce();
            set(&me, key, b"abcd", 0, 0).is_ok()
        };
        let mut refused = 0;
        at_random(items, 700_000, |_, key| refused += u32::from(!restore(key)));
        assert!(refused > 0, "blocks are left");
        work(&me, &mut cleaner, 2000);
        assert_eq!(fill(&me, &mut cleaner, 0, items, 4), items);
        assert_eq!(found(&me, 0..items), items as usize);
        // With a cleaner at work, blocks do not run out.
        at_random(items, 700_000, |time, key| {
            assert!(restore(key), "refused at {time}");
            if time % 500 == 0 {
                work(&me, &mut cleaner, 1);
            }
        });
        assert_eq!((found(&me, 0..items), store.stats().evictions), (items as usize, 0));
    }
}
