//! Cas uniques of items that are stored without one: a client that asks gets one that stays,
//! belongs to no other item, and is greater than the key's earlier ones.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use store::{Applied, Change, Cleaner, Config, Handle, Item, Liveness, NewItem, Store};

const FLAGS: u32 = 7;

fn store_of(config: Config) -> Arc<Store> {
    Store::new(Config { seed: 1, ..config }).unwrap()
}

fn small() -> Arc<Store> {
    store_of(Config { memory_bytes: 8 << 20, ..Config::default() })
}

fn joined(store: &Arc<Store>) -> Handle {
    let me = store.join().unwrap();
    me.begin_turn(1);
    me
}

/// Stores without a cas unique, or with this one; returns the item's.
fn set(me: &Handle, key: &[u8], value: &[u8], cas: Option<u64>) -> u64 {
    let new = NewItem {
        key,
        flags: FLAGS,
        deadline: 0,
        value_len: value.len(),
        base64_key: false,
        has_cas: cas.is_some(),
    };
    let mut draft = me.draft(new).unwrap();
    draft.push(value).unwrap();
    match me.section().update(me.store().hash(key), key, |_| Change::Put { draft, cas }) {
        Applied::Stored { cas } => cas,
        other => panic!("not stored: {other:?}"),
    }
}

/// Lets the cleaner do its work at this second.
fn step(cleaner: &mut Cleaner, second: u32) {
    (0..64).for_each(|_| _ = cleaner.step(second, 1000));
}

