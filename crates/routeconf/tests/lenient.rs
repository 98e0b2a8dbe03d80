//! Faults for which mcrouter does not refuse a configuration: they are warnings here. A fault in
//! one shadow or one server is no reason to refuse the rest.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use routeconf::ast::{Entry, Member, PoolRoute, Route, ServerAddress};
use routeconf::{Loaded, MemorySources, Params, load};

/// A pool's route with these settings, and its warnings.
#[track_caller]
fn pool_route(settings: &str) -> (Loaded, String) {
    let text = format!(
        r#"{{"pools": {{"A": {{"servers": ["a:1", "b:0"]}}}},
            "route": {{"type": "PoolRoute", "pool": "A", {settings}}}}}"#
    );
    let mut nothing = MemorySources(std::iter::empty().collect());
    match load("m.json", &text, &Params::default(), &mut nothing) {
        Ok(loaded) => {
            let files = &loaded.config.files;
            let told = loaded.warnings.iter().map(|one| one.render(files)).collect();
            (loaded, told)
        }
        Err(rejected) => panic!("{}", rejected.render()),
    }
}

fn root(loaded: &Loaded) -> &PoolRoute {
    let Entry::Prefixes(prefixes) = &loaded.config.listeners[0].entry else {
        panic!("no prefixes")
    };
    match &loaded.config.handle(prefixes[0].route).route {
        Route::Pool(route) => route,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_invalid_shadow_is_dropped_and_the_others_stay() {
    for wrong in [
        r#""index_range": [2, 1]"#,
        r#""index_range": [1]"#,
        r#""key_fraction_range": [0.5, 0.1]"#,
        r#""key_fraction_range": [0, 2]"#,
        r#""keys_to_shadow": ["k"], "key_fraction_range": [0, 1]"#,
        r#""keys_to_shadow": 7"#,
    ] {
        let (loaded, told) = pool_route(&format!(
            r#""shadows": [{{"target": "NullRoute", {wrong}}}, {{"target": "NullRoute"}}]"#
        ));
        assert_eq!(root(&loaded).shadows.len(), 1, "{wrong}");
        assert!(told.contains("the shadow is left out: "), "{wrong}: {told}");
    }
}

#[test]
fn shard_splits_are_limited_to_the_number_of_suffixes() {
    let (loaded, told) = pool_route(
        r#""shard_splits": {"1": 1000, "2": {"old_split_size": 678, "new_split_size": 677}}"#,
    );
    let splits = &root(&loaded).shard_splits.as_ref().unwrap().splits;
    let sizes: Vec<_> = splits.iter().map(|(_, one)| (one.old_size, one.new_size)).collect();
    assert_eq!(sizes, [(677, 677), (677, 677)]);
    assert_eq!(told.matches("is 677 at most").count(), 2, "{told}");
}

#[test]
fn port_0_is_accepted_in_a_configuration() {
    let (loaded, told) = pool_route(r#""asynclog": false"#);
    let Member::Server(server) = &loaded.config.pools[0].members[1] else { panic!("no server") };
    assert_eq!(server.address, ServerAddress::Tcp { host: "b".to_owned(), port: 0 });
    assert_eq!(told, "");
}

#[test]
fn a_pool_can_use_the_latest_hash() {
    let (loaded, told) = pool_route(r#""hash": "Latest""#);
    assert_eq!(root(&loaded).latest.as_ref().unwrap().failover_count, 5);
    assert_eq!(told, "");
    let (loaded, told) = pool_route(
        r#""hash": {"hash_func": "Latest", "failover_count": 2, "salt": "s", "weights": [1, 0.5]}"#,
    );
    let latest = root(&loaded).latest.as_ref().unwrap();
    assert_eq!((latest.failover_count, latest.salt.as_str()), (2, "s"));
    assert_eq!((latest.weights.as_deref(), told.as_str()), (Some(&[1.0, 0.5][..]), ""));
}
