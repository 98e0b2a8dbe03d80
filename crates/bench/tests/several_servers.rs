//! Several servers: a key belongs to one of them, and a server gets the requests for its keys.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use generator::Progress;
use generator::spec::{Ratio, Spec, Target};

/// The number of requests for each key.
type Asked = Arc<Mutex<BTreeMap<String, u64>>>;

/// A server of misses.
fn server() -> (Target, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Asked::default());
    let seen = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let seen = Arc::clone(&seen);
            thread::spawn(move || {
                for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                    for key in line.split(' ').skip(1) {
                        *seen.lock().unwrap().entry(key.to_owned()).or_default() += 1;
                    }
                    if (&stream).write_all(b"END\r\n").is_err() {
                        return;
                    }
                }
            });
        }
    });
    (Target::Tcp(address.to_string(), address), asked)
}

/// The requests to two servers in a closed loop, and the number of answered requests.
fn asked(pattern: &str, change: impl FnOnce(&mut Spec)) -> ([BTreeMap<String, u64>; 2], u64) {
    let (one, other) = (server(), server());
    let mut spec = Spec {
        targets: vec![one.0, other.0],
        connections: 5,
        ratio: Ratio { sets: 0, gets: 1 },
        keys: 1000,
        pattern: pattern.parse().unwrap(),
        requests: 100,
        seconds: 600.0,
        warm_up: 0.0,
        ..Spec::default()
    };
    change(&mut spec);
    let outcome = generator::run(&spec, &Progress::default()).unwrap();
    assert_eq!(outcome.failure, None, "{pattern}");
    let seen = [one.1, other.1].map(|asked| asked.lock().unwrap().clone());
    (seen, outcome.record.gets.requests)
}

#[test]
fn a_hot_key_loads_only_its_server() {
    for change in [(|_| {}) as fn(&mut Spec), |spec| spec.pipeline = 8, |spec| spec.reconnect = 3] {
        let ([one, other], answered) = asked("hot:1", change);
        assert_eq!((one.len(), one.values().sum(), other.len()), (1, 1000_u64, 0), "{one:?}");
        assert_eq!(answered, 1000);
    }
}

#[test]
fn a_sequence_asks_for_each_key_once() {
    let (seen, answered) = asked("sequential", |spec| spec.pipeline = 4);
    for one in &seen {
        assert_eq!((one.len(), one.values().sum()), (500, 500_u64));
    }
    assert_eq!(answered, 1000);
}

#[test]
fn the_server_of_the_most_popular_key_has_its_share() {
    // The first of 1000 keys has 61 % of the draws; the other servers' keys share the rest.
    let ([one, other], _) = asked("zipf:2", |_| {});
    let (one, other): (u64, u64) = (one.values().sum(), other.values().sum());
    assert!(one.max(other) >= 560 && one + other == 1000, "{one} and {other}");
}
