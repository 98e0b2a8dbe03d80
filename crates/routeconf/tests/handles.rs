//! Every setting of every handle of mcrouter's open build, and of its pools: it changes the tree,
//! causes a warning, or is refused with a reason. None is ignored silently.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use routeconf::{Loaded, MemorySources, Params, Rejected, load};

/// The effect of a setting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// It changes the tree.
    Effect,
    /// It changes nothing, and causes a warning.
    Warned,
    /// The configuration is refused, and the message names it.
    Refused,
}

use Fate::{Effect, Refused, Warned};

/// A handle without the setting, the setting, and its effect.
type Row = (&'static str, &'static str, Fate);

const POOL_ROUTE: &str = r#"{"type": "PoolRoute", "pool": "A"}"#;
const DIALED: &str = r#"{"type": "PoolRoute", "pool": "A", "weights_rv": "w"}"#;
const HASH: &str = r#"{"type": "HashRoute", "children": ["PoolRoute|A", "PoolRoute|B"]}"#;
const HASH_OF_NONE: &str = r#"{"type": "HashRoute", "children": []}"#;
const FAILOVER: &str =
    r#"{"type": "FailoverRoute", "name": "f", "children": ["PoolRoute|A", "PoolRoute|B"]}"#;
const GUTTER: &str = r#"{"type": "FailoverWithExptimeRoute", "name": "g", "normal": "PoolRoute|A", "failover": "PoolRoute|B"}"#;
const SALTED: &str = r#"{"type": "SaltedFailoverRoute", "name": "s", "pool": "A"}"#;
const LATEST: &str = r#"{"type": "LatestRoute", "children": ["PoolRoute|A", "PoolRoute|B"]}"#;
const BALANCER: &str =
    r#"{"type": "LoadBalancerRoute", "children": ["PoolRoute|A", "PoolRoute|B"]}"#;
const WARM_UP: &str = r#"{"type": "WarmUpRoute", "warm": "PoolRoute|A", "cold": "PoolRoute|B"}"#;
const MIGRATE: &str =
    r#"{"type": "MigrateRoute", "from": "PoolRoute|A", "to": "PoolRoute|B", "start_time": 5}"#;
const SLOW: &str =
    r#"{"type": "SlowWarmUpRoute", "target": "PoolRoute|A", "failoverTarget": "PoolRoute|B"}"#;
const L1L2: &str = r#"{"type": "L1L2CacheRoute", "l1": "PoolRoute|A", "l2": "PoolRoute|B", "upgradingL1Exptime": 5}"#;
const SIZES: &str =
    r#"{"type": "L1L2SizeSplitRoute", "l1": "PoolRoute|A", "l2": "PoolRoute|B", "threshold": 5}"#;
const BIG: &str = r#"{"type": "BigValueRoute", "target": "PoolRoute|A", "split_threshold": 1000}"#;
const KEY_SPLIT: &str =
    r#"{"type": "KeySplitRoute", "destination": "PoolRoute|A", "replicas": 2, "all_sync": true}"#;
const MODIFY_KEY: &str = r#"{"type": "ModifyKeyRoute", "target": "PoolRoute|A"}"#;
const MODIFY_EXPTIME: &str =
    r#"{"type": "ModifyExptimeRoute", "target": "PoolRoute|A", "exptime": 9}"#;
const BLACKHOLE: &str = r#"{"type": "BlackholeRoute", "default": "PoolRoute|A", "policies": {"key": [{"op": "equals", "value": "k"}]}}"#;
const LATENCY: &str =
    r#"{"type": "LatencyInjectionRoute", "child": "PoolRoute|A", "before_latency_ms": 1}"#;
const ERROR: &str = r#"{"type": "ErrorRoute"}"#;
const SHADOW: &str = r#"{"type": "ShadowRoute", "target": "PoolRoute|A"}"#;
const RATES: &str = r#"{"type": "RateLimitRoute", "target": "PoolRoute|A", "rates": {}}"#;

