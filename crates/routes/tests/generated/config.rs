//! Random configurations: every route handle, over none, one or several children, duplicates among
//! them, up to a depth of six.

use testkit::Rng;

/// Maximum depth of nested routes.
const DEPTH_MAX: usize = 6;

/// Maximum number of routes and pools in a configuration.
const NODES_MAX: usize = 60;

/// The leaves of the tree.
const LEAVES: [&str; 14] = [
    r#""PoolRoute|alive""#,
    r#""PoolRoute|one""#,
    r#""PoolRoute|dead""#,
    r#""PoolRoute|empty""#,
    r#""PoolRoute|strict""#,
    r#""PoolRoute|mixed""#,
    r#""PoolRoute|twice""#,
    r#""PoolRoute|refusing""#,
    r#""PoolRoute|silent""#,
    r#""NullRoute""#,
    r#""DevNullRoute""#,
    r#""ErrorRoute|no""#,
    r#"{"type": "ErrorRoute", "result": "timeout"}"#,
    r#"{"type": "LoggingRoute"}"#,
];

/// Routes over a list of children, for which `@` stands.
const LISTS: [&str; 24] = [
    r#"{"type": "AllSyncRoute", "children": @}"#,
    r#"{"type": "AllAsyncRoute", "children": @}"#,
    r#"{"type": "AllInitialRoute", "children": @}"#,
    r#"{"type": "AllFastestRoute", "children": @}"#,
    r#"{"type": "AllMajorityRoute", "children": @}"#,
    r#"{"type": "HashRoute", "children": @}"#,
    r#"{"type": "HashRoute", "children": @, "hash_func": "Crc32", "salt": "s"}"#,
    r#"{"type": "HashRoute", "children": @, "hash_func": "ConstShard"}"#,
    r#"{"type": "HashRoute", "children": @, "hash_func": "Modula"}"#,
    r#"{"type": "HashRoute", "children": @, "hash_func": "Jump"}"#,
    r#"{"type": "HashRoute", "children": @, "hash_func": "WeightedCh3", "weights": [0, 0.5]}"#,
    r#"{"type": "HashRoute", "children": @, "hash_func": "Latest"}"#,
    r#"{"type": "HostIdRoute", "children": @, "salt": "s"}"#,
    r#"{"type": "OriginalClientHashRoute", "children": @, "offset": 3}"#,
    r#"{"type": "RandomRoute", "children": @}"#,
    r#"{"type": "LatestRoute", "children": @, "failover_count": 2, "weights": [0]}"#,
    r#"{"type": "LoadBalancerRoute", "children": @, "algorithm": "two-random-choices"}"#,
    r#"{"type": "LoadBalancerRoute", "children": @, "failover_count": 2}"#,
    r#"{"type": "MissFailoverRoute", "children": @, "return_best_on_error": true}"#,
    r#"{"type": "FailoverRoute", "children": @, "failover_tag": true, "failover_limit": {"rate": 0.1, "burst": 2}}"#,
    r#"{"type": "FailoverRoute", "children": @, "name": "n", "enable_lease_pairing": true, "failover_errors": ["tko"]}"#,
    r#"{"type": "FailoverRoute", "children": @, "failover_policy": {"type": "LeastFailuresPolicy", "max_tries": 1}}"#,
    r#"{"type": "FailoverRoute", "children": @, "failover_policy": {"type": "DeterministicOrderPolicy", "max_tries": 3, "enable_failure_domains": true}}"#,
    r#"{"type": "ShadowRoute", "children": @, "shadows": [{"target": #, "key_fraction_range": [0, 0.5]}]}"#,
];

