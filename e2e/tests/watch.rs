//! Live views of servers and proxies: `watch`, `holdall watch`, `stats latency` and `/metrics`.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::certificates::Certificates;
use processes::wait_until_accepts;
use serde_json::Value;
use testkit::process::free_port;
use testkit::server::holdall_path;
use testkit::{Kind, Launch, Router, Server, Wire};

/// A server, and a proxy before it.
fn routed(args: &[&str]) -> (Server, Router) {
    let server = Launch::new(Kind::Holdall).start();
    let router = Router::over(&[server.addr()], r#""PoolRoute|all""#, args);
    (server, router)
}

/// The next line of a watcher; lines end as memcached's do.
fn told(watcher: &mut Wire) -> String {
    String::from_utf8(watcher.read_until(b"\n")).unwrap().trim_end().to_owned()
}

/// The words of a line after its time and number.
fn words(line: &str) -> Vec<&str> {
    line.split(' ').skip(2).collect()
}

#[test]
fn a_watcher_of_the_proxy_sees_each_request() {
    let (server, router) = routed(&[]);
    let (mut watcher, mut client) = (router.connect(), router.connect());
    watcher.expect(b"watch nonsense\r\n", b"ERROR\r\n");
    // The OK follows the replies to earlier requests.
    watcher.expect(b"mn\r\nwatch proxyreqs\r\n", b"MN\r\nOK\r\n");
    client.expect(b"set a%b 0 0 5\r\nvalue\r\n", b"STORED\r\n");
    client.expect(b"get a%b other\r\n", b"VALUE a%b 0 5\r\nvalue\r\nEND\r\n");
    client.expect(b"delete a%b\r\n", b"DELETED\r\n");
    let be = format!("be={}", server.addr());
    let want = [
        ("cmd=set", "key=a%25b", "status=stored", "size=0"),
        ("cmd=get", "key=a%25b", "status=found", "size=5"),
        ("cmd=get", "key=other", "status=not_found", "size=0"),
        ("cmd=delete", "key=a%25b", "status=deleted", "size=0"),
    ];
    for (cmd, key, status, size) in want {
        let line = told(&mut watcher);
        let words = words(&line);
        let elapsed = words[1].strip_prefix("elapsed=").unwrap();
        assert!(elapsed.parse::<u64>().is_ok(), "{line}");
        let rest = [&be, "pool=all", cmd, key, status, size, "one_in=1"];
        assert_eq!((words[0], &words[2..]), ("type=proxy_req", &rest[..]), "{line}");
    }
    // The proxy ignores input from a watcher.
    watcher.send(b"get x\r\n");
    client.expect(b"get y\r\n", b"END\r\n");
    assert!(told(&mut watcher).contains(" key=y "));
    assert_eq!(router.stat("log_watchers"), 1);
    drop(watcher);
    router.wait_for("log_watchers", 0);
}

#[test]
fn a_watcher_sees_the_reason_of_a_failure() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let route = r#""PoolRoute|all""#;
    let router = Router::over(&[silent.local_addr().unwrap()], route, &["-t", "100"]);
    let (mut watcher, mut client) = (router.connect(), router.connect());
    watcher.expect(b"watch\r\n", b"OK\r\n");
    client.expect(b"get k\r\n", b"SERVER_ERROR Reply timeout\r\n");
    let line = told(&mut watcher);
    assert!(line.contains(" key=k status=error reason=timeout size=0 "), "{line}");
}

/// A `holdall watch` process, killed on drop.
struct Watch(Child);

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends requests to `addr` while `holdall watch --json` observes it; returns the first report that
/// has all of `operations`.
fn look(addr: SocketAddr, operations: &[&str]) -> Value {
    look_until(addr, &[], |look| has_all(look, operations))
}

fn has_all(look: &Value, operations: &[&str]) -> bool {
    operations.iter().all(|operation| row(look, "operations", operation).is_some())
}

