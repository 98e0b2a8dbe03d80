//! Small scenarios for Miri, which also run natively: every kind of access to chunk memory, and
//! readers against overwriting, evicting and moving pages, in stores of one megabyte.
//!
//! `cargo xtask miri` runs them for several seeds of Miri's scheduler. They look for undefined
//! behaviour: a value written while a reader may still have it, a reference outside its chunk. Miri
//! is some hundred times slower than the processor, so the counts are small; values are large where
//! memory must run out.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

use std::sync::Arc;
use store::{
    Applied, Change, Cleaner, Config, Handle, Liveness, NewItem, Policy, Store, WalkCursor,
};

/// Long values that are still inline.
const LONG: usize = 4000;
/// Values that are chained.
const CHAINED: usize = 40_000;
/// More long values than the store can hold.
const TOO_MANY: u32 = 150;
/// Memory withheld from the store, whose minimum is one megabyte, so that it is full sooner.
const WITHHELD: i64 = 448 << 10;

fn store_with(policy: Policy) -> Arc<Store> {
    let config = Config {
        memory_bytes: 1 << 20,
        item_bytes_max: 1 << 18,
        growth_factor: 1.5,
        policy,
        stripes: 4,
        threads_max: 4,
        seed: 1,
        ..Config::default()
    };
    let store = Store::new(config).unwrap();
    store.charge_buffers(WITHHELD);
    store
}

fn set(me: &Handle, key: &[u8], value: &[u8]) {
    set_until(me, key, value, 0);
}

fn set_until(me: &Handle, key: &[u8], value: &[u8], deadline: u32) {
    let new = NewItem {
        key,
        flags: 7,
        deadline,
        value_len: value.len(),
        base64_key: false,
        has_cas: value.len() == LONG,
    };
    let mut draft = me.draft(new).expect("something is always evictable");
    for part in value.chunks(7001) {
        draft.push(part).expect("something is always evictable");
    }
    let hash = me.store().hash(key);
    let applied = me.section().update(hash, key, |_| Change::Put { draft, cas: None });
    assert!(matches!(applied, Applied::Stored { .. }));
}

/// The value as one piece, copied while the section is open.
fn get(me: &Handle, key: &[u8]) -> Option<Vec<u8>> {
    let section = me.section();
    let hash = me.store().hash(key);
    let bucket = section.prefetch_bucket(hash);
    let hint = section.prefetch_item(hash, bucket);
    section.prefetch_replaced(hash, hint);
    let item = section.find_from(hint, hash, key)?;
    if item.liveness() != Liveness::Live {
        return None;
    }
    item.touch();
    assert_eq!((item.key(), item.flags()), (key, 7));
    let mut value = Vec::with_capacity(item.value_len());
    item.for_each_piece(|piece| value.extend_from_slice(piece));
    assert_eq!(value.len(), item.value_len());
    Some(value)
}

