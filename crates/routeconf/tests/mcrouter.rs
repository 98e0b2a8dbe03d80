//! mcrouter's configurations become trees; invalid ones are refused with their place.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use routeconf::ast::{
    Command, Config, Entry, ExptimeAction, FailoverPolicy, Failure, Handle, HashFunction, KeyPart,
    Member, Protocol, Route, RouteId, Security, ShadowKeys,
};
use routeconf::{Loaded, MemorySources, Params, Rejected, load};

fn load_with(text: &str, files: &[(&str, &str)]) -> Result<Loaded, Rejected> {
    let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    load("m.json", text, &Params::default(), &mut MemorySources(files.collect()))
}

#[track_caller]
fn good(text: &str) -> Config {
    match load_with(text, &[]) {
        Ok(loaded) => {
            let warnings: Vec<_> =
                loaded.warnings.iter().map(|w| w.render(&loaded.config.files)).collect();
            assert_eq!(warnings, [""; 0], "{text}");
            loaded.config
        }
        Err(rejected) => panic!("{}", rejected.render()),
    }
}

#[track_caller]
fn bad(text: &str) -> String {
    load_with(text, &[]).unwrap_err().render()
}

fn root(config: &Config) -> &Handle {
    let Entry::Prefixes(prefixes) = &config.listeners[0].entry else { panic!("no prefixes") };
    config.handle(prefixes[0].route)
}

fn pool_name(config: &Config, route: RouteId) -> &str {
    match &config.handle(route).route {
        Route::Pool(route) => &config.pool(route.pool).name,
        Route::Destination { pool, .. } => &config.pool(*pool).name,
        other => panic!("{other:?}"),
    }
}

/// Wraps a route into a configuration with two pools.
fn with_pools(route: &str) -> String {
    format!(
        r#"{{"pools": {{"A": {{"servers": ["a1:11211", "a2:11211", "a3:11211"]}},
                        "B": {{"servers": ["b1:11211"]}}}}, "route": {route}}}"#
    )
}

#[test]
fn mcrouters_quick_start_configuration() {
    let config = good(
        r#"{
          "pools": {"A": {"servers": [
              // your destination memcached boxes here, e.g.:
              "127.0.0.1:12345", "[::1]:12346",
          ]}},
          "route": "PoolRoute|A"
        }"#,
    );
    let Route::Pool(route) = &root(&config).route else { panic!("no pool") };
    assert_eq!(route.hash.function, HashFunction::Ch3);
    assert_eq!(route.asynclog.as_deref(), Some("A"));
    let addresses = config.pool(route.pool).members.iter().map(|member| match member {
        Member::Server(server) => server.address.to_string(),
        Member::Route(_) => "a route".to_owned(),
    });
    assert_eq!(addresses.collect::<Vec<_>>(), ["127.0.0.1:12345", "[::1]:12346"]);
    assert_eq!(root(&config).at.line, 6);
}

#[test]
fn servers_in_all_their_forms() {
    let config = good(
        r#"{"pools": {"A": {"servers": ["h:1", "h:2:ascii", "h:3:ascii:ssl:notcompressed", "unix:/s", "[::2]:4::tls",
              {"hostname": "o:5", "use_ssl": true}, {"type": "NullRoute"}],
              "server_timeout": 50, "connect_timeout": 20,
              "tko_tracker": {"percent_tko_threshold_upper": 50, "num_tko_threshold_lower": 1},
              "failure_domains": [1, 1, "x", 2, 2, 3, 3]}},
            "route": "PoolRoute|A"}"#,
    );
    let pool = &config.pools[0];
    let servers = pool.members.iter().map(|member| match member {
        Member::Server(server) => {
            format!("{} {:?} {:?}", server.address, server.protocol, server.security)
        }
        Member::Route(id) => config.handle(*id).route.name().to_owned(),
    });
    assert_eq!(
        servers.collect::<Vec<_>>(),
        [
            "h:1 Ascii Plain",
            "h:2 Ascii Plain",
            "h:3 Ascii Tls",
            "unix:/s Ascii Plain",
            "[::2]:4 Ascii Tls",
            "o:5 Ascii Tls",
            "NullRoute"
        ]
    );
    assert_eq!((pool.server_timeout_ms, pool.connect_timeout_ms), (Some(50), Some(20)));
    assert_eq!(pool.tko_tracker.map(|tko| (tko.upper, tko.lower)), Some((3, 1)));
    assert_eq!(Protocol::default(), Protocol::Ascii);
    assert_eq!(Security::default(), Security::Plain);
}