/// As [`look`], with `others` observed as well, until `is_whole`.
fn look_until(addr: SocketAddr, others: &[SocketAddr], is_whole: impl Fn(&Value) -> bool) -> Value {
    let mut client = Wire::connect(addr);
    // Before the watch starts: memcached also reports a store's lookup, and this one misses.
    client.expect(b"set hit 0 0 1\r\nv\r\n", b"STORED\r\n");
    let all: Vec<String> = others.iter().chain([&addr]).map(ToString::to_string).collect();
    let all = all.iter().map(String::as_str);
    let command = ["watch", "--json", "--interval", "0.3"].into_iter().chain(all);
    let child = Command::new(holdall_path()).args(command).stdout(Stdio::piped()).spawn();
    let mut watch = Watch(child.unwrap());
    let lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                client.expect(b"get hit miss\r\n", b"VALUE hit 0 1\r\nv\r\nEND\r\n");
                client.expect(b"set other 0 0 1\r\nv\r\n", b"STORED\r\n");
                client.expect(b"delete nothing\r\n", b"NOT_FOUND\r\n");
                client.expect(b"delete other\r\n", b"DELETED\r\n");
            }
        });
        let end = Instant::now() + Duration::from_secs(60);
        for line in lines {
            let look: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if is_whole(&look) {
                is_done.store(true, Ordering::Relaxed);
                return look;
            }
            if Instant::now() > end {
                break;
            }
        }
        is_done.store(true, Ordering::Relaxed);
        panic!("no look was whole");
    })
}

/// The row of that kind and name.
fn row<'a>(look: &'a Value, kind: &str, name: &str) -> Option<&'a Value> {
    look[kind].as_array().unwrap().iter().find(|row| row["name"] == name)
}

/// The thread may be a worker that needs room or the cleaner that frees pages.
#[test]
fn every_eviction_is_reported() {
    let options = ["-m", "64", "-t", "1", "-o", "watcher_logbuf_size=65536"];
    let server = Server::holdall(&options);
    let mut watcher = server.connect();
    watcher.expect(b"watch evictions\r\n", b"OK\r\n");
    // The cleaner checks once per step.
    thread::sleep(Duration::from_millis(100));
    let mut wire = server.connect();
    for first in (0..80_000).step_by(100) {
        let set = |item| format!("set k{item} 0 0 1000 noreply\r\n{}\r\n", "v".repeat(1000));
        wire.send((first..first + 100).map(set).collect::<String>().as_bytes());
    }
    wire.expect(b"mn\r\ncache_memlimit 32\r\n", b"MN\r\nOK\r\n");
    let mut evictions = 0;
    while evictions == 0 || evictions != server.stat("evictions") {
        evictions = server.stat("evictions");
        thread::sleep(Duration::from_millis(500));
    }
    let mut stream = watcher.stream().try_clone().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut lines = BufReader::new(&mut stream).lines();
    for number in 0..evictions {
        let line = lines.next().unwrap();
        let line = line.unwrap_or_else(|error| panic!("{number} of {evictions}: {error}"));
        assert!(line.contains(" type=eviction "), "{line}");
    }
}

#[test]
fn holdall_watch_summarizes_a_proxy() {
    let (server, router) = routed(&["--num-proxies", "2"]);
    let look = look(router.addr(), &["get", "set", "delete"]);
    assert_eq!(row(&look, "keys", "hit").unwrap()["hit_ratio"], 1.0, "{look}");
    assert_eq!(row(&look, "keys", "miss").unwrap()["hit_ratio"], 0.0, "{look}");
    assert!(row(&look, "keys", "other").unwrap()["hit_ratio"].is_null(), "{look}");
    assert!(row(&look, "pools", "all").unwrap()["p99_us"].is_u64(), "{look}");
    let server = row(&look, "servers", &server.addr().to_string()).unwrap();
    assert!(server["per_second"].as_f64().unwrap() > 0.0, "{look}");
    assert_eq!(look["total"]["errors_per_second"], 0.0, "{look}");
}

#[test]
fn holdall_watch_summarizes_a_server() {
    let server = Launch::new(Kind::Holdall).start();
    let look = look(server.addr(), &["get", "set", "delete"]);
    assert_eq!(row(&look, "keys", "hit").unwrap()["hit_ratio"], 1.0, "{look}");
    assert_eq!(row(&look, "keys", "miss").unwrap()["hit_ratio"], 0.0, "{look}");
    assert!(look["total"]["p50_us"].is_null() && look["pools"] == Value::Array(vec![]), "{look}");
    assert!(row(&look, "servers", &server.addr().to_string()).is_some(), "{look}");
}

