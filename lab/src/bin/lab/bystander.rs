//! The longest wait of a bystander while another client makes the server do slow work.
//!
//! The server has two workers: one bystander is a client of the worker that does the slow work, the
//! other of the second worker. Eight million items of about 200 bytes fill nearly two gigabytes.

use std::env;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bench::process::Server;
use lab::bystander::{Seen, beside};

use crate::rig::{self, median};

const ITEMS: u64 = 8_000_000;
const MEGABYTES: u32 = 2048;
const VALUE_BYTES: usize = 150;

/// Prefixes of the keys. Half of them are flushed.
const PREFIXES: u64 = 2000;

/// Rounds unless `ROUNDS` sets another number. Each round starts every server once.
const ROUNDS: usize = 3;

/// The slow work, in this order.
const ACTS: [(&str, Act); 10] = [
    ("nothing for five seconds", |_| {
        thread::sleep(Duration::from_secs(5));
        Ok(())
    }),
    ("8 million stores, the table doubles", Client::fill),
    ("every `stats`, twenty times", every_stats),
    ("`lru_crawler metadump all`", |client| client.dump("metadump")),
    ("`lru_crawler mgdump all`", |client| client.dump("mgdump")),
    ("200 pages of another class moved", move_pages),
    ("1,000 prefixes flushed", flush_prefixes),
    ("8 million stores again", Client::fill),
    ("memory limit less by 1 GB", lower_the_limit),
    ("`flush_all` forty times", |client| (0..40).try_for_each(|_| client.ask("flush_all"))),
];

type Act = fn(&mut Client) -> Result<()>;

/// Measures and prints a table.
pub(crate) fn run() -> ExitCode {
    rig::ended("bystander", measure())
}

fn measure() -> Result<()> {
    rig::build(&["-p", "holdall"])?;
    let flags = "-U 0 -l 127.0.0.1 -p {port} -m {memory} -t 2 -c 1024 -u root";
    let holdall = rig::folder().join("holdall");
    let servers: [Server; 2] = [
        format!("memcached=memcached {flags}").parse()?,
        format!("holdall={} serve {flags}", holdall.display()).parse()?,
    ];
    let rounds = env::var("ROUNDS").map_or(Ok(ROUNDS), |count| count.parse())?;
    let mut all = vec![vec![Vec::<[Seen; 2]>::new(); ACTS.len()]; servers.len()];
    for round in 1..=rounds {
        for (server, rows) in servers.iter().zip(&mut all) {
            let running = server.start(MEGABYTES, None)?;
            let mut client = Client::connect(running.address)?;
            for ((name, act), row) in ACTS.iter().zip(rows) {
                eprintln!("round {round}: {}: {name}", server.name);
                let seen = beside(running.address, || act(&mut client))?;
                if !std::mem::take(&mut client.is_unknown) {
                    row.push(seen);
                }
            }
        }
    }
    println!(
        "The longest wait of a bystander, ms: median of {rounds} rounds, least and greatest; and the \
         median of p99.9.\n"
    );
    let names = |server: &Server| {
        format!(" {0}, same worker | p99.9 | {0}, other worker | p99.9 |", server.name)
    };
    let names: String = servers.iter().map(names).collect();
    println!("| beside |{names}\n| --- |{}", " ---: | ---: |".repeat(2 * servers.len()));
    for (index, (name, _)) in ACTS.iter().enumerate() {
        let mut line = format!("| {name} |");
        for rows in &all {
            for place in [1, 0] {
                let seen: Vec<&Seen> = rows[index].iter().map(|both| &both[place]).collect();
                write!(line, " {} |", figures(&seen))?;
            }
        }
        println!("{line}");
    }
    Ok(())
}

/// The figures of a row; empty for a server that does not know the command.
fn figures(seen: &[&Seen]) -> String {
    if seen.is_empty() {
        return "- | -".to_owned();
    }
    let longest: Vec<f64> = seen.iter().map(|seen| seen.ms(1.0)).collect();
    let least = longest.iter().copied().fold(f64::MAX, f64::min);
    let most = longest.iter().copied().fold(0.0, f64::max);
    let usual = median(seen.iter().map(|seen| seen.ms(0.999)).collect());
    format!("{:.1} ({least:.1}-{most:.1}) | {usual:.2}", median(longest))
}

/// The client that causes the slow work.
struct Client {
    reader: BufReader<TcpStream>,
    /// The server did not know a command.
    is_unknown: bool,
}

impl Client {
    fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { reader: BufReader::with_capacity(1 << 20, stream), is_unknown: false })
    }

    /// Sends a line and reads the whole reply.
    fn ask(&mut self, line: &str) -> Result<()> {
        self.reader.get_mut().write_all(format!("{line}\r\nmn\r\n").as_bytes())?;
        self.read_to(|line| line == b"MN\r\n")
    }

    /// Reads up to and including a line for which `is_last` is true.
    fn read_to(&mut self, is_last: fn(&[u8]) -> bool) -> Result<()> {
        let mut line = Vec::new();
        while !is_last(&line) {
            line.clear();
            ensure!(self.reader.read_until(b'\n', &mut line)? > 0, "the server closed");
            self.is_unknown |= line == b"ERROR\r\n";
        }
        Ok(())
    }

    /// Reads a dump of all items. memcached takes no more requests on such a connection.
    fn dump(&mut self, kind: &str) -> Result<()> {
        self.reader.get_mut().write_all(format!("lru_crawler {kind} all\r\n").as_bytes())?;
        self.read_to(|line| matches!(line, b"END\r\n" | b"EN\r\n" | b"ERROR\r\n"))
    }

    /// Stores all items under the prefixes.
    fn fill(&mut self) -> Result<()> {
        let value = "v".repeat(VALUE_BYTES);
        let mut sets = String::new();
        for number in 0..ITEMS {
            let prefix = number % PREFIXES;
            let set = format!("set p{prefix}:{number} 0 0 {VALUE_BYTES} noreply\r\n{value}\r\n");
            sets.push_str(&set);
            if number % 100 == 99 {
                sets.pop();
                sets.pop();
                self.ask(&sets)?;
                sets.clear();
            }
        }
        Ok(())
    }
}

fn every_stats(client: &mut Client) -> Result<()> {
    let groups = [
        "",
        "items",
        "slabs",
        "sizes",
        "settings",
        "conns",
        "bags",
        "hotkeys",
        "latency",
        "mrc",
        "workingset",
        "prefixes",
        "detail dump",
    ];
    for _ in 0..20 {
        for group in groups {
            client.ask(&format!("stats {group}"))?;
        }
        client.ask("stats cachedump 5 0")?;
    }
    // Each server defines its own groups.
    client.is_unknown = false;
    Ok(())
}

/// Moves pages to another class, one by one, from the class that has all of them.
fn move_pages(client: &mut Client) -> Result<()> {
    (0..200).try_for_each(|_| {
        // The server refuses a move while another is in progress.
        thread::sleep(Duration::from_millis(5));
        client.ask("slabs reassign -1 20")
    })
}

fn flush_prefixes(client: &mut Client) -> Result<()> {
    (0..PREFIXES / 2).try_for_each(|prefix| client.ask(&format!("flush_prefix p{prefix}:")))
}

fn lower_the_limit(client: &mut Client) -> Result<()> {
    client.ask(&format!("cache_memlimit {}", MEGABYTES - 1024))?;
    // The server frees the memory in steps.
    thread::sleep(Duration::from_secs(10));
    Ok(())
}
