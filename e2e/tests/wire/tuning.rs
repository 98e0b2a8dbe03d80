//! The engine's tuning commands, such as `lru`, and their effects.

use super::{Row, check, row};
use testkit::Server;

const SLABS: &[Row] = &[
    row("slabs\r\n", "ERROR\r\n"),
    row("slabs reassign 1\r\n", "ERROR\r\n"),
    row("slabs reassign x 1\r\n", "CLIENT_ERROR bad command line format\r\n"),
    row("slabs reassign 1 1\r\n", "SAME src and dst class are identical\r\n"),
    row("slabs reassign 1 999\r\n", "BADCLASS invalid src or dst class id\r\n"),
    row("slabs reassign 999 1\r\n", "BADCLASS invalid src or dst class id\r\n"),
    row("slabs reassign 40 1\r\n", "NOSPARE source class has no spare pages\r\n"),
    row("slabs automove 0\r\nslabs automove 2\r\nslabs automove 1\r\n", "OK\r\nOK\r\nOK\r\n"),
    row("slabs automove 3\r\n", "ERROR\r\n"),
    row("slabs automove x\r\n", "CLIENT_ERROR bad command line format\r\n"),
    row("slabs automove ratio 0.7\r\n", "OK\r\n"),
    row("slabs automove ratio\r\n", "ERROR\r\n"),
    row("slabs automove ratio x\r\n", "ERROR\r\n"),
];

#[test]
fn slabs_replies_match_memcached() {
    check(&Server::under_test(&[]), SLABS);
}

const CRAWLER: &[Row] = &[
    row("lru_crawler\r\n", "ERROR\r\n"),
    row("lru_crawler crawl\r\n", "ERROR\r\n"),
    row("lru_crawler crawl all x\r\n", "ERROR\r\n"),
    row("lru_crawler crawl 1,99\r\n", "BADCLASS invalid class id\r\n"),
    row("lru_crawler crawl 0\r\n", "BADCLASS invalid class id\r\n"),
    row("lru_crawler sleep 1000001\r\n", "CLIENT_ERROR sleep must be one second or less\r\n"),
    row("lru_crawler sleep -1\r\n", "CLIENT_ERROR bad command line format\r\n"),
    row("lru_crawler tocrawl x\r\n", "CLIENT_ERROR bad command line format\r\n"),
    row("lru_crawler tocrawl 4294967295\r\nlru_crawler tocrawl 0\r\n", "OK\r\nOK\r\n"),
    row(
        "lru_crawler disable\r\nlru_crawler crawl all\r\nlru_crawler enable\r\nlru_crawler crawl all\r\n",
        "OK\r\nCLIENT_ERROR lru crawler disabled\r\nOK\r\nOK\r\n",
    ),
];

#[test]
fn lru_crawler_replies_match_memcached() {
    check(&Server::under_test(&[]), CRAWLER);
}

