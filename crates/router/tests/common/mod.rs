//! A proxy in the test's own process.
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
use std::time::{Duration, Instant};

use router::options::{Options, Parser};

/// A proxy in a thread of this test, which ends with the test's process, and looks at its files all
/// the time; an error, if it does not start.
pub fn proxy(more: &[&str]) -> Result<SocketAddr, String> {
    told_proxy(more, |line| println!("{line}"))
}

/// The same, whose lines for people are told to `tell`.
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

/// One request, and what comes within its reply's first read.
pub fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = [0; 4096];
    let len = stream.read(&mut reply).unwrap();
    String::from_utf8_lossy(&reply[..len]).into_owned()
}

/// The answer to `stats` with these words, whole.
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

#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