fn seen<T>(me: &Handle, key: &[u8], look: impl FnOnce(&Item<'_>) -> T) -> Option<T> {
    let section = me.section();
    let found = section.find(me.store().hash(key), key);
    found.filter(|item| item.liveness() == Liveness::Live).map(|item| look(&item))
}

fn value_of(item: &Item<'_>) -> Vec<u8> {
    let mut value = Vec::new();
    item.for_each_piece(|piece| value.extend_from_slice(piece));
    value
}

/// As `gets` does it.
fn asked(me: &Handle, key: &[u8]) -> Option<(u64, Vec<u8>)> {
    loop {
        let found = seen(me, key, |item| (item.cas(), value_of(item)))?;
        if found.0 != 0 {
            return Some(found);
        }
        assert!(me.give_cas(me.store().hash(key), key), "no memory for a cas unique");
    }
}

#[test]
fn an_item_gets_a_lasting_cas_unique_on_request() {
    let me = joined(&small());
    for len in (0..400).chain(16_300..16_400).chain([40_000]) {
        let value: Vec<u8> = (0..len).map(|at: usize| at.to_le_bytes()[0]).collect();
        let stored = set(&me, b"key", &value, None);
        assert!(stored == 0 || len > 16_000, "{len} bytes: stored with {stored}");
        let (cas, copied) = asked(&me, b"key").unwrap();
        assert!(copied == value, "{len} bytes");
        assert_eq!(seen(&me, b"key", |item| item.flags()), Some(FLAGS));
        assert!(me.give_cas(me.store().hash(b"key"), b"key"));
        assert_eq!(
            asked(&me, b"key").unwrap(),
            (cas, value),
            "the second reader is shown the same"
        );
        me.quiesce();
    }
    assert!(me.give_cas(me.store().hash(b"none"), b"none"), "a key without an item needs none");
}

fn facts(item: &Item<'_>) -> ((bool, bool, bool), u32, u32) {
    let marks = (item.is_fetched(), item.is_stale(), item.is_won());
    (marks, item.deadline(), item.idle_secs())
}

#[test]
fn a_copy_is_the_same_item_to_clients() {
    let store = small();
    let me = joined(&store);
    let hash = store.hash(b"key");
    set(&me, b"key", b"value", None);
    let before = store.stats();
    me.begin_turn(100);
    me.section().update(hash, b"key", |present| {
        let item = present.unwrap();
        item.touch();
        item.set_deadline(5000);
        item.invalidate(None);
        item.set_won();
        Change::Keep
    });
    me.begin_turn(1100);
    let was = seen(&me, b"key", facts).unwrap();
    let bytes = seen(&me, b"key", |item| item.total_bytes()).unwrap();
    assert_eq!(was, ((true, true, true), 5000, 1000));
    asked(&me, b"key").unwrap();
    assert_eq!(seen(&me, b"key", facts), Some(was));
    let after = store.stats();
    assert_eq!((after.items, after.items_total), (before.items, before.items_total));
    assert_eq!(seen(&me, b"key", |item| item.total_bytes()), Some(bytes + 8));
}

#[test]
fn a_copy_is_freed_in_the_second_it_expires() {
    let store = store_of(Config { transient_secs: 60, ..Config::default() });
    let me = joined(&store);
    set(&me, b"key", b"value", None);
    let hash = store.hash(b"key");
    me.section().update(hash, b"key", |present| {
        present.unwrap().set_deadline(5);
        Change::Keep
    });
    asked(&me, b"key").unwrap();
    me.rest();
    let mut cleaner = Cleaner::new(&store).unwrap();
    for second in 2..=7 {
        step(&mut cleaner, second);
    }
    assert_eq!(store.stats().items, 0);
}

#[test]
fn cas_uniques_of_a_key_always_increase() {
    let store = small();
    let (one, other) = (joined(&store), joined(&store));
    // Each thread has a block of uniques, and that of the first is the older one.
    let mut last = set(&one, b"a", b"v", Some(1));
    for round in 0..5000 {
        let me = if round % 3 == 0 { &one } else { &other };
        match round % 4 {
            // Far above the numbers that the store has given out.
            0 => last = set(me, b"key", b"chosen", Some(last + 5000)),
            _ => assert_eq!(set(me, b"key", b"plain", None), 0),
        }
        let next = asked(if round % 2 == 0 { &other } else { &one }, b"key").unwrap().0;
        assert!(next > last || round % 4 == 0 && next == last, "{next} after {last}");
        last = next;
        [&one, &other].iter().for_each(|me| me.quiesce());
    }
    assert!(!store.is_older_cas(last + 2048) && store.is_older_cas(last));
}

#[test]
fn a_full_store_gives_cas_uniques_to_its_coldest_items() {
    let store = small();
    let me = joined(&store);
    let key = |number: u32| format!("key{number:08}").into_bytes();
    const ITEMS: u32 = 60_000;
    for number in 0..ITEMS {
        set(&me, &key(number), &[b'v'; 100], None);
        me.quiesce();
    }
    assert!(store.stats().items < u64::from(ITEMS), "it is not full");
    let (mut found, mut given) = (0, 0);
    for number in 0..ITEMS {
        let key = key(number);
        if seen(&me, &key, |_| ()).is_none() {
            continue;
        }
        found += 1;
        if let Some((cas, value)) = asked(&me, &key) {
            assert!(cas > 0 && value == [b'v'; 100]);
            given += 1;
        }
        me.quiesce();
    }
    assert!(found > 10_000, "found {found}");
    assert_eq!(given, found, "an item was evicted to make room for its own copy");
}

#[test]
fn stores_without_eviction_give_cas_uniques_at_once() {
    let store = store_of(Config { evict: false, ..Config::default() });
    let me = joined(&store);
    assert!(set(&me, b"key", b"value", None) > 0);
}

/// Stores, deletes and readers of one key: a cas unique stands for one value, for ever.
#[test]
fn a_cas_unique_never_stands_for_two_values() {
    const ROUNDS: u64 = 20_000;
    let store = small();
    let is_over = AtomicBool::new(false);
    // Relaxed: only a count.
    let values = AtomicU64::new(0);
    let read = || {
        let me = store.join().unwrap();
        me.begin_turn(1);
        let mut shown = HashMap::new();
        let mut last = (0, 0);
        while !is_over.load(Ordering::Relaxed) {
            if let Some((cas, value)) = asked(&me, b"key") {
                let value = u64::from_le_bytes(value.try_into().unwrap());
                assert_eq!(*shown.entry(cas).or_insert(value), value, "cas unique {cas}");
                assert!((cas > last.0) == (value > last.1), "{cas}, {value} after {last:?}");
                values.fetch_add(u64::from(cas > last.0), Ordering::Relaxed);
                last = (cas, value);
            }
            me.quiesce();
        }
        me.rest();
        shown
    };
    let mut all: HashMap<u64, u64> = HashMap::new();
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2).map(|_| scope.spawn(read)).collect();
        let me = joined(&store);
        // On a busy machine the readers may start late.
        let is_seen = || values.load(Ordering::Relaxed) > 20;
        for round in (1..).take_while(|round| *round <= ROUNDS || !is_seen()) {
            set(&me, b"key", &round.to_le_bytes(), None);
            if round % 7 == 0 {
                me.section().update(store.hash(b"key"), b"key", |_| Change::Remove);
            }
            me.quiesce();
            if round % 64 == 0 {
                thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        me.rest();
        for reader in readers {
            for (cas, value) in reader.join().unwrap() {
                assert_eq!(*all.entry(cas).or_insert(value), value, "cas unique {cas}");
            }
        }
    });
    assert!(all.len() > 10, "the readers have seen {} values", all.len());
}
