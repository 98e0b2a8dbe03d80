//! Connections: idle ones are cheap, slow ones affect no other client, the server survives running
//! out of them, and the clock may jump.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

use e2e::values::{fetch, make, read_values, store, version};
use e2e::wall_clock::WallClock;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};
use testkit::process::{limit_open_files, raise_open_files};
use testkit::wire::End;
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

/// Four clients request a hundred megabytes each and stop reading, while the values are
/// overwritten.
#[test]
fn slow_readers_delay_no_client_and_get_whole_values() {
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
    // The machine delays some measurements; a delayed server is slow in all of them.
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
    // The values that they read now, much later, are still whole.
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

/// Large values being sent may hold a share of the memory. When clients that do not read hold all
/// of it, the server closes the slowest; it refuses no client, and none waits for long.
#[test]
fn stalled_readers_deny_no_client_a_large_value() {
    let server = Server::holdall(&["-m", "64", "-t", "1"]);
    let mut wire = server.connect();
    for number in 0..20 {
        let key = format!("large{number}");
        store(&mut wire, &key, &make(&key, 1, 1_000_000)).unwrap();
    }
    // A socket buffers some values; each of these connections is stuck in a later one.
    let stuck = |number: usize| {
        let mut narrow = Wire::connect_narrow(server.addr(), 64 * 1024);
        narrow.send(format!("get large{number}\r\n").repeat(12).as_bytes());
        narrow
    };
    // Three quarters of a quarter of the memory, one megabyte each, all different values.
    let slow: Vec<Wire> = (0..12).map(stuck).collect();
    wire.expect(b"mn\r\n", b"MN\r\n");
    thread::sleep(Duration::from_millis(200));
    // A value that is already being sent costs nothing more, however many clients request it.
    let same: Vec<Wire> = (0..40).map(|_| stuck(0)).collect();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(server.stat("slow_kicks"), 0, "one value sent to many counts once");
    for number in [0, 12, 13, 14, 15] {
        let key = format!("large{number}");
        let value = fetch(&mut wire, &key).unwrap_or_else(|| panic!("{key} was refused"));
        version(&key, &value).unwrap();
    }
    assert!(server.stat("slow_kicks") > 0, "nobody had to make room: the test shows nothing");
    // Both a refusal and a value are one reply: the next line belongs to the next request.
    wire.expect(b"set a 0 0 1\r\nx\r\nget a\r\n", b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    drop((slow, same));
}

/// Unfinished uploads that send only an occasional byte hold all the memory for incoming values.
/// Small stores still succeed, large ones wait until the slowest upload is closed, and stored items
/// stay.
#[test]
fn slow_uploads_deny_no_client_a_store() {
    let server = Server::holdall(&["-m", "64", "-t", "1"]);
    let mut wire = server.connect();
    wire.expect(b"set small 0 0 3\r\nold\r\n", b"STORED\r\n");
    let mut creeping: Vec<Wire> = (0..24).map(|_| server.connect()).collect();
    for (number, creeping) in creeping.iter_mut().enumerate() {
        creeping.send(format!("set creeping{number} 0 0 1000000\r\n").as_bytes());
        // Excess uploads wait: the server does not read their data.
        creeping.send_for(&vec![b'x'; 996_000], Duration::from_millis(100));
    }
    for round in 0..10 {
        for creeping in &mut creeping {
            // The server has closed some of them.
            let _ = creeping.try_send(b"x");
        }
        let value = [b'0' + round; 300];
        wire.send(b"set small 0 0 300\r\n");
        thread::sleep(Duration::from_millis(50));
        wire.send(&value);
        wire.expect(b"\r\n", b"STORED\r\n");
        assert_eq!(fetch(&mut wire, "small").unwrap(), value);
        store(&mut wire, "large", &make("large", u64::from(round), 1_000_000)).unwrap();
    }
    version("large", &fetch(&mut wire, "large").unwrap()).unwrap();
    assert!(server.stat("slow_kicks") > 0, "nobody had to make room: the test shows nothing");
}

/// Clients that sent the first part of a large value together with its request, and nothing since.
/// When others need the room, the server closes these silent clients and frees their memory.
#[test]
fn stalled_uploads_are_closed_to_free_memory() {
    const PART: usize = 40_000;
    let mut server = Server::holdall(&["-m", "32", "-t", "1"]);
    let opening = [&b"set silent 0 0 1000000\r\n"[..], &[b'x'; PART]].concat();
    // Slightly less than a quarter of the memory.
    let mut silent: Vec<Wire> = (0..(8 << 20) / PART - 20).map(|_| server.connect()).collect();
    silent.iter_mut().for_each(|wire| wire.send(&opening));
    let mut wire = server.connect();
    wire.expect(b"mn\r\n", b"MN\r\n");
    thread::sleep(Duration::from_secs(1));
    for version in 0..8 {
        let key = format!("large{version}");
        store(&mut wire, &key, &make(&key, 1, 1_000_000)).unwrap();
    }
    let is_closed = |wire: &mut Wire| {
        let (bytes, end) = wire.read_to_end(Duration::from_millis(1));
        bytes.is_empty() && matches!(end, End::Closed | End::Reset)
    };
    let all = silent.len();
    let closed = silent.iter_mut().map(is_closed).filter(|closed| *closed).count();
    assert!(closed > 0, "all {all} are still there");
    assert!(server.is_alive());
}

/// The kernel buffers little of the data that a client does not read: this memory is not part of
/// `-m`, and all programs of the machine share it.
#[test]
fn the_kernel_buffers_little_for_a_stalled_reader() {
    let server = Server::holdall(&["-m", "64", "-t", "1"]);
    let mut wire = server.connect();
    store(&mut wire, "big", &make("big", 1, 1_000_000)).unwrap();
    let mut stuck = server.connect();
    stuck.send(format!("get{}\r\n", " big".repeat(30)).as_bytes());
    let (server_port, port) = (server.addr().port(), stuck.stream().local_addr().unwrap().port());
    // Until the amount stops growing.
    let (mut before, mut now) = (0, 0);
    while now == 0 || now != before {
        thread::sleep(Duration::from_millis(200));
        before = now;
        now = unsent_bytes(server_port, port);
    }
    eprintln!("{now} bytes are kept");
    assert!(now < 1 << 20, "{now} bytes are kept for one client");
}

/// Bytes that the kernel holds and the peer has not received, of the connection from `port` to the
/// peer's port.
fn unsent_bytes(port: u16, of_peer: u16) -> u64 {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let port_of = |address: &str| number(address.rsplit(':').next().unwrap());
    for line in table.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if port_of(words[1]) == u64::from(port) && port_of(words[2]) == u64::from(of_peer) {
            return number(words[4].split_once(':').unwrap().0);
        }
    }
    panic!("no connection from port {port} to port {of_peer}")
}

/// However fast its reader is, a dump runs in turns, and the server serves others in between.
#[test]
fn a_dump_is_made_in_many_turns() {
    const ITEMS: u64 = 200_000;
    let server = Server::holdall(&["-m", "256", "-t", "1"]);
    let mut wire = server.connect();
    for first in (0..ITEMS).step_by(1000) {
        let sets = (first..first + 1000).map(|item| format!("set k{item} 0 0 1 noreply\r\nv\r\n"));
        wire.send(sets.collect::<String>().as_bytes());
    }
    wire.expect(b"mn\r\n", b"MN\r\n");
    let before = server.stat("poller_turns");
    wire.send(b"lru_crawler metadump all\r\n");
    let dump = wire.read_until(b"END\r\n");
    assert!(dump.windows(5).filter(|line| line == b"\nkey=").count() > 100_000);
    let turns = server.stat("poller_turns") - before;
    // A turn covers some hundred items.
    assert!(turns > ITEMS / 2000, "{turns} turns for {ITEMS} items");
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

/// The server may open fewer files than it has clients: existing connections continue, the server
/// does not spin, and it accepts again as soon as it can.
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

/// The time that one client of the crowd waits: once the listen queue is full, none gets in.
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

/// php-memcached's own test compares the counts that two connections see.
#[test]
fn a_connection_is_counted_before_its_first_reply() {
    let server = Server::under_test(&["-t", "2"]);
    let first = server.stat("total_connections");
    for number in 1..=3000 {
        assert_eq!(server.stat("total_connections"), first + number);
    }
}

/// With memcached's default, one client too many receives an error.
#[test]
fn one_client_too_many_receives_an_error() {
    let server = Server::under_test(&["-c", "60"]);
    let mut crowd: Vec<Wire> = (0..80).map(|_| server.connect()).collect();
    // The last clients, and perhaps others.
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

/// `accept4` itself fails occasionally, regardless of the limits.
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

/// A server with an adjustable wall clock.
fn with_wall_clock(launch: Launch, name: &str) -> (Server, WallClock) {
    let clock = WallClock::new(name)
        .unwrap_or_else(|| panic!("faketime is missing: run `cargo xtask install`"));
    (clock.given_to(launch).start(), clock)
}

/// A Unix time as exptime refers to the current wall clock, not to the clock at the start.
#[test]
fn absolute_expiration_times_follow_a_changed_wall_clock() {
    let (server, clock) = with_wall_clock(Launch::new(Kind::Holdall), "absolute");
    let mut wire = server.connect();
    for offset in [3600, -3600] {
        clock.set(offset);
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let now = unix.as_secs().saturating_add_signed(offset);
        let begun = Instant::now();
        while server.stat("time").abs_diff(now) > 30 {
            assert!(begun.elapsed() < Duration::from_secs(20), "the clock is not followed");
            thread::sleep(Duration::from_millis(50));
        }
        wire.send(format!("ms k 1 T{}\r\nv\r\nmg k t\r\n", now + 1000).as_bytes());
        assert_eq!(wire.line(), "HD");
        let line = wire.line();
        let left: i64 = line.strip_prefix("HD t").unwrap().parse().unwrap();
        assert!((960..=1002).contains(&left), "{left} s are left after {offset:+} s");
    }
}

/// The wall clock jumps by up to 400 days in both directions: no item dies early, and items that
/// were due to expire do.
#[test]
fn clock_jumps_expire_nothing_early() {
    const DAY: i64 = 86_400;
    let (mut server, clock) = with_wall_clock(Launch::under_test(), "jumps");
    let mut wire = server.connect();
    wire.expect(b"set forever 0 0 1\r\nx\r\nset long 0 1000 1\r\nx\r\n", b"STORED\r\nSTORED\r\n");
    let offsets = [1, -1, DAY, -DAY, 60, -3600, 30 * DAY, -30 * DAY, 400 * DAY, -400 * DAY];
    for (turn, offset) in offsets.into_iter().enumerate() {
        clock.set(offset);
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
}