#[test]
fn short_forms_and_lists() {
    let config = good(&with_pools(r#""AllSyncRoute|Pool|A""#));
    let Route::AllSync(children) = &root(&config).route else { panic!("no AllSync") };
    assert_eq!(children.len(), 3);
    assert!(children.iter().all(|child| pool_name(&config, *child) == "A"));

    let config = good(&with_pools(r#""HashRoute|PoolRoute|A""#));
    let Route::Hash { children, .. } = &root(&config).route else { panic!("no Hash") };
    assert_eq!(pool_name(&config, children[0]), "A");

    let config = good(&with_pools(
        r#"{"type": "RandomRoute", "children": ["PoolRoute|A", ["PoolRoute|B", "NullRoute"], ""]}"#,
    ));
    let Route::Random(children) = &root(&config).route else { panic!("no Random") };
    assert_eq!(children.len(), 3, "lists inside of lists are one list, and nothing is nothing");

    let config = good(&with_pools(r#""ErrorRoute|go away""#));
    let error = Route::Error { result: Failure::LocalError, message: "go away".into() };
    assert_eq!(root(&config).route, error);
}

#[test]
fn named_handles_are_shared_in_both_forms() {
    for handles in [
        r#"[{"type": "PoolRoute", "pool": "A", "name": "a"}, {"type": "HashRoute", "children": ["a", "a"], "name": "h"}]"#,
        r#"{"h": {"type": "HashRoute", "children": ["a", "$a"]}, "a": "PoolRoute|A"}"#,
    ] {
        let config = good(&format!(
            r#"{{"pools": {{"A": {{"servers": ["a:1"]}}}}, "named_handles": {handles}, "route": "h"}}"#
        ));
        let Route::Hash { children, .. } = &root(&config).route else { panic!("no Hash") };
        assert_eq!(children[0], children[1], "{handles}");
        assert_eq!(config.handles.len(), 2);
    }
}

#[test]
fn children_come_before_their_parents() {
    let config = good(&with_pools(
        r#"{"type": "FailoverRoute", "children": [{"type": "AllSyncRoute", "children": ["PoolRoute|A"]}, "PoolRoute|B"]}"#,
    ));
    let names: Vec<_> = config.handles.iter().map(|handle| handle.route.name()).collect();
    assert_eq!(names, ["PoolRoute", "AllSyncRoute", "PoolRoute", "FailoverRoute"]);
}

#[test]
fn prefixes() {
    let config = good(
        r#"{"pools": {"A": {"servers": ["a:1"]}}, "routes": [
            {"aliases": ["/././", "/us/east/"], "route": "PoolRoute|A"}, {"aliases": ["/us/west"], "route": "NullRoute"}]}"#,
    );
    let Entry::Prefixes(prefixes) = &config.listeners[0].entry else { panic!("no prefixes") };
    let names: Vec<_> = prefixes.iter().map(|entry| entry.prefix.as_str()).collect();
    assert_eq!(names, ["/././", "/us/east/", "/us/west/"]);
    assert_eq!(prefixes[0].route, prefixes[1].route);
    let object =
        good(r#"{"pools": {}, "routes": {"/././": "NullRoute", "/a/b/": "DevNullRoute"}}"#);
    assert_eq!(object.handles.len(), 2);
    assert!(
        bad(r#"{"routes": {"/a/b/": "NullRoute"}}"#)
            .contains("no route has the default prefix /././")
    );
    assert!(
        bad(r#"{"routes": {"/././": "NullRoute", "/a/": "NullRoute"}}"#)
            .contains("not of the form")
    );
    assert!(
        bad(r#"{"routes": {"/././": "NullRoute", "/././": "NullRoute", "/*/b/": "NullRoute"}}"#)
            .contains("star")
    );
}

#[test]
fn pools_can_inherit_and_be_read_from_files() {
    let files = [
        ("base.json", r#"/* base */ {"servers": ["f1:1", "f2:2"], "server_timeout": 7}"#),
        ("middle.json", r#"{"inherit": "base.json", "connect_timeout": 3}"#),
    ];
    let text = r#"{"pools": {"A": "file:base.json", "B": {"inherit": "middle.json", "server_timeout": 9},
                 "C": {"inherit": "B", "servers": ["c:1"]}}, "route": "HashRoute|PoolRoute|C"}"#;
    let loaded = load_with(text, &files).unwrap();
    let pools: Vec<_> = loaded
        .config
        .pools
        .iter()
        .map(|pool| {
            (
                pool.name.as_str(),
                pool.members.len(),
                pool.server_timeout_ms,
                pool.connect_timeout_ms,
            )
        })
        .collect();
    assert_eq!(
        pools,
        [("A", 2, Some(7), None), ("B", 2, Some(9), Some(3)), ("C", 1, Some(9), Some(3))]
    );
    let names: Vec<_> = loaded.config.files.names().collect();
    assert_eq!(names, ["m.json", "base.json", "middle.json"]);
    let cycle =
        r#"{"pools": {"A": {"inherit": "B"}, "B": {"inherit": "A"}}, "route": "NullRoute"}"#;
    assert!(load_with(cycle, &[]).unwrap_err().render().contains("inherits"));
    let missing =
        load_with(r#"{"pools": {"A": "file:no"}, "route": "NullRoute"}"#, &[]).unwrap_err();
    assert_eq!(
        missing.render(),
        "m.json:1:17: error: cannot read the pool 'file:no': there is no such file"
    );
}

#[test]
fn pool_weights_and_tags_set_the_hash() {
    let hash = |pool: &str, hash: &str| {
        let text = format!(
            r#"{{"pools": {{"A": {{"servers": ["a:1", "b:1"], {pool}}}}}, "route": {{"type": "PoolRoute", "pool": "A"{hash}}}}}"#
        );
        let config = good(&text);
        match &root(&config).route {
            Route::Pool(route) => route.hash.clone(),
            other => panic!("{other:?}"),
        }
    };
    let weighted = hash(r#""weights": [1, 0.25]"#, "");
    assert_eq!(weighted.function, HashFunction::WeightedCh3 { weights: vec![1.0, 0.25] });
    let salted = hash(r#""weights": [1, 1]"#, r#", "hash": {"hash_func": "Crc32", "salt": "x"}"#);
    assert_eq!((salted.function, salted.salt.as_str()), (HashFunction::Crc32, "x"));
    let rendezvous = hash(r#""tags": ["p", "q"]"#, r#", "hash": "Rendezvous""#);
    assert_eq!(
        rendezvous.function,
        HashFunction::Rendezvous { tags: vec!["p".into(), "q".into()] }
    );
    let by_tag = r#""tags": ["p", "q"], "weights": {"q": 0.5, "p": 1}"#;
    let by_tag = hash(by_tag, r#", "hash": "WeightedRendezvous""#).function;
    let servers = vec![("p".into(), 1.0), ("q".into(), 0.5)];
    assert_eq!(by_tag, HashFunction::WeightedRendezvous { servers });
    let ketama = hash(
        r#""error_on_empty": false"#,
        r#", "hash": {"hash_func": "Ketama", "key_hash": "md5"}"#,
    );
    assert_eq!(ketama.function.name(), "Ketama");
}

/// mcrouter hashes the part before its hash stop, libmemcached whole keys.
#[test]
fn keys_count_up_to_the_hash_stop_without_a_filter() {
    let part = |hash: &str| {
        let text = with_pools(&format!(r#"{{"type": "PoolRoute", "pool": "A", "hash": {hash}}}"#));
        match &root(&good(&text)).route {
            Route::Pool(route) => route.hash.key_part.clone(),
            other => panic!("{other:?}"),
        }
    };
    for name in ["Ketama", "KetamaWeighted", "Modula", "Jump"] {
        let whole = format!(r#"{{"hash_func": "{name}", "filter": "none"}}"#);
        assert_eq!(part(&whole), KeyPart::Whole, "{name}");
    }
    for name in ["Ketama", "KetamaWeighted", "Modula", "Jump", "Ch3", "Crc32"] {
        assert_eq!(part(&format!(r#""{name}""#)), KeyPart::BeforeHashStop, "{name}");
    }
}

/// libmemcached counts them relative to each other.
#[test]
fn weighted_ketama_has_the_weights_of_its_hash_or_pool() {
    let text = |pool: &str, hash: &str| {
        format!(
            r#"{{"pools": {{"A": {{"servers": ["10.0.0.1:11212", "10.0.0.2:11212"]{pool}}}}},
                "route": {{"type": "PoolRoute", "pool": "A", "hash": {hash}}}}}"#
        )
    };
    let own = |weights: &str| format!(r#"{{"hash_func": "KetamaWeighted", "weights": {weights}}}"#);
    let share = |pool: &str, hash: &str| {
        let config = good(&text(pool, hash));
        let Route::Pool(route) = &root(&config).route else { panic!("no pool route") };
        let hash = &route.hash;
        let placement = hash.placement(2, &config.pools[0].hosts()).unwrap();
        let keys = (0..1000).map(|number| format!("key:{number}"));
        keys.filter(|key| hash.pick(&placement, key.as_bytes()) == 1).count()
    };
    let equal = share("", r#""KetamaWeighted""#);
    assert_eq!(share("", &own("[7, 7]")), equal);
    let weighted = share("", &own("[1, 3]"));
    assert!(weighted > equal + 100, "{weighted} {equal}");
    assert_eq!(share("", &own("[100, 300]")), weighted);
    assert_eq!(share(r#", "weights": [1, 3]"#, r#""KetamaWeighted""#), weighted);
    assert_eq!(share(r#", "weights": [1, 3]"#, &own("[7, 7]")), equal);
    for wrong in ["[1]", "[1, 2, 3]"] {
        assert!(bad(&text("", &own(wrong))).contains("KetamaWeighted needs one for each"));
    }
    for wrong in ["[1, 0]", "[1, 0.5]", "[1, -1]", r#"[1, "2"]"#] {
        assert!(bad(&text("", &own(wrong))).contains("is a whole number from 1"), "{wrong}");
    }
}

/// The pool's weights and tags may be for other routes; those of a hash are only for itself.
#[test]
fn weights_that_a_hash_does_not_read_are_reported() {
    for (function, what) in
        [("Ketama", "'hash'"), ("Crc32", "'hash'"), ("Modula", "'hash'"), ("Ch3", "HashRoute")]
    {
        let weights = format!(r#""hash_func": "{function}", "weights": [1, 3, 2]"#);
        let route = if what == "HashRoute" {
            format!(r#"{{"type": "HashRoute", "children": ["NullRoute"], {weights}}}"#)
        } else {
            format!(r#"{{"type": "PoolRoute", "pool": "A", "hash": {{{weights}}}}}"#)
        };
        let loaded = load_with(&with_pools(&route), &[]).unwrap();
        let told = loaded.warnings.iter().map(|w| w.render(&loaded.config.files));
        let told: Vec<_> = told.collect();
        assert!(told.len() == 1 && told[0].contains("has no 'weights'"), "{told:?}");
    }
}

/// A client that knows the servers by their names uses the same one, whatever their addresses are.
#[test]
fn ketama_hashes_server_names_if_they_are_distinct() {
    let hosts = |pool: &str| {
        let config = good(&format!(
            r#"{{"pools": {{"A": {{{pool}}}}}, "route": {{"type": "PoolRoute", "pool": "A", "hash": "Ketama"}}}}"#
        ));
        let hosts = config.pools[0].hosts().into_iter();
        hosts.map(|(host, port)| format!("{host}:{port}")).collect::<Vec<_>>()
    };
    let servers = r#""servers": ["10.0.0.1:7", "10.0.0.2:7"]"#;
    assert_eq!(hosts(servers), ["10.0.0.1:7", "10.0.0.2:7"]);
    assert_eq!(hosts(&format!(r#"{servers}, "hostnames": ["a", "b"]"#)), ["a:7", "b:7"]);
    let shared = format!(r#"{servers}, "hostnames": ["all", "all"]"#);
    assert_eq!(hosts(&shared), ["10.0.0.1:7", "10.0.0.2:7"]);
    let fanned_out = format!(r#"{servers}, "hostnames": ["a", "b"], "additional_fanout": 1"#);
    assert_eq!(hosts(&fanned_out), ["a:7", "a:7", "b:7", "b:7"]);
}

#[test]
fn a_pool_route_with_every_setting() {
    let config = good(&with_pools(
        r#"{"type": "PoolRoute", "pool": "A", "asynclog": false, "max_outstanding": 50,
            "rates": {"gets_rate": 10.5, "gets_burst": 20}, "shard_splits": {"7": 3, "8": {"new_split_size": 4}},
            "shadows": [{"target": "PoolRoute|B", "index_range": [0, 1], "key_fraction_range": [0, 0.5]},
                        {"target": "NullRoute", "keys_to_shadow": ["k"]}],
            "slow_warmup": {"failoverTarget": "PoolRoute|B", "settings": {"start": 0.2}}}"#,
    ));
    let Route::Pool(route) = &root(&config).route else { panic!("no pool") };
    assert_eq!((route.asynclog.as_deref(), route.max_outstanding), (None, 50));
    assert_eq!(
        route.rates.unwrap().gets.map(|limit| (limit.rate, limit.burst)),
        Some((10.5, 20.0))
    );
    let splits = &route.shard_splits.as_ref().unwrap().splits;
    assert_eq!((splits[0].1.new_size, splits[1].1.old_size, splits[1].1.new_size), (3, 1, 4));
    assert_eq!(route.shadows[0].keys, ShadowKeys::Fraction(0.0, 0.5));
    assert_eq!(route.shadows[0].index_range, Some((0, 1)));
    assert_eq!(route.shadows[1].keys, ShadowKeys::Keys(vec!["k".into()]));
    assert_eq!(route.slow_warmup.map(|(_, settings)| settings.start), Some(0.2));
}

/// A result that never occurs here, or that is not a failure, causes a warning.
#[test]
fn results_without_effect_cause_a_warning() {
    let warnings = |route: &str| {
        let loaded = load_with(&with_pools(route), &[]).unwrap();
        loaded.warnings.iter().map(|one| one.render(&loaded.config.files)).collect::<String>()
    };
    for result in ["aborted", "mc_res_bad_key", "bad_value", "ooo", "unknown"] {
        let told = warnings(&format!(
            r#"{{"type": "FailoverRoute", "children": ["PoolRoute|A", "NullRoute"],
                "failover_errors": ["tko", "{result}"]}}"#
        ));
        assert!(told.contains(&format!("'{result}' has no effect")), "{told}");
    }
    let told = warnings(r#"{"type": "ErrorRoute", "result": "mc_res_found"}"#);
    assert!(told.contains("'mc_res_found' is no failure here: it is local_error"), "{told}");
}

#[test]
fn failovers() {
    let config = good(&with_pools(
        r#"{"type": "FailoverWithExptimeRoute", "normal": "PoolRoute|A", "failover": ["PoolRoute|B", "NullRoute"],
            "failover_exptime": 10, "failover_errors": {"gets": ["mc_res_tko", "timeout"]}, "failover_limit": {"rate": 0.1},
            "failover_policy": {"type": "LeastFailuresPolicy", "max_tries": 2}, "failover_tag": true}"#,
    ));
    let Route::Failover(failover) = &root(&config).route else { panic!("no failover") };
    assert_eq!((failover.children.len(), failover.exptime), (3, Some(10)));
    assert_eq!(failover.errors.gets, Some(vec![Failure::Tko, Failure::Timeout]));
    assert_eq!(failover.errors.deletes, None);
    assert_eq!(failover.policy, FailoverPolicy::LeastFailures { max_tries: 2 });
    assert_eq!(failover.limit.map(|limit| limit.burst), Some(1000.0));
    let salted = good(&with_pools(
        r#"{"type": "SaltedFailoverRoute", "pool": "A", "hash": "Crc32", "failover_policy":
            {"type": "DeterministicOrderPolicy", "max_tries": 3, "max_error_tries": 2, "hash": {"salt": "s"}}}"#,
    ));
    let Route::Failover(failover) = &root(&salted).route else { panic!("no failover") };
    let kinds: Vec<_> =
        failover.children.iter().map(|id| salted.handle(*id).route.name()).collect();
    assert_eq!(kinds, ["PoolRoute", "DestinationRoute", "DestinationRoute", "DestinationRoute"]);
}

/// One of each handle that the tests above omit.
#[test]
fn every_route_handle() {
    let handles = r#"[
        {"type": "AllAsyncRoute", "children": "x"}, {"type": "AllFastestRoute", "children": ["x"]},
        {"type": "AllInitialRoute", "children": ["x"]}, {"type": "AllMajorityRoute", "children": ["x"]},
        {"type": "BigValueRoute", "target": "x", "split_threshold": 100},
        {"type": "BlackholeRoute", "policies": {"key": [{"op": "equals", "value": "k"}]}, "default": "x"},
        {"type": "DevNullRoute"}, {"type": "ErrorRoute", "result": "mc_res_busy", "response": "no"},
        {"type": "HashRoute", "children": ["x", "x"], "hash_func": "WeightedCh3", "weights": [0.5, 1]},
        {"type": "HashStopAllowListRoute", "target": "x", "prefixes": ["a"]},
        {"type": "HostIdRoute", "children": ["x"], "salt": "s"},
        {"type": "KeyParseRoute", "target": "x", "num_routing_parts": 2, "delimiter": ":"},
        {"type": "KeySplitRoute", "destination": "x", "replicas": 3, "all_sync": true},
        {"type": "L1L2CacheRoute", "l1": "x", "l2": "x", "upgradingL1Exptime": 5},
        {"type": "L1L2SizeSplitRoute", "l1": "x", "l2": "x", "threshold": 1000},
        {"type": "LatencyInjectionRoute", "child": "x", "before_latency_ms": 1},
        {"type": "LatestRoute", "children": ["x", "x"], "failover_count": 1},
        {"type": "LoadBalancerRoute", "children": ["x"], "algorithm": "two-random-choices"},
        {"type": "LoggingRoute", "target": "x"},
        {"type": "MigrateRoute", "from": "x", "to": "x", "start_time": 1000},
        {"type": "MissFailoverRoute", "children": ["x", "x"], "return_best_on_error": true},
        {"type": "ModifyExptimeRoute", "target": "x", "exptime": 5, "action": "min"},
        {"type": "ModifyKeyRoute", "target": "x", "set_routing_prefix": "/a/b/", "ensure_key_prefix": "p:"},
        {"type": "OperationSelectorRoute", "default_policy": "x", "operation_policies": {"lease-get": "x"}},
        {"type": "OriginalClientHashRoute", "children": ["x"]},
        {"type": "OutstandingLimitRoute", "target": "x", "max_outstanding": 3},
        {"type": "PrefixPolicyRoute", "default_policy": "x"},
        {"type": "PrefixSelectorRoute", "policies": {"a:": "x", "b:": "x"}, "wildcard": "x"},
        {"type": "RandomRoute", "children": ["x"]},
        {"type": "RateLimitRoute", "target": "x", "rates": {"sets_rate": 1}, "fallback": "x"},
        {"type": "RoutingGroupRoute", "routing_group_policies": {"get_like": "x", "delete_like": "x"}},
        {"type": "ShadowRoute", "children": ["x", "x"], "shadows": [{"target": "x", "requests_fraction": 0.1}]},
        {"type": "ShardSplitRoute", "destination": "x", "shard_splits": {"1": 2}},
        {"type": "SlowWarmUpRoute", "target": "x", "failoverTarget": "x"},
        {"type": "StagingRoute", "warm": "x", "staging": "x"},
        {"type": "WarmUpRoute", "warm": "x", "cold": "x", "exptime": 3600, "enable_metaget": true}]"#;
    let config = good(&format!(
        r#"{{"named_handles": {{"x": "NullRoute"}}, "route": {{"type": "AllSyncRoute", "children": {handles}}}}}"#
    ));
    let Route::AllSync(children) = &root(&config).route else { panic!("no AllSync") };
    assert_eq!(children.len(), 37, "and a shadow for each of two");
    let of = |name: &str| {
        let found = config.handles.iter().find(|handle| handle.route.name() == name);
        found.map(|handle| handle.route.clone()).unwrap()
    };
    let Route::OperationSelector { policies, .. } = of("OperationSelectorRoute") else { panic!() };
    assert_eq!(policies[0].0, Command::LeaseGet);
    let Route::ModifyExptime { exptime, action, .. } = of("ModifyExptimeRoute") else { panic!() };
    assert_eq!((exptime, action), (5, ExptimeAction::Min));
}

#[test]
fn errors_contain_position_and_suggestion() {
    for (text, error) in [
        (with_pools("\"PolRoute|A\""), "m.json:2:67: error: there is no route handle 'PolRoute' (did you mean PoolRoute?)"),
        (with_pools("\"A\""), "m.json:2:67: error: there is no route handle 'A' (for the pool of that name write 'PoolRoute|A')"),
        (with_pools("\"PoolRoute|AA\""), "m.json:2:67: error: there is no pool 'AA' (did you mean A?)"),
        (with_pools("{\"type\": \"SRRoute\"}"), "m.json:2:76: error: SRRoute is not offered: it asks Meta's Service Router, which is not published; use a PoolRoute"),
        (with_pools("{\"type\": \"HashRoute\"}"), "m.json:2:67: error: HashRoute needs 'children'"),
        (with_pools("{\"type\": \"HashRoute\", \"children\": [\"NullRoute\", \"DevNullRoute\"], \"hash_func\": \"ketama\"}"), "m.json:2:145: error: there is no hash function 'ketama' (did you mean Ketama?)"),
        (with_pools("{\"type\": \"MigrateRoute\", \"from\": \"NullRoute\", \"to\": \"NullRoute\", \"start_time\": \"now\"}"), "m.json:2:146: error: 'start_time' of MigrateRoute is an integer of at least 0, not 'now'"),
        (with_pools("{\"type\": \"KeySplitRoute\", \"destination\": \"NullRoute\", \"replicas\": 1, \"all_sync\": true}"), "m.json:2:133: error: 'replicas' of KeySplitRoute is an integer from 2 to 1000, not 1"),
        (with_pools("{\"type\": \"FailoverRoute\", \"children\": [\"NullRoute\"], \"failover_errors\": [\"tkoo\"]}"), "m.json:2:140: error: there is no result 'tkoo' that is a failure (did you mean tko?)"),
        (with_pools("7"), "m.json:2:67: error: a route is an object, a list or a string, not an integer"),
        (r#"{"pools": {"A": {"servers": ["host"]}}, "route": "PoolRoute|A"}"#.into(), "m.json:1:30: error: the server 'host' has no port (write 'host:11211')\nm.json:1:30: error: there is no pool 'A'"),
        (r#"{"pools": {"A": {"servers": ["h:1:caret"]}}, "route": "NullRoute"}"#.into(), "m.json:1:30: error: the protocol 'caret' is Meta's own; no open server speaks it (write 'ascii')"),
        (r#"{"pools": {"A\nB": {"servers": ["h:1"]}}, "route": {"type": "PoolRoute", "pool": "A\nB"}}"#.into(), "m.json:1:20: error: the pool 'A\u{fffd}B' has a control character in its name"),
        (r#"{"pools": {}}"#.into(), "m.json:1:1: error: the configuration has no 'route' and no 'routes'"),
        (r#"{"named_handles": {"a": {"type": "AllSyncRoute", "children": ["b"]}, "b": "a"}, "route": "a"}"#.into(), "m.json:1:75: error: the route handle 'a' is made of itself"),
        (r#"[]"#.into(), "m.json:1:1: error: a configuration is an object, not a list"),
    ] {
        let found = bad(&text);
        let first = error.lines().next().unwrap();
        assert!(found.lines().any(|line| line == first), "{text}\n{found}\nwanted:\n{first}");
    }
}

#[test]
fn several_errors_are_found_at_once() {
    let text = r#"{"pools": {"A": {"servers": ["h"]}, "B": {"servers": "x"}}, "routes": {"/././": "NuLRoute", "/a/b/": "Quux"}}"#;
    let lines = bad(text);
    assert_eq!(lines.lines().count(), 4, "{lines}");
}

#[test]
fn unknown_settings_cause_a_warning() {
    let loaded = load_with(
        &with_pools(r#"{"type": "PoolRoute", "pool": "A", "asynclogg": false, "_note": 1}"#),
        &[],
    )
    .unwrap();
    assert_eq!(
        loaded.warnings[0].render(&loaded.config.files),
        "m.json:2:115: warning: PoolRoute has no 'asynclogg'; it is ignored (did you mean asynclog?)"
    );
}
