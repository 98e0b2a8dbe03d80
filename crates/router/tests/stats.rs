//! `stats`, its kinds and its files: the counts match the events.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

use common::{ask, proxy, stat, stats};
use testkit::{Server, eventually};

/// No server listens there.
const NOBODY: &str = "unix:/nonexistent/socket";

#[test]
fn requests_failures_and_failovers_are_counted_by_command() {
    let server = Server::memcached(&[]);
    let addr = server.addr();
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{addr}"]}}, "dead": {{"servers": ["{NOBODY}"]}}}},
            "route": {{"type": "PrefixSelectorRoute", "wildcard": "PoolRoute|A",
                "policies": {{"f": {{"type": "FailoverRoute", "children": ["PoolRoute|dead", "PoolRoute|A"]}},
                              "d": "PoolRoute|dead", "n": "DevNullRoute"}}}}}}"#
    );
    let proxy = proxy(&["--config-str", &config]).unwrap();
    assert_eq!(ask(proxy, "set a 0 0 1\r\nv\r\n"), "STORED\r\n");
    assert_eq!(ask(proxy, "get a b\r\n"), "VALUE a 0 1\r\nv\r\nEND\r\n");
    assert_eq!(ask(proxy, "mg a v\r\n"), "VA 1\r\nv\r\n");
    assert_eq!(ask(proxy, "get f\r\n"), "END\r\n");
    assert_eq!(ask(proxy, "get n\r\n"), "END\r\n");
    assert!(ask(proxy, "delete d\r\n").starts_with("SERVER_ERROR "));
    for (name, count) in [
        ("cmd_set_count", 1),
        ("cmd_set_out_count", 1),
        // a, b, a by mg, f (to the dead one, then to the other), and n, which goes nowhere.
        ("cmd_get_count", 5),
        ("cmd_get_out_count", 4),
        ("cmd_get_out_all_count", 5),
        ("cmd_delete_count", 1),
        ("cmd_delete_remote_error_count", 1),
        ("cmd_incr_count", 0),
        ("request_sent_count", 7),
        ("request_replied_count", 7),
        ("request_error_count", 1),
        ("request_success_count", 6),
        ("result_error_count", 2),
        ("result_connect_error_count", 1),
        ("result_tko_count", 1),
        ("proxy_reqs_processing", 0),
        ("proxy_reqs_waiting", 0),
        ("dev_null_requests", 1),
        ("num_servers", 2),
        ("num_suspect_servers", 1),
        ("destination_pending_reqs", 0),
        ("destination_inflight_reqs", 0),
    ] {
        assert_eq!(stat(proxy, name), count, "{name}");
    }
    let all = stats(proxy, "");
    for name in ["failover_all", "failover_inorder_policy", "cmd_get", "duration_get_us", "ps_rss"]
    {
        let line = all.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        assert!(line.unwrap().parse::<f64>().unwrap() > 0.0, "{name}");
    }
    let states =
        ["new", "up", "down", "closed"].map(|state| stat(proxy, &format!("num_servers_{state}")));
    assert_eq!((states.iter().sum::<u64>(), states[2]), (2, 1), "{states:?}");
    let suspects = stats(proxy, "suspect_servers");
    assert_eq!(suspects, format!("STAT {NOBODY} status:tko num_failures:1\r\nEND\r\n"));
}

