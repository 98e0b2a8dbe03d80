//! A router's workers: each is a core that takes requests and gives replies. They share the state
//! of the servers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proto::answer::MetaCode;
use routeconf::{MemorySources, Params, load};
use testkit::{Rng, seeds};

use super::recovery;
use super::shape::Shape;
use crate::core::{Core, Submitted};
use crate::plan::{Plan, TreeFlags};
use simulation::{Clock, Net, is_of, mark, now_us, system, unit};
use upstream::{
    Address, Command, Failure, Outcome, Registry, Reply, Request, Sink, Ticket, Upstream,
};

/// A request.
struct Call {
    number: u64,
    op: Command,
    key: Vec<u8>,
    due_us: Option<u64>,
}

/// One worker's unanswered requests, and the results of the others.
#[derive(Default)]
pub(super) struct Calls {
    open: BTreeMap<Ticket, Call>,
    answered: u64,
    failed: u64,
    /// The last failure, and a digest of all answers and their times.
    pub(super) last_failure: Option<Failure>,
    digest: u64,
}

impl Sink for Calls {
    fn answer(&mut self, ticket: Ticket, reply: &Reply<'_>) {
        let call = self.open.remove(&ticket).expect("one answer for each call");
        let now_us = now_us();
        if let Some(due_us) = call.due_us {
            assert!(now_us <= due_us, "{:?} had to end {} us ago", call.op, now_us - due_us);
        }
        let outcome = format!("{:?}", reply.outcome);
        self.digest = mark(outcome.as_bytes(), self.digest ^ ticket ^ now_us);
        if let Outcome::Failed(failure) = reply.outcome {
            self.failed += 1;
            self.last_failure = Some(failure);
        } else {
            self.answered += 1;
            call.check(reply);
        }
    }
}

impl Call {
    /// Asserts that the reply answers this call, and reveals no other call's data.
    fn check(&self, reply: &Reply<'_>) {
        let (op, key) = (self.op, &self.key[..]);
        let fits = match reply.outcome {
            Outcome::Found => {
                let cas =
                    if matches!(op, Command::Gets | Command::Gats) { mark(key, 0) } else { 0 };
                let is_get = matches!(
                    op,
                    Command::Get | Command::Gets | Command::Gat | Command::Gats | Command::LeaseGet
                );
                is_get && reply.key == key && is_of(key, reply.value) && reply.number == cas
            }
            Outcome::Lease => op == Command::LeaseGet && reply.key == key,
            Outcome::Number => {
                matches!(op, Command::Incr | Command::Decr)
                    && reply.number == mark(key, self.number)
            }
            Outcome::Meta(code) => op.is_meta() && self.is_told(code, reply),
            Outcome::Stored | Outcome::NotStored | Outcome::Exists => op.has_value(),
            Outcome::Deleted => op == Command::Delete,
            Outcome::Touched => op == Command::Touch,
            Outcome::Version => op == Command::Version,
            Outcome::NotFound => !op.is_meta() && op != Command::Version,
            _ => false,
        };
        assert!(fits, "call {} ({op:?} of {}): {reply:?}", self.number, key.escape_ascii());
    }

    fn is_told(&self, code: MetaCode, reply: &Reply<'_>) -> bool {
        let mut words = reply.words.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let opaque = format!("O{}", self.number);
        let is_mine = words.all(|word| match word.first() {
            Some(b'O') => word == opaque.as_bytes(),
            Some(b'k') => word[1..] == self.key,
            _ => true,
        });
        is_mine
            && match (self.op, code) {
                (Command::MetaGet, MetaCode::Va) => is_of(&self.key, reply.value),
                (Command::MetaArithmetic, MetaCode::Va) => {
                    reply.value == mark(&self.key, self.number).to_string().as_bytes()
                }
                (_, MetaCode::Va) => false,
                _ => true,
            }
    }
}

pub(super) struct Worker {
    core: Core,
    pub(super) calls: Calls,
}

impl Worker {
    fn ask(&mut self, request: &Request<'_>, number: u64, due_us: Option<u64>) {
        let (op, key) = (request.op, request.key.to_vec());
        self.calls.open.insert(number, Call { number, op, key, due_us });
        if let Submitted::Done(reply) = self.core.submit(request, number) {
            self.calls.answer(number, &reply.get());
        }
    }

    fn turn(&mut self) {
        self.core.turn(system::now());
        self.core.on_events(&mut self.calls);
    }
}

