//! Invalidations by number: the items that they hit, the codes that they use, and when they fail.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use super::*;
use std::cell::Cell;

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum, &byte| sum * 31 + u64::from(byte))
}

fn new() -> Invalidations {
    Invalidations::over(Region::reserve(words_of(1 << 20)).unwrap())
}

fn add(all: &Invalidations, prefix: &str) {
    let named = (!prefix.is_empty()).then(|| (prefix.len(), hash(prefix.as_bytes())));
    all.add(named).unwrap();
}

/// An item that was stored with this birth is dead.
fn is_dead(all: &Invalidations, key: &str, birth: Birth) -> bool {
    all.hits(key.as_bytes(), all.born(birth.code, || birth.stamp), hash)
}

#[test]
fn an_item_is_killed_by_later_invalidations_of_its_prefix() {
    let all = new();
    add(&all, "user:");
    let birth = all.births().of(false);
    add(&all, "cart:");
    assert!(!is_dead(&all, "user:1", birth));
    assert!(is_dead(&all, "cart:1", birth));
    assert!(!is_dead(&all, "cart", birth), "shorter than the prefix");
    add(&all, "");
    assert!(is_dead(&all, "user:1", birth));
    assert!(!is_dead(&all, "user:1", all.births().of(false)));
}

#[test]
fn the_last_invalidation_of_a_key_is_known() {
    let all = new();
    let last = |key: &str| all.last_of_key(key.as_bytes(), hash);
    assert_eq!((last("user:1"), all.last_of_all()), (0, 0));
    for prefix in ["user:", "user:1", "cart:"] {
        add(&all, prefix);
    }
    assert_eq!([last("user:1"), last("user:2"), last("cart:1"), last("user")], [2, 1, 3, 0]);
    add(&all, "");
    add(&all, "user:");
    assert_eq!([last("user:1"), last("cart:1"), last("x"), all.last_of_all()], [5, 4, 4, 4]);
}

/// Each of a hundred items is born between two invalidations of its prefix, and none is purged.
#[test]
fn a_stamp_records_the_birth_once_codes_have_run_out() {
    let all = new();
    let births: Vec<Birth> = (0..100)
        .map(|_| {
            add(&all, "a");
            let birth = all.births().of(true);
            assert!(!is_dead(&all, "a1", birth));
            birth
        })
        .collect();
    assert!(births.iter().filter(|birth| birth.code != STAMPED).count() < CODES as usize);
    for birth in &births[..99] {
        assert!(is_dead(&all, "a1", *birth) && !is_dead(&all, "b1", *birth));
    }
    assert!(all.needs_stamps());
    while all.outstanding() > 0 {
        all.end_purge(all.begin_purge());
    }
    assert!(!all.needs_stamps());
    assert_eq!(all.prefixes(), 100);
}

#[test]
fn an_unstamped_item_is_at_most_as_old_as_its_draft() {
    let all = new();
    for _ in 0..6 {
        add(&all, "old");
    }
    let (_, drafted_at) = all.newest();
    add(&all, "since");
    let birth = all.births().of(false);
    assert!(all.needs_stamps() && all.born(birth.code, || 0) >= drafted_at);
    assert!(!is_dead(&all, "old", birth) && is_dead(&all, "since", birth));
}

#[test]
fn a_full_bucket_refuses_until_it_is_purged() {
    let all = new();
    let mut refused = None;
    for number in 0_u64.. {
        if all.add(Some((1, number << 32))) == Err(Full) {
            refused = Some(number);
            break;
        }
    }
    assert_eq!(refused, Some(WAYS as u64));
    assert_eq!(all.count(), WAYS as u64, "the refused one does not count");
    all.add(Some((1, 0))).unwrap();
    all.add(None).unwrap();
    all.add(Some((1, 99 << 32))).unwrap();
    while all.outstanding() > 0 {
        all.end_purge(all.begin_purge());
    }
    for number in 100..100 + WAYS as u64 {
        all.add(Some((1, number << 32))).unwrap();
    }
}

#[test]
fn forgotten_prefixes_count_as_invalidated() {
    let all = new();
    add(&all, "x");
    assert!(!all.since(b"k", 0, hash) && all.since(b"x", 0, hash) && !all.since(b"x", 1, hash));
    while all.outstanding() > 0 {
        all.end_purge(all.begin_purge());
    }
    assert!(!all.since(b"k", 0, hash), "purged, but not forgotten");
    for number in 0..WAYS as u64 {
        all.add(Some((2, number << 32 | hash(b"x")))).unwrap();
    }
    assert!(all.since(b"k", 0, hash) && !all.since(b"k", 1, hash));
}

/// A reader has checked whether everything was invalidated; then everything is, and the entry of
/// the prefix that killed its item is reused.
#[test]
fn an_entry_reused_during_a_check_revives_no_item() {
    let all = new();
    let birth = all.births().of(false);
    let own = hash(b"user:");
    all.add(Some((5, own))).unwrap();
    // Only the low 32 bits choose the bucket, which is full now.
    for other in 1..WAYS as u64 {
        all.add(Some((7, own + (other << 32)))).unwrap();
    }
    let born = all.born(birth.code, || birth.stamp);
    assert!(all.hits(b"user:1", born, hash));
    let is_taken = Cell::new(false);
    let is_dead = all.hits(b"user:1", born, |prefix| {
        if prefix == b"user:" && !is_taken.replace(true) {
            all.add(None).unwrap();
            all.add(Some((9, own + (1 << 50)))).unwrap();
        }
        hash(prefix)
    });
    assert!(is_taken.get() && is_dead);
}

#[test]
fn a_damaged_file_does_not_block_invalidations() {
    let words: Region<AtomicU64> = Region::reserve(words_of(1 << 20)).unwrap();
    (0..words.len()).for_each(|at| words[at].store(u64::MAX, Ordering::Relaxed));
    let all = Invalidations::over(words);
    add(&all, "");
    add(&all, "k");
    all.end_purge(all.begin_purge());
    assert!(!is_dead(&all, "k", all.births().of(true)));
}
