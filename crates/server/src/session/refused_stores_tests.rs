//! A store that is refused for room leaves the old value, in every protocol; one that is refused
//! for its size deletes it, as in memcached (decision 100).
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test stops where it fails, and its numbers are small"
)]

use super::Worker;
use super::reply_count_tests::{packet, packets, take_all_room};
use super::tests::{Client, worker};

/// More than one read, and more than a buffer holds, so it arrives in parts.
const LARGE_BYTES: usize = 100_000;

/// The variants of a plain set of `key`; true for the binary protocol.
fn sets(key: &str, value: &[u8]) -> [(Vec<u8>, bool); 3] {
    let line = |head: String| [head.as_bytes(), value, b"\r\n"].concat();
    [
        (line(format!("set {key} 0 0 {}\r\n", value.len())), false),
        (line(format!("ms {key} {}\r\n", value.len())), false),
        (packet(0x01, 1, &[0; 8], key.as_bytes(), value), true),
    ]
}

/// Sends every kind of set of `key` in parts of this many bytes. Each is refused with this text or
/// its binary status, and the value `old` stays.
#[track_caller]
fn refuses(worker: &mut Worker, key: &str, value: &[u8], parts: usize, words: &str, old: &str) {
    for (sent, is_binary) in sets(key, value) {
        let mut client = Client::new(worker);
        let reply: Vec<u8> =
            sent.chunks(parts).flat_map(|part| client.send(worker, part)).collect();
        if is_binary {
            assert_eq!(packets(&reply), [(1, 0x82)]);
        } else {
            assert_eq!(String::from_utf8_lossy(&reply), format!("SERVER_ERROR {words}\r\n"));
        }
        let mut reader = Client::new(worker);
        let got = reader.send(worker, format!("get {key}\r\n").as_bytes());
        let want = format!("VALUE {key} 0 {}\r\n{old}\r\nEND\r\n", old.len());
        assert_eq!(String::from_utf8_lossy(&got), want, "after {}", sent[..20].escape_ascii());
    }
}

#[test]
fn a_refused_set_without_eviction_keeps_the_old_value() {
    let mut worker = worker(&["-M"]);
    let mut client = Client::new(&mut worker);
    let value = vec![b'v'; LARGE_BYTES];
    assert_eq!(client.send(&mut worker, b"set old 0 0 3\r\nold\r\n"), b"STORED\r\n");
    let mut number = 0;
    while client.send(&mut worker, &sets(&format!("fill{number}"), &value)[0].0) == b"STORED\r\n" {
        number += 1;
        assert!(number < 1000, "never full");
    }
    // At once, and in parts.
    for parts in [usize::MAX, 40_000] {
        refuses(&mut worker, "old", &value, parts, "out of memory storing object", "old");
    }
}

#[test]
fn a_set_refused_by_a_quota_keeps_the_old_value() {
    let (mut worker, mut client) = super::namespaces_tests::with_lines("prefix q: max-bytes=1k\n");
    assert_eq!(client.send(&mut worker, b"set q:1 0 0 3\r\nold\r\n"), b"STORED\r\n");
    for (bytes, parts) in [(2000, usize::MAX), (LARGE_BYTES, 40_000)] {
        let value = vec![b'v'; bytes];
        refuses(&mut worker, "q:1", &value, parts, "max-bytes of the namespace reached", "old");
    }
}

#[test]
fn a_large_value_without_room_keeps_the_old_value() {
    let mut worker = worker(&[]);
    let mut client = Client::new(&mut worker);
    assert_eq!(client.send(&mut worker, b"set old 0 0 3\r\nold\r\n"), b"STORED\r\n");
    take_all_room(&worker);
    let value = vec![b'v'; LARGE_BYTES];
    refuses(&mut worker, "old", &value, 40_000, "out of memory storing object", "old");
}

/// No repetition could store it, so the old value would be served for ever.
#[test]
fn a_too_large_value_removes_the_old_one_in_every_protocol() {
    let mut worker = worker(&["-I", "64k"]);
    let value = vec![b'v'; LARGE_BYTES];
    for (sent, _) in sets("old", &value) {
        for parts in [usize::MAX, 40_000] {
            let mut client = Client::new(&mut worker);
            assert_eq!(client.send(&mut worker, b"set old 0 0 3\r\nold\r\n"), b"STORED\r\n");
            let mut client = Client::new(&mut worker);
            let reply: Vec<u8> =
                sent.chunks(parts).flat_map(|part| client.send(&mut worker, part)).collect();
            assert!(!reply.is_empty() && !reply.starts_with(b"STORED"));
            let mut reader = Client::new(&mut worker);
            assert_eq!(reader.send(&mut worker, b"get old\r\n"), b"END\r\n");
        }
    }
}
