//! mcrouter's flags that change routes, times and limits.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{ask, packet, proxy, stat, stats, told_proxy};
use router::options::{Options, Parser as _};
use testkit::process::free_port;
use testkit::{Server, eventually};

/// A proxy with one pool of this server, and these arguments.
fn over(server: &str, pool: &str, route: &str, more: &[&str]) -> SocketAddr {
    let config =
        format!(r#"{{"pools": {{"A": {{"servers": ["{server}"] {pool}}}}}, "route": {route}}}"#);
    let arguments: Vec<&str> = ["--config-str", &config].into_iter().chain(more.to_vec()).collect();
    proxy(&arguments).unwrap()
}

/// No server listens there.
const NOBODY: &str = "unix:/nonexistent/socket";

const TO_A: &str = r#""PoolRoute|A""#;

/// Opcodes of packets.
const SET: u8 = 1;
const ADD: u8 = 2;
const NO_OP: u8 = 10;
const APPEND: u8 = 14;
const SET_QUIETLY: u8 = 17;

#[test]
fn allow_only_gets_forwards_only_gets() {
    let server = Server::memcached(&[]);
    let addr = server.addr();
    ask(addr, "set k 0 0 1\r\nv\r\n");
    let proxy = over(&addr.to_string(), "", TO_A, &["--allow-only-gets"]);
    assert_eq!(ask(proxy, "get k\r\n"), "VALUE k 0 1\r\nv\r\nEND\r\n");
    assert_eq!(ask(proxy, "mg k v\r\n"), "VA 1\r\nv\r\n");
    for (request, reply) in [
        ("set k 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("delete k\r\n", "NOT_FOUND\r\n"),
        ("incr k 1\r\n", "NOT_FOUND\r\n"),
        ("touch k 1\r\n", "NOT_FOUND\r\n"),
        ("md k\r\n", "NF\r\n"),
    ] {
        assert_eq!(ask(proxy, request), reply);
    }
    assert_eq!(ask(addr, "get k\r\n"), "VALUE k 0 1\r\nv\r\nEND\r\n");
}

#[test]
fn delete_hold_off_reads_the_number_as_a_hold_off() {
    let server = Server::holdall(&[]);
    let addr = server.addr().to_string();
    let add = "add k 0 0 1\r\nx\r\n";
    let proxy = over(&addr, "", TO_A, &[]);
    assert_eq!(ask(proxy, "delete k 60\r\n"), "NOT_FOUND\r\n");
    assert_eq!(ask(proxy, add), "STORED\r\n");
    let proxy = over(&addr, "", TO_A, &["--delete-hold-off"]);
    assert_eq!(ask(proxy, "delete k 60\r\n"), "DELETED\r\n");
    assert_eq!(ask(proxy, add), "NOT_STORED\r\n");
    assert_eq!(ask(proxy, "delete k 60\r\n"), "NOT_FOUND\r\n");
    assert_eq!(
        ask(proxy, "delete k 3601\r\n"),
        "CLIENT_ERROR bad token in command line format\r\n"
    );
    let memcached = Server::memcached(&[]);
    let proxy = over(&memcached.addr().to_string(), "", TO_A, &["--delete-hold-off"]);
    assert_eq!(ask(proxy, "delete k 60\r\n"), "CLIENT_ERROR the server has no hold-off\r\n");
}

/// A check in another process has neither the environment nor the sockets of the proxy.
#[test]
fn a_check_is_about_the_configuration_only() {
    let config = r#"{"route": "NullRoute"}"#;
    let words = ["holdall route", "--config-str", config, "--trace-sample", "1/100"];
    let run = |more: &[&str]| {
        let options = Options::try_parse_from(words.iter().chain(more)).unwrap();
        router::run::run(options, |_| {}, |_| panic!("it serves")).map_err(|why| why.message)
    };
    assert_eq!(run(&["--listen-sock-fd", "1000", "--validate-config"]), Ok(()));
    let why = run(&["--validate-config=run"]).unwrap_err();
    assert!(why.contains("--trace-sample needs a collector"), "{why}");
}

#[test]
fn large_values_are_split_on_every_route() {
    let server = Server::memcached(&[]);
    let addr = server.addr().to_string();
    let value = "0123456789abcdefghijklmno";
    let set = format!("set k 5 0 25\r\n{value}\r\n");
    let route = r#"{"type": "PrefixSelectorRoute", "policies": {"k": "PoolRoute|A"}}"#;
    let more = ["--big-value-split-threshold", "10", "--big-value-batch-size", "2"];
    let proxy = over(&addr, "", route, &more);
    assert_eq!(ask(proxy, &set), "STORED\r\n");
    assert_eq!(ask(proxy, "get k\r\n"), format!("VALUE k 32773 25\r\n{value}\r\nEND\r\n"));
    let list = ask(server.addr(), "get k\r\n");
    assert!(list.starts_with("VALUE k 32773 ") && list.contains("\r\n1-3-"), "{list}");
    let hiding = over(&addr, "", route, &[&more[..], &["--big-value-hide-reply-flag"]].concat());
    assert_eq!(ask(hiding, "get k\r\n"), format!("VALUE k 5 25\r\n{value}\r\nEND\r\n"));
}

/// Sends a store as a packet, with flags 5 and 100 seconds except for an append. Returns the status
/// and the cas unique of the reply.
fn store_packet(stream: &mut TcpStream, opcode: u8, key: &str, value: &str, cas: u64) -> (u8, u64) {
    let extras: &[u8] = if opcode == APPEND { b"" } else { &[0, 0, 0, 5, 0, 0, 0, 100] };
    stream.write_all(&packet(opcode, key.as_bytes(), extras, value.as_bytes(), cas)).unwrap();
    if opcode == SET_QUIETLY {
        stream.write_all(&packet(NO_OP, b"", b"", b"", 0)).unwrap();
    }
    let mut head = [0; 24];
    stream.read_exact(&mut head).unwrap();
    let body = u32::from_be_bytes(head[8..12].try_into().unwrap());
    stream.read_exact(&mut vec![0; body as usize]).unwrap();
    assert_eq!(head[1], if opcode == SET_QUIETLY { NO_OP } else { opcode });
    (head[7], u64::from_be_bytes(head[16..].try_into().unwrap()))
}

#[test]
fn packets_store_values_of_any_size_on_routes_that_split_them() {
    const LARGE: &str = "0123456789abcdefghijklmno";
    let server = Server::memcached(&[]);
    let addr = server.addr().to_string();
    let far = r#"{"type": "ModifyKeyRoute", "ensure_key_prefix": "far.", "target": "PoolRoute|A"}"#;
    let tiers = format!(
        r#"{{"type": "L1L2SizeSplitRoute", "l1": "PoolRoute|A", "l2": {far}, "threshold": 10}}"#
    );
    let pieces = ["--big-value-split-threshold", "10", "--big-value-hide-reply-flag"];
    for (route, more) in [(TO_A, &pieces[..]), (&tiers, &[])] {
        ask(server.addr(), "flush_all\r\n");
        let proxy = over(&addr, "", route, more);
        let gets = |key: &str| ask(proxy, &format!("gets {key}\r\n"));
        let mut stream = TcpStream::connect(proxy).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        for (key, value) in [("small", "x"), ("large", LARGE)] {
            let (status, unique) = store_packet(&mut stream, SET, key, value, 0);
            assert_eq!(status, 0, "{route} {key}");
            let found = format!("VALUE {key} 5 {} {unique}\r\n{value}\r\nEND\r\n", value.len());
            assert_eq!(gets(key), found, "{route}");
            assert_eq!(store_packet(&mut stream, ADD, key, value, 0).0, 2, "{route} {key}");
            assert_eq!(
                store_packet(&mut stream, SET, key, value, unique + 1).0,
                2,
                "{route} {key}"
            );
            assert_eq!(store_packet(&mut stream, SET, key, value, unique).0, 0, "{route} {key}");
            assert!(gets(key).contains(value), "{route} {key}");
            assert_eq!(store_packet(&mut stream, SET_QUIETLY, key, value, 0).0, 0);
            assert!(gets(key).contains(value), "{route} {key}");
        }
        assert_eq!(store_packet(&mut stream, APPEND, "small", "y", 0).0, 0, "{route}");
        assert!(gets("small").contains("\r\nxy\r\n"), "{route}");
        // The whole has the lifetime that the client sent.
        let list = ask(server.addr(), "get large\r\n");
        let suffix = list.lines().nth(1).unwrap().strip_prefix("1-3-");
        let stored =
            suffix.map_or_else(|| "far.large".to_owned(), |suffix| format!("large:2:{suffix}"));
        for key in ["large", &stored] {
            let ttl = ask(server.addr(), &format!("mg {key} t\r\n"));
            assert!(ttl.starts_with("HD t") && ttl != "HD t-1\r\n", "{route} {key} {ttl}");
        }
        assert_eq!(ask(proxy, "ms new 1 T100 O7 c\r\nx\r\n").get(..5), Some("HD O7"));
        // Its reply would have the size of the list.
        let reply = ask(proxy, &format!("ms large 25 s\r\n{LARGE}\r\n"));
        assert!(reply.starts_with("CLIENT_ERROR"), "{route} {reply}");
    }
}

#[test]
fn group_remote_errors_merges_all_server_errors() {
    let proxy = over(NOBODY, "", TO_A, &["--group-remote-errors"]);
    for _ in 0..3 {
        assert_eq!(ask(proxy, "get k\r\n"), "SERVER_ERROR remote error\r\n");
    }
}

#[test]
fn disable_tko_tracking_knocks_out_no_server() {
    let proxy = over(NOBODY, "", TO_A, &["--disable-tko-tracking"]);
    for _ in 0..5 {
        assert_eq!(ask(proxy, "get k\r\n"), "SERVER_ERROR Connection error\r\n");
    }
    assert!(stats(proxy, "").contains("STAT num_suspect_servers 0\r\n"));
}

#[test]
fn disable_shard_split_route_keeps_shards_whole() {
    let server = Server::memcached(&[]);
    let addr = server.addr().to_string();
    let route = r#"{"type": "PoolRoute", "pool": "A", "shard_splits": {"1": 26}}"#;
    let proxy = over(&addr, "", route, &["--disable-shard-split-route"]);
    assert_eq!(ask(proxy, "set a:1:k 0 0 1\r\nv\r\n"), "STORED\r\n");
    assert_eq!(ask(server.addr(), "get a:1:k\r\n"), "VALUE a:1:k 0 1\r\nv\r\nEND\r\n");
}

#[test]
fn timeouts_depend_on_the_distance_of_pools() {
    let server = Server::memcached(&[]);
    let addr = server.addr().to_string();
    let flags = [
        "-R",
        "/here/one/",
        "--within-cluster-timeout-ms",
        "11000",
        "--cross-cluster-timeout-ms",
        "12000",
        "--cross-region-timeout-ms",
        "13000",
    ];
    for (region, cluster, ms) in
        [("here", "one", 11_000), ("here", "two", 12_000), ("there", "one", 13_000)]
    {
        let pool =
            format!(r#", "region": "{region}", "cluster": "{cluster}", "server_timeout": 5000"#);
        let proxy = over(&addr, &pool, TO_A, &flags);
        let servers = stats(proxy, "servers");
        assert!(servers.contains(&format!("notcompressed-{ms} ")), "{servers}");
    }
    let proxy = over(&addr, r#", "server_timeout": 5000"#, TO_A, &flags);
    assert!(stats(proxy, "servers").contains("notcompressed-5000 "));
}

/// Sends a request without waiting.
fn asking(proxy: SocketAddr) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"get k\r\n").unwrap();
    BufReader::new(stream)
}

fn line(mut stream: BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line
}

#[test]
fn waiting_requests_are_bounded_and_time_out() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap().to_string();
    let inflight = ["--proxy-max-inflight-requests", "1"];
    let proxy =
        over(&addr, "", TO_A, &[&inflight[..], &["--waiting-request-timeout-ms", "50"]].concat());
    let _first = asking(proxy);
    let asked = || stats(proxy, "servers").contains("inflight_reqs:1");
    eventually("the first is asked", asked);
    assert_eq!(line(asking(proxy)), "SERVER_ERROR 307 busy\r\n");

    let proxy =
        over(&addr, "", TO_A, &[&inflight[..], &["--proxy-max-throttled-requests", "1"]].concat());
    // Of three concurrent ones, one is sent, one waits, and any one of them is refused.
    let all = [asking(proxy), asking(proxy), asking(proxy)];
    all.iter().for_each(|one| one.get_ref().set_nonblocking(true).unwrap());
    let has_answer = |one: &BufReader<TcpStream>| one.get_ref().peek(&mut [0; 1]).is_ok();
    eventually("one is refused", || all.iter().any(has_answer));
}

/// Answers `version` and misses of gets on one connection until it ends. Returns the number of
/// requested keys.
fn answer_misses(stream: TcpStream, mut asked: impl FnMut(usize)) {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|len| len > 0) {
        let answer = if line.starts_with("get ") { "END\r\n" } else { "VERSION 1.6.0\r\n" };
        asked(line.split_ascii_whitespace().skip(1).count());
        if lines.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
        line.clear();
    }
}

