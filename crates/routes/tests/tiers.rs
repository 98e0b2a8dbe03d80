//! Values in pieces and in two tiers, over real servers: the place of each part, and the replies.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::Rig;
use common::cluster::Cluster;
use proto::answer::MetaCode;
use upstream::{Command, Failure, Outcome, Request};

#[test]
fn a_big_value_is_split_into_pieces() {
    let route = r#"{"type": "BigValueRoute", "target": "PoolRoute|A", "split_threshold": 100, "batch_size": 3}"#;
    let mut cluster = Cluster::new(1, route);
    let value: String = ('a'..='z').cycle().take(1050).collect();
    cluster.set("k", &value);
    cluster.has("k", Some(&value));
    let listed = cluster.direct[0].ask(&Request::new(Command::Get, b"k"));
    let list = String::from_utf8(listed.value).unwrap();
    assert_eq!(listed.flags, 0x8000);
    let suffix = list.strip_prefix("1-11-").unwrap();
    assert_eq!(cluster.on(0, &format!("k:10:{suffix}")).as_deref(), Some(&value[1000..]));
    // The unique of the list is that of the whole.
    let unique = cluster.rig.ask(&Request::new(Command::Gets, b"k")).number;
    let cas = Request { number: unique, value: b"small", ..Request::new(Command::Cas, b"k") };
    assert_eq!(cluster.rig.ask(&cas).outcome, Outcome::Stored);
    cluster.has("k", Some("small"));
    assert_eq!(cluster.on(0, "k").as_deref(), Some("small"));
    cluster.set("k", &value);
    assert_eq!(
        cluster.direct[0].simple(Command::Delete, &format!("k:4:{suffix}")),
        Outcome::Deleted
    );
    cluster.has("k", None);
    assert_eq!(cluster.rig.simple(Command::Delete, "k"), Outcome::Deleted);
    let meta = cluster.rig.ask(&Request::new(Command::MetaGet, b"k"));
    assert_eq!(meta.outcome, Outcome::Failed(Failure::ClientError));
    let long = "k".repeat(245);
    let failed = Outcome::Failed(Failure::ClientError);
    assert_eq!(cluster.rig.store(Command::Set, &long, &value), failed);
}

