//! Measures how much of a hot set survives a load that evicts less than the memory, compared with
//! an exact LRU over all items in the same memory.
//!
//! `cargo bench -p holdall-store --bench hot_set`. A seed selects a mix: sizes, and therefore
//! classes, of the hot items, of those around them and of the load; bags that were opened before;
//! buffers of connections; an index that grows; the pace of the cleaner. One thread and explicit
//! steps of the cleaner, so every run gives the same numbers. `MIXES="18 150"` runs only these
//! mixes; any number is the seed of a mix.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::print_stdout,
    dead_code,
    reason = "a benchmark stops where it fails, its numbers are small, and it uses a part of what is shared"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod exact_lru;
mod mix;

use common::{delete, get, set};
use exact_lru::ExactLru;
use mix::{Family, Mix};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use std::sync::Arc;
use store::{Cleaner, Config, Handle, Policy, Store};

const MIXES: u64 = 50;
/// Share of the hot items that may be missing although an exact LRU has them.
const SLACK: f64 = 0.02;

/// Bytes of an item in addition to its value: header and key.
const ITEM: u64 = 32;
/// Maximum number of bytes stored between two steps of the cleaner: 64 MB per second.
const BYTES_PER_STEP: u64 = 128 << 10;
/// Keys are numbers; those of one kind of items start here, times the kind's place.
const FAMILY: u64 = 1 << 40;

/// A store under a mix, and the model.
struct Bench {
    mix: Mix,
    random: StdRng,
    store: Arc<Store>,
    me: Handle,
    cleaner: Cleaner,
    lru: ExactLru,
    requests: u64,
    /// Bytes stored since the cleaner's last step.
    bytes: u64,
    /// Numbers given to keys of [`Family::Cold`], [`Family::Fresh`] and [`Family::Tiny`].
    next: u64,
}

