//! Every returned value was once stored under that key, and is whole, however large it is and
//! however slowly it is read, although memory is constantly reused.
//!
//! `READS=n` sets the number of large values that are read.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

use e2e::values::{fetch, make, read_values, store, version};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Kind, Rng, Server, Wire, rng};

/// Sizes in bytes, the number of keys of each, and the percentage of reads. All keys together need
/// one and a half times the memory.
const SIZES: [(usize, usize, usize); 3] =
    [(20_000, 2000, 96), (400_000, 60, 3), (1_000_000, 24, 1)];

fn choose(rng: &mut Rng) -> (String, usize) {
    let mut dice = rng.below(100);
    for (size, keys, share) in SIZES {
        if dice < share {
            return (format!("s{}k{}", size / 1000, rng.below(keys)), size);
        }
        dice -= share;
    }
    unreachable!("the shares add up to a hundred")
}

/// State shared by the clients: the last version, and the number of completed reads.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    versions: AtomicU64,
    hits: AtomicUsize,
    misses: AtomicUsize,
}

fn write(addr: SocketAddr, seed: u64, shared: &Shared) -> usize {
    let (mut rng, mut wire, mut stores) = (Rng::new(seed), Wire::connect(addr), 0);
    while !shared.stop.load(Ordering::Relaxed) {
        let (key, size) = choose(&mut rng);
        let size = size - rng.below(size / 4);
        let number = shared.versions.fetch_add(1, Ordering::Relaxed);
        let outcome = store(&mut wire, &key, &make(&key, number, size));
        // memcached does refuse stores here; holdall promises not to.
        assert!(outcome.is_ok() || Kind::under_test() == Kind::Memcached, "{outcome:?}");
        stores += 1;
        if rng.one_in(50) {
            wire.send(format!("delete {key}\r\n").as_bytes());
            wire.line();
        }
    }
    stores
}

fn check(key: &str, value: Option<&[u8]>, shared: &Shared) {
    match value {
        None => shared.misses.fetch_add(1, Ordering::Relaxed),
        Some(value) => {
            let number = version(key, value).unwrap_or_else(|torn| panic!("torn: {torn}"));
            assert!(
                number < shared.versions.load(Ordering::Relaxed),
                "{key}: version {number} of the future"
            );
            shared.hits.fetch_add(1, Ordering::Relaxed)
        }
    };
}

fn read(addr: SocketAddr, seed: u64, wanted: usize, shared: &Shared) {
    let (mut rng, mut wire) = (Rng::new(seed), Wire::connect(addr));
    while shared.hits.load(Ordering::Relaxed) < wanted {
        let (key, _) = choose(&mut rng);
        let value = fetch(&mut wire, &key);
        check(&key, value.as_deref(), shared);
    }
}

/// Requests large values, more than socket buffers hold, and reads them in pieces with pauses.
fn read_slowly(addr: SocketAddr, seed: u64, shared: &Shared) -> usize {
    let (mut rng, mut read) = (Rng::new(seed), 0);
    let mut wire = Wire::connect_narrow(addr, 64 * 1024);
    while !shared.stop.load(Ordering::Relaxed) {
        let (size, keys, _) = *rng.pick(&SIZES);
        let count = 4_000_000 / size;
        let list: String =
            (0..count).map(|_| format!(" s{}k{}", size / 1000, rng.below(keys))).collect();
        wire.send(format!("get{list}\r\n").as_bytes());
        wire.trickle(64 * 1024, Duration::from_millis(5), 2_000_000);
        for (key, value) in read_values(&mut wire) {
            check(&key, Some(&value), shared);
            read += 1;
        }
    }
    read
}

#[test]
fn values_are_whole_under_eviction_and_slow_reads() {
    let wanted = std::env::var("READS").map_or(200_000, |text| text.parse().unwrap());
    let mut server = Server::under_test(&["-m", "64"]);
    let (addr, seed, shared) = (server.addr(), rng::seed_from_env(), Shared::default());
    let start = Instant::now();
    let (stores, slow) = thread::scope(|scope| {
        let shared = &shared;
        let writers: Vec<_> =
            (0..2).map(|i| scope.spawn(move || write(addr, seed + i, shared))).collect();
        let slow: Vec<_> =
            (0..8).map(|i| scope.spawn(move || read_slowly(addr, seed + 10 + i, shared))).collect();
        let readers: Vec<_> = (0..4)
            .map(|i| scope.spawn(move || read(addr, seed + 20 + i, wanted, shared)))
            .collect();
        let failed = readers.into_iter().filter_map(|reader| reader.join().err()).count();
        shared.stop.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0, "a reader saw a wrong value");
        let stores: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        (stores, slow.into_iter().map(|reader| reader.join().unwrap()).sum::<usize>())
    });
    let (hits, misses) = (shared.hits.into_inner(), shared.misses.into_inner());
    eprintln!(
        "{hits} whole values ({slow} read slowly), {misses} misses, {stores} stores in {:.1} s, seed {seed}",
        start.elapsed().as_secs_f64()
    );
    assert!(server.stat("evictions") > 1000, "hardly an eviction; the test shows nothing");
    assert!(slow > 20, "hardly a slow read; the test shows nothing");
    server.assert_alive("the reads");
}
