//! Routes over no child, one and several: a missing child answers, and a request never ends the
//! program.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{Rig, patient};
use routeconf::{MemorySources, Params, load};
use routes::{Plan, TreeFlags};
use testkit::Server;
use upstream::{Command, Outcome};

/// Routes whose children are the servers of a pool; an `@` stands for them.
const ROUTES: [&str; 17] = [
    r#"{"type": "AllSyncRoute", "children": @}"#,
    r#"{"type": "AllAsyncRoute", "children": @}"#,
    r#"{"type": "AllInitialRoute", "children": @}"#,
    r#"{"type": "AllFastestRoute", "children": @}"#,
    r#"{"type": "AllMajorityRoute", "children": @}"#,
    r#"{"type": "HashRoute", "children": @}"#,
    r#"{"type": "HostIdRoute", "children": @}"#,
    r#"{"type": "HostIdRoute", "children": @, "salt": "s"}"#,
    r#"{"type": "OriginalClientHashRoute", "children": @}"#,
    r#"{"type": "RandomRoute", "children": @}"#,
    r#"{"type": "LatestRoute", "children": @}"#,
    r#"{"type": "LoadBalancerRoute", "children": @}"#,
    r#"{"type": "MissFailoverRoute", "children": @}"#,
    r#"{"type": "FailoverRoute", "children": @}"#,
    r#"{"type": "FailoverRoute", "children": @, "failover_policy": {"type": "LeastFailuresPolicy", "max_tries": 1}}"#,
    r#"{"type": "FailoverRoute", "children": @, "failover_policy": {"type": "DeterministicOrderPolicy", "max_tries": 1, "max_error_tries": 1}}"#,
    r#""PoolRoute|A""#,
];

fn rig(servers: &[Server], route: &str) -> Rig {
    let servers: Vec<_> = servers.iter().map(|one| format!(r#""{}""#, one.addr())).collect();
    let route = route.replace('@', r#""Pool|A""#);
    let text = format!(
        r#"{{"pools": {{"A": {{"servers": [{}]}}}}, "route": {route}}}"#,
        servers.join(",")
    );
    let mut nothing = MemorySources(std::iter::empty().collect());
    let loaded = match load("test.json", &text, &Params::default(), &mut nothing) {
        Ok(loaded) => loaded,
        Err(rejected) => panic!("{}", rejected.render()),
    };
    let plan = Plan::new(loaded.config, patient(), TreeFlags::default()).unwrap();
    Rig::over(|upstream| plan.tree(upstream))
}

#[test]
fn a_route_without_children_stores_nothing_and_finds_nothing() {
    let rendezvous = r#"{"type": "FailoverRoute", "children": @, "failover_policy": {"type": "RendezvousPolicy", "tags": []}}"#;
    for route in ROUTES.into_iter().chain([rendezvous]) {
        let mut rig = rig(&[], route);
        let stored = rig.store(Command::Set, "k", "v");
        let fails = stored.failure().is_some();
        assert!(fails || stored == Outcome::NotStored, "{route}: {stored:?}");
        assert!(matches!(rig.get("k"), Ok(None) | Err(_)), "{route}");
    }
}

#[test]
fn every_route_works_with_one_child_and_several() {
    for count in [1, 3] {
        let servers: Vec<_> = (0..count).map(|_| Server::memcached(&[])).collect();
        for (place, route) in ROUTES.into_iter().enumerate() {
            let (mut rig, key) = (rig(&servers, route), format!("k{place}"));
            let stored = rig.store(Command::Set, &key, "v");
            let expected =
                if route.contains("AllAsync") { Outcome::NotStored } else { Outcome::Stored };
            assert_eq!(stored, expected, "{route} over {count}");
            let finds = !route.contains("AllAsync") && !route.contains("Random");
            assert!(!finds || rig.get(&key) == Ok(Some("v".to_owned())), "{route} over {count}");
        }
    }
}
