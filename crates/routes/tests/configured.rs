//! Routes built from a configuration, over real servers: the server of each request, and its reply.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::Rig;
use common::cluster::{Cluster, config, plan, plan_with};
use proto::answer::MetaCode;
use routeconf::Variables;
use routes::{Core, Tree, TreeFlags};
use testkit::Server;
use upstream::{Command, Failure, Outcome, Request};

#[test]
fn workers_share_the_rates_of_a_route() {
    let route = r#"{"type": "RateLimitRoute", "target": "PoolRoute|A", "rates": {"gets_rate": 0.001, "gets_burst": 3}}"#;
    let servers = [Server::memcached(&[])];
    let flags = TreeFlags { workers: 2, ..TreeFlags::default() };
    let plan = plan_with(&config(&servers, route), flags).unwrap();
    let mut workers = [(); 2].map(|()| Rig::over(|upstream| -> Tree { plan.tree(upstream) }));
    assert_eq!(workers[0].store(Command::Set, "k", "v"), Outcome::Stored);
    let mut hits = |worker: usize, asked| {
        (0..asked).filter(|_| workers[worker].get("k").unwrap().is_some()).count()
    };
    assert_eq!((hits(0, 4), hits(1, 4), hits(0, 4)), (4, 2, 0));
}

/// Additional requests of a route go to the same place as the request.
#[test]
fn copies_are_routed_like_their_request() {
    let near = r#"{"type": "OriginalClientHashRoute", "children": ["PoolRoute|A", "PoolRoute|B"]}"#;
    let far = r#""PoolRoute|C""#;
    let l1l2 = format!(
        r#"{{"type": "L1L2CacheRoute", "l1": {near}, "l2": {far}, "upgradingL1Exptime": 100}}"#
    );
    let warm =
        format!(r#"{{"type": "WarmUpRoute", "cold": {near}, "warm": {far}, "exptime": 100}}"#);
    let staging = format!(r#"{{"type": "StagingRoute", "warm": {far}, "staging": {near}}}"#);
    for route in [l1l2, warm, staging] {
        let mut cluster = Cluster::new(3, &route);
        assert_eq!(cluster.direct[2].store(Command::Set, "k", "value"), Outcome::Stored);
        let got = cluster.rig.ask(&Request { client: 1, ..Request::new(Command::Get, b"k") });
        assert_eq!(got.value, b"value", "{route}");
        cluster.comes_to(1, "k", "value");
        assert_eq!(cluster.on(0, "k"), None, "{route}");
    }
}

#[test]
fn staging_replies_come_from_the_warm_cluster() {
    let route = r#"{"type": "StagingRoute", "warm": "PoolRoute|A", "staging": "PoolRoute|B"}"#;
    let mut cluster = Cluster::new(2, route);
    cluster.set("k", "v");
    cluster.comes_to(1, "k", "v");
    assert_eq!(cluster.direct[0].store(Command::Set, "old", "v"), Outcome::Stored);
    let lasting = Request { exptime: 500, value: b"v", ..Request::new(Command::Set, b"short") };
    assert_eq!(cluster.direct[0].ask(&lasting).outcome, Outcome::Stored);
    cluster.has("old", Some("v"));
    cluster.has("short", Some("v"));
    cluster.comes_to(1, "old", "v");
    cluster.comes_to(1, "short", "v");
    let ttl = |rig: &mut Rig, key: &[u8]| {
        let reply = rig.ask(&Request { words: b"t", ..Request::new(Command::MetaGet, key) });
        String::from_utf8(reply.words).unwrap()
    };
    assert_eq!(ttl(&mut cluster.direct[1], b"old"), " t-1");
    let left: i64 = ttl(&mut cluster.direct[1], b"short")[2..].parse().unwrap();
    assert!((480..=500).contains(&left), "{left} s");
    // The new cluster's own items are not overwritten.
    assert_eq!(cluster.direct[1].store(Command::Set, "k", "own"), Outcome::Stored);
    cluster.has("k", Some("v"));
    assert_eq!(cluster.on(1, "k").as_deref(), Some("own"));
    assert_eq!(cluster.rig.simple(Command::Delete, "k"), Outcome::Deleted);
    assert_eq!((cluster.on(0, "k"), cluster.on(1, "k")), (None, None));
}

#[test]
fn warm_up_copies_keep_the_remaining_ttl() {
    let route = r#"{"type": "WarmUpRoute", "cold": "PoolRoute|A", "warm": "PoolRoute|B", "enable_metaget": true}"#;
    let mut cluster = Cluster::new(2, route);
    let lasting = Request { exptime: 500, value: b"v", ..Request::new(Command::Set, b"k") };
    assert_eq!(cluster.direct[1].ask(&lasting).outcome, Outcome::Stored);
    cluster.has("k", Some("v"));
    let reply =
        cluster.direct[0].ask(&Request { words: b"t", ..Request::new(Command::MetaGet, b"k") });
    let left: i64 = String::from_utf8(reply.words).unwrap()[2..].parse().unwrap();
    assert!((480..=500).contains(&left), "{left} s");
}

/// The routes of clients that request leases by meta commands, over two servers with leases.
fn leasing(route: &str) -> Cluster {
    let servers = vec![Server::holdall(&[]), Server::holdall(&[])];
    let text = config(&servers, route);
    Cluster::with(servers, &text, "{}")
}

fn meta_get(rig: &mut Rig, key: &str, words: &str) -> (String, String) {
    let request = Request::new(Command::MetaGet, key.as_bytes());
    let reply = rig.ask(&Request { words: words.as_bytes(), ..request });
    (String::from_utf8(reply.value).unwrap(), String::from_utf8(reply.words).unwrap())
}

#[test]
fn warm_up_copies_for_leases_by_meta_commands() {
    for setting in ["", r#", "leases": true"#, r#", "hold_off": 2"#] {
        let route = format!(
            r#"{{"type": "WarmUpRoute", "cold": "PoolRoute|A", "warm": "PoolRoute|B"{setting}}}"#
        );
        let mut cluster = leasing(&route);
        assert_eq!(cluster.direct[1].store(Command::Set, "k", "v"), Outcome::Stored);
        let (value, words) = meta_get(&mut cluster.rig, "k", "v c G");
        assert_eq!(value, "v", "{setting}");
        assert!(!words.contains('W') && !words.contains("c0"), "{setting}: {words}");
        assert_eq!(cluster.on(0, "k").as_deref(), Some("v"), "{setting}");
        // An item of neither: the client receives the token, which it can use.
        let (_, words) = meta_get(&mut cluster.rig, "absent", "v c G");
        let token = words.split(' ').find_map(|word| word.strip_prefix('G')).unwrap();
        let words = format!("G{token}");
        let fill = Request { words: words.as_bytes(), ..Request::new(Command::MetaSet, b"absent") };
        assert_eq!(cluster.rig.ask(&fill).outcome, Outcome::Meta(MetaCode::Hd), "{setting}");
    }
}

#[test]
fn warm_up_copies_for_keys_in_base64() {
    let route = r#"{"type": "WarmUpRoute", "cold": "PoolRoute|A", "warm": "PoolRoute|B"}"#;
    let mut cluster = Cluster::new(2, route);
    assert_eq!(cluster.direct[1].store(Command::Set, "k", "v"), Outcome::Stored);
    let get = |key| Request { words: b"b v", base64: true, ..Request::new(Command::MetaGet, key) };
    assert_eq!(cluster.rig.ask(&get(b"k")).value, b"v");
    assert_eq!(cluster.on(0, "k").as_deref(), Some("v"));
    // No other command can name it.
    assert_eq!(cluster.rig.ask(&get(b"k k")).outcome, Outcome::Meta(MetaCode::En));
}

#[test]
fn a_lease_of_a_miss_failover_belongs_to_the_first_child() {
    let route = r#"{"type": "MissFailoverRoute", "children": ["PoolRoute|A", "PoolRoute|B"]}"#;
    let mut cluster = leasing(route);
    for key in ["k", "l"] {
        assert_eq!(cluster.direct[1].store(Command::Set, key, "v"), Outcome::Stored);
    }
    assert_eq!(meta_get(&mut cluster.rig, "k", "v c G").0, "v");
    // Now the first child asks to wait.
    assert_eq!(meta_get(&mut cluster.rig, "k", "v c G").0, "v");
    let lease = cluster.rig.ask(&Request::new(Command::LeaseGet, b"l"));
    assert_eq!((lease.outcome, &lease.value[..]), (Outcome::Found, &b"v"[..]));
    let (_, words) = meta_get(&mut cluster.rig, "absent", "v G");
    let words = words.split(' ').find(|word| word.starts_with('G')).unwrap();
    let fill = Request { words: words.as_bytes(), ..Request::new(Command::MetaSet, b"absent") };
    assert_eq!(cluster.rig.ask(&fill).outcome, Outcome::Meta(MetaCode::Hd));
    let lease = cluster.rig.ask(&Request::new(Command::LeaseGet, b"absent2"));
    assert_eq!(lease.outcome, Outcome::Lease);
    let fill = Request { number: lease.number, ..Request::new(Command::LeaseSet, b"absent2") };
    assert_eq!(cluster.rig.ask(&fill).outcome, Outcome::Stored);
}

#[test]
fn a_store_with_a_token_by_a_meta_command_reaches_the_shadow() {
    let route = r#"{"type": "ShadowRoute", "target": "PoolRoute|A", "shadows":
        [{"target": "PoolRoute|B", "index_range": [0, 0], "key_fraction_range": [0, 1]}]}"#;
    let mut cluster = leasing(route);
    let lease = cluster.rig.ask(&Request::new(Command::LeaseGet, b"k"));
    assert_eq!(lease.outcome, Outcome::Lease);
    let fill = |words| Request { words, value: b"v", ..Request::new(Command::MetaSet, b"k") };
    assert_eq!(cluster.rig.ask(&fill(b"G7")).outcome, Outcome::Meta(MetaCode::Ns));
    let words = format!("F5 G{}", lease.number);
    assert_eq!(cluster.rig.ask(&fill(words.as_bytes())).outcome, Outcome::Meta(MetaCode::Hd));
    cluster.comes_to(1, "k", "v");
    assert_eq!(cluster.direct[1].ask(&Request::new(Command::Get, b"k")).flags, 5);
}

#[test]
fn the_configured_exptime_of_warm_up_copies_wins() {
    let route = r#"{"type": "WarmUpRoute", "cold": "PoolRoute|A", "warm": "PoolRoute|B", "exptime": 60, "enable_metaget": true}"#;
    let mut cluster = Cluster::new(2, route);
    let lasting = Request { exptime: 5000, value: b"v", ..Request::new(Command::Set, b"k") };
    assert_eq!(cluster.direct[1].ask(&lasting).outcome, Outcome::Stored);
    cluster.has("k", Some("v"));
    let get = Request { words: b"t", ..Request::new(Command::MetaGet, b"k") };
    let words = cluster.direct[0].ask(&get).words;
    let left: i64 = String::from_utf8(words).unwrap()[2..].parse().unwrap();
    assert!((1..=60).contains(&left), "{left} s");
}

/// A number of seconds above thirty days is a Unix time.
#[test]
fn copies_of_items_that_live_for_months_keep_the_remaining_ttl() {
    const DAYS_60: i64 = 60 * 24 * 60 * 60;
    let warm_up = r#"{"type": "WarmUpRoute", "warm": "PoolRoute|A", "cold": "PoolRoute|B", "enable_metaget": true}"#;
    let staging = r#"{"type": "StagingRoute", "warm": "PoolRoute|A", "staging": "PoolRoute|B"}"#;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let exptime = i64::try_from(now).unwrap() + DAYS_60;
    for route in [warm_up, staging] {
        let mut cluster = Cluster::new(2, route);
        let lasting = Request { exptime, value: b"v", ..Request::new(Command::Set, b"k") };
        assert_eq!(cluster.direct[0].ask(&lasting).outcome, Outcome::Stored);
        cluster.has("k", Some("v"));
        cluster.comes_to(1, "k", "v");
        let get = Request { words: b"t", ..Request::new(Command::MetaGet, b"k") };
        let reply = cluster.direct[1].ask(&get);
        let left: i64 = String::from_utf8(reply.words).unwrap()[2..].parse().unwrap();
        assert!((DAYS_60 - 3600..=DAYS_60 + 3600).contains(&left), "{left} s");
    }
}

#[test]
fn a_cold_server_regains_its_share_with_its_hit_rate() {
    let route = r#"{"type": "PoolRoute", "pool": "A", "slow_warmup": {"failoverTarget": "PoolRoute|B",
        "settings": {"min_requests": 10, "start": 0.0, "step": 1.0}}}"#;
    let mut cluster = Cluster::new(2, route);
    assert_eq!(cluster.direct[1].store(Command::Set, "k", "spare"), Outcome::Stored);
    for _ in 0..10 {
        cluster.has("k", None);
    }
    // Fewer than one in ten was a hit, so all go to the failover; a set does not.
    cluster.has("k", Some("spare"));
    cluster.set("k", "own");
    assert_eq!(cluster.on(0, "k").as_deref(), Some("own"));
    cluster.has("k", Some("spare"));
}

