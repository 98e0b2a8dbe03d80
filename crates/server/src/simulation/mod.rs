//! Workers, cleaner, clock, memory, sockets and clients under a seed.
//!
//! ```text
//!     clients -> simulated sockets -> Worker -> engine -> store (a few megabytes)
//!                                     Cleaner ------------^
//! ```
//!
//! Each worker is a thread of an [`arena::schedule`]: it stops at any use of an atomic or a lock in
//! the store, sometimes for long, and the others continue. Clients use three protocols, send their
//! requests in pieces, and read their replies at random times. Time advances by the turn.
//!
//! The simulation checks the clients' observations:
//!
//! * each request has one reply, its own, in its order;
//! * the observations of each key have an order of commands that explains them
//!   ([`testkit::history`]), regardless of evictions: so no value is torn, of another key, or
//!   restored after its deletion;
//! * a hit of a key whose items expire has a value that a client stored there, under its own
//!   unique;
//! * an invalidated item (`md` with `I`) is stale for every reader, under its own unique, and one
//!   reader wins it;
//! * of the items of one size, none was evicted that was used later than more than a few that
//!   stayed ([`recency`]);
//! * only the account of large values closes connections;
//! * with `-M`, in one run of four, nothing vanishes: a store without room is refused and leaves
//!   the old value;
//! * without `-M` hardly any run refuses a store;
//! * memory stays within its limit, and everything ends.
//!
//! `SEEDS=n` sets the number of runs, `SEED=n` the first seed. A run that fails prints the command
//! that repeats it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "a test stops where it fails, and its numbers are small"
)]

mod client;
mod connection;
mod keys;
mod recency;
mod request;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arena::schedule;
use net::{ConnId, Service};
use store::{Automove, Cleaner, Config, Policy, Store};
use testkit::history::{self, Mode};
use testkit::{Rng, seeds};

use crate::clock::Clock;
use crate::entry::Entry;
use crate::log::Log;
use crate::session::Worker;
use crate::session::tests::{control, options};
use crate::shared::Shared;
use client::Client;
use connection::Connection;
use keys::{Kind, Seen};

/// Runs of CI.
const SEEDS: u64 = 100;

/// Over all runs, one in this number of evictions may be of a page whose items found no room.
const BY_MOVES_MAX: u64 = 12;

/// One in this number of runs may refuse a store though it evicts, because a thread stays within a
/// section for longer than stores wait. About five in a thousand do.
const STARVED_MAX: usize = 50;

/// Bytes of values that have arrived and are outside the store: 16 KiB on each connection. They are
/// charged as they arrive, and pages are freed for them when their grace periods are over.
const COLLECTED_MAX: u64 = 3 * 3 * (16 << 10);

/// The shared state of a run's threads, in addition to the server itself.
#[derive(Debug)]
struct World {
    shared: Arc<Shared>,
    store: Arc<Store>,
    policy: Policy,
    /// Without it (`-M`) a full store refuses.
    evicts: bool,
    control: net::Control,
    started: Instant,
    now_ms: AtomicU64,
    /// The number of workers with unfinished clients.
    busy: AtomicUsize,
    seen: Mutex<Vec<Seen>>,
    /// The number of connections that the server closed for their memory.
    closed: AtomicUsize,
}

/// The events of a run, to detect runs without any.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Shown {
    requests: usize,
    evictions: u64,
    /// Evictions with a page that could not be emptied otherwise.
    by_moves: u64,
    closed: usize,
    /// Stores that `-M` refused.
    refused: u64,
    /// Runs that refused a store though they evict.
    starved: usize,
    /// Items that stayed, and were certainly used before one that was evicted.
    older: usize,
}

