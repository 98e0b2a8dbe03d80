//! A configuration in which one request could cause too many is refused, with the route's name.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use routeconf::{DEPTH_MAX, Loaded, MemorySources, Params, REQUESTS_MAX, Rejected, load};

fn read(handles: &[String], route: &str) -> Result<Loaded, Rejected> {
    let text = format!(
        r#"{{"pools": {{"A": {{"servers": ["a:1", "b:1"]}}}},
            "named_handles": [{}], "route": {route}}}"#,
        handles.join(",\n")
    );
    load("f.json", &text, &Params::default(), &mut MemorySources::default())
}

/// `count` handles `h0`, `h1`, ...; each has this type and twice the previous one as its children.
fn doubling(kind: &str, count: usize) -> Result<Loaded, Rejected> {
    let handle = |number: usize| {
        let child = match number.checked_sub(1) {
            None => "PoolRoute|A".to_owned(),
            Some(before) => format!("h{before}"),
        };
        format!(r#"{{"type": "{kind}", "name": "h{number}", "children": ["{child}", "{child}"]}}"#)
    };
    let handles: Vec<_> = (0..count).map(handle).collect();
    read(&handles, &format!(r#""h{}""#, count - 1))
}

#[test]
fn the_fan_out_of_a_request_is_bounded() {
    assert_eq!(REQUESTS_MAX, 1 << 16);
    for kind in ["AllSyncRoute", "AllInitialRoute", "FailoverRoute", "MissFailoverRoute"] {
        assert!(doubling(kind, 16).is_ok(), "{kind}");
        for count in [17, 40, 200] {
            let refusal = doubling(kind, count).unwrap_err();
            let first = refusal.findings[0].render(&refusal.files);
            let want = format!("{kind} 'h16': one request may become 131072 requests, of 65536");
            assert!(first.contains(&want), "{first}");
            assert!(first.starts_with("f.json:18:"), "{first}");
        }
    }
}

#[test]
fn selecting_routes_do_not_fan_out() {
    for kind in ["HashRoute", "RandomRoute", "HostIdRoute"] {
        assert!(doubling(kind, 200).is_ok(), "{kind}");
    }
    // This number of the children receives requests.
    let salted = r#"{"type": "LoadBalancerRoute", "failover_count": 4000000000,
        "children": ["PoolRoute|A", "PoolRoute|A"]}"#;
    assert!(read(&[], salted).is_ok());
}

#[test]
fn key_replicas_count_towards_the_fan_out() {
    let split = |destination: &str| {
        format!(
            r#"{{"type": "KeySplitRoute", "destination": {destination}, "replicas": 1000,
                "all_sync": true}}"#
        )
    };
    let once = split(r#""PoolRoute|A""#);
    assert!(read(&[], &once).is_ok());
    let why = read(&[], &split(&once)).unwrap_err().render();
    assert!(why.contains("KeySplitRoute: one request may become 1000000 requests"), "{why}");
}

#[test]
fn the_route_depth_of_a_request_is_bounded() {
    let longest = usize::try_from(DEPTH_MAX).unwrap() - 1;
    assert!(doubling("HashRoute", longest).is_ok());
    let why = doubling("HashRoute", longest + 1).unwrap_err().render();
    assert!(why.contains("HashRoute 'h255': a request passes through more than 256"), "{why}");
    // No code walks down such a tree.
    assert!(doubling("HashRoute", 100_000).is_err());
}

/// A key of `/*/*/` goes to every cluster.
#[test]
fn the_fan_out_adds_up_over_clusters() {
    let clusters = |count: usize| {
        let route = |number| {
            format!(
                r#"{{"aliases": ["/r/c{number}/"], "route": {{"type": "KeySplitRoute",
                    "destination": "PoolRoute|A", "replicas": 1000, "all_sync": true}}}}"#
            )
        };
        let routes: Vec<_> = (0..count).map(route).collect();
        let text = format!(
            r#"{{"pools": {{"A": {{"servers": ["a:1"]}}}}, "routes": [{}]}}"#,
            routes.join(",")
        );
        let params = Params::new("/r/c0/");
        load("f.json", &text, &params, &mut MemorySources::default())
    };
    assert!(clusters(65).is_ok());
    let why = clusters(66).unwrap_err().render();
    assert!(why.contains("under /*/*/ may become 66000 requests"), "{why}");
}
