//! A proxy in this process whose allocator refuses the k-th allocation of a session, for every k,
//! and every one from the k-th on: it closes connections, and serves afterwards.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use reserve::{Allocator, Failing, Outcome, exempt_thread, failing_from};
use router::options::{Options, Parser};
use testkit::Server;

#[global_allocator]
static ALLOCATOR: Allocator<Failing> = Allocator::new(Failing);

/// A proxy that runs until the process ends.
fn start(server: SocketAddr) -> SocketAddr {
    let config =
        format!(r#"{{"pools": {{"A": {{"servers": ["{server}"]}}}}, "route": "PoolRoute|A"}}"#);
    let words =
        ["holdall route", "--config-str", &config, "-p", "0", "-t", "60000", "--asynclog-disable"];
    let options = Options::try_parse_from(words).unwrap();
    let (tell, hear) = mpsc::channel();
    thread::spawn(move || {
        let started = move |control: &net::Control| {
            tell.send(control.tcp_addresses().next().unwrap()).unwrap();
        };
        router::run::run(options, |_| {}, started).unwrap();
    });
    hear.recv_timeout(Duration::from_secs(60)).unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Reads until `count` lines that end a reply, or until the connection ends.
fn ask(stream: &mut TcpStream, request: &[u8], reply: &[u8]) -> Vec<u8> {
    // The proxy may have closed; the reply shows that.
    let _ = stream.write_all(request);
    let (mut got, mut part) = (Vec::new(), [0; 65536]);
    let is_refused = |got: &[u8]| {
        got.windows(12).any(|window| window == b"SERVER_ERROR") && got.ends_with(b"\r\n")
    };
    while got.len() < reply.len() && !is_refused(&got) {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(len) => got.extend_from_slice(&part[..len]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("no answer: {error}"),
        }
    }
    got
}

/// Requests, and their replies if no allocation is refused.
fn session() -> Vec<(Vec<u8>, Vec<u8>)> {
    let value = "v".repeat(20_000);
    let large = "v".repeat(900_000);
    let keys: Vec<String> = (0..30).map(|number| format!("absent{number}")).collect();
    let steps = [
        ("set k 0 0 1\r\nx\r\n".to_owned(), "STORED\r\n".to_owned()),
        ("get k\r\n".into(), "VALUE k 0 1\r\nx\r\nEND\r\n".into()),
        (format!("get k {}\r\n", keys.join(" ")), "VALUE k 0 1\r\nx\r\nEND\r\n".into()),
        (format!("set big 0 0 20000\r\n{value}\r\n"), "STORED\r\n".into()),
        ("get big\r\n".into(), format!("VALUE big 0 20000\r\n{value}\r\nEND\r\n")),
        (format!("set large 0 0 900000\r\n{large}\r\n"), "STORED\r\n".into()),
        (
            "get large\r\nget large\r\n".into(),
            format!("VALUE large 0 900000\r\n{large}\r\nEND\r\n").repeat(2),
        ),
        ("mg k v t\r\nmn\r\n".into(), "VA 1 t-1\r\nx\r\nMN\r\n".into()),
        (
            "set k 0 0 1\r\nx\r\nget k\r\nversion\r\n".into(),
            format!(
                "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\nVERSION {}\r\n",
                proto::COMPATIBLE_VERSION
            ),
        ),
    ];
    steps.map(|(request, reply)| (request.into_bytes(), reply.into_bytes())).to_vec()
}

/// Plays the session. A refused request gets an error, or ends its connection; no other reply ever
/// comes.
fn play(address: SocketAddr, steps: &[(Vec<u8>, Vec<u8>)]) {
    let mut stream = connect(address);
    for (request, reply) in steps {
        let got = ask(&mut stream, request, reply);
        if got != *reply {
            let is_refused = got.windows(12).any(|window| window == b"SERVER_ERROR");
            assert!(is_refused || reply.starts_with(&got), "{}", got.escape_ascii());
            stream = connect(address);
        }
    }
}

/// Asserts that the proxy serves as before; closed connections are made again.
fn assert_serves(address: SocketAddr) {
    let (mut stream, end) = (connect(address), Instant::now() + Duration::from_secs(60));
    for number in 0..50 {
        let set = format!("set key{number} 0 0 6\r\n{number:06}\r\n");
        while ask(&mut stream, set.as_bytes(), b"STORED\r\n") != b"STORED\r\n" {
            assert!(Instant::now() < end, "it does not serve");
            stream = connect(address);
        }
    }
}

#[test]
fn no_failed_allocation_ends_the_proxy() {
    let server = Server::memcached(&[]);
    let address = start(server.addr());
    exempt_thread(true);
    let steps = session();
    play(address, &steps);
    let ((), Outcome { asked, .. }) = failing_from(u64::MAX, false, || play(address, &steps));
    assert!(asked > 5, "only {asked} allocations: is the session played?");
    let mut refused = 0;
    for kth in 1..=asked {
        for is_lasting in [false, true] {
            let ((), outcome) = failing_from(kth, is_lasting, || play(address, &steps));
            refused += outcome.refused;
            assert_serves(address);
        }
    }
    eprintln!("{asked} allocations a session, {refused} refused");
    assert!(refused > asked, "{refused} refused of {asked}");
}
