//! The table against a model, and lookups of real threads while it grows; the races are also in
//! `loom_tests`.
//!
//! Items are numbers: the item behind reference `r` has key `r / 2`, so each key has two items.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use super::bucket::BUCKET_BYTES;
use super::{STEP_BUCKETS, Shape, Split, Table, Wanted};
use arena::sync::{AtomicU32, Ordering};
use narrow::to_usize;
use std::collections::HashMap;
use std::thread;

/// A well-mixed hash of a number: the finalizer of SplitMix64.
fn mix(number: u64) -> u64 {
    let x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn table(buckets: usize, buckets_max: usize, stripes: usize) -> Table {
    Table::new(Shape { buckets, buckets_max, overflow_max: 1 << 16, stripes }).unwrap()
}

/// Applies random operations to the table and to std's map, with splits in between, for one way of
/// hashing keys.
fn check_against_model(seed: u64, hash: fn(u64) -> u64) {
    let table = table(4, 1 << 10, 4);
    let mut model: HashMap<u64, u32> = HashMap::new();
    let steps: u64 = if cfg!(miri) { 2_000 } else { 60_000 };
    for step in 0..steps {
        let random = mix(seed.wrapping_mul(steps) + step);
        // The population rises to thousands of keys, and falls in the last third.
        let keys = 1 + 4_000 * step / steps;
        let key = (random >> 8) % keys;
        let reference = u32::try_from(key * 2 + 2 + (random & 1)).unwrap();
        let is_key = |candidate: u32| u64::from(candidate / 2 - 1) == key;
        let mut locked = table.lock(hash(key));
        let removes = if step > steps * 2 / 3 { 5 } else { 2 };
        match (locked.find(is_key), (random >> 1) % 8 < removes) {
            (Some(slot), true) => {
                assert_eq!(model.remove(&key), Some(slot.reference()), "seed {seed} step {step}");
                locked.remove(slot);
            }
            (Some(slot), false) => {
                assert_eq!(model.insert(key, reference), Some(slot.reference()));
                locked.replace(slot, reference);
                assert!(locked.find_ref(reference).is_some());
            }
            (None, _) => {
                assert_eq!(model.insert(key, reference), None, "seed {seed} step {step}");
                assert!(locked.insert(reference, |_| true));
            }
        }
        drop(locked);
        match random >> 32 & 7 {
            0 | 1 => {
                table.split_one(|r| hash(u64::from(r / 2 - 1)), |_| true);
            }
            2 if table.surplus() > 0 || random >> 35 & 7 == 0 => {
                table.merge_one();
            }
            3 if random >> 35 & 7 == 0 => {
                table.move_overflow(to_usize(random >> 40) % table.buckets(), 3);
            }
            _ => {}
        }
        let other = (random >> 20) % keys;
        let found = table.find(hash(other), |r| u64::from(r / 2 - 1) == other);
        assert_eq!(found, model.get(&other).copied(), "seed {seed} step {step}");
    }
    assert_eq!(table.items(), model.len());
    for (&key, &reference) in &model {
        assert_eq!(table.find(hash(key), |r| r == reference), Some(reference));
        // The hint may be another item of this tag.
        let mut is_seen = false;
        let bucket = table.prefetch(hash(key));
        let hint = table.hint(hash(key), bucket, |seen| is_seen |= seen == reference);
        is_seen |= hint.reference().is_some();
        assert!(is_seen, "hint and candidates leave out what a lookup would find");
    }
    model.iter().for_each(|(&key, &reference)| {
        let locked = table.lock(hash(key));
        locked.remove(locked.find_ref(reference).unwrap());
    });
    assert_eq!(
        (table.items(), table.overflow_buckets()),
        (0, 0),
        "an empty table keeps no overflow"
    );
}

/// Seen to fail: `Directory::moves` by the wrong bit; `compact` without copying the tag.
#[test]
fn table_agrees_with_a_map() {
    (0..4).for_each(|seed| check_against_model(seed, mix));
}

/// The table also agrees with a model when all keys fall into 8 buckets with 16 tags, so that
/// chains are long.
#[test]
fn table_agrees_with_a_map_when_crowded() {
    (0..2).for_each(|seed| check_against_model(seed, |key| mix(key) & 0xf000_0000_0000_0007));
}

/// A lookup that starts at the bucket of before a split finds the same as one without a hint.
#[test]
fn a_bucket_hint_stays_valid_after_splits() {
    let table = table(1, 64, 1);
    let hash = |reference: u32| mix(u64::from(reference));
    let references = 1..=100;
    for reference in references.clone() {
        assert!(table.lock(hash(reference)).insert(reference, |_| true));
    }
    let buckets: Vec<_> = references.clone().map(|known| table.prefetch(hash(known))).collect();
    while matches!(table.split_one(hash, |_| true), Split::Done) {}
    for (reference, bucket) in references.zip(buckets) {
        let hint = table.hint(hash(reference), bucket, |_| {});
        assert!(table.at(hint).is_none_or(|seen| (1..=100).contains(&seen)));
        let locked = table.lock(hash(reference));
        let slot = locked.find_from(hint, |seen| seen == reference);
        assert_eq!(slot.map(|slot| slot.reference()), Some(reference));
    }
}

#[test]
fn a_table_grows_until_its_buckets_suffice() {
    let table = table(1, 1 << 16, 1);
    for reference in 1..=1000_u32 {
        assert!(table.lock(mix(u64::from(reference))).insert(reference, |_| true));
    }
    assert!(table.wants_growth());
    while table.split_one(|r| mix(u64::from(r)), |_| true) == Split::Done {}
    assert!(!table.wants_growth() && !table.buckets().is_power_of_two());
}

/// Growth keeps the load near ten items per bucket, and uses the memory that was requested.
#[test]
fn growth_follows_the_items() {
    let table = table(1, 1 << 16, 1);
    let mut asked = table.bytes();
    assert_eq!(asked, 64);
    for reference in 1..=40_000_u32 {
        let grant = |wanted: Wanted<'_>| {
            asked += wanted.len() * BUCKET_BYTES;
            true
        };
        assert!(table.lock(mix(u64::from(reference))).insert(reference, grant));
        let grant = |wanted: Wanted<'_>| {
            asked += wanted.len() * BUCKET_BYTES;
            true
        };
        table.split_one(|r| mix(u64::from(r)), grant);
    }
    assert!(!table.wants_growth());
    let load = 40_000 / table.buckets();
    assert!((9..=10).contains(&load), "{load} items a bucket");
    assert_eq!(table.level(), table.buckets().ilog2());
    assert_eq!(asked, table.bytes());
    assert!(table.bytes() >= (table.buckets() + table.overflow_buckets()) * 64);
}