#[test]
fn a_hot_shard_has_several_names() {
    // The rig's host has number 7, so it uses the second of three names.
    let route = r#"{"type": "PoolRoute", "pool": "A", "shard_splits": {"17": 3}}"#;
    let mut cluster = Cluster::new(1, route);
    assert_eq!(cluster.direct[0].store(Command::Set, "a:17aa:k", "own"), Outcome::Stored);
    cluster.has("a:17:k", Some("own"));
    cluster.set("a:17:k", "mine");
    assert_eq!(cluster.on(0, "a:17aa:k").as_deref(), Some("mine"));
    assert_eq!(cluster.direct[0].store(Command::Set, "a:17:k", "plain"), Outcome::Stored);
    cluster.set("a:18:k", "other");
    cluster.has("a:18:k", Some("other"));
    assert_eq!(cluster.direct[0].store(Command::Set, "a:17ba:k", "third"), Outcome::Stored);
    assert_eq!(cluster.rig.simple(Command::Delete, "a:17:k"), Outcome::Deleted);
    let Cluster { rig, direct, .. } = &mut cluster;
    rig.eventually("all names are deleted", |rig| {
        rig.turn();
        ["a:17:k", "a:17aa:k", "a:17ba:k"].iter().all(|key| direct[0].get(key) == Ok(None))
    });
}

