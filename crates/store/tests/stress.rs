//! Many threads, little memory: every value read was stored under that key, whatever moves
//! underneath.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test stops where it fails"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use store::{
    Applied, Change, Cleaner, Config, EvictionSetting, Handle, NewItem, Pin, Policy, Store,
};

/// A small random generator, so that a run can be repeated by its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A value that shows its key and length in every byte: `len` bytes of a pattern that starts at
/// `key + version`.
fn fill(value: &mut Vec<u8>, key: u64, version: u64, len: usize) {
    value.clear();
    value.extend_from_slice(&key.to_le_bytes());
    value.extend_from_slice(&version.to_le_bytes());
    value.extend_from_slice(&(len as u64).to_le_bytes());
    let mut word = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version;
    while value.len() < len {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        value.extend_from_slice(&word.to_le_bytes());
    }
    value.truncate(len.max(24));
}

fn check(got: &[u8], key: u64, scratch: &mut Vec<u8>) {
    let word = |at: usize| u64::from_le_bytes(got[at..at + 8].try_into().unwrap());
    assert_eq!(word(0), key, "another key's value");
    fill(scratch, key, word(8), usize::try_from(word(16)).unwrap());
    assert!(got == scratch.as_slice(), "a torn value of key {key}");
}

/// Many values have one length, which changes several times per second, so that classes are fitted
/// to it (see `fitted.rs`).
fn length(random: &mut Random, now_secs: u32) -> usize {
    let largest = match random.below(100) {
        0..40 => return 100 + now_secs as usize / 8 * 61 % 1500,
        40..70 => 200,
        70..95 => 4000,
        95..99 => 60_000,
        _ => 400_000,
    };
    usize::try_from(24 + random.below(largest)).unwrap()
}

/// Shared by the threads of a test, in addition to the store.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    now_secs: AtomicU32,
}

fn work(store: &Arc<Store>, seed: u64, keys: u64, shared: &Shared) -> u64 {
    let me = store.join().unwrap();
    let mut random = Random(seed | 1);
    let (mut value, mut scratch) = (Vec::new(), Vec::new());
    let mut pins: Vec<(u64, Pin)> = Vec::new();
    let mut done = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        me.begin_turn(shared.now_secs.load(Ordering::Relaxed));
        for _ in 0..16 {
            step(&me, &mut random, keys, &mut value, &mut scratch, &mut pins);
            done += 1;
        }
        me.quiesce();
        if random.below(8) == 0 {
            me.rest();
        }
    }
    for (key, pin) in pins {
        check_pin(&pin, key, &mut value, &mut scratch);
    }
    done
}

fn check_pin(pin: &Pin, key: u64, value: &mut Vec<u8>, scratch: &mut Vec<u8>) {
    value.clear();
    while value.len() < pin.value_len() {
        let piece = pin.bytes_at(value.len());
        value.extend_from_slice(piece);
    }
    check(value, key, scratch);
}

fn step(
    me: &Handle,
    random: &mut Random,
    keys: u64,
    value: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
    pins: &mut Vec<(u64, Pin)>,
) {
    let number = random.below(keys);
    let key = number.to_le_bytes();
    let hash = me.store().hash(&key);
    match random.below(100) {
        0..60 => {
            let section = me.section();
            let Some(item) = section.find(hash, &key) else { return };
            value.clear();
            item.for_each_piece(|piece| value.extend_from_slice(piece));
            item.touch();
            check(value, number, scratch);
            if pins.len() < 4
                && let Some(pin) = item.pin()
            {
                pins.push((number, pin));
            }
        }
        60..95 => {
            fill(value, number, random.next(), length(random, me.now_secs()));
            let new = NewItem {
                key: &key,
                flags: u32::try_from(random.below(2)).unwrap(),
                // Some die soon; a clock's second is 30 ms here.
                deadline: match random.below(3) {
                    0 => me.now_secs() + 1 + u32::try_from(random.below(20)).unwrap(),
                    _ => 0,
                },
                value_len: value.len(),
                base64_key: false,
                has_cas: random.below(2) == 0,
            };
            let mut draft = me.draft(new).expect("something is always evictable");
            for part in value.chunks(7001) {
                draft.push(part).expect("something is always evictable");
            }
            let applied = me.section().update(hash, &key, |_| Change::Put { draft, cas: None });
            assert!(matches!(applied, Applied::Stored { .. }));
        }
        95..97 => assert!(me.give_cas(hash, &key), "something is always evictable"),
        97..99 => {
            me.section().update(hash, &key, |_| Change::Remove);
        }
        _ => {
            for (key, pin) in pins.drain(..) {
                check_pin(&pin, key, value, scratch);
            }
        }
    }
}

