//! Stale sets (*Scaling Memcache at Facebook*, 3.2.1): a reader fetches a value from the database,
//! a writer changes it there and deletes the key, and then the reader stores the fetched value.
//! With leases the store is refused; without, the cache keeps the old value.
//!
//! The database is a version for each key. A writer raises it, deletes the key, and after the
//! delete's acknowledgement notes the version as `deleted`. From then on no reader may get a lower
//! one, which readers check: they note `deleted` before each request. Random fills are held back
//! for some rounds, so that they arrive in another order than they were fetched in.
//!
//! `RACES=n` sets the number of raced values; the default is the million of the record in
//! lab/results.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use testkit::{Rng, Server, Wire, rng};

const KEYS: usize = 64;
const READERS: u64 = 3;
const WRITERS: u64 = 2;
/// The number of keys of one batch.
const BATCH: usize = 24;
/// Maximum number of rounds for which a fill may be held back.
const ROUNDS_HELD: usize = 3;

/// State shared by all clients.
struct Race {
    /// The database.
    version: [AtomicU64; KEYS],
    /// Versions before these are deleted in the cache.
    deleted: [AtomicU64; KEYS],
    /// The number of values still to be stored.
    left: AtomicU64,
    stored: AtomicU64,
    stale: AtomicU64,
    with_leases: bool,
}

/// A value on its way from the database to the cache.
struct Fill {
    key: usize,
    version: u64,
    token: u64,
    rounds: usize,
}

impl Race {
    fn new(races: u64, with_leases: bool) -> Arc<Self> {
        Arc::new(Self {
            version: std::array::from_fn(|_| AtomicU64::new(1)),
            deleted: std::array::from_fn(|_| AtomicU64::new(0)),
            left: AtomicU64::new(races),
            stored: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            with_leases,
        })
    }

    /// Runs all clients; returns the stored values, and those that a reader got after they had been
    /// deleted.
    fn run(self: &Arc<Self>, server: &Server, seed: u64) -> (u64, u64) {
        std::thread::scope(|scope| {
            for number in 0..READERS {
                scope.spawn(move || self.read(&mut server.connect(), &mut Rng::new(seed + number)));
            }
            for number in 0..WRITERS {
                let own_seed = 100 + seed + number;
                scope.spawn(move || self.write(&mut server.connect(), &mut Rng::new(own_seed)));
            }
        });
        (self.stored.load(Ordering::Relaxed), self.stale.load(Ordering::Relaxed))
    }

    fn is_over(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    fn write(&self, wire: &mut Wire, rng: &mut Rng) {
        while !self.is_over() {
            let keys: Vec<_> = (0..BATCH).map(|_| rng.below(KEYS)).collect();
            let mut batch = Vec::new();
            let mut versions = Vec::new();
            for &key in &keys {
                versions.push(self.version[key].fetch_add(1, Ordering::SeqCst) + 1);
                batch.extend_from_slice(format!("delete k{key}\r\n").as_bytes());
            }
            wire.send(&batch);
            for (&key, version) in keys.iter().zip(versions) {
                let answer = wire.line();
                assert!(answer == "DELETED" || answer == "NOT_FOUND", "{answer}");
                self.deleted[key].fetch_max(version, Ordering::SeqCst);
            }
        }
    }

    fn read(&self, wire: &mut Wire, rng: &mut Rng) {
        let mut held: Vec<Fill> = Vec::new();
        let get = if self.with_leases { "lease-get" } else { "get" };
        while !self.is_over() {
            let keys: Vec<_> = (0..BATCH).map(|_| rng.below(KEYS)).collect();
            let deleted: Vec<_> =
                keys.iter().map(|&key| self.deleted[key].load(Ordering::SeqCst)).collect();
            let lines = keys.iter().map(|key| format!("{get} k{key}\r\n"));
            wire.send(lines.collect::<String>().as_bytes());
            for (&key, deleted) in keys.iter().zip(deleted) {
                match self.answer(wire) {
                    Answer::Hit(version) if version < deleted => {
                        self.stale.fetch_add(1, Ordering::Relaxed);
                    }
                    Answer::Hit(_) | Answer::Wait => {}
                    Answer::Miss(token) => {
                        let version = self.version[key].load(Ordering::SeqCst);
                        held.push(Fill { key, version, token, rounds: rng.below(ROUNDS_HELD + 1) });
                    }
                }
            }
            self.fill(wire, &mut held);
        }
    }

    /// The server's reply for one key.
    fn answer(&self, wire: &mut Wire) -> Answer {
        let line = wire.line();
        if line == "END" {
            return Answer::Miss(0);
        }
        let words: Vec<_> = line.split(' ').collect();
        let bytes = words.last().unwrap().parse::<usize>().unwrap();
        let value = wire.read_exact(bytes + 2);
        assert_eq!(wire.line(), "END");
        match (words[0], words[2].parse::<u64>().unwrap()) {
            ("VALUE", _) => {
                Answer::Hit(std::str::from_utf8(&value[..bytes]).unwrap().parse().unwrap())
            }
            (_, 1) => Answer::Wait,
            (_, token) => Answer::Miss(token),
        }
    }

    /// Stores the values that have been held back for long enough.
    fn fill(&self, wire: &mut Wire, held: &mut Vec<Fill>) {
        let (mut batch, mut count) = (String::new(), 0);
        held.retain_mut(|fill| {
            if fill.rounds > 0 {
                fill.rounds -= 1;
                return true;
            }
            let Fill { key, version, token, .. } = *fill;
            let (len, set) = (version.to_string().len(), format!("set k{key}"));
            let set = if self.with_leases { format!("lease-set k{key} {token}") } else { set };
            batch.push_str(&format!("{set} 0 0 {len}\r\n{version}\r\n"));
            count += 1;
            false
        });
        wire.send(batch.as_bytes());
        for _ in 0..count {
            let answer = wire.line();
            assert!(answer == "STORED" || answer == "NOT_STORED", "{answer}");
            self.stored.fetch_add(u64::from(answer == "STORED"), Ordering::Relaxed);
        }
        let less = |left: u64| Some(left.saturating_sub(count));
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

enum Answer {
    Hit(u64),
    Miss(u64),
    Wait,
}

fn races() -> u64 {
    std::env::var("RACES").map_or(1_000_000, |text| text.parse().unwrap())
}

#[test]
fn leases_prevent_stale_sets() {
    let seed = rng::seed_from_env();
    // Every miss gets a token, so each has a race.
    let server = Server::under_test(&["-o", "lease_interval=0"]);
    let (stored, stale) = Race::new(races(), true).run(&server, seed);
    let rejected = server.stat("lease_set_rejected");
    eprintln!("{} races, seed {seed}: {stored} stored, {rejected} refused, {stale} stale", races());
    assert_eq!(stale, 0, "SEED={seed}");
    assert!(stored > 0 && rejected > 0);
}

/// The test detects the stale sets that leases prevent.
#[test]
fn stale_sets_occur_without_leases() {
    let seed = rng::seed_from_env();
    let server = Server::under_test(&[]);
    let (stored, stale) = Race::new(races() / 10, false).run(&server, seed);
    eprintln!("{} races, seed {seed}: {stored} stored, {stale} stale", races() / 10);
    assert!(stale > 0, "SEED={seed}");
}
