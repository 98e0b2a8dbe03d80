//! `--runtime-vars-file`: weights change while the proxy runs, and an invalid file changes nothing.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::net::SocketAddr;

use common::{ask, proxy, stat};
use testkit::{Server, eventually, replace_file};

/// How many of a hundred keys go to the first server, which has no key of the second.
fn share(address: SocketAddr, first: &str) -> usize {
    let route = |key: u32| ask(address, &format!("get __mcrouter__.route(get,k{key})\r\n"));
    (0..100).filter(|key| route(*key).contains(first)).count()
}

#[test]
fn weights_follow_the_variables_file() {
    let folder = std::env::temp_dir().join(format!("router-variables-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("vars.json");
    replace_file(&file, r#"{"hash_route_weights": {"w": [1, 0]}}"#);
    let all = [Server::memcached(&[]), Server::memcached(&[])];
    let [one, two] = all.each_ref().map(|server| server.addr().to_string());
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{one}", "{two}"]}}}},
            "route": {{"type": "PoolRoute", "pool": "A",
                "hash": {{"hash_func": "WeightedCh3Rv", "weights_rv": "w"}}}}}}"#
    );
    let named = file.display().to_string();
    let address = proxy(&["--config-str", &config, "--runtime-vars-file", &named]).unwrap();
    assert_eq!(share(address, &one), 100);
    replace_file(&file, r#"{"w": [0, 1]}"#);
    eventually("all keys are the second's", || share(address, &one) == 0);
    let failures = stat(address, "config_failures");
    for (count, wrong) in (1..).zip([r#"{"w": [2, 1]}"#, r#"{"w": "#, r#"["w"]"#]) {
        replace_file(&file, wrong);
        eventually("it is refused", || stat(address, "config_failures") == failures + count);
        assert_eq!(share(address, &one), 0, "{wrong}");
    }
    replace_file(&file, r#"{"w": [1, 1]}"#);
    eventually("each has some", || (1..100).contains(&share(address, &one)));
    // Without the variable, all weights are 1; without the file, everything stays.
    replace_file(&file, "{}");
    fs::remove_file(&file).unwrap();
    eventually("it is missed", || stat(address, "config_failures") > failures + 3);
    assert!((1..100).contains(&share(address, &one)));
    assert_eq!(ask(address, "get absent\r\n"), "END\r\n");
    fs::remove_dir_all(&folder).unwrap();
}