/// Moved pages after which a test has seen enough.
const MOVES_MIN: u64 = 50;
/// Maximum duration of a test that has not seen enough.
const LONGEST: Duration = Duration::from_secs(60);

fn torture(policy: Policy, megabytes: u64, keys: u64, seconds: u64, flushes: bool) {
    let memory_bytes = megabytes << 20;
    torture_with(Config { memory_bytes, policy, ..Config::default() }, keys, seconds, flushes);
}

fn torture_with(config: Config, keys: u64, seconds: u64, flushes: bool) {
    let store = Store::new(Config { stripes: 64, seed: 3, ..config }).unwrap();
    let shared = Arc::new(Shared::default());
    let workers: Vec<_> = (0..4u64)
        .map(|worker| {
            let (store, shared) = (Arc::clone(&store), Arc::clone(&shared));
            std::thread::spawn(move || work(&store, worker * 7919 + 17, keys, &shared))
        })
        .collect();
    let begin = Instant::now();
    let is_due = |limit| begin.elapsed() >= limit;
    // If other programs use the processors, the same takes longer.
    let is_enough = || {
        let stats = store.stats();
        stats.slabs_moved > MOVES_MIN && stats.transient_reclaimed > 0
    };
    let mut cleaner = Cleaner::new(&store).unwrap();
    let me = store.join().unwrap();
    let mut random = Random(23);
    let mut class = || i32::try_from(random.below(90)).unwrap() - 1;
    let mut rounds = 0;
    while !is_due(Duration::from_secs(seconds)) || !is_enough() && !is_due(LONGEST) {
        rounds += 1;
        // A page move is requested all the time, from any class to any class.
        let _ = store.reassign(class(), class());
        let now_secs = 1 + rounds / 10;
        shared.now_secs.store(now_secs, Ordering::Relaxed);
        let factor = [1, 64, 8][(rounds / 16 % 3) as usize];
        store.set_eviction(EvictionSetting {
            newcomer_factor: factor,
            weighs_size: rounds / 48 % 2 == 1,
        });
        cleaner.step(now_secs, 5000);
        if flushes {
            me.begin_turn(now_secs);
            me.flush();
            me.rest();
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    shared.stop.store(true, Ordering::Relaxed);
    let done: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    for _ in 0..20 {
        cleaner.step(1 + rounds / 10, 5000);
    }
    let (stats, memory) = (store.stats(), store.memory());
    eprintln!("{done} operations; {stats:?}; {memory:?}");
    assert!(stats.slabs_moved > MOVES_MIN, "hardly a page moved");
    assert!(stats.transient_reclaimed > 0, "nothing died in its second");
    let used = memory.arena + memory.index + memory.bags;
    assert!(used <= memory.limit, "{used} bytes of {}", memory.limit);
    let mut counted = 0;
    me.begin_turn(1);
    let mut cursor = store::WalkCursor::default();
    while me.walk(&mut cursor, 1000, |item| {
        counted += 1;
        let found = me.section().find(store.hash(item.key()), item.key()).is_some();
        assert!(found, "a linked item is not in the table");
    }) {}
    assert_eq!(counted, stats.items, "items by walking against items by counting");
    assert_eq!(store.index().items, stats.items, "items in the table against items by counting");
}

#[test]
fn no_value_is_torn_while_everything_is_evicted() {
    torture(Policy::Bag, 16, 50_000, 3, false);
}

#[test]
fn no_value_is_torn_while_the_eviction_order_changes() {
    torture(Policy::Auto, 16, 50_000, 6, false);
}

/// References as in a store of more than 16 GB.
#[test]
fn no_value_is_torn_with_references_by_place() {
    let config = Config { memory_bytes: 16 << 20, by_place: true, ..Config::default() };
    torture_with(config, 50_000, 4, false);
}

#[test]
fn no_value_is_torn_under_strict_lru() {
    torture(Policy::Lru, 16, 50_000, 3, false);
}

#[test]
fn no_value_is_torn_while_everything_is_flushed() {
    torture(Policy::Auto, 32, 20_000, 3, true);
}

/// Items that stay are found at any time while many others come and go, so that the index grows and
/// shrinks during the lookups, and takes and frees memory.
#[test]
fn no_item_is_missed_while_the_index_grows_and_shrinks() {
    const STAY: u64 = 500;
    const LARGE: u64 = 1 << 32;
    let config = Config { memory_bytes: 16 << 20, evict: false, ..Config::default() };
    let store = Store::new(Config { stripes: 64, seed: 3, ..config }).unwrap();
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(&store).unwrap();
    (0..STAY).for_each(|key| assert!(put(&me, key, 24)));
    // A failure must end the readers, too.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    let read = || {
        let me = store.join().unwrap();
        let mut scratch = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            me.begin_turn(1);
            for number in 0..STAY {
                let key = number.to_le_bytes();
                let section = me.section();
                let item = section.find(store.hash(&key), &key).expect("an item that stays");
                let mut value = Vec::new();
                item.for_each_piece(|piece| value.extend_from_slice(piece));
                check(&value, number, &mut scratch);
            }
            me.quiesce();
        }
    };
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        (0..2).for_each(|_| _ = scope.spawn(read));
        for round in 0..6 {
            me.begin_turn(1);
            let small = (STAY..).find(|&key| !put(&me, key, 24)).unwrap();
            let full = store.memory().index;
            assert_eq!(store.stats().items, small);
            (STAY..small).for_each(|key| remove(&me, key));
            // Large items need the memory of the index.
            let mut large = LARGE;
            for _ in 0..20_000 {
                if store.memory().index < full / 8 {
                    break;
                }
                large += u64::from(put(&me, large, 3000));
                me.quiesce();
                cleaner.step(1, 1000);
            }
            eprintln!("round {round}: {small} small items, {} large ones", large - LARGE);
            assert!(store.memory().index < full / 8, "{:?}", store.memory());
            (LARGE..large).for_each(|key| remove(&me, key));
        }
    });
    assert_eq!((store.stats().items, store.index().items), (STAY, STAY));
}

fn remove(me: &Handle, number: u64) {
    let key = number.to_le_bytes();
    let removed = me.section().update(me.store().hash(&key), &key, |_| Change::Remove);
    assert_eq!(removed, Applied::Removed);
}

/// Stores a value of `len` bytes; `false` if there is no memory.
fn put(me: &Handle, number: u64, len: usize) -> bool {
    let (key, mut value) = (number.to_le_bytes(), Vec::new());
    fill(&mut value, number, 0, len);
    let new = NewItem {
        key: &key,
        flags: 0,
        deadline: 0,
        value_len: value.len(),
        base64_key: false,
        has_cas: false,
    };
    let Ok(mut draft) = me.draft(new) else { return false };
    draft.push(&value).unwrap();
    let change = Change::Put { draft, cas: None };
    let applied = me.section().update(me.store().hash(&key), &key, |_| change);
    matches!(applied, Applied::Stored { .. })
}
