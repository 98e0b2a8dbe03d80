//! mcrouter's flags that change routes, times and limits.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use common::{ask, eventually, proxy, stats};
use testkit::Server;

/// A proxy with one pool of this server, and these arguments.
fn over(server: &str, pool: &str, route: &str, more: &[&str]) -> SocketAddr {
    let config =
        format!(r#"{{"pools": {{"A": {{"servers": ["{server}"] {pool}}}}}, "route": {route}}}"#);
    let arguments: Vec<&str> = ["--config-str", &config].into_iter().chain(more.to_vec()).collect();
    proxy(&arguments).unwrap()
}

/// Nobody listens there.
const NOBODY: &str = "unix:/nonexistent/socket";

const TO_A: &str = r#""PoolRoute|A""#;

#[test]
fn gets_alone_reach_servers() {
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
fn large_values_are_kept_in_pieces_whatever_their_route() {
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

#[test]
fn what_servers_do_wrong_is_one_error_if_that_is_wanted() {
    let proxy = over(NOBODY, "", TO_A, &["--group-remote-errors"]);
    for _ in 0..3 {
        assert_eq!(ask(proxy, "get k\r\n"), "SERVER_ERROR Remote error\r\n");
    }
}

#[test]
fn nobody_is_knocked_out_if_that_is_wanted() {
    let proxy = over(NOBODY, "", TO_A, &["--disable-tko-tracking"]);
    for _ in 0..5 {
        assert_eq!(ask(proxy, "get k\r\n"), "SERVER_ERROR Connection error\r\n");
    }
    assert!(stats(proxy, "").contains("STAT num_suspect_servers 0\r\n"));
}

#[test]
fn split_shards_are_whole_if_that_is_wanted() {
    let server = Server::memcached(&[]);
    let addr = server.addr().to_string();
    let route = r#"{"type": "PoolRoute", "pool": "A", "shard_splits": {"1": 26}}"#;
    let proxy = over(&addr, "", route, &["--disable-shard-split-route"]);
    assert_eq!(ask(proxy, "set a:1:k 0 0 1\r\nv\r\n"), "STORED\r\n");
    assert_eq!(ask(server.addr(), "get a:1:k\r\n"), "VALUE a:1:k 0 1\r\nv\r\nEND\r\n");
}

#[test]
fn times_go_by_the_distance_of_pools() {
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

/// Asks and does not wait.
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
fn who_waits_for_room_gives_up_and_no_more_wait_than_may() {
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
    // Of three at once, one is asked, one waits, and one, whichever that is, is refused.
    let all = [asking(proxy), asking(proxy), asking(proxy)];
    all.iter().for_each(|one| one.get_ref().set_nonblocking(true).unwrap());
    let has_answer = |one: &BufReader<TcpStream>| one.get_ref().peek(&mut [0; 1]).is_ok();
    eventually("one is refused", || all.iter().any(has_answer));
}
