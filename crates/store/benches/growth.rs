//! The latency of lookups while the table grows: batches of lookups in steady state, compared with
//! the same batches while the table doubles under an inserting thread.
//!
//! `cargo bench -p holdall-store --bench growth`. The two phases alternate within one run, with a
//! fresh store for each round. In the steady phase the other thread overwrites items at the rate at
//! which it inserts them in the growing phase, so that only the growth differs. It inserts in
//! bursts and sleeps between them, so that a machine with two processors is not full.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark stops where it fails")]

mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use store::{Config, Handle, Store};

use common::{key, set};

/// Keys looked up; stored before anything is measured.
const KEYS: u64 = 200_000;
/// Keys inserted while lookups are timed: they make the table double at least once.
const INSERTED: u64 = 400_000;
const ROUNDS: usize = 5;
/// Lookups timed together.
const BATCH: usize = 16;
/// Insertions between two sleeps.
const BURST: u64 = 500;
const NAP: Duration = Duration::from_millis(2);

/// Stores `INSERTED` keys from `first` on, modulo `among`, in bursts.
fn write(store: &Arc<Store>, first: u64, among: u64) {
    let me = store.join().unwrap();
    for number in 0..INSERTED {
        if number % 16 == 0 {
            me.quiesce();
            me.begin_turn(1);
        }
        set::<32>(&me, first + number % among);
        if number % BURST == BURST - 1 {
            me.rest();
            #[allow(clippy::disallowed_methods, reason = "the pace of the load")]
            std::thread::sleep(NAP);
        }
    }
}

/// Nanoseconds of each batch of lookups until the writer is done.
fn read(me: &Handle, done: &AtomicBool, times: &mut Vec<u64>) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while !done.load(Ordering::Relaxed) {
        me.begin_turn(1);
        let mut keys = [[0; 16]; BATCH];
        for slot in &mut keys {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *slot = key((state >> 33) % KEYS);
        }
        #[allow(clippy::disallowed_methods, reason = "this is what is measured")]
        let start = Instant::now();
        let section = me.section();
        for key in &keys {
            let item = section.find(me.store().hash(key), key).unwrap();
            item.touch();
            black_box(item.inline_value().unwrap());
        }
        drop(section);
        times.push(u64::try_from(start.elapsed().as_nanos()).unwrap());
        me.quiesce();
    }
}

/// One round: a full store, a writer and the reader. Returns the factor by which the table grew.
fn round(grows: bool, times: &mut Vec<u64>) -> f64 {
    let config = Config { memory_bytes: 256 << 20, ..Config::default() };
    let store = Store::new(config).unwrap();
    let me = store.join().unwrap();
    me.begin_turn(1);
    (0..KEYS).for_each(|number| set::<32>(&me, number));
    // The splits that the fill still owes, so that the steady table does not grow.
    (0..KEYS).for_each(|number| set::<32>(&me, number));
    let before = store.index().bytes;
    let done = Arc::new(AtomicBool::new(false));
    let writer = {
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        std::thread::spawn(move || {
            if grows {
                write(&store, KEYS, INSERTED)
            } else {
                write(&store, 0, KEYS)
            }
            done.store(true, Ordering::Relaxed);
        })
    };
    read(&me, &done, times);
    me.rest();
    writer.join().unwrap();
    store.index().bytes as f64 / before as f64
}

/// The latency below which this many of 1000 batches lie, in microseconds.
fn percentile(sorted: &[u64], per_mille: usize) -> f64 {
    let place = sorted.len() * per_mille / 1000;
    sorted[place.min(sorted.len() - 1)] as f64 / 1000.0
}

fn main() {
    let (mut steady, mut growing) = (Vec::new(), Vec::new());
    let (mut least, mut most) = (f64::MAX, 0.0_f64);
    for _ in 0..ROUNDS {
        most = most.max(round(false, &mut steady));
        least = least.min(round(true, &mut growing));
    }
    println!("index: x{most:.2} at most in steady rounds, x{least:.2} at least in growing ones");
    steady.sort_unstable();
    growing.sort_unstable();
    println!("microseconds for {BATCH} lookups ({} and {} batches)", steady.len(), growing.len());
    println!("{:>8} {:>9} {:>9} {:>7}", "", "steady", "growing", "ratio");
    for (name, share) in [("p50", 500), ("p99", 990), ("p99.9", 999)] {
        let (still, moving) = (percentile(&steady, share), percentile(&growing, share));
        println!("{name:>8} {still:9.2} {moving:9.2} {:7.2}", moving / still);
    }
}
