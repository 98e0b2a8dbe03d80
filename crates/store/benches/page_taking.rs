//! The latency of a store that takes a page of another class: the page's items are evicted or moved
//! before the store gets its chunk.
//!
//! `cargo bench -p holdall-store --bench page_taking`. A memory full of small items gets large
//! items, and then small ones again. One thread runs the stores and, between them, the steps of the
//! cleaner. So the benchmark times only stores, without the sections of other threads. A store took
//! a page if the count of moved pages grew during the store.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark stops where it fails")]

mod common;

use std::time::Instant;
use store::{Cleaner, Config, Handle, Policy, Store};

use common::set;

const MEMORY: u64 = 256 << 20;
const ROUNDS: usize = 5;
/// Bytes that are stored between two steps of the cleaner, so that stores outrun it.
const BYTES_PER_STEP: usize = 2 << 20;
/// Shorter stores are not examined: emptying a page takes longer.
const NANOS_AT_LEAST: u64 = 3_000;

/// Nanoseconds of stores.
#[derive(Default)]
struct Times {
    takes: Vec<u64>,
    others: Vec<u64>,
}

/// A store with its cleaner, and the times of its stores.
struct Bench {
    me: Handle,
    cleaner: Cleaner,
    next: u64,
    /// Number of moved pages at the last look.
    moved: u64,
    times: Times,
}

impl Bench {
    /// `true` if pages have moved since the last call.
    fn has_moved(&mut self) -> bool {
        let moved = self.me.store().stats().slabs_moved;
        std::mem::replace(&mut self.moved, moved) != moved
    }

    /// Stores values of this size until the memory's number of bytes was stored.
    fn store<const BYTES: usize>(&mut self) {
        let items = usize::try_from(MEMORY).unwrap() / BYTES;
        for item in 0..items {
            if item % (BYTES_PER_STEP / BYTES) == 0 {
                self.me.quiesce();
                self.me.rest();
                // The thread continues at once while there is work.
                let _ = (0..4).any(|_| !self.cleaner.step(1, 2000).busy);
                self.me.begin_turn(1);
                self.has_moved();
            }
            #[allow(clippy::disallowed_methods, reason = "this is what is measured")]
            let start = Instant::now();
            set::<BYTES>(&self.me, self.next);
            let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap();
            // The statistics take longer than most stores.
            let has_taken = nanos > NANOS_AT_LEAST && self.has_moved();
            let times = if has_taken { &mut self.times.takes } else { &mut self.times.others };
            times.push(nanos);
            self.next += 1;
        }
    }
}

/// Fills a store with values of one size after the other.
fn round(times: Times) -> Times {
    let config = Config { policy: Policy::Bag, memory_bytes: MEMORY, ..Config::default() };
    let store = Store::new(config).unwrap();
    let (me, cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
    me.begin_turn(1);
    let mut bench = Bench { me, cleaner, next: 0, moved: 0, times: Times::default() };
    // Not timed: the memory is empty.
    bench.store::<500>();
    bench.times = times;
    bench.store::<2000>();
    bench.store::<500>();
    bench.store::<8000>();
    bench.store::<500>();
    bench.times
}

fn main() {
    let mut times = Times::default();
    for _ in 0..ROUNDS {
        times = round(times);
    }
    println!("microseconds a store");
    println!("{:>14} {:>9} {:>8} {:>8} {:>8} {:>8}", "", "stores", "p50", "p99", "p99.9", "most");
    for (name, mut times) in [("takes a page", times.takes), ("others", times.others)] {
        times.sort_unstable();
        let at = |per_mille: usize| {
            let place = (times.len() * per_mille / 1000).min(times.len().saturating_sub(1));
            times.get(place).map_or(0.0, |&nanos| nanos as f64 / 1000.0)
        };
        println!(
            "{name:>14} {:>9} {:>8.1} {:>8.1} {:>8.1} {:>8.1}",
            times.len(),
            at(500),
            at(990),
            at(999),
            at(1000)
        );
    }
}
