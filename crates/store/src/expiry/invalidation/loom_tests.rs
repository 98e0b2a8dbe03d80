//! Models of invalidations: readers, leases and the purge against an invalidating thread.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use super::*;
use loom::sync::Arc;
use loom::thread;

fn hash(bytes: &[u8]) -> u64 {
    u64::from(bytes[0])
}

fn prefix(byte: u8) -> Option<(usize, u64)> {
    Some((1, u64::from(byte)))
}

/// One bucket of two places.
fn new() -> Invalidations {
    Invalidations::over(Region::reserve(TABLE + WAYS * PLACE_WORDS).unwrap())
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(f);
}

/// The birth of an item that a thread invalidates by its prefix `k` from now on.
fn invalidated_meanwhile() -> (Arc<Invalidations>, Birth, thread::JoinHandle<()>) {
    let all = Arc::new(new());
    let birth = all.births().of(false);
    let invalidator = thread::spawn({
        let all = Arc::clone(&all);
        move || all.add(prefix(b'k')).unwrap()
    });
    (all, birth, invalidator)
}

/// A reader that no longer sees an item as plain sees the invalidation that killed it.
///
/// Seen to fail: `settle` that stores `plain` with Relaxed.
#[test]
fn loom_an_invalidated_item_is_seen_as_dead() {
    model(|| {
        let (all, birth, invalidator) = invalidated_meanwhile();
        if all.plain() != birth.code << CODE_SHIFT {
            assert!(all.hits(b"k", all.born(birth.code, || 0), hash));
            assert!(!all.hits(b"a", all.born(birth.code, || 0), hash), "another prefix died");
        }
        invalidator.join().unwrap();
    });
}

/// A store that sees an item as dead replaces it under a birth that the invalidation spares, unless
/// that is still being added.
///
/// Seen to fail: `adding` stored with Relaxed at the end of `add`.
#[test]
fn loom_a_replacement_of_a_dead_item_is_live() {
    model(|| {
        let (all, birth, invalidator) = invalidated_meanwhile();
        if all.hits(b"k", all.born(birth.code, || 0), hash) {
            let is_complete = all.adding.load(Ordering::Acquire) == 0;
            let next = all.births_after_seen().of(false);
            let is_dead = all.hits(b"k", all.born(next.code, || 0), hash);
            assert!(!is_complete || !is_dead);
        }
        invalidator.join().unwrap();
    });
}

/// A key of a lease was invalidated before its token came back; another invalidation overwrites the
/// table entry that records this during the search for it. The token is still refused: the entry is
/// found, or is forgotten.
///
/// Seen to fail: `hits` without its fence.
#[test]
fn loom_an_overwritten_entry_is_found_or_forgotten() {
    model(|| {
        let all = Arc::new(new());
        all.add(prefix(b'k')).unwrap();
        all.add(prefix(b'a')).unwrap();
        all.end_purge(all.begin_purge());
        let invalidator = thread::spawn({
            let all = Arc::clone(&all);
            move || all.add(prefix(b'b')).unwrap()
        });
        assert!(all.since(b"k", 0, hash), "a token outlived the invalidation of its key");
        invalidator.join().unwrap();
    });
}

/// The same while everything is invalidated, which makes room for the other invalidation: an item
/// that was dead before the look stays dead.
///
/// Seen to fail: `hits` without its second look, and without its fence.
#[test]
fn loom_an_item_of_an_overwritten_entry_stays_dead() {
    model(|| {
        let all = Arc::new(new());
        let birth = all.births().of(false);
        all.add(prefix(b'k')).unwrap();
        all.add(prefix(b'a')).unwrap();
        let invalidator = thread::spawn({
            let all = Arc::clone(&all);
            move || {
                all.add(None).unwrap();
                all.add(prefix(b'b')).unwrap();
            }
        });
        assert!(all.hits(b"k", all.born(birth.code, || 0), hash), "a dead item came back");
        invalidator.join().unwrap();
    });
}

/// The purge gives a survivor the newest code while its prefix is invalidated: it is dead
/// afterwards, whichever came first.
///
/// Seen to fail: a renewal that reads the newest code after the judgement.
#[test]
fn loom_a_renewed_item_still_dies() {
    model(|| {
        let all = Arc::new(new());
        let item = Arc::new(AtomicU32::new(all.births().of(false).code));
        all.add(prefix(b'a')).unwrap();
        let purge = thread::spawn({
            let (all, item) = (Arc::clone(&all), Arc::clone(&item));
            move || {
                let (code, newest) = all.newest();
                let born = all.born(item.load(Ordering::Acquire), || 0);
                if born < newest && !all.hits(b"k", born, hash) {
                    item.store(code, Ordering::Release);
                }
            }
        });
        all.add(prefix(b'k')).unwrap();
        purge.join().unwrap();
        let born = all.born(item.load(Ordering::Acquire), || 0);
        assert!(all.hits(b"k", born, hash));
    });
}