/// Connections that this listener has not accepted yet, according to the kernel.
fn queued(port: u16) -> usize {
    let listening = format!(":{port:04X} 00000000:0000 0A 00000000:");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let line = table.lines().find_map(|line| line.split_once(&listening)).unwrap();
    usize::from_str_radix(&line.1[..8], 16).unwrap()
}

/// A listener whose queue is full, so that the kernel accepts no more connections for now; and the
/// connections that fill it.
fn full_listener() -> (TcpListener, Vec<TcpStream>) {
    let listen =
        net::Listen { tcp: vec!["127.0.0.1:0".parse().unwrap()], backlog: 1, ..Default::default() };
    let sockets = listen.bind().unwrap();
    let (_, socket) = sockets.descriptors().next().unwrap();
    let listener = TcpListener::from(socket.try_clone_to_owned().unwrap());
    listener.set_nonblocking(false).unwrap();
    let address = listener.local_addr().unwrap();
    // Linux accepts one more than the backlog.
    let fillers = (0..2).map(|_| TcpStream::connect(address).unwrap()).collect();
    eventually("the queue is full", || queued(address.port()) == 2);
    (listener, fillers)
}

/// `--connect-timeout-retries`: a client waits only while the connection is retried.
#[test]
fn timed_out_connects_are_retried() {
    let (listener, _fillers) = full_listener();
    let addr = listener.local_addr().unwrap().to_string();
    let pool = r#", "connect_timeout": 50"#;
    let flags = ["--disable-tko-tracking", "--connect-timeout-retries"];
    let tried = |times: &str| over(&addr, pool, TO_A, &[&flags[..], &[times]].concat());
    let giving_up = tried("2");
    assert_eq!(ask(giving_up, "get k\r\n"), "SERVER_ERROR Connection timeout\r\n");
    assert_eq!(stat(giving_up, "num_connect_retries"), 2);
    assert_eq!(stat(giving_up, "num_connect_success_after_retrying"), 0);

    let patient = tried("100000");
    let client = asking(patient);
    eventually("it is tried again", || stat(patient, "num_connect_retries") > 2);
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(|| answer_misses(stream.unwrap(), |_| {}));
        }
    });
    assert_eq!(line(client), "END\r\n");
    assert_eq!(stat(patient, "num_connect_success_after_retrying"), 1);
}

