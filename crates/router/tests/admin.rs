//! `get __mcrouter__.what`: the proxy's information about itself.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use common::{ask, proxy};
use routeconf::ast::Command;
use routeconf::walk::{Question, Walker};

/// The value of one admin request.
fn admin(proxy: SocketAddr, what: &str) -> String {
    let answer = ask(proxy, &format!("get __mcrouter__.{what}\r\n"));
    match answer.split_once("\r\n") {
        Some((_, rest)) => rest.strip_suffix("\r\nEND\r\n").unwrap_or(&answer).to_owned(),
        None => answer,
    }
}

#[test]
fn admin_requests_report_sources_pools_and_parameters() {
    let folder = std::env::temp_dir().join(format!("router-admin-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let pool = r#"{"servers": ["127.0.0.1:1", "127.0.0.1:2"], "failure_domains": ["a", 7]}"#;
    fs::write(folder.join("pool.json"), pool).unwrap();
    let file = folder.join("main.json");
    fs::write(&file, r#"{"pools": {"A": "file:pool.json"}, "route": "PoolRoute|A"}"#).unwrap();
    let file = file.display().to_string();
    let proxy = proxy(&["-f", &file, "--config-params", "x:y", "-R", "/r/c/"]).unwrap();

    // As md5sum prints it.
    assert_eq!(admin(proxy, "config_md5_digest"), "f7713eefa6c67aa06a34cbe0faa2b9d0");
    let sources = admin(proxy, "config_sources_info");
    assert!(sources.contains(r#""mcrouter_config": ""#), "{sources}");
    assert!(sources.contains("pool.json"), "{sources}");
    let pools = admin(proxy, "pools");
    assert!(pools.contains(r#""host|127.0.0.1:1""#), "{pools}");
    let domains = admin(proxy, "failure_domains(A)");
    assert!(domains.contains(r#""127.0.0.1:2": "7""#), "{domains}");
    let params = admin(proxy, "global_params");
    for one in
        [r#""x": "y""#, r#""default-region": "r""#, r#""mcr_opts-server_timeout_ms": "60000""#]
    {
        assert!(params.contains(one), "{params}");
    }
    assert_eq!(admin(proxy, "options(server_timeout_ms)"), "60000");
    assert!(admin(proxy, "options").contains("default_route /r/c/\r\n"));
    assert!(admin(proxy, "route(get,a,b)").starts_with("127.0.0.1:"));
    for wrong in ["options(none)", "failure_domains(none)", "verbosity(x)", "get_bucket"] {
        assert!(admin(proxy, wrong).starts_with("CLIENT_ERROR "), "{wrong}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// mcrouter's weighted hashes choose by a bucket's number; `additional_fanout` gives a server
/// several places.
#[test]
fn admin_requests_report_buckets_and_additional_fanout() {
    let servers = r#""servers": ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]"#;
    let buckets = r#""bucketize": true, "total_buckets": 1000000, "bucketization_keyspace": "r:A",
        "total_buckets_by_prefix": {"w:asdf": 1}"#;
    let config = format!(
        r#"{{"pools": {{"A": {{{servers}}}, "F": {{{servers}, "additional_fanout": 1}}}}, "route": {{
            "type": "PrefixSelectorRoute", "wildcard": "PoolRoute|F", "policies": {{
            "w": {{"type": "PoolRoute", "pool": "A", {buckets}, "hash": {{"hash_func": "WeightedCh3", "weights": [1, 1, 1]}}}},
            "c": {{"type": "PoolRoute", "pool": "A", {buckets}}}}}}}}}"#
    );
    let proxy = proxy(&["--config-str", &config]).unwrap();
    let server = |place: u32| format!("127.0.0.1:{}", place + 1);
    for number in 0..20 {
        let key = format!("w{number}");
        let bucket = hashing::furc_hash(key.as_bytes(), 1_000_000);
        assert_eq!(admin(proxy, &format!("get_bucket({key})")), format!("{key}\t{bucket}\tr:A"));
        let place = hashing::furc_hash(bucket.to_string().as_bytes(), 3);
        assert_eq!(admin(proxy, &format!("route(get,{key})")), server(place), "{key}");
        // The other functions choose by the key.
        let key = format!("c{number}");
        assert!(admin(proxy, &format!("get_bucket({key})")).ends_with("\tr:A"));
        let place = hashing::furc_hash(key.as_bytes(), 3);
        assert_eq!(admin(proxy, &format!("route(get,{key})")), server(place), "{key}");
        let key = format!("f{number}");
        assert_eq!(admin(proxy, &format!("get_bucket({key})")), "");
        let place = hashing::furc_hash(key.as_bytes(), 6) / 2;
        assert_eq!(admin(proxy, &format!("route(get,{key})")), server(place), "{key}");
    }
    let group = |key: &str| admin(proxy, &format!("get_bucket({key})")).replace(key, "");
    assert_eq!(group("w:asdf1"), group("w:asdf2"));
    assert!(admin(proxy, "route_handles(get,w1)").contains("bucketize|total_buckets=1000000|"));
}

/// The walk of `holdall explain` is compared with the servers asked elsewhere.
#[test]
fn the_servers_of_a_key_are_those_of_its_names() {
    let split = r#""shard_splits": {"0": 1, "1": 3, "2": 5}"#;
    let routes = [
        r#"{"type": "ModifyKeyRoute", "ensure_key_prefix": "x:", "target": "PoolRoute|A"}"#.into(),
        r#"{"type": "KeySplitRoute", "replicas": 4, "all_sync": false,
            "destination": "PoolRoute|A"}"#
            .into(),
        format!(r#"{{"type": "ShardSplitRoute", "destination": "PoolRoute|A", {split}}}"#),
        format!(
            r#"{{"type": "KeyParseRoute", "num_routing_parts": 3, "delimiter": ":", "target":
                {{"type": "PoolRoute", "pool": "A", {split}}}}}"#
        ),
    ];
    let pools = r#""A": {"servers": ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]}"#;
    for route in routes {
        let text = format!(r#"{{"pools": {{{pools}}}, "route": {route}}}"#);
        let proxy = proxy(&["--config-str", &text]).unwrap();
        let mut nothing = routeconf::MemorySources(std::iter::empty().collect());
        let params = routeconf::Params::default();
        let config = routeconf::load("test.json", &text, &params, &mut nothing).unwrap().config;
        let walker = Walker::new(&config);
        for key in (0..40).map(|number| format!("u:{}:n{number}:z{number}", number % 4)) {
            for (name, operation) in [("get", Command::Get), ("delete", Command::Delete)] {
                let question = Question {
                    operation,
                    key: key.as_bytes(),
                    host_id: routeconf::host_id(),
                    client: None,
                    now_secs: 1_800_000_000,
                };
                let mut named = BTreeSet::new();
                let mut steps = walker.walk(&config.listeners[0], &question);
                while let Some(step) = steps.pop() {
                    named.extend(step.server.map(|server| walker.member_name(server)));
                    steps.extend(step.next);
                }
                let listed = admin(proxy, &format!("route({name},{key})"));
                let listed = listed.lines().map(str::to_owned).collect();
                assert_eq!(named, listed, "{name} {key} {route}");
            }
        }
    }
}

#[test]
fn verbosity_can_be_read_and_set() {
    let proxy = proxy(&["--config-str", r#"{"route": "NullRoute"}"#]).unwrap();
    let said = ["verbosity", "verbosity(1)", "verbosity"].map(|what| admin(proxy, what));
    assert_eq!(said, ["0", "0 -> 1", "1"]);
}