/// mcrouter takes any text that ends with a digit for a shard.
#[test]
fn a_shard_need_not_be_a_small_number() {
    for shard in ["eu1", "12345678901"] {
        let route =
            format!(r#"{{"type": "PoolRoute", "pool": "A", "shard_splits": {{"{shard}": 3}}}}"#);
        let mut cluster = Cluster::new(1, &route);
        cluster.set(&format!("a:{shard}:k"), "mine");
        assert_eq!(cluster.on(0, &format!("a:{shard}aa:k")).as_deref(), Some("mine"));
    }
}

/// A cas unique is valid only for the host's own name, whose reply the client gets.
#[test]
fn a_delete_with_a_cas_unique_reaches_all_names_of_a_shard() {
    let route = r#"{"type": "PoolRoute", "pool": "A", "shard_splits": {"17": 3}}"#;
    let mut cluster = Cluster::new(1, route);
    let names = ["a:17:k", "a:17aa:k", "a:17ba:k"];
    for key in names {
        assert_eq!(cluster.direct[0].store(Command::Set, key, "x"), Outcome::Stored);
    }
    let unique = cluster.rig.ask(&Request::new(Command::Gets, b"a:17:k")).number;
    let Cluster { rig, direct, .. } = &mut cluster;
    let delete = |rig: &mut Rig, unique: u64| {
        let words = format!("C{unique}").into_bytes();
        let request = Request { words: &words, ..Request::new(Command::MetaDelete, b"a:17:k") };
        rig.ask(&request).outcome
    };
    assert_eq!(delete(rig, unique + 100), Outcome::Meta(MetaCode::Ex));
    // A delete of the other names would have been sent before this get, on the same connection.
    assert_eq!(rig.get("a:17:k"), Ok(Some("x".to_owned())));
    for key in names {
        assert_eq!(direct[0].get(key), Ok(Some("x".to_owned())), "{key}");
    }
    assert_eq!(delete(rig, unique), Outcome::Meta(MetaCode::Hd));
    rig.eventually("all names are deleted", |rig| {
        rig.turn();
        names.iter().all(|key| direct[0].get(key) == Ok(None))
    });
}

#[test]
fn fanout_deletes_can_be_disabled_for_a_split_shard() {
    let split = r#"{"old_split_size": 3, "new_split_size": 3, "fanout_deletes": false}"#;
    let route =
        format!(r#"{{"type": "PoolRoute", "pool": "A", "shard_splits": {{"17": {split}}}}}"#);
    let mut cluster = Cluster::new(1, &route);
    for key in ["a:17:k", "a:17aa:k", "a:17ba:k"] {
        assert_eq!(cluster.direct[0].store(Command::Set, key, "x"), Outcome::Stored);
    }
    assert_eq!(cluster.rig.simple(Command::Delete, "a:17:k"), Outcome::Deleted);
    assert_eq!(cluster.rig.simple(Command::Delete, "a:17:k"), Outcome::NotFound);
    assert_eq!(cluster.on(0, "a:17:k").as_deref(), Some("x"));
    assert_eq!(cluster.on(0, "a:17ba:k").as_deref(), Some("x"));
}

#[test]
fn max_outstanding_limits_requests_in_flight() {
    let route = r#"{"type": "PoolRoute", "pool": "A", "max_outstanding": 2}"#;
    let mut cluster = Cluster::new(1, route);
    cluster.set("k", "v");
    let tickets: Vec<_> =
        (0..20).map(|_| cluster.rig.submit(&Request::new(Command::Get, b"k"))).collect();
    let mut most = 0;
    let mut pending = tickets.clone();
    while let Some(ticket) = pending.pop() {
        let report = cluster.rig.registry.report();
        most = most.max(report.iter().map(|one| one.totals.pending).max().unwrap_or(0));
        assert_eq!(cluster.rig.reply(ticket).value, b"v");
    }
    assert!(most <= 2, "{most} were outstanding");
    let asked = cluster.rig.registry.report().iter().map(|one| one.totals.asked).sum::<u64>();
    assert_eq!(asked, 21);
}

#[test]
fn routing_parts_of_a_key_select_the_server() {
    let route = r#"{"type": "KeyParseRoute", "target": "PoolRoute|all", "num_routing_parts": 2, "delimiter": ":"}"#;
    let mut cluster = Cluster::new(3, route);
    cluster.set("a:b:0", "v");
    let place = cluster.place("a:b:0");
    for number in 1..10 {
        let key = format!("a:b:{number}");
        cluster.set(&key, "v");
        assert_eq!(cluster.place(&key), place);
    }
    let places: Vec<_> = (0..10)
        .map(|number| {
            let key = format!("a:{number}:x");
            cluster.set(&key, "v");
            cluster.place(&key)
        })
        .collect();
    assert!(places.iter().any(|other| *other != places[0]), "{places:?}");
}

#[test]
fn the_hash_stop_applies_only_to_allowed_prefixes() {
    for hash in [r#""Ch3""#, r#"{"hash_func": "Ketama", "filter": "none"}"#] {
        let route = format!(
            r#"{{"type": "HashStopAllowListRoute", "prefixes": ["ok"],
                "target": {{"type": "PoolRoute", "pool": "all", "hash": {hash}}}}}"#
        );
        let mut cluster = Cluster::new(3, &route);
        let mut places = |prefix: &str| -> Vec<usize> {
            (0..20)
                .map(|number| {
                    let key = format!("{prefix}|#|{number}");
                    cluster.set(&key, "v");
                    cluster.place(&key)
                })
                .collect()
        };
        let allowed = places("ok");
        assert!(allowed.iter().all(|place| *place == allowed[0]), "{hash}: {allowed:?}");
        let reply = cluster.rig.ask(&Request::new(Command::Delete, b"no|#|1"));
        assert_eq!(reply.outcome, Outcome::NotFound, "an invalidator would repeat it for ever");
        for operation in [Command::Set, Command::Get] {
            let reply = cluster.rig.ask(&Request::new(operation, b"no|#|1"));
            assert_eq!(reply.outcome, Outcome::Failed(Failure::LocalError), "{operation:?}");
            assert_eq!(reply.value, b"Hash stop not permited");
        }
        cluster.set("no", "v");
    }
}

