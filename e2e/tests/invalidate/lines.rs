//! Changes sent as lines by another program, over a connection that breaks.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use e2e::invalidator::Invalidator;
use testkit::Server;
use testkit::process::free_port;

use crate::harness::{cache, fill, until_absent};

const KEYS: [&str; 5] = ["user:1", "user:2", "user:3", "user:4", "user:5"];

/// A sender's connection, and the position at which it must resume.
fn connect(address: SocketAddr) -> (BufReader<TcpStream>, String) {
    let end = Instant::now() + Duration::from_secs(30);
    let stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        thread::sleep(Duration::from_millis(10));
    };
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    (stream, line.trim().to_owned())
}

/// An invalidator that listens for a sender, and a server with all keys.
fn listening() -> (SocketAddr, Server, Invalidator) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let source = format!("kind = \"ndjson\"\nlisten = \"{address}\"");
    let server = cache();
    let mut invalidator = Invalidator::new(&source, "", &[server.addr()], "");
    fill(&server, &KEYS);
    invalidator.spawn(&[]);
    (address, server, invalidator)
}

fn send(sender: &mut BufReader<TcpStream>, text: &str) {
    sender.get_mut().write_all(text.as_bytes()).unwrap();
}

/// Reads replies until this one arrives.
fn until_answered(sender: &mut BufReader<TcpStream>, answer: &str) {
    let mut line = String::new();
    while line.trim() != answer {
        line.clear();
        assert!(sender.read_line(&mut line).unwrap() > 0, "it closed the connection");
    }
}

#[test]
fn a_disconnected_sender_resumes_without_loss() {
    let (address, server, mut invalidator) = listening();
    let (mut sender, resume) = connect(address);
    assert_eq!(resume, r#"{"resume":null}"#);
    send(&mut sender, "{\"keys\":[\"user:1\"],\"position\":\"1\"}\n");
    until_answered(&mut sender, r#"{"delivered":"1"}"#);
    until_absent(&server, &KEYS, &KEYS[..1], &invalidator);
    // A partial line is neither a change nor a gap: the sender sends it again.
    send(&mut sender, "{\"keys\":[\"user:2\"],\"position\":\"2\"}\n{\"keys\":[\"user:3\"");
    until_answered(&mut sender, r#"{"delivered":"2"}"#);
    drop(sender);
    let (mut sender, resume) = connect(address);
    assert_eq!(resume, r#"{"resume":"2"}"#);
    send(&mut sender, "{\"keys\":[\"user:3\"],\"position\":\"3\"}\n");
    until_absent(&server, &KEYS, &KEYS[..3], &invalidator);
    until_answered(&mut sender, r#"{"delivered":"3"}"#);
    invalidator.kill();
    invalidator.spawn(&[]);
    let (mut sender, resume) = connect(address);
    assert_eq!(resume, r#"{"resume":"3"}"#);
    send(&mut sender, "{\"keys\":[\"user:4\"],\"position\":\"4\"}\n");
    until_absent(&server, &KEYS, &KEYS[..4], &invalidator);
    assert_eq!(invalidator.stat("gaps"), Some(0));
    send(&mut sender, "{\"key\":[\"user:5\"]}\n");
    let said = invalidator.ended();
    assert!(said.contains("unknown field `key`"), "{said}");
}

#[test]
fn changes_of_a_sender_that_closes_at_once_are_delivered() {
    let (address, server, invalidator) = listening();
    // The first line comes before there is a checkpoint; the last one names no position.
    for (at, line) in [
        "{\"keys\":[\"user:1\"],\"position\":\"1\"}\n",
        "{\"keys\":[\"user:2\"],\"position\":\"2\"}\n",
        "{\"keys\":[\"user:3\"]}\n",
    ]
    .into_iter()
    .enumerate()
    {
        let (mut sender, _) = connect(address);
        send(&mut sender, line);
        drop(sender);
        until_absent(&server, &KEYS, &KEYS[..=at], &invalidator);
    }
}

#[test]
fn the_age_of_a_line_without_a_time_starts_at_its_arrival() {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let source = format!("kind = \"ndjson\"\nlisten = \"{address}\"");
    // No server listens there.
    let away = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut invalidator = Invalidator::new(&source, "", &[away], "");
    invalidator.spawn(&[]);
    let (mut sender, _) = connect(address);
    invalidator.until("source_connected", |is_connected| is_connected == 1);
    invalidator.until("cluster:c0:lag_ms", |lag| lag == 0);
    send(&mut sender, "{\"keys\":[\"user:1\"],\"position\":\"1\"}\n");
    invalidator.until("cluster:c0:lag_ms", |lag| lag > 1000);
}

#[test]
fn an_unreadable_line_flushes_if_gaps_do() {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let source = format!("kind = \"debezium\"\nlisten = \"{address}\"");
    let keys = "[keys.tables]\n\"shop.users\" = \"user:{id}\"";
    let server = cache();
    let flush = "[delivery]\non_gap = \"flush\"";
    let mut invalidator = Invalidator::new(&source, keys, &[server.addr()], flush);
    fill(&server, &KEYS);
    invalidator.spawn(&[]);
    let (mut sender, _) = connect(address);
    send(&mut sender, "{\"op\":\"u\"\n");
    until_absent(&server, &KEYS, &KEYS, &invalidator);
    invalidator.until("gaps", |gaps| gaps == 1);
}
