//! The store through its public interface: fills, evictions, overwrites, sizes, growth, flush.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use common::{delete, get};
use std::sync::Arc;
use store::{Applied, Change, Cleaner, Config, DraftError, Handle, NewItem, Store, WalkCursor};

fn store_of(megabytes: u64) -> Arc<Store> {
    Store::new(Config { memory_bytes: megabytes << 20, seed: 1, ..Config::default() }).unwrap()
}

fn set(me: &Handle, key: &[u8], value: &[u8]) -> Result<u64, DraftError> {
    set_until(me, key, value, 0)
}

fn set_until(me: &Handle, key: &[u8], value: &[u8], deadline: u32) -> Result<u64, DraftError> {
    let new = NewItem {
        key,
        flags: 7,
        deadline,
        value_len: value.len(),
        base64_key: false,
        has_cas: true,
    };
    let mut draft = me.draft(new)?;
    draft.push(value)?;
    let applied =
        me.section().update(me.store().hash(key), key, |_| Change::Put { draft, cas: None });
    let Applied::Stored { cas } = applied else { panic!("not stored: {applied:?}") };
    Ok(cas)
}

#[test]
fn a_stored_item_is_found_until_it_is_deleted() {
    let store = store_of(64);
    let me = store.join().unwrap();
    me.begin_turn(1);
    let first = set(&me, b"k", b"value").unwrap();
    assert_eq!(get(&me, b"k").unwrap(), b"value");
    let second = set(&me, b"k", b"other").unwrap();
    assert!(second > first, "cas uniques of a key rise");
    assert_eq!(get(&me, b"k").unwrap(), b"other");
    assert!(delete(&me, b"k"));
    assert!(!delete(&me, b"k"));
    assert_eq!(get(&me, b"k"), None);
    assert_eq!(store.stats().items, 0);
    assert_eq!(store.memory().items, 0);
}

#[test]
fn values_of_every_size_are_returned_whole() {
    let store = store_of(64);
    let me = store.join().unwrap();
    me.begin_turn(1);
    for len in [0, 1, 63, 64, 1000, 16_000, 16_300, 16_384, 16_385, 32_720, 100_000, 1_000_000] {
        let value: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
        set(&me, b"sized", &value).unwrap();
        assert_eq!(get(&me, b"sized").unwrap(), value, "{len} bytes");
    }
}

#[test]
fn a_fill_stays_within_the_limit_without_refusals() {
    let store = store_of(64);
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(&store).unwrap();
    for number in 0..1_000_000u32 {
        me.begin_turn(1);
        set(&me, format!("key-{number:028}").as_bytes(), &[b'v'; 64]).unwrap();
        if number % 10_000 == 9999 {
            me.rest();
            cleaner.step(1, 1000);
        }
    }
    let stats = store.stats();
    let memory = store.memory();
    eprintln!("{stats:?} {memory:?}");
    assert!(stats.evictions > 0);
    assert!(stats.items > 400_000, "{} items", stats.items);
    let used = memory.arena + memory.index + memory.bags;
    assert!(used <= memory.limit + (1 << 20), "{used} of {}", memory.limit);
    assert_eq!(get(&me, b"key-0000000000000000000000999999").unwrap(), [b'v'; 64]);
}

#[test]
fn the_index_of_an_idle_store_does_not_grow() {
    let store = store_of(64);
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(&store).unwrap();
    for number in 0..20_000u32 {
        me.begin_turn(1);
        set(&me, format!("key-{number}").as_bytes(), b"value").unwrap();
    }
    me.rest();
    (0..10).for_each(|_| {
        cleaner.step(1, 1000);
    });
    assert!(!store.index().growing, "{:?}", store.index());
}

#[test]
fn small_items_are_evicted_for_a_large_value() {
    let store = store_of(64);
    let me = store.join().unwrap();
    me.begin_turn(1);
    for number in 0..700_000u32 {
        set(&me, format!("small-{number}").as_bytes(), &[b's'; 100]).unwrap();
    }
    assert!(store.stats().evictions > 0);
    let large = vec![b'L'; 1_000_000];
    for number in 0..40 {
        set(&me, format!("large-{number}").as_bytes(), &large).unwrap();
        assert_eq!(get(&me, format!("large-{number}").as_bytes()).unwrap(), large);
    }
    for number in 0..500_000u32 {
        set(&me, format!("again-{number}").as_bytes(), &[b's'; 100]).unwrap();
    }
    let refused: u64 = store.class_stats(1).iter().map(|class| class.out_of_memory).sum();
    assert_eq!(refused, 0);
}

#[test]
fn overwriting_pins_no_memory() {
    let store = store_of(64);
    let mut writers = Vec::new();
    for writer in 0..6u32 {
        let store = Arc::clone(&store);
        writers.push(std::thread::spawn(move || {
            let me = store.join().unwrap();
            for round in 0..40_000u32 {
                me.begin_turn(1);
                let key = round.wrapping_mul(2_654_435_761).wrapping_add(writer * 977) % 15_000;
                set(&me, format!("key-{key}").as_bytes(), &[b'v'; 1024]).unwrap();
                if round % 16 == 0 {
                    me.rest();
                }
            }
        }));
    }
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(store.stats().evictions, 0);
}