pub(super) struct World {
    pub(super) shape: Shape,
    pub(super) clock: Clock,
    pub(super) registry: Registry,
    pub(super) workers: Vec<Worker>,
    next: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let shape = Shape::draw(&mut rng);
        Self::of(shape, rng, seed)
    }

    pub(super) fn of(shape: Shape, mut rng: Rng, seed: u64) -> Self {
        system::enter(Net::new(rng.next_u64(), shape.servers));
        system::with(|net| net.shut(&shape.rules));
        let clock = Clock::new(rng.next_u64(), shape.lag_us);
        let mut nothing = MemorySources(std::iter::empty().collect());
        let (name, text) = shape.configuration();
        let loaded = load(name, &text, &Params::default(), &mut nothing);
        let config = loaded.expect("a configuration").config;
        let plan = Plan::new(config, shape.settings.clone(), TreeFlags::default()).expect("a plan");
        let registry = Registry::default();
        let worker = |number| {
            let now = system::now();
            let mut upstream = Upstream::new(number, registry.clone(), now).expect("a poller");
            if let Some(window) = shape.window {
                upstream.set_window_with(window.0, window.1);
            }
            let core = Core::new(upstream, 7, seed, |upstream| plan.tree(upstream));
            Worker { core: core.expect("a core"), calls: Calls::default() }
        };
        let workers = (0..shape.workers).map(worker).collect();
        Self { shape, clock, registry, workers, next: 1 }
    }

    /// Advances the time to at most `until_us`, and gives each participant a turn; `ask` runs in
    /// its middle.
    pub(super) fn turn(&mut self, until_us: u64, ask: impl FnOnce(&mut Self)) {
        let until = system::now() + Duration::from_micros(until_us.saturating_sub(now_us()));
        let due: Vec<Option<Instant>> =
            self.workers.iter().map(|worker| worker.core.deadline()).collect();
        self.clock.pass(due.into_iter().chain([Some(until)]));
        self.workers.iter_mut().for_each(Worker::turn);
        ask(self);
        for worker in &mut self.workers {
            worker.core.settle(&mut worker.calls);
        }
        for report in self.registry.report() {
            // And one probe each. TCP takes over from UDP regardless of its queue.
            let most = (self.shape.settings.pending_max as u64 + 1) * u64::from(self.shape.workers);
            let is_bounded = self.shape.has_udp || report.totals.pending <= most;
            assert!(is_bounded, "{} wait", report.totals.pending);
        }
    }

    /// Lets time pass without requests.
    pub(super) fn rest(&mut self, time: Duration) {
        let until_us = now_us() + u64::try_from(time.as_micros()).unwrap_or(0);
        while now_us() < until_us {
            self.turn(until_us, |_| {});
        }
    }

    fn ask_some(&mut self) {
        let worker = self.clock.rng.below(self.workers.len());
        for _ in 0..=self.clock.rng.below(12) {
            let op = *self.clock.rng.pick(&self.shape.ops);
            let key = format!("k:{}", self.clock.rng.below(self.shape.keys)).into_bytes();
            self.ask(worker, op, &key);
        }
    }

    pub(super) fn ask(&mut self, worker: usize, op: Command, key: &[u8]) {
        let number = self.next;
        self.next += 1;
        let (value, words) = (unit(key, number), words(op, number));
        let exptime = i64::try_from(number).unwrap_or(0);
        let exptime =
            if matches!(op, Command::Touch | Command::Gat | Command::Gats) { exptime } else { 0 };
        let value = if op.has_value() { &value[..] } else { b"" };
        let request =
            Request { number, exptime, value, words: words.as_bytes(), ..Request::new(op, key) };
        let due_us = self.shape.limit_us().map(|limit| now_us() + limit);
        self.workers[worker].ask(&request, number, due_us);
    }

    /// Asserts that each command that must not run twice ran at most once.
    fn check_servers(&self) {
        let unauthenticated =
            system::with(|net| net.servers().map(|one| one.unauthenticated).sum::<u64>());
        assert_eq!(unauthenticated, 0, "no client sends a command before its handshake and login");
        let twice = system::with(|net| net.executed_twice());
        assert!(twice.is_empty(), "sent more than once: {twice:?}");
    }

    pub(super) fn knocked_out(&self) -> Vec<Address> {
        let servers = self.registry.report().into_iter();
        servers.filter(|one| one.state.is_out()).map(|one| one.address).collect()
    }

    pub(super) fn open(&self) -> usize {
        self.workers.iter().map(|worker| worker.calls.open.len()).sum()
    }

    pub(super) fn answered(&self) -> u64 {
        self.sum(|calls| calls.answered)
    }

    pub(super) fn failed(&self) -> u64 {
        self.sum(|calls| calls.failed)
    }

    fn sum(&self, of: impl Fn(&Calls) -> u64) -> u64 {
        self.workers.iter().map(|worker| of(&worker.calls)).sum()
    }
}

fn words(op: Command, number: u64) -> String {
    match op {
        Command::MetaGet => format!("v k O{number}"),
        Command::MetaArithmetic => format!("v k D{number} O{number}"),
        _ if op.is_meta() => format!("k O{number}"),
        _ => String::new(),
    }
}

/// Returns the number of answered calls, of failed calls, and a digest of the whole run.
fn run(seed: u64) -> (u64, u64, u64) {
    let mut world = World::new(seed);
    let homes = recovery::homes(&mut world);
    let trouble_us = 5000 + world.clock.rng.below(100_000);
    system::with(|net| net.go_wild(trouble_us, &[]));
    while world.next < world.shape.calls {
        let until_us = now_us() + world.clock.rng.below(6000) as u64;
        world.turn(until_us, |world| {
            if now_us() >= until_us {
                world.ask_some();
            }
        });
    }
    let digest = world.sum(|calls| calls.digest);
    let result = (world.answered(), world.failed(), digest);
    recovery::assert_all_is_well(&mut world, &homes);
    world.check_servers();
    result
}

#[test]
fn every_call_gets_exactly_one_timely_reply() {
    let (mut answered, mut failed, mut count) = (0, 0, 0);
    seeds(300, "every_call_has_one_answer", |seed| {
        let (one, other, _) = run(seed);
        (answered, failed, count) = (answered + one, failed + other, count + 1);
    });
    println!("{count} runs: {answered} calls answered, {failed} failed");
    assert!(count < 100 || answered > failed && failed > count * 5, "{answered}, {failed}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    seeds(5, "the_same_seed", |seed| assert_eq!(run(seed), run(seed)));
}
