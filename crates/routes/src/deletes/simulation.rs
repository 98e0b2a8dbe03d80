//! Failing deletes in simulated time, while the program is killed: acknowledged deletes are
//! executed. See [`crate::simulation`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use routeconf::{MemorySources, Params, load};
use spool::{Fsync, Spool};
use testkit::{Rng, seeds};

use super::spooler::Work;
use super::{Counters, Deletes, Inbox, Shared};
use crate::core::{Core, Submitted};
use crate::plan::{Plan, TreeFlags};
use simulation::{Clock, Net, address, now_us, system};
use upstream::{
    Command, Outcome, Registry, Reply, Request, Settings, Sink, Ticket, Upstream, Wake,
};

/// Deletes by their tickets, and which of them were acknowledged.
#[derive(Default)]
struct Calls {
    open: BTreeMap<Ticket, Vec<u8>>,
    acknowledged: Vec<Vec<u8>>,
    refused: u64,
}

impl Sink for Calls {
    fn answer(&mut self, ticket: Ticket, reply: &Reply<'_>) {
        let key = self.open.remove(&ticket).expect("one answer for each call");
        match reply.outcome {
            Outcome::Deleted | Outcome::NotFound => self.acknowledged.push(key),
            Outcome::Failed(_) => self.refused += 1,
            other => panic!("{other:?}"),
        }
    }
}

/// The program, until it is killed: a worker, and the spooler without its thread.
struct Life {
    core: Core,
    work: Work<fn(&str)>,
    shared: Arc<Shared>,
}

impl Life {
    fn begin(folder: &Path, plan: &Plan, seed: u64) -> Self {
        let settings = spool::Settings {
            segment_bytes: 300,
            fsync: Fsync::Never,
            ..spool::Settings::default()
        };
        let spool = Spool::open(folder, settings).expect("a spool");
        let (registry, now) = (Registry::default(), system::now());
        let upstream = Upstream::new(0, registry.clone(), now).expect("a poller");
        let core = Core::new(upstream, 7, seed, |upstream| plan.tree(upstream)).expect("a core");
        let shared = Arc::new(Shared {
            inbox: std::sync::Mutex::<Inbox>::default(),
            wake: Wake::new().expect("a descriptor"),
            counters: Counters::default(),
        });
        let log: fn(&str) = |_| {};
        let work = Work::new(spool, None, registry, 1, false, Arc::clone(&shared), log);
        let mut work = work.expect("a poller");
        work.begin(plan.targets());
        core.keep_deletes(Deletes { shared: Arc::clone(&shared) }).expect("a descriptor");
        Self { core, work, shared }
    }

    /// Runs one turn of the worker, with `ask` in its middle, and one of the spooler.
    fn turn(&mut self, clock: &mut Clock, calls: &mut Calls, until_us: u64, keys: &[Vec<u8>]) {
        let until = system::now() + Duration::from_micros(until_us.saturating_sub(now_us()));
        let has_work = !self.shared.inbox().kept.is_empty();
        let at_once = has_work.then(system::now);
        clock.pass([self.core.deadline(), self.work.due(), at_once, Some(until)]);
        self.core.turn(system::now());
        for key in keys {
            let ticket = calls.open.last_key_value().map_or(1, |(last, _)| last + 1);
            calls.open.insert(ticket, key.clone());
            let request = Request::new(Command::Delete, key);
            if let Submitted::Done(reply) = self.core.submit(&request, ticket) {
                calls.answer(ticket, &reply.get());
            }
        }
        self.core.settle(calls);
        self.work.turn();
        self.core.on_events(calls);
        self.core.settle(calls);
    }
}

