//! Cache lines that requests of two workers contend for ([`arena::lines`]).
//!
//! Two workers of one store serve requests in turn, one at a time, so every line that both use
//! moves between them as often as possible. The tests observe the store and its arena; the engine
//! and the loop keep their counts per worker.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::time::Instant;

use arena::lines;
use net::{Flow, Input, Output, Peer, Service};
use store::{Cleaner, Config, Store};
use testkit::Rng;

use crate::clock::Clock;
use crate::entry::Entry;
use crate::log::Log;
use crate::session::tests::{control, options};
use crate::session::{Session, Worker};
use crate::shared::Shared;

const WORKERS: u8 = 2;
const KEYS: usize = 20_000;

/// Lines that a set may contend for on average: three, plus the variation between builds.
const MOST: f64 = 3.1;

/// Workers of one store, and a session of each.
struct World {
    workers: Vec<(Worker, Session)>,
    cleaner: Cleaner,
    /// The cleaner runs between the requests.
    has_cleaner: bool,
    /// Time stands still.
    now: Instant,
    /// Contended lines by their kind, and requests.
    sum: BTreeMap<lines::Kind, usize>,
    requests: usize,
    lots: Rng,
}

impl World {
    fn new() -> Self {
        let control = control();
        let options = options(&["-m", "64", "-t", "2"]);
        let config = Config { memory_bytes: 64 << 20, seed: 1, ..Config::default() };
        let store = Store::new(config).unwrap();
        let entry = Entry::open(&options, Vec::new(), &Log::new(&options)).unwrap();
        let shared = Shared::new(&options, &store, Clock::start(), &entry);
        let workers = (0..usize::from(WORKERS)).map(|index| {
            let mut worker = Worker::new(&shared, index, &control);
            let session = worker.open(&Peer::local());
            (worker, session)
        });
        let workers = workers.collect();
        let cleaner = Cleaner::new(&store).unwrap();
        Self {
            workers,
            cleaner,
            has_cleaner: true,
            now: Instant::now(),
            sum: BTreeMap::new(),
            requests: 0,
            lots: Rng::new(1),
        }
    }

    /// Makes a worker serve a request in its own turn, and notes the lines that it contends for.
    fn ask(&mut self, worker: u8, request: &[u8], reply_end: &[u8]) {
        let (serving, session) = &mut self.workers[usize::from(worker)];
        let (mut input, mut reply) = (Input::new(request), Vec::new());
        lines::act_as(Some(worker));
        serving.begin_turn(self.now);
        let flow = serving.serve(session, &mut input, &mut Output::collecting(&mut reply));
        lines::act_as(None);
        assert_eq!(flow, Flow::NeedInput);
        assert!(reply.ends_with(reply_end), "{}", reply.escape_ascii());
        for (kind, count) in lines::take() {
            *self.sum.entry(kind).or_default() += count;
        }
        self.requests += 1;
        if self.has_cleaner && self.requests.is_multiple_of(500) {
            // The cleaner's own work is not counted, but its effect on the others is.
            lines::act_as(Some(WORKERS));
            self.cleaner.step(1, 2000);
            lines::act_as(None);
            let _ = lines::take();
        }
    }

    /// The workers get keys in turn; each worker gets all of them.
    fn get_all(&mut self) {
        for key in 0..KEYS {
            for worker in 0..WORKERS {
                self.ask(worker, format!("get {key}\r\n").as_bytes(), b"END\r\n");
            }
        }
    }

    /// The workers store randomly drawn keys in turn.
    fn set(&mut self, count: usize, keys: usize) {
        for number in 0..count {
            let key = self.lots.below(keys);
            self.set_one(if number % 2 == 0 { 0 } else { 1 }, key);
        }
    }

    /// The workers store all keys in turn.
    fn set_all(&mut self) {
        for key in 0..KEYS {
            self.set_one(if key % 2 == 0 { 0 } else { 1 }, key);
        }
    }

    fn set_one(&mut self, worker: u8, key: usize) {
        let set = format!("set {key} 0 0 100\r\n{}\r\n", "v".repeat(100));
        self.ask(worker, set.as_bytes(), b"STORED\r\n");
    }

    /// The lines contended for since the last call: per request, by kind, and their sum.
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    fn report(&mut self, what: &str) -> f64 {
        let each = |count: usize| count as f64 / self.requests as f64;
        let all = each(self.sum.values().sum());
        println!("{what}: {all:.3} lines for each of {} requests", self.requests);
        for (kind, &count) in &self.sum {
            println!("    {kind}: {:.3}", each(count));
        }
        self.sum.clear();
        self.requests = 0;
        all
    }
}

#[test]
fn hits_contend_for_no_cache_line() {
    let mut world = World::new();
    world.set_all();
    // The first hit of each worker may leave a mark.
    world.get_all();
    world.report("first gets");
    // A pass of the cleaner that sorts items takes their marks.
    world.has_cleaner = false;
    world.get_all();
    world.report("gets after a pass of the cleaner");
    world.get_all();
    assert!(world.report("gets") < f64::EPSILON, "a hit contends for a line");
}

#[test]
fn sets_contend_for_few_cache_lines() {
    let mut world = World::new();
    world.set_all();
    world.report("first sets");
    world.set(5 * KEYS, KEYS);
    world.report("sets that mix what each worker has stored");
    world.set(2 * KEYS, KEYS);
    let over = world.report("sets in place of others");
    // More than fits into memory.
    world.set(600_000, 10_000_000);
    let new = world.report("sets of new keys, until memory is full");
    world.set(KEYS, 10_000_000);
    let evicting = world.report("sets of keys that are not there, which evict");
    assert!(over < MOST && new < MOST && evicting < MOST, "{over} {new} {evicting}");
}
