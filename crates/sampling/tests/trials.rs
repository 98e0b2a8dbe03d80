//! Trials of orders of eviction: they choose the order that the load rewards.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a test stops where it fails, and its numbers are small"
)]

use fastrand::Rng;
use sampling::{Candidate, Collector, Config, Kind, Log, Snapshot};
use std::collections::VecDeque;

const ITEM: u32 = 340;
/// Items that fit.
const FIT: u64 = 50_000;

fn hash_of(key: u64) -> u64 {
    let mut mixed = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A key's approximate rank by a Zipf law of exponent 0.9.
fn zipf(rng: &mut Rng, keys: u64) -> u64 {
    let span = (keys as f64).powf(0.1) - 1.0;
    ((1.0 + rng.f64() * span).powf(10.0) as u64).min(keys) - 1
}

/// A server with an empty cache: every read misses and is filled, and the trials see that.
fn after(reads: u64, next: impl FnMut(u64, &mut Rng) -> (u64, u32)) -> Collector {
    after_flushes(reads, None, next)
}

/// The same, where everything is flushed at each multiple of `flushes`.
fn after_flushes(
    reads: u64,
    flushes: Option<u64>,
    mut next: impl FnMut(u64, &mut Rng) -> (u64, u32),
) -> Collector {
    let config = Config { keys: 8192, curve: 7168, log: 2048, trial: 2048 };
    let memory_bytes = (FIT * u64::from(ITEM)) as f64;
    let hits_and_misses = (0, 0);
    let mut now = Snapshot {
        now_ms: 0,
        now_secs: 1,
        reads: 0,
        hits_and_misses,
        memory_bytes,
        weighs_size: false,
        flush: 0,
    };
    let mut collector = Collector::new(config, &now);
    let (mut log, mut rng, mut threshold) = (Log::new(config.log), Rng::with_seed(7), u64::MAX);
    for at in 0..reads {
        if flushes.is_some_and(|interval| at % interval == 0) {
            now.flush += 1;
        }
        let (key, bytes) = next(at, &mut rng);
        for (kind, bytes) in [(Kind::Miss, 0), (Kind::Stored, bytes)] {
            if hash_of(key) < threshold
                && let Err(sampling::Full::Thinned(thinned)) =
                    log.access(hash_of(key), (at as u32, kind), (bytes, 0), now.flush, b"")
            {
                threshold = threshold.min(thinned);
            }
        }
        if at % 5000 == 0 {
            (now.now_ms, now.reads) = (at / 10, at);
            collector.take(&log);
            log.clear();
            threshold = threshold.min(collector.finish(&now, threshold));
        }
    }
    collector
}

fn chosen(collector: &Collector) -> Candidate {
    for (candidate, ratio) in collector.trials.hit_ratios() {
        println!("{candidate:?}: {ratio:.4}");
    }
    collector.trials.chosen()
}

#[test]
fn flushed_items_are_no_hits() {
    // Each key is read once between two flushes.
    let collector = after_flushes(400_000, Some(20_000), |at, _| (at % 20_000, ITEM));
    let ratios: Vec<_> = collector.trials.hit_ratios().collect();
    assert!(!ratios.is_empty() && ratios.iter().all(|(_, ratio)| *ratio == 0.0), "{ratios:?}");
}

#[test]
fn one_hit_keys_are_evicted_early() {
    let next = |at, rng: &mut Rng| {
        let key = if rng.f64() < 0.4 { 1 << 40 | at } else { zipf(rng, 10 * FIT) };
        (key, ITEM)
    };
    assert!(chosen(&after(1_000_000, next)).newcomer_factor >= 8);
}

#[test]
fn a_loop_larger_than_memory_is_kept_in_part() {
    assert!(chosen(&after(1_000_000, |at, _| (at % (FIT * 5 / 4), ITEM))).newcomer_factor >= 8);
}

#[test]
fn popular_new_keys_are_not_evicted_early() {
    let next = |at: u64, rng: &mut Rng| {
        let age = 2000.0 * (rng.f64().powf(-1.2) - 1.0);
        ((1000 + at / 4).saturating_sub(age as u64), ITEM)
    };
    assert!(chosen(&after(1_000_000, next)).newcomer_factor <= 2);
}

#[test]
fn weights_of_sizes_leave_the_factor_as_it_is() {
    let next = |_, rng: &mut Rng| {
        let key = zipf(rng, 10 * FIT);
        (key, if hash_of(key).is_multiple_of(4) { 4000 } else { 100 })
    };
    let first = (40_000..400_000)
        .step_by(20_000)
        .map(|reads| after(reads, next))
        .find(|collector| collector.trials.changes() == 1);
    let first = chosen(&first.unwrap());
    assert_eq!(first, Candidate { newcomer_factor: 8, weighs_size: true });
}

#[test]
fn large_items_are_evicted_first_if_sizes_differ() {
    let next = |_, rng: &mut Rng| {
        let key = zipf(rng, 10 * FIT);
        (key, if hash_of(key).is_multiple_of(4) { 4000 } else { 100 })
    };
    assert!(chosen(&after(1_000_000, next)).weighs_size);
}

/// Half a million reads of each kind in turn: the choice follows.
#[test]
fn the_choice_follows_the_load() {
    let mut choices = VecDeque::new();
    for turns in 1..=3 {
        let next = |at: u64, rng: &mut Rng| {
            let is_news = (at / 500_000) % 2 == 1;
            let age = 2000.0 * (rng.f64().powf(-1.2) - 1.0);
            let once = rng.f64() < 0.4;
            match (is_news, once) {
                (true, _) => ((1 << 30) + (at / 4).saturating_sub(age as u64), ITEM),
                (_, true) => (1 << 40 | at, ITEM),
                (_, false) => (zipf(rng, 10 * FIT), ITEM),
            }
        };
        choices.push_back(chosen(&after(turns * 500_000, next)).newcomer_factor);
    }
    println!("{choices:?}");
    assert!(choices[0] >= 8 && choices[1] <= 2 && choices[2] >= 8, "{choices:?}");
}
