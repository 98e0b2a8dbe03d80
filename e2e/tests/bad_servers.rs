//! Faulty, silent, slow, resetting and flapping servers behind the proxy: only their own keys are
//! affected, and no client ever receives another client's data.
//!
//! `OPS` is the number of requests of each test. The longest waits are printed, not judged: they
//! depend on the machine.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it fails")]

use std::env;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use testkit::faulty_server::value_of;
use testkit::rng::seed_from_env;
use testkit::{Fault, FaultProxy, FaultyServer, Mode, Rng, Router, Wire, eventually};

/// The time a server has for a reply.
const TIMEOUT: Duration = Duration::from_millis(400);

/// Keys that start with `bad` go to the bad server.
const ROUTE: &str = r#"{"type": "PrefixSelectorRoute", "policies": {"bad": "PoolRoute|A"}, "wildcard": "PoolRoute|B"}"#;

fn ops() -> u64 {
    env::var("OPS").map_or(20_000, |ops| ops.parse().unwrap())
}

/// The good server has all the time that a busy machine may need. The proxy speaks this protocol
/// with both.
fn proxy(bad: SocketAddr, good: SocketAddr, protocol: &str) -> Router {
    let ms = TIMEOUT.as_millis();
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{bad}"], "protocol": "{protocol}", "server_timeout": {ms}}},
                "B": {{"servers": ["{good}"], "protocol": "{protocol}"}}}}, "route": {ROUTE}}}"#
    );
    // Clients move between the workers all the time.
    let workers = ["--num-proxies", "2", "--gather-below", "1"];
    let others = ["-r", "5", "--probe-timeout-max", "20", "--asynclog-disable"];
    Router::start(&config, &[&workers[..], &others].concat())
}

