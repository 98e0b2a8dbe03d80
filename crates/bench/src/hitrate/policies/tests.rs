//! The simulated policies against their papers, and against each other.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::hitrate::Source;
use crate::hitrate::presets::{Kind, Preset};

fn policies() -> impl Iterator<Item = Policy> {
    Policy::value_variants().iter().copied()
}

/// Requests keys of ten bytes each, and returns which were hits.
fn ask(cache: &mut dyn Cache, ids: &[u64]) -> Vec<bool> {
    let mut one = |id| {
        let is_hit = cache.get(id);
        if !is_hit {
            cache.put(id, 10);
        }
        is_hit
    };
    ids.iter().map(|&id| one(id)).collect()
}

/// Those of `ids` that the cache holds.
fn held(cache: &mut dyn Cache, ids: &[u64]) -> Vec<u64> {
    ids.iter().copied().filter(|&id| cache.get(id)).collect()
}

#[test]
fn policies_stay_within_capacity_and_keep_what_fits() {
    for policy in policies() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut cache = policy.cache(10_000);
        for _ in 0..50_000 {
            let (id, bytes) = (rng.random_range(0..500), rng.random_range(1..400));
            match rng.random_range(0..10) {
                0 => cache.remove(id),
                1 => cache.put(id, bytes),
                _ if !cache.get(id) => cache.put(id, bytes),
                _ => {}
            }
            assert!(cache.used() <= 10_000, "{policy:?}");
        }
        let mut cache = policy.cache(10_000);
        for id in 0..900 {
            cache.put(id, 10);
        }
        assert!((0..900).all(|id| cache.get(id)), "{policy:?}");
        assert_eq!(cache.used(), 9000, "{policy:?}");
        (0..900).for_each(|id| cache.remove(id));
        assert_eq!((cache.used(), cache.get(1)), (0, false), "{policy:?}");
    }
}

#[test]
fn a_put_replaces_the_keys_last_item() {
    for policy in policies() {
        let mut cache = policy.cache(1000);
        cache.put(1, 100);
        cache.put(1, 300);
        assert_eq!((cache.used(), cache.get(1)), (300, true), "{policy:?}");
        cache.put(1, 50);
        assert_eq!((cache.used(), cache.get(1)), (50, true), "{policy:?}");
    }
}

#[test]
fn lru_evicts_the_least_recently_used() {
    let mut cache = Policy::Lru.cache(30);
    ask(&mut *cache, &[1, 2, 3, 1, 4]);
    assert_eq!(held(&mut *cache, &[1, 2, 3, 4]), [1, 3, 4]);
}

#[test]
fn sieve_keeps_used_items_in_place() {
    // The hand passes 1, which was used, evicts 2, and continues at 3.
    let mut cache = Policy::Sieve.cache(30);
    ask(&mut *cache, &[1, 2, 3, 1, 4, 5]);
    assert_eq!(held(&mut *cache, &[1, 2, 3, 4, 5]), [1, 4, 5]);
}

#[test]
fn s3_fifo_keeps_a_scan_out_of_its_main_queue() {
    let mut cache = Policy::S3Fifo.cache(1000);
    let popular: Vec<u64> = (0..50).collect();
    (0..4).for_each(|_| drop(ask(&mut *cache, &popular)));
    ask(&mut *cache, &(1000..2000).collect::<Vec<u64>>());
    assert_eq!(held(&mut *cache, &popular), popular);
    // A scanned key that returns while it is a ghost stays.
    let mut cache = Policy::S3Fifo.cache(1000);
    ask(&mut *cache, &(0..120).collect::<Vec<u64>>());
    assert_eq!(ask(&mut *cache, &[5]), [false], "gone, but known");
    ask(&mut *cache, &(2000..2090).collect::<Vec<u64>>());
    assert!(cache.get(5));
}

#[test]
fn w_tiny_lfu_admits_by_frequency() {
    let mut cache = Policy::WTinyLfu.cache(1000);
    let popular: Vec<u64> = (0..99).collect();
    (0..4).for_each(|_| drop(ask(&mut *cache, &popular)));
    ask(&mut *cache, &(1000..1300).collect::<Vec<u64>>());
    let kept = held(&mut *cache, &popular).len();
    assert!(kept > 95, "{kept} of 99 popular ones are left");
}

#[test]
fn gdsf_prefers_small_items_of_equal_frequency() {
    let mut cache = Policy::Gdsf.cache(1000);
    cache.put(1, 500);
    (2..12).for_each(|id| cache.put(id, 50));
    cache.put(12, 50);
    assert!(!cache.get(1), "the large one went");
    assert!((2..=12).all(|id| cache.get(id)));
    // A large one that is used often enough stays.
    let mut cache = Policy::Gdsf.cache(1000);
    cache.put(1, 500);
    (0..20).for_each(|_| assert!(cache.get(1)));
    (2..20).for_each(|id| cache.put(id, 50));
    assert!(cache.get(1));
}

/// Hits of a load of ten thousand keys with room for a tenth of them.
fn hits(kind: Kind, overhead: u32) -> Vec<(Policy, u64)> {
    let preset = Preset { kind, keys: 10_000, requests: 200_000, seed: 1 };
    let workload = Workload { source: Source::Preset(preset), limit: None, warm_up: 100_000 };
    let all: Vec<Policy> = policies().collect();
    let counts =
        simulate(&all, &[316_000], overhead, &workload, &Progress::default()).expect("a preset");
    let hits = counts.into_iter().map(|counts| {
        assert_eq!((counts.len(), counts[0].gets), (1, 100_000));
        counts[0].hits
    });
    all.into_iter().zip(hits).collect()
}

#[test]
fn policies_rank_as_in_their_papers() {
    let of = |hits: &[(Policy, u64)], policy| {
        hits.iter().find(|(other, _)| *other == policy).expect("simulated").1
    };
    for kind in [Kind::Zipf, Kind::SeenOnce, Kind::Scans] {
        let hits = hits(kind, 0);
        let lru = of(&hits, Policy::Lru);
        for better in [Policy::S3Fifo, Policy::Sieve, Policy::WTinyLfu] {
            assert!(of(&hits, better) > lru, "{kind:?}: {hits:?}");
        }
    }
    let web = hits(Kind::Web, 0);
    assert!(of(&web, Policy::Gdsf) > of(&web, Policy::Lru), "small ones are worth more: {web:?}");
    let (without, with) = (hits(Kind::Zipf, 0), hits(Kind::Zipf, 100));
    for policy in policies() {
        assert!(of(&with, policy) < of(&without, policy), "an overhead costs hits: {policy:?}");
    }
}
