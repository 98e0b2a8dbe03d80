//! Hit ratios of the eviction orders on a store in this process: each order fixed for the whole
//! run, and the order that the trials choose, as in a server.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use bench::hitrate::presets::{Kind, Preset};
use bench::hitrate::trace::Request;
use clap::{Parser, ValueEnum};
use sampling::{
    CANDIDATES, Candidate, Collector, Config as Samples, Kind as Access, Log, Snapshot,
};
use store::{Change, Cleaner, Config, EvictionSetting, Handle, NewItem, Policy, Store};

use crate::rig;

/// Requests between two steps of the cleaner: about as many as in a server under full load.
const REQUESTS_PER_STEP: u64 = 500;

/// Requests between two checks by the trials: a tenth of a second of a server under full load.
const REQUESTS_PER_LOOK: u64 = 20_000;

/// Requests per second.
const REQUESTS_PER_SECOND: u64 = 200_000;

const WIDTH: usize = 10;

/// Bytes of the largest value; larger ones are cut.
const VALUE_BYTES_MAX: usize = 1_000_000;

/// Hit ratios of the orders of eviction on known kinds of load, in the second half of the requests.
#[derive(Debug, Parser)]
struct Args {
    /// Memory of the store, in MB.
    #[arg(short, long, default_value_t = 32)]
    memory: u64,
    /// Loads, with commas; all without it.
    #[arg(short, long, value_enum, value_delimiter = ',')]
    loads: Vec<Kind>,
    /// Requests of each load, in millions.
    #[arg(short = 'n', long, default_value_t = 2)]
    millions: u64,
    /// Only the strict LRU, the bags and what the trials choose.
    #[arg(short, long)]
    short: bool,
    /// Decides the order of requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// An order of eviction, and its name.
#[derive(Clone, Copy, Debug)]
enum Order {
    Policy(&'static str, Policy),
    Kept(Candidate),
    Chosen,
}

impl Order {
    fn name(&self) -> String {
        match self {
            Self::Policy(name, _) => (*name).to_owned(),
            Self::Kept(candidate) => {
                let by_size = if candidate.weighs_size { " size" } else { "" };
                format!("x{}{by_size}", candidate.newcomer_factor)
            }
            Self::Chosen => "auto".to_owned(),
        }
    }
}

/// Measures and prints a table.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let words = std::iter::once("eviction".to_owned()).chain(args.iter().cloned());
    rig::ended("eviction", measure(&Args::parse_from(words)))
}

fn measure(args: &Args) -> Result<()> {
    let mut orders = vec![Order::Policy("lru", Policy::Lru), Order::Policy("bag", Policy::Bag)];
    if !args.short {
        orders.extend(CANDIDATES.map(Order::Kept));
    }
    orders.push(Order::Chosen);
    print!("{:14}", format!("-m {}", args.memory));
    orders.iter().for_each(|order| print!("{:>WIDTH$}", order.name()));
    println!();
    let loads = if args.loads.is_empty() { Kind::value_variants() } else { &args.loads[..] };
    for &kind in loads {
        let name = kind.to_possible_value();
        print!("{:14}", name.as_ref().map_or("", |name| name.get_name()));
        let mut choice = String::new();
        for order in &orders {
            let mut cache = Cache::new(args.memory << 20, *order)?;
            print!("{:>WIDTH$.4}", cache.replay(&preset(kind, args))?);
            std::io::stdout().flush()?;
            choice = cache.choice();
        }
        println!("  {choice}");
    }
    Ok(())
}

/// A load that needs far more memory than the store has.
fn preset(kind: Kind, args: &Args) -> Preset {
    let fitting = args.memory * 3000;
    let keys = match kind {
        Kind::Zipf | Kind::SeenOnce | Kind::Web | Kind::Etc | Kind::Scans => 5 * fitting,
        Kind::Bursts | Kind::LoopAndZipf | Kind::Lifetimes => 5 * fitting,
        Kind::Drift | Kind::News => 2 * fitting,
        Kind::Loop => fitting * 6 / 5,
        Kind::Growing => fitting,
    };
    Preset { kind, keys, requests: args.millions * 1_000_000, seed: args.seed }
}

/// A store with one thread, a cleaner and trials.
struct Cache {
    me: Handle,
    cleaner: Cleaner,
    order: Order,
    collector: Collector,
    log: Log,
    threshold: u64,
    now: Snapshot,
    value: Vec<u8>,
}

impl Cache {
    fn new(memory_bytes: u64, order: Order) -> Result<Self> {
        let policy = if let Order::Policy(_, policy) = order { policy } else { Policy::Auto };
        let store = Store::new(Config { memory_bytes, policy, seed: 5, ..Config::default() })?;
        if let Order::Kept(candidate) = order {
            store.set_eviction(setting(candidate));
        }
        let (Some(me), Some(cleaner)) = (store.join(), Cleaner::new(&store)) else {
            bail!("no room for a thread");
        };
        #[allow(clippy::cast_precision_loss, reason = "an estimate")]
        let memory_bytes = memory_bytes as f64 * 0.85;
        let now = Snapshot {
            now_ms: 0,
            now_secs: 1,
            reads: 0,
            hits_and_misses: (0, 0),
            memory_bytes,
            weighs_size: false,
            flush: 0,
        };
        let samples = Samples::for_memory(store.memory().limit, 1, true);
        let (collector, log) = (Collector::new(samples, &now), Log::new(samples.log));
        let value = vec![b'v'; VALUE_BYTES_MAX];
        Ok(Self { me, cleaner, order, collector, log, threshold: u64::MAX, now, value })
    }

