//! A cold cluster compared with a warm one (section 4.3 of the paper) while writers change the
//! database: the time until its hit ratio is 90 % of the warm one's, filled only from the database
//! and by `WarmUpRoute`; and whether a stale value is left.
//!
//! Clients look aside: they get, read misses from the database unless it is busy, and add them. A
//! write changes the database, then deletes the key in both clusters, with a hold-off of two
//! seconds. Reads follow Zipf's law; writes are uniform over all keys. Only the cold server's own
//! hits count.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};

use crate::rig::{self, Running, free_port};

const KEYS: usize = 20_000;
const CLIENTS: u64 = 2;

/// Gets in one batch of a client, and the time between batches.
const BATCH: usize = 50;
const EVERY: Duration = Duration::from_millis(10);

/// The maximum number of database reads per second, unless an argument sets another: one for every
/// hundred gets.
const LOADS_PER_SECOND: f64 = 100.0;

const WRITES_EVERY: Duration = Duration::from_millis(20);
const WINDOW: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(120);

/// Seconds for which a deleted key cannot be added, and some more.
const HOLD_OFF: Duration = Duration::from_millis(3500);

/// Measures and prints a table.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let rate = args.first().map_or(Some(LOADS_PER_SECOND), |text| text.parse().ok());
    let Some(rate) = rate else {
        eprintln!("warmup: usage: cargo xtask bench warmup [DATABASE READS A SECOND]");
        return ExitCode::FAILURE;
    };
    rig::ended("warmup", measure(rate))
}

/// The source of truth: a version for each key, with a limited read rate.
struct Database {
    versions: Vec<AtomicU32>,
    rate: f64,
    room: Mutex<(f64, Instant)>,
}

impl Database {
    /// Returns `None` when it is busy.
    fn read(&self, key: usize) -> Option<u32> {
        let mut room = self.room.lock().ok()?;
        let now = Instant::now();
        let gained = now.duration_since(room.1).as_secs_f64() * self.rate;
        *room = ((room.0 + gained).min((self.rate / 10.0).max(1.0)), now);
        if room.0 < 1.0 {
            return None;
        }
        room.0 -= 1.0;
        drop(room);
        // Partner: the addition of the writer.
        Some(self.versions[key].load(Ordering::SeqCst))
    }
}

/// Keys by Zipf's law with exponent 1.
struct Keys {
    ranks: Zipf<f64>,
    rng: SmallRng,
}

impl Keys {
    fn new(seed: u64) -> Result<Self> {
        Ok(Self { ranks: Zipf::new(KEYS as f64, 1.0)?, rng: SmallRng::seed_from_u64(seed) })
    }

    fn draw(&mut self) -> usize {
        // Ranks start at 1.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to KEYS")]
        let rank = self.ranks.sample(&mut self.rng) as usize;
        rank - 1
    }
}

/// A connection with requests and replies of lines.
struct Wire(BufReader<TcpStream>);

