//! A server with occasional faulty answers: another key, another length, too late, twice, too
//! large, or with an extra line.
//!
//! The true value of a key is its [`value_of`], so that a reader knows the key of a value. It uses
//! text, or the binary protocol for a client that starts with that.
//!
//! The counters are stored with SeqCst by the serving threads; their partners are the loads in the
//! test, which must see a silence before the bytes that follow it.

mod packets;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The fault of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The value of another key, under that key's name.
    WrongKey,
    /// A length that is shorter than the value.
    TooShort,
    /// A length that is longer than the value.
    TooLong,
    /// After `patience`, which exceeds every client's timeout.
    Late,
    /// The answer, and an unsolicited one.
    Unsolicited,
    /// A value of 2 GiB is announced.
    Oversized,
    /// The answer and an additional line; as a packet, the answer twice.
    ExtraLine,
    /// The answer of another command.
    WrongKind,
    /// Bytes outside the protocol.
    Garbage,
    /// Half of the answer, then the end.
    Cut,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::WrongKey,
        Self::TooShort,
        Self::TooLong,
        Self::Late,
        Self::Unsolicited,
        Self::Oversized,
        Self::ExtraLine,
        Self::WrongKind,
        Self::Garbage,
        Self::Cut,
    ];
}

/// The value of `key` at every honest server.
#[must_use]
pub fn value_of(key: &str) -> String {
    format!("value-of-{key}")
}

/// The server. It stops accepting when it is dropped.
#[derive(Debug)]
pub struct FaultyServer {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    faults: Vec<Fault>,
    one_in: usize,
    patience: Duration,
    lines: AtomicUsize,
    count: AtomicUsize,
    silences: AtomicU64,
    is_ending: AtomicBool,
}

impl Shared {
    /// The fault of the next answer; none if it is to be correct.
    fn next_fault(&self) -> Option<Fault> {
        // SeqCst: partners of both additions are those of other connections, and the load in
        // `faults`.
        let number = self.lines.fetch_add(1, Ordering::SeqCst) + 1;
        if self.faults.is_empty() || !number.is_multiple_of(self.one_in) {
            return None;
        }
        let turn = self.count.fetch_add(1, Ordering::SeqCst);
        Some(self.faults[turn % self.faults.len()])
    }
}

impl FaultyServer {
    /// Answers gets; every `one_in`th line (or packet) gets one of `faults`, in turn.
    #[must_use]
    pub fn start(faults: &[Fault], one_in: usize, patience: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            faults: faults.to_vec(),
            one_in,
            patience,
            lines: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            silences: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // SeqCst: partner of the store in `drop`.
                if theirs.is_ending.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&theirs);
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { addr, shared }
    }

    /// Answers every get with its value.
    #[must_use]
    pub fn honest() -> Self {
        Self::start(&[], usize::MAX, Duration::ZERO)
    }

    /// The address for clients.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The number of faulty answers so far.
    #[must_use]
    pub fn faults(&self) -> usize {
        // SeqCst: partner of the addition in `next_fault`.
        self.shared.count.load(Ordering::SeqCst)
    }

    /// The number of faults so far after which a client can only wait. Counted before any byte is
    /// sent.
    #[must_use]
    pub fn silences(&self) -> u64 {
        // SeqCst: partner of the additions by the serving threads.
        self.shared.silences.load(Ordering::SeqCst)
    }
}

impl Drop for FaultyServer {
    fn drop(&mut self) {
        // SeqCst: partner of the load in the accepting thread.
        self.shared.is_ending.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.addr));
    }
}

/// Serves one connection, until it ends or a fault ends it.
fn serve(mut stream: TcpStream, shared: &Shared) {
    // Answers of one turn leave at once, as from a real server.
    stream.set_nodelay(true).unwrap();
    let Ok(reader) = stream.try_clone() else { return };
    let mut lines = BufReader::new(reader);
    if lines.fill_buf().is_ok_and(|begin| begin.first() == Some(&packets::REQUEST)) {
        return packets::serve(&mut stream, &mut lines, shared);
    }
    let (mut out, mut line) = (Vec::new(), String::new());
    loop {
        if lines.buffer().is_empty() && !out.is_empty() {
            if stream.write_all(&out).is_err() {
                return;
            }
            out.clear();
        }
        line.clear();
        if !matches!(lines.read_line(&mut line), Ok(1..)) {
            return;
        }
        let line = line.trim_end();
        let Some(keys) = line.strip_prefix("get ") else {
            out.extend_from_slice(b"VERSION faulty\r\n");
            continue;
        };
        let honest: String = keys.split(' ').map(value).chain(["END\r\n".to_owned()]).collect();
        let Some(fault) = shared.next_fault() else {
            out.extend_from_slice(honest.as_bytes());
            continue;
        };
        if matches!(fault, Fault::Late | Fault::TooLong) {
            // SeqCst: partner of the load in `silences`.
            shared.silences.fetch_add(1, Ordering::SeqCst);
        }
        let key = keys.split(' ').next().unwrap_or_default();
        if fault == Fault::Late {
            let _ = stream.write_all(&out);
            out.clear();
            thread::sleep(shared.patience);
        }
        out.extend_from_slice(faulty_reply(fault, key, &honest).as_bytes());
        if fault == Fault::Cut {
            let _ = stream.write_all(&out);
            return;
        }
    }
}

/// The faulty answer.
fn faulty_reply(fault: Fault, key: &str, honest: &str) -> String {
    let len = value_of(key).len();
    match fault {
        Fault::WrongKey => format!("{}END\r\n", value(&format!("{key}x"))),
        Fault::TooShort => format!("VALUE {key} 0 {}\r\n{}\r\nEND\r\n", len - 1, value_of(key)),
        Fault::TooLong => format!("VALUE {key} 0 {}\r\n{}\r\nEND\r\n", len + 7, value_of(key)),
        Fault::Late => honest.to_owned(),
        Fault::Unsolicited => format!("{honest}{}END\r\n", value("stolen")),
        Fault::Oversized => format!("VALUE {key} 0 2147483647\r\n{}\r\nEND\r\n", value_of(key)),
        Fault::ExtraLine => format!("{honest}STORED\r\n"),
        Fault::WrongKind => "STORED\r\n".to_owned(),
        Fault::Garbage => "\u{1}\u{2}garbage\r\n".to_owned(),
        Fault::Cut => honest.get(..honest.len() / 2).unwrap_or_default().to_owned(),
    }
}

fn value(key: &str) -> String {
    let value = value_of(key);
    format!("VALUE {key} 0 {}\r\n{value}\r\n", value.len())
}
