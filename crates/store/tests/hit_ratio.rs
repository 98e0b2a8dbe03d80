//! Hit ratio of the bags against strict LRU on the same streams: look-aside reads (get, store on a
//! miss).
//!
//! One thread and explicit cleaner steps, so every run gives the same numbers.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};
use std::collections::{BTreeMap, HashMap};
use store::{Change, Cleaner, Config, EvictionSetting, Handle, NewItem, Policy, Store};

const MEGABYTES: u64 = 8;
const VALUE: [u8; 64] = [b'v'; 64];

fn touch(me: &Handle, key: &[u8]) -> bool {
    let section = me.section();
    match section.find(me.store().hash(key), key) {
        Some(item) => {
            item.touch();
            true
        }
        None => false,
    }
}

fn fill(me: &Handle, key: &[u8]) {
    let new = NewItem {
        key,
        flags: 0,
        deadline: 0,
        value_len: VALUE.len(),
        base64_key: false,
        has_cas: false,
    };
    let mut draft = me.draft(new).unwrap();
    draft.push(&VALUE).unwrap();
    me.section().update(me.store().hash(key), key, |_| Change::Put { draft, cas: None });
}

/// Hit ratio of the second half of the stream, and the items resident at its end.
fn replay(policy: Policy, stream: &[u64]) -> (f64, u64) {
    replay_with(policy, 1, stream)
}

fn replay_with(policy: Policy, newcomer_factor: u32, stream: &[u64]) -> (f64, u64) {
    let memory_bytes = MEGABYTES << 20;
    let store = Store::new(Config { memory_bytes, policy, seed: 5, ..Config::default() }).unwrap();
    store.set_eviction(EvictionSetting { newcomer_factor, weighs_size: false });
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(&store).unwrap();
    let mut hits = 0;
    for (number, key) in stream.iter().enumerate() {
        if number % 16 == 0 {
            me.begin_turn(1);
            me.quiesce();
        }
        let key = key.to_le_bytes();
        let hit = touch(&me, &key);
        if !hit {
            fill(&me, &key);
        }
        hits += usize::from(hit && number >= stream.len() / 2);
        if number % 2000 == 0 {
            me.rest();
            cleaner.step(1, 500);
        }
    }
    (hits as f64 / (stream.len() - stream.len() / 2) as f64, store.stats().items)
}

/// An LRU of exactly `capacity` items, to check the strict policy itself.
fn ideal_lru(capacity: usize, stream: &[u64]) -> f64 {
    let mut last_use: HashMap<u64, usize> = HashMap::new();
    let mut order: BTreeMap<usize, u64> = BTreeMap::new();
    let mut hits = 0;
    for (now, &key) in stream.iter().enumerate() {
        if let Some(before) = last_use.insert(key, now) {
            order.remove(&before);
            hits += usize::from(now >= stream.len() / 2);
        } else if order.len() == capacity {
            let (_, oldest) = order.pop_first().unwrap();
            last_use.remove(&oldest);
        }
        order.insert(now, key);
    }
    hits as f64 / (stream.len() - stream.len() / 2) as f64
}

fn zipf(keys: u64, exponent: f64, requests: usize) -> impl Iterator<Item = u64> {
    let distribution = Zipf::new(keys as f64, exponent).unwrap();
    let mut random = SmallRng::seed_from_u64(11);
    // Ranks are scattered over the key space; which key is hot does not matter.
    (0..requests).map(move |_| distribution.sample(&mut random).to_bits().wrapping_mul(0x9e37_79b9))
}

/// Inserts, every 200,000 requests, 20,000 keys that are requested once.
fn with_scans(stream: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut scanned = 1 << 40;
    let mut mixed = Vec::new();
    for (number, key) in stream.enumerate() {
        mixed.push(key);
        if number % 200_000 == 199_999 {
            mixed.extend(scanned..scanned + 20_000);
            scanned += 20_000;
        }
    }
    mixed
}

fn compare(name: &str, stream: &[u64]) -> f64 {
    let (bag, bag_items) = replay(Policy::Bag, stream);
    let (lru, lru_items) = replay(Policy::Lru, stream);
    let ideal = |items| ideal_lru(usize::try_from(items).unwrap(), stream);
    let (ideal_of_lru, ideal_of_bag) = (ideal(lru_items), ideal(bag_items));
    eprintln!(
        "{name}: bag {bag:.4} with {bag_items} items, an ideal lru of as many {ideal_of_bag:.4}"
    );
    eprintln!(
        "{name}: lru {lru:.4} with {lru_items} items, an ideal lru of as many {ideal_of_lru:.4}"
    );
    assert!((lru - ideal_of_lru).abs() < 0.005, "{name}: the strict policy is not LRU");
    assert!(bag >= lru - 0.002, "{name}: bag {bag:.4} is below lru {lru:.4}");
    assert!(bag >= ideal_of_bag - 0.002, "{name}: {bag:.4} is below {ideal_of_bag:.4}");
    bag
}

/// About 75,000 items fit in 8 MB, a tenth of the keys.
#[test]
fn bags_match_the_hit_ratio_of_strict_lru() {
    compare("zipf 0.99", &zipf(750_000, 0.99, 2_000_000).collect::<Vec<_>>());
    compare("zipf 0.99 and scans", &with_scans(zipf(750_000, 0.99, 2_000_000)));
}

/// Two fifths of the keys are requested once. If newcomers count like others, the order is that of
/// an LRU; if they count as older, more of the others stay.
#[test]
fn counting_newcomers_as_older_raises_the_hit_ratio() {
    let stream: Vec<u64> = (1u64 << 40..)
        .zip(zipf(750_000, 0.9, 2_000_000))
        .map(
            |(once, key)| if once.wrapping_mul(0x9e37_79b9) >> 8 & 0xff < 102 { once } else { key },
        )
        .collect();
    let (lru, _) = replay(Policy::Lru, &stream);
    let with = |factor| replay_with(Policy::Auto, factor, &stream).0;
    let (one, eight) = (with(1), with(8));
    eprintln!("seen once: lru {lru:.4}, factor 1 {one:.4}, factor 8 {eight:.4}");
    assert!((one - lru).abs() < 0.004, "factor 1 {one:.4}, lru {lru:.4}");
    assert!(eight > lru + 0.03, "factor 8 {eight:.4}, lru {lru:.4}");
}

/// The Bag LRU paper measures its policy on a workload of which 90 % are hits, and asks for
/// "equivalent (or better) hit rates".
#[test]
fn a_workload_of_90_percent_hits_keeps_its_hit_ratio() {
    let bag = compare("zipf 1.15", &zipf(750_000, 1.15, 2_000_000).collect::<Vec<_>>());
    assert!(bag > 0.9, "{bag:.4}");
}