/// A table shrinks as its items leave, keeps the rest and its load, and frees the memory that it
/// has requested.
#[test]
fn a_table_shrinks_with_its_items() {
    let (items, left) = (200_000_u32, 10_000_u32);
    let table = table(64, 1 << 16, 4);
    let hash = |reference: u32| mix(u64::from(reference));
    for reference in 1..=items {
        assert!(table.lock(hash(reference)).insert(reference, |_| true));
        table.split_one(hash, |_| true);
    }
    assert!(table.surplus() == 0 && !table.has_unused());
    let before = table.bytes();
    for reference in left + 1..=items {
        let locked = table.lock(hash(reference));
        locked.remove(locked.find_ref(reference).unwrap());
    }
    let mut given_back = 0;
    for _ in 0..table.surplus() {
        assert!(table.merge_one());
        if table.has_unused() {
            given_back += table.give_back();
        }
    }
    let load = left as usize / table.buckets();
    assert!((6..=7).contains(&load), "{load} items a bucket");
    assert_eq!(table.bytes() as u64, before as u64 - given_back);
    let kept = table.begin_without_overflow().unwrap();
    while !table.sift_overflow(100) {}
    (0..table.buckets()).for_each(|home| table.move_overflow(home, kept));
    assert!(table.is_without_overflow());
    table.end_without_overflow();
    let bytes = table.bytes();
    given_back = std::iter::repeat_with(|| table.give_back_overflow()).take_while(|&b| b > 0).sum();
    assert_eq!(
        (table.bytes() as u64, table.begin_without_overflow()),
        (bytes as u64 - given_back, None)
    );
    assert!(table.bytes() < before / 5, "{before} bytes became {}", table.bytes());
    assert!((1..=left).all(|r| table.find(hash(r), |c| c == r) == Some(r)));
    assert_eq!(table.items(), left as usize);
    // Freed memory is taken again.
    for reference in left + 1..=items {
        assert!(table.lock(hash(reference)).insert(reference, |_| true));
        table.split_one(hash, |_| true);
    }
    assert!(table.bytes().abs_diff(before) <= STEP_BUCKETS * BUCKET_BYTES);
    assert!((1..=items).all(|r| table.find(hash(r), |c| c == r) == Some(r)));
}

