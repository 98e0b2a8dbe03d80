//! Thundering herds: how many reads reach the database when keys that many clients read are
//! invalidated under load.
//!
//! The question is from *Scaling Memcache at Facebook*, section 3.2.1: leases reduced the peak rate
//! of database queries from 17 K/s to 1.3 K/s, 13 times. The database here is a delay and a
//! counter. Each client, a thread with a connection, reads keys at random with a pause between
//! reads; another thread deletes each key in turn. The measured ways differ in the client's
//! response to a miss:
//!
//! * `get` and `set`: the client reads the database and stores.
//! * Leases, waiting: the client with the token does so. The others retry after 2 ms, 4 ms, .. 500
//!   ms, ten times, then read the database themselves.
//! * Leases, polling: a waiting client retries at least every 20 ms, for five seconds; the server
//!   issues a token once per second.
//! * Leases, stale values: as waiting, but a client uses a stale value if the server returns one.
//!
//! A waiting client has to ask while the value is present. Under constant invalidation this is only
//! a moment, once in each of the server's intervals. A client with longer steps misses that moment
//! and reads the database, however often the server issues tokens.
//!
//! Relaxed is enough for the counts: they are read after the threads are joined, and a late view of
//! `is_over` costs one more request.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::rng::Rng;
use bench::process::Server;

/// The plan of the measurement.
#[derive(Clone, Debug)]
pub struct HerdPlan {
    /// A server that supports leases.
    pub server: Server,
    /// The number of clients.
    pub clients: u32,
    /// The number of keys.
    pub keys: u32,
    /// The interval between two deletes of a key.
    pub invalidate_every: Duration,
    /// The duration of a database read.
    pub database: Duration,
    /// A client's pause between two reads.
    pub pause: Duration,
    /// Length of the measurement of each way.
    pub length: Duration,
}

/// The response of a client to a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Plain,
    Wait,
    Poll,
    Stale,
}

const PROTOCOLS: [(Protocol, &str); 4] = [
    (Protocol::Plain, "`get` and `set`"),
    (Protocol::Wait, "leases, waiting"),
    (Protocol::Poll, "leases, polling, `lease_interval=1`"),
    (Protocol::Stale, "leases, stale values"),
];

const FIRST_WAIT: Duration = Duration::from_millis(2);

impl Protocol {
    /// The longest wait between two reads, and the total wait. Most are those of mcrouter's
    /// lookaside route: 2 ms, doubled up to 500 ms, ten times.
    fn waits(self) -> (Duration, Duration) {
        match self {
            Self::Poll => (Duration::from_millis(20), Duration::from_secs(5)),
            _ => (Duration::from_millis(500), Duration::from_millis(1510)),
        }
    }
}

const VALUE: &[u8] = &[b'v'; 100];

/// The counts of all clients of one protocol.
#[derive(Debug)]
struct Counts {
    began: Instant,
    /// Database reads in each second.
    database: Vec<AtomicU64>,
    reads: AtomicU64,
    stale: AtomicU64,
    waits: AtomicU64,
    is_over: AtomicBool,
}

/// Runs every protocol and returns the table. Calls `progress` at the start of each.
///
/// # Errors
///
/// When the server does not start, or sends an unexpected reply.
pub fn run(plan: &HerdPlan, mut progress: impl FnMut(&str)) -> Result<String> {
    let mut table = format!(
        "{} clients, {} keys, each deleted every {} ms, a database of {} ms, {} s for each way.\n\n\
         | way | reads/s | database reads/s, peak | mean | stale values | waits |\n\
         | --- | --- | --- | --- | --- | --- |\n",
        plan.clients,
        plan.keys,
        plan.invalidate_every.as_millis(),
        plan.database.as_millis(),
        plan.length.as_secs(),
    );
    let mut peaks = Vec::new();
    for (protocol, name) in PROTOCOLS {
        progress(name);
        let counts = measure(plan, protocol)?;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let secs = plan.length.as_secs_f64();
        let database: Vec<_> = counts.database.iter().map(load).collect();
        let peak = database.iter().copied().max().unwrap_or(0);
        let mean = to_f64(database.iter().sum()) / secs;
        writeln!(
            table,
            "| {name} | {:.0} | {peak} | {mean:.1} | {} | {} |",
            to_f64(load(&counts.reads)) / secs,
            load(&counts.stale),
            load(&counts.waits),
        )?;
        peaks.push(peak);
    }
    let times = |peak: u64| to_f64(peaks[0]) / to_f64(peak.max(1));
    write!(
        table,
        "\nThe peak is {:.1} times lower with leases and stale values, {:.1} times with waiting, {:.1} times with polling.\n",
        times(peaks[3]),
        times(peaks[1]),
        times(peaks[2]),
    )?;
    Ok(table)
}

fn to_f64(number: u64) -> f64 {
    u32::try_from(number).map_or_else(|_| f64::from(u32::MAX), f64::from)
}

fn measure(plan: &HerdPlan, protocol: Protocol) -> Result<Counts> {
    let server = match protocol {
        Protocol::Poll => plan.server.with(&plan.server.name, &["-o", "lease_interval=1"]),
        _ => plan.server.clone(),
    };
    let server = server.start(64, None)?;
    fill(server.address, plan.keys)?;
    let counts = Counts {
        began: Instant::now(),
        database: (0..=plan.length.as_secs()).map(|_| AtomicU64::new(0)).collect(),
        reads: AtomicU64::new(0),
        stale: AtomicU64::new(0),
        waits: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let (address, counts) = (server.address, &counts);
        let mut threads: Vec<_> = (0..plan.clients)
            .map(|number| {
                scope.spawn(move || Client::new(address, plan, protocol, counts)?.run(number))
            })
            .collect();
        threads.push(scope.spawn(move || invalidate(address, plan, counts)));
        thread::sleep(plan.length.saturating_sub(counts.began.elapsed()));
        counts.is_over.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a client panicked"),
        })
    })?;
    Ok(counts)
}

