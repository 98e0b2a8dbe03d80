//! A failed allocation that a client causes never ends the server.
//!
//! A server in this process, whose allocator refuses the k-th allocation of a scripted session, for
//! every k, and then every one from the k-th on. After each run the server serves a thousand
//! operations. Then crowds of connections come while every allocation is refused. The allocator's
//! reserve serves small blocks; larger ones are refused to the client.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use options::{Environment, Invocation, Style};
use reserve::{Allocator, Failing, Outcome, exempt_thread, failing_from};

#[global_allocator]
static ALLOCATOR: Allocator<Failing> = Allocator::new(Failing);

/// Values that are chained, and that a client appends to.
const LARGE: usize = 200_000;

/// A server on a free port, which runs until the process ends.
fn start() -> u16 {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let line =
        format!("-l 127.0.0.1 -p {port} -U 0 -t 1 -m 64 -I 4m -c 10000 -u root -o no_sampling");
    let arguments = line.split(' ').map(OsString::from);
    let environment = Environment { cpus: 1, port_file: None, ..Environment::default() };
    let parsed = options::parse(Style::Holdall, arguments, &environment).unwrap();
    let Invocation::Run { options, .. } = parsed else { panic!("a server was asked for") };
    thread::spawn(move || server::run::run(*options).unwrap());
    for _ in 0..500 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return port;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the server does not listen");
}

/// A client's side; its own allocations never fail.
struct Client {
    stream: TcpStream,
    reply: Vec<u8>,
}

impl Client {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, reply: Vec::new() }
    }

    /// The received bytes until `is_whole` or the connection's end.
    fn ask(&mut self, request: &[u8], is_whole: impl Fn(&[u8]) -> bool) -> &[u8] {
        self.reply.clear();
        // The server may have closed: the reply shows it.
        let _ = self.stream.write_all(request);
        let mut part = [0; 65536];
        while !is_whole(&self.reply) {
            match self.stream.read(&mut part) {
                Ok(0) => break,
                Ok(len) => self.reply.extend_from_slice(&part[..len]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(error) => panic!("no answer: {error}"),
            }
        }
        &self.reply
    }
}

/// A request of the session, and its reply without refused allocations.
struct Step {
    request: Vec<u8>,
    reply: Vec<u8>,
}

fn step(request: impl Into<Vec<u8>>, reply: impl Into<Vec<u8>>) -> Step {
    Step { request: request.into(), reply: reply.into() }
}