#[test]
fn clients_are_hashed_by_their_address() {
    let route = r#"{"type": "OriginalClientHashRoute", "children": ["PoolRoute|A", "PoolRoute|B"], "offset": 1}"#;
    let mut cluster = Cluster::new(2, route);
    for (client, place) in [(0, 1), (1, 0), (u32::MAX, 0)] {
        let key = format!("k{client}");
        let request = Request { client, value: b"v", ..Request::new(Command::Set, key.as_bytes()) };
        assert_eq!(cluster.rig.ask(&request).outcome, Outcome::Stored);
        assert_eq!(cluster.place(&key), place, "client {client}");
    }
}

#[test]
fn injected_latency_has_the_configured_length() {
    let route = r#"{"type": "LatencyInjectionRoute", "child": "PoolRoute|A", "before_latency_ms": 20,
        "after_latency_ms": 20, "total_latency_ms": 60}"#;
    let mut cluster = Cluster::new(1, route);
    let began = Instant::now();
    let tickets: Vec<_> =
        (0..10).map(|_| cluster.rig.submit(&Request::new(Command::Get, b"k"))).collect();
    for ticket in tickets {
        assert_eq!(cluster.rig.reply(ticket).outcome, Outcome::NotFound);
    }
    assert!(began.elapsed() >= Duration::from_millis(60), "{:?}", began.elapsed());
}

