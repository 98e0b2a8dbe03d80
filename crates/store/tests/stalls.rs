//! Threads that stop: one that stops between requests delays no other, and one that stops during a
//! request keeps the items that it found.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test stops where it fails; it uses a part of what is shared"
)]

mod common;

use common::{delete, get, set};
use std::sync::{Arc, mpsc};
use store::{Cleaner, Config, DraftError, Handle, Policy, Store};

fn store_of(megabytes: u64) -> Arc<Store> {
    // Items that were read must be evicted as well.
    let policy = Policy::Bag;
    let memory_bytes = megabytes << 20;
    Store::new(Config { memory_bytes, policy, seed: 1, ..Config::default() }).unwrap()
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:08}").into_bytes()
}

/// Stores values one after the other, each in a separate turn. Returns the number stored before one
/// was refused.
fn store_many(me: &Handle, numbers: std::ops::Range<u32>) -> u32 {
    for number in numbers.clone() {
        me.begin_turn(1);
        if set(me, &key(number), &[b'v'; 100], 0, 0) == Err(DraftError::OutOfMemory) {
            return number - numbers.start;
        }
        me.quiesce();
    }
    numbers.end - numbers.start
}

/// A thread that starts a turn, calls `body`, and stops there until the second end is dropped. The
/// first end signals that it has stopped.
fn stopped(
    store: &Arc<Store>,
    body: impl FnOnce(&Handle, &dyn Fn()) + Send + 'static,
) -> (std::thread::JoinHandle<()>, mpsc::Sender<()>) {
    let (has_stopped, wait) = mpsc::channel();
    let (end, is_over) = mpsc::channel::<()>();
    let store = Arc::clone(store);
    let thread = std::thread::spawn(move || {
        let me = store.join().unwrap();
        me.begin_turn(1);
        body(&me, &|| {
            has_stopped.send(()).unwrap();
            is_over.recv().unwrap_err();
        });
    });
    wait.recv().unwrap();
    (thread, end)
}

#[test]
fn a_thread_stopped_between_requests_blocks_no_store() {
    let store = store_of(16);
    let me = store.join().unwrap();
    assert_eq!(store_many(&me, 0..1000), 1000);
    let (thread, end) = stopped(&store, |me, stop| {
        assert!(get(me, &key(7)).is_some());
        stop();
        assert_eq!(get(me, &key(7)), None, "evicted meanwhile");
    });
    assert_eq!(store_many(&me, 1000..300_000), 299_000);
    assert!(store.stats().evictions > 100_000);
    drop(end);
    thread.join().unwrap();
}

/// Most values have one length and some another, so that classes need pages of each other. Those of
/// 16,000 bytes share their class with the pieces of longer ones.
#[test]
fn a_thread_stopped_between_requests_blocks_no_value_size() {
    const LENS: [usize; 5] = [100, 1000, 9000, 16_000, 200_000];
    for (often, seldom) in LENS.into_iter().flat_map(|often| LENS.map(|seldom| (often, seldom))) {
        let store = store_of(8);
        let me = store.join().unwrap();
        let (thread, end) = stopped(&store, |_, stop| stop());
        let (mut stored_bytes, mut number) = (0, 0);
        while stored_bytes < 16 << 20 {
            me.begin_turn(1);
            let len = if number % 16 == 15 { seldom } else { often };
            let stored = set(&me, &key(number), &vec![b'v'; len], 0, 0);
            assert!(stored.is_ok(), "{often} and {seldom} bytes, {number}: {stored:?}");
            me.quiesce();
            (stored_bytes, number) = (stored_bytes + len, number + 1);
        }
        drop(end);
        thread.join().unwrap();
    }
}

#[test]
fn a_thread_stopped_in_a_request_delays_no_store_twice() {
    let store = store_of(16);
    let me = store.join().unwrap();
    assert_eq!(store_many(&me, 0..300_000), 300_000);
    me.rest();
    let (thread, end) = stopped(&store, |me, stop| {
        let key = key(299_999);
        let section = me.section();
        let item = section.find(me.store().hash(&key), &key).unwrap();
        stop();
        assert_eq!((item.key(), item.inline_value()), (&*key, Some(&[b'v'; 100][..])));
    });
    let stored = store_many(&me, 300_000..600_000);
    assert!(stored < 100_000, "what was found may be reused after {stored} stores");
    // If each waited as long as the first, this would take hours.
    assert!((0..100_000).all(|number| store_many(&me, number..number + 1) == 0));
    drop(end);
    thread.join().unwrap();
    assert_eq!(store_many(&me, 600_000..700_000), 100_000);
}