fn delete(me: &Handle, key: &[u8]) -> bool {
    me.section().update(me.store().hash(key), key, |_| Change::Remove) == Applied::Removed
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

/// All bytes of a value are equal, so that a torn one shows.
fn assert_whole(value: &[u8]) {
    assert!(value == vec![value[0]; value.len()], "a torn value");
}

#[test]
fn all_changes_of_one_key() {
    let store = store_with(Policy::Bag);
    let me = store.join().unwrap();
    me.begin_turn(1);
    for len in [0, 1, 63, 1000, 16_000, 16_384, CHAINED] {
        set(&me, b"k", &vec![b'v'; len]);
        assert_eq!(get(&me, b"k").unwrap(), vec![b'v'; len], "{len} bytes");
        assert!(me.give_cas(store.hash(b"k"), b"k"));
        assert!(me.section().find(store.hash(b"k"), b"k").unwrap().cas() > 0);
        assert_eq!(get(&me, b"k").unwrap(), vec![b'v'; len], "{len} bytes, copied");
        me.quiesce();
    }
    me.section().update(store.hash(b"k"), b"k", |item| {
        let item = item.unwrap();
        item.set_deadline(5);
        item.invalidate(None);
        item.set_won();
        Change::Keep
    });
    assert!(me.section().find(store.hash(b"k"), b"k").unwrap().is_stale());
    me.begin_turn(5);
    assert_eq!(get(&me, b"k"), None);
    assert!(delete(&me, b"k"));
    assert!(!delete(&me, b"k"));
    me.rest();
    assert_eq!(store.stats().items, 0);
}

#[test]
fn an_abandoned_draft_returns_its_pieces() {
    let store = store_with(Policy::Bag);
    let me = store.join().unwrap();
    me.begin_turn(1);
    for _ in 0..12 {
        let new = NewItem {
            key: b"k",
            flags: 0,
            deadline: 0,
            value_len: 100_000,
            base64_key: true,
            has_cas: true,
        };
        let mut draft = me.draft(new).unwrap();
        draft.push(&[b'x'; 70_000]).unwrap();
    }
    assert_eq!(store.class_stats(1).iter().map(|class| class.chunks_used).sum::<u64>(), 0);
}

#[test]
fn evictions_page_steals_and_chains_under_both_policies() {
    for policy in [Policy::Bag, Policy::Lru] {
        let store = store_with(policy);
        let me = store.join().unwrap();
        let mut cleaner = Cleaner::new(&store).unwrap();
        me.begin_turn(1);
        for number in 0..TOO_MANY {
            set(&me, &key(number), &[b'v'; LONG]);
            get(&me, &key(number / 2));
        }
        assert!(store.stats().evictions > 0);
        me.rest();
        cleaner.step(2, 100);
        me.begin_turn(2);
        for number in 0..6 {
            set(&me, &key(1000 + number), &[b'l'; CHAINED]);
            assert_eq!(get(&me, &key(1000 + number)).unwrap(), [b'l'; CHAINED]);
        }
        for number in 0..40 {
            set(&me, &key(2000 + number), &[b's'; 100]);
        }
        assert!(store.stats().slabs_moved > 0, "no page changed hands");
    }
}

#[test]
fn growing_buffers_release_pages() {
    let store = store_with(Policy::Bag);
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(&store).unwrap();
    me.begin_turn(1);
    for number in 0..80 {
        set(&me, &key(number), &[b'v'; LONG]);
    }
    me.rest();
    store.charge_buffers(200 << 10);
    for _ in 0..20 {
        cleaner.step(1, 100);
    }
    let memory = store.memory();
    assert!(memory.arena + memory.index + memory.bags + memory.buffers <= memory.limit);
    store.charge_buffers(-(200 << 10));
    me.begin_turn(2);
    for number in 0..80 {
        set(&me, &key(number), &[b'w'; LONG]);
    }
}

#[test]
fn flush_expiry_and_a_walk() {
    let store = store_with(Policy::Bag);
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(&store).unwrap();
    me.begin_turn(1);
    (0..80).for_each(|number| set_until(&me, &key(number), b"value", number % 2 * 3));
    me.rest();
    for _ in 0..6 {
        cleaner.step(4, 100);
    }
    me.begin_turn(4);
    let mut seen = 0;
    let mut cursor = WalkCursor::default();
    while me.walk(&mut cursor, 8, |item| seen += usize::from(item.liveness() == Liveness::Live)) {}
    assert_eq!(seen, 40);
    me.flush();
    set(&me, b"after", b"alive");
    assert_eq!((get(&me, b"key-2"), get(&me, b"after").unwrap()), (None, b"alive".to_vec()));
    me.rest();
    for _ in 0..20 {
        cleaner.step(4, 1000);
    }
    assert_eq!(store.stats().items, 1);
}

#[test]
fn a_pin_outlives_its_item() {
    let store = store_with(Policy::Bag);
    let me = store.join().unwrap();
    me.begin_turn(1);
    set(&me, b"pinned", &[b'p'; CHAINED]);
    let pin = me.section().find(store.hash(b"pinned"), b"pinned").unwrap().pin().unwrap();
    delete(&me, b"pinned");
    me.quiesce();
    for number in 0..12 {
        set(&me, &key(number), &[b'o'; CHAINED]);
        me.quiesce();
    }
    let mut got = Vec::new();
    while got.len() < pin.value_len() {
        got.extend_from_slice(pin.bytes_at(got.len()));
    }
    assert!(got == [b'p'; CHAINED], "a pinned value changed");
    drop(pin);
    me.quiesce();
    drop(me);
    assert!(store.join().is_some());
}

/// A reader waits for items that another thread inserts. (The table does not grow: it starts with
/// room for 8192.)
#[test]
fn a_reader_against_insertions() {
    let store = store_with(Policy::Bag);
    let writer = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            let me = store.join().unwrap();
            for number in 0..300 {
                me.begin_turn(1);
                set(&me, &key(number), b"v");
            }
        })
    };
    let me = store.join().unwrap();
    let mut next = 0;
    while next < 300 {
        me.begin_turn(1);
        if let Some(value) = get(&me, &key(next)) {
            assert_eq!(value, b"v");
            next += 10;
        } else {
            std::thread::yield_now();
        }
        me.quiesce();
    }
    me.rest();
    writer.join().unwrap();
}