/// An insertion that needs overflow buckets gets all that are paid for, sifted, retired or neither,
/// and none of them is freed.
#[cfg(not(miri))]
#[test]
fn needed_overflow_buckets_are_not_released() {
    let table = Table::new(Shape { buckets: 1, buckets_max: 1, overflow_max: 1 << 13, stripes: 1 });
    let pool = &table.unwrap().overflow;
    let len = 4 * STEP_BUCKETS;
    let take = |_| pool.take(&mut |_| true).unwrap();
    (0..len).map(take).collect::<Vec<_>>().into_iter().for_each(|index| pool.give_back(index));
    for sifted in [0, 100, len] {
        assert_eq!((pool.in_use(), pool.begin_shrinking()), (0, Some(STEP_BUCKETS)));
        assert_eq!(pool.sift(sifted), sifted == len);
        assert_eq!(pool.has_retired_all(), sifted == len);
        let taken: Vec<_> = (0..len).map(|_| pool.take(&mut |_| false).unwrap()).collect();
        assert_eq!(taken.iter().collect::<std::collections::HashSet<_>>().len(), len);
        pool.end_shrinking();
        assert_eq!((pool.release(), pool.in_use(), pool.granted()), (0, len, len));
        taken.into_iter().for_each(|index| pool.give_back(index));
        pool.keep_all();
    }
}

/// The first buckets stay, and the last one that would need an overflow bucket stays, too.
#[test]
fn a_merge_without_an_overflow_bucket_is_undone() {
    let table = Table::new(Shape { buckets: 1, buckets_max: 4, overflow_max: 1, stripes: 1 });
    let table = table.unwrap();
    assert!(!table.merge_one(), "the first bucket");
    let hash = |reference: u32| u64::from(reference) << 56 | u64::from(reference & 1);
    (1..=12).for_each(|r| assert!(table.lock(hash(r)).insert(r, |_| true)));
    assert_eq!(table.split_one(hash, |_| true), Split::Done);
    (13..=14).for_each(|r| assert!(table.lock(hash(r)).insert(r, |_| true)));
    // Seven items in each: no overflow bucket has been in use, so none is free.
    assert!(!table.merge_one());
    assert_eq!((table.buckets(), table.overflow_buckets()), (2, 0));
    assert!((1..=14).all(|r| table.find(hash(r), |c| c == r) == Some(r)));
    for r in 13..=14 {
        let locked = table.lock(hash(r));
        locked.remove(locked.find_ref(r).unwrap());
    }
    assert!(table.merge_one());
    assert_eq!((table.buckets(), table.items()), (1, 12));
    assert!((1..=12).all(|r| table.find(hash(r), |c| c == r) == Some(r)));
}

/// Refused memory stops growth and then insertion, loses nothing, and both continue when there is
/// memory again.
#[test]
fn refused_memory_changes_nothing() {
    let table = table(1, 64, 1);
    let mut inserted = 0;
    while table.lock(mix(inserted)).insert(u32::try_from(inserted).unwrap() + 1, |_| false) {
        inserted += 1;
    }
    assert_eq!(inserted, 12, "one bucket, no overflow");
    let rehash = |r: u32| mix(u64::from(r) - 1);
    assert_eq!(table.split_one(rehash, |_| false), Split::NoMemory);
    assert_eq!((table.buckets(), table.bytes(), table.items()), (1, 64, 12));
    assert_eq!(table.split_one(rehash, |_| true), Split::Done);
    assert_eq!(table.split_one(rehash, |_| true), Split::NotNeeded);
    for key in 0..inserted {
        assert!(table.find(mix(key), |r| rehash(r) == mix(key)).is_some());
    }
}