/// Stores every key, so that the cache is warm.
fn fill(address: SocketAddr, keys: u32) -> Result<()> {
    let mut wire = Wire::connect(address)?;
    for key in 0..keys {
        let line = format!("set key{key} 0 0 {}\r\n", VALUE.len());
        wire.send(&[line.as_bytes(), VALUE, b"\r\n"].concat())?;
        ensure!(wire.line()? == "STORED", "key{key} was not stored");
    }
    Ok(())
}

/// Deletes each key in turn.
fn invalidate(address: SocketAddr, plan: &HerdPlan, counts: &Counts) -> Result<()> {
    let mut wire = Wire::connect(address)?;
    let step = plan.invalidate_every / plan.keys;
    let mut number = 0;
    while !counts.is_over.load(Ordering::Relaxed) {
        wire.send(format!("delete key{}\r\n", number % plan.keys).as_bytes())?;
        wire.line()?;
        number += 1;
        thread::sleep((step * number).saturating_sub(counts.began.elapsed()));
    }
    Ok(())
}

struct Client<'p> {
    wire: Wire,
    plan: &'p HerdPlan,
    protocol: Protocol,
    counts: &'p Counts,
}

/// The reply to a read.
enum Answer {
    Hit,
    /// With a token for storing the value; 0 without leases.
    Fill(u64),
    Stale,
    Wait,
}

impl<'p> Client<'p> {
    fn new(
        address: SocketAddr,
        plan: &'p HerdPlan,
        protocol: Protocol,
        counts: &'p Counts,
    ) -> Result<Self> {
        Ok(Self { wire: Wire::connect(address)?, plan, protocol, counts })
    }

    fn run(&mut self, number: u32) -> Result<()> {
        let mut rng = Rng::new(u64::from(number));
        while !self.counts.is_over.load(Ordering::Relaxed) {
            self.read(rng.below(self.plan.keys))?;
            self.counts.reads.fetch_add(1, Ordering::Relaxed);
            thread::sleep(self.plan.pause);
        }
        Ok(())
    }

    fn read(&mut self, key: u32) -> Result<()> {
        let (longest, patience) = self.protocol.waits();
        let (mut wait, mut waited) = (FIRST_WAIT, Duration::ZERO);
        while waited < patience {
            match self.ask(key)? {
                Answer::Hit => return Ok(()),
                Answer::Stale if self.protocol == Protocol::Stale => {
                    self.counts.stale.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                Answer::Fill(token) => return self.fill(key, token),
                Answer::Stale | Answer::Wait => {
                    self.counts.waits.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(wait);
                    waited += wait;
                    wait = (wait * 2).min(longest);
                }
            }
        }
        self.query();
        Ok(())
    }

    fn ask(&mut self, key: u32) -> Result<Answer> {
        let command = if self.protocol == Protocol::Plain { "get" } else { "lease-get" };
        self.wire.send(format!("{command} key{key}\r\n").as_bytes())?;
        let line = self.wire.line()?;
        if line == "END" {
            return Ok(Answer::Fill(0));
        }
        let words: Vec<_> = line.split(' ').collect();
        let [kind, _, second, .., bytes] = words[..] else { bail!("answered {line:?}") };
        let bytes: usize = bytes.parse().with_context(|| line.clone())?;
        self.wire.skip(bytes + 2)?;
        ensure!(self.wire.line()? == "END", "no END after {line:?}");
        Ok(match (kind, second.parse()?, bytes) {
            ("VALUE", _, _) => Answer::Hit,
            (_, 1, 0) => Answer::Wait,
            (_, 1, _) => Answer::Stale,
            (_, token, _) => Answer::Fill(token),
        })
    }

    fn fill(&mut self, key: u32, token: u64) -> Result<()> {
        self.query();
        let len = VALUE.len();
        let line = match token {
            0 => format!("set key{key} 0 0 {len}\r\n"),
            _ => format!("lease-set key{key} {token} 0 0 {len}\r\n"),
        };
        self.wire.send(&[line.as_bytes(), VALUE, b"\r\n"].concat())?;
        let answer = self.wire.line()?;
        ensure!(answer == "STORED" || answer == "NOT_STORED", "answered {answer:?}");
        Ok(())
    }

    /// Reads the database.
    fn query(&self) {
        let second = usize::try_from(self.counts.began.elapsed().as_secs());
        if let Some(count) = second.ok().and_then(|second| self.counts.database.get(second)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        thread::sleep(self.plan.database);
    }
}

struct Wire {
    reader: BufReader<TcpStream>,
    line: String,
}

impl Wire {
    fn connect(address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(socket), line: String::new() })
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.reader.get_mut().write_all(bytes)?)
    }

    fn line(&mut self) -> Result<String> {
        self.line.clear();
        self.reader.read_line(&mut self.line)?;
        Ok(self.line.trim_end().to_owned())
    }

    fn skip(&mut self, bytes: usize) -> Result<()> {
        Ok(self.reader.read_exact(&mut vec![0; bytes])?)
    }
}