#[test]
fn clients_see_one_consistent_cache_under_all_faults() {
    let control = control();
    let mut all = Shown::default();
    let mut runs = 0;
    seeds(SEEDS, "simulation", |seed| {
        runs += 1;
        let shown = run(seed, &control);
        all.requests += shown.requests;
        all.evictions += shown.evictions;
        all.by_moves += shown.by_moves;
        all.closed += shown.closed;
        all.refused += shown.refused;
        all.starved += shown.starved;
        all.older += shown.older;
    });
    println!("{all:?}");
    let is_one = runs < 100;
    let was_full = all.evictions > 0 && all.refused > 0;
    assert!(is_one || all.requests > 0 && was_full, "nothing was tried: {all:?}");
    let is_rare = all.by_moves * BY_MOVES_MAX <= all.evictions;
    assert!(is_one || is_rare, "items leave with their pages: {all:?}");
    let is_rare = all.starved * STARVED_MAX <= runs;
    assert!(is_one || is_rare, "stores are refused though the store evicts: {all:?}");
    // About nine runs in a hundred have one or two.
    assert!(is_one || all.older * 2 <= runs, "items leave out of order: {all:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let control = control();
    for seed in [1, 2, 3] {
        assert_eq!(run(seed, &control), run(seed, &control), "seed {seed}");
    }
}

/// One run.
fn run(seed: u64, control: &net::Control) -> Shown {
    let mut rng = Rng::new(seed);
    let workers = 2 + rng.below(2);
    let evicts = !seed.is_multiple_of(4);
    let world = World::new(&mut rng, workers, evicts, control);
    let mut bodies: Vec<schedule::Body<'_>> = Vec::new();
    for index in 0..workers {
        let (world, rng) = (&world, Rng::new(rng.next_u64()));
        bodies.push(Box::new(move || world.work(index, rng)));
    }
    bodies.push(Box::new(|| world.clean()));
    schedule::run(|| rng.next_u64(), bodies);

    let stats = world.store.stats();
    let (evictions, by_moves) = (stats.evictions, stats.evicted_by_moves);
    let classes = world.store.class_stats(0);
    let refused: u64 = classes.iter().map(|class| class.out_of_memory).sum();
    let starved = usize::from(world.evicts && refused > 0);
    let refused = if world.evicts { 0 } else { refused };
    assert!(world.evicts || evictions == 0, "{evictions} evictions with -M");
    let closed = world.closed.into_inner();
    let seen = world.seen.into_inner().unwrap();
    // Pages that wait too long for a stopped thread are emptied without regard to order.
    let older = match world.policy {
        Policy::Bag | Policy::Lru if by_moves == 0 => {
            recency::older_that_stayed(&world.store, &seen)
        }
        _ => 0,
    };
    assert!(older <= recency::SLACK, "{older} items stayed that were used before one that left");
    let mut histories: BTreeMap<usize, Vec<history::Event>> = BTreeMap::new();
    let requests = seen.len();
    for Seen { key, event } in seen {
        histories.entry(key).or_default().push(event);
    }
    for (key, events) in histories {
        let judged = match keys::kind(key) {
            Kind::Mortal => history::check_values(&events),
            Kind::Bytes | Kind::Marked | Kind::Number | Kind::Ranked | Kind::Text => {
                let mode = if world.evicts { Mode::Starved } else { Mode::Full };
                history::check(&events, mode).map(drop)
            }
        };
        judged.unwrap_or_else(|violation| panic!("key {}: {violation:?}", keys::name(key)));
    }
    Shown { requests, evictions, by_moves, closed, refused, starved, older }
}

impl World {
    fn new(rng: &mut Rng, workers: usize, evicts: bool, control: &net::Control) -> Self {
        let megabytes = 1 + rng.below(2);
        let threads = workers.to_string();
        let memory = megabytes.to_string();
        let mut words = vec!["-m", &memory, "-I", "256k", "-t", &threads, "-o", "lease_interval=0"];
        words.extend((!evicts).then_some("-M"));
        let options = options(&words);
        let policy = *rng.pick(&[Policy::Auto, Policy::Bag, Policy::Lru]);
        let store = Store::new(Config {
            memory_bytes: (megabytes as u64) << 20,
            item_bytes_max: options.item_bytes_max,
            evict: evicts,
            policy,
            automove: *rng.pick(&[Automove::Off, Automove::Age, Automove::Eager]),
            stripes: *rng.pick(&[1, 4, 256]),
            threads_max: workers + 1,
            seed: rng.next_u64(),
            // As in a large store.
            by_place: rng.one_in(2),
            ..Config::default()
        })
        .unwrap();
        let entry = Entry::open(&options, Vec::new(), &Log::new(&options)).unwrap();
        let clock = Clock::start();
        let shared = Shared::new(&options, &store, clock, &entry);
        Self {
            shared,
            store,
            policy,
            evicts,
            control: control.clone(),
            started: clock.started_at(),
            now_ms: AtomicU64::new(0),
            busy: AtomicUsize::new(workers),
            seen: Mutex::default(),
            closed: AtomicUsize::new(0),
        }
    }

    /// The present, later at each call. Relaxed: one thread runs at a time.
    fn now(&self, rng: &mut Rng) -> Instant {
        let passed = if rng.one_in(40) { rng.below(1500) } else { rng.below(20) };
        let now = self.now_ms.fetch_add(passed as u64, Ordering::Relaxed);
        self.started + Duration::from_millis(now)
    }

    /// A worker and its clients.
    fn work(&self, index: usize, mut rng: Rng) {
        let mut worker = Worker::new(&self.shared, index, &self.control);
        let mut connections: Vec<Connection> = (0..2 + rng.below(2))
            .map(|number| {
                let client = Client::new(&mut rng, (index * 8 + number) as u64);
                Connection::new(&mut worker, number as u32, client, rng.one_in(5))
            })
            .collect();
        let mut scratch = Vec::new();
        while connections.iter().any(|connection| !connection.is_done()) {
            worker.begin_turn(self.now(&mut rng));
            for connection in &mut connections {
                if !rng.one_in(3) {
                    connection.turn(&mut worker, &mut rng, &mut scratch);
                }
            }
            let mut names: Vec<ConnId> = Vec::new();
            worker.after_turn(&mut names);
            for connection in &mut connections {
                if names.contains(&connection.name()) {
                    connection.resume(&mut worker, &mut scratch);
                }
            }
            names.clear();
            worker.take_dropped(&mut names);
            for connection in &mut connections {
                if names.contains(&connection.name()) {
                    connection.drop_by_server(&mut worker);
                    self.closed.fetch_add(1, Ordering::Relaxed);
                }
            }
            if rng.one_in(4) {
                worker.before_park();
                schedule::wait();
            }
        }
        let mut seen = Vec::new();
        for connection in connections {
            seen.append(&mut connection.close(&mut worker));
        }
        // No thread stops while this lock is held.
        self.seen.lock().unwrap().append(&mut seen);
        worker.before_park();
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// The cleaner, until the workers are done.
    fn clean(&self) {
        let mut cleaner = Cleaner::new(&self.store).unwrap();
        while self.busy.load(Ordering::Relaxed) > 0 {
            let now = self.started + Duration::from_millis(self.now_ms.load(Ordering::Relaxed));
            cleaner.step(self.shared.clock.secs_at(now), 100);
            let memory = self.store.memory();
            let used = memory.arena + memory.index + memory.bags + memory.buffers + memory.fixed;
            assert!(used <= memory.limit + COLLECTED_MAX, "more than the limit: {memory:?}");
            schedule::wait();
        }
    }
}
