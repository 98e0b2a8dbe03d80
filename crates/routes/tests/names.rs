//! Servers with names, one of which is not found (decision 132).
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeSet;

use common::cluster::{Cluster, plan};
use testkit::Server;
use upstream::Failure;

/// The name is one that no resolver can know.
#[test]
fn an_unresolved_name_is_an_unreachable_server() {
    let unknown = "pod.invalid:11211";
    let servers = vec![Server::memcached(&[])];
    let known = servers[0].addr();
    let text = format!(
        r#"{{"pools": {{"A": {{"servers": ["{known}"]}}, "N": {{"servers": ["{unknown}"]}}}},
            "route": {{"type": "PrefixSelectorRoute", "policies": {{"n": "PoolRoute|N"}}, "wildcard": "PoolRoute|A"}}}}"#
    );
    let plan_of_now = plan(&text).unwrap();
    let not_found = plan_of_now.not_found();
    let [why] = &not_found[..] else { panic!("{not_found:?}") };
    assert!(why.starts_with("test.json:1:") && why.contains(unknown), "{why}");
    assert_eq!(plan_of_now.hosts(), BTreeSet::from(["pod.invalid".to_owned()]));
    let mut cluster = Cluster::with(servers, &text, "{}");
    cluster.set("key", "value");
    cluster.has("key", Some("value"));
    assert_eq!(cluster.rig.get("name"), Err(Failure::ConnectError));
}
