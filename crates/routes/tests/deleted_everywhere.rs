//! A delete reaches every server that a set or a get of its key uses, on every host: random nests
//! of the routes that choose a part of a key or give it other names.
//!
//! `CONFIGS` makes the run longer; `SEED` repeats a part of it.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::time::{SystemTime, UNIX_EPOCH};

use common::cluster::{config, plan};
use common::{Rig, number};
use testkit::{Rng, Server};
use upstream::{Command, Outcome};

/// Maximum depth of nested routes.
const DEPTH_MAX: u32 = 4;

/// Routes over others, for each of which a `#` stands. `@` stands for split shards.
const ROUTES: [&str; 13] = [
    r#"{"type": "KeyParseRoute", "target": #, "num_routing_parts": 3, "delimiter": ":"}"#,
    r#"{"type": "KeyParseRoute", "target": #, "num_routing_parts": 2, "delimiter": ":"}"#,
    r#"{"type": "KeyParseRoute", "target": #, "num_routing_parts": 1, "delimiter": "n"}"#,
    r#"{"type": "HashStopAllowListRoute", "target": #, "prefixes": ["x", "u:1:"]}"#,
    r#"{"type": "HashStopAllowListRoute", "target": #, "prefixes": [""]}"#,
    r#"{"type": "ShardSplitRoute", "destination": #, "shard_splits": @}"#,
    r#"{"type": "ShardSplitRoute", "destination": #, "shard_splits": @}"#,
    r#"{"type": "KeySplitRoute", "destination": #, "replicas": 3, "all_sync": true}"#,
    r#"{"type": "KeySplitRoute", "destination": #, "replicas": 2, "all_sync": false}"#,
    r#"{"type": "ModifyKeyRoute", "target": #, "ensure_key_prefix": "x"}"#,
    r#"{"type": "ModifyKeyRoute", "target": #, "set_key_suffix": ":z", "ensure_key_prefix": ""}"#,
    r#"{"type": "MissFailoverRoute", "children": [#, #]}"#,
    r#"{"type": "MigrateRoute", "from": #, "to": #, "start_time": BEGAN, "interval": 10000}"#,
];

const POOLS: [&str; 4] = [
    r#""PoolRoute|all""#,
    r#"{"type": "PoolRoute", "pool": "all", "shard_splits": @}"#,
    r#"{"type": "PoolRoute", "pool": "all", "hash": {"hash_func": "Ketama", "filter": "none"}}"#,
    r#"{"type": "PoolRoute", "pool": "all", "shard_splits": @,
        "hash": {"hash_func": "Ketama", "filter": "none"}}"#,
];

/// Shards with one name, with several, and with numbers of names that change.
const SPLITS: &str = r#"{"1": 1, "2": 3,
    "3": {"old_split_size": 4, "new_split_size": 2, "split_start": BEGAN, "migration_period": 1},
    "4": {"old_split_size": 1, "new_split_size": 3, "split_start": BEGAN,
          "migration_period": 30000}}"#;

const HOSTS: [u32; 4] = [0, 1, 2, 9_000];

fn route(rng: &mut Rng, depth: u32) -> String {
    let is_pool = depth == DEPTH_MAX || depth > 0 && rng.one_in(4);
    let template = if is_pool { *rng.pick(&POOLS) } else { *rng.pick(&ROUTES) };
    let mut text = String::new();
    for part in template.chars() {
        match part {
            '#' => text.push_str(&route(rng, depth + 1)),
            '@' => text.push_str(SPLITS),
            other => text.push(other),
        }
    }
    text
}

/// Keys of one shard: with parts, with a hash stop, and without room for another name.
fn keys(shard: u64, seed: usize) -> [String; 5] {
    [
        format!("u:{shard}:n{seed}:z{shard}"),
        format!("u:{shard}:n{seed}|#|t{seed}:n"),
        format!("x:{shard}:n|#|{seed}"),
        format!("{:n<250}", format!("u:{shard}:{seed}n|#|")),
        format!("u:{shard}:{seed}"),
    ]
}

#[test]
fn no_host_reads_a_value_that_another_has_deleted() {
    let servers = [(); 4].map(|()| Server::memcached(&[]));
    let now_secs = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let began = (now_secs - 15_000).to_string();
    let (mut stored, mut tried) = (0, 0);
    let first = number("SEED", 1);
    for seed in first..first + number("CONFIGS", 60) {
        let mut rng = Rng::new(seed as u64);
        let route = route(&mut rng, 0).replace("BEGAN", &began);
        let plan = plan(&config(&servers, &route)).unwrap();
        let mut hosts = HOSTS.map(|host| Rig::on_host(host, |upstream| plan.tree(upstream)));
        for key in (1..=4).flat_map(|shard| keys(shard, seed)) {
            let (setter, deleter) = (rng.below(HOSTS.len()), rng.below(HOSTS.len()));
            let outcome = hosts[setter].store(Command::Set, &key, "v");
            hosts[setter].rest();
            tried += 1;
            if outcome != Outcome::Stored {
                continue;
            }
            stored += 1;
            hosts[deleter].simple(Command::Delete, &key);
            hosts[deleter].rest();
            for (host, rig) in HOSTS.iter().zip(&mut hosts) {
                let found = rig.simple(Command::Get, &key);
                let [setter, deleter] = [HOSTS[setter], HOSTS[deleter]];
                assert_ne!(
                    found,
                    Outcome::Found,
                    "seed {seed}, {key}: set by {setter}, deleted by {deleter}, read by {host}\n{route}"
                );
            }
        }
    }
    assert!(2 * stored > tried, "{stored} of {tried} keys were stored");
}
