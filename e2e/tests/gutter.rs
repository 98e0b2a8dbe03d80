//! One of ten servers is a black hole, while clients that fill their misses keep sending requests
//! by Zipf's law: with and without a gutter (section 3.3 of *Scaling Memcache at Facebook*).
//!
//! A minute of the simulation is `MINUTE_MS` of the clock (1,000); the gutter's values live for
//! one. `REQUESTS` is the number of requests in a minute. The gutter's hit ratio depends on the
//! number of requests that the machine completes before values expire; so it is judged only if
//! `MINUTE_MS` is set.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it fails")]

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use testkit::{FaultProxy, Kind, Launch, Mode, Rng, Router, Server, Wire};

const SERVERS: usize = 10;
const KEYS: usize = 100_000;
const MINUTES: usize = 4;
const CLIENTS: usize = 4;

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// The results of clients in one minute.
#[derive(Clone, Copy, Debug, Default)]
struct Minute {
    asked: u64,
    failed: u64,
    /// Values that were loaded from the database.
    loaded: u64,
}

/// Sums of 1/rank, to draw ranks by bisection: an exponent of 1.
fn zipf() -> Vec<f64> {
    let mut sum = 0.0;
    (1..=KEYS)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect()
}

/// Runs one client: it gets values, and sets those that it misses.
fn client(proxy: &Router, seed: u64, requests: u64, minute: Duration, count: usize) -> Vec<Minute> {
    let (sums, mut rng, mut wire) = (zipf(), Rng::new(seed), proxy.connect());
    let mut minutes = vec![Minute::default(); count];
    let begun = Instant::now();
    for (index, tally) in minutes.iter_mut().enumerate() {
        let end = begun + minute * u32::try_from(index + 1).unwrap();
        while tally.asked < requests && Instant::now() < end {
            let drawn = rng.below(1 << 30) as f64 / f64::from(1 << 30) * sums[KEYS - 1];
            let key = format!("k{}", sums.partition_point(|sum| *sum < drawn));
            tally.asked += 1;
            get(&mut wire, &key, tally);
        }
        thread::sleep(end.saturating_duration_since(Instant::now()));
    }
    minutes
}

fn get(wire: &mut Wire, key: &str, tally: &mut Minute) {
    wire.send(format!("get {key}\r\n").as_bytes());
    match wire.line() {
        line if line.starts_with("VALUE ") => {
            assert_eq!((wire.line(), wire.line()), ("x".into(), "END".into()))
        }
        line => {
            tally.loaded += 1;
            tally.failed += u64::from(line != "END");
            wire.send(format!("set {key} 0 0 1\r\nx\r\n").as_bytes());
            let line = wire.line();
            tally.failed += u64::from(line != "STORED");
        }
    }
}

/// Runs the load, first on ten healthy servers, then with one black hole; returns the clients'
/// results, and gets and hits of the gutter per minute.
fn run(with_gutter: bool) -> (Vec<Minute>, Vec<(u64, u64)>) {
    let minute = Duration::from_millis(number("MINUTE_MS", 1000));
    let requests = number("REQUESTS", 8000) / CLIENTS as u64;
    let servers: Vec<_> = (0..SERVERS).map(|_| Launch::new(Kind::Memcached).start()).collect();
    let gutter = Launch::new(Kind::Memcached).start();
    let fault_proxy = FaultProxy::before(servers[0].addr());
    let names: Vec<String> = std::iter::once(fault_proxy.addr())
        .chain(servers[1..].iter().map(Server::addr))
        .map(|addr| format!("\"{addr}\""))
        .collect();
    let secs = (minute.as_millis() / 1000).max(1);
    let route = if with_gutter {
        format!(
            r#"{{"type": "FailoverWithExptimeRoute", "normal": "PoolRoute|main", "failover": "PoolRoute|gutter", "failover_exptime": {secs}}}"#
        )
    } else {
        r#""PoolRoute|main""#.to_owned()
    };
    let config = format!(
        r#"{{"pools": {{"main": {{"servers": [{}]}}, "gutter": {{"servers": ["{}"], "server_timeout": 60000}}}}, "route": {route}}}"#,
        names.join(", "),
        gutter.addr(),
    );
    let proxy = Router::start(&config, &["-t", "100", "--asynclog-disable"]);
    let load = |seed: u64, count: usize, watch: &dyn Fn()| {
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS as u64)
                .map(|number| {
                    let proxy = &proxy;
                    scope.spawn(move || client(proxy, seed + number, requests, minute, count))
                })
                .collect();
            watch();
            let all: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
            (0..count)
                .map(|index| total(all.iter().map(|minutes| minutes[index])))
                .collect::<Vec<_>>()
        })
    };
    // Warm the caches.
    load(100, 1, &|| {});
    fault_proxy.set(Mode::BlackHole);
    let hits = std::cell::RefCell::new(Vec::new());
    let seen = load(200, MINUTES, &|| {
        let before = std::cell::Cell::new((0, 0));
        for _ in 0..MINUTES {
            thread::sleep(minute);
            let now = (gutter.stat("cmd_get"), gutter.stat("get_hits"));
            let was = before.replace(now);
            hits.borrow_mut().push((now.0 - was.0, now.1 - was.1));
        }
    });
    (seen, hits.into_inner())
}

fn total(minutes: impl Iterator<Item = Minute>) -> Minute {
    minutes.fold(Minute::default(), |sum, one| Minute {
        asked: sum.asked + one.asked,
        failed: sum.failed + one.failed,
        loaded: sum.loaded + one.loaded,
    })
}

#[test]
fn a_gutter_hides_a_dead_server() {
    let (without, _) = run(false);
    let (with, gutter) = run(true);
    for index in 0..MINUTES {
        let (gets, hits) = gutter[index];
        println!(
            "minute {}: without {:?}; with {:?}; gutter {hits} hits of {gets} gets ({:.0} %)",
            index + 1,
            without[index],
            with[index],
            100.0 * hits as f64 / gets.max(1) as f64
        );
    }
    let failed = |minutes: &[Minute]| {
        let sum = total(minutes.iter().copied());
        sum.failed as f64 / sum.asked as f64
    };
    let (without, with) = (failed(&without), failed(&with));
    println!("failures: {:.3} % without, {:.4} % with", 100.0 * without, 100.0 * with);
    assert!(without > 0.01 && with < without / 100.0, "{without} without, {with} with");
    let (gets, hits) = gutter[MINUTES - 1];
    let least = if env::var_os("MINUTE_MS").is_some() { 35 } else { 0 };
    assert!(hits * 100 > gets * least, "{hits} hits of {gets} gets in the last minute");
}
