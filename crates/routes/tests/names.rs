//! Servers by name, of which one is not found (decision 132).
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::net::SocketAddr;

use common::cluster::{Cluster, plan};
use testkit::Server;
use upstream::Failure;

/// The name is one that no resolver may know.
#[test]
fn a_name_that_is_not_found_is_a_server_that_cannot_be_reached() {
    let unknown = "pod.invalid:11211";
    let servers = vec![Server::memcached(&[])];
    let known = servers[0].addr();
    let text = format!(
        r#"{{"pools": {{"A": {{"servers": ["{known}"]}}, "N": {{"servers": ["{unknown}"]}}}},
            "route": {{"type": "PrefixSelectorRoute", "policies": {{"n": "PoolRoute|N"}}, "wildcard": "PoolRoute|A"}}}}"#
    );
    let mut plan_of_now = plan(&text).unwrap();
    let not_found = plan_of_now.not_found();
    let [why] = &not_found[..] else { panic!("{not_found:?}") };
    assert!(why.starts_with("test.json:1:") && why.contains(unknown), "{why}");
    assert!(plan_of_now.has_names());
    let mut cluster = Cluster::with(servers, &text, "{}");
    cluster.set("key", "value");
    cluster.has("key", Some("value"));
    assert_eq!(cluster.rig.get("name"), Err(Failure::ConnectError));

    // One that was found before stays where it was.
    let found = SocketAddr::from(([127, 0, 0, 2], 11211));
    let mut before = plan_of_now.targets();
    plan_of_now.remember(&before);
    assert_eq!(plan_of_now.not_found().len(), 1);
    for target in before.iter_mut().filter(|target| target.name == unknown) {
        target.address = found.into();
    }
    plan_of_now.remember(&before);
    assert_eq!((plan_of_now.not_found().len(), plan_of_now.targets()), (0, before));
}