#[test]
fn a_delay_beyond_the_clocks_range_is_accepted() {
    let route = r#"{"type": "LatencyInjectionRoute", "child": "PoolRoute|A",
        "total_latency_ms": 18446744073709551}"#;
    let mut cluster = Cluster::new(1, route);
    cluster.rig.pass(Duration::from_secs(1));
    let ticket = cluster.rig.submit(&Request::new(Command::Get, b"k"));
    cluster.rig.eventually("the server has answered", |rig| {
        rig.registry.report().iter().any(|at| at.totals.asked > 0 && at.totals.pending == 0)
    });
    cluster.rig.turn();
    assert!(!cluster.rig.has_reply(ticket));
}

/// Whatever a route makes of a key, clients match replies by their own.
#[test]
fn a_meta_reply_has_the_requested_key() {
    let split = r#"{"type": "KeySplitRoute", "destination": "PoolRoute|A", "replicas": 3,
        "all_sync": true}"#;
    let shard =
        r#"{"type": "ShardSplitRoute", "destination": "PoolRoute|A", "shard_splits": {"17": 3}}"#;
    let tagged = r#"{"type": "FailoverRoute", "children": ["PoolRoute|dead", "PoolRoute|A"],
        "failover_tag": true}"#;
    let modified =
        r#"{"type": "ModifyKeyRoute", "target": "PoolRoute|A", "ensure_key_prefix": "P."}"#;
    for route in [split, shard, tagged, modified] {
        let mut cluster = Cluster::new(1, route);
        let mut ask = |op, words: &str, base64| {
            let words = if base64 { format!("{words} b") } else { words.to_owned() };
            let asked = Request {
                base64,
                words: words.trim_start().as_bytes(),
                value: b"hi",
                ..Request::new(op, b"a:17:k")
            };
            let reply = cluster.rig.ask(&asked);
            (reply.outcome, String::from_utf8(reply.words).unwrap())
        };
        for (base64, key, told) in
            [(false, "a:17:k", " ka:17:k"), (true, "YToxNzpr", " kYToxNzpr b")]
        {
            let told = |code, more: &str| (Outcome::Meta(code), format!("{told}{more}"));
            assert_eq!(ask(Command::MetaSet, "k", base64), told(MetaCode::Hd, ""), "{route}");
            assert_eq!(
                ask(Command::MetaGet, "k O1 v", base64),
                told(MetaCode::Va, " O1"),
                "{route}"
            );
            let facts = ask(Command::MetaDebug, "", base64).1;
            assert!(facts.starts_with(&format!(" {key} exp=")), "{route}: {facts}");
            // Another name may have no item.
            assert_eq!(
                ask(Command::MetaDelete, "k", base64).1,
                told(MetaCode::Nf, "").1,
                "{route}"
            );
        }
    }
}

#[test]
fn requests_are_logged() {
    let mut cluster = Cluster::new(1, r#"{"type": "LoggingRoute", "target": "PoolRoute|A"}"#);
    let lines = std::sync::Arc::new(upstream::SendRefCell::new(Vec::new()));
    let log = std::sync::Arc::clone(&lines);
    cluster.rig.core.set_log(move |line| log.borrow_mut().push(line.to_owned()));
    cluster.set("k\u{80}", "v");
    cluster.has("k\u{80}", Some("v"));
    let stored = r"request set k\xc2\x80 value 1 reply Stored value 0";
    let found = r"request get k\xc2\x80 value 0 reply Found value 1";
    assert_eq!(*lines.borrow(), [stored, found]);
}

#[test]
fn deterministic_failover_order_depends_only_on_the_key() {
    let route = r#"{"type": "FailoverRoute", "children": ["PoolRoute|dead", "PoolRoute|A", "PoolRoute|B", "PoolRoute|C"],
        "failover_policy": {"type": "DeterministicOrderPolicy", "max_tries": 4, "max_error_tries": 4}}"#;
    let mut cluster = Cluster::new(3, route);
    let placement = hashing::Placement::ch3(4).unwrap();
    let mut seen = [false; 3];
    for number in 0..30 {
        let key = format!("k{number}");
        cluster.set(&key, "v");
        // mcrouter's rule, computed here: salts 2, 3, ... until an untried child. 0 was tried, and
        // so was 1, the first place of the dead pool.
        let child = (2..100)
            .map(|salt: u32| placement.pick_salted(key.as_bytes(), salt.to_string().as_bytes()))
            .find(|child| *child > 1)
            .unwrap();
        let place = cluster.place(&key);
        assert_eq!(place + 1, child as usize, "{key}");
        seen[place] = true;
    }
    assert_eq!(seen, [false, true, true]);
}