/// memcached also reports the lookups of stores, which miss here: they are not gets. Before 1.6.23
/// it reports deletes only as lookups, which hit here.
#[test]
fn holdall_watch_summarizes_memcached() {
    let server = Launch::new(Kind::Memcached).start();
    let look = look_until(server.addr(), &[], |look| {
        let ratio = row(look, "keys", "other").and_then(|other| other["hit_ratio"].as_f64());
        has_all(look, &["get", "set"])
            && look["seen"].as_u64() > Some(100)
            && ratio.is_none_or(|ratio| ratio > 0.75)
    });
    assert_eq!(row(&look, "keys", "hit").unwrap()["hit_ratio"], 1.0, "{look}");
    assert!(row(&look, "servers", &server.addr().to_string()).is_some(), "{look}");
}

#[test]
fn a_request_reported_by_proxy_and_server_counts_once() {
    let (server, router) = routed(&[]);
    // The server's reports may start later than the proxy's. They have no times.
    let look = look_until(router.addr(), &[server.addr()], |look| {
        has_all(look, &["get", "set"]) && look["total"]["p99_us"].is_null()
    });
    let pool = row(&look, "pools", "all").unwrap();
    let per_second = |row: &Value| row["per_second"].as_f64().unwrap();
    // The proxy's reports count for the pool, and the server's for everything else.
    assert!(per_second(&look["total"]) < 1.5 * per_second(pool), "{look}");
    assert!(pool["p99_us"].is_u64(), "{look}");
}

