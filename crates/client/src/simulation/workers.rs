//! Workers as a router has them: each a core with requests in and replies out, sharing what is known of the servers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proto::answer::MetaCode;
use routeconf::{MemorySources, Params, load};
use testkit::Rng;

use super::call::{is_of, mark, unit};
use super::{Clock, Net, now_us, seeds, system};
use crate::core::{Core, Submitted};
use crate::pipeline::{Sink, Ticket};
use crate::plan::{Plan, TreeFlags};
use crate::registry::Registry;
use crate::reply::{Failure, Outcome, Reply};
use crate::request::{Op, Request};
use crate::settings::Settings;
use crate::upstream::Upstream;
use crate::window::{Waiting, Window};

/// What a seed makes of a run.
struct Shape {
    servers: usize,
    workers: u32,
    is_binary: bool,
    has_udp: bool,
    /// Some servers are asked when others fail: what, and after which failures.
    fails_over: bool,
    window: Option<(Window, Waiting)>,
    settings: Settings,
    lag_us: usize,
    calls: u64,
    /// Some of the commands: with few, the same meet more often.
    ops: Vec<Op>,
    keys: usize,
}

impl Shape {
    fn draw(rng: &mut Rng) -> Self {
        let ms = |count: usize| Duration::from_millis(count as u64);
        let timeout = ms(5 + rng.below(40));
        let probe_max = timeout.max(ms(10 + rng.below(40)));
        let is_binary = rng.one_in(3);
        let has_udp = !is_binary && rng.one_in(4);
        let settings = Settings {
            timeout,
            connect_timeout: ms(5 + rng.below(40)),
            connect_retries: u32::from(rng.one_in(4)),
            timeouts_until_tko: *rng.pick(&[0, 1, 3]),
            probe_initial: probe_max / 4,
            probe_max,
            pending_max: *rng.pick(&[8, 100_000, 100_000]),
            unsent_bytes_max: *rng.pick(&[2000, 64 << 20, 64 << 20]),
            value_bytes_max: 1 << 20,
            udp_gets: has_udp.then_some(timeout / 2),
            ..Settings::default()
        };
        Self {
            servers: 1 + rng.below(4),
            workers: if rng.one_in(3) { 2 } else { 1 },
            is_binary,
            has_udp,
            fails_over: rng.one_in(3),
            window: match rng.below(6) {
                0 => Some((Window::Adaptive, Waiting::default())),
                1 => Some((Window::Fixed(3), Waiting { max: 50, timeout: Some(timeout) })),
                _ => None,
            },
            settings,
            lag_us: *rng.pick(&[0, 50, 3000]),
            calls: 150 + rng.below(250) as u64,
            ops: (0..=*rng.pick(&[0, 3, 20])).map(|_| *rng.pick(&OPS)).collect(),
            keys: *rng.pick(&[2, 10, 40]),
        }
    }

    /// Updates go on to other servers only after failures that say that they have not been sent: what must not be done twice is not.
    fn configuration(&self) -> String {
        let servers = |from: usize, step: usize| {
            let all = (from..self.servers).step_by(step);
            all.map(|number| format!("\"{}\"", super::address(number)))
                .collect::<Vec<_>>()
                .join(",")
        };
        let protocol = if self.is_binary { "binary" } else { "ascii" };
        let pool = |name: &str, servers: String| {
            format!(r#""{name}": {{"servers": [{servers}], "protocol": "{protocol}"}}"#)
        };
        if !self.fails_over || self.servers < 2 {
            let pool = pool("A", servers(0, 1));
            return format!(r#"{{"pools": {{{pool}}}, "route": "PoolRoute|A"}}"#);
        }
        let pools = [pool("A", servers(0, 2)), pool("B", servers(1, 2))].join(",");
        format!(
            r#"{{"pools": {{{pools}}}, "route": {{"type": "FailoverRoute",
            "children": ["PoolRoute|A", "PoolRoute|B"], "failover_errors": {{
            "gets": ["tko", "connect_error", "connect_timeout", "timeout", "remote_error", "busy"],
            "updates": ["tko", "connect_error", "connect_timeout", "busy"], "deletes": []}}}}}}"#
        )
    }

    /// How long a call takes at the most, in microseconds; `None`: it may wait for the window.
    fn limit_us(&self) -> Option<u64> {
        let Settings { timeout, connect_timeout, connect_retries, udp_gets, .. } = self.settings;
        let lag = Duration::from_micros(self.lag_us as u64);
        let tcp = timeout.max((connect_timeout + lag) * (1 + connect_retries)) + lag;
        let udp = udp_gets.map_or(Duration::ZERO, |time| time + lag);
        let window = match self.window {
            None => Duration::ZERO,
            Some((_, waiting)) => waiting.timeout? + lag,
        };
        let one = window + tcp + udp;
        let all = if self.fails_over { one * 2 } else { one };
        u64::try_from(all.as_micros()).ok()
    }
}