#[test]
fn the_cleaner_frees_expired_items_and_merges_their_bags() {
    let store = store_of(64);
    // Otherwise the ring of transient items is faster.
    store.set_transient_secs(0);
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(&store).unwrap();
    me.begin_turn(1);
    for number in 0..50_000u32 {
        let deadline = if number % 10 == 0 { 0 } else { 5 };
        set_until(&me, format!("k{number}").as_bytes(), b"value", deadline).unwrap();
    }
    me.rest();
    for _ in 0..200 {
        cleaner.step(10, 10_000);
    }
    let stats = store.stats();
    // The newest bags are not passed: they are open, or may have appenders.
    assert!(stats.cleaner_reclaimed > 40_000, "{stats:?}");
    assert!(stats.bags_merged > 0, "{stats:?}");
    me.begin_turn(10);
    for number in (0..50_000u32).step_by(10) {
        assert_eq!(get(&me, format!("k{number}").as_bytes()).unwrap(), b"value");
    }
}

#[test]
fn a_flush_kills_only_earlier_items() {
    let store = store_of(64);
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(&store).unwrap();
    for round in 0..20u32 {
        me.begin_turn(1);
        for number in 0..1000u32 {
            set(&me, format!("{round}-{number}").as_bytes(), b"x").unwrap();
        }
        me.flush();
        set(&me, b"after", b"alive").unwrap();
        assert_eq!(get(&me, format!("{round}-5").as_bytes()), None);
        assert_eq!(get(&me, b"after").unwrap(), b"alive");
        if round % 10 == 9 {
            me.rest();
            while cleaner.step(1, 10_000).busy {}
            assert_eq!(store.stats().items, 1);
        }
    }
}

#[test]
fn a_walk_visits_each_item_once() {
    let store = store_of(64);
    let me = store.join().unwrap();
    me.begin_turn(1);
    for number in 0..30_000u32 {
        let len = usize::try_from(number % 900).unwrap();
        set(&me, format!("key-{number}").as_bytes(), &vec![b'w'; len]).unwrap();
    }
    let mut seen = std::collections::HashSet::new();
    let mut cursor = WalkCursor::default();
    while me.walk(&mut cursor, 100, |item| assert!(seen.insert(item.key().to_vec()))) {}
    assert_eq!(seen.len(), 30_000);
}

#[test]
fn a_pinned_value_stays_whole_under_full_turnover() {
    let store = store_of(64);
    let me = store.join().unwrap();
    me.begin_turn(1);
    let value: Vec<u8> = (0..900_000u32).map(|at| u8::try_from(at % 253).unwrap()).collect();
    set(&me, b"pinned", &value).unwrap();
    let pin = me.section().find(store.hash(b"pinned"), b"pinned").unwrap().pin().unwrap();
    for number in 0..300u32 {
        set(&me, format!("large-{number}").as_bytes(), &vec![b'z'; 900_000]).unwrap();
    }
    delete(&me, b"pinned");
    for number in 0..1_000_000u32 {
        set(&me, format!("small-{number}").as_bytes(), &[b's'; 100]).unwrap();
    }
    let mut got = Vec::new();
    while got.len() < pin.value_len() {
        got.extend_from_slice(pin.bytes_at(got.len()));
    }
    assert!(got == value, "a pinned value changed");
    drop(pin);
    me.quiesce();
}

#[test]
fn a_full_store_without_eviction_reclaims_only_expired_items() {
    let config = Config { memory_bytes: 8 << 20, evict: false, ..Config::default() };
    let config = Config { item_bytes_max: 1 << 20, ..config };
    let store = Store::new(config).unwrap();
    let me = store.join().unwrap();
    me.begin_turn(1);
    let mut stored = 0u32;
    while set_until(&me, format!("k{stored}").as_bytes(), &[b'v'; 1000], 5).is_ok() {
        stored += 1;
    }
    assert!(stored > 5000, "{stored}");
    assert_eq!(store.stats().evictions, 0);
    me.begin_turn(6);
    for number in 0..stored / 2 {
        set(&me, format!("new{number}").as_bytes(), &[b'n'; 1000]).unwrap();
    }
}

#[test]
fn a_key_of_251_bytes_is_refused() {
    let store = store_of(64);
    let me = store.join().unwrap();
    me.begin_turn(1);
    assert_eq!(set(&me, &[b'k'; 251], b"v").unwrap_err(), DraftError::TooLarge);
    set(&me, &[b'k'; 250], &vec![b'v'; 500_000]).unwrap();
    assert_eq!(set(&me, b"k", &vec![b'v'; 2 << 20]).unwrap_err(), DraftError::TooLarge);
}

/// Both kinds of item: one chunk, and a chain.
#[test]
fn a_draft_sets_the_marks_deadline_and_class_of_its_item() {
    let store = store_of(64);
    let me = store.join().unwrap();
    me.begin_turn(1);
    for value_len in [3, 40_000] {
        let new = NewItem {
            key: b"k",
            flags: 7,
            deadline: 1,
            value_len,
            base64_key: true,
            has_cas: true,
        };
        let mut draft = me.draft(new).unwrap();
        draft.set_stale(true);
        draft.set_won(true);
        draft.set_stale(false);
        draft.set_deadline(9);
        draft.push(&vec![b'v'; value_len]).unwrap();
        let class = draft.class();
        let section = me.section();
        let change = Change::Put { draft, cas: None };
        let applied = section.update(store.hash(b"k"), b"k", |_| change);
        assert!(matches!(applied, Applied::Stored { .. }), "{applied:?}");
        let item = section.find(store.hash(b"k"), b"k").unwrap();
        assert_eq!((item.is_stale(), item.is_won(), item.deadline()), (false, true, 9));
        assert_eq!((item.class(), item.flags(), item.value_len()), (class, 7, value_len));
        assert!(item.is_base64_key());
    }
}
