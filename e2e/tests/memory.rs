//! The memory limit is one limit: resident memory stays within 1.03 x `-m` + 16 MB whatever clients
//! do, no store is refused while something can be evicted, and overwritten items are freed.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

use e2e::values::{fetch, make, store, version};
use processes::MemoryLimit;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};
use testkit::process::{RssWatch, raise_open_files};
use testkit::{Kind, Launch, Server, Wire};

const MIB: u64 = 1 << 20;

fn bound(limit_mib: u64) -> u64 {
    limit_mib * MIB * 103 / 100 + 16 * MIB
}

/// Asserts the bound, and prints the margin. memcached makes no such promise.
#[track_caller]
fn within(what: &str, most: u64, limit_mib: u64) {
    let (most_mib, bound_mib) = (most / MIB, bound(limit_mib) / MIB);
    eprintln!("{what}: at most {most_mib} MiB resident at -m {limit_mib}, promised {bound_mib}");
    assert!(
        most <= bound(limit_mib) || Kind::under_test() == Kind::Memcached,
        "{what}: {most_mib} MiB"
    );
}

/// Stores `bytes` in values of `len` bytes under new keys, many at a time; returns the number of
/// refused stores.
fn fill(addr: SocketAddr, stem: &str, len: usize, bytes: usize) -> usize {
    let mut wire = Wire::connect(addr);
    let (count, value) = (bytes / (len + 50), vec![b'v'; len]);
    let batch = (256 * 1024 / len).clamp(1, 1000);
    let mut refused = 0;
    for first in (0..count).step_by(batch) {
        let mut request = Vec::new();
        for number in first..(first + batch).min(count) {
            request.extend_from_slice(format!("set {stem}-{number} 0 0 {len}\r\n").as_bytes());
            request.extend_from_slice(&value);
            request.extend_from_slice(b"\r\n");
        }
        wire.send(&request);
        refused += (first..(first + batch).min(count)).filter(|_| wire.line() != "STORED").count();
    }
    refused
}

#[test]
fn a_fill_stays_within_the_limit_without_refusals() {
    let server = Server::under_test(&["-m", "128"]);
    let watch = RssWatch::start(server.pid());
    let refused = fill(server.addr(), "plain", 100, 256 << 20);
    within("plain fill, 100-byte values", watch.most(), 128);
    assert_eq!(refused, 0, "stores of a plain fill were refused");
    assert!(server.stat("evictions") > 0);
}

#[test]
fn changing_value_sizes_stay_within_the_limit_without_refusals() {
    let mut server = Server::under_test(&["-m", "128"]);
    let watch = RssWatch::start(server.pid());
    let mut refused = Vec::new();
    for (turn, len) in [64, 1024, 8192, 100_000, 64, 1_000_000, 300].into_iter().enumerate() {
        refused.push((len, fill(server.addr(), &format!("shift{turn}"), len, 192 << 20)));
    }
    within("shifting sizes", watch.most(), 128);
    let none = refused.iter().all(|&(_, count)| count == 0);
    assert!(none || server.kind() == Kind::Memcached, "refused stores by value size: {refused:?}");
    server.assert_alive("shifting sizes");
}

#[test]
fn small_items_are_evicted_for_a_large_value() {
    let server = Server::under_test(&["-m", "64"]);
    assert_eq!(fill(server.addr(), "small", 100, 128 << 20), 0);
    let mut wire = server.connect();
    for turn in 0..20 {
        let key = format!("large{turn}");
        let value = make(&key, turn, 1_000_000);
        store(&mut wire, &key, &value).unwrap_or_else(|reason| panic!("{key}: {reason}"));
        assert_eq!(version(&key, &fetch(&mut wire, &key).unwrap()), Ok(turn));
    }
}

/// More large values arrive at once than may be held: some wait, and all are stored.
#[test]
fn simultaneous_large_values_are_all_stored() {
    const CLIENTS: usize = 32;
    let server = Server::under_test(&["-m", "64", "-t", "4"]);
    let value = vec![b'v'; 1_000_000];
    let begin = Barrier::new(CLIENTS);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (server, value, begin) = (&server, &value, &begin);
            scope.spawn(move || {
                let mut wire = server.connect();
                begin.wait();
                for round in 0..3 {
                    wire.send(format!("set at-once:{client}:{round} 0 0 1000000\r\n").as_bytes());
                    for piece in value.chunks(64 * 1024) {
                        wire.send(piece);
                        thread::sleep(Duration::from_millis(1));
                    }
                    wire.expect(b"\r\n", b"STORED\r\n");
                }
            });
        }
    });
}