impl Bench {
    fn new(mix: Mix) -> Self {
        let config = Config {
            policy: Policy::Bag,
            memory_bytes: mix.memory_bytes,
            item_bytes_max: 256 << 10,
            seed: mix.seed,
            ..Config::default()
        };
        let store = Store::new(config).unwrap();
        let (me, cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
        let random = StdRng::seed_from_u64(!mix.seed);
        let lru = ExactLru::default();
        let mut bench =
            Self { mix, random, store, me, cleaner, lru, requests: 0, bytes: 0, next: 0 };
        bench.measure();
        bench
    }

    /// Gives the model the memory that the store's items have: the cost of rounding to chunks and
    /// pages is unrelated to order.
    fn measure(&mut self) {
        let memory = self.store.memory();
        let others = memory.index + memory.bags + memory.buffers + memory.fixed;
        let is_full = self.store.stats().evictions > 0;
        self.lru.room = if is_full { memory.items } else { memory.limit - others };
        self.lru.fit();
    }

    fn count_request(&mut self) {
        self.requests += 1;
        let secs = 1 + (self.requests / self.mix.requests_per_second) as u32;
        if self.requests.is_multiple_of(16) {
            self.me.begin_turn(secs);
            self.me.quiesce();
        }
        if self.bytes > BYTES_PER_STEP || self.requests.is_multiple_of(self.mix.requests_per_step) {
            self.bytes = 0;
            self.me.rest();
            // The thread continues at once while there is work; it gets some steps done in this
            // time.
            let _ = (0..4).any(|_| !self.cleaner.step(secs, 2000).busy);
            self.me.begin_turn(secs);
            self.measure();
        }
    }

    fn value_len(&self, family: Family, number: u64) -> usize {
        match family {
            Family::Hot => self.mix.hot.of(number),
            Family::Cold => self.mix.cold.of(number),
            Family::Fresh | Family::LookAside => self.mix.load.of(number),
            Family::Counter => 20 + 90 * number as usize,
            Family::Tiny => 4,
        }
    }

    fn put(&mut self, family: Family, number: u64) {
        self.count_request();
        let key = family as u64 * FAMILY + number;
        let value_len = self.value_len(family, number);
        self.bytes += ITEM + value_len as u64;
        set(&self.me, &key.to_le_bytes(), &vec![b'v'; value_len], 0, 0).unwrap();
        self.lru.put(key, ITEM + value_len as u64);
    }

    fn put_next(&mut self, family: Family) {
        self.next += 1;
        self.put(family, self.next);
    }

    fn get(&mut self, family: Family, number: u64) -> bool {
        self.count_request();
        let key = family as u64 * FAMILY + number;
        self.lru.get(key);
        get(&self.me, &key.to_le_bytes()).is_some()
    }

    /// Stores cold items until this share of the memory has been taken or evicted since.
    fn fill(&mut self, share: f64) {
        let goal = self.taken() + (share * self.mix.memory_bytes as f64) as u64;
        while self.taken() < goal {
            self.put_next(Family::Cold);
        }
    }

    fn taken(&self) -> u64 {
        self.lru.used + self.lru.evicted
    }

    /// Stores the hot items. Returns their number.
    fn store_hot(&mut self) -> u64 {
        let goal = (self.mix.hot_share * self.mix.memory_bytes as f64) as u64;
        let (mut bytes, mut hot) = (0, 0);
        while bytes < goal {
            self.put(Family::Hot, hot);
            bytes += ITEM + self.value_len(Family::Hot, hot) as u64;
            hot += 1;
        }
        hot
    }

    /// Deletes single keys and stores them again, until this number of bags was opened: an
    /// overwrite would keep its place.
    fn open_bags(&mut self) {
        let goal = self.store.stats().bags_opened + self.mix.openings;
        while self.store.stats().bags_opened < goal {
            for number in (0..64).map(|number| number % 8) {
                delete(&self.me, &(Family::Counter as u64 * FAMILY + number).to_le_bytes());
                self.put(Family::Counter, number);
            }
        }
    }

    /// Reads the hot items three times, and stores missing ones.
    fn read_hot(&mut self, hot: u64) {
        for _ in 0..3 {
            for number in 0..hot {
                if !self.get(Family::Hot, number) {
                    self.put(Family::Hot, number);
                }
            }
        }
    }

    /// Evicts a share of the memory.
    fn load(&mut self) {
        let memory = self.mix.memory_bytes as f64;
        let (before, goal) = (self.lru.evicted, (self.mix.load_share * memory) as u64);
        let keys: Zipf<f64> = Zipf::new(1e6, 0.7).unwrap();
        let buffers = (self.mix.buffers * memory) as u64;
        let mut charged = 0;
        while self.lru.evicted - before < goal {
            match *self.mix.requests.choose(&mut self.random).unwrap() {
                Family::LookAside => {
                    let number = keys.sample(&mut self.random) as u64;
                    if !self.get(Family::LookAside, number) {
                        self.put(Family::LookAside, number);
                    }
                }
                Family::Counter => {
                    let number = self.random.random_range(0..12);
                    self.put(Family::Counter, number);
                }
                family => self.put_next(family),
            }
            let due = buffers * (self.lru.evicted - before).min(goal) / goal;
            if due >= charged + (16 << 10) {
                self.store.charge_buffers((due - charged) as i64);
                charged = due;
            }
        }
    }

    /// Shares of the hot items that are left in the store and in the model.
    fn left(&self, hot: u64) -> (f64, f64) {
        let keys = (0..hot).map(|number| Family::Hot as u64 * FAMILY + number);
        let found = |key: &u64| {
            let key = key.to_le_bytes();
            self.me.section().find(self.store.hash(&key), &key).is_some()
        };
        let share = |number: usize| number as f64 / hot as f64;
        let in_model = keys.clone().filter(|key| self.lru.items.contains_key(key)).count();
        (share(keys.filter(found).count()), share(in_model))
    }
}

/// Runs a mix and prints its row. `false` if the store kept less than it should.
fn run(seed: u64) -> bool {
    let mut bench = Bench::new(Mix::draw(seed));
    bench.fill(bench.mix.before);
    let hot = bench.store_hot();
    bench.fill(0.2);
    // Until it is full.
    while bench.lru.evicted == 0 {
        bench.put_next(Family::Cold);
    }
    bench.open_bags();
    bench.read_hot(hot);
    let before = bench.store.stats();
    bench.load();
    let stats = bench.store.stats();
    let (left, exact) = bench.left(hot);
    let is_enough = left >= exact - SLACK;
    println!(
        "| {seed} | {hot} | {left:.3} | {exact:.3} | {} | {} | {} |{}",
        stats.evictions - before.evictions,
        stats.evicted_by_moves - before.evicted_by_moves,
        stats.slabs_moved - before.slabs_moved,
        if is_enough { "" } else { " short" }
    );
    is_enough
}

fn main() {
    let only = std::env::var("MIXES").ok();
    let seeds: Vec<u64> = match &only {
        Some(only) => only.split(' ').map(|seed| seed.parse().unwrap()).collect(),
        None => (0..MIXES).collect(),
    };
    println!("| mix | hot items | left | exact LRU | evicted | with their page | pages moved |");
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let enough: Vec<bool> = seeds.into_iter().map(run).collect();
    let short = enough.iter().filter(|is_enough| !**is_enough).count();
    println!("\n{short} of {} mixes are short by more than {SLACK}", enough.len());
}
