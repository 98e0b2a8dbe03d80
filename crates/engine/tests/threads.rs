//! Operations that read, compute and write, from several threads on one key: nothing may be lost or
//! done twice.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::sync::Arc;
use std::thread;

use common::{settings, store};
use engine::{
    Arithmetic, Condition, Counted, Delete, Deleted, Direction, Mode, NewValue, Shared, Verdict,
    Vivify, Worker,
};

const THREADS: u32 = 4;

fn shared() -> Arc<Shared> {
    Shared::new(store(), settings())
}

/// Runs `body` in every thread, with the thread's number and a worker.
fn in_threads(shared: &Arc<Shared>, body: impl Fn(u32, &Worker) + Sync) {
    thread::scope(|scope| {
        for number in 0..THREADS {
            let body = &body;
            scope.spawn(move || {
                let worker = Worker::join(shared).unwrap();
                worker.begin_turn(2);
                body(number, &worker);
                worker.rest();
            });
        }
    });
}

fn value_of(shared: &Arc<Shared>, key: &[u8]) -> Vec<u8> {
    let worker = Worker::join(shared).unwrap();
    worker.begin_turn(2);
    let mut value = Vec::new();
    let section = worker.section();
    let item = worker.get(&section, &worker.key(key)).unwrap();
    item.for_each_piece(|piece| value.extend_from_slice(piece));
    value
}

/// Every increment counts once, the one that creates the item included, over four changes of the
/// number's length.
#[test]
fn increments_are_not_lost() {
    const EACH: u64 = 5000;
    let shared = shared();
    let vivify = Vivify { initial: 1, deadline: 0, base64_key: false };
    let how = Arithmetic {
        direction: Direction::Incr,
        delta: 1,
        compare: None,
        cas: None,
        shows_cas: false,
        deadline: None,
        vivify: Some(vivify),
    };
    in_threads(&shared, |_, worker| {
        for _ in 0..EACH {
            let counted = worker.arithmetic(worker.key(b"n"), &how);
            assert!(matches!(counted, Counted::Done { .. }), "{counted:?}");
            worker.quiesce();
        }
    });
    assert_eq!(value_of(&shared, b"n"), (u64::from(THREADS) * EACH).to_string().into_bytes());
}

/// Every appended word is there once, each thread's words in order, while the value outgrows one
/// chunk.
#[test]
fn appended_words_are_not_lost() {
    const EACH: usize = 1500;
    let shared = shared();
    let condition = Condition { vivify_deadline: Some(0), ..Condition::of(Mode::Append) };
    let new = NewValue { flags: 0, deadline: 0, value_len: 0, base64_key: false, has_cas: true };
    in_threads(&shared, |number, worker| {
        for word in 0..EACH {
            let bytes = format!("{number}-{word} ").into_bytes();
            let stored = worker.concat(worker.key(b"words"), &new, &condition, &bytes);
            assert_eq!(stored.verdict, Verdict::Stored);
            worker.quiesce();
        }
    });
    let value = String::from_utf8(value_of(&shared, b"words")).unwrap();
    assert!(value.len() > 20_000, "the value stays in one chunk: {} bytes", value.len());
    for number in 0..THREADS {
        let prefix = format!("{number}-");
        let words: Vec<_> =
            value.split(' ').filter_map(|word| word.strip_prefix(&prefix)).collect();
        assert_eq!(words, (0..EACH).map(|word| word.to_string()).collect::<Vec<_>>());
    }
}

/// One thread wins each round's right to renew; the others are informed or see the winner's value.
#[test]
fn a_stale_item_has_one_winner() {
    let shared = shared();
    let wins = std::sync::atomic::AtomicU32::new(0);
    let keys: Vec<_> = (0..2000).map(|key| format!("key{key}").into_bytes()).collect();
    let how = engine::MetaGet { vivify_deadline: Some(0), ..engine::MetaGet::default() };
    in_threads(&shared, |_, worker| {
        for key in &keys {
            let is_winner =
                worker.meta_get_or_create(worker.key(key), &how, |hit| hit.is_winner).unwrap();
            wins.fetch_add(u32::from(is_winner), std::sync::atomic::Ordering::Relaxed);
            worker.quiesce();
        }
    });
    assert_eq!(wins.into_inner(), 2000);
}

