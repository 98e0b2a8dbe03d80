//! Pages of classes whose items are gone: they serve stores of other sizes, whether or not the
//! store evicts, without the cleaner.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test stops where it fails; it uses a part of what is shared"
)]

mod common;

use common::{delete, get, set};
use std::sync::Arc;
use store::{Cleaner, Config, DraftError, Handle, Store};

/// Lengths of values in some 50 classes.
fn lengths() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(40), |len| Some(len + len / 8)).take_while(|&len| len < 15_000)
}

fn store_of(megabytes: u64, evict: bool) -> Arc<Store> {
    let memory_bytes = megabytes << 20;
    Store::new(Config { memory_bytes, evict, seed: 1, ..Config::default() }).unwrap()
}

fn put(me: &Handle, number: usize, len: usize) -> Result<u64, DraftError> {
    me.begin_turn(1);
    let stored = set(me, format!("key-{number}").as_bytes(), &vec![b'v'; len], 0, 0);
    me.quiesce();
    stored
}

/// Stores values of `len` bytes until `most` are stored or one is refused.
fn fill(me: &Handle, len: usize, most: usize) -> usize {
    (0..most).find(|&number| put(me, number, len).is_err()).unwrap_or(most)
}

fn delete_all(me: &Handle, count: usize) {
    for number in 0..count {
        me.begin_turn(1);
        delete(me, format!("key-{number}").as_bytes());
        me.quiesce();
    }
    me.rest();
}

/// One item of each size takes a page of a store that has some 30.
#[test]
fn last_pages_of_empty_classes_are_reused() {
    for evict in [true, false] {
        let store = store_of(2, evict);
        let me = store.join().unwrap();
        let (odd, even): (Vec<_>, Vec<_>) =
            lengths().enumerate().partition(|(index, _)| index % 2 == 1);
        let stored = odd.iter().take_while(|&&(number, len)| put(&me, number, len).is_ok()).count();
        assert!(stored > 20, "{stored}");
        delete_all(&me, 100);
        for (number, len) in even {
            let result = put(&me, number, len);
            assert!(result.is_ok(), "{len} bytes, evict {evict}: {result:?}");
            delete_all(&me, 100);
        }
    }
}

#[test]
fn an_emptied_store_without_eviction_accepts_other_sizes() {
    let store = store_of(16, false);
    let me = store.join().unwrap();
    let first = fill(&me, 5000, usize::MAX);
    delete_all(&me, first);
    for len in [1000, 9000, 200, 50_000, 3000] {
        let count = fill(&me, len, usize::MAX);
        let percent = count * len * 100 / (16 << 20);
        assert!(percent > 70, "{count} values of {len} bytes: {percent} % of all memory");
        delete_all(&me, count);
    }
}

/// Items move together, so that pages of their class serve another, and none of them is lost.
#[test]
fn a_half_emptied_store_without_eviction_accepts_other_sizes() {
    let store = store_of(16, false);
    let me = store.join().unwrap();
    let first = fill(&me, 5000, usize::MAX);
    let name = |number: usize| format!("key-{number}").into_bytes();
    for number in (0..first).step_by(2) {
        me.begin_turn(1);
        assert!(delete(&me, &name(number)));
        me.quiesce();
    }
    let count = (first..).take_while(|&number| put(&me, number, 1000).is_ok()).count();
    let percent = count * 1000 * 100 / (16 << 20);
    assert!(percent > 35, "{count} values of 1000 bytes: {percent} % of all memory");
    me.begin_turn(1);
    let kept = (1..first + count).filter(|number| number % 2 == 1 || *number >= first);
    let lost: Vec<usize> = kept.filter(|&number| get(&me, &name(number)).is_none()).collect();
    assert!(lost.is_empty(), "{} of {} lost", lost.len(), first / 2 + count);
    assert_eq!(store.stats().evictions, 0);
}

/// Items of one size come and go, one at a time, while others are evicted all the time: as locks
/// do. Their page stays until none has come for long.
#[test]
fn a_page_stays_with_a_class_of_short_lived_items() {
    let store = store_of(16, true);
    let (me, mut cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
    let mut next = 0;
    let mut turn = |now: u32, lock: bool| {
        me.begin_turn(now);
        for _ in 0..20 {
            next += 1;
            set(&me, format!("item-{next}").as_bytes(), &[b'v'; 3000], 0, 0).unwrap();
        }
        if lock {
            set(&me, b"lock", &[b'v'; 200], 0, 0).unwrap();
            assert!(delete(&me, b"lock"));
        }
        me.quiesce();
        cleaner.step(now, 2000);
    };
    (0..2000).for_each(|number| turn(1 + number / 100, number % 50 == 0));
    let stats = store.stats();
    assert!(stats.evictions > 10_000 && stats.slabs_moved < 5, "{stats:?}");
    let small = || store.class_stats(40).iter().map(|class| class.chunk_bytes).min().unwrap();
    assert!(small() < 300, "a page of the small class is left");
    (0..3000).for_each(|number| turn(21 + number / 100, false));
    assert!(small() > 3000, "the page serves the others");
}