/// Readers, which also pin, while one thread overwrites two keys and another evicts everything.
#[test]
fn readers_against_overwriting_and_evicting() {
    let store = store_with(Policy::Bag);
    let work = |job: fn(&Handle, u32), rounds: u32| {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            let me = store.join().unwrap();
            for round in 0..rounds {
                me.begin_turn(1);
                job(&me, round);
                me.quiesce();
                if round % 16 == 15 {
                    me.rest();
                }
            }
        })
    };
    let overwrite = |me: &Handle, round: u32| {
        let byte = b'a' + u8::try_from(round % 26).unwrap();
        let long = if round.is_multiple_of(8) { CHAINED } else { LONG };
        set(me, &key(round % 2), &vec![byte; if round.is_multiple_of(3) { long } else { 50 }]);
        match round % 10 {
            3 | 6 => _ = me.give_cas(me.store().hash(&key(1)), &key(1)),
            9 => _ = delete(me, &key(0)),
            _ => {}
        }
    };
    let evict = |me: &Handle, round: u32| {
        // Two sizes, so that pages change classes.
        let len = if (round / 40).is_multiple_of(2) { LONG } else { 9000 };
        set(me, &key(10 + round % 3), &vec![b'e'; len]);
        set(me, &key(100 + round), &vec![b'e'; len]);
    };
    let threads = [work(overwrite, 80), work(evict, TOO_MANY)];
    let me = store.join().unwrap();
    let mut pins = Vec::new();
    for round in 0..150u32 {
        me.begin_turn(1);
        let key = key([0, 1, 10, 11][(round % 4) as usize]);
        let section = me.section();
        if let Some(item) = section.find(store.hash(&key), &key) {
            item.touch();
            // The section stays open while others continue.
            std::thread::yield_now();
            item.for_each_piece(assert_whole);
            pins.extend(item.pin());
        }
        drop(section);
        me.quiesce();
        for pin in pins.drain(..) {
            std::thread::yield_now();
            assert_whole(pin.bytes_at(0));
            assert_whole(pin.bytes_at(pin.value_len() - 1));
        }
    }
    // A thread that blocks without resting stops all reclamation.
    me.rest();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(store.stats().evictions > 0);
}

/// The ring's notes outlive the items that they name, and the pages; the cleaner follows them while
/// another thread writes into the same memory.
#[test]
fn notes_of_transient_items_against_moving_pages() {
    let store = store_with(Policy::Bag);
    let writer = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            let me = store.join().unwrap();
            for round in 0..TOO_MANY {
                let now = 1 + round / 30;
                me.begin_turn(now);
                let len = if (round / 40).is_multiple_of(2) { LONG } else { 9000 };
                set_until(&me, &key(round % 100), &vec![b'e'; len], now + 1 + round % 2);
                me.quiesce();
            }
        })
    };
    let mut cleaner = Cleaner::new(&store).unwrap();
    for now in 1..=2 + TOO_MANY / 30 {
        for _ in 0..6 {
            cleaner.step(now, 100);
            std::thread::yield_now();
        }
    }
    writer.join().unwrap();
    while cleaner.step(20, 100).busy {}
    let stats = store.stats();
    assert!(stats.transient_reclaimed > 0 && stats.items == 0, "{stats:?}");
}
