//! A memory file opened with other settings than the last time: settings that may change do, and
//! every item is there.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{TempFile, at, config, end, get, open_as, set};
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use store::{Cleaner, Config, LimitError, MemoryFile, Opened, Store, StoreError};

/// The ways from one process to the next.
#[derive(Clone, Copy, Debug)]
enum Way {
    Clean,
    Crash,
    Takeover,
}

const TICKET: u64 = 77;

const WAYS: [Way; 3] = [Way::Clean, Way::Crash, Way::Takeover];

fn restart(way: Way, store: Arc<Store>, config: &Config, path: &TempFile) -> (Arc<Store>, Opened) {
    match way {
        Way::Clean => end(store, 2),
        Way::Crash => drop(store),
        Way::Takeover => {
            store.close(at(2), TICKET).unwrap();
            return succeed(&store, config, path).unwrap();
        }
    }
    open_as(config, path, 2)
}

/// Opens the data that a store has left to its successor.
fn succeed(
    store: &Store,
    config: &Config,
    path: &TempFile,
) -> Result<(Arc<Store>, Opened), StoreError> {
    let shared = store.share_file().unwrap().unwrap();
    let file = MemoryFile::inherit(shared, path.path(), config, TICKET)?;
    Store::open(config, file, at(2))
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

/// Stores these, from four threads.
fn fill(store: &Arc<Store>, numbers: Range<u32>) {
    let set_each_fourth = |first| {
        let me = store.join().unwrap();
        for number in numbers.clone().skip(first).step_by(4) {
            me.begin_turn(2);
            set(&me, &key(number), &[b'v'; 60], 0, 0).unwrap();
        }
    };
    thread::scope(|scope| {
        (0..4).for_each(|first| _ = scope.spawn(move || set_each_fourth(first)));
    });
}

/// Checks that these exist, and nothing else.
fn check(store: &Arc<Store>, numbers: Range<u32>, context: &str) {
    let me = store.join().unwrap();
    me.begin_turn(2);
    let missing = numbers.clone().filter(|&number| get(&me, &key(number)).is_none()).count();
    assert_eq!(missing, 0, "{context}");
    let items = numbers.len() as u64;
    assert_eq!((store.stats().items, store.index().items), (items, items), "{context}");
}

/// Deletes these, and lets the index shrink to its minimum.
fn shrink(store: &Arc<Store>, deleted: Range<u32>) {
    let me = store.join().unwrap();
    me.begin_turn(2);
    deleted.for_each(|number| _ = common::delete(&me, &key(number)));
    me.quiesce();
    let mut cleaner = Cleaner::new(store).unwrap();
    for secs in 3..400 {
        me.begin_turn(secs);
        // It shrinks if there is no room for a page.
        let memory = store.memory();
        store.set_memory_limit(memory.arena + memory.index + memory.bags).unwrap();
        cleaner.step(secs, 1000);
        me.quiesce();
    }
}

#[test]
fn a_change_of_the_stripes_keeps_every_item() {
    // A store of 16 MB has at most 2^15 stripes, and its index at least 1,024 buckets.
    let with = |stripes| Config { stripes, ..config() };
    for way in WAYS {
        let path = TempFile::new();
        let (mut store, _) = open_as(&with(32), &path, 2);
        let mut stored = 3_000;
        fill(&store, 0..stored);
        for stripes in [1 << 14, 32, 1 << 16, 256, 1 << 12] {
            let (next, opened) = restart(way, store, &with(stripes), &path);
            let context = format!("{way:?}, {stripes} stripes: {opened:?}");
            check(&next, 0..stored, &context);
            fill(&next, stored..stored + 6_000);
            stored += 6_000;
            check(&next, 0..stored, &context);
            store = next;
        }
    }
}

#[test]
fn an_index_shrinks_for_fewer_stripes_and_grows_again() {
    let with = |stripes| Config { stripes, ..config() };
    for way in WAYS {
        let path = TempFile::new();
        let (store, _) = open_as(&with(1 << 14), &path, 2);
        fill(&store, 0..60_000);
        let (store, _) = restart(way, store, &with(32), &path);
        let before = store.index().bytes;
        shrink(&store, 10_000..60_000);
        let after = store.index().bytes;
        assert!(after < before / 4, "{way:?}: {before} bytes, then {after}");
        let (store, opened) = restart(way, store, &with(1 << 14), &path);
        check(&store, 0..10_000, &format!("{way:?}: {opened:?}"));
        fill(&store, 10_000..60_000);
        shrink(&store, 10_000..60_000);
        check(&store, 0..10_000, &format!("{way:?}, grown and shrunk"));
    }
}

/// The buckets of 65,536 stripes would be larger than the memory.
#[test]
fn a_small_store_keeps_every_item_for_any_number_of_stripes() {
    let with =
        |stripes| Config { memory_bytes: 1 << 20, item_bytes_max: 4096, stripes, ..config() };
    for (way, [before, after]) in WAYS
        .into_iter()
        .flat_map(|way| [[32, 1 << 16], [1 << 16, 32]].map(|stripes| (way, stripes)))
    {
        let path = TempFile::new();
        let (store, _) = open_as(&with(before), &path, 2);
        fill(&store, 0..1_000);
        let (store, opened) = restart(way, store, &with(after), &path);
        check(&store, 0..1_000, &format!("{way:?}, {before} stripes, then {after}: {opened:?}"));
    }
}

const MIB: u64 = 1 << 20;

fn limited(megabytes: u64) -> Config {
    Config { memory_bytes: megabytes * MIB, ..config() }
}

#[test]
fn another_limit_within_reach_keeps_every_item() {
    for way in WAYS {
        let path = TempFile::new();
        let (mut store, _) = open_as(&limited(16), &path, 2);
        let mut stored = 30_000;
        fill(&store, 0..stored);
        for (megabytes, more) in [(8, 0), (64, 150_000), (48, 0), (64, 100_000)] {
            let (next, opened) = restart(way, store, &limited(megabytes), &path);
            let context = format!("{way:?}, {megabytes} MB: {opened:?}");
            assert_eq!(next.memory().limit, megabytes * MIB, "{context}");
            check(&next, 0..stored, &context);
            fill(&next, stored..stored + more);
            stored += more;
            check(&next, 0..stored, &context);
            store = next;
        }
        // Less than the present items: the cleaner evicts the rest.
        let (store, opened) = restart(way, store, &limited(16), &path);
        let context = format!("{way:?}: {opened:?}");
        check(&store, 0..stored, &context);
        let mut cleaner = Cleaner::new(&store).unwrap();
        (3..2_000).for_each(|secs| _ = cleaner.step(secs, 1_000));
        let memory = store.memory();
        let used = memory.arena + memory.index + memory.bags;
        assert!(used <= 16 * MIB, "{context}: {memory:?}");
        assert!(store.stats().items > 60_000, "{context}: {} items", store.stats().items);
    }
}

#[test]
fn a_too_low_limit_without_eviction_starts_cold() {
    let path = TempFile::new();
    let with = |megabytes| Config { evict: false, ..limited(megabytes) };
    for way in [Way::Clean, Way::Crash] {
        let (store, _) = open_as(&with(16), &path, 2);
        fill(&store, 0..60_000);
        let (store, opened) = restart(way, store, &with(4), &path);
        let Opened::Cold(Some(reason)) = opened else { panic!("{way:?}: {opened:?}") };
        assert!(reason.contains("-m is 4194304, but"), "{way:?}: {reason}");
        check(&store, 0..0, "empty");
        drop(store);
        std::fs::remove_file(path.path()).unwrap();
    }
}

/// A healthy predecessor continues with its items.
#[test]
fn a_successor_with_a_too_low_limit_changes_no_memory() {
    let path = TempFile::new();
    let with = |megabytes| Config { evict: false, ..limited(megabytes) };
    let (store, _) = open_as(&with(16), &path, 2);
    fill(&store, 0..60_000);
    store.close(at(2), TICKET).unwrap();
    let refused = succeed(&store, &with(4), &path).unwrap_err();
    assert!(matches!(refused, StoreError::Limit(LimitError::InUse { .. })), "{refused}");
    let (next, opened) = succeed(&store, &with(16), &path).unwrap();
    assert_eq!(opened, Opened::Warm(60_000));
    check(&next, 0..60_000, "the predecessor");
}

/// One number shows whether a successor can take over the file at a path.
#[test]
fn the_file_format_is_equal_for_all_limits_within_reach() {
    let path = TempFile::new();
    let (store, _) = open_as(&limited(16), &path, 2);
    let is_same = |config: Config| {
        MemoryFile::format(path.path(), &config).unwrap() == store.format().unwrap()
    };
    assert!(is_same(limited(16)) && is_same(limited(64)) && is_same(limited(2)));
    assert!(!is_same(limited(65)), "beyond its reach");
    assert!(!is_same(Config { growth_factor: 1.5, ..limited(64) }));
}
