//! Memory follows the load from size to size: hit ratios of look-aside reads (get, store on a miss)
//! while sizes shift, against stores that never saw the old sizes.
//!
//! One thread and explicit cleaner steps, so every run gives the same numbers.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Change, Cleaner, Config, Handle, NewItem, Store};

const MEGABYTES: u64 = 32;
/// Requests per second of the store's clock.
const PER_SECOND: u32 = 20_000;

/// A store, its cleaner, and the requests so far.
struct Bench {
    store: Arc<Store>,
    me: Handle,
    cleaner: Cleaner,
    requests: u32,
    random: SmallRng,
}

impl Bench {
    fn new() -> Self {
        let config = Config { memory_bytes: MEGABYTES << 20, seed: 5, ..Config::default() };
        let store = Store::new(config).unwrap();
        let (me, cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
        Self { store, me, cleaner, requests: 0, random: SmallRng::seed_from_u64(11) }
    }

    /// Reads a key, and stores it if it is missing; `true` for a hit.
    fn ask(&mut self, family: u8, key: u64, value_len: usize) -> bool {
        self.requests += 1;
        if self.requests.is_multiple_of(16) {
            self.me.begin_turn(1 + self.requests / PER_SECOND);
            self.me.quiesce();
        }
        if self.requests.is_multiple_of(500) {
            self.me.rest();
            // The thread continues at once while there is work; it gets some steps done in this
            // time.
            let now_secs = 1 + self.requests / PER_SECOND;
            let _ = (0..4).any(|_| !self.cleaner.step(now_secs, 2000).busy);
        }
        let mut name = [family; 16];
        name[8..].copy_from_slice(&key.to_le_bytes());
        let hash = self.store.hash(&name);
        if let Some(item) = self.me.section().find(hash, &name) {
            item.touch();
            return true;
        }
        let new = NewItem {
            key: &name,
            flags: 0,
            deadline: 0,
            value_len,
            base64_key: false,
            has_cas: false,
        };
        let mut draft = self.me.draft(new).unwrap();
        draft.push(&vec![b'v'; value_len]).unwrap();
        self.me.section().update(hash, &name, |_| Change::Put { draft, cas: None });
        false
    }

    /// Hit ratio of `requests` requests from a Zipf distribution over `keys` keys.
    fn zipf(&mut self, family: u8, keys: u32, exponent: f64, value_len: usize, count: u32) -> f64 {
        let distribution = Zipf::new(f64::from(keys), exponent).unwrap();
        let mut hits = 0;
        for _ in 0..count {
            let key = distribution.sample(&mut self.random).to_bits().wrapping_mul(0x9e37_79b9);
            hits += u32::from(self.ask(family, key, value_len));
        }
        f64::from(hits) / f64::from(count)
    }
}

#[test]
fn the_hit_ratio_after_a_size_shift_matches_a_fresh_store() {
    let (mut shifted, mut fresh) = (Bench::new(), Bench::new());
    shifted.zipf(1, 1_000_000, 0.99, 100, 3_000_000);
    let before = shifted.store.stats();
    assert!(before.evictions > 0, "memory is not full");
    let (mut of_shifted, mut of_fresh) = (0.0, 0.0);
    for part in 1..=8 {
        let shifted_now = shifted.zipf(2, 1_000_000, 0.99, 1000, 100_000);
        let fresh_now = fresh.zipf(2, 1_000_000, 0.99, 1000, 100_000);
        let moved = shifted.store.stats().slabs_moved - before.slabs_moved;
        eprintln!("part {part}: {shifted_now:.4}, fresh {fresh_now:.4}; {moved} pages moved");
        if part > 2 {
            of_shifted += shifted_now / 6.0;
            of_fresh += fresh_now / 6.0;
        }
    }
    assert!(of_shifted > of_fresh - 0.01, "{of_shifted:.4} against {of_fresh:.4}");
}

/// Memory taken by the index of many small items serves items again.
#[test]
fn the_index_shrinks_when_items_grow() {
    let mut bench = Bench::new();
    bench.zipf(1, 4_000_000, 0.5, 30, 1_500_000);
    let of_small = bench.store.memory();
    assert!(of_small.index > 2 << 20 && bench.store.stats().evictions > 0, "{of_small:?}");
    bench.zipf(2, 1_000_000, 0.5, 2000, 300_000);
    let (of_large, index) = (bench.store.memory(), bench.store.index());
    eprintln!(
        "index: {} bytes, then {}, for {} items",
        of_small.index, of_large.index, index.items
    );
    assert!(of_large.index < of_small.index / 3, "{of_large:?}");
    assert!(of_large.arena > of_small.arena, "{of_large:?}");
    let spare = of_large.limit - of_large.arena - of_large.index;
    assert!(spare < MEGABYTES << 20 >> 5, "{of_large:?}");
    // It grows again.
    bench.zipf(3, 4_000_000, 0.5, 30, 1_500_000);
    let (again, items) = (bench.store.memory(), bench.store.index().items);
    assert!(again.index > of_large.index && items > index.items, "{again:?}, {items} items");
}

/// Two families with different locality: memory goes to the one with younger items, and stays
/// there.
#[test]
fn families_of_two_sizes_share_memory_by_age() {
    let mut bench = Bench::new();
    let zipf: [Zipf<f64>; 2] =
        [Zipf::new(400_000.0, 0.9).unwrap(), Zipf::new(60_000.0, 0.9).unwrap()];
    let (mut hits, mut asked) = ([0; 2], [0; 2]);
    let mut moved = 0;
    for number in 0..4_000_000 {
        let family = usize::from(number % 4 == 0);
        let key = zipf[family].sample(&mut bench.random).to_bits().wrapping_mul(0x9e37_79b9);
        let hit = bench.ask(u8::try_from(family).unwrap(), key, [100, 1000][family]);
        if number == 2_000_000 {
            moved = bench.store.stats().slabs_moved;
        }
        if number >= 2_000_000 {
            hits[family] += u32::from(hit);
            asked[family] += 1;
        }
    }
    let ratio = |family: usize| f64::from(hits[family]) / f64::from(asked[family]);
    let all = f64::from(hits[0] + hits[1]) / 2_000_000.0;
    let moved = bench.store.stats().slabs_moved - moved;
    eprintln!("mixed: {:.4} and {:.4}, {all:.4} of all; {moved} pages moved", ratio(0), ratio(1));
}

/// A class that is only read must keep its memory next to one that is swept through, however long
/// ago its items were stored.
#[test]
fn read_items_survive_a_sweep_of_another_size() {
    let mut bench = Bench::new();
    let hot = 30_000; // A quarter of the memory.
    (0..hot).for_each(|key| _ = bench.ask(1, key, 200));
    let (mut hits, mut asked) = (0, 0);
    for swept in 0..600_000 {
        bench.ask(2, swept, 1000);
        for _ in 0..3 {
            let key = bench.random.random_range(0..hot);
            hits += u32::from(bench.ask(1, key, 200));
            asked += 1;
        }
    }
    let ratio = f64::from(hits) / f64::from(asked);
    eprintln!("read beside swept: {ratio:.4}, {} pages moved", bench.store.stats().slabs_moved);
    // A global LRU has 0.89. A rule by time of storing has 0.78.
    assert!(ratio > 0.85, "{ratio:.4}");
}

/// One LRU over items of all sizes, of this many bytes.
#[derive(Default)]
struct GlobalLru {
    room: u64,
    used: u64,
    uses: u64,
    /// By key: its last use, and its bytes.
    items: BTreeMap<u64, (u64, u64)>,
    /// By last use.
    order: BTreeMap<u64, u64>,
}

impl GlobalLru {
    fn ask(&mut self, key: u64, bytes: u64) -> bool {
        self.uses += 1;
        let found = self.items.insert(key, (self.uses, bytes));
        match found {
            Some((last, _)) => _ = self.order.remove(&last),
            None => self.used += bytes,
        }
        self.order.insert(self.uses, key);
        while self.used > self.room {
            let (_, oldest) = self.order.pop_first().unwrap();
            self.used -= self.items.remove(&oldest).unwrap().1;
        }
        found.is_some()
    }
}

/// Sizes of every kind at once, each with its own keys: nothing shifts, so pages hardly need to
/// move, and the classes together keep what one LRU over all items would keep in as many bytes.
#[test]
fn many_sizes_together_behave_like_one_lru() {
    let mut bench = Bench::new();
    let distribution: Zipf<f64> = Zipf::new(200_000.0, 0.8).unwrap();
    let sizes: Vec<usize> =
        std::iter::successors(Some(50), |size| Some(size * 108 / 100)).take(64).collect();
    let (mut hits, mut ideal_hits, mut moved) = (0, 0, 0);
    let mut ideal = GlobalLru { room: 27 << 20, ..GlobalLru::default() };
    for number in 0..3_000_000 {
        let key = distribution.sample(&mut bench.random).to_bits().wrapping_mul(0x9e37_79b9);
        // 64 sizes from 50 to some 6000 bytes, each 8 % over the next.
        let size = sizes[usize::try_from(key >> 58).unwrap()];
        let hit = bench.ask(3, key, size);
        // Header and key.
        let ideal_hit = ideal.ask(key, size as u64 + 24 + 16);
        if number == 1_500_000 {
            moved = bench.store.stats().slabs_moved;
            ideal.room = bench.store.memory().items;
        }
        hits += u32::from(hit && number >= 1_500_000);
        ideal_hits += u32::from(ideal_hit && number >= 1_500_000);
    }
    let moved = bench.store.stats().slabs_moved - moved;
    let (ratio, ideal) = (f64::from(hits) / 1_500_000.0, f64::from(ideal_hits) / 1_500_000.0);
    eprintln!("many sizes: {ratio:.4}, one LRU {ideal:.4}; {moved} pages moved");
    assert!(ratio > ideal - 0.02 && moved < 2000, "{ratio:.4} of {ideal:.4}, {moved} pages moved");
}