impl Wire {
    fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    fn send(&mut self, text: &str) -> Result<()> {
        Ok(self.0.get_mut().write_all(text.as_bytes())?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => bail!("a connection was closed"),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// The values of the keys, in one get for each key.
    fn values(&mut self, keys: &[usize]) -> Result<Vec<Option<u32>>> {
        let request: String = keys.iter().map(|key| format!("get key:{key}\r\n")).collect();
        self.send(&request)?;
        let mut values = Vec::new();
        for _ in keys {
            let mut value = None;
            loop {
                let line = self.line()?;
                if line == "END" {
                    break;
                }
                let Some(len) =
                    line.strip_prefix("VALUE ").and_then(|rest| rest.rsplit(' ').next())
                else {
                    bail!("the answer to get: {line}");
                };
                let len: usize = len.parse().with_context(|| line.clone())?;
                let mut bytes = vec![0; len + 2];
                self.0.read_exact(&mut bytes)?;
                let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
                value = Some(text.trim().parse().with_context(|| text.clone())?);
            }
            values.push(value);
        }
        Ok(values)
    }

    /// Adds or sets versions, and reads a reply for each.
    fn store(&mut self, command: &str, items: &[(usize, u32)]) -> Result<()> {
        let text = |(key, version): &(usize, u32)| {
            format!("{command} key:{key} 0 0 100\r\n{version:>100}\r\n")
        };
        self.send(&items.iter().map(text).collect::<String>())?;
        items.iter().try_for_each(|_| self.line().map(drop))
    }

    /// `get_hits` and `get_misses`.
    fn counts(&mut self) -> Result<(f64, f64)> {
        self.send("stats\r\n")?;
        let mut stats = HashMap::new();
        loop {
            let line = self.line()?;
            if line == "END" {
                break;
            }
            let mut words = line.split(' ').skip(1);
            if let (Some(name), Some(value)) = (words.next(), words.next()) {
                stats.insert(name.to_owned(), value.parse().unwrap_or(0.0));
            }
        }
        let number =
            |name: &str| stats.get(name).copied().ok_or_else(|| anyhow!("no {name} in stats"));
        Ok((number("get_hits")?, number("get_misses")?))
    }
}

/// The outcome of one way to fill the cluster.
struct Outcome {
    warm_ratio: f64,
    secs: Option<f64>,
    loads: u64,
    requests: u64,
    writes: u64,
    stale: usize,
    checked: usize,
}

fn measure(rate: f64) -> Result<()> {
    rig::build(&["-p", "holdall"])?;
    println!(
        "| a cold cluster is filled from | hit ratio of the warm one | 90 % of it after | gets | database reads | writes | stale of cached, at the end |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut times = Vec::new();
    for (name, warms_up) in [("the database", false), ("the warm cluster", true)] {
        let outcome = fill(warms_up, rate)?;
        let after = outcome.secs.map_or_else(
            || format!("more than {} s", LONGEST.as_secs()),
            |secs| format!("{secs:.2} s"),
        );
        println!(
            "| {name} | {:.3} | {after} | {} | {} | {} | {} of {} |",
            outcome.warm_ratio,
            outcome.requests,
            outcome.loads,
            outcome.writes,
            outcome.stale,
            outcome.checked
        );
        times.push(outcome.secs);
    }
    // One that did not reach the ratio counts as if it did at the end.
    let secs = |time: Option<f64>| time.unwrap_or(LONGEST.as_secs_f64());
    let at_least = if times[0].is_none() { "more than " } else { "" };
    let ratio = secs(times[0]) / secs(times[1]);
    println!("\n{at_least}{ratio:.1} times sooner from the warm cluster");
    Ok(())
}

/// Starts two servers and their router.
fn fill(warms_up: bool, rate: f64) -> Result<Outcome> {
    let ports = [free_port()?, free_port()?, free_port()?];
    let [warm, cold, router] = ports;
    let texts = ports.map(|port| port.to_string());
    let mut running = Running::new();
    for (port, text) in [(warm, &texts[0]), (cold, &texts[1])] {
        let words = ["serve", "-l", "127.0.0.1", "-p", text, "-t", "1", "-m", "256", "-u", "root"];
        running.start(&words, port)?;
    }
    let reads = if warms_up {
        r#"{"type": "WarmUpRoute", "warm": "PoolRoute|W", "cold": "PoolRoute|C"}"#
    } else {
        r#""PoolRoute|C""#
    };
    let config = format!(
        r#"{{"pools": {{"W": {{"servers": ["127.0.0.1:{warm}"]}}, "C": {{"servers": ["127.0.0.1:{cold}"]}}}},
            "route": {{"type": "OperationSelectorRoute", "default_policy": {reads}, "operation_policies": {{
                "delete": {{"type": "AllSyncRoute", "children": ["PoolRoute|W", "PoolRoute|C"]}}}}}}}}"#
    );
    // Timeouts are not measured, and a busy machine may be slow.
    let patient = ["-t", "10000", "--asynclog-disable"];
    running.start(
        &[&["route", "--config", &config, "-p", &texts[2]], &patient[..]].concat(),
        router,
    )?;
    let database = Database {
        versions: (0..KEYS).map(|_| AtomicU32::new(1)).collect(),
        rate,
        room: Mutex::new((0.0, Instant::now())),
    };
    let all: Vec<_> = (0..KEYS).map(|key| (key, 1)).collect();
    let mut filler = Wire::connect(warm)?;
    all.chunks(100).try_for_each(|items| filler.store("set", items))?;
    // The warm cluster under the same load shows the achievable hit ratio.
    let warm_load = Load { database: &database, asked: warm, deletes: router, watched: warm };
    let steady = warm_load.run(|_, elapsed| elapsed >= Duration::from_secs(4))?;
    let wanted = steady.mean_ratio * 0.9;
    let load = Load { database: &database, asked: router, deletes: router, watched: cold };
    let run = load.run(|ratio, elapsed| ratio >= wanted || elapsed >= LONGEST)?;
    // Wait until any copies that were in flight at the last delete have arrived.
    thread::sleep(HOLD_OFF);
    let (stale, checked) = stale(&database, cold)?;
    let secs = (run.ratio >= wanted).then_some(run.elapsed.as_secs_f64());
    let (loads, requests, writes) = (run.loads, run.requests, run.writes);
    Ok(Outcome { warm_ratio: steady.mean_ratio, secs, loads, requests, writes, stale, checked })
}

/// Returns the number of stale values and of all values.
fn stale(database: &Database, port: u16) -> Result<(usize, usize)> {
    let mut wire = Wire::connect(port)?;
    let (mut stale, mut cached) = (0, 0);
    for keys in (0..KEYS).collect::<Vec<_>>().chunks(100) {
        for (key, value) in keys.iter().zip(wire.values(keys)?) {
            let Some(version) = value else { continue };
            cached += 1;
            // Partner: the addition of the writer.
            stale += usize::from(version != database.versions[*key].load(Ordering::SeqCst));
        }
    }
    Ok((stale, cached))
}

/// Clients of one address, and writers.
struct Load<'a> {
    database: &'a Database,
    /// The port for clients.
    asked: u16,
    /// The port for deletes.
    deletes: u16,
    /// The servers whose hits count.
    watched: u16,
}