/// What was asked.
struct Call {
    number: u64,
    op: Op,
    key: Vec<u8>,
    due_us: Option<u64>,
}

/// What one worker was asked and has not answered, and what became of the rest.
#[derive(Default)]
struct Calls {
    open: BTreeMap<Ticket, Call>,
    answered: u64,
    failed: u64,
    /// The last failure, and a digest of everything that was answered, and when.
    last_failure: Option<Failure>,
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
    /// It is an answer to this call, and tells nothing that belongs to another.
    fn check(&self, reply: &Reply<'_>) {
        let (op, key) = (self.op, &self.key[..]);
        let fits = match reply.outcome {
            Outcome::Found => {
                let cas = if matches!(op, Op::Gets | Op::Gats) { mark(key, 0) } else { 0 };
                let is_get = matches!(op, Op::Get | Op::Gets | Op::Gat | Op::Gats | Op::LeaseGet);
                is_get && reply.key == key && is_of(key, reply.value) && reply.number == cas
            }
            Outcome::Lease => op == Op::LeaseGet && reply.key == key,
            Outcome::Number => {
                matches!(op, Op::Incr | Op::Decr) && reply.number == mark(key, self.number)
            }
            Outcome::Meta(code) => op.is_meta() && self.is_told(code, reply),
            Outcome::Stored | Outcome::NotStored | Outcome::Exists => op.has_value(),
            Outcome::Deleted => op == Op::Delete,
            Outcome::Touched => op == Op::Touch,
            Outcome::Version => op == Op::Version,
            Outcome::NotFound => !op.is_meta() && op != Op::Version,
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
                (Op::MetaGet, MetaCode::Va) => is_of(&self.key, reply.value),
                (Op::MetaArithmetic, MetaCode::Va) => {
                    reply.value == mark(&self.key, self.number).to_string().as_bytes()
                }
                (_, MetaCode::Va) => false,
                _ => true,
            }
    }
}

struct Worker {
    core: Core,
    calls: Calls,
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

struct World {
    shape: Shape,
    clock: Clock,
    registry: Registry,
    workers: Vec<Worker>,
    next: u64,
}

/// Gets are asked most, since they share lines.
const OPS: [Op; 24] = [
    Op::Get,
    Op::Get,
    Op::Get,
    Op::Get,
    Op::Get,
    Op::Get,
    Op::Gets,
    Op::Gat,
    Op::Gats,
    Op::LeaseGet,
    Op::Set,
    Op::Set,
    Op::Add,
    Op::Replace,
    Op::Append,
    Op::Prepend,
    Op::Cas,
    Op::Incr,
    Op::Decr,
    Op::Delete,
    Op::Touch,
    Op::MetaGet,
    Op::MetaSet,
    Op::MetaArithmetic,
];

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let shape = Shape::draw(&mut rng);
        system::enter(Net::new(rng.next_u64(), shape.servers));
        let clock = Clock::new(rng.next_u64(), shape.lag_us);
        let mut nothing = MemorySources(std::iter::empty().collect());
        let loaded = load("simulated", &shape.configuration(), &Params::default(), &mut nothing);
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