/// A thread that has held stores up ends its section, and stops again within the same turn.
#[test]
fn stores_continue_after_the_awaited_section_ends() {
    let store = store_of(16);
    let me = store.join().unwrap();
    assert_eq!(store_many(&me, 0..300_000), 300_000);
    me.rest();
    let (end_turn, is_turn_over) = mpsc::channel::<()>();
    let (left, has_left) = mpsc::channel();
    let (thread, end_section) = stopped(&store, move |me, stop| {
        let key = key(299_999);
        let section = me.section();
        assert!(section.find(me.store().hash(&key), &key).is_some());
        stop();
        drop(section);
        left.send(()).unwrap();
        is_turn_over.recv().unwrap_err();
    });
    assert!(store_many(&me, 300_000..600_000) < 100_000);
    assert_eq!(store_many(&me, 600_000..600_001), 0);
    drop(end_section);
    has_left.recv().unwrap();
    assert_eq!(store_many(&me, 700_000..800_000), 100_000);
    drop(end_turn);
    thread.join().unwrap();
}

#[test]
fn stores_use_chunks_freed_by_the_cleaner() {
    let store = store_of(16);
    let (me, mut cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
    let mut next = 0;
    let mut work = |steps: u32, first: Option<u32>| {
        for _ in 0..steps {
            let from = first.unwrap_or(next);
            assert_eq!(store_many(&me, from..from + 100), 100);
            next += 100;
            me.rest();
            cleaner.step(1, 2000);
        }
    };
    work(1500, None);
    let before = store.stats();
    work(1000, None);
    let after = store.stats();
    assert!(after.evictions - before.evictions > 90_000, "{after:?}");
    // Not never: a page that leaves the class takes free chunks with it.
    let direct = after.direct_reclaims - before.direct_reclaims;
    assert!(direct < 20, "{direct} stores had to evict");
    let class = store.class_stats(1).into_iter().max_by_key(|class| class.chunks).unwrap();
    assert!(class.chunks_free <= class.chunks / 100 + 32, "{class:?}");
    // Overwritten memory comes back, so hardly anything is evicted for it: bags may need a page.
    work(50, Some(1_000_000));
    let before = store.stats();
    work(1000, Some(1_000_000));
    let evicted = store.stats().evictions - before.evictions;
    assert!(evicted < 1000, "{evicted} evicted for 100,000 overwrites");
}

/// A thread that stops between requests, after it has stored many items and deleted some or all. It
/// keeps some of their chunks.
fn stopped_with_kept_chunks(
    store: &Arc<Store>,
    left: u32,
) -> (std::thread::JoinHandle<()>, mpsc::Sender<()>) {
    stopped(store, move |me, stop| {
        assert_eq!(store_many(me, 0..50_000), 50_000);
        for number in (left..50_000).rev() {
            assert!(delete(me, &key(number)));
            me.quiesce();
        }
        me.rest();
        me.begin_turn(1);
        stop();
    })
}

#[test]
fn chunks_kept_by_a_stopped_thread_serve_others() {
    let evict = false;
    let store = Store::new(Config { memory_bytes: 16 << 20, evict, seed: 1, ..Config::default() });
    let store = store.unwrap();
    let (thread, end) = stopped_with_kept_chunks(&store, 49_000);
    let me = store.join().unwrap();
    assert!(store_many(&me, 50_000..1_000_000) > 10_000);
    let class = store.class_stats(1).into_iter().max_by_key(|class| class.chunks).unwrap();
    assert_eq!((class.chunks_free, class.items), (0, class.chunks), "a store was refused");
    drop(end);
    thread.join().unwrap();
}

#[test]
fn pages_with_chunks_kept_by_a_stopped_thread_are_released() {
    let store = store_of(16);
    let (thread, end) = stopped_with_kept_chunks(&store, 0);
    let mut cleaner = Cleaner::new(&store).unwrap();
    let kept = store.memory().arena;
    assert!(kept > 5 << 20, "{kept}");
    store.charge_buffers(16 << 20);
    (0..3000).for_each(|_| _ = cleaner.step(1, 2000));
    let classes = store.class_stats(1);
    assert!(classes.is_empty(), "a class without items keeps no page: {classes:?}");
    drop(end);
    thread.join().unwrap();
}