/// An operation that leaves an item at a key leaves it there at every moment, and stale from its
/// first: no reader sees a miss, or an unmarked item.
#[test]
fn a_stale_item_is_never_missed_and_never_fresh() {
    let shared = shared();
    let key = b"stale";
    let new = NewValue { flags: 0, deadline: 0, value_len: 1, base64_key: false, has_cas: true };
    // Lower than every cas unique that the store gives out, once there has been one.
    let condition = Condition { compare: Some(1), invalidate: true, ..Condition::of(Mode::Set) };
    let to_empty =
        Delete { invalidate: true, empty_flags: Some(0), base64_key: false, ..Delete::default() };
    let store = |worker: &Worker, condition: &Condition| {
        let mut draft = worker.draft(worker.key(key), &new).unwrap();
        draft.push(b"x").unwrap();
        worker.store(worker.key(key), &new, condition, draft)
    };
    {
        let worker = Worker::join(&shared).unwrap();
        worker.begin_turn(2);
        let first = Condition { cas: Some(1000), ..Condition::of(Mode::Set) };
        assert_eq!(store(&worker, &first).verdict, Verdict::Stored);
        assert_eq!(store(&worker, &condition).verdict, Verdict::Stored);
        worker.rest();
    }
    in_threads(&shared, |number, worker| {
        for _ in 0..3000 {
            match number {
                0 => assert_eq!(store(worker, &condition).verdict, Verdict::Stored),
                1 => {
                    let deleted = worker.delete(worker.key(key), &to_empty);
                    assert!(matches!(deleted, Deleted::Done { .. }), "{deleted:?}");
                }
                _ => {
                    let section = worker.section();
                    let item = worker.get(&section, &worker.key(key)).unwrap();
                    assert!(item.is_stale());
                }
            }
            worker.quiesce();
        }
    });
}

/// Readers of an item that is stored and invalidated in turn never get the cas unique of an
/// invalidation without the mark of a stale value, since its holder may store; nor the mark with
/// the previous cas unique.
#[test]
fn the_cas_unique_of_an_invalidation_comes_with_its_mark() {
    const ROUNDS: u64 = 50_000;
    let shared = shared();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let key = b"version";
    let new = NewValue { flags: 0, deadline: 0, value_len: 1, base64_key: false, has_cas: true };
    let how = engine::MetaGet {
        no_bump: true,
        no_claim: true,
        wants_cas: engine::Cas::Needed,
        ..engine::MetaGet::default()
    };
    let write = |worker: &Worker| {
        for round in 1..=ROUNDS {
            // Even cas uniques are those of fresh values, odd ones of invalidations.
            let condition = Condition { cas: Some(2 * round), ..Condition::of(Mode::Set) };
            let mut draft = worker.draft(worker.key(key), &new).unwrap();
            draft.push(b"x").unwrap();
            let stored = worker.store(worker.key(key), &new, &condition, draft);
            assert_eq!(stored.verdict, Verdict::Stored);
            let stale = Delete { invalidate: true, cas: Some(2 * round + 1), ..Delete::default() };
            assert!(matches!(worker.delete(worker.key(key), &stale), Deleted::Done { .. }));
            worker.quiesce();
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    let read = |worker: &Worker| {
        let mut reads = 0_u64;
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            let section = worker.section();
            if let Ok(hit) = worker.meta_get(&section, worker.key(key), &how) {
                // A reply is written after the item is found.
                thread::yield_now();
                let cas = worker.cas_of_hit(&hit, true);
                assert_eq!(hit.is_stale, !cas.is_multiple_of(2), "cas unique {cas}");
                reads += 1;
            }
            drop(section);
            worker.quiesce();
        }
        reads
    };
    in_threads(&shared, |number, worker| match number {
        0 => write(worker),
        _ => assert!(read(worker) > 0),
    });
}