/// The results of all clients of a server so far.
#[derive(Debug, Default)]
struct Seen {
    found: AtomicU64,
    failed: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct ReplyStats {
    found: u64,
    failed: u64,
    longest: Duration,
}

impl ReplyStats {
    fn add(&mut self, other: Self) {
        self.found += other.found;
        self.failed += other.failed;
        self.longest = self.longest.max(other.longest);
    }
}

/// Requests one to four keys at a time that no other client requests, until `holds` returns false.
/// Every reply must be for these keys.
fn ask(
    addr: SocketAddr,
    prefix: &str,
    seed: u64,
    seen: &Seen,
    mut holds: impl FnMut(u64) -> bool,
) -> ReplyStats {
    let mut rng = Rng::new(seed);
    let (mut wire, mut stats, mut number) = (Wire::connect(addr), ReplyStats::default(), 0);
    while holds(number) {
        let keys: Vec<String> = (0..1 + rng.below(4))
            .map(|_| {
                number += 1;
                format!("{prefix}-{seed}-{number}")
            })
            .collect();
        let begun = Instant::now();
        wire.send(format!("get {}\r\n", keys.join(" ")).as_bytes());
        let mut wanted = keys.iter();
        loop {
            let line = wire.line();
            if line == "END" || line.starts_with("SERVER_ERROR ") {
                let is_error = line != "END";
                stats.failed += u64::from(is_error);
                seen.failed.fetch_add(u64::from(is_error), Ordering::SeqCst);
                // An honest server has every key; a missing one is reported by an error.
                assert!(is_error || wanted.next().is_none(), "{keys:?}: a miss");
                break;
            }
            let key = line.strip_prefix("VALUE ").unwrap_or_else(|| panic!("{keys:?}: {line}"));
            let key = key.split(' ').next().unwrap();
            assert!(wanted.any(|one| one == key), "{keys:?} were asked, {line} came");
            assert_eq!(wire.line(), value_of(key));
            stats.found += 1;
            seen.found.fetch_add(1, Ordering::SeqCst);
        }
        stats.longest = stats.longest.max(begun.elapsed());
    }
    stats
}

fn asking(
    addr: SocketAddr,
    prefix: &'static str,
    seed: u64,
    seen: &Arc<Seen>,
    holds: impl FnMut(u64) -> bool + Send + 'static,
) -> JoinHandle<ReplyStats> {
    let seen = Arc::clone(seen);
    thread::spawn(move || ask(addr, prefix, seed, &seen, holds))
}

fn sum(clients: Vec<JoinHandle<ReplyStats>>) -> ReplyStats {
    let mut sum = ReplyStats::default();
    clients.into_iter().for_each(|client| sum.add(client.join().unwrap()));
    sum
}

#[test]
fn faulty_text_replies_affect_only_their_own_keys() {
    lies("ascii");
}

#[test]
fn faulty_binary_replies_affect_only_their_own_keys() {
    lies("binary");
}

fn lies(protocol: &str) {
    let patience = TIMEOUT + Duration::from_millis(50);
    let (faulty, honest) =
        (FaultyServer::start(&Fault::ALL, 100, patience), FaultyServer::honest());
    let seen = Arc::default();
    let proxy = proxy(faulty.addr(), honest.addr(), protocol);
    let (addr, each) = (proxy.addr(), ops() / 6);
    let bad =
        (0..4).map(|seed| asking(addr, "bad", seed, &seen, move |asked| asked < each)).collect();
    let good =
        (4..6).map(|seed| asking(addr, "good", seed, &seen, move |asked| asked < each)).collect();
    let (bad, good) = (sum(bad), sum(good));
    println!(
        "{protocol}: {} lies; of the faulty one: {bad:?}; of the other: {good:?}",
        faulty.faults()
    );
    assert_eq!(good.failed, 0);
    // At most four keys share a line, and at most four a request to the server; the first fault
    // fails its client.
    let lies = ops() / 6 / 4 / 100;
    assert!(faulty.faults() as u64 >= lies && bad.found > 0 && bad.failed > 0, "{bad:?}");
}

#[test]
fn a_bad_network_affects_only_its_servers_keys_and_the_server_recovers() {
    let injections = ops() / 1000;
    let (far, near) = (FaultyServer::honest(), FaultyServer::honest());
    let fault_proxy = FaultProxy::before(far.addr());
    let proxy = proxy(fault_proxy.addr(), near.addr(), "ascii");
    let is_over = Arc::new(AtomicBool::new(false));
    let (behind, beside) = (Arc::new(Seen::default()), Arc::default());
    let client = |prefix, seed, seen| {
        let is_over = Arc::clone(&is_over);
        asking(proxy.addr(), prefix, seed, seen, move |_| !is_over.load(Ordering::SeqCst))
    };
    let bad: Vec<_> = (0..3).map(|seed| client("bad", seed, &behind)).collect();
    let good: Vec<_> = (3..5).map(|seed| client("good", seed, &beside)).collect();
    let mut rng = Rng::new(seed_from_env());
    for _ in 0..injections {
        let slow = Mode::Slow(Duration::from_millis(1 + rng.below(20) as u64));
        let late = Mode::Slow(TIMEOUT + Duration::from_millis(50));
        fault_proxy.set(*rng.pick(&[Mode::Refuse, Mode::BlackHole, Mode::Reset, slow, late]));
        thread::sleep(Duration::from_millis(rng.below(100) as u64));
        fault_proxy.set(Mode::Open);
        // Half of the time, the server flaps.
        if rng.one_in(2) {
            thread::sleep(Duration::from_millis(rng.below(100) as u64));
        }
    }
    let failed = behind.failed.load(Ordering::SeqCst);
    fault_proxy.set(Mode::BlackHole);
    eventually("questions fail", || behind.failed.load(Ordering::SeqCst) > failed);
    fault_proxy.set(Mode::Refuse);
    fault_proxy.set(Mode::Open);
    let found = behind.found.load(Ordering::SeqCst);
    eventually("the server comes back", || behind.found.load(Ordering::SeqCst) > found);
    is_over.store(true, Ordering::SeqCst);
    let (bad, good) = (sum(bad), sum(good));
    println!("{injections} injections; behind the fault_proxy: {bad:?}; beside it: {good:?}");
    assert_eq!(good.failed, 0);
    assert!(good.found > 0 && bad.found > 0 && bad.failed > 0, "{bad:?} {good:?}");
    // The server is healthy again.
    let is_well = || ask(proxy.addr(), "bad", 99, &behind, |asked| asked < 50).failed == 0;
    eventually("it is well again", is_well);
}