/// Returns true if a setting or statistic gets this value within ten seconds.
fn becomes(server: &Server, name: &str, want: u64) -> bool {
    let by = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while server.stat(name) != want && std::time::Instant::now() < by {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    server.stat(name) == want
}

/// Neither the ring (`transient_ttl=0`) nor the bags' passes reach these items at once: a crawl
/// does, and counts them.
#[test]
fn a_crawl_frees_expired_items() {
    let server =
        Server::holdall(&["-o", "transient_ttl=0,lru_crawler_sleep=7,lru_crawler_tocrawl=500"]);
    let mut wire = server.connect();
    for number in 0..2000 {
        wire.expect(format!("set s{number} 0 1 1\r\nx\r\n").as_bytes(), b"STORED\r\n");
        wire.expect(format!("set l{number} 0 0 1\r\nx\r\n").as_bytes(), b"STORED\r\n");
    }
    let settings: std::collections::BTreeMap<_, _> = server.stats("settings").into_iter().collect();
    assert_eq!(settings["lru_crawler_sleep"], "7");
    assert_eq!(settings["lru_crawler_tocrawl"], "500");
    std::thread::sleep(std::time::Duration::from_millis(2100));
    wire.expect(b"lru_crawler tocrawl 0\r\n", b"OK\r\n");
    wire.expect(b"lru_crawler sleep 0\r\nlru_crawler crawl all\r\n", b"OK\r\nOK\r\n");
    assert!(becomes(&server, "lru_crawler_running", 0), "the crawl does not end");
    assert_eq!(server.stat("curr_items"), 2000);
    assert_eq!(server.stat("lru_crawler_starts"), 1);
    assert!(server.stat("crawler_items_checked") >= 2000);
    assert_eq!(server.stat("crawler_reclaimed"), 2000);
    assert_eq!(server.stat("reclaimed"), 2000);
}

/// A crawl that pauses for a second after each thousand items runs for long: a second one is
/// refused, and `disable` ends it.
#[test]
fn a_crawl_honours_its_pause_and_disable() {
    let server = Server::holdall(&["-o", "lru_crawler_sleep=1000000"]);
    let mut wire = server.connect();
    for number in 0..5000 {
        wire.expect(format!("set k{number} 0 0 1\r\nx\r\n").as_bytes(), b"STORED\r\n");
    }
    wire.expect(b"lru_crawler crawl all\r\n", b"OK\r\n");
    wire.expect(b"lru_crawler crawl all\r\n", b"BUSY currently processing crawler request\r\n");
    assert_eq!(server.stat("lru_crawler_running"), 1);
    wire.expect(b"lru_crawler disable\r\n", b"OK\r\n");
    assert_eq!(server.stat("lru_crawler_running"), 0);
    wire.expect(b"lru_crawler enable\r\nlru_crawler sleep 0\r\n", b"OK\r\nOK\r\n");
    wire.expect(b"lru_crawler crawl all\r\n", b"OK\r\n");
    assert!(becomes(&server, "lru_crawler_running", 0), "the crawl does not end");
}

const LRU: &[Row] = &[
    row("lru\r\n", "ERROR\r\n"),
    row("lru nosuch 1\r\n", "ERROR\r\n"),
    row("lru mode flat\r\n", "OK\r\n"),
    row("lru mode segmented\r\n", "OK\r\n"),
    row("lru mode round\r\n", "ERROR\r\n"),
    row("lru tune 10 25 0.1 2.0\r\n", "OK\r\n"),
    row("lru tune 10 25 0.1\r\n", "ERROR\r\n"),
    row("lru tune 10 x 0.1 2.0\r\n", "ERROR\r\n"),
    row("lru tune 50 40 0.1 2.0\r\n", "ERROR hot and warm pcts must not exceed 80\r\n"),
    row("lru tune 10 25 0 2.0\r\n", "ERROR hot/warm age factors must be greater than 0\r\n"),
    row("lru temp_ttl x\r\n", "ERROR\r\n"),
    row("lru temp_ttl -1\r\nlru temp_ttl 61\r\n", "OK\r\nOK\r\n"),
];

#[test]
fn lru_replies_match_memcached() {
    check(&Server::under_test(&[]), LRU);
}

#[test]
fn temp_ttl_sets_the_threshold_of_transient_items() {
    let server = Server::under_test(&[]);
    let setting = |name: &str| {
        let settings = server.stats("settings");
        settings.into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
    };
    let mut wire = server.connect();
    wire.expect(b"lru temp_ttl 25\r\n", b"OK\r\n");
    assert_eq!(setting("temp_lru").as_deref(), Some("yes"));
    assert_eq!(setting("temporary_ttl").as_deref(), Some("25"));
    wire.expect(b"lru temp_ttl -1\r\n", b"OK\r\n");
    assert_eq!(setting("temp_lru").as_deref(), Some("no"));
}

/// By the server's own clock: an item and its memory are gone from the second after its deadline
/// on.
#[test]
fn transient_items_are_gone_within_a_second_of_expiring() {
    let server = Server::under_test(&["-o", "transient_ttl=10"]);
    let mut wire = server.connect();
    let items = 3000;
    for number in 0..items {
        let line = format!("set key{number} 0 {} 100\r\n{}\r\n", 1 + number % 3, "v".repeat(100));
        wire.expect(line.as_bytes(), b"STORED\r\n");
    }
    wire.expect(b"set stays 0 0 1\r\nx\r\n", b"STORED\r\n");
    wire.expect(b"set longer 0 11 1\r\nx\r\n", b"STORED\r\n");
    let stored = server.stat("time");
    loop {
        let now = server.stat("time");
        let (left, bytes) = (server.stat("curr_items"), server.stat("bytes"));
        if now > stored + 3 {
            assert_eq!(left, 2, "{} seconds later", now - stored);
            assert!(bytes < 100, "{bytes} bytes");
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(server.stat("transient_reclaimed"), items);
    assert_eq!(server.stat("transient_listed"), 0);
}