/// Every way in which a client makes the server allocate: replies of all sizes, values that arrive
/// in parts, appended ones, binary, meta.
fn session() -> Vec<Step> {
    let large = vec![b'v'; LARGE];
    let stored = |command: &str, value: &[u8]| {
        [format!("{command} large 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
    };
    let header = format!("VALUE large 0 {}\r\n", LARGE + 5000);
    let got = [header.as_bytes(), &large, &[b'a'; 5000], b"\r\nEND\r\n"].concat();
    let pipelined = "get small\r\n".repeat(3000);
    let pipelined_reply = "VALUE small 0 5\r\nhello\r\nEND\r\n".repeat(3000);
    let keys = " small".repeat(500);
    let many = "VALUE small 0 5\r\nhello\r\n".repeat(500);
    let mut binary_get = vec![0x80, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 5];
    binary_get.resize(24, 0);
    binary_get.extend_from_slice(b"small");
    vec![
        step("set small 0 0 5\r\nhello\r\n", "STORED\r\n"),
        step(stored("set", &large), "STORED\r\n"),
        step(stored("append", &[b'a'; 5000]), "STORED\r\n"),
        step("get large\r\n", got),
        step(pipelined, pipelined_reply),
        step(format!("get{keys}\r\n"), format!("{many}END\r\n")),
        step("mg small k v f\r\n", "VA 5 ksmall f0\r\nhello\r\n"),
        step("ms meta 3 c\r\nabc\r\n", ""),
        step("delete small 0\r\nset small 0 0 5\r\nhello\r\n", "DELETED\r\nSTORED\r\n"),
        step("lru_crawler metadump all\r\n", ""),
        step("stats\r\n", ""),
        step("stats items\r\n", ""),
        step("watch evictions\r\n", "OK\r\n"),
        step(binary_get, ""),
    ]
}

/// Plays the session. A refused request gets an error as its reply, or ends its connection; it
/// never gets the reply to another request.
fn play(port: u16, steps: &[Step]) {
    let mut client = Client::connect(port);
    for (nth, step) in steps.iter().enumerate() {
        // A watcher gets no replies, and a connection's protocol never changes.
        if nth + 2 > steps.len() - 1 {
            client = Client::connect(port);
        }
        let is_open_ended = step.reply.is_empty();
        let is_whole = |reply: &[u8]| match is_open_ended {
            true if step.request[0] == 0x80 => reply.len() >= 24 + 4 + 5,
            true => reply.ends_with(b"END\r\n") || reply.starts_with(b"HD") && reply.len() > 3,
            false => reply.len() >= step.reply.len(),
        };
        let is_refused = |reply: &[u8]| {
            reply.windows(12).any(|window| window == b"SERVER_ERROR") && reply.ends_with(b"\r\n")
        };
        let reply = client.ask(&step.request, |reply| is_whole(reply) || is_refused(reply));
        if is_refused(reply) || reply.is_empty() {
            client = Client::connect(port);
        } else if !is_open_ended && reply != step.reply {
            assert!(step.reply.starts_with(reply), "step {nth}: another reply came");
            client = Client::connect(port);
        }
    }
}

/// The server works as before.
fn assert_serves(port: u16, operations: usize) {
    let mut client = Client::connect(port);
    for nth in 0..operations / 2 {
        let set = format!("set key{} 0 0 6\r\n{nth:06}\r\n", nth % 50);
        assert_eq!(client.ask(set.as_bytes(), |reply| reply.len() >= 8), b"STORED\r\n");
        let get = format!("get key{}\r\n", nth % 50);
        let want = format!("VALUE key{} 0 6\r\n{nth:06}\r\nEND\r\n", nth % 50);
        assert_eq!(client.ask(get.as_bytes(), |reply| reply.len() >= want.len()), want.as_bytes());
    }
}

/// Connections that come and stay while the system gives no memory, each with `sent`. The last one
/// is served or closed, so the server has seen all before it.
fn crowd(port: u16, connections: usize, sent: &[u8]) -> usize {
    let mut crowd = Vec::new();
    for _ in 0..connections {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        // It may already be closed.
        let _ = stream.write_all(sent);
        crowd.push(stream);
    }
    let mut last = Client::connect(port);
    last.ask(b"version\r\n", |reply| reply.ends_with(b"\r\n"));
    crowd.len()
}

/// Waits until the server has noticed that the crowd is gone, and has its memory back.
fn wait_for_memory(port: u16) {
    for _ in 0..500 {
        let mut client = Client::connect(port);
        let reply = client.ask(b"version\r\n", |reply| reply.ends_with(b"\r\n"));
        if reply.starts_with(b"VERSION") {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the server has no memory after the crowd has gone");
}

/// A crowd costs late clients their connections, but never ends the server.
fn assert_survives_crowds(port: u16) {
    let half = [b"set half 0 0 300\r\n".as_slice(), &[b'h'; 250]].concat();
    let unread = format!("get{}\r\n", " mid".repeat(400));
    let mut client = Client::connect(port);
    let set = [b"set mid 0 0 15000\r\n".as_slice(), &[b'm'; 15000], b"\r\n"].concat();
    assert_eq!(client.ask(&set, |reply| reply.len() >= 8), b"STORED\r\n");
    drop(client);
    for sent in [b"".as_slice(), &half, unread.as_bytes()] {
        let (came, outcome) = failing_from(1, true, || crowd(port, 3000, sent));
        assert!(came > 2500 && outcome.refused > 0, "{came} came");
        wait_for_memory(port);
        assert_serves(port, 1000);
    }
}

#[test]
fn no_failed_allocation_ends_the_server() {
    let port = start();
    exempt_thread(true);
    let steps = session();
    play(port, &steps);
    let never = u64::MAX;
    let ((), Outcome { asked, .. }) = failing_from(never, false, || play(port, &steps));
    assert!(asked > 20, "only {asked} allocations: is the session played?");
    let mut refused = 0;
    for kth in 1..=asked {
        for is_lasting in [false, true] {
            let ((), outcome) = failing_from(kth, is_lasting, || play(port, &steps));
            refused += outcome.refused;
            let operations = if is_lasting { 1000 } else { 100 };
            assert_serves(port, operations);
        }
    }
    eprintln!("{asked} allocations a session, {refused} refused");
    assert!(refused > asked, "{refused} refused of {asked}");
    assert_survives_crowds(port);
}