/// Below a choice by client, host or part of the key, all pieces of a value are where the key is.
#[test]
fn pieces_are_routed_like_their_key() {
    let value: String = ('a'..='z').cycle().take(1050).collect();
    let children = r#"["PoolRoute|A", "PoolRoute|B"]"#;
    let latest = r#"{"type": "LatestRoute", "children": ["PoolRoute|A", "PoolRoute|B"], "failover_count": 2}"#;
    let below = [
        format!(r#"{{"type": "OriginalClientHashRoute", "children": {children}}}"#),
        format!(r#"{{"type": "HostIdRoute", "children": {children}}}"#),
        latest.to_owned(),
    ];
    for target in below {
        let route =
            format!(r#"{{"type": "BigValueRoute", "target": {target}, "split_threshold": 100}}"#);
        let mut cluster = Cluster::new(2, &route);
        for client in [1, 0] {
            let key = format!("k{client}");
            let set = Request {
                client,
                value: value.as_bytes(),
                ..Request::new(Command::Set, key.as_bytes())
            };
            assert_eq!(cluster.rig.ask(&set).outcome, Outcome::Stored);
            for op in [Command::Get, Command::Gets, Command::LeaseGet] {
                let got = cluster.rig.ask(&Request { client, ..Request::new(op, key.as_bytes()) });
                // memcached has no leases.
                let is_whole = got.value == value.as_bytes() || op == Command::LeaseGet;
                assert!(is_whole, "{target}: {op:?}: {:?}", got.outcome);
            }
            let place = cluster.place(&key);
            assert!(!target.contains("Client") || place == client as usize, "{target}: {place}");
            let list = cluster.on(place, &key).unwrap();
            let suffix = list.strip_prefix("1-11-").unwrap();
            for piece in 0..11 {
                assert_eq!(cluster.place(&format!("{key}:{piece}:{suffix}")), place, "{target}");
            }
        }
    }
}

#[test]
fn pieces_are_hashed_like_their_key() {
    let value = "x".repeat(1050);
    let split = r#"{"type": "BigValueRoute", "target": "PoolRoute|all", "split_threshold": 100}"#;
    let parsed = format!(
        r#"{{"type": "KeyParseRoute", "target": {split}, "num_routing_parts": 1, "delimiter": ":"}}"#
    );
    for (route, key) in [(split, "a|#|b"), (&parsed, "a:b")] {
        let mut cluster = Cluster::new(3, route);
        cluster.set(key, &value);
        cluster.has(key, Some(&value));
        let place = cluster.place(key);
        let suffix = cluster.on(place, key).unwrap()["1-11-".len()..].to_owned();
        assert!((0..11).all(|piece| cluster.place(&format!("{key}:{piece}:{suffix}")) == place));
    }
}

#[test]
fn large_values_are_stored_in_l2_with_a_marker_in_l1() {
    let route = r#"{"type": "L1L2SizeSplitRoute", "l1": "PoolRoute|A", "l2": "PoolRoute|B", "threshold": 10}"#;
    let mut cluster = Cluster::new(2, route);
    cluster.set("small", "123456789");
    assert_eq!((cluster.place("small"), cluster.on(1, "small")), (0, None));
    cluster.set("large", "1234567890");
    assert_eq!(cluster.on(0, "large").as_deref(), Some(""));
    assert_eq!(cluster.on(1, "large").as_deref(), Some("1234567890"));
    cluster.has("large", Some("1234567890"));
    let found = cluster.rig.ask(&Request::new(Command::Gets, b"large"));
    let unique = cluster.direct[0].ask(&Request::new(Command::Gets, b"large")).number;
    assert_eq!((found.value.as_slice(), found.number), (&b"1234567890"[..], unique));
    cluster.set("large", "123");
    cluster.has("large", Some("123"));
    assert_eq!(cluster.rig.simple(Command::Delete, "large"), Outcome::Deleted);
    cluster.has("large", None);
}

/// As in mcrouter.
#[test]
fn thresholds_of_size_and_ttl_keep_large_values_in_l1() {
    let split = |fields: &str| {
        let fields = format!(r#""l1": "PoolRoute|A", "l2": "PoolRoute|B", {fields}"#);
        Cluster::new(2, &format!(r#"{{"type": "L1L2SizeSplitRoute", {fields}}}"#))
    };
    let mut off = split(r#""threshold": 0"#);
    off.set("k", "1234567890");
    assert_eq!((off.place("k"), off.on(1, "k")), (0, None));
    let mut by_life = split(r#""threshold": 10, "ttl_threshold": 60"#);
    for (exptime, far) in [(0, false), (59, false), (60, true)] {
        let key = format!("k{exptime}");
        let set = Request::new(Command::Set, key.as_bytes());
        let set = Request { exptime, value: b"1234567890", ..set };
        assert_eq!(by_life.rig.ask(&set).outcome, Outcome::Stored);
        assert_eq!(by_life.on(1, &key).is_some(), far, "{exptime}");
        by_life.has(&key, Some("1234567890"));
    }
}

#[test]
fn l1_caches_misses_and_refreshes_them() {
    let route = r#"{"type": "L1L2CacheRoute", "l1": "PoolRoute|A", "l2": "PoolRoute|B",
        "upgradingL1Exptime": 60, "ncacheExptime": 60, "ncacheUpdatePeriod": 3}"#;
    let mut cluster = Cluster::new(2, route);
    cluster.has("k", None);
    cluster.comes_to(0, "k", "ncache");
    assert_eq!(cluster.direct[1].store(Command::Set, "k", "v"), Outcome::Stored);
    cluster.has("k", None);
    cluster.has("k", None);
    cluster.has("k", None);
    cluster.comes_to(0, "k", "v");
    cluster.has("k", Some("v"));
    assert_eq!(cluster.direct[1].store(Command::Set, "far", "v"), Outcome::Stored);
    cluster.has("far", Some("v"));
    cluster.comes_to(0, "far", "v");
}

/// With and without the value, and with a lease, which belongs to the small one.
#[test]
fn a_meta_get_reads_l2_like_a_get() {
    let route = r#"{"type": "L1L2CacheRoute", "l1": "PoolRoute|A", "l2": "PoolRoute|B",
        "upgradingL1Exptime": 60}"#;
    let mut cluster = Cluster::new(2, route);
    let meta = |rig: &mut Rig, key: &str, words: &[u8]| {
        let reply = rig.ask(&Request { words, ..Request::new(Command::MetaGet, key.as_bytes()) });
        (reply.outcome, String::from_utf8(reply.value).unwrap())
    };
    let code = |code| Outcome::Meta(code);
    for key in ["k1", "k2", "k3"] {
        let far = Request { flags: 9, value: b"v", ..Request::new(Command::Set, key.as_bytes()) };
        assert_eq!(cluster.direct[1].ask(&far).outcome, Outcome::Stored);
    }
    assert_eq!(meta(&mut cluster.rig, "k1", b"v k O7"), (code(MetaCode::Va), "v".to_owned()));
    assert_eq!(meta(&mut cluster.rig, "k2", b"t"), (code(MetaCode::Hd), String::new()));
    cluster.comes_to(0, "k1", "v");
    cluster.comes_to(0, "k2", "v");
    assert_eq!(cluster.direct[0].ask(&Request::new(Command::Get, b"k1")).flags, 9);
    // The client that creates the item in L1 will fill it.
    let (won, value) = meta(&mut cluster.rig, "k3", b"v N30");
    assert_eq!((won, value.as_str()), (code(MetaCode::Va), ""));
    assert_eq!(meta(&mut cluster.rig, "absent", b"v").0, code(MetaCode::En));
    assert_eq!(cluster.on(0, "absent"), None);
}

/// Stores compare the unique in L1.
#[test]
fn a_cas_unique_of_a_value_from_l2_is_that_of_l1() {
    let route = r#"{"type": "L1L2CacheRoute", "l1": "PoolRoute|A", "l2": "PoolRoute|B",
        "upgradingL1Exptime": 60}"#;
    let mut cluster = Cluster::new(2, route);
    // Equal numbers would hide a mistake.
    for _ in 0..3 {
        assert_eq!(cluster.direct[1].store(Command::Set, "other", "v"), Outcome::Stored);
    }
    for key in ["gets", "gats", "mg"] {
        assert_eq!(cluster.direct[1].store(Command::Set, key, "far"), Outcome::Stored);
        let request = Request::new(Command::Gets, key.as_bytes());
        let unique = match key {
            "gets" => cluster.rig.ask(&request).number,
            "gats" => cluster.rig.ask(&Request { op: Command::Gats, ..request }).number,
            _ => {
                let meta = Request { op: Command::MetaGet, words: b"v c O1", ..request };
                let reply = cluster.rig.ask(&meta);
                assert_eq!(reply.value, b"far");
                let words = String::from_utf8(reply.words).unwrap();
                words.strip_prefix(" c").unwrap().strip_suffix(" O1").unwrap().parse().unwrap()
            }
        };
        assert_eq!(cluster.direct[0].ask(&request).number, unique, "{key}");
        let cas = Request { op: Command::Cas, number: unique, value: b"new", ..request };
        assert_eq!(cluster.rig.ask(&cas).outcome, Outcome::Stored, "{key}");
        assert_eq!(cluster.rig.ask(&cas).outcome, Outcome::Exists, "{key}");
    }
}

/// An L1 that keeps nothing has no cas unique, and L2's would be wrong there.
#[test]
fn without_l1_a_value_has_no_cas_unique() {
    for l1 in ["NullRoute", "PoolRoute|dead"] {
        let route = format!(
            r#"{{"type": "L1L2CacheRoute", "l1": "{l1}", "l2": "PoolRoute|A",
            "upgradingL1Exptime": 60}}"#
        );
        let mut cluster = Cluster::new(1, &route);
        assert_eq!(cluster.direct[0].store(Command::Set, "k", "far"), Outcome::Stored);
        let found = cluster.rig.ask(&Request::new(Command::Gets, b"k"));
        assert_eq!((&found.value[..], found.number), (&b"far"[..], u64::MAX), "{l1}");
        let meta = Request { words: b"c v k", ..Request::new(Command::MetaGet, b"k") };
        let found = cluster.rig.ask(&meta);
        let words = String::from_utf8(found.words).unwrap();
        let want = format!(" c{} kk", u64::MAX);
        assert_eq!((&found.value[..], words), (&b"far"[..], want), "{l1}");
    }
}

/// The front lets no later request of the client overtake such a one.
#[test]
fn requests_in_several_steps_are_announced() {
    let (pieces, tiers, warm_up) = (
        r#"{"type": "BigValueRoute", "target": "PoolRoute|A", "split_threshold": 100}"#,
        r#"{"type": "L1L2SizeSplitRoute", "l1": "PoolRoute|A", "l2": "PoolRoute|B", "threshold": 100}"#,
        r#"{"type": "WarmUpRoute", "warm": "PoolRoute|A", "cold": "PoolRoute|B", "leases": true}"#,
    );
    let below = |name: &str| format!(r#"{{"type": "{name}", "children": [{pieces}]}}"#);
    let all_names = ["AllSyncRoute", "AllFastestRoute", "AllInitialRoute", "FailoverRoute"];
    let splits = all_names.map(below).into_iter().chain([pieces.to_owned(), tiers.to_owned()]);
    let large = "x".repeat(1050);
    let key = &b"k"[..];
    let small = Request { value: b"new", ..Request::new(Command::Set, key) };
    let set = Request { value: large.as_bytes(), ..small };
    let packet = Request { op: Command::MetaSet, words: b"c F0 T0 MS", ..set };
    let delete = Request::new(Command::Delete, key);
    let unique = Request { words: b"C1", ..Request::new(Command::MetaDelete, key) };
    let get = Request::new(Command::Get, key);
    let both = r#"{"type": "AllSyncRoute", "children": ["PoolRoute|A", "PoolRoute|B"]}"#;
    let stores = splits.map(|route| (route, vec![set, packet], vec![small, delete, get]));
    let deletes = [
        (warm_up.to_owned(), vec![delete], vec![get, small]),
        (both.to_owned(), vec![unique], vec![small, set, delete, get]),
    ];
    for (route, in_steps, others) in stores.chain(deletes) {
        let mut cluster = Cluster::new(2, &route);
        for request in in_steps {
            assert!(cluster.rig.takes_steps(&request), "{route}: {}", request.op.name());
        }
        for request in others {
            assert!(!cluster.rig.takes_steps(&request), "{route}: {}", request.op.name());
        }
    }
}

#[test]
fn an_add_that_may_be_repeated_takes_several_steps() {
    let route = r#"{"type": "L1L2CacheRoute", "l1": "PoolRoute|A", "l2": "PoolRoute|B",
        "upgradingL1Exptime": 60, "ncacheExptime": 60, "ncacheUpdatePeriod": 100}"#;
    let mut cluster = Cluster::new(2, route);
    cluster.has("k", None);
    cluster.rig.eventually("the miss is noted", |_| cluster.direct[0].get("k").unwrap().is_some());
    let add = Request { value: b"v", ..Request::new(Command::Add, b"k") };
    assert!(cluster.rig.takes_steps(&add));
    assert_eq!(cluster.on(0, "k").as_deref(), Some("v"));
}
