//! Throughput of the store: hits, misses, one hot key and stores, on one and two threads,
//! alternating in one run.
//!
//! `cargo bench -p holdall-store`. Prints millions of operations per second (median, minimum and
//! maximum of the rounds), then the ratios that matter: two threads against one, one hot key
//! against random keys.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark stops where it fails")]

mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::Barrier;
use std::time::Instant;
use store::{Config, Handle, SlotHint, Store};

use common::{key, set};

const KEYS: u64 = 1_000_000;
const ROUNDS: usize = 7;
/// Operations of one thread in one round.
const OPERATIONS: u64 = 2_000_000;
/// Requests that a worker holds together, so that their cache misses overlap.
const BATCH: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Hit,
    Miss,
    HotKey,
    Set,
}

struct Case {
    name: &'static str,
    work: Work,
    threads: usize,
    batched: bool,
    rates: Vec<f64>,
}

/// One thread's share of a round, in batches as a worker serves them: hash, fetch table lines,
/// fetch items, look up, copy.
fn run(me: &Handle, work: Work, batched: bool, seed: u64) {
    let mut state = seed | 1;
    let mut out: Vec<u8> = Vec::with_capacity(1 << 16);
    for _ in 0..OPERATIONS / BATCH as u64 {
        me.begin_turn(1);
        let mut keys = [[0; 16]; BATCH];
        for slot in &mut keys {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = (state >> 33) % KEYS;
            *slot = key(match work {
                Work::HotKey => 7,
                Work::Miss => KEYS + random,
                _ => random,
            });
        }
        if work == Work::Set {
            for key in &keys {
                let digits = std::str::from_utf8(&key[4..]).unwrap();
                set::<64>(me, digits.parse().unwrap());
            }
        } else {
            look_up(me, &keys, batched, &mut out);
        }
        me.quiesce();
    }
}

fn look_up(me: &Handle, keys: &[[u8; 16]], batched: bool, out: &mut Vec<u8>) {
    let section = me.section();
    let mut hashes = [0; BATCH];
    let mut hints = [SlotHint::default(); BATCH];
    for ((hash, hint), key) in hashes.iter_mut().zip(&mut hints).zip(keys) {
        *hash = me.store().hash(key);
        if batched {
            *hint = section.prefetch_bucket(*hash);
        }
    }
    if batched {
        for (hint, &hash) in hints.iter_mut().zip(&hashes) {
            *hint = section.prefetch_item(hash, *hint);
        }
    }
    out.clear();
    for ((&hash, &hint), key) in hashes.iter().zip(&hints).zip(keys) {
        if let Some(item) = section.find_from(hint, hash, key) {
            item.touch();
            out.extend_from_slice(item.inline_value().unwrap());
        }
    }
    black_box(&out);
}

fn round(store: &Arc<Store>, case: &Case) -> f64 {
    let barrier = Arc::new(Barrier::new(case.threads + 1));
    let threads: Vec<_> = (0..case.threads)
        .map(|thread| {
            let (store, barrier) = (Arc::clone(store), Arc::clone(&barrier));
            let (work, batched) = (case.work, case.batched);
            std::thread::spawn(move || {
                let me = store.join().unwrap();
                barrier.wait();
                run(&me, work, batched, 0x9e37_79b9 * (thread as u64 + 1));
            })
        })
        .collect();
    barrier.wait();
    let start = Instant::now();
    for thread in threads {
        thread.join().unwrap();
    }
    let operations = OPERATIONS * case.threads as u64;
    operations as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Median, minimum and maximum of the ratios of two cases, round by round.
fn ratio(cases: &[Case], over: &str, under: &str) -> String {
    let find = |name: &str| cases.iter().find(|case| case.name == name).unwrap();
    let pairs = find(over).rates.iter().zip(&find(under).rates);
    let mut ratios: Vec<f64> = pairs.map(|(over, under)| over / under).collect();
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    format!("{over} / {under}: {:.2} ({least:.2}..{most:.2})", median(&ratios))
}

fn main() {
    let store = Store::new(Config { memory_bytes: 512 << 20, ..Config::default() }).unwrap();
    let me = store.join().unwrap();
    me.begin_turn(1);
    (0..KEYS).for_each(|number| set::<64>(&me, number));
    me.rest();
    let case = |name, work, threads, batched| Case { name, work, threads, batched, rates: vec![] };
    let mut cases = [
        case("hit, 1 thread", Work::Hit, 1, true),
        case("hit, 2 threads", Work::Hit, 2, true),
        case("hit alone, 1 thread", Work::Hit, 1, false),
        case("miss, 1 thread", Work::Miss, 1, true),
        case("miss, 2 threads", Work::Miss, 2, true),
        case("hot key, 1 thread", Work::HotKey, 1, true),
        case("hot key, 2 threads", Work::HotKey, 2, true),
        case("set, 1 thread", Work::Set, 1, true),
        case("set, 2 threads", Work::Set, 2, true),
    ];
    for _ in 0..ROUNDS {
        for case in &mut cases {
            let rate = round(&store, case);
            case.rates.push(rate);
        }
    }
    println!("million operations a second: median (least..greatest) of {ROUNDS} rounds");
    for case in &cases {
        let least = case.rates.iter().copied().fold(f64::MAX, f64::min);
        let most = case.rates.iter().copied().fold(0.0, f64::max);
        println!("{:22} {:7.2} ({least:.2}..{most:.2})", case.name, median(&case.rates));
    }
    println!("{}", ratio(&cases, "hit, 2 threads", "hit, 1 thread"));
    println!("{}", ratio(&cases, "hot key, 2 threads", "hot key, 1 thread"));
    println!("{}", ratio(&cases, "hot key, 2 threads", "hit, 2 threads"));
    println!("{}", ratio(&cases, "set, 2 threads", "set, 1 thread"));
}
