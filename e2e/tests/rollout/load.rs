//! Clients that send requests while servers are restarted: raw ones, and unchanged libraries.
//!
//! A raw client behaves like a client library: if a connection closes before any byte of the reply,
//! it reconnects and sends the request again, once. Everything else is a failure: a refused
//! connection, a partial or wrong reply, or no reply. The programs of `e2e/clients` apply the same
//! rule to their libraries.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use e2e::clients::Restarted;
use processes::ChildGuard;
use testkit::eventually;

use super::place::SOON;

/// A request with a long reply, so that a connection closed in the middle is detected.
const REQUEST: &[u8] = b"get k k k k\r\n";

/// The size of each value, which consists of `v`s, here and in `e2e/clients`.
const VALUE_BYTES: usize = 20_000;

/// Requests of each client between two restarts.
const REQUESTS: u64 = 100;

fn reply() -> Vec<u8> {
    let value = vec![b'v'; VALUE_BYTES];
    let one = [format!("VALUE k 0 {VALUE_BYTES}\r\n").as_bytes(), &value, b"\r\n"].concat();
    [one.repeat(4), b"END\r\n".to_vec()].concat()
}

/// Stores the requested values.
pub(super) fn fill(place: SocketAddr) {
    let value = vec![b'v'; VALUE_BYTES];
    let header = format!("set k 0 0 {VALUE_BYTES}\r\n");
    let request = [header.as_bytes(), &value, b"\r\n"].concat();
    testkit::Wire::connect(place).expect(&request, b"STORED\r\n");
}

pub(super) fn connect_to(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection is refused");
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends the request over one connection. `None`: it was closed before any byte of the reply.
fn ask(stream: &mut TcpStream, reply: &[u8]) -> Option<()> {
    stream.write_all(REQUEST).ok()?;
    let (mut got, mut len) = (vec![0; reply.len()], 0);
    while len < reply.len() {
        match stream.read(&mut got[len..]) {
            Ok(0) if len == 0 => return None,
            Ok(0) => panic!("a reply broke off after {len} bytes"),
            Ok(read) => len += read,
            Err(error) if len == 0 && error.kind() == ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("after {len} bytes of a reply: {error}"),
        }
    }
    assert!(got == reply, "a wrong reply");
    Some(())
}

/// Sends one request over a new connection.
pub(super) fn ask_once(address: SocketAddr) {
    assert_eq!(ask(&mut connect_to(address), &reply()), Some(()));
}

/// Counters of the raw clients.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    /// Connections that were closed and reopened.
    reconnects: AtomicU64,
}

/// Sends requests until `is_over`, over connections that `connect` makes.
fn client(connect: &dyn Fn() -> TcpStream, counts: &Counts, is_over: &AtomicBool) {
    let reply = reply();
    let mut stream = connect();
    // Relaxed, here and below: numbers and a flag that order nothing else.
    while !is_over.load(Ordering::Relaxed) {
        if ask(&mut stream, &reply).is_none() {
            counts.reconnects.fetch_add(1, Ordering::Relaxed);
            stream = connect();
            ask(&mut stream, &reply).expect("a new connection was closed, too");
        }
        counts.requests.fetch_add(1, Ordering::Relaxed);
    }
}

/// The program of a library.
struct Library {
    of: Restarted,
    child: ChildGuard,
    /// The program sends requests until this is closed.
    stdin: ChildStdin,
    requests: Arc<AtomicU64>,
    /// Reads its output, and returns the last line.
    reader: thread::JoinHandle<String>,
}

impl Library {
    fn start(of: Restarted, address: SocketAddr) -> Self {
        let mut command = of.command(address);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let output = BufReader::new(stdout);
        let requests = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&requests);
        let reader = thread::spawn(move || {
            let mut last = String::new();
            for line in output.lines().map_while(Result::ok) {
                counted.fetch_add(line.parse().unwrap_or(0), Ordering::Relaxed);
                last = line;
            }
            last
        });
        Self { of, child: child.into(), stdin, requests, reader }
    }

    fn has_ended(&self) -> bool {
        self.reader.is_finished()
    }

    /// Ends it normally; it must not have seen a failure.
    #[allow(clippy::print_stdout, reason = "the figures of a run")]
    fn end(mut self) {
        drop(self.stdin);
        let last = self.reader.join().unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success() && last.contains(" requests, "), "{:?}: {last}", self.of);
        println!("{last}");
    }
}

/// Ends the raw clients, even if the test panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Raw clients send requests over connections that `connect` makes, and libraries to `address`,
/// while `change` runs `changes` times. A failed client fails the test. Returns the number of times
/// that raw clients reconnected.
pub(super) fn under_load(
    changes: usize,
    address: Option<SocketAddr>,
    connect: &(dyn Fn() -> TcpStream + Sync),
    mut change: impl FnMut(usize),
) -> u64 {
    let (counts, is_over) = (Counts::default(), AtomicBool::new(false));
    let start = |of: &Restarted| address.map(|address| Library::start(*of, address));
    let libraries: Vec<Library> = Restarted::ALL.iter().filter_map(start).collect();
    thread::scope(|scope| {
        let _over = Over(&is_over);
        let ask = || client(connect, &counts, &is_over);
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        let has_failed = || {
            clients.iter().any(thread::ScopedJoinHandle::is_finished)
                || libraries.iter().any(Library::has_ended)
        };
        let counters = || {
            let of_libraries = libraries.iter().map(|library| &*library.requests);
            of_libraries.chain([&counts.requests]).collect::<Vec<_>>()
        };
        let all_asked = |before: &[u64]| {
            let mut both = counters().into_iter().zip(before);
            both.all(|(now, before)| now.load(Ordering::Relaxed) >= before + REQUESTS)
        };
        let now = || -> Vec<u64> {
            counters().iter().map(|counter| counter.load(Ordering::Relaxed)).collect()
        };
        eventually("the first requests", || has_failed() || all_asked(&vec![0; now().len()]));
        for round in 0..changes {
            if has_failed() {
                break;
            }
            let before = now();
            change(round);
            eventually("requests", || has_failed() || all_asked(&before));
        }
    });
    libraries.into_iter().for_each(Library::end);
    counts.reconnects.into_inner()
}
