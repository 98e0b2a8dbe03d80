//! Popular client libraries, unchanged: each runs its whole command set against the server.
//!
//! [`Client`] describes their locations.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::ffi::OsStr;
use std::process::Command;

use e2e::clients::Client;
use e2e::folder::Folder;
use testkit::Server;

/// Runs one client against a fresh server.
fn check(client: Client) {
    let mut server = Server::under_test(&[]);
    client.check(server.addr(), false);
    server.assert_alive("the client");
}

#[test]
fn pymemcache() {
    check(Client::Pymemcache);
}

#[test]
fn pylibmc_with_libmemcached() {
    check(Client::Pylibmc);
}

#[test]
fn python_binary_memcached() {
    check(Client::Bmemcached);
}

#[test]
fn gomemcache() {
    check(Client::Gomemcache);
}

#[test]
fn dalli() {
    check(Client::Dalli);
}

#[test]
fn meta_memcache() {
    check(Client::MetaMemcache);
}

#[test]
fn spymemcached() {
    check(Client::Spymemcached);
}

#[test]
fn memjs() {
    check(Client::Memjs);
}

#[test]
fn memcached_for_node() {
    check(Client::NodeMemcached);
}

/// libmemcached's own check of a server (called memcapable in Debian), text and binary: 54 tests,
/// of which memcached fails one.
#[test]
fn memccapable() {
    let server = Server::under_test(&[]);
    let (host, port) = (server.addr().ip().to_string(), server.addr().port().to_string());
    let words = [
        "-h".as_ref(),
        host.as_ref(),
        "-p".as_ref(),
        port.as_ref(),
        "-t".as_ref(),
        OsStr::new("20"),
    ];
    let output = Command::new("memccapable").args(words).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let passed = text.matches("[pass]").count();
    let expected = if server.kind() == testkit::Kind::Memcached { 53 } else { 54 };
    assert!(passed >= expected, "{passed} of 54 passed:\n{text}");
}

/// libmemcached's memcdump asks for the classes that memcached can have.
#[test]
fn memcdump_shows_small_and_large_items() {
    let server = Server::under_test(&[]);
    let folder = Folder::new("memcdump");
    let names = [("small", 5), ("medium", 5_000), ("large", 900_000)];
    let servers = format!("--servers={}", server.addr());
    for (name, bytes) in names {
        let path = folder.path().join(name);
        std::fs::write(&path, vec![b'v'; bytes]).unwrap();
        let stored = Command::new("memccp").arg(&servers).arg(path).status().unwrap();
        assert!(stored.success(), "{name}");
    }
    let output = Command::new("memcdump").arg(&servers).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let mut shown: Vec<_> = shown.lines().collect();
    shown.sort_unstable();
    assert_eq!(shown, ["large", "medium", "small"]);
}
