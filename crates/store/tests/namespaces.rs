//! Namespaces: their numbers match the existing items, however items come and go, and their quotas
//! hold.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, dead_code, reason = "a test stops where it fails; it uses a part")]

mod common;

use common::{TempFile, delete, end, open, rng, set};
use rand::RngExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use store::{
    Applied, Change, Cleaner, Config, DraftError, Handle, Liveness, Namespace, Namespaces, NewItem,
    Store, WalkCursor,
};

fn store_of(megabytes: u64) -> Arc<Store> {
    let memory_bytes = megabytes << 20;
    Store::new(Config { memory_bytes, transient_secs: 60, seed: 1, ..Config::default() }).unwrap()
}

/// A table in which each prefix has its given number.
fn table(prefixes: &[(&str, u16, Option<u64>)]) -> Arc<Namespaces> {
    let namespaces = prefixes.iter().map(|&(prefix, number, bytes_max)| Namespace {
        prefix: prefix.as_bytes().into(),
        number,
        bytes_max,
    });
    Arc::new(Namespaces::new(namespaces.collect()))
}

/// Items and bytes by number, from a walk over all items.
fn walked(me: &Handle, table: &Namespaces) -> BTreeMap<u16, (u64, u64)> {
    let mut found = BTreeMap::new();
    let mut cursor = WalkCursor::default();
    let mut visit = |item: &store::Item<'_>| {
        if matches!(item.liveness(), Liveness::Deleted | Liveness::Gone) {
            return;
        }
        if let Some(namespace) = table.of(item.key()) {
            let (items, bytes) = found.entry(namespace.number).or_insert((0, 0));
            *items += 1;
            *bytes += item.total_bytes() as u64;
        }
    };
    while me.walk(&mut cursor, 10_000, &mut visit) {}
    found
}

/// Items and bytes by number, as they were counted.
fn counted(store: &Store) -> BTreeMap<u16, (u64, u64)> {
    let numbers = (0..8).map(|number| (number, store.namespace_stats(number)));
    let used = numbers.map(|(number, stats)| (number, (stats.items, stats.bytes)));
    used.filter(|(_, used)| *used != (0, 0)).collect()
}

fn try_set(me: &Handle, key: &[u8], len: usize) -> Applied {
    let new =
        NewItem { key, flags: 0, deadline: 0, value_len: len, base64_key: false, has_cas: false };
    let mut draft = me.draft(new).unwrap();
    draft.push(&vec![b'v'; len]).unwrap();
    me.section().update(me.store().hash(key), key, |_| Change::Put { draft, cas: None })
}

fn some_key(rng: &mut impl RngExt) -> Vec<u8> {
    let prefix = ["a:", "a:b:", "c:", "none:"][rng.random_range(0..4)];
    format!("{prefix}{}", rng.random_range(0..3000u32)).into_bytes()
}

fn some_len(rng: &mut impl RngExt, now: u32) -> usize {
    match rng.random_range(0..200u32) {
        0 => rng.random_range(16_000..60_000),
        _ => rng.random_range(0..20 * now as usize - 1900),
    }
}

/// Frees flushed items: a walk cannot see whether they were deleted before.
fn purge(store: &Store, cleaner: &mut Cleaner, now: u32) {
    (0..20).for_each(|_| _ = cleaner.step(now, 1000));
    while store.stats().invalidations_outstanding > 0 {
        cleaner.step(now, 1000);
    }
}

/// One change of any kind. Lengths of values rise with the second.
fn change(me: &Handle, rng: &mut impl RngExt, now: u32) {
    let key = some_key(rng);
    let hash = me.store().hash(&key);
    match rng.random_range(0..100u32) {
        0 => me.flush_prefix(&key[..key.len().min(5)]).unwrap_or_default(),
        1..10 => drop(delete(me, &key)),
        10..20 => {
            let until = now + rng.random_range(0..3);
            me.section().update(hash, &key, |_| Change::RemoveSoon { until });
        }
        20..30 => {
            me.section().update(hash, &key, |present| {
                let dead = present.is_some_and(|item| item.liveness() != Liveness::Live);
                if dead { Change::Remove } else { Change::Keep }
            });
        }
        _ => {
            let deadline = if rng.random_ratio(1, 3) { now + rng.random_range(1..4) } else { 0 };
            let new = NewItem {
                key: &key,
                flags: rng.random_range(0..2),
                deadline,
                value_len: some_len(rng, now),
                base64_key: false,
                has_cas: false,
            };
            let Ok(mut draft) = me.draft(new) else { return };
            if draft.push(&vec![b'v'; new.value_len]).is_ok() {
                me.section().update(hash, &key, |_| Change::Put { draft, cas: None });
            }
        }
    }
}

/// Overwritten, deleted, kept as stale, expired, flushed, evicted, moved with its page: in every
/// case, with any table set at any time.
#[test]
fn namespace_counts_match_a_walk() {
    let store = store_of(5);
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(&store).unwrap();
    let mut rng = rng(7);
    let tables = [
        table(&[("a:", 0, None), ("a:b:", 1, None), ("c:", 2, None)]),
        table(&[("a:", 0, None), ("a:b:1", 3, None), ("", 4, None)]),
        table(&[]),
        table(&[("", 4, Some(3 << 20)), ("c:2", 5, Some(1000))]),
    ];
    for round in 0..60u32 {
        let (now, table) = (100 + round, &tables[round as usize / 3 % tables.len()]);
        me.begin_turn(now);
        if round % 3 != 2 {
            me.set_namespaces(table);
        }
        (0..2000).for_each(|_| change(&me, &mut rng, now));
        me.rest();
        purge(&store, &mut cleaner, now);
        me.begin_turn(now);
        assert_eq!(counted(&store), walked(&me, table), "round {round}");
        me.rest();
    }
    let stats = store.stats();
    assert!(stats.evictions > 1000 && stats.slabs_moved > 0, "{stats:?}");
    let evicted: u64 = (0..8).map(|number| store.namespace_stats(number).evicted).sum();
    assert!((1..=store.stats().evictions).contains(&evicted));
    let everything = Arc::clone(&tables[1]);
    me.begin_turn(200);
    me.set_namespaces(&everything);
    let sum = (0..8).map(|number| store.namespace_stats(number).bytes).sum::<u64>();
    assert_eq!(sum, store.memory().items);
}