/// `--target-max-inflight-requests`: a server never has more unanswered requests; the others wait
/// for their turn.
#[test]
fn requests_in_flight_per_server_are_limited() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let proxy = over(&addr, "", TO_A, &["--target-max-inflight-requests", "2"]);
    let clients: Vec<_> = (0..5).map(|_| asking(proxy)).collect();
    // Not before all have arrived: only the limit holds three of them.
    eventually("five are outstanding", || stat(proxy, "proxy_reqs_processing") == 5);
    eventually("two are asked", || stats(proxy, "servers").contains(" inflight_reqs:2 "));
    let (stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut first = [0; 1000];
    let len = stream.peek(&mut first).unwrap();
    assert_eq!(String::from_utf8_lossy(&first[..len]).matches('k').count(), 2);
    stream.set_nonblocking(false).unwrap();
    thread::spawn(move || answer_misses(stream, |keys| assert!(keys <= 2, "{keys} at once")));
    for client in clients {
        assert_eq!(line(client), "END\r\n");
    }
}

/// A proxy and its log lines.
fn proxy_and_log_lines(more: &[&str]) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&lines);
    let proxy = told_proxy(more, move |line| told.lock().unwrap().push(line.to_owned()));
    (proxy.unwrap(), lines)
}

#[test]
fn enable_logging_route_logs_every_request() {
    let (proxy, lines) = proxy_and_log_lines(&[
        "--config-str",
        r#"{"route": "NullRoute"}"#,
        "--enable-logging-route",
    ]);
    assert_eq!(ask(proxy, "get k\r\n"), "END\r\n");
    assert_eq!(ask(proxy, "set key 0 0 2\r\nxy\r\n"), "NOT_STORED\r\n");
    // A line is logged before the answer leaves.
    let lines = lines.lock().unwrap();
    for line in [
        "request get k value 0 reply NotFound value 0",
        "request set key value 2 reply NotStored value 0",
    ] {
        assert!(lines.contains(&line.to_owned()), "{lines:?}");
    }
}

