//! Connections: idle ones are cheap, slow ones hurt nobody, running out of them is no
//! end, and the clock may jump.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

use e2e::values::{fetch, make, read_values, store, version};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};
use testkit::process::{limit_open_files, raise_open_files};
use testkit::{Kind, Launch, Server, Wire};

#[test]
fn an_idle_connection_costs_two_kilobytes_at_most() {
    const CLIENTS: usize = 2000;
    assert!(raise_open_files(2300) >= 2300);
    let server = Server::under_test(&["-c", "3000"]);
    let mut warm: Vec<Wire> = (0..50).map(|_| server.connect()).collect();
    warm.iter_mut().for_each(|wire| wire.expect(b"get a\r\n", b"END\r\n"));
    let before = server.rss_bytes();
    let mut idle: Vec<Wire> = (0..CLIENTS).map(|_| server.connect()).collect();
    idle.iter_mut().for_each(|wire| wire.expect(b"get a\r\n", b"END\r\n"));
    let each = server.rss_bytes().saturating_sub(before) / u64::try_from(CLIENTS).unwrap();
    eprintln!("{each} bytes for each of {CLIENTS} idle connections");
    assert!(each <= 2048, "{each} bytes each");
    let start = server.cpu_time();
    thread::sleep(Duration::from_secs(1));
    let busy = server.cpu_time() - start;
    assert!(busy <= Duration::from_millis(50), "idle connections cost {busy:?} in a second");
}

/// Four clients ask for a hundred megabytes each and stop reading, while the values are
/// overwritten.
#[test]
fn slow_consumers_cost_others_nothing_and_get_whole_values() {
    let mut server = Server::under_test(&["-m", "64", "-t", "1"]);
    let mut wire = server.connect();
    let keys: Vec<String> = (0..30).map(|i| format!("slow{i}")).collect();
    for key in &keys {
        store(&mut wire, key, &make(key, 1, 1_000_000)).unwrap();
    }
    let quiet = latency(&mut wire, 2000);
    let before = server.rss_bytes();
    let request = format!("get {}\r\n", keys.join(" ")).repeat(4);
    let mut slow: Vec<Wire> =
        (0..4).map(|_| Wire::connect_narrow(server.addr(), 64 * 1024)).collect();
    slow.iter_mut().for_each(|wire| wire.send(request.as_bytes()));
    thread::sleep(Duration::from_millis(300));
    // The machine delays some measurements; a server that is held up is slow in each of them.
    let most = quiet * 2 + Duration::from_millis(2);
    let mut measured = (0..20).map(|_| latency(&mut wire, 2000));
    let beside = measured.find(|p99| *p99 <= most).expect("slow consumers hold others up");
    let grown = server.rss_bytes().saturating_sub(before);
    eprintln!(
        "p99 {quiet:?} alone, {beside:?} beside slow consumers, {} KiB more memory",
        grown / 1024
    );
    for (round, key) in keys.iter().cycle().take(60).enumerate() {
        let _ = store(&mut wire, key, &make(key, 2 + u64::try_from(round).unwrap(), 1_000_000));
    }
    // What they read now, so much later, is whole all the same.
    for wire in &mut slow {
        for _ in 0..4 {
            for (key, value) in read_values(wire) {
                version(&key, &value).unwrap_or_else(|torn| panic!("torn: {torn}"));
            }
        }
    }
    assert!(server.rss_bytes() < before + (16 << 20) || server.kind() == Kind::Memcached);
    server.assert_alive("slow consumers");
}

