//! `holdall explain` lists every server that a request may reach. The test compares the walk with
//! the servers actually asked, for random configurations.
//!
//! `CONFIGS` and `REQUESTS` make the run longer; `SEED` repeats a part of it.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;
#[path = "generated/config.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod config;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use common::{Rig, number, patient};
use config::{Addresses, config};
use routeconf::ast::{Config, Route};
use routeconf::walk::{Question, Step, Walker};
use routeconf::{MemorySources, Params, load};
use routes::{Plan, TreeFlags};
use testkit::{Rng, Server};
use upstream::{Command, Request};

/// The number of a rig's host.
const HOST_ID: u32 = 7;

const KEYS: [&[u8]; 10] =
    [b"k", b"k1", b"k:1:x", b"k:2:x", b"other", b"k|#|stop", b"/a/b/k", b"/a/c/k", b"a", b"1"];

const COMMANDS: [Command; 8] = [
    Command::Get,
    Command::Gets,
    Command::Set,
    Command::Add,
    Command::Delete,
    Command::Incr,
    Command::Touch,
    Command::LeaseGet,
];

/// The number of requests to each server so far.
fn asked(rig: &Rig) -> BTreeMap<String, u64> {
    let mut asked = BTreeMap::new();
    for report in rig.registry.report() {
        *asked.entry(report.address.to_string()).or_default() += report.totals.asked;
    }
    asked
}

/// The servers that one request reaches, including those without a waiter.
fn servers_asked(rig: &mut Rig, request: &Request<'_>) -> BTreeSet<String> {
    let before = asked(rig);
    rig.ask(request);
    rig.rest();
    let count = |address: &str| before.get(address).copied().unwrap_or_default();
    asked(rig)
        .into_iter()
        .filter(|(address, now)| *now > count(address))
        .map(|(address, _)| address)
        .collect()
}

/// Adds the servers of these steps and of those that follow. Of a pool whose server the host
/// decides, by Latest, the walk names only the pool: it may be any server.
fn explained(steps: &[Step], config: &Config, walker: &Walker<'_>, servers: &mut BTreeSet<String>) {
    for step in steps {
        servers.extend(step.server.map(|server| walker.member_name(server)));
        if let Route::Pool(route) = &config.handle(step.route).route
            && route.latest.is_some()
        {
            let members = (0_u32..).take(config.pool(route.pool).members.len());
            servers.extend(members.map(|index| walker.member_name((route.pool, index))));
        }
        explained(&step.next, config, walker, servers);
    }
}

#[test]
fn requests_reach_only_servers_named_by_explain() {
    let servers = [(); 4].map(|()| Server::memcached(&[]));
    let [a, b, refusing, silent] = servers.each_ref().map(|server| server.addr().to_string());
    let addresses = Addresses { alive: [a, b], refusing, silent };
    let now_secs = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let (mut requests, mut exactly) = (0, 0);
    let first = number("SEED", 1);
    for seed in first..first + number("CONFIGS", 100) {
        let mut rng = Rng::new(seed as u64);
        // No pause and no short timeout: each request must end before the next.
        let text = config(&mut rng, &addresses)
            .replace("_latency_ms\": 1", "_latency_ms\": 0")
            .replace("\"server_timeout\": 20", "\"server_timeout\": 60000");
        let mut nothing = MemorySources(std::iter::empty().collect());
        let Ok(loaded) = load("test.json", &text, &Params::default(), &mut nothing) else {
            continue;
        };
        let walker = Walker::new(&loaded.config);
        let plan = Plan::new(loaded.config.clone(), patient(), TreeFlags::default()).unwrap();
        let mut rig = Rig::over(|upstream| plan.tree(upstream));
        // A request may have asked more servers than it waits for.
        let mut named_before = BTreeSet::new();
        for _ in 0..number("REQUESTS", 10) {
            let (operation, key) = (*rng.pick(&COMMANDS), *rng.pick(&KEYS));
            let request = Request { value: b"1", ..Request::new(operation, key) };
            let question = Question { operation, key, host_id: HOST_ID, client: None, now_secs };
            let mut named = BTreeSet::new();
            let steps = walker.walk(&loaded.config.listeners[0], &question);
            explained(&steps, &loaded.config, &walker, &mut named);
            if walker.was_cut() {
                continue;
            }
            let asked = servers_asked(&mut rig, &request);
            requests += 1;
            exactly += usize::from(asked == named);
            named_before.append(&mut named);
            let lacking: Vec<_> = asked.difference(&named_before).collect();
            let key = key.escape_ascii();
            assert!(lacking.is_empty(), "seed {seed}, {operation:?} {key}: {lacking:?}\n{text}");
        }
    }
    println!("{requests} requests; of {exactly} exactly the servers named were asked");
    assert!(3 * exactly > requests, "{exactly} of {requests}: it shows little");
}

