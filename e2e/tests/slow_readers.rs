//! Unchanged client libraries beside clients that do not read: large values are refused, and every
//! reader still gets its own data, a miss or an error.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::thread;
use std::time::Duration;

use e2e::clients::OwnData;
use e2e::values::{make, store};
use testkit::{Server, Wire};

/// A server that refuses every large value, and the clients whose unread replies make it do so.
///
/// Unread values may take three quarters of the quarter of `-m` that large values share: twelve
/// megabytes. A socket takes some values first, so each client asks for twelve.
fn start() -> (Server, Vec<Wire>) {
    let server = Server::holdall(&["-m", "64", "-t", "1"]);
    let mut wire = server.connect();
    store(&mut wire, "large", &make("large", 1, 1_000_000)).unwrap();
    let stuck = || {
        let mut narrow = Wire::connect_narrow(server.addr(), 64 * 1024);
        narrow.send(&b"get large\r\n".repeat(12));
        narrow
    };
    let readers = (0..12).map(|_| stuck()).collect();
    wire.expect(b"mn\r\n", b"MN\r\n");
    thread::sleep(Duration::from_millis(200));
    wire.send(b"get large\r\nmn\r\n");
    assert_eq!(wire.line(), "SERVER_ERROR out of memory writing get response");
    assert_eq!(wire.line(), "MN", "one request, one reply");
    (server, readers)
}

fn check(language: OwnData) {
    let (mut server, readers) = start();
    language.check(server.addr());
    drop(readers);
    server.assert_alive("the clients");
}

#[test]
fn libraries_of_go_get_their_own_data() {
    check(OwnData::Go);
}

#[test]
fn libraries_of_java_get_their_own_data() {
    check(OwnData::Java);
}

#[test]
fn libraries_of_node_get_their_own_data() {
    check(OwnData::Node);
}

#[test]
fn libraries_of_php_get_their_own_data() {
    check(OwnData::Php);
}

#[test]
fn libraries_of_python_get_their_own_data() {
    check(OwnData::Python);
}