#[test]
fn failed_tries_are_counted() {
    let policy = |first: &str, max_error_tries: u32, exclude: &str| {
        format!(
            r#"{{"type": "FailoverRoute",
            "children": [{{"type": "ErrorRoute", "result": "{first}"}}, "ErrorRoute|no", "PoolRoute|A"],
            "failover_policy": {{"type": "DeterministicOrderPolicy", "max_tries": 3, "max_error_tries": {max_error_tries},
            "ignore_normal_reply_index": true, "exclude_errors": [{exclude}]}}}}"#
        )
    };
    let stored = |route: String| {
        let mut cluster = Cluster::new(1, &route);
        (0..20)
            .filter(|n| cluster.rig.store(Command::Set, &format!("k{n}"), "v") == Outcome::Stored)
            .count()
    };
    assert_eq!(stored(policy("timeout", 1, "")), 0);
    assert_eq!(stored(policy("timeout", 3, "")), 20);
    // Some keys come to the child that fails first, and get no third try.
    let some = stored(policy("timeout", 2, ""));
    assert!((1..20).contains(&some), "{some}");
    assert_eq!(stored(policy("timeout", 1, r#""timeout", "local_error""#)), 20);
    // A knocked-out server received no request, so it does not count as a try.
    assert_eq!(stored(policy("tko", 1, "")), some);
}

/// The first child is always tried first. The second try is the child with the fewest consecutive
/// failures, and among equals the first in order.
#[test]
fn the_child_with_the_fewest_recent_failures_is_next() {
    let route = r#"{"type": "FailoverRoute",
        "children": [{"type": "ErrorRoute", "result": "tko"}, "PoolRoute|dead", "PoolRoute|dead", "PoolRoute|A"],
        "failover_policy": {"type": "LeastFailuresPolicy", "max_tries": 2}}"#;
    let mut cluster = Cluster::new(1, route);
    let tries: Vec<_> =
        (0..5).map(|n| cluster.rig.store(Command::Set, &format!("k{n}"), "v")).collect();
    let is_stored: Vec<_> = tries.iter().map(|outcome| *outcome == Outcome::Stored).collect();
    assert_eq!(is_stored, [false, false, true, true, true], "{tries:?}");
}

#[test]
fn rendezvous_tries_by_score() {
    let route = r#"{"type": "FailoverRoute", "children": ["PoolRoute|dead", "PoolRoute|A", "PoolRoute|B", "PoolRoute|C"],
        "failover_policy": {"type": "RendezvousPolicy", "tags": ["x", "y", "z"]}}"#;
    let mut cluster = Cluster::new(3, route);
    for number in 0..30 {
        let key = format!("k{number}");
        cluster.set(&key, "v");
        // The dead pool has chosen its place 0, which counts as tried.
        let order = hashing::rendezvous_order(key.as_bytes(), &["x", "y", "z"]);
        let want = order.into_iter().find(|place| *place != 0).unwrap();
        assert_eq!(cluster.place(&key), want as usize, "{key}");
    }
}

#[test]
fn the_latest_route_uses_few_of_its_children() {
    let route = r#"{"type": "LatestRoute", "children": ["PoolRoute|A", "PoolRoute|B", "PoolRoute|C"], "failover_count": 1, "salt": "s"}"#;
    let mut cluster = Cluster::new(3, route);
    cluster.set("a", "v");
    cluster.set("b", "v");
    assert_eq!(cluster.place("a"), cluster.place("b"));
    let route = r#"{"type": "LatestRoute", "children": ["PoolRoute|dead", "PoolRoute|A"], "weights": [1, 0.01]}"#;
    let mut cluster = Cluster::new(1, route);
    cluster.set("k", "v");
}

#[test]
fn load_is_balanced_and_failures_fail_over() {
    for algorithm in ["weighted-hashing", "two-random-choices"] {
        let route = format!(
            r#"{{"type": "LoadBalancerRoute", "children": ["PoolRoute|A", "PoolRoute|B", "PoolRoute|dead"],
            "algorithm": "{algorithm}", "failover_count": 2}}"#
        );
        let mut cluster = Cluster::new(2, &route);
        for number in 0..50 {
            cluster.set(&format!("k{number}"), "v");
        }
        for index in 0..2 {
            let has = (0..50).filter(|n| cluster.on(index, &format!("k{n}")).is_some()).count();
            assert!((5..45).contains(&has), "{algorithm}: server {index} has {has} of 50");
        }
    }
}

