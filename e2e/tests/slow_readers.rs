//! Unchanged client libraries next to clients that do not read: the server closes clients that hold
//! large values for long, and every reader gets its own data, a miss or an error.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::thread;
use std::time::Duration;

use e2e::clients::OwnData;
use e2e::values::{make, store};
use testkit::{Server, Wire};

/// A server whose memory for large values is all held by clients that do not read.
///
/// Unread values may take three quarters of the quarter of `-m` that large values share: twelve
/// megabytes. A socket buffers some values first, so each client requests its own twelve times.
fn start() -> (Server, Vec<Wire>) {
    let server = Server::holdall(&["-m", "64", "-t", "1"]);
    let mut wire = server.connect();
    store(&mut wire, "large", &make("large", 1, 1_000_000)).unwrap();
    for number in 0..12 {
        let key = format!("unread{number}");
        store(&mut wire, &key, &make(&key, 1, 1_000_000)).unwrap();
    }
    let stuck = |number: usize| {
        let mut narrow = Wire::connect_narrow(server.addr(), 64 * 1024);
        narrow.send(format!("get unread{number}\r\n").repeat(12).as_bytes());
        narrow
    };
    let readers = (0..12).map(stuck).collect();
    wire.expect(b"mn\r\n", b"MN\r\n");
    thread::sleep(Duration::from_millis(200));
    (server, readers)
}

fn check(language: OwnData) {
    let (mut server, readers) = start();
    language.check(server.addr());
    assert!(server.stat("slow_kicks") > 0, "nobody had to make room: the test shows nothing");
    drop(readers);
    server.assert_alive("the clients");
}

#[test]
fn go_libraries_get_only_their_own_data() {
    check(OwnData::Go);
}

#[test]
fn java_libraries_get_only_their_own_data() {
    check(OwnData::Java);
}

#[test]
fn node_libraries_get_only_their_own_data() {
    check(OwnData::Node);
}

#[test]
fn php_libraries_get_only_their_own_data() {
    check(OwnData::Php);
}

#[test]
fn python_libraries_get_only_their_own_data() {
    check(OwnData::Python);
}