/// mcrouter's settings. The handle already has the required ones, which the tests of errors cover.
const ROWS: &[Row] = &[
    (HASH, r#""hash_func": "Crc32""#, Effect),
    (HASH, r#""salt": "x""#, Effect),
    (HASH, r#""hash_func": "WeightedCh3", "weights": [1, 0.5]"#, Effect),
    (HASH, r#""hash_func": "Rendezvous", "tags": ["a", "b"]"#, Effect),
    (HASH, r#""hash_func": "WeightedCh3Rv", "weights_rv": "w""#, Effect),
    (HASH, r#""bucketize": true"#, Warned),
    (HASH, r#""hash_func": "WeightedCh3", "weights": [1, 0.5], "bucketize": true"#, Refused),
    (HASH, r#""client_fanout": 2"#, Warned),
    (HASH_OF_NONE, r#""error_on_empty": true"#, Effect),
    (POOL_ROUTE, r#""hash": "Crc32""#, Effect),
    (POOL_ROUTE, r#""hash": {"salt": "x"}"#, Effect),
    (POOL_ROUTE, r#""hash": {"hash_func": "Jump", "seed": 7, "filter": "none"}"#, Effect),
    (POOL_ROUTE, r#""hash": {"hash_func": "Jump", "seed": "hello", "filter": "stop"}"#, Effect),
    (POOL_ROUTE, r#""hash": {"hash_func": "Jump", "filter": "tags", "filter_conf": "{}"}"#, Effect),
    (POOL_ROUTE, r#""hash": {"hash_func": "Jump", "filter": "tags", "filter_conf": "{"}"#, Refused),
    (POOL_ROUTE, r#""hash": {"hash_func": "Jump", "filter": "stop", "filter_conf": "x"}"#, Effect),
    (POOL_ROUTE, r#""hash": {"hash_func": "Jump", "filter": "stop", "filter_conf": ""}"#, Refused),
    (
        POOL_ROUTE,
        r#""hash": {"hash_func": "Jump", "filter": "tags", "filter_conf": "xx"}"#,
        Refused,
    ),
    (POOL_ROUTE, r#""hash": {"hash_func": "Crc32", "filter": "none"}"#, Warned),
    (POOL_ROUTE, r#""hash": {"hash_func": "Jump", "filter": "none", "filter_conf": "x"}"#, Refused),
    (POOL_ROUTE, r#""hash": {"hash_func": "Jump", "filter_conf": "{}"}"#, Refused),
    (POOL_ROUTE, r#""hash": {"hash_func": "Jump", "filter": "other"}"#, Refused),
    (POOL_ROUTE, r#""hash": {"hash_func": "WeightedCh3", "weights": [1, 0.5]}"#, Effect),
    (POOL_ROUTE, r#""hash": {"hash_func": "WeightedCh3Rv", "weights_rv": "w"}"#, Effect),
    (POOL_ROUTE, r#""weights_rv": "w""#, Effect),
    (POOL_ROUTE, r#""weights_rv": 0.5"#, Refused),
    (POOL_ROUTE, r#""weights_rv_salt": "x""#, Warned),
    (DIALED, r#""weights_rv_salt": "x""#, Effect),
    (DIALED, r#""bucketize": true, "total_buckets": 5, "bucketization_keyspace": "x""#, Effect),
    (POOL_ROUTE, r#""rates": {"gets_rate": 5}"#, Effect),
    (POOL_ROUTE, r#""rates": {"gets_rate": 5, "gets_burst": 9}"#, Effect),
    (POOL_ROUTE, r#""rates": {"sets_rate": 5, "sets_burst": 9}"#, Effect),
    (POOL_ROUTE, r#""rates": {"deletes_rate": 5, "deletes_burst": 9}"#, Effect),
    (POOL_ROUTE, r#""shard_splits": {"7": 3}"#, Effect),
    (POOL_ROUTE, r#""shard_splits": {"7": {"old_split_size": 2, "new_split_size": 3}}"#, Effect),
    (POOL_ROUTE, r#""shard_splits": {"7": {"split_start": 2, "migration_period": 3}}"#, Effect),
    (POOL_ROUTE, r#""shard_splits": {"7": {"fanout_deletes": false}}"#, Effect),
    (POOL_ROUTE, r#""shard_splits": {"eu1": 2}"#, Effect),
    (POOL_ROUTE, r#""shard_splits": {"eu": 2}"#, Warned),
    (POOL_ROUTE, r#""split_shard_fanout": 3"#, Warned),
    (POOL_ROUTE, r#""asynclog": false"#, Effect),
    (POOL_ROUTE, r#""asynclog_name": "x""#, Effect),
    (POOL_ROUTE, r#""axonlog": true"#, Refused),
    (POOL_ROUTE, r#""distribution_enabled": true"#, Refused),
    (POOL_ROUTE, r#""bucketize": true"#, Refused),
    (POOL_ROUTE, r#""bucketize": true, "total_buckets": 5, "bucketization_keyspace": "x""#, Effect),
    (POOL_ROUTE, r#""useBucketHashSelector": true"#, Refused),
    (POOL_ROUTE, r#""total_buckets": 5"#, Warned),
    (POOL_ROUTE, r#""total_buckets_by_prefix": {}"#, Warned),
    (POOL_ROUTE, r#""bucketization_keyspace": "x""#, Warned),
    (POOL_ROUTE, r#""pool_id": 5"#, Warned),
    (POOL_ROUTE, r#""shadow_policy": "x""#, Warned),
    (POOL_ROUTE, r#""shadows": [{"target": "PoolRoute|B"}]"#, Effect),
    (POOL_ROUTE, r#""shadows": [{"target": "PoolRoute|B", "index_range": [0, 0]}]"#, Effect),
    (POOL_ROUTE, r#""shadows": [{"target": "NullRoute", "index_range_rv": "x"}]"#, Effect),
    (POOL_ROUTE, r#""shadows": [{"target": "NullRoute", "key_fraction_range": [0, 0.5]}]"#, Effect),
    (POOL_ROUTE, r#""shadows": [{"target": "NullRoute", "key_fraction_range_rv": "x"}]"#, Effect),
    (POOL_ROUTE, r#""shadows": [{"target": "NullRoute", "keys_to_shadow": ["k"]}]"#, Effect),
    (POOL_ROUTE, r#""shadows": [{"target": "NullRoute", "requests_fraction": 0.5}]"#, Effect),
    (POOL_ROUTE, r#""slow_warmup": {"failoverTarget": "PoolRoute|B"}"#, Effect),
    (POOL_ROUTE, r#""max_outstanding": 5"#, Effect),
    (FAILOVER, r#""failover_errors": ["tko"]"#, Effect),
    (
        FAILOVER,
        r#""failover_errors": {"gets": ["tko"], "updates": [], "deletes": ["busy"]}"#,
        Effect,
    ),
    (FAILOVER, r#""failover_errors": ["no_error"]"#, Refused),
    (FAILOVER, r#""failover_policy": {"type": "LeastFailuresPolicy", "max_tries": 2}"#, Effect),
    (
        FAILOVER,
        r#""failover_policy": {"type": "DeterministicOrderPolicy", "max_tries": 2, "max_error_tries": 1}"#,
        Effect,
    ),
    (
        FAILOVER,
        r#""failover_policy": {"type": "DeterministicOrderPolicy", "max_tries": 2, "exclude_errors": ["tko"]}"#,
        Effect,
    ),
    (
        FAILOVER,
        r#""failover_policy": {"type": "DeterministicOrderPolicy", "max_tries": 2, "enable_failure_domains": true}"#,
        Effect,
    ),
    (
        FAILOVER,
        r#""failover_policy": {"type": "DeterministicOrderPolicy", "max_tries": 2, "ignore_normal_reply_index": true}"#,
        Effect,
    ),
    (FAILOVER, r#""failover_policy": {"type": "RendezvousPolicy", "tags": ["b"]}"#, Effect),
    (
        FAILOVER,
        r#""failover_policy": {"type": "RendezvousPolicy", "tags": ["b"], "hash": {}}"#,
        Warned,
    ),
    (FAILOVER, r#""failover_policy": {"type": "InOrderPolicy", "max_tries": 2}"#, Warned),
    (
        FAILOVER,
        r#""failover_policy": {"type": "InOrderPolicy", "exclude_errors": ["tko"]}"#,
        Warned,
    ),
    (FAILOVER, r#""failover_limit": {"rate": 0.5, "burst": 5}"#, Effect),
    (FAILOVER, r#""failover_tag": true"#, Effect),
    (FAILOVER, r#""failover_tag": "x""#, Effect),
    (FAILOVER, r#""enable_lease_pairing": true"#, Effect),
    (GUTTER, r#""failover_exptime": 5"#, Effect),
    (GUTTER, r#""failover_errors": ["tko"]"#, Effect),
    (GUTTER, r#""failover_tag": true"#, Effect),
    (SALTED, r#""hash": {"salt": "x"}"#, Effect),
    (SALTED, r#""weights_rv": "w""#, Warned),
    (SALTED, r#""failover_policy": {"type": "LeastFailuresPolicy", "max_tries": 2}"#, Effect),
    (SALTED, r#""shadows": [{"target": "PoolRoute|B"}]"#, Effect),
    (LATEST, r#""failover_count": 2"#, Effect),
    (LATEST, r#""weights": [1, 0.5]"#, Effect),
    (LATEST, r#""salt": "x""#, Effect),
    (LATEST, r#""thread_local_failover": true"#, Effect),
    (LATEST, r#""failover_errors": ["tko"]"#, Effect),
    (BALANCER, r#""algorithm": "two-random-choices""#, Effect),
    (BALANCER, r#""load_ttl_ms": 5"#, Effect),
    (BALANCER, r#""failover_count": 2"#, Effect),
    (BALANCER, r#""salt": "x""#, Effect),
    (BALANCER, r#""enable_thrift_server_load": true"#, Warned),
    (r#"{"type": "HostIdRoute", "children": ["PoolRoute|A"]}"#, r#""salt": "x""#, Effect),
    (
        r#"{"type": "OriginalClientHashRoute", "children": ["PoolRoute|A"]}"#,
        r#""offset": 2"#,
        Effect,
    ),
    (
        r#"{"type": "MissFailoverRoute", "children": ["PoolRoute|A"]}"#,
        r#""return_best_on_error": true"#,
        Effect,
    ),
    (WARM_UP, r#""exptime": 5"#, Effect),
    (WARM_UP, r#""enable_metaget": true"#, Effect),
    (MIGRATE, r#""interval": 5"#, Effect),
    (SLOW, r#""settings": {"enable_threshold": 0.5, "disable_threshold": 0.8}"#, Effect),
    (SLOW, r#""settings": {"start": 0.2, "step": 2}"#, Effect),
    (SLOW, r#""settings": {"min_requests": 5}"#, Effect),
    (L1L2, r#""ncacheExptime": 5"#, Effect),
    (L1L2, r#""ncacheUpdatePeriod": 5"#, Effect),
    (SIZES, r#""ttl_threshold": 5"#, Effect),
    (SIZES, r#""failure_ttl": 5"#, Effect),
    (SIZES, r#""both_full_set": true"#, Effect),
    (SIZES, r#""retries": 5"#, Effect),
    (BIG, r#""batch_size": 5"#, Effect),
    (BIG, r#""hide_reply_flag": true"#, Effect),
    (KEY_SPLIT, r#""first_hit": true"#, Effect),
    (MODIFY_KEY, r#""set_routing_prefix": "/a/b/""#, Effect),
    (MODIFY_KEY, r#""ensure_key_prefix": "x""#, Effect),
    (MODIFY_KEY, r#""ensure_key_prefix": "x", "replace_key_prefix": "y""#, Effect),
    (MODIFY_KEY, r#""set_key_suffix": "x""#, Effect),
    (MODIFY_KEY, r#""ensure_key_prefix": "x", "modify_inplace": true"#, Effect),
    (MODIFY_KEY, r#""replace_key_prefix": "y", "modify_inplace": true"#, Refused),
    (MODIFY_EXPTIME, r#""action": "min""#, Effect),
    (BLACKHOLE, r#""blackhole_child": "PoolRoute|B""#, Effect),
    (LATENCY, r#""after_latency_ms": 5"#, Effect),
    (LATENCY, r#""total_latency_ms": 5"#, Effect),
    (LATENCY, r#""total_latency_percentile_ms": 5"#, Warned),
    (LATENCY, r#""request_payload_latency": true"#, Warned),
    (LATENCY, r#""max_request_latency_us": 5"#, Warned),
    (ERROR, r#""response": "x""#, Effect),
    (ERROR, r#""result": "tko""#, Effect),
    (ERROR, r#""enable_logging": true"#, Warned),
    (SHADOW, r#""shadows": [{"target": "PoolRoute|B"}]"#, Effect),
    (RATES, r#""fallback": "PoolRoute|B""#, Effect),
];

/// Settings of a pool.
const POOL_ROWS: &[(&str, Fate)] = &[
    (r#""weights": [1, 0.5]"#, Effect),
    (r#""weights": {"a": 1}"#, Refused),
    (r#""tags": ["a", "b"]"#, Effect),
    (r#""hostnames": ["a", "b"]"#, Effect),
    (r#""failure_domains": ["a", "b"]"#, Effect),
    (r#""protocol": "binary""#, Effect),
    (r#""protocol": "caret""#, Refused),
    (r#""server_timeout": 5"#, Effect),
    (r#""connect_timeout": 5"#, Effect),
    (r#""keep_routing_prefix": true"#, Effect),
    (r#""security_mech": "tls""#, Effect),
    (r#""security_mech_within_dc": "tls""#, Effect),
    (r#""security_mech_cross_dc": "tls""#, Effect),
    (r#""use_ssl": true"#, Effect),
    (r#""port_override": 5"#, Effect),
    (r#""port_override_within_dc": 5"#, Effect),
    (r#""port_override_cross_dc": 5"#, Effect),
    (r#""tko_tracker": {"num_tko_threshold_upper": 2, "num_tko_threshold_lower": 1}"#, Effect),
    (
        r#""tko_tracker": {"percent_tko_threshold_upper": 100, "percent_tko_threshold_lower": 50}"#,
        Effect,
    ),
    (r#""error_on_empty": true"#, Effect),
    (r#""region": "r""#, Effect),
    (r#""cluster": "c""#, Effect),
    (r#""qos": {"class": 1}"#, Warned),
    (r#""additional_fanout": 2"#, Effect),
    (r#""enable_compression": true"#, Warned),
    (r#""disable_request_deadline_check": true"#, Warned),
    (r#""services": []"#, Warned),
    (r#""service_id_override": 1"#, Warned),
    (r#""pool_locality": "x""#, Warned),
    (r#""unheard_of": 1"#, Warned),
];

fn read(pool: &str, route: &str) -> Result<Loaded, Rejected> {
    let text = format!(
        r#"{{"pools": {{"A": {{"servers": ["a:1", "b:2"]{pool}}}, "B": {{"servers": ["c:1"]}}}}, "route": {route}}}"#
    );
    load("m.json", &text, &Params::default(), &mut MemorySources::default())
}

/// The name of the setting at the end of a row: for an inner one, its own.
fn name_in(setting: &str, told: &str) -> bool {
    let names = setting.split('"').skip(1).step_by(2);
    names.into_iter().any(|name| told.contains(&format!("'{name}'")))
}

#[track_caller]
fn check(what: &str, setting: &str, fate: Fate, without: &Loaded, with: Result<Loaded, Rejected>) {
    let found = match &with {
        Err(rejected) => {
            let told = rejected.render();
            assert!(name_in(setting, &told), "{what} with {setting}: {told}");
            Refused
        }
        Ok(loaded) => {
            let told = |loaded: &Loaded| -> Vec<String> {
                let files = &loaded.config.files;
                loaded.warnings.iter().map(|one| one.render(files)).collect()
            };
            let (before, after) = (told(without), told(loaded));
            let fresh = after.iter().find(|one| !before.contains(one));
            match fresh {
                Some(warning) => {
                    assert!(name_in(setting, warning), "{what} with {setting}: {warning}");
                    Warned
                }
                None => {
                    let is_same = format!("{:?}", (&loaded.config.handles, &loaded.config.pools))
                        == format!("{:?}", (&without.config.handles, &without.config.pools));
                    assert!(!is_same, "{what}: {setting} is passed over in silence");
                    Effect
                }
            }
        }
    };
    assert_eq!(found, fate, "{what} with {setting}");
}

#[track_caller]
fn good(pool: &str, route: &str) -> Loaded {
    match read(pool, route) {
        Ok(loaded) => loaded,
        Err(rejected) => panic!("{route}: {}", rejected.render()),
    }
}

#[test]
fn every_handle_setting_has_an_effect_or_is_reported() {
    for (handle, setting, fate) in ROWS.iter().copied() {
        let with = format!("{}, {setting}}}", handle.strip_suffix('}').unwrap());
        check(handle, setting, fate, &good("", handle), read("", &with));
    }
}

#[test]
fn every_pool_setting_has_an_effect_or_is_reported() {
    let route = r#""PoolRoute|A""#;
    for (setting, fate) in POOL_ROWS.iter().copied() {
        check("the pool", setting, fate, &good("", route), read(&format!(", {setting}"), route));
    }
}

#[test]
fn an_unknown_request_field_is_refused() {
    let told = read("", &BLACKHOLE.replace("\"key\"", "\"colour\"")).unwrap_err().render();
    assert!(told.contains("no request has a field 'colour'"), "{told}");
}