/// A split whose new bucket cannot overflow because memory is refused is undone.
#[test]
fn a_split_without_overflow_memory_is_undone() {
    let table = Table::new(Shape { buckets: 1, buckets_max: 4, overflow_max: 1, stripes: 1 });
    let table = table.unwrap();
    // All hashes move to bucket 1, where 13 items need the overflow bucket that bucket 0 has.
    let hash = |reference: u32| u64::from(reference) << 56 | 1;
    (1..=13).for_each(|r| assert!(table.lock(hash(r)).insert(r, |_| true)));
    assert_eq!(table.split_one(hash, |_| true), Split::NoMemory);
    assert_eq!((table.buckets(), table.overflow_buckets()), (1, 1));
    assert!((1..=13).all(|r| table.find(hash(r), |c| c == r) == Some(r)));
    let locked = table.lock(hash(1));
    locked.remove(locked.find_ref(1).unwrap());
    drop(locked);
    assert_eq!(table.split_one(hash, |_| true), Split::Done);
    assert!((2..=13).all(|r| table.find(hash(r), |c| c == r) == Some(r)));
    assert_eq!(table.find(hash(1), |c| c == 1), None);
}

/// The recovery's knowledge of a test's references: each is an item that must be found once.
#[cfg(not(miri))]
#[derive(Default)]
struct Claims {
    claimed: std::collections::HashSet<u32>,
    misplaced: usize,
}

#[cfg(not(miri))]
impl super::Judge for Claims {
    fn hash(&mut self, reference: u32) -> Option<u64> {
        Some(mix(u64::from(reference)))
    }

    fn claim(&mut self, reference: u32) -> bool {
        self.claimed.insert(reference)
    }

    fn misplaced(&mut self) {
        self.misplaced += 1;
    }

    fn prefetch(&self, _reference: u32) {}
}

/// A process may die in a merge: after the items are copied, or after the directory is published.
#[cfg(not(miri))]
#[test]
fn an_interrupted_merge_is_recovered() {
    let hash = |reference: u32| mix(u64::from(reference));
    for is_published in [false, true] {
        let table = table(4, 64, 4);
        for reference in 1..=200 {
            assert!(table.lock(hash(reference)).insert(reference, |_| true));
            table.split_one(hash, |_| true);
        }
        let buckets = table.buckets();
        let before = table.directory(Ordering::Relaxed).before_split();
        let (old, new) = (&table.buckets[before.next()], &table.buckets[before.buckets()]);
        for bucket in table.chain(new) {
            for (slot, reference) in bucket.items() {
                assert!(table.append(old, bucket.tag(slot), reference, &mut |_| true));
            }
        }
        if is_published {
            table.publish(before, old, new);
        }
        let reached = table.begin_recovery().unwrap();
        let mut claims = Claims::default();
        let kept = table.recover(0..table.buckets(), &reached, &mut claims);
        table.end_recovery(kept, &reached).unwrap();
        assert_eq!(kept, 200);
        assert_eq!(
            (claims.misplaced > 0, table.buckets() < buckets),
            (!is_published, is_published)
        );
        assert!((1..=200).all(|r| table.find(hash(r), |c| c == r) == Some(r)));
        while table.merge_one() {}
        assert!((1..=200).all(|r| table.find(hash(r), |c| c == r) == Some(r)));
    }
}

/// A lock attempt on a held stripe fails instead of waiting.
#[test]
fn try_lock_does_not_wait() {
    let table = table(4, 4, 2);
    let held = table.lock(0);
    assert!(table.try_lock(2).is_none(), "bucket 2 has the stripe of bucket 0");
    assert!(table.try_lock(1).is_some());
    drop(held);
    assert!(table.try_lock(0).is_some());
}