/// Routes over a pool of two servers that choose by a part of the key or request other keys: the
/// type, and its fields.
const BY_PARTS: [(&str, &str); 15] = [
    ("KeyParseRoute", r#""target": "PoolRoute|p", "num_routing_parts": 1, "delimiter": ":""#),
    ("KeyParseRoute", r#""target": "PoolRoute|p", "num_routing_parts": 9, "delimiter": ":""#),
    ("HashStopAllowListRoute", r#""target": "PoolRoute|p", "prefixes": ["1"]"#),
    (
        "HashStopAllowListRoute",
        r#""target": {"type": "PoolRoute", "pool": "p", "hash": {"hash_func": "Ketama", "filter": "none"}},
           "prefixes": ["1"]"#,
    ),
    (
        "ModifyKeyRoute",
        r#""target": "PoolRoute|p", "ensure_key_prefix": "a", "set_routing_prefix": "/a/b/""#,
    ),
    (
        "KeySplitRoute",
        r#""destination": "PoolRoute|p", "replicas": 5, "all_sync": true, "first_hit": true"#,
    ),
    ("KeySplitRoute", r#""destination": "PoolRoute|p", "replicas": 5, "all_sync": false"#),
    ("KeyParseRoute", r#""target": {MIGRATE}, "num_routing_parts": 1, "delimiter": ":""#),
    ("HashStopAllowListRoute", r#""target": {MIGRATE}, "prefixes": ["1"]"#),
    ("ShardSplitRoute", r#""destination": "PoolRoute|p", "shard_splits": {SPLITS}"#),
    ("PoolRoute", r#""pool": "p", "shard_splits": {SPLITS}"#),
    ("KeyParseRoute", r#""target": {SPLIT}, "num_routing_parts": 1, "delimiter": "x""#),
    ("KeyParseRoute", r#""target": {SPLIT_POOL}, "num_routing_parts": 1, "delimiter": "x""#),
    ("HashStopAllowListRoute", r#""target": {SPLIT}, "prefixes": ["1", "2", "3"]"#),
    ("HashStopAllowListRoute", r#""target": {SPLIT_POOL}, "prefixes": ["1", "2", "3"]"#),
];

const SPLIT: &str =
    r#"{"type": "ShardSplitRoute", "destination": {BARE}, "shard_splits": {SPLITS}}"#;

const SPLIT_POOL: &str = r#"{"type": "PoolRoute", "pool": "p", "shard_splits": {SPLITS},
    "hash": {"hash_func": "Ketama", "filter": "none"}}"#;

/// A pool that hashes whole keys.
const BARE: &str = r#"{"type": "PoolRoute", "pool": "p",
    "hash": {"hash_func": "Ketama", "filter": "none"}}"#;

/// Half of the keys have moved.
const MIGRATE: &str = r#"{"type": "MigrateRoute", "from": "PoolRoute|a", "to": "PoolRoute|b",
    "start_time": BEGAN, "interval": 10000}"#;

/// A shard whose number of names has just shrunk, one whose number will grow, and one whose plain
/// name is the host's own.
const SPLITS: &str = r#"{
    "0": 7,
    "1": {"old_split_size": 4, "new_split_size": 2, "split_start": BEGAN, "migration_period": 1},
    "2": {"old_split_size": 2, "new_split_size": 5, "split_start": BEGAN,
          "migration_period": 30000}}"#;

const BY_PARTS_COMMANDS: [Command; 7] = [
    Command::Get,
    Command::Gets,
    Command::LeaseSet,
    Command::Set,
    Command::Add,
    Command::Incr,
    Command::Delete,
];

/// Nothing depends on chance or load here, and no key is found.
#[test]
fn requests_reach_exactly_the_servers_named_by_explain() {
    let servers = [(); 2].map(|()| Server::memcached(&[]));
    let [a, b] = servers.each_ref().map(|server| server.addr().to_string());
    let pools = format!(
        r#"{{"p": {{"servers": ["{a}", "{b}"]}}, "a": {{"servers": ["{a}"]}},
            "b": {{"servers": ["{b}"]}}}}"#
    );
    let now_secs = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let began = (now_secs - 15_000).to_string();
    for (name, fields) in BY_PARTS {
        let fields = fields.replace("{SPLIT}", SPLIT).replace("{SPLIT_POOL}", SPLIT_POOL);
        let fields = fields.replace("{BARE}", BARE);
        let fields = fields.replace("{MIGRATE}", MIGRATE).replace("{SPLITS}", SPLITS);
        let route = format!(r#"{{"type": "{name}", {}}}"#, fields.replace("BEGAN", &began));
        let text = format!(r#"{{"pools": {pools}, "route": {route}}}"#);
        let mut nothing = MemorySources(std::iter::empty().collect());
        let config = load("test.json", &text, &Params::default(), &mut nothing).unwrap().config;
        let walker = Walker::new(&config);
        let plan = Plan::new(config.clone(), patient(), TreeFlags::default()).unwrap();
        let mut rig = Rig::over(|upstream| plan.tree(upstream));
        for number in 0..40 {
            let stop = if number % 2 == 0 { "|#|" } else { "-" };
            let key = format!("{}:{}:x{number}{stop}{number}", number % 8, number % 3);
            for operation in BY_PARTS_COMMANDS {
                let (key, host_id) = (key.as_bytes(), HOST_ID);
                let question = Question { operation, key, host_id, client: None, now_secs };
                let mut named = BTreeSet::new();
                let steps = walker.walk(&config.listeners[0], &question);
                explained(&steps, &config, &walker, &mut named);
                let request = Request { value: b"x", ..Request::new(operation, key) };
                let asked = servers_asked(&mut rig, &request);
                assert_eq!(asked, named, "{operation:?} {} {route}", key.escape_ascii());
            }
        }
    }
}