/// The tree is rebuilt, and requests in the old one end there.
#[test]
fn delayed_requests_complete_after_their_tree_is_replaced() {
    let route =
        r#"{"type": "LatencyInjectionRoute", "child": "PoolRoute|A", "after_latency_ms": 30}"#;
    let mut cluster = Cluster::new(1, route);
    let ticket = cluster.rig.submit(&Request::new(Command::Get, b"k"));
    cluster.rig.turn();
    let core: &mut Core = &mut cluster.rig.core;
    let none = std::sync::Arc::new(routes::route::NullRoute);
    core.replace(|_| Tree { root: none, destinations: Vec::new(), keeps_prefixes: false });
    assert_eq!(cluster.rig.reply(ticket).outcome, Outcome::NotFound);
}

/// Variables of the file replace weights and shadowed fractions.
#[test]
fn variables_set_weights_and_shadow_fractions() {
    let weighted = r#"{"type": "PoolRoute", "pool": "all", "hash": {"hash_func": "WeightedCh3Rv", "weights_rv": "w"}}"#;
    for (variables, places) in [
        (r#"{"w": [0, 1]}"#, 1..2),
        (r#"{"w": [1, 0]}"#, 0..1),
        (r#"{"w": [0, 1], "hash_route_weights": {"w": [1, 0]}}"#, 0..1),
        ("{}", 0..2),
    ] {
        let servers: Vec<_> = (0..2).map(|_| Server::memcached(&[])).collect();
        let text = config(&servers, weighted);
        let mut cluster = Cluster::with(servers, &text, variables);
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..30 {
            let key = format!("k{number}");
            cluster.set(&key, "v");
            seen.insert(cluster.place(&key));
        }
        assert_eq!(seen, places.collect(), "{variables}");
    }
    let shadowed = r#"{"type": "PoolRoute", "pool": "A", "shadows": [{"target": "PoolRoute|B",
        "key_fraction_range": [0, 0], "key_fraction_range_rv": "f"}]}"#;
    let servers: Vec<_> = (0..2).map(|_| Server::memcached(&[])).collect();
    let text = config(&servers, shadowed);
    let mut cluster = Cluster::with(servers, &text, r#"{"f": [0, 1]}"#);
    cluster.set("k", "v");
    cluster.comes_to(1, "k", "v");
    let placed = r#"{"type": "PoolRoute", "pool": "A", "shadows": [{"target": "PoolRoute|B",
        "index_range": [1, 1], "index_range_rv": "i"}]}"#;
    let servers: Vec<_> = (0..2).map(|_| Server::memcached(&[])).collect();
    let text = config(&servers, placed);
    let mut cluster = Cluster::with(servers, &text, r#"{"i": [0, 9]}"#);
    cluster.set("k", "v");
    cluster.comes_to(1, "k", "v");
    let mut refused = plan(&config(&[], r#""NullRoute""#)).unwrap();
    for wrong in [r#"{"w": [2]}"#, r#"{"hash_route_weights": {"w": [2]}}"#] {
        let variables = Variables::parse("vars", wrong).unwrap();
        assert!(refused.set_variables(variables).unwrap_err().to_string().starts_with("w: "));
    }
}

/// `weights_rv` of a PoolRoute is the share of its requests, not of its servers.
#[test]
fn a_variable_sets_the_share_of_requests_for_a_pool() {
    let dialed = r#"{"type": "PoolRoute", "pool": "all", "weights_rv": "w"}"#;
    let servers: Vec<_> = (0..2).map(|_| Server::memcached(&[])).collect();
    let text = config(&servers, dialed);
    let mut cluster = Cluster::with(servers, &text, r#"{"hash_route_weights": {"w": [1, 0]}}"#);
    let keys = (0..30).map(|number| format!("k{number}")).collect::<Vec<_>>();
    let mut seen = std::collections::BTreeSet::new();
    for key in &keys {
        cluster.set(key, "v");
        seen.insert(cluster.place(key));
    }
    assert_eq!(seen, (0..2).collect(), "the pool's own hash chooses the server");
    let hits = |variables: &str, route: &str| {
        let mut plan = plan(&text.replace(dialed, route)).unwrap();
        plan.set_variables(Variables::parse("vars", variables).unwrap()).unwrap();
        let mut rig = Rig::over(|upstream| plan.tree(upstream));
        keys.iter().filter(|key| rig.get(key) != Ok(None)).count()
    };
    assert_eq!(hits("{}", dialed), 30);
    assert_eq!(hits(r#"{"hash_route_weights": {"w": [0, 1]}}"#, dialed), 0);
    let half = hits(r#"{"hash_route_weights": {"w": [0.5, 0.5]}}"#, dialed);
    assert!((1..30).contains(&half), "{half}");
}

#[test]
fn named_variables_without_usable_numbers_are_reported() {
    let route = r#"{"type": "PoolRoute", "pool": "A", "weights_rv": "w",
        "shadows": [{"target": "NullRoute", "index_range_rv": "i", "key_fraction_range_rv": "f"}]}"#;
    let mut plan =
        plan(&config(&[], route).replace("\"pools\": {", "\"pools\": { \"A\": {\"servers\": []},"))
            .unwrap();
    let mut told = |variables: &str| {
        plan.set_variables(Variables::parse("vars", variables).unwrap()).unwrap();
        plan.unusable_variables().into_iter().collect::<Vec<_>>().join("\n")
    };
    let all = told(r#"{"w": "text", "f": [1, 0]}"#);
    for name in [
        "'w' has numbers; the pool receives all requests without it",
        "'i' has two rising",
        "'f' has two rising",
    ] {
        assert!(all.contains(name), "{all}");
    }
    let ranges = r#""i": [0, 1], "f": [0, 1]"#;
    let few = told(&format!(r#"{{{ranges}, "hash_route_weights": {{"w": [1]}}}}"#));
    assert!(
        few.ends_with("has fewer weights (1) than children (2); missing ones count 0.5"),
        "{few}"
    );
    let many = told(&format!(r#"{{{ranges}, "w": [1, 0, 0]}}"#));
    assert!(many.ends_with("the last ones change nothing"), "{many}");
    assert_eq!(told(&format!(r#"{{{ranges}, "w": [1, 0]}}"#)), "");
    let servers = (1..100).map(|port| format!(r#""h:{port}""#)).collect::<Vec<_>>().join(",");
    let text = format!(
        r#"{{"pools": {{"A": {{"servers": [{servers}]}}}}, "route": {{"type": "PoolRoute",
            "pool": "A", "hash": {{"hash_func": "WeightedCh3Rv", "weights_rv": "w"}}}}}}"#
    );
    let [warning] = &Vec::from_iter(self::plan(&text).unwrap().unusable_variables())[..] else {
        panic!()
    };
    assert!(warning.ends_with("'w' has numbers; all weights are 1 without it"), "{warning}");
}

#[test]
fn a_pool_can_keep_routing_prefixes() {
    let servers = vec![Server::memcached(&[])];
    let text = format!(
        r#"{{"pools": {{"A": {{"servers": ["{}"], "keep_routing_prefix": true}}}},
            "routes": [{{"aliases": ["/./.", "/a/b/"], "route": "PoolRoute|A"}}]}}"#,
        servers[0].addr()
    );
    let mut cluster = Cluster::with(servers, &text, "{}");
    cluster.set("/a/b/k", "prefixed");
    cluster.set("k", "plain");
    cluster.has("/a/b/k", Some("prefixed"));
    assert_eq!(cluster.on(0, "/a/b/k").as_deref(), Some("prefixed"));
    assert_eq!(cluster.on(0, "k").as_deref(), Some("plain"));
    assert_eq!(cluster.rig.simple(Command::Delete, "/a/b/k"), Outcome::Deleted);
    cluster.has("/a/b/k", None);
}

/// A flush goes to all servers, of which none stores a key with its routing prefix, unless its pool
/// keeps these.
#[test]
fn a_flush_with_a_routing_prefix_reaches_keys_with_and_without_it() {
    for keeps in [false, true] {
        let servers = vec![Server::holdall(&[])];
        let text = format!(
            r#"{{"pools": {{"A": {{"servers": ["{}"], "keep_routing_prefix": {keeps}}}}},
                "routes": [{{"aliases": ["/./.", "/a/b/"], "route": "PoolRoute|A"}}]}}"#,
            servers[0].addr()
        );
        let mut cluster = Cluster::with(servers, &text, "{}");
        let plain = Request::new(Command::FlushAll, b"/a/b/app:");
        let meta = Request { words: b"U k", ..Request::new(Command::MetaDelete, b"/a/b/app:") };
        for (flush, done) in [(plain, Outcome::Ok), (meta, Outcome::Meta(MetaCode::Hd))] {
            cluster.set("/a/b/app:1", "v");
            cluster.rig.core.submit_to_all(&flush, 1 << 40);
            let reply = cluster.rig.reply(1 << 40);
            assert_eq!(reply.outcome, done);
            assert_eq!(cluster.rig.simple(Command::Get, "/a/b/app:1"), Outcome::NotFound);
        }
        let all = Request::new(Command::FlushAll, b"/a/b/");
        cluster.rig.core.submit_to_all(&all, 1 << 41);
        let outcome = cluster.rig.reply(1 << 41).outcome;
        let refused = Outcome::Failed(Failure::ClientError);
        assert_eq!(outcome, if keeps { Outcome::Ok } else { refused });
    }
}

#[test]
fn a_failover_tag_can_have_a_name() {
    let route = r#"{"type": "FailoverRoute", "children": ["PoolRoute|dead", "PoolRoute|A"], "failover_tag": "gutter"}"#;
    let mut cluster = Cluster::new(1, route);
    cluster.set("k", "v");
    assert_eq!(cluster.on(0, "k|#|:failover=gutter").as_deref(), Some("v"));
}

/// A knocked-out server gets requests anyway if the tracker's number of its pool is out.
#[test]
fn a_pool_with_a_tracker_fails_open() {
    let tracker =
        r#", "tko_tracker": {"num_tko_threshold_upper": 1, "num_tko_threshold_lower": 1}"#;
    for (tracker, second) in [("", Failure::Tko), (tracker, Failure::ConnectError)] {
        let text = format!(
            r#"{{"pools": {{"A": {{"servers": ["127.0.0.1:1"]{tracker}}}}}, "route": "PoolRoute|A"}}"#
        );
        let mut cluster = Cluster::with(Vec::new(), &text, "{}");
        assert_eq!(cluster.rig.get("k"), Err(Failure::ConnectError));
        assert_eq!(cluster.rig.get("k"), Err(second), "{tracker}");
    }
}
