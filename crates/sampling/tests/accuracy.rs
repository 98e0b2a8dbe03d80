//! Estimates compared with exact values, on synthetic traces that four workers share.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a test stops where it fails, and its numbers are small"
)]

mod server;

use std::collections::HashMap;

use fastrand::Rng;
use sampling::{Config, Kind, Window};

use server::{Lru, Server, hash_of};

/// Samples of one worker's log.
const LOG: usize = 2048;

/// A key's rank by a Zipf law of exponent 0.99: the inverse of the integral, which is close enough
/// and quick.
fn zipf(rng: &mut Rng, keys: u64) -> u64 {
    let power = 0.01;
    let span = (keys as f64).powf(power) - 1.0;
    ((1.0 + rng.f64() * span).powf(1.0 / power) as u64).min(keys) - 1
}

/// Sizes from 60 bytes to 4 KB, most of them small.
fn bytes_of(key: u64) -> u32 {
    let unit = (hash_of(key ^ 0x5555) >> 11) as f64 / (1u64 << 53) as f64;
    (60.0 * (4.2 * unit * unit).exp()) as u32
}

/// A server of four workers that keeps `keys` keys of each sample.
fn server(keys: usize, memory_bytes: f64) -> Server {
    Server::new(Config { keys, curve: keys / 8 * 7, log: LOG, trial: 0 }, 4, memory_bytes)
}

/// At half, one, two and four times the memory the curve is within two points of an exact LRU.
fn check_curve(name: &str, memory: u64, next: impl FnMut(&mut Rng, u64) -> u64) {
    check_curve_after(name, memory, |_, _, _| (), next);
}

/// The same, where `before` is called with each request's number.
fn check_curve_after(
    name: &str,
    memory: u64,
    before: impl Fn(u64, &mut Server, &mut [Lru]),
    mut next: impl FnMut(&mut Rng, u64) -> u64,
) {
    let mut server = server(4096, memory as f64);
    let mut caches: Vec<Lru> =
        [memory / 2, memory, 2 * memory, 4 * memory].into_iter().map(Lru::new).collect();
    let mut rng = Rng::with_seed(0x1234_5678_9abc_def1);
    for number in 0..1_000_000u64 {
        before(number, &mut server, &mut caches);
        let key = next(&mut rng, number);
        let worker = rng.usize(..4);
        let hits: Vec<bool> =
            caches.iter_mut().map(|cache| cache.read(key, bytes_of(key))).collect();
        if hits[1] {
            server.access(worker, key, Kind::Hit, bytes_of(key));
        } else {
            server.access(worker, key, Kind::Miss, 0);
            server.access(worker, key, Kind::Stored, bytes_of(key));
        }
        if number.is_multiple_of(200) {
            server.now.now_ms += 1;
        }
        if number.is_multiple_of(20_000) {
            server.collect();
        }
    }
    server.collect();
    assert!(sampling::rate(server.threshold) < 0.2, "the sample is too large to show anything");
    for cache in &caches {
        let exact = cache.hits as f64 / cache.reads as f64;
        let estimate = server.collector.miss_ratio.hit_ratio(cache.capacity).unwrap();
        println!("{name}: {} bytes: {exact:.4}, estimated {estimate:.4}", cache.capacity);
        // A sample of 4096 keys; chance decides whether it has the hot key, and the correction
        // costs a point.
        let allowed = if name == "hot" { 0.03 } else { 0.02 };
        assert!((exact - estimate).abs() < allowed, "{name}: {exact:.4} {estimate:.4}");
    }
}

#[test]
fn the_miss_ratio_curve_of_a_zipf_trace_is_within_two_points() {
    check_curve("zipf", 20_000_000, |rng, _| zipf(rng, 400_000));
}

#[test]
fn the_miss_ratio_curve_of_a_trace_with_churn_is_within_two_points() {
    check_curve("churn", 20_000_000, |rng, number| number / 20 + zipf(rng, 200_000));
}

#[test]
fn the_miss_ratio_curve_is_right_after_a_reset_of_a_full_cache() {
    let next = |rng: &mut Rng, _| zipf(rng, 200_000);
    let reset = |number, server: &mut Server, caches: &mut [Lru]| {
        if number == 700_000 {
            server.reset();
            caches.iter_mut().for_each(|cache| (cache.hits, cache.reads) = (0, 0));
        }
    };
    check_curve_after("reset", 8 << 20, reset, next);
}

#[test]
fn the_miss_ratio_curve_with_flushes_of_everything_is_within_two_points() {
    let flush = |number: u64, server: &mut Server, caches: &mut [Lru]| {
        if number % 90_000 == 89_999 {
            server.now.flush += 1;
            caches.iter_mut().for_each(|cache| cache.flush(|_| true));
        }
    };
    check_curve_after("flush_all", 8 << 20, flush, |rng, _| zipf(rng, 200_000));
}

#[test]
fn the_miss_ratio_curve_with_flushes_of_a_prefix_is_within_two_points() {
    let flush = |number: u64, server: &mut Server, caches: &mut [Lru]| {
        if number % 90_000 == 89_999 {
            server.odd_flush += 1;
            caches.iter_mut().for_each(|cache| cache.flush(|key| key % 2 == 1));
        }
    };
    check_curve_after("flush_prefix", 8 << 20, flush, |rng, _| zipf(rng, 200_000));
}