/// 15,000 keys of 1 KB fit into 64 MB four times over, however often they are overwritten.
#[test]
fn overwriting_items_that_fit_evicts_nothing() {
    const KEYS: usize = 15_000;
    let server = Server::under_test(&["-m", "64", "-t", "2"]);
    let addr = server.addr();
    let deadline = Instant::now() + Duration::from_secs(6);
    let stores: usize = thread::scope(|scope| {
        let writers: Vec<_> =
            (0..6).map(|i| scope.spawn(move || overwrite(addr, i, KEYS, deadline))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    eprintln!("{stores} overwrites of {KEYS} keys");
    assert!(stores > 6 * KEYS, "too few stores to show anything");
    assert_eq!(server.stat("evictions"), 0);
    let mut wire = server.connect();
    let missing = (0..KEYS).filter(|i| fetch(&mut wire, &format!("over{i}")).is_none()).count();
    assert_eq!(missing, 0, "keys were lost");
}

fn overwrite(addr: SocketAddr, first: usize, keys: usize, deadline: Instant) -> usize {
    let (mut wire, mut stores) = (Wire::connect(addr), 0);
    let value = vec![b'o'; 1024];
    while Instant::now() < deadline || stores < 2 * keys {
        let mut request = Vec::new();
        for step in 0..50 {
            let key = (first * keys / 6 + stores + step) % keys;
            request.extend_from_slice(format!("set over{key} 0 0 1024\r\n").as_bytes());
            request.extend_from_slice(&value);
            request.extend_from_slice(b"\r\n");
        }
        wire.send(&request);
        (0..50).for_each(|_| assert_eq!(wire.line(), "STORED"));
        stores += 50;
    }
    stores
}

/// Clients that stall in the middle of every kind of request, while the server is full of items.
#[test]
fn stalled_clients_use_bounded_memory() {
    let limit = raise_open_files(10_300);
    let clients = if limit >= 10_300 { 10_000 } else { 2000 };
    eprintln!("{clients} stuck clients (this process may open {limit} files)");
    let mut server = Server::under_test(&["-m", "128", "-c", "10200"]);
    assert_eq!(fill(server.addr(), "stuck", 20_000, 160 << 20), 0);
    let watch = RssWatch::start(server.pid());
    let started = Instant::now();
    let stuck: Vec<Wire> = (0..clients).map(|number| stick(&server, number)).collect();
    thread::sleep(Duration::from_millis(500));
    server.assert_alive("stuck clients");
    assert_eq!(fill(server.addr(), "beside", 20_000, 32 << 20), 0, "stores beside stuck clients");
    within(&format!("{clients} stuck clients"), watch.most(), 128);
    eprintln!("stuck within {:.1} s", started.elapsed().as_secs_f64());
    drop(stuck);
    server.assert_alive("the stuck clients left");
}

fn stick(server: &Server, number: usize) -> Wire {
    let keys: String = (0..40).map(|i| format!(" stuck-{}", (number * 40 + i) % 8000)).collect();
    let request = match number % 5 {
        0 => String::new(),
        1 => "set half 0 0 10".into(),
        // Equally many on each worker, and half of its limit for incoming values: only above that
        // another is refused.
        2 if number / 5 % 4 < 2 => format!("set started{number} 0 0 1000000\r\nthe first bytes"),
        2 => "ms half".into(),
        3 => format!("get{keys}\r\nget{keys}"),
        // Requests 800 KB, and does not read them.
        _ => format!("get{keys}\r\n"),
    };
    let mut wire =
        if number % 5 == 4 { Wire::connect_narrow(server.addr(), 4096) } else { server.connect() };
    wire.send(request.as_bytes());
    wire
}

/// The kernel kills a process whose group exceeds its limit, which covers the server's memory and
/// the kernel's memory for the server.
#[test]
fn a_control_group_with_the_documented_bound_suffices() {
    let group = match MemoryLimit::new("bound", bound(64)) {
        Ok(group) => group,
        Err(error) => {
            eprintln!("NOT RUN: no control group: {error}");
            return;
        }
    };
    let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.folder().display());
    let launch = Launch::under_test().args(&["-m", "64"]);
    let mut server = launch.under(&["sh", "-c", &enter, "sh"]).start();
    for (stem, len) in [("tiny", 10), ("small", 300), ("large", 300_000), ("mid", 5000)] {
        assert_eq!(fill(server.addr(), stem, len, 96 << 20), 0, "{stem}");
    }
    let mut wire = server.connect();
    store(&mut wire, "big", &make("big", 1, 900_000)).unwrap();
    let request = format!("get{}\r\n", " big".repeat(20));
    let mut unread: Vec<Wire> =
        (0..50).map(|_| Wire::connect_narrow(server.addr(), 4096)).collect();
    unread.iter_mut().for_each(|wire| wire.send(request.as_bytes()));
    assert_eq!(fill(server.addr(), "beside", 1000, 96 << 20), 0, "beside unread values");
    server.assert_alive("a full control group");
    if let Ok(peak) = group.peak() {
        eprintln!("{} of {} MB in the group", peak >> 20, bound(64) >> 20);
    }
}

/// A hundred clients request fifty thousand values each in one line, and read none.
#[test]
fn unread_multigets_use_bounded_memory() {
    let mut server = Server::under_test(&["-m", "128"]);
    assert_eq!(fill(server.addr(), "many", 1000, 60 << 20), 0);
    let watch = RssWatch::start(server.pid());
    let keys: String = (0..50_000).map(|i| format!(" many-{i}")).collect();
    let request = format!("get{keys}\r\n").into_bytes();
    let mut stuck: Vec<Wire> =
        (0..100).map(|_| Wire::connect_narrow(server.addr(), 4096)).collect();
    for wire in &mut stuck {
        // The server may stop reading the line while its reply is not read.
        wire.send_for(&request, Duration::from_millis(100));
    }
    server.assert_alive("huge multigets");
    within("100 multigets of 50,000 keys, not read", watch.most(), 128);
    drop(stuck);
    server.assert_alive("the clients left");
}

#[test]
fn numa_interleave_distributes_items_over_all_nodes() {
    let file = format!("/dev/shm/e2e-memory-{}", std::process::id());
    for more in [vec![], vec!["-e", file.as_str()]] {
        let flags = [&["-m", "64", "-o", "numa_interleave"], more.as_slice()].concat();
        let server = Server::holdall(&flags);
        assert_eq!(fill(server.addr(), "spread", 1000, 32 << 20), 0);
        let maps = std::fs::read_to_string(format!("/proc/{}/numa_maps", server.pid())).unwrap();
        let pages = |line: &str| {
            let counts = line.split(' ').filter_map(|word| word.strip_prefix('N')?.split_once('='));
            counts.map(|(_, pages)| pages.parse::<u64>().unwrap() * 4096).sum::<u64>()
        };
        let spread: u64 = maps.lines().filter(|line| line.contains(" interleave")).map(pages).sum();
        assert!(spread > 32 * MIB, "{spread} bytes are spread, with {flags:?}:\n{maps}");
    }
    std::fs::remove_file(file).unwrap();
}

/// The error output of a server that does not start.
fn refusal(launcher: &[&str], flags: &[&str]) -> String {
    let program = testkit::server::holdall_path();
    let words = [launcher, &[program.to_str().unwrap(), "serve", "-p", "0", "-u", "root"], flags];
    let words = words.concat();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(!output.status.success(), "{flags:?} is accepted");
    String::from_utf8(output.stderr).unwrap()
}

/// A folder that is not on tmpfs.
fn folder_on_disk() -> &'static str {
    let is_on_disk = |folder: &&str| {
        let output = Command::new("stat").args(["-f", "-c", "%T", folder]).output().unwrap();
        output.status.success() && output.stdout != b"tmpfs\n"
    };
    let folders = [env!("CARGO_TARGET_TMPDIR"), "/var/tmp", "/"];
    folders.into_iter().find(is_on_disk).unwrap()
}

#[test]
fn impossible_numa_interleave_is_refused() {
    let forbidden = ["strace", "-f", "-qqq", "-o", "/dev/null", "-e", "inject=mbind:error=EPERM"];
    let said = refusal(&forbidden, &["-o", "numa_interleave"]);
    assert!(said.contains("-o numa_interleave: Operation not permitted"), "{said}");
    let file = format!("{}/e2e-memory-{}", folder_on_disk(), std::process::id());
    let said = refusal(&[], &["-o", "numa_interleave", "-e", &file]);
    assert!(said.contains("numa_interleave needs a file on tmpfs"), "{said}");
    // A server that would take over from another leaves it running.
    let mut server = Server::under_test(&["-m", "64", "-u", "root", "-e", &file]);
    let successor = ["-m", "64", "-e", &file, "--takeover", "-o", "numa_interleave"];
    let said = refusal(&["timeout", "20"], &successor);
    assert!(said.contains("numa_interleave needs a file on tmpfs"), "{said}");
    server.assert_alive("a successor that is refused");
    drop(server);
    for file in [file.clone(), format!("{file}.takeover")] {
        let _ = std::fs::remove_file(file);
    }
}