/// Large values being sent may hold a share of the memory. A request for one more waits for its
/// turn, in the order of arrival, and is refused after two seconds.
#[test]
fn large_sends_over_the_limit_wait_for_their_turn() {
    let server = Server::holdall(&["-m", "64", "-t", "1"]);
    let mut wire = server.connect();
    store(&mut wire, "large", &make("large", 1, 1_000_000)).unwrap();
    let mut slow: Vec<Wire> = Vec::new();
    // A socket takes some values; each of these connections is stuck in a later one. Three quarters
    // of a quarter of the memory, at a megabyte each.
    let stuck = || {
        let mut narrow = Wire::connect_narrow(server.addr(), 64 * 1024);
        narrow.send(&b"get large\r\n".repeat(12));
        narrow
    };
    slow.extend((0..12).map(|_| stuck()));
    wire.expect(b"mn\r\n", b"MN\r\n");
    thread::sleep(Duration::from_millis(200));
    let mut first = server.connect();
    let mut second = server.connect();
    first.send(b"get large\r\n");
    first.assert_quiet(Duration::from_millis(200));
    second.send(b"mg large v\r\n");
    second.assert_quiet(Duration::from_millis(200));
    // Others are served meanwhile, and small values are sent.
    wire.expect(
        b"set small 0 0 1\r\nx\r\nget small\r\n",
        b"STORED\r\nVALUE small 0 1\r\nx\r\nEND\r\n",
    );
    let start = server.cpu_time();
    drop(slow.pop());
    version("large", &read_values(&mut first)[0].1).unwrap();
    // The room is the second one's when the first has its value.
    assert!(second.line().starts_with("VA 1000000"));
    let mut last = server.connect();
    // The value of the one before is read, so that it holds nothing; the room is taken by another
    // slow one.
    second.read_exact(1_000_002);
    slow.push(stuck());
    thread::sleep(Duration::from_millis(200));
    let asked = Instant::now();
    last.send(b"get large\r\n");
    assert_eq!(last.line(), "SERVER_ERROR out of memory writing get response");
    let waited = asked.elapsed();
    assert!(waited >= Duration::from_millis(1500), "refused after {waited:?}");
    let busy = server.cpu_time() - start;
    assert!(busy < Duration::from_millis(700), "waiting cost {busy:?} of CPU");
    // The refusal was the whole reply: the next line belongs to the next request.
    last.expect(b"get small\r\n", b"VALUE small 0 1\r\nx\r\nEND\r\n");
}

/// The 99th percentile of `count` gets.
fn latency(wire: &mut Wire, count: usize) -> Duration {
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let start = Instant::now();
            wire.expect(b"get none\r\n", b"END\r\n");
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[count * 99 / 100]
}

/// The server may open fewer files than it has clients: those it has go on, it does not spin, and
/// it accepts again as soon as it can.
#[test]
fn running_out_of_files_is_survived() {
    let mut server = Server::under_test(&["-c", "4000", "-u", "root"]);
    limit_open_files(server.pid(), 120);
    survive_a_crowd(&mut server, 300);
}

#[test]
fn a_connection_limit_is_survived() {
    let mut server = Server::under_test(&["-c", "50", "-o", "no_maxconns_fast"]);
    survive_a_crowd(&mut server, 200);
}

/// How long one of a crowd waits: once the queue of the listener is full, none gets in.
const PATIENCE: Duration = Duration::from_millis(20);

fn survive_a_crowd(server: &mut Server, size: usize) {
    let mut old: Vec<Wire> = (0..10).map(|_| server.connect()).collect();
    old.iter_mut().for_each(|wire| wire.expect(b"get a\r\n", b"END\r\n"));
    let crowd: Vec<_> =
        (0..size).filter_map(|_| Wire::try_connect_within(server.addr(), PATIENCE).ok()).collect();
    assert!(crowd.len() > 20, "no crowd: {}", crowd.len());
    old.iter_mut().for_each(|wire| wire.expect(b"set a 0 0 1\r\nx\r\n", b"STORED\r\n"));
    let start = server.cpu_time();
    thread::sleep(Duration::from_secs(1));
    let busy = server.cpu_time() - start;
    assert!(busy <= Duration::from_millis(100), "while full it used {busy:?} in a second");
    old.iter_mut().for_each(|wire| wire.expect(b"get a\r\n", b"VALUE a 0 1\r\nx\r\nEND\r\n"));
    drop(crowd);
    let start = Instant::now();
    server.assert_alive("the crowd left");
    let back = start.elapsed();
    eprintln!("accepting again after {back:?}, {busy:?} used while full");
}

