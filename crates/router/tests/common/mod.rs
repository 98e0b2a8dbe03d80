//! A proxy in the test's process.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    dead_code,
    unreachable_pub,
    reason = "a test stops where it fails and tells of the proxy; each uses a part of it"
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use router::options::{Options, Parser};

/// Text requests with their replies, for a client that finds the cache empty.
pub const SESSION: &[(&[u8], &[u8])] = &[
    (b"set a 5 0 3\r\nabc\r\n", b"STORED\r\n"),
    (b"get a\r\n", b"VALUE a 5 3\r\nabc\r\nEND\r\n"),
    (b"set b 0 0 0\r\n\r\nset c 4294967295 0 2\r\n\r\n\r\n", b"STORED\r\nSTORED\r\n"),
    (
        b"get a x b y c a\r\n",
        b"VALUE a 5 3\r\nabc\r\nVALUE b 0 0\r\n\r\nVALUE c 4294967295 2\r\n\r\n\r\nVALUE a 5 3\r\nabc\r\nEND\r\n",
    ),
    (b"add a 0 0 1\r\nx\r\nadd n 0 0 2\r\n10\r\n", b"NOT_STORED\r\nSTORED\r\n"),
    (b"incr n 5\r\ndecr n 1\r\nincr none 1\r\nincr a 1\r\n", b"15\r\n14\r\nNOT_FOUND\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
    (b"append a 0 0 1\r\nd\r\nprepend a 0 0 1\r\n-\r\nget a\r\n", b"STORED\r\nSTORED\r\nVALUE a 5 5\r\n-abcd\r\nEND\r\n"),
    (b"touch a 100\r\ntouch none 1\r\ngat 100 a none\r\n", b"TOUCHED\r\nNOT_FOUND\r\nVALUE a 5 5\r\n-abcd\r\nEND\r\n"),
    (b"set q 0 0 1 noreply\r\nz\r\ndelete b noreply\r\nget q b\r\n", b"VALUE q 0 1\r\nz\r\nEND\r\n"),
    (b"delete q\r\ndelete q\r\n", b"DELETED\r\nNOT_FOUND\r\n"),
    (b"mg a v f k O123\r\nmg none v\r\nmn\r\n", b"VA 5 f5 ka O123\r\n-abcd\r\nEN\r\nMN\r\n"),
    (b"mg none v q\r\nmg a q k\r\nms m 2 q\r\nhi\r\nmd m q\r\nmn\r\n", b"HD ka\r\nMN\r\n"),
    (b"ms m 2 F7 T0\r\nhi\r\nma m\r\nmd none\r\n", b"HD\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nNF\r\n"),
    (b"ms bQ== 2 b\r\nhi\r\nmg bQ== b k v\r\n", b"HD\r\nVA 2 kbQ== b\r\nhi\r\n"),
    (b"nonsense\r\nget\r\nset k x 0 1\r\nz\r\n", b"ERROR\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n"),
    (b"version\r\nversion noreply\r\n", b"VERSION 1.6.45\r\nVERSION 1.6.45\r\n"),
    (b"verbosity\r\nverbosity x y\r\nverbosity noreply\r\nverbosity 1\r\n", b"CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nOK\r\n"),
    (b"flush_all\r\nflush_prefix a\r\n", b"SERVER_ERROR Command disabled\r\nSERVER_ERROR Command disabled\r\n"),
];

/// A proxy in a thread of this test, which ends with the test's process, and checks its files
/// continuously; an error, if it does not start.
pub fn proxy(more: &[&str]) -> Result<SocketAddr, String> {
    told_proxy(more, |line| println!("{line}"))
}

/// The same, with its log lines passed to `tell`.
pub fn told_proxy(
    more: &[&str],
    tell_line: impl Fn(&str) + Send + Sync + 'static,
) -> Result<SocketAddr, String> {
    let fixed = [
        "holdall route",
        "-p",
        "0",
        "-t",
        "60000",
        "--file-observer-poll-period-ms",
        "5",
        "--asynclog-disable",
    ];
    let options = Options::try_parse_from(fixed.iter().chain(more)).unwrap();
    let (tell, hear) = mpsc::channel();
    let told = tell.clone();
    thread::spawn(move || {
        let started = move |control: &net::Control| {
            tell.send(Ok(control.tcp_addresses().next().unwrap())).unwrap();
        };
        if let Err(failure) = router::run::run(options, tell_line, started) {
            let _ = told.send(Err(failure.message));
        }
    });
    hear.recv_timeout(Duration::from_secs(20)).unwrap()
}

/// Sends one request, and returns the reply's first read.
pub fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = [0; 4096];
    let len = stream.read(&mut reply).unwrap();
    String::from_utf8_lossy(&reply[..len]).into_owned()
}

/// The whole answer to `stats` with these words.
pub fn stats(address: SocketAddr, words: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(format!("stats {words}\r\n").as_bytes()).unwrap();
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    while !text.ends_with(b"END\r\n") {
        let len = stream.read(&mut part).unwrap();
        assert!(len > 0, "the proxy hangs up");
        text.extend_from_slice(&part[..len]);
    }
    String::from_utf8(text).unwrap()
}

/// A number of `stats`.
pub fn stat(address: SocketAddr, name: &str) -> u64 {
    let lines = stats(address, "");
    let line = lines.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {lines}")).parse().unwrap()
}

/// A packet of the binary protocol.
#[must_use]
pub fn packet(opcode: u8, key: &[u8], extras: &[u8], value: &[u8], cas: u64) -> Vec<u8> {
    let mut packet = vec![0x80, opcode];
    packet.extend_from_slice(&u16::try_from(key.len()).unwrap().to_be_bytes());
    packet.extend_from_slice(&[u8::try_from(extras.len()).unwrap(), 0, 0, 0]);
    let body = u32::try_from(key.len() + extras.len() + value.len()).unwrap();
    packet.extend_from_slice(&body.to_be_bytes());
    packet.extend_from_slice(b"opaq");
    packet.extend_from_slice(&cas.to_be_bytes());
    [&packet[..], extras, key, value].concat()
}