/// Routes over single children, for each of which a `#` stands.
const WRAPPERS: [&str; 35] = [
    r#"{"type": "BigValueRoute", "target": #, "split_threshold": 10, "batch_size": 2}"#,
    r#"{"type": "BlackholeRoute", "default": #, "blackhole_child": #, "policies": {"key": [{"op": "equals", "value": "k"}]}}"#,
    r#"{"type": "FailoverWithExptimeRoute", "normal": #, "failover": @}"#,
    r#"{"type": "FailoverWithExptimeRoute", "normal": #, "failover": #, "failover_exptime": 0}"#,
    r#"{"type": "FailoverRoute", "children": [#, #, #], "failover_policy": {"type": "RendezvousPolicy", "tags": ["a", "a"]}}"#,
    r#"{"type": "HashStopAllowListRoute", "target": #, "prefixes": ["k", ""]}"#,
    r#"{"type": "KeyParseRoute", "target": #, "num_routing_parts": 2, "delimiter": ":"}"#,
    r#"{"type": "KeySplitRoute", "destination": #, "replicas": 3, "all_sync": true, "first_hit": true}"#,
    r#"{"type": "KeySplitRoute", "destination": #, "replicas": 2, "all_sync": false}"#,
    r#"{"type": "L1L2CacheRoute", "l1": #, "l2": #, "upgradingL1Exptime": 9, "ncacheExptime": 9, "ncacheUpdatePeriod": 1}"#,
    r#"{"type": "L1L2SizeSplitRoute", "l1": #, "l2": #, "threshold": 10, "ttl_threshold": 0}"#,
    r#"{"type": "L1L2SizeSplitRoute", "l1": #, "l2": #, "threshold": 0, "both_full_set": true, "retries": 0}"#,
    r#"{"type": "LatencyInjectionRoute", "child": #, "before_latency_ms": 1, "after_latency_ms": 1}"#,
    r#"{"type": "LoggingRoute", "target": #}"#,
    r#"{"type": "MigrateRoute", "from": #, "to": #, "start_time": 0, "interval": 0}"#,
    r#"{"type": "MigrateRoute", "from": #, "to": #, "start_time": 1, "interval": 9000000000}"#,
    r#"{"type": "ModifyExptimeRoute", "target": #, "exptime": -1}"#,
    r#"{"type": "ModifyExptimeRoute", "target": #, "exptime": 5, "action": "min"}"#,
    r#"{"type": "ModifyKeyRoute", "target": #, "ensure_key_prefix": "a", "set_key_suffix": "z", "set_routing_prefix": "/a/b/"}"#,
    r#"{"type": "ModifyKeyRoute", "target": #, "ensure_key_prefix": "k", "replace_key_prefix": "", "set_routing_prefix": ""}"#,
    r#"{"type": "OperationSelectorRoute", "default_policy": #, "operation_policies": {"get": #, "delete": #}}"#,
    r#"{"type": "OperationSelectorRoute", "operation_policies": {"set": #}}"#,
    r#"{"type": "OutstandingLimitRoute", "target": #, "max_outstanding": 1}"#,
    r#"{"type": "PrefixSelectorRoute", "policies": {"": #, "k": #}, "wildcard": #}"#,
    r#"{"type": "PrefixSelectorRoute", "policies": {"k1": #}}"#,
    r#"{"type": "RateLimitRoute", "target": #, "rates": {"gets_rate": 1, "sets_rate": 1, "deletes_rate": 1}, "fallback": #}"#,
    r#"{"type": "RateLimitRoute", "target": #, "rates": {"sets_rate": 1, "sets_burst": 1}}"#,
    r#"{"type": "RoutingGroupRoute", "routing_group_policies": {"get_like": #}, "default_policy": #}"#,
    r#"{"type": "RoutingGroupRoute", "routing_group_policies": {"update_like": #}}"#,
    r#"{"type": "ShardSplitRoute", "destination": #, "shard_splits": {"1": 3, "2": {"old_split_size": 2, "new_split_size": 5, "split_start": 1, "migration_period": 0, "fanout_deletes": true}}}"#,
    r#"{"type": "SlowWarmUpRoute", "target": #, "failoverTarget": #}"#,
    r#"{"type": "StagingRoute", "warm": #, "staging": #}"#,
    r#"{"type": "WarmUpRoute", "warm": #, "cold": #, "enable_metaget": true}"#,
    r#"{"type": "WarmUpRoute", "warm": #, "cold": #, "exptime": 9}"#,
    r#"{"type": "ShadowRoute", "target": #, "shadows": [{"target": #, "keys_to_shadow": ["k1"], "index_range": [0, 0]}]}"#,
];

