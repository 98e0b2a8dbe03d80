//! Transient items: their memory is freed in the second in which they expire, however they got
//! their deadline.
//!
//! The clock is a number that the tests advance; the tests step the cleaner.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::sync::Arc;
use store::{Change, Cleaner, Config, Handle, NewItem, Store};

const THRESHOLD: u32 = 60;

fn store_of(megabytes: u64, transient_secs: u32) -> Arc<Store> {
    let config = Config { memory_bytes: megabytes << 20, transient_secs, ..Config::default() };
    Store::new(config).unwrap()
}

fn set(me: &Handle, key: u64, value_len: usize, deadline: u32) {
    let key = key.to_le_bytes();
    let new =
        NewItem { key: &key, flags: 0, deadline, value_len, base64_key: false, has_cas: false };
    let mut draft = me.draft(new).unwrap();
    draft.push(&vec![b'v'; value_len]).unwrap();
    me.section().update(me.store().hash(&key), &key, |_| Change::Put { draft, cas: None });
}

fn touch(me: &Handle, key: u64, deadline: u32) {
    let key = key.to_le_bytes();
    me.section().update(me.store().hash(&key), &key, |present| {
        present.unwrap().set_deadline(deadline);
        Change::Keep
    });
}

fn has(me: &Handle, key: u64) -> bool {
    let key = key.to_le_bytes();
    me.section().find(me.store().hash(&key), &key).is_some()
}

/// Steps that never clean: only the ring frees items in them.
fn step(cleaner: &mut Cleaner, now_secs: u32) {
    while cleaner.step(now_secs, 2000).busy {}
}

fn used_chunks(store: &Store) -> u64 {
    store.class_stats(0).iter().map(|class| class.chunks_used).sum()
}

#[test]
fn items_are_freed_in_the_second_they_expire() {
    let store = store_of(64, THRESHOLD);
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(&store).unwrap();
    me.begin_turn(100);
    for key in 0..30_000 {
        set(&me, key, 100, 101 + u32::try_from(key % 30).unwrap());
    }
    set(&me, 1 << 40, 200_000, 110);
    set(&me, 1 << 41, 100, 0);
    me.rest();
    for now in 100..131 {
        step(&mut cleaner, now);
        let left = 1000 * u64::from(130 - now) + u64::from(now < 110) + 1;
        assert_eq!(store.stats().items, left, "second {now}");
        let pieces = if now < 110 { 13 } else { 0 };
        assert_eq!(used_chunks(&store), left + pieces, "second {now}");
    }
    assert_eq!(store.stats().transient_reclaimed, 30_001);
    assert_eq!(store.stats().transient_listed, 0);
}

#[test]
fn a_touch_changes_the_expiry_second() {
    let store = store_of(64, THRESHOLD);
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(&store).unwrap();
    me.begin_turn(100);
    set(&me, 1, 100, 105);
    set(&me, 2, 100, 105);
    set(&me, 3, 100, 0);
    set(&me, 4, 100, 105);
    touch(&me, 1, 107);
    touch(&me, 2, 0);
    touch(&me, 3, 106);
    touch(&me, 4, 102);
    me.rest();
    let mut alive = |now| {
        step(&mut cleaner, now);
        me.begin_turn(now);
        let alive = (1..5).filter(|&key| has(&me, key)).collect::<Vec<_>>();
        me.rest();
        alive
    };
    assert_eq!(alive(101), [1, 2, 3, 4]);
    assert_eq!(alive(102), [1, 2, 3]);
    assert_eq!(alive(105), [1, 2, 3]);
    assert_eq!(alive(106), [1, 2]);
    assert_eq!(alive(107), [2]);
    assert_eq!(alive(1_000_000), [2]);
}

#[test]
fn the_threshold_selects_transient_items_and_zero_none() {
    let store = store_of(64, THRESHOLD);
    let me = store.join().unwrap();
    let listed = |deadline| {
        let before = store.stats().transient_listed;
        me.begin_turn(100);
        set(&me, 1, 100, deadline);
        me.rest();
        store.stats().transient_listed - before
    };
    assert_eq!(listed(100 + THRESHOLD), 1);
    assert_eq!(listed(101 + THRESHOLD), 0);
    assert_eq!(listed(0), 0);
    store.set_transient_secs(0);
    assert_eq!(listed(101), 0);
    store.set_transient_secs(u32::MAX);
    assert_eq!(listed(100 + store::TRANSIENT_SECS_MAX), 1);
    assert_eq!(listed(101 + store::TRANSIENT_SECS_MAX), 0);
}

/// A store's first second may be any, and a clock may jump over many.
#[test]
fn a_clock_jump_loses_no_note() {
    let store = store_of(64, THRESHOLD);
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(&store).unwrap();
    let mut now = 5_000_000;
    for _ in 0..4 {
        me.begin_turn(now);
        (0..100).for_each(|key| set(&me, key, 50, now + 1 + u32::try_from(key % 60).unwrap()));
        me.rest();
        step(&mut cleaner, now);
        assert_eq!(store.stats().items, 100);
        now += 100_000;
        step(&mut cleaner, now);
        assert_eq!(store.stats().items, 0);
    }
}

/// Overwriting leaves outdated notes behind; they must not outgrow the store.
#[test]
fn overwriting_does_not_accumulate_notes() {
    let store = store_of(64, 3600);
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(&store).unwrap();
    for round in 0..400_000u32 {
        me.begin_turn(100 + round / 10_000);
        set(&me, u64::from(round % 100), 50, 1000 + round / 10_000);
        if round % 64 == 0 {
            me.rest();
        }
        if round % 2000 == 0 {
            step(&mut cleaner, 100 + round / 10_000);
            let listed = store.stats().transient_listed;
            assert!(listed < 30_000, "{listed} notes for 100 items");
        }
    }
    me.rest();
    assert_eq!(store.stats().items, 100);
    step(&mut cleaner, 1040);
    assert_eq!(store.stats().items, 0);
}

/// A short-lived item is no safer from eviction than another, so a store is not refused for the
/// sake of one.
#[test]
fn transient_items_are_evicted_like_others() {
    let store = store_of(8, THRESHOLD);
    let me = store.join().unwrap();
    for key in 0..200_000 {
        me.begin_turn(100);
        set(&me, key, 100, 160);
        me.quiesce();
    }
    assert!(store.stats().evictions > 100_000);
    assert!(has(&me, 199_999));
}

/// Notes outlive the items that they name, and the pages; other contents there must not be taken
/// for dead.
#[test]
fn notes_to_pages_of_another_class_are_ignored() {
    let store = store_of(4, THRESHOLD);
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(&store).unwrap();
    for round in 0..40u32 {
        let now = 100 + round;
        me.begin_turn(now);
        let value_len = [40, 3000, 900, 9000, 100_000][(round % 5) as usize];
        for key in 0..6_000_000 / (value_len as u64 + 40) {
            set(&me, key, value_len, if key % 3 == 0 { 0 } else { now + 2 + round % 7 });
            me.quiesce();
        }
        me.rest();
        step(&mut cleaner, now);
        me.begin_turn(now);
        let mut cursor = store::WalkCursor::default();
        let mut walked = 0;
        while me.walk(&mut cursor, 1000, |item| {
            walked += 1;
            assert!(item.deadline() == 0 || item.deadline() > now, "an item outlived its second");
            let hash = store.hash(item.key());
            assert!(me.section().find(hash, item.key()).is_some());
        }) {}
        assert_eq!(walked, store.stats().items);
        assert_eq!(walked, store.index().items);
    }
    assert!(store.stats().slabs_moved > 20);
}