/// A loop over more keys than fit: below its size nothing hits, above it everything does.
#[test]
fn the_miss_ratio_curve_of_a_loop_has_a_cliff() {
    let keys = 150_000;
    let bytes: u64 = (0..keys).map(|key| u64::from(bytes_of(key))).sum();
    check_curve("loop", bytes * 2 / 3, |_, number| number % keys);
}

#[test]
fn a_hot_key_does_not_distort_the_miss_ratio_curve() {
    check_curve(
        "hot",
        20_000_000,
        |rng, _| {
            if rng.f64() < 0.2 { 7 } else { 10 + rng.u64(..300_000) }
        },
    );
}

/// Keys used in the last hour and day, exactly.
#[derive(Default)]
struct Exact(HashMap<u64, u32>);

impl Exact {
    fn bytes(&self, now_secs: u32, window_secs: u32, wants: impl Fn(u64) -> bool) -> f64 {
        let used = self
            .0
            .iter()
            .filter(|(key, at)| **at >= now_secs.saturating_sub(window_secs) && wants(**key));
        used.map(|(key, _)| f64::from(bytes_of(*key))).sum()
    }
}

/// Two days in which the popular keys change all the time (or not): hour, day and week are within
/// five percent.
fn check_working_set(name: &str, mut next: impl FnMut(&mut Rng, u64) -> u64) {
    let (mut server, mut exact) = (server(8192, 1e9), Exact::default());
    let mut rng = Rng::with_seed(0x0bad_cafe_1234_5678);
    for number in 0..2_000_000u64 {
        let key = next(&mut rng, number);
        server.access(rng.usize(..4), key, Kind::Hit, bytes_of(key));
        exact.0.insert(key, server.now.now_secs);
        if number.is_multiple_of(1000) {
            server.now.now_secs += 60;
            server.now.now_ms += 60_000;
            server.collect();
        }
    }
    server.collect();
    let (set, now_secs) = (&server.collector.working_set, server.now.now_secs);
    for (window, window_name, secs) in sampling::WINDOWS {
        let want = exact.bytes(now_secs, secs, |_| true);
        let got = set.estimate(window, now_secs);
        println!(
            "{name}, {window_name}: {want:.0}, estimated {:.0} from {}",
            got.bytes_mean, got.sampled
        );
        assert!((got.bytes_mean / want - 1.0).abs() < 0.05, "{name}, {window_name}");
        assert_eq!((got.bytes_min, got.bytes_max), (got.bytes_mean, got.bytes_mean));
        let want = exact.bytes(now_secs, secs, |key| key.is_multiple_of(4));
        let by_prefix = set.by_prefix(window, now_secs);
        let (_, four) = by_prefix.iter().find(|(name, _)| *name == b"four").unwrap();
        assert!((four.bytes_mean / want - 1.0).abs() < 0.1, "{name}, {window_name}, one prefix");
    }
    assert!(set.rate(Window::Week) < 0.5, "the sample is too large to show anything");
}

#[test]
fn the_working_set_of_a_zipf_trace_is_within_five_percent() {
    check_working_set("zipf", |rng, _| zipf(rng, 300_000));
}

#[test]
fn the_working_set_of_a_trace_with_churn_is_within_five_percent() {
    check_working_set("churn", |rng, number| number / 8 + zipf(rng, 100_000));
}

/// Changing sizes are reported by their minimum, mean and maximum.
#[test]
fn changing_sizes_are_reported_as_a_range() {
    let mut server = server(4096, 1e9);
    for bytes in [100, 200, 600] {
        for key in 0..1000 {
            server.access(0, key, Kind::Stored, bytes);
        }
        server.collect();
    }
    let got = server.collector.working_set.estimate(Window::Hour, server.now.now_secs);
    assert_eq!((got.items, got.bytes_min, got.bytes_max), (1000.0, 100_000.0, 600_000.0));
    assert!((got.bytes_mean - 300_000.0).abs() < 1.0);
}

/// A key that takes a fifth of the requests is first within a second, with its share, and
/// disappears when it cools down.
#[test]
fn a_hot_key_is_found_within_a_second() {
    let mut server = server(4096, 1e9);
    let mut rng = Rng::with_seed(99);
    let mut second = |server: &mut Server, hot: bool| {
        for part in 0..10 {
            for number in 0..10_000 {
                let key = if hot && rng.f64() < 0.2 { 42 } else { 1000 + rng.u64(..1_000_000) };
                if number % 64 == part {
                    server.logs[number % 4].request(hash_of(key), &key.to_le_bytes(), 64);
                }
            }
            server.now.now_ms += 100;
            server.collect();
        }
    };
    for _ in 0..20 {
        second(&mut server, false);
    }
    let top = |server: &Server| server.collector.hot_keys.top(10, server.now.now_ms).0;
    assert!(top(&server).iter().all(|key| key.share - key.share_error < 0.01));
    second(&mut server, true);
    let found = &top(&server)[0];
    assert_eq!(*found.key, 42u64.to_le_bytes());
    // The window may hold some of the previous second, in which the key was cold.
    assert!(found.share > 0.08 && found.share < 0.25, "{found:?}");
    second(&mut server, true);
    second(&mut server, true);
    let found = &top(&server)[0];
    assert!((found.share - 0.2).abs() < 0.03, "{found:?}");
    assert!((found.per_second / 20_000.0 - 1.0).abs() < 0.2, "{found:?}");
    for _ in 0..3 {
        second(&mut server, false);
    }
    assert!(top(&server).iter().all(|key| *key.key != 42u64.to_le_bytes()));
}
