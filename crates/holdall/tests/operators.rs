//! The operators' view of a running server over HTTP, and its end.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::http::{get, metrics, sample, try_get, value};
use common::{Running, SOON, Scratch, holdall, output, stderr};
use rustix::process::Signal;
use testkit::eventually;

/// A server with an endpoint on a port of the system's choice.
fn shown(arguments: &[&str]) -> (Running, SocketAddr) {
    let running = Running::serve(&[&["--metrics", "127.0.0.1:0"], arguments].concat());
    let address = endpoint(&running);
    (running, address)
}

/// The address that the log names.
fn endpoint(running: &Running) -> SocketAddr {
    let mut address = None;
    eventually("the endpoint", || {
        let log = running.log();
        let url = log.split("http://").nth(1).and_then(|rest| rest.split_once("/\n"));
        address = url.map(|(address, _)| address.parse().unwrap());
        address.is_some()
    });
    address.unwrap()
}

/// Names and types as the exporter has them; those that need extstore or a proxy are declared and
/// have no samples.
#[test]
fn every_metric_of_memcached_exporter_exists_with_its_type() {
    let (running, address) = shown(&[]);
    running
        .connect()
        .expect(b"set a 0 0 1\r\n1\r\nget a\r\n", b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    let families = metrics(address);
    let list = include_str!("data/memcached_exporter.txt");
    let mut named = BTreeSet::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let name = format!("memcached_{}", words[0]);
        let family = families.get(&name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(family.kind, words[1], "{name}");
        assert_eq!(family.samples.is_empty(), words.get(2).is_some(), "{name}: {family:?}");
        named.insert(name);
    }
    assert_eq!(named.len(), 103);
    let ours = families.keys().filter(|name| name.starts_with("memcached_"));
    let unknown: Vec<_> = ours.filter(|name| !named.contains(*name)).collect();
    assert_eq!(unknown, [""; 0]);
}

/// The numbers are those of `stats`, split as the exporter splits them.
#[test]
fn request_counts_match_memcached_exporter() {
    let (running, address) = shown(&["-c", "100"]);
    let mut wire = running.connect();
    for (request, reply) in [
        ("set a 0 0 1\r\n1\r\n", "STORED\r\n"),
        ("set b 0 0 1\r\n2\r\n", "STORED\r\n"),
        ("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n"),
        ("get none\r\n", "END\r\n"),
        ("cas none 0 0 1 7\r\n1\r\n", "NOT_FOUND\r\n"),
        ("cas a 0 0 1 999999\r\n1\r\n", "EXISTS\r\n"),
        ("incr a 4\r\n", "5\r\n"),
        ("decr none 4\r\n", "NOT_FOUND\r\n"),
        ("delete b\r\n", "DELETED\r\n"),
        ("touch a 0\r\n", "TOUCHED\r\n"),
        ("flush_all 1000\r\n", "OK\r\n"),
    ] {
        wire.expect(request.as_bytes(), reply.as_bytes());
    }
    let families = metrics(address);
    for (command, status, count) in [
        ("get", "hit", 1.0),
        ("get", "miss", 1.0),
        ("set", "hit", 2.0),
        ("cas", "hit", 0.0),
        ("cas", "miss", 1.0),
        ("cas", "badval", 1.0),
        ("incr", "hit", 1.0),
        ("decr", "miss", 1.0),
        ("delete", "hit", 1.0),
        ("touch", "hit", 1.0),
        ("flush", "hit", 1.0),
    ] {
        let labels = format!("{{command=\"{command}\",status=\"{status}\"}}");
        assert_eq!(sample(&families, "memcached_commands_total", &labels), count, "{labels}");
    }
    assert_eq!(value(&families, "memcached_current_items"), 1.0);
    assert_eq!(value(&families, "memcached_max_connections"), 100.0);
    assert_eq!(value(&families, "memcached_current_connections"), 1.0);
    assert_eq!(value(&families, "memcached_limit_bytes"), f64::from(64 << 20));
    assert!(value(&families, "process_resident_memory_bytes") > 1e6);
    assert!(value(&families, "process_open_fds") > 5.0);
    let version = env!("CARGO_PKG_VERSION");
    let labels = format!("{{version=\"{version}\",commit=\"unknown\",role=\"serve\"}}");
    assert_eq!(sample(&families, "holdall_build_info", &labels), 1.0);
}

#[test]
fn leases_latencies_and_namespaces_are_shown() {
    let scratch = Scratch::new();
    fs::write(scratch.path("namespaces"), "prefix a: max-bytes=1m\n").unwrap();
    let option = format!("namespaces={}", scratch.text("namespaces"));
    let (running, address) = shown(&["-o", &option]);
    let mut wire = running.connect();
    wire.send(b"mg l G\r\n");
    wire.read_until(b"\r\n");
    for _ in 0..100 {
        wire.expect(b"set a:1 0 0 1\r\n1\r\n", b"STORED\r\n");
        wire.expect(b"get a:1\r\n", b"VALUE a:1 0 1\r\n1\r\nEND\r\n");
    }
    let families = metrics(address);
    assert_eq!(sample(&families, "holdall_prefix_sets_total", "{prefix=\"a:\"}"), 100.0);
    assert_eq!(sample(&families, "holdall_prefix_items", "{prefix=\"a:\"}"), 1.0);
    assert_eq!(value(&families, "holdall_leases_issued_total"), 1.0);
    let name = "holdall_request_duration_seconds";
    let count = sample(&families, name, "_count{command=\"set\"}");
    assert!(count > 0.0);
    let last = sample(&families, name, "_bucket{command=\"set\",le=\"+Inf\"}");
    assert_eq!(last, count);
    let up_to = |bound: &str| {
        sample(&families, name, &format!("_bucket{{command=\"set\",le=\"{bound}\"}}"))
    };
    assert!(up_to("0.000001") <= up_to("0.01") && up_to("0.01") <= up_to("1"));
    assert!(sample(&families, name, "_sum{command=\"set\"}") > 0.0);
}

#[test]
fn connections_are_counted_per_listener() {
    let (running, address) = shown(&["-l", "127.0.0.1,127.0.0.2"]);
    // As the log names it: each has a port of its own.
    let named = |ip: &str| {
        let (log, begin) = (running.log(), format!("tcp:{ip}:"));
        let port = log.split(&begin).nth(1).unwrap();
        let digits: String = port.chars().take_while(char::is_ascii_digit).collect();
        format!("{begin}{digits}")
    };
    let [one, other] = ["127.0.0.1", "127.0.0.2"].map(named);
    let connect = |name: &str| TcpStream::connect(name.strip_prefix("tcp:").unwrap()).unwrap();
    let counts = |listener: &str| {
        let (families, label) = (metrics(address), format!("{{listener=\"{listener}\"}}"));
        ["", "_total", "_rejected_total"]
            .map(|count| sample(&families, &format!("holdall_listener_connections{count}"), &label))
    };
    let mut kept = vec![connect(&other), connect(&other)];
    eventually("two connections", || counts(&other) == [2.0, 2.0, 0.0]);
    kept.pop();
    eventually("the end of one", || counts(&other) == [1.0, 2.0, 0.0]);
    assert_eq!(counts(&one), [0.0, 0.0, 0.0]);
}

/// A hundred at once, one of which says nothing: the others are answered, and it does not grow old.
#[test]
fn a_silent_scraper_does_not_block_a_hundred_others() {
    let (_running, address) = shown(&[]);
    let mut silent = TcpStream::connect(address).unwrap();
    let mut scrapers: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    for scraper in &mut scrapers {
        scraper.set_read_timeout(Some(SOON)).unwrap();
        scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    }
    for mut scraper in scrapers {
        let mut text = String::new();
        scraper.read_to_string(&mut text).unwrap();
        assert!(text.contains("\nmemcached_up 1\n"), "{text}");
    }
    silent.set_nonblocking(true).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    silent.set_nonblocking(false).unwrap();
    silent.set_read_timeout(Some(3 * SOON)).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0, "it is still open");
}