    /// Time passes, at the most until `until_us`, and everybody has a turn; `ask` comes in its middle.
    fn turn(&mut self, until_us: u64, ask: impl FnOnce(&mut Self)) {
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
            // And one probe each. What UDP cannot answer is asked by TCP whatever waits there.
            let most = (self.shape.settings.pending_max as u64 + 1) * u64::from(self.shape.workers);
            let is_bounded = self.shape.has_udp || report.totals.pending <= most;
            assert!(is_bounded, "{} wait", report.totals.pending);
        }
    }

    /// Nobody asks for so long.
    fn rest(&mut self, time: Duration) {
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

    fn ask(&mut self, worker: usize, op: Op, key: &[u8]) {
        let number = self.next;
        self.next += 1;
        let (value, words) = (unit(key, number), words(op, number));
        let exptime = i64::try_from(number).unwrap_or(0);
        let exptime = if matches!(op, Op::Touch | Op::Gat | Op::Gats) { exptime } else { 0 };
        let value = if op.has_value() { &value[..] } else { b"" };
        let request =
            Request { number, exptime, value, words: words.as_bytes(), ..Request::new(op, key) };
        let due_us = self.shape.limit_us().map(|limit| now_us() + limit);
        self.workers[worker].ask(&request, number, due_us);
    }

    /// Everything that must not be done twice was done once at the most.
    fn check_servers(&self) {
        let twice = system::with(|net| net.heard_twice());
        assert!(twice.is_empty(), "sent more than once: {twice:?}");
    }

    fn open(&self) -> usize {
        self.workers.iter().map(|worker| worker.calls.open.len()).sum()
    }

    fn sum(&self, of: impl Fn(&Calls) -> u64) -> u64 {
        self.workers.iter().map(|worker| of(&worker.calls)).sum()
    }
}

fn words(op: Op, number: u64) -> String {
    match op {
        Op::MetaGet => format!("v k O{number}"),
        Op::MetaArithmetic => format!("v k D{number} O{number}"),
        _ if op.is_meta() => format!("k O{number}"),
        _ => String::new(),
    }
}

/// Answers how many calls were answered, how many failed, and a digest of the whole run.
fn run(seed: u64) -> (u64, u64, u64) {
    let mut world = World::new(seed);
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
    let result = (world.sum(|calls| calls.answered), world.sum(|calls| calls.failed), digest);
    assert_recovery(&mut world);
    world.check_servers();
    result
}

/// Two probe intervals after the last trouble everything is as if there had been none.
fn assert_recovery(world: &mut World) {
    system::with(Net::heal);
    let Settings { timeout, connect_timeout, connect_retries, probe_max, .. } =
        world.shape.settings;
    let connect_timeout = connect_timeout * (1 + connect_retries);
    let lag = Duration::from_micros(world.shape.lag_us as u64) * 4;
    // A probe may be a tenth late, and must wait for what times out before it; packets take up to a millisecond.
    let held = Duration::from_millis(2);
    world.rest(held + timeout.max(connect_timeout) + probe_max * 22 / 10 + lag);
    if world.shape.window.is_some() {
        world.rest(timeout * 100);
    }
    assert_eq!(world.open(), 0, "calls without an answer");
    let tko: Vec<_> =
        world.registry.report().into_iter().filter(|one| one.state.is_out()).collect();
    assert!(tko.is_empty(), "still knocked out: {tko:?}");
    // Nothing is late any more, not even the workers themselves.
    world.clock.lag_us = 0;
    let failed = world.sum(|calls| calls.failed);
    for worker in 0..world.workers.len() {
        for key in 0..8 {
            world.ask(worker, Op::Get, format!("k:{key}").as_bytes());
            world.turn(now_us(), |_| {});
        }
    }
    world.rest(timeout + lag);
    assert_eq!(world.open(), 0, "calls without an answer");
    let failures: Vec<_> = world.workers.iter().map(|one| one.calls.last_failure).collect();
    assert_eq!(world.sum(|calls| calls.failed), failed, "all is well, but: {failures:?}");
}

#[test]
fn every_call_has_one_answer_of_its_own_in_time() {
    let (mut answered, mut failed, mut count) = (0, 0, 0);
    seeds(300, "every_call_has_one_answer", |seed| {
        let (one, other, _) = run(seed);
        (answered, failed, count) = (answered + one, failed + other, count + 1);
    });
    println!("{count} runs: {answered} calls answered, {failed} failed");
    assert!(count < 100 || answered > failed && failed > count * 5, "{answered}, {failed}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    seeds(5, "the_same_seed", |seed| assert_eq!(run(seed), run(seed)));
}
