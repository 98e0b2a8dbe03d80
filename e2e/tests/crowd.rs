//! A thousand hostile clients of every kind at server and proxy, with TLS and without, in a control
//! group of 1.03 x `-m` + 64 MB: others are served, nothing is evicted, the process survives.
#![allow(clippy::print_stderr, reason = "a test stops where it fails")]

use std::time::Duration;

use e2e::crowd::{Front, attack};
use testkit::process::raise_open_files;

const CLIENTS: usize = 1000;

/// `attack` itself fails if a bystander gets a wrong reply or none.
fn survives(front: Front) {
    assert!(raise_open_files(CLIENTS as u64 + 500) > CLIENTS as u64 + 400);
    let (before, beside) = (Duration::from_millis(200), Duration::from_secs(2));
    let outcome = attack(front, CLIENTS, before, beside);
    let peak =
        outcome.group_peak.map_or_else(|| "no".to_owned(), |bytes| (bytes >> 20).to_string());
    eprintln!("{front:?}: {peak} MB in the group, {} MB resident", outcome.peak_rss >> 20);
    assert!(outcome.is_alive);
    assert_eq!((outcome.came, outcome.lost), (CLIENTS, 0), "{front:?}");
}

#[test]
fn the_server_survives_a_hostile_crowd() {
    survives(Front::Server);
}

#[test]
fn the_servers_tls_port_survives_a_hostile_crowd() {
    survives(Front::ServerTls);
}

#[test]
fn the_proxy_survives_a_hostile_crowd() {
    survives(Front::Proxy);
}

#[test]
fn the_proxys_tls_port_survives_a_hostile_crowd() {
    survives(Front::ProxyTls);
}