/// The filters of system calls leave the endpoint what it needs.
#[test]
fn a_confined_server_exports_the_same_metrics() {
    let (_running, address) = shown(&["-o", "drop_privileges"]);
    let families = metrics(address);
    for name in ["process_open_fds", "process_cpu_seconds_total", "process_start_time_seconds"] {
        assert!(value(&families, name) >= 0.0);
    }
    assert_eq!(value(&families, "memcached_up"), 1.0);
    assert_eq!(get(address, "/readyz").0, 200);
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = output(&mut holdall(&["serve", "-p", "-1", "--metrics", &address]));
    assert_eq!(refused.status.code(), Some(71));
    let said = stderr(&refused);
    assert!(said.contains(&format!("--metrics {address}: Address already in use")), "{said}");
    let refused = output(&mut holdall(&["serve", "--metrics", "here"]));
    assert_eq!(refused.status.code(), Some(64));
}

#[test]
fn health_gives_reasons() {
    let (running, address) = shown(&["-c", "2"]);
    for path in ["/livez", "/readyz", "/startupz"] {
        let (status, body) = get(address, path);
        assert_eq!(status, 200, "{path}: {body}");
        assert!(body.contains("\"status\":\"ok\""), "{body}");
    }
    // With no room for a connection more, clients go elsewhere. A restart would mend nothing.
    let (mut first, mut second) = (running.connect(), running.connect());
    first.expect(b"mn\r\n", b"MN\r\n");
    second.expect(b"mn\r\n", b"MN\r\n");
    let (status, body) = get(address, "/readyz");
    assert_eq!(status, 503);
    assert!(body.contains("no new connections: 2 are open, and 2 may be"), "{body}");
    assert_eq!(get(address, "/livez").0, 200);
    drop(first);
    eventually("room", || get(address, "/readyz").0 == 200);
}