fn plan(rng: &mut Rng, servers: usize) -> Plan {
    let ms = |count: usize| Duration::from_millis(count as u64);
    let settings = Settings {
        timeout: ms(5 + rng.below(30)),
        connect_timeout: ms(5 + rng.below(30)),
        timeouts_until_tko: *rng.pick(&[0, 1, 3]),
        probe_initial: ms(5),
        probe_max: ms(20),
        ..Settings::default()
    };
    let names: Vec<_> = (0..servers).map(|number| format!("\"{}\"", address(number))).collect();
    let protocol = if rng.one_in(3) { "binary" } else { "ascii" };
    let text = format!(
        r#"{{"pools": {{"A": {{"servers": [{}], "protocol": "{protocol}"}}}}, "route": "PoolRoute|A"}}"#,
        names.join(",")
    );
    let mut nothing = MemorySources(std::iter::empty().collect());
    let loaded = load("simulated", &text, &Params::default(), &mut nothing);
    let config = loaded.expect("a configuration").config;
    Plan::new(config, settings, TreeFlags::default()).expect("a plan")
}

/// Returns the number of acknowledged deletes, and how many of them had been kept.
fn run(seed: u64) -> (u64, u64) {
    let mut rng = Rng::new(seed);
    let servers = 1 + rng.below(3);
    system::enter(Net::new(rng.next_u64(), servers));
    let plan = plan(&mut rng, servers);
    let mut clock = Clock::new(rng.next_u64(), *rng.pick(&[0, 50, 3000]));
    let folder = tempfile::tempdir().expect("a folder");
    let mut calls = Calls::default();
    let trouble_us = 5000 + rng.below(150_000);
    system::with(|net| net.go_wild(trouble_us, &[]));
    let (mut number, mut kept) = (0, 0);
    for _ in 0..1 + rng.below(4) {
        let mut life = Life::begin(folder.path(), &plan, seed);
        let last = number + 20 + rng.below(80);
        while number < last {
            let until_us = now_us() + rng.below(8000) as u64;
            let keys: Vec<_> = (number..=number + rng.below(6)).map(|n| format!("k:{n}")).collect();
            number += keys.len();
            let keys: Vec<_> = keys.into_iter().map(String::into_bytes).collect();
            life.turn(&mut clock, &mut calls, until_us, &keys);
        }
        kept += life.work_kept();
        // Killed during work; waiting callers never get an answer.
        calls.open.clear();
    }
    assert_executed(folder.path(), &plan, seed, &mut clock, &mut calls);
    (calls.acknowledged.len() as u64, kept)
}

impl Life {
    fn work_kept(&self) -> u64 {
        Deletes { shared: Arc::clone(&self.shared) }.counts().kept
    }
}

/// Asserts that, without troubles, all acknowledged deletes are executed and none is pending.
fn assert_executed(folder: &Path, plan: &Plan, seed: u64, clock: &mut Clock, calls: &mut Calls) {
    system::with(Net::heal);
    let mut life = Life::begin(folder, plan, seed);
    let end_us = now_us() + 5_000_000;
    let deletes = Deletes { shared: Arc::clone(&life.shared) };
    while now_us() < end_us && deletes.counts().pending > 0 {
        life.turn(clock, calls, end_us, &[]);
    }
    assert_eq!((deletes.counts().pending, deletes.counts().lost), (0, 0), "still to be executed");
    system::with(|net| {
        let is_deleted = |key: &Vec<u8>| net.servers().any(|one| one.deleted_us.contains_key(key));
        let lost: Vec<_> = calls.acknowledged.iter().filter(|key| !is_deleted(key)).collect();
        assert!(lost.is_empty(), "acknowledged, and lost: {lost:?}");
    });
}

#[test]
fn an_acknowledged_delete_is_executed() {
    let (mut acknowledged, mut kept, mut count) = (0, 0, 0);
    seeds(300, "an_acknowledged_delete", |seed| {
        let (one, other) = run(seed);
        (acknowledged, kept, count) = (acknowledged + one, kept + other, count + 1);
    });
    println!("{count} runs: {acknowledged} deletes acknowledged, {kept} of them kept");
    assert!(count < 100 || kept > count, "{kept} were kept");
}