struct Run {
    /// The hit ratio of the gets in the last window.
    ratio: f64,
    /// The hit ratio of all gets.
    mean_ratio: f64,
    elapsed: Duration,
    loads: u64,
    requests: u64,
    writes: u64,
}

impl Load<'_> {
    /// Runs until `is_enough` returns true for a window's hit ratio and the elapsed time.
    fn run(&self, is_enough: impl Fn(f64, Duration) -> bool) -> Result<Run> {
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|seed| {
                    scope.spawn({
                        let is_done = &is_done;
                        move || self.client(seed + 1, is_done)
                    })
                })
                .collect();
            let writer = scope.spawn(|| self.writer(&is_done));
            let watched = self.watch(is_enough);
            // Partners: the loads of clients and writer.
            is_done.store(true, Ordering::SeqCst);
            let (mut loads, mut requests) = (0, 0);
            for client in clients {
                let (of_loads, of_requests) =
                    client.join().map_err(|_| anyhow!("a client panicked"))??;
                loads += of_loads;
                requests += of_requests;
            }
            let writes = writer.join().map_err(|_| anyhow!("the writer panicked"))??;
            let (ratio, mean_ratio, elapsed) = watched?;
            Ok(Run { ratio, mean_ratio, elapsed, loads, requests, writes })
        })
    }

    fn watch(&self, is_enough: impl Fn(f64, Duration) -> bool) -> Result<(f64, f64, Duration)> {
        let mut wire = Wire::connect(self.watched)?;
        let began = Instant::now();
        let first = wire.counts()?;
        let ratio = |(hits, misses): (f64, f64), (now_hits, now_misses): (f64, f64)| {
            (now_hits - hits) / (now_hits - hits + now_misses - misses).max(1.0)
        };
        let mut before = first;
        loop {
            thread::sleep(WINDOW);
            let now = wire.counts()?;
            let last = ratio(std::mem::replace(&mut before, now), now);
            if is_enough(last, began.elapsed()) {
                return Ok((last, ratio(first, now), began.elapsed()));
            }
        }
    }

    /// Returns the numbers of database reads and of gets.
    fn client(&self, seed: u64, is_done: &AtomicBool) -> Result<(u64, u64)> {
        let (mut wire, mut zipf) = (Wire::connect(self.asked)?, Keys::new(seed)?);
        let (mut loads, mut requests) = (0, 0);
        let mut due = Instant::now();
        // Partner: the store of `run`.
        while !is_done.load(Ordering::SeqCst) {
            let keys: Vec<usize> = (0..BATCH).map(|_| zipf.draw()).collect();
            let values = wire.values(&keys)?;
            requests += keys.len() as u64;
            let missed = keys.iter().zip(values).filter(|(_, value)| value.is_none());
            let read = |(key, _): (&usize, _)| Some((*key, self.database.read(*key)?));
            let loaded: Vec<_> = missed.filter_map(read).collect();
            loads += loaded.len() as u64;
            // A program processes its replies, and writes happen in between.
            thread::sleep(Duration::from_millis(1));
            wire.store("add", &loaded)?;
            due += EVERY;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        Ok((loads, requests))
    }

    fn writer(&self, is_done: &AtomicBool) -> Result<u64> {
        let (mut wire, mut writes) = (Wire::connect(self.deletes)?, 0);
        // Partner: the store of `run`.
        while !is_done.load(Ordering::SeqCst) {
            // Every key in turn, far from each other. If the hottest keys were written most, they
            // would be on hold-off forever.
            let key = usize::try_from((writes + 1) * 7919 % KEYS as u64).unwrap_or(0);
            // Partners: the loads of `read` and `stale`.
            self.database.versions[key].fetch_add(1, Ordering::SeqCst);
            wire.send(&format!("md key:{key} H2\r\n"))?;
            let line = wire.line()?;
            if !["HD", "NF"].contains(&&*line) {
                bail!("the answer to md: {line}");
            }
            writes += 1;
            thread::sleep(WRITES_EVERY);
        }
        Ok(writes)
    }
}