    /// Returns the hit ratio of the second half.
    fn replay(&mut self, preset: &Preset) -> Result<f64> {
        let (mut hits, mut gets) = (0u32, 0u32);
        for (at, request) in (0..).zip(preset.requests()?) {
            let secs = 1 + at / REQUESTS_PER_SECOND;
            self.now.now_secs = u32::try_from(secs)?;
            if at % 16 == 0 {
                self.me.begin_turn(self.now.now_secs);
                self.me.quiesce();
            }
            let is_hit = self.get(&request)?;
            if at >= preset.requests / 2 {
                gets += 1;
                hits += u32::from(is_hit);
            }
            if at % REQUESTS_PER_STEP == 0 {
                self.me.rest();
                self.cleaner.step(self.now.now_secs, 2000);
            }
            if at % REQUESTS_PER_LOOK == 0 && matches!(self.order, Order::Chosen) {
                self.look(at);
            }
        }
        Ok(f64::from(hits) / f64::from(gets.max(1)))
    }

    /// Gets look-aside: stores the key on a miss.
    fn get(&mut self, request: &Request) -> Result<bool> {
        let mut key = [b'k'; 16];
        key[..8].copy_from_slice(&request.id.to_le_bytes());
        let hash = self.me.store().hash(&key);
        let bytes = (request.value_bytes as usize).min(VALUE_BYTES_MAX);
        let size = u32::try_from(24 + key.len() + bytes)?;
        let is_hit = self.me.section().find(hash, &key).is_some_and(|item| {
            item.touch();
            true
        });
        let read = if is_hit { (Access::Hit, size) } else { (Access::Miss, 0) };
        self.sample(hash, read, 0);
        if !is_hit {
            let lifetime_secs = Some(request.lifetime_secs).filter(|secs| *secs > 0);
            let deadline = lifetime_secs.map_or(0, |secs| self.now.now_secs + secs);
            let new = NewItem {
                key: &key,
                flags: 0,
                deadline,
                value_len: bytes,
                base64_key: false,
                has_cas: false,
            };
            let Ok(mut draft) = self.me.draft(new) else { bail!("a store was refused") };
            ensure!(draft.push(&self.value[..bytes]).is_ok(), "a value that is too long");
            self.me.section().update(hash, &key, |_| Change::Put { draft, cas: None });
            self.sample(hash, (Access::Stored, size), deadline);
        }
        Ok(is_hit)
    }

    fn sample(&mut self, hash: u64, (kind, bytes): (Access, u32), deadline: u32) {
        if hash < self.threshold && matches!(self.order, Order::Chosen) {
            let noted = self.log.access(hash, (0, kind), (bytes, deadline), 0, b"");
            if let Err(sampling::Full::Thinned(threshold)) = noted {
                self.threshold = self.threshold.min(threshold);
            }
        }
    }

    fn look(&mut self, at: u64) {
        self.now.now_ms = at * 1000 / REQUESTS_PER_SECOND;
        self.now.reads = at;
        self.collector.take(&self.log);
        self.log.clear();
        self.threshold = self.collector.finish(&self.now, self.threshold).min(self.threshold);
        self.me.store().set_eviction(setting(self.collector.trials.chosen()));
    }

    fn choice(&self) -> String {
        let trials = &self.collector.trials;
        let name = Order::Kept(trials.chosen()).name();
        format!("{name}, {} changes", trials.changes())
    }
}

fn setting(candidate: Candidate) -> EvictionSetting {
    let Candidate { newcomer_factor, weighs_size } = candidate;
    EvictionSetting { newcomer_factor, weighs_size }
}