/// `verbosity(N)`: from 1 on, servers that are currently out are logged again.
#[test]
fn knockouts_are_logged_with_their_reason() {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let config = format!(r#"{{"pools": {{"A": {{"servers": ["{addr}"]}}}}, "route": {TO_A}}}"#);
    let (proxy, lines) =
        proxy_and_log_lines(&["--config-str", &config, "-r", "20", "--probe-timeout-max", "50"]);
    assert_eq!(ask(proxy, "get k\r\n"), "SERVER_ERROR Connection error\r\n");
    let count = |line: String| lines.lock().unwrap().iter().filter(|one| **one == line).count();
    let out = || count(format!("warning: the server {addr} is knocked out: Connection error"));
    eventually("a knockout is logged", || out() == 1);
    ask(proxy, "get __mcrouter__.verbosity(1)\r\n");
    eventually("it is logged again", || out() == 2);
    let listener = TcpListener::bind(addr).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(|| answer_misses(stream.unwrap(), |_| {}));
        }
    });
    eventually("it is back", || count(format!("the server {addr} is back")) == 1);
    assert_eq!(ask(proxy, "get k\r\n"), "END\r\n");
}

/// One worker's discovery of a failed server, in one pool, applies to all: it is knocked out once.
#[test]
fn a_server_is_knocked_out_for_all_workers_and_pools() {
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{NOBODY}"]}}, "B": {{"servers": ["{NOBODY}"]}}}},
            "route": {{"type": "PrefixSelectorRoute", "policies": {{"a": "PoolRoute|A", "b": "PoolRoute|B"}}}}}}"#
    );
    let proxy = proxy(&["--config-str", &config, "--num-proxies", "2", "-r", "60000"]).unwrap();
    assert_eq!(ask(proxy, "get a\r\n"), "SERVER_ERROR Connection error\r\n");
    // Connections go to the workers in turn.
    for _ in 0..8 {
        for key in ["a", "b"] {
            let answer = ask(proxy, &format!("get {key}\r\n"));
            assert_eq!(answer, "SERVER_ERROR Server unavailable. Reason: tko\r\n", "{key}");
        }
    }
    assert!(stats(proxy, "suspect_servers").contains("num_failures:1\r\n"));
    assert_eq!(stat(proxy, "num_hard_tko_count"), 1);
}

/// mcrouter's 0 is its default, and is in many command lines.
#[test]
fn limits_of_zero_mean_no_limit() {
    let server = Server::memcached(&[]);
    let flags = ["--max-conns", "0", "--proxy-max-inflight-requests", "0"];
    let proxy = over(&server.addr().to_string(), "", TO_A, &flags);
    assert_eq!(ask(proxy, "get k\r\n"), "END\r\n");
}