#[test]
fn servers_have_the_names_of_the_configuration() {
    let server = Server::memcached(&[]);
    let name = format!("localhost:{}", server.addr().port());
    let config =
        format!(r#"{{"pools": {{"A": {{"servers": ["{name}"]}}}}, "route": "PoolRoute|A"}}"#);
    let proxy = proxy(&["--config-str", &config]).unwrap();
    ask(proxy, "get k\r\n");
    let servers = stats(proxy, "servers");
    assert!(servers.contains(&format!("STAT {name}:ascii:plain:notcompressed-")), "{servers}");
}

#[test]
fn each_kind_of_stats_has_its_lines() {
    let proxy = proxy(&["--config-str", r#"{"route": "NullRoute"}"#]).unwrap();
    let has = |kind: &str, name: &str| stats(proxy, kind).contains(&format!("STAT {name} "));
    for (kind, with, without) in [
        ("count", "cmd_get_count", "uptime"),
        ("ods", "uptime", "cmd_get_count"),
        ("cmd-error", "cmd_get_local_error_count", "cmd_get_count"),
        ("all", "uptime", "none"),
        ("detailed", "commandargs", "none"),
    ] {
        assert!(has(kind, with) && !has(kind, without), "{kind}");
    }
    assert_eq!(stats(proxy, "external"), "END\r\n");
}

/// As in mcrouter's own test: each pool counts its own failures, and a failover counts for the last
/// pool used.
#[test]
fn pool_statistics_count_the_results_of_client_requests() {
    let folder = std::env::temp_dir().join(format!("router-pools-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let pools = folder.join("pools.json").display().to_string();
    fs::write(&pools, r#"{"stats_enabled_pools": ["A", "dead", "none"]}"#).unwrap();
    let server = Server::memcached(&[]);
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{}"]}}, "dead": {{"servers": ["{NOBODY}"]}}}},
            "route": {{"type": "PrefixSelectorRoute", "policies": {{
                "a": {{"type": "LatencyInjectionRoute", "child": "PoolRoute|A", "before_latency_ms": 30}},
                "d": "PoolRoute|dead", "s": {{"type": "PoolRoute", "pool": "A", "shadows": [{{"target": "PoolRoute|dead"}}]}},
                "f": {{"type": "FailoverRoute", "children": ["PoolRoute|dead", "PoolRoute|A"]}}}}}}}}"#,
        server.addr()
    );
    let root = folder.join("root").display().to_string();
    let files = ["--stats-root", &root, "--pool-stats-config-file", &pools];
    let words = ["--config-str", &config, "--stats-logging-interval", "20", "--num-proxies", "2"];
    let proxy = proxy(&[&words[..], &files].concat()).unwrap();
    for _ in 0..4 {
        assert_eq!(ask(proxy, "get a\r\n"), "END\r\n");
    }
    for _ in 0..3 {
        assert!(ask(proxy, "get d\r\n").starts_with("SERVER_ERROR "));
    }
    assert_eq!(ask(proxy, "get f\r\n"), "END\r\n");
    assert_eq!(ask(proxy, "get s\r\n"), "END\r\n");
    let number = |name: &str| -> Option<f64> {
        let text = fs::read_to_string(format!("{root}/libmcrouter.mcrouter.0.stats")).ok()?;
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value.get(format!("libmcrouter.mcrouter.0.{name}"))?.as_f64()
    };
    let is = |name: &str, count: f64| {
        eventually(name, || number(name) == Some(count));
    };
    is("A.requests.sum", 6.0);
    is("A.final_result_error.sum", 0.0);
    // Three of clients, one before a failover, one shadow's.
    is("dead.requests.sum", 5.0);
    is("dead.final_result_error.sum", 3.0);
    is("none.requests.sum", 0.0);
    // Four of six waited: unlike servers' times, the mean includes the wait.
    let total_us = number("A.total_duration_us.avg").unwrap();
    assert!(total_us >= 4.0 * 29_000.0 / 6.0, "{total_us}");
    assert_eq!(number("none.total_duration_us.avg"), Some(0.0));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn statistics_files_contain_the_same_figures_in_json() {
    let folder = std::env::temp_dir().join(format!("router-stats-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let pools = folder.join("pools.json");
    fs::write(&pools, r#"{"stats_enabled_pools": ["A"]}"#).unwrap();
    let server = Server::memcached(&[]);
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{}"]}}}}, "route": "PoolRoute|A"}}"#,
        server.addr()
    );
    let root = folder.join("root").display().to_string();
    let pools = pools.display().to_string();
    let proxy = proxy(&[
        "--config-str",
        &config,
        "--stats-root",
        &root,
        "--stats-logging-interval",
        "20",
        "--pool-stats-config-file",
        &pools,
    ])
    .unwrap();
    assert_eq!(ask(proxy, "get a b\r\n"), "END\r\n");
    let read = |name: &str| {
        fs::read_to_string(format!("{root}/libmcrouter.mcrouter.0.{name}")).unwrap_or_default()
    };
    // A file may show a moment between request and connection.
    let is_told = |name: &str, value: u32| {
        let line = format!(r#""libmcrouter.mcrouter.0.A.{name}": {value}"#);
        eventually(name, || read("stats").contains(&line));
    };
    is_told("requests.sum", 2);
    is_told("connections", 1);
    assert!(read("stats").contains(r#""libmcrouter.mcrouter.0.uptime": "#));
    assert!(read("startup_options").contains(r#""default_route": "/././""#));
    assert!(read("config_sources_info").contains(r#""mcrouter_config": ""#));
    // It continues to write until the process ends.
    fs::remove_dir_all(&folder).unwrap();
}

/// memcached_exporter's view of a proxy, by the rules of its source (`pkg/exporter` of commit
/// 0cbb0fb, and its library). `stats`, `stats slabs` and `stats items` become one table, in which a
/// later line replaces an earlier one of the same name; a name with a colon starts with the number
/// of a class. The server counts as down after one error, one value that is not a number, or
/// without `cmd_set`, `cas_hits`, `cas_misses` and `cas_badval`.
#[test]
fn memcached_exporter_reads_counts_without_an_error() {
    let server = Server::memcached(&[]);
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{}"]}}}}, "route": "PoolRoute|A"}}"#,
        server.addr()
    );
    let proxy = proxy(&["--config-str", &config, "--enable-flush-cmd"]).unwrap();
    for (request, reply) in [
        ("set a 0 0 1\r\n1\r\n", "STORED\r\n"),
        ("add a 0 0 1\r\n2\r\n", "NOT_STORED\r\n"),
        ("set b 0 0 1\r\n2\r\n", "STORED\r\n"),
        ("cas a 0 0 1 9999\r\n3\r\n", "EXISTS\r\n"),
        ("cas none 0 0 1 1\r\n3\r\n", "NOT_FOUND\r\n"),
        ("get a none\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n"),
        ("mg none v\r\n", "EN\r\n"),
        ("incr a 1\r\n", "2\r\n"),
        ("decr none 1\r\n", "NOT_FOUND\r\n"),
        ("touch a 0\r\n", "TOUCHED\r\n"),
        ("gat 0 none\r\n", "END\r\n"),
        ("ms a 1 C9999\r\n3\r\n", "EX\r\n"),
        ("ms none 1 C1\r\n3\r\n", "NF\r\n"),
        ("md a C9999\r\n", "EX\r\n"),
        ("delete b\r\n", "DELETED\r\n"),
        ("delete b\r\n", "NOT_FOUND\r\n"),
    ] {
        assert_eq!(ask(proxy, request), reply, "{request}");
    }
    let gets = ask(proxy, "gets a\r\n");
    let unique = gets.lines().next().and_then(|line| line.split(' ').nth(4)).unwrap();
    assert_eq!(ask(proxy, &format!("cas a 0 0 1 {unique}\r\n5\r\n")), "STORED\r\n");
    assert_eq!(ask(proxy, "flush_all\r\n"), "OK\r\n");

    let table = exporters_table(proxy);
    for (name, count) in [
        ("cmd_set", 8),
        ("cas_hits", 1),
        ("cas_misses", 2),
        ("cas_badval", 2),
        ("get_hits", 2),
        ("get_misses", 2),
        ("delete_hits", 1),
        ("delete_misses", 2),
        ("incr_hits", 1),
        ("incr_misses", 0),
        ("decr_hits", 0),
        ("decr_misses", 1),
        ("touch_hits", 1),
        ("touch_misses", 1),
        ("cmd_flush", 1),
        // As in memcached, without `gat`, which is a touch.
        ("cmd_get", 4),
        ("cmd_touch", 2),
        ("accepting_conns", 1),
        ("rejected_connections", 0),
    ] {
        assert_eq!(table[name].parse(), Ok(count), "{name}");
    }
    for name in ["uptime", "time", "total_connections", "bytes_read", "bytes_written"] {
        assert!(table[name].parse::<u64>().is_ok(), "{name} {}", table[name]);
    }
    // From seconds and microseconds; memcached has six digits.
    for name in ["rusage_user", "rusage_system"] {
        let (secs, us) = table[name].split_once('.').unwrap();
        assert!(secs.parse::<u32>().is_ok() && us.len() == 6, "{name} {}", table[name]);
    }
    // Only `stats` has mcrouter's meaning: a rate.
    let rate = stats(proxy, "");
    let rate = rate.lines().find_map(|line| line.strip_prefix("STAT cmd_set ")).unwrap();
    assert_ne!(rate, "6");
    assert_settings(proxy);
}

/// Names and values of the groups that the exporter merges.
fn exporters_table(proxy: SocketAddr) -> BTreeMap<String, String> {
    let mut table = BTreeMap::new();
    for group in ["", "slabs", "items"] {
        for line in stats(proxy, group).lines() {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["STAT", name, value] = words[..] {
                assert!(!name.contains(':'), "{name} is of no class");
                table.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    table
}

/// The exporter accepts no value with a space.
fn assert_settings(proxy: SocketAddr) {
    let settings = stats(proxy, "settings");
    for line in settings.lines().filter(|line| *line != "END") {
        assert_eq!(line.split(' ').count(), 3, "{line}");
    }
    let port = format!("STAT tcpport {}\r\n", proxy.port());
    // Fewer than the default where the limit of open files is lower.
    let connections = settings.lines().find_map(|line| line.strip_prefix("STAT maxconns "));
    assert!(connections.and_then(|count| count.parse::<u32>().ok()).is_some_and(|count| count > 0));
    for line in ["STAT num_threads 1\r\n", &port] {
        assert!(settings.contains(line), "{line} in {settings}");
    }
}