/// With memcached's default a client too many receives an error.
#[test]
fn one_client_too_many_receives_an_error() {
    let server = Server::under_test(&["-c", "60"]);
    let mut crowd: Vec<Wire> = (0..80).map(|_| server.connect()).collect();
    // Those that came last, and perhaps others.
    let told = crowd
        .iter_mut()
        .rev()
        .filter_map(|wire| {
            let (reply, _) = wire.read_until_or_end(b"\r\n", Duration::from_millis(500));
            (!reply.is_empty()).then_some(reply)
        })
        .take(15)
        .collect::<Vec<_>>();
    assert_eq!(told.len(), 15);
    assert!(told.iter().all(|reply| reply == b"ERROR Too many open connections\r\n"), "{told:?}");
}

/// `accept4` itself fails now and then, whatever the limits say.
#[test]
fn a_failing_accept_is_survived() {
    let log = std::env::temp_dir().join(format!("e2e-strace-{}.log", std::process::id()));
    let inject = "inject=accept,accept4:error=EMFILE:when=2+3";
    let under = [
        "strace",
        "-D",
        "-f",
        "-o",
        log.to_str().unwrap(),
        "-e",
        "trace=accept,accept4",
        "-e",
        inject,
    ];
    let mut server = Launch::under_test().under(&under).start();
    for _ in 0..20 {
        server.connect().expect(b"get a\r\n", b"END\r\n");
    }
    server.assert_alive("failing accepts");
    drop(server);
    let failed = fs::read_to_string(&log).unwrap().matches("(INJECTED)").count();
    fs::remove_file(&log).unwrap();
    assert!(failed >= 5, "only {failed} accepts failed; the test shows nothing");
}

/// The clock of the wall jumps by up to 400 days both ways: nothing dies early, and what was to die
/// dies.
#[test]
fn jumps_of_the_clock_expire_nothing_early() {
    const DAY: i64 = 86_400;
    let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
    assert!(fs::exists(library).unwrap(), "{library} is missing: run `cargo xtask install`");
    let clock = std::env::temp_dir().join(format!("e2e-clock-{}", std::process::id()));
    fs::write(&clock, "+0s\n").unwrap();
    let mut server = Launch::under_test()
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap())
        .env("FAKETIME_NO_CACHE", "1")
        .env("DONT_FAKE_MONOTONIC", "1")
        .start();
    let mut wire = server.connect();
    wire.expect(b"set forever 0 0 1\r\nx\r\nset long 0 1000 1\r\nx\r\n", b"STORED\r\nSTORED\r\n");
    let offsets = [1, -1, DAY, -DAY, 60, -3600, 30 * DAY, -30 * DAY, 400 * DAY, -400 * DAY];
    for (turn, offset) in offsets.into_iter().enumerate() {
        fs::write(&clock, format!("{offset:+}s\n")).unwrap();
        wire.expect(format!("set short{turn} 0 2 1\r\nx\r\n").as_bytes(), b"STORED\r\n");
        thread::sleep(Duration::from_millis(300));
        wire.expect(
            b"get forever long\r\n",
            b"VALUE forever 0 1\r\nx\r\nVALUE long 0 1\r\nx\r\nEND\r\n",
        );
        assert!(fetch(&mut wire, &format!("short{turn}")).is_some(), "died early after {offset} s");
    }
    thread::sleep(Duration::from_millis(4200));
    for turn in 0..offsets.len() {
        assert!(fetch(&mut wire, &format!("short{turn}")).is_none(), "still there: {turn}");
    }
    wire.expect(b"get forever\r\n", b"VALUE forever 0 1\r\nx\r\nEND\r\n");
    server.assert_alive("the jumps");
    fs::remove_file(&clock).unwrap();
}
