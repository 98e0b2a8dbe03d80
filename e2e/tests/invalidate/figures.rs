//! Figures of the invalidator: the time from a commit to its delete in the cache, keys read and
//! delivered per second, and packets saved by batching. They are printed; the tests assert only
//! that every delete arrives.
//!
//! `DISTANCE_MS` is the round-trip time to a distant router.
//!
//! `CHANGES` is the number of row changes of each measurement, `RATE` their number per second,
//! `SERVERS` the number of servers that receive packets, `DATABASES` the number of databases,
//! `BATCH_WAIT_US` the time that a batch waits for more. `cargo xtask bench invalidation` runs them
//! with large numbers and the release build.

use std::env;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use e2e::invalidator::Invalidator;
use testkit::{Kind, Launch, Router, Server};

use crate::database::Database;

/// The number of rows that one transaction changes.
const ROWS: u32 = 10;

fn number(name: &str, default: u32) -> u32 {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn delivery() -> String {
    let wait = env::var("BATCH_WAIT_US").map(|us| format!("batch_wait_us = {us}"));
    format!("[delivery]\n{}", wait.unwrap_or_default())
}

/// Maps row `id` of the table to this key.
fn keys(database: &Database) -> String {
    format!("[keys.tables]\n\"{}\" = \"item:{{id}}\"", database.table("items"))
}

fn follow(database: &Database, router: &Router) -> Invalidator {
    Invalidator::new(&database.source(), &keys(database), &[router.addr()], &delivery())
}

fn small() -> Server {
    Launch::new(Kind::Holdall).args(&["-t", "1", "-m", "64"]).start()
}

/// The sorted value at `per_mille` thousandths.
fn quantile(sorted: &[Duration], per_mille: usize) -> Duration {
    sorted[(sorted.len() - 1) * per_mille / 1000]
}

/// Waits for turns at regular intervals.
struct Turns {
    begin: Instant,
    every: Duration,
    turn: u32,
}

impl Turns {
    fn next(&mut self) {
        let due = self.begin + self.every * self.turn;
        self.turn += 1;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// Commits transactions of `ROWS` rows at its share of the rate; returns, for the first row of
/// each, the times from the request and from the acknowledgement of the commit to its key's delete.
fn writer(
    database: &Database,
    cache: SocketAddr,
    (share, shares): (u32, u32),
    transactions: u32,
    rate: u32,
) -> Vec<(Duration, Duration)> {
    let mut session = database.session();
    let mut wire = TcpStream::connect(cache).unwrap();
    wire.set_nodelay(true).unwrap();
    let mut ask = |line: &str, buffer: &mut [u8; 64]| {
        wire.write_all(line.as_bytes()).unwrap();
        wire.read(buffer).unwrap()
    };
    let every = Duration::from_secs(u64::from(ROWS * shares)) / rate;
    let mut turns = Turns { begin: Instant::now() + every * share / shares, every, turn: 0 };
    let mut buffer = [0; 64];
    let mut times = Vec::new();
    for turn in 0..transactions / shares {
        turns.next();
        let first = (turn * shares + share) * ROWS;
        ask(&format!("set item:{first} 0 0 1\r\nx\r\n"), &mut buffer);
        let called = Instant::now();
        let update =
            format!("UPDATE items SET v = v + 1 WHERE id BETWEEN {first} AND {}", first + ROWS - 1);
        session.run(&update).expect("the database runs");
        let acknowledged = Instant::now();
        loop {
            let length = ask(&format!("mg item:{first}\r\n"), &mut buffer);
            if buffer.starts_with(b"EN") {
                break;
            }
            assert!(length > 0 && called.elapsed() < Duration::from_secs(30), "item:{first} stays");
            thread::sleep(Duration::from_micros(100));
        }
        times.push((called.elapsed(), acknowledged.elapsed()));
    }
    times
}

#[test]
fn commit_to_delete_latency_figures() {
    for (name, make) in Database::BOTH {
        time(name, &make());
    }
}

fn time(name: &str, database: &Database) {
    let (changes, rate) = (number("CHANGES", 400), number("RATE", 5000));
    database.make("items", changes.into());
    let server = small();
    let router = Router::over(&[server.addr()], "\"PoolRoute|all\"", &["--num-proxies", "1"]);
    let mut invalidator = follow(database, &router);
    invalidator.start(&[]);
    let (shares, cache) = (4, server.addr());
    let times: Vec<(Duration, Duration)> = thread::scope(|scope| {
        let run = |share| {
            scope.spawn(move || writer(database, cache, (share, shares), changes / ROWS, rate))
        };
        let threads: Vec<_> = (0..shares).map(run).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    for (moment, of) in [("asked for", 0), ("acknowledged", 1)] {
        let mut sorted: Vec<Duration> =
            times.iter().map(|both| if of == 0 { both.0 } else { both.1 }).collect();
        sorted.sort();
        println!(
            "{name}: {changes} row changes at {rate}/s: gone after the commit was {moment}: p50 {:?}, p90 {:?}, p99 {:?}, max {:?}",
            quantile(&sorted, 500),
            quantile(&sorted, 900),
            quantile(&sorted, 990),
            quantile(&sorted, 1000)
        );
    }
    assert!(!times.is_empty());
}

#[test]
fn log_throughput_figures() {
    for (name, make) in Database::BOTH {
        read_and_deliver(name, &make());
    }
}

fn read_and_deliver(name: &str, database: &Database) {
    let changes = number("CHANGES", 400);
    database.make("items", 0);
    let server = small();
    let router = Router::over(&[server.addr()], "\"PoolRoute|all\"", &["--num-proxies", "1"]);
    let mut invalidator = follow(database, &router);
    // It keeps its position before it reads; changes made while it is down are the log to read.
    invalidator.start(&[]);
    invalidator.kill();
    database.insert("items", changes, ROWS);
    let begin = Instant::now();
    invalidator.start(&[]);
    invalidator.until("cluster:c0:delivered", |count| count >= u64::from(changes));
    let took = begin.elapsed();
    invalidator.until("cluster:c0:waiting", |count| count == 0);
    println!(
        "{name}: {changes} keys in transactions of {ROWS} were read and delivered in {took:?}: {:.0} keys/s; {:?} of CPU",
        f64::from(changes) / took.as_secs_f64(),
        invalidator.cpu()
    );
}

#[test]
fn throughput_figures_for_a_distant_router() {
    let distance = Duration::from_millis(number("DISTANCE_MS", 80).into());
    for (name, make) in Database::BOTH {
        for compression in ["none", "zstd"] {
            deliver_far(name, &make(), distance, compression);
        }
    }
}

fn deliver_far(name: &str, database: &Database, distance: Duration, compression: &str) {
    let changes = number("CHANGES", 400);
    database.make("items", 0);
    let server = small();
    let router = Router::over(&[server.addr()], "\"PoolRoute|all\"", &["--num-proxies", "1"]);
    let far = relay(router.addr(), distance / 2);
    let mut invalidator =
        Invalidator::new(&database.source(), &keys(database), &[far], &delivery());
    invalidator.configure(&format!("compression = \"{compression}\"\n"));
    invalidator.start(&[]);
    invalidator.kill();
    database.insert("items", changes, ROWS);
    let begin = Instant::now();
    invalidator.start(&[]);
    invalidator.until("cluster:c0:delivered", |count| count >= u64::from(changes));
    let took = begin.elapsed();
    let (_, bytes) = sent(|_, peer| peer == far.port());
    println!(
        "{name}, compression \"{compression}\": {changes} keys were read and delivered over \
         {distance:?} in {took:?}: {:.0} keys/s; {:.1} bytes a key; {:?} of CPU",
        f64::from(changes) / took.as_secs_f64(),
        number_f64(bytes) / f64::from(changes),
        invalidator.cpu()
    );
}

/// A relay before an address: all bytes arrive after `trip`, and delay no later bytes.
fn relay(to: SocketAddr, trip: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(to) else { continue };
            pass(near.try_clone().unwrap(), far.try_clone().unwrap(), trip);
            pass(far, near, trip);
        }
    });
    address
}

fn pass(mut from: TcpStream, mut to: TcpStream, trip: Duration) {
    let (pieces, waiting) = mpsc::channel::<(Instant, Vec<u8>)>();
    to.set_nodelay(true).unwrap();
    thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            if pieces.send((Instant::now() + trip, bytes[..len].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due, piece) in waiting {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                return;
            }
        }
        // Either side may close the connection.
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Data packets and bytes sent on the connections for whose own and peer port `is_meant` is true.
fn sent(is_meant: impl Fn(u16, u16) -> bool) -> (u64, u64) {
    let output = Command::new("ss").args(["-tinHO", "state", "established"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (mut packets, mut bytes) = (0, 0);
    for line in text.lines() {
        // Queues, our address, the peer's, and then `name:value`.
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = |at: usize| -> Option<u16> { words.get(at)?.rsplit(':').next()?.parse().ok() };
        let (Some(own), Some(peer)) = (port(2), port(3)) else { continue };
        if !is_meant(own, peer) {
            continue;
        }
        let value = |name: &str| -> u64 {
            let found = words.iter().find_map(|word| word.strip_prefix(name));
            found.map_or(0, |value| value.parse().unwrap_or(0))
        };
        packets += value("data_segs_out:");
        bytes += value("bytes_sent:");
    }
    (packets, bytes)
}

/// Sends one delete per packet directly to all servers; returns packets and bytes.
fn one_by_one(servers: &[SocketAddr], changes: u32, rate: u32) -> (u64, u64) {
    let mut streams: Vec<TcpStream> =
        servers.iter().map(|address| TcpStream::connect(address).unwrap()).collect();
    streams.iter().for_each(|stream| stream.set_nodelay(true).unwrap());
    let count = u32::try_from(streams.len()).unwrap();
    let every = Duration::from_secs(1) / rate;
    let mut turns = Turns { begin: Instant::now(), every, turn: 0 };
    for key in 0..changes {
        turns.next();
        let stream = &mut streams[(key % count) as usize];
        stream.write_all(format!("delete item:{key} noreply\r\n").as_bytes()).unwrap();
    }
    let own: Vec<u16> = streams.iter().map(|stream| stream.local_addr().unwrap().port()).collect();
    sent(|port, _| own.contains(&port))
}

/// Commits transactions of `ROWS` rows at this rate.
fn change(database: &Database, changes: u32, rate: u32) {
    let mut session = database.session();
    let every = Duration::from_secs(u64::from(ROWS)) / rate;
    let mut turns = Turns { begin: Instant::now(), every, turn: 0 };
    for turn in 0..changes / ROWS {
        turns.next();
        let (first, last) = (turn * ROWS, turn * ROWS + ROWS - 1);
        let update = format!("UPDATE items SET v = v + 1 WHERE id BETWEEN {first} AND {last}");
        session.run(&update).expect("the database runs");
    }
}

/// Streams of several databases, each with its own invalidator, into one cluster of many servers.
#[test]
fn packet_figures_with_and_without_batches() {
    for (name, make) in Database::BOTH {
        packets(name, make);
    }
}

fn packets(name: &str, make: fn() -> Database) {
    let (changes, rate) = (number("CHANGES", 400), number("RATE", 5000));
    let servers: Vec<Server> = (0..number("SERVERS", 3)).map(|_| small()).collect();
    let addresses: Vec<SocketAddr> = servers.iter().map(Server::addr).collect();
    let databases: Vec<Database> = (0..number("DATABASES", 1)).map(|_| make()).collect();
    let router = Router::over(&addresses, "\"PoolRoute|all\"", &["--num-proxies", "1"]);
    let mut invalidators = Vec::new();
    for database in &databases {
        database.make("items", changes.into());
        let mut invalidator = follow(database, &router);
        invalidator.start(&[]);
        invalidators.push(invalidator);
    }
    let (single, single_bytes) = one_by_one(&addresses, changes, rate);
    thread::scope(|scope| {
        for database in &databases {
            scope.spawn(move || change(database, changes, rate));
        }
    });
    let mut batches = 0;
    for invalidator in &invalidators {
        let keys = u64::from(changes / ROWS * ROWS);
        invalidator.until("cluster:c0:delivered", |count| count >= keys);
        invalidator.until("cluster:c0:waiting", |count| count == 0);
        batches += invalidator.stat("cluster:c0:batches").unwrap_or_default();
    }
    let (batched, bytes) = sent(|_, peer| peer == router.addr().port());
    let count = databases.len() as u64;
    println!(
        "{name}: {count} streams of {changes} deletes at {rate}/s into {} servers: {} packets ({} bytes) one by one, {batched} packets \
         ({bytes} bytes) to the router in {batches} batches: {:.1} times fewer",
        addresses.len(),
        single * count,
        single_bytes * count,
        number_f64(single * count) / number_f64(batched)
    );
    // A batch has at least one whole transaction, and is sent twice.
    let most = u64::from(changes / 2) * count;
    assert!(single > 0 && batched > 0 && batched < most, "{single}, {batched}");
}

fn number_f64(number: u64) -> f64 {
    f64::from(u32::try_from(number).expect("a count of packets"))
}