#[test]
fn holdall_watch_exits_with_an_error_if_watching_is_refused() {
    let server = Launch::new(Kind::Holdall).start();
    let once = |args: &[&str]| {
        let address = server.addr().to_string();
        Command::new(holdall_path()).args(["watch", &address]).args(args).output().unwrap()
    };
    let output = once(&["--count", "1", "--interval", "0.1"]);
    assert!(output.status.success() && output.stdout.starts_with(b"0 requests/s"), "{output:?}");
    assert_eq!(once(&["--interval", "0"]).status.code(), Some(64));
    let quiet = Launch::new(Kind::Holdall).args(&["--disable-watch"]).start();
    let address = quiet.addr().to_string();
    let output = Command::new(holdall_path()).args(["watch", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("watch commands not allowed"), "{said}");
}

/// By login and TLS, with the right that it needs; and over a unix socket.
#[test]
fn holdall_watch_reaches_secured_servers() {
    let certificates = Certificates::new();
    let users = certificates.folder.write("users", "ops:secret\nme:other\n");
    let rights = certificates.folder.write("rights", "ops admin\nme read *\n");
    let login = certificates.folder.write("login", "ops:secret\n");
    let other = certificates.folder.write("other", "me:other\n");
    let options = certificates.options(&format!("rights={rights}"));
    let port = free_port();
    let plain = format!("notls:127.0.0.1:{port}");
    let tls = format!("127.0.0.1:{}", free_port());
    let listen = format!("{plain},{tls}");
    let args = ["-Z", "-Y", &users, "-o", &options, "-l", &listen];
    let _secured = Launch::new(Kind::Holdall).plain_port(port).args(&args).start();
    let once = |args: &[&str]| {
        let once = ["watch", "--json", "--count", "1", "--interval", "0.1"];
        Command::new(holdall_path()).args(once).args(args).output().unwrap()
    };
    let ca = certificates.path("ca.crt");
    for args in [&["--tls-ca", &ca, "--login", &login][..], &["--tls-insecure", "--login", &login]]
    {
        let seen = once(&[args, &[&*tls]].concat());
        assert!(seen.status.success() && seen.stderr.is_empty(), "{seen:?}");
        assert!(seen.stdout.starts_with(b"{\"at_secs\":"), "{seen:?}");
    }
    // Without the login, without the right, and without TLS.
    for args in
        [&["--tls-ca", &ca][..], &["--tls-ca", &ca, "--login", &other], &["--login", &login]]
    {
        let mut command = Command::new(holdall_path());
        let refused = command.args(["watch", "--timeout", "2", &*tls]).args(args).output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{args:?} {refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.starts_with(&format!("holdall watch: {tls}: ")), "{said}");
    }
    let socket = certificates.path("socket");
    // Another user could not create a file in the folder. Without root's rights this does nothing.
    let args = ["-u", "root", "-s", &socket, "-o", "keep_tcp"];
    let _open = Launch::new(Kind::Holdall).args(&args).start();
    let seen = once(&[&format!("unix:{socket}")]);
    assert!(seen.status.success() && seen.stderr.is_empty(), "{seen:?}");
}

/// Quantiles of `stats latency`, in their order.
const QUANTILES: [&str; 5] = ["p50", "p90", "p99", "p999", "max"];

/// The numbers of `stats latency` at one moment.
fn latencies(router: &Router) -> BTreeMap<String, f64> {
    let mut wire = router.connect();
    wire.send(b"stats latency\r\n");
    let lines = String::from_utf8(wire.read_until(b"END\r\n")).unwrap();
    let stats = lines.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    stats.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

/// The numbers once recent replies are included: they are collected once per second.
fn recent_latencies(router: &Router) -> BTreeMap<String, f64> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let told = latencies(router);
        if told.contains_key("latency:recent:all:answers") {
            return told;
        }
        assert!(Instant::now() < deadline, "{told:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_reply_counts_in_the_histograms_of_its_server_and_pool() {
    let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let (server, router) = routed(&["--num-proxies", "2", "--metrics", &metrics.to_string()]);
    // Connections go to the workers in turn.
    for _ in 0..4 {
        let mut client = router.connect();
        client.expect(b"set k 0 0 1\r\nv\r\n", b"STORED\r\n");
        client.expect(b"get k miss\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
        client.expect(b"mg k v\r\n", b"VA 1\r\nv\r\n");
    }
    let told = recent_latencies(&router);
    for label in ["pool:all".to_owned(), format!("server:{}", server.addr())] {
        let value = |quantity: &str| told[&format!("latency:{label}:{quantity}")];
        assert_eq!(value("answers"), 16.0, "{label}");
        let secs = QUANTILES.map(|quantile| value(&format!("{quantile}_seconds")));
        assert!(secs.is_sorted() && secs[4] > 0.0, "{label}: {secs:?}");
    }
    for label in ["all".to_owned(), "pool:all".to_owned(), format!("server:{}", server.addr())] {
        let value = |quantity: &str| told[&format!("latency:recent:{label}:{quantity}")];
        // Some may not be collected yet, and others have expired.
        assert!((1.0..=16.0).contains(&value("answers")), "{label}: {told:?}");
        let secs = QUANTILES.map(|quantile| value(&format!("{quantile}_seconds")));
        assert!(secs.is_sorted() && secs[4] > 0.0, "{label}: {secs:?}");
    }
    let text = fetch(metrics, "/metrics");
    let labels = format!(r#"pool="all",server="{}""#, server.addr());
    let name = "holdall_route_request_duration_seconds";
    let number = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    };
    assert_eq!(number(&format!("{name}_count{{{labels}}}")), 16.0);
    assert_eq!(number(&format!("{name}_bucket{{{labels},le=\"+Inf\"}}")), 16.0);
    let buckets = text.lines().filter(|line| line.starts_with(&format!("{name}_bucket")));
    let counts: Vec<u64> =
        buckets.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(counts.len() == 17 && counts.is_sorted(), "{counts:?}");
    assert!(fetch(metrics, "/other").starts_with("HTTP/1.1 404 "));
}

#[test]
fn stalled_metrics_readers_delay_no_other() {
    let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let (_server, _router) = routed(&["--metrics", &metrics.to_string()]);
    // Clients can connect before operators can.
    wait_until_accepts(&[metrics], None, Duration::from_secs(60)).unwrap();
    let mut silent: Vec<TcpStream> =
        (0..10).map(|_| TcpStream::connect(metrics).unwrap()).collect();
    for stream in &mut silent {
        stream.write_all(b"G").unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    assert!(fetch(metrics, "/metrics").contains("holdall_route_uptime_seconds"));
    // The proxy did not wait for the last of them, at least: it is open.
    assert_eq!(silent[9].read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    // Each of them is closed in the end, although it sends an occasional byte.
    let mut open = silent;
    while !open.is_empty() {
        thread::sleep(Duration::from_millis(500));
        open.retain_mut(|stream| {
            let _ = stream.write_all(b"x");
            matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        });
    }
}

/// The reply to a GET request.
fn fetch(addr: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