/// Routes over a pool, for whose name a `%` stands.
const POOLS: [&str; 10] = [
    r#"{"type": "PoolRoute", "pool": "%", "hash": "Crc32"}"#,
    r#"{"type": "PoolRoute", "pool": "%", "hash": {"hash_func": "Jump", "seed": 7}}"#,
    r#"{"type": "PoolRoute", "pool": "%", "hash": {"hash_func": "Ketama"}}"#,
    r#"{"type": "PoolRoute", "pool": "%", "hash": {"hash_func": "WeightedCh3", "weights": [0]}}"#,
    r#"{"type": "PoolRoute", "pool": "%", "hash": "Latest"}"#,
    r#"{"type": "PoolRoute", "pool": "%", "max_outstanding": 1, "rates": {"gets_rate": 1}}"#,
    r#"{"type": "PoolRoute", "pool": "%", "shadows": [{"target": #, "index_range": [0, 9]}]}"#,
    r#"{"type": "PoolRoute", "pool": "%", "slow_warmup": {"failoverTarget": #}}"#,
    r#"{"type": "PoolRoute", "pool": "%", "bucketize": true, "total_buckets": 3, "bucketization_keyspace": "k"}"#,
    r#"{"type": "SaltedFailoverRoute", "pool": "%", "failover_policy": {"type": "DeterministicOrderPolicy", "max_tries": 3}}"#,
];

const POOL_NAMES: [&str; 9] =
    ["alive", "one", "dead", "empty", "strict", "mixed", "twice", "refusing", "silent"];

/// The servers' addresses.
pub(crate) struct Addresses {
    pub(crate) alive: [String; 2],
    pub(crate) refusing: String,
    pub(crate) silent: String,
}

/// A random configuration.
pub(crate) fn config(rng: &mut Rng, addresses: &Addresses) -> String {
    let mut nodes = NODES_MAX;
    let route = route(rng, 0, &mut nodes);
    let Addresses { alive: [a, b], refusing, silent } = addresses;
    // No system gives port 1 to a program that takes any free port.
    let dead = "127.0.0.1:1";
    let pools = format!(
        r#""alive": {{"servers": ["{a}", "{b}"]}}, "one": {{"servers": ["{a}"]}},
"dead": {{"servers": ["{dead}"]}}, "empty": {{"servers": []}},
"strict": {{"servers": [], "error_on_empty": true}},
"mixed": {{"servers": ["{dead}", "{a}", "{refusing}"], "failure_domains": [1, 2, 1], "server_timeout": 20}},
"twice": {{"servers": ["{b}", "{b}"], "additional_fanout": 1}},
"refusing": {{"servers": ["{refusing}"], "server_timeout": 20}},
"silent": {{"servers": ["{silent}"], "server_timeout": 20}}"#
    );
    if rng.one_in(4) {
        let other = self::route(rng, 1, &mut nodes);
        let routes = format!(
            r#"[{{"aliases": ["/././"], "route": {route}}}, {{"aliases": ["/a/b/"], "route": {other}}}]"#
        );
        return format!(r#"{{"pools": {{{pools}}}, "routes": {routes}}}"#);
    }
    format!(r#"{{"pools": {{{pools}}}, "route": {route}}}"#)
}

fn route(rng: &mut Rng, depth: usize, nodes: &mut usize) -> String {
    *nodes = nodes.saturating_sub(1);
    if depth >= DEPTH_MAX || *nodes == 0 || rng.one_in(8) {
        return (*rng.pick(&LEAVES)).to_owned();
    }
    let template = match rng.below(5) {
        0 | 1 => *rng.pick(&LISTS),
        2 | 3 => *rng.pick(&WRAPPERS),
        _ => *rng.pick(&POOLS),
    };
    let mut text = String::new();
    for part in template.chars() {
        match part {
            '#' => text.push_str(&route(rng, depth + 1, nodes)),
            '@' => text.push_str(&children(rng, depth + 1, nodes)),
            '%' => text.push_str(rng.pick::<&str>(&POOL_NAMES)),
            other => text.push(other),
        }
    }
    text
}

/// A list of routes, or the servers of a pool.
fn children(rng: &mut Rng, depth: usize, nodes: &mut usize) -> String {
    if rng.one_in(3) {
        return format!(r#""Pool|{}""#, rng.pick(&POOL_NAMES));
    }
    let count = *rng.pick(&[0, 1, 1, 2, 2, 3, 4]);
    let mut list: Vec<_> = (0..count).map(|_| route(rng, depth, nodes)).collect();
    if rng.one_in(4) {
        list.extend(list.first().cloned());
    }
    format!("[{}]", list.join(", "))
}