/// Not ready at once, and serving: old connections and new ones; a second signal ends it at once.
#[test]
fn during_the_drain_window_a_server_is_unready_but_serves() {
    let (mut running, address) = shown(&["--drain", "3600"]);
    let mut old = running.connect();
    old.expect(b"mn\r\n", b"MN\r\n");
    running.signal(Signal::TERM);
    eventually("not ready", || get(address, "/readyz").0 == 503);
    let (_, body) = get(address, "/readyz");
    assert!(body.contains("ending: connections are closed in "), "{body}");
    assert_eq!((get(address, "/livez").0, get(address, "/startupz").0), (200, 200));
    old.expect(b"set a 0 0 1\r\n1\r\n", b"STORED\r\n");
    running.connect().expect(b"get a\r\n", b"VALUE a 0 1\r\n1\r\nEND\r\n");
    assert!(running.is_running());
    running.signal(Signal::TERM);
    assert!(running.wait().success());
    assert!(running.log().contains("SIGTERM: ending at once"), "{}", running.log());
}

#[test]
fn after_the_drain_window_connections_close_between_requests() {
    let (mut running, address) = shown(&["--drain", "1"]);
    let mut wire = running.connect();
    wire.expect(b"mn\r\n", b"MN\r\n");
    running.signal(Signal::TERM);
    let (rest, _) = wire.read_to_end(SOON);
    assert!(rest.is_empty());
    assert!(running.wait().success());
    assert!(try_get(address, "/livez").is_none());
}

/// Voluntary context switches of all threads so far: each is a thread that fell asleep, so there
/// are as many as wake-ups.
fn wake_ups(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |task: fs::DirEntry| -> u64 {
        let text = fs::read_to_string(task.path().join("status")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    tasks.map(|task| of(task.unwrap())).sum()
}

/// The page is up, and its reader would find the fault only there.
#[test]
fn the_console_names_an_unusable_configuration_when_it_starts() {
    // It ends with its stdin.
    let words = ["console", "--beside", "--listen", "127.0.0.1:0", "--config", "/nowhere.json"];
    let ended = output(&mut holdall(&words));
    let log = stderr(&ended);
    assert!(ended.status.success() && log.contains("http://127.0.0.1:"), "{log}");
    assert!(log.contains("holdall console: /nowhere.json: "), "{log}");
}

/// A count, not a time: five wake-ups a second may be on average. It was 107.
#[test]
fn an_idle_server_sleeps_but_frees_expired_items() {
    const SECS: u64 = 4;
    let (running, address) = shown(&[]);
    let mut wire = running.connect();
    wire.expect(b"set a 0 15 1\r\n1\r\n", b"STORED\r\n");
    let begun = Instant::now();
    let mut counts = Vec::new();
    loop {
        let before = wake_ups(running.pid());
        thread::sleep(Duration::from_secs(SECS));
        counts.push(wake_ups(running.pid()) - before);
        // The first seconds after a request are not idle ones.
        if counts.last().is_some_and(|count| *count <= 5 * SECS) {
            break;
        }
        assert!(begun.elapsed() < 3 * SOON, "wake-ups in {SECS} s: {counts:?}");
    }
    // A look at the metrics makes no worker turn, so that the cleaner does this in its sleep.
    eventually("the item's end", || {
        thread::sleep(Duration::from_millis(200));
        value(&metrics(address), "memcached_current_items") == 0.0
    });
    // Whoever comes wakes everybody: again there is work to do and it is done.
    wire.expect(b"set a 0 1 1\r\n1\r\n", b"STORED\r\n");
    eventually("the item's end", || {
        thread::sleep(Duration::from_millis(200));
        value(&metrics(address), "memcached_current_items") == 0.0
    });
    wire.expect(b"get a\r\n", b"END\r\n");
}