/// Tables are exchanged while threads store and delete: every item is counted exactly once.
#[test]
fn table_changes_under_load_count_every_item_once() {
    let store = store_of(64);
    let tables = [
        table(&[("a:", 0, None), ("a:b:", 1, None), ("c:", 2, None)]),
        table(&[("a:b:", 3, None), ("", 4, None)]),
    ];
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..3 {
            let (store, is_over) = (&store, &is_over);
            scope.spawn(move || {
                let (me, mut rng) = (store.join().unwrap(), rng(seed));
                while !is_over.load(Ordering::Relaxed) {
                    me.begin_turn(100);
                    (0..50).for_each(|_| change(&me, &mut rng, 100));
                    me.rest();
                }
            });
        }
        let me = store.join().unwrap();
        for round in 0..40 {
            me.set_namespaces(&tables[round % 2]);
            thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    purge(&store, &mut Cleaner::new(&store).unwrap(), 100);
    let me = store.join().unwrap();
    me.begin_turn(100);
    assert_eq!(counted(&store), walked(&me, &tables[1]));
}

#[test]
fn a_quota_refuses_growth_and_changes_nothing() {
    let store = store_of(16);
    let me = store.join().unwrap();
    me.begin_turn(1);
    // 16 bytes of header, 3 of key, 981 of value.
    let of_items = |items: u64| table(&[("q:", 0, Some(1000 * items)), ("", 1, None)]);
    me.set_namespaces(&of_items(3));
    let refused = Applied::Refused(DraftError::OverQuota);
    for key in [b"q:1", b"q:2", b"q:3"] {
        assert!(matches!(try_set(&me, key, 981), Applied::Stored { .. }));
    }
    assert_eq!(store.namespace_stats(0).bytes, 3000);
    assert_eq!(try_set(&me, b"q:4", 0), refused);
    assert_eq!(try_set(&me, b"q:1", 982), refused);
    assert!(matches!(try_set(&me, b"r:1", 5000), Applied::Stored { .. }), "another namespace");
    assert_eq!(common::get(&me, b"q:1").unwrap().len(), 981, "the old value stays");
    assert!(matches!(try_set(&me, b"q:1", 981), Applied::Stored { .. }), "as large as before");
    assert!(matches!(try_set(&me, b"q:1", 100), Applied::Stored { .. }));
    assert!(matches!(try_set(&me, b"q:2", 981 + 881), Applied::Stored { .. }), "to the last byte");
    // Less is allowed than is in use.
    me.set_namespaces(&of_items(2));
    assert_eq!(try_set(&me, b"q:1", 101), refused);
    assert!(matches!(try_set(&me, b"q:2", 1800), Applied::Stored { .. }));
    assert!(delete(&me, b"q:2"));
    assert!(matches!(try_set(&me, b"q:4", 0), Applied::Stored { .. }));
    let stats = store.namespace_stats(0);
    assert_eq!((stats.items, stats.refused), (3, 3));
    store.reset_stats();
    assert_eq!(store.namespace_stats(0).refused, 0);
    assert_eq!(stats.bytes, 1000 + 119 + 19);
}

/// The sum is taken before the item is counted, so each of the other threads may link one more.
#[test]
fn a_quota_is_exceeded_by_at_most_one_item_per_thread() {
    const THREADS: u64 = 4;
    const ITEM: u64 = 16 + 9 + 200;
    let store = store_of(64);
    let most = 200 * ITEM;
    store.join().unwrap().set_namespaces(&table(&[("q:", 0, Some(most))]));
    thread::scope(|scope| {
        for worker in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let me = store.join().unwrap();
                for number in 0..2000 {
                    me.begin_turn(1);
                    let key = format!("q:{worker}-{number:05}");
                    try_set(&me, key.as_bytes(), 200);
                    me.quiesce();
                }
            });
        }
    });
    let bytes = store.namespace_stats(0).bytes;
    assert!(bytes <= most + (THREADS - 1) * ITEM && bytes > most - ITEM, "{bytes} of {most}");
}

#[test]
fn items_of_an_earlier_process_are_counted() {
    let (path, namespaces) = (TempFile::new(), table(&[("a:", 0, None), ("", 1, None)]));
    let (store, _) = open(&path, 2);
    let me = store.join().unwrap();
    me.begin_turn(2);
    for number in 0..1000 {
        let key = format!("{}{number}", ["a:", "b:"][number % 2]);
        set(&me, key.as_bytes(), &vec![b'v'; number * 20], 0, 0).unwrap();
    }
    drop(me);
    let items = store.stats().items;
    end(store, 3);
    // A clean end, then none.
    for _ in 0..2 {
        let (store, _) = open(&path, 3);
        let me = store.join().unwrap();
        me.begin_turn(3);
        me.set_namespaces(&namespaces);
        assert_eq!(counted(&store), walked(&me, &namespaces));
        assert_eq!(counted(&store).values().map(|used| used.0).sum::<u64>(), items);
    }
}