/// Resident keys are never missed while the table doubles ten times around them and shrinks again,
/// and while they are replaced.
///
/// Method: two readers look up resident keys; one thread fills the table and splits, and then
/// empties it and merges; another replaces resident items and adds and removes others in the same
/// buckets. Seen to fail: `find` believing every miss.
#[test]
fn resident_keys_are_always_found_during_growth_and_shrinking() {
    const RESIDENT: u32 = 64;
    let (buckets, doublings) = (16, if cfg!(miri) { 3 } else { 10 });
    let table = table(buckets, buckets << doublings, 16);
    // The top of a reference's 31 bits shows which of a key's two items it is.
    let key_of = |reference: u32| reference & !(1 << 30);
    let hash = |reference: u32| mix(u64::from(key_of(reference)));
    (1..=RESIDENT).for_each(|key| assert!(table.lock(hash(key)).insert(key, |_| true)));
    let done = AtomicU32::new(0);
    let is_done = || done.load(Ordering::Relaxed) != 0;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done() {
                    for key in 1..=RESIDENT {
                        let found = table.find(hash(key), |r| key_of(r) == key);
                        assert!(found.is_some(), "missed {key} of {} buckets", table.buckets());
                    }
                }
            });
        }
        scope.spawn(|| {
            for round in 0_u32.. {
                for key in 1..=RESIDENT {
                    let locked = table.lock(hash(key));
                    let slot = locked.find(|r| key_of(r) == key).unwrap();
                    locked.replace(slot, key | (round & 1) << 30);
                    drop(locked);
                    let guest = (1 << 29) + key;
                    assert!(table.lock(hash(guest)).insert(guest, |_| true));
                    let locked = table.lock(hash(guest));
                    locked.remove(locked.find_ref(guest).unwrap());
                }
                if is_done() {
                    return;
                }
            }
        });
        let mut key = RESIDENT;
        while table.buckets() < buckets << doublings {
            key += 1;
            assert!(table.lock(hash(key)).insert(key, |_| true));
            table.split_one(hash, |_| true);
        }
        for key in RESIDENT + 1..=key {
            let locked = table.lock(hash(key));
            locked.remove(locked.find_ref(key).unwrap());
            drop(locked);
            if table.surplus() > 0 {
                table.merge_one();
            }
        }
        while table.merge_one() {}
        assert_eq!(table.buckets(), buckets);
        done.store(1, Ordering::Relaxed);
    });
}

/// A lookup reads little more than one bucket. For random hashes there are at most 30 overflow
/// buckets per 100 others at the design load, half-way through a level.
#[test]
fn few_buckets_overflow() {
    let table = table(1, 1 << 16, 1);
    for items in [20_000_u32, 30_000, 40_000] {
        let from = u32::try_from(table.items()).unwrap();
        for reference in from + 1..=items {
            assert!(table.lock(mix(u64::from(reference))).insert(reference, |_| true));
            while table.split_one(|r| mix(u64::from(r)), |_| true) == Split::Done {}
        }
        let share = table.overflow_buckets() * 100 / table.buckets();
        assert!(share < 33, "{items} items: overflow buckets are {share} % of {}", table.buckets());
    }
}

/// Items that come and go leave hardly more overflow buckets than the same items just inserted.
#[test]
fn item_churn_leaves_few_overflow_buckets() {
    let table = table(1, 1 << 16, 1);
    let insert = |reference: u32| {
        assert!(table.lock(mix(u64::from(reference))).insert(reference, |_| true));
        while table.split_one(|r| mix(u64::from(r)), |_| true) == Split::Done {}
    };
    let (items, turns) = (27_000, 20);
    (1..=items).for_each(insert);
    let before = table.overflow_buckets();
    for reference in items + 1..=turns * items {
        insert(reference);
        let locked = table.lock(mix(u64::from(reference - items)));
        locked.remove(locked.find_ref(reference - items).unwrap());
    }
    let after = table.overflow_buckets();
    assert!(after * 10 <= before * 11, "{before} overflow buckets, and {after} at the end");
}
