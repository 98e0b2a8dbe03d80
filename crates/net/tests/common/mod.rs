//! A line service behind the loop, and a client in front of it.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use net::{
    BufferBudget, CloseReason, Config, Control, DatagramFate, Flow, Handle, Input, Listen,
    Occupation, Output, Peer, Service, Waker,
};

/// Lines served in one turn before a connection yields.
pub const FAIR_LINES: usize = 10;

/// The state that the tests check from outside.
#[derive(Debug, Default)]
pub struct Seen {
    pub held: AtomicIsize,
    pub closed: Mutex<Vec<CloseReason>>,
    pub moved: AtomicUsize,
    /// Every line served, in order.
    pub lines: Mutex<Vec<String>>,
    pub wakers: Mutex<Vec<Waker>>,
    pub most_in_a_turn: AtomicUsize,
}

impl BufferBudget for Seen {
    fn charge(&self, delta: isize) {
        self.held.fetch_add(delta, Ordering::SeqCst);
    }
}

/// Lines: `echo X` (itself), `big N` (N bytes through the scratch), `through N` (N bytes written
/// through), `slow` (1 ms, then itself), `wait` (nothing until woken), `listen` (itself, and the
/// session listens), `quit`, `die`; a line without end is left unconsumed.
pub struct Lines {
    seen: Arc<Seen>,
    lines_in_turn: usize,
}

#[derive(Default, PartialEq)]
pub struct Session {
    big: usize,
    through: usize,
    waits: bool,
    is_known: bool,
    listens: bool,
}

const PIECE: [u8; 1000] = [b'x'; 1000];

impl Lines {
    fn line(
        &mut self,
        line: &[u8],
        session: &mut Session,
        output: &mut Output<'_>,
    ) -> Option<Flow> {
        let text = std::str::from_utf8(line).unwrap().trim_end();
        self.seen.lines.lock().unwrap().push(text.to_owned());
        self.lines_in_turn += 1;
        self.seen.most_in_a_turn.fetch_max(self.lines_in_turn, Ordering::SeqCst);
        match text.split_once(' ').unwrap_or((text, "")) {
            ("echo", _) => output.buf().extend_from_slice(line),
            ("login", _) => {
                session.is_known = true;
                output.buf().extend_from_slice(line);
            }
            ("listen", _) => {
                session.listens = true;
                output.buf().extend_from_slice(line);
            }
            ("slow", _) => {
                thread::sleep(Duration::from_millis(1));
                output.buf().extend_from_slice(line);
            }
            ("big", count) => session.big = count.parse().unwrap(),
            ("through", count) => session.through = count.parse().unwrap(),
            ("wait", _) => {
                session.waits = true;
                self.seen.wakers.lock().unwrap().extend(output.waker());
            }
            ("quit", _) => {
                output.buf().extend_from_slice(b"bye\n");
                return Some(Flow::Close);
            }
            _ => return Some(Flow::CloseNow),
        }
        None
    }

    /// Continues a long reply; false when the output is full.
    fn go_on(session: &mut Session, output: &mut Output<'_>) -> bool {
        while session.big > 0 {
            if output.is_full() && !output.flush() {
                return false;
            }
            let piece = session.big.min(PIECE.len());
            output.buf().extend_from_slice(&PIECE[..piece]);
            session.big -= piece;
        }
        while session.through > 0 {
            let (half, piece) = PIECE.split_at(session.through.min(PIECE.len()) / 2);
            let piece = &piece[..session.through.min(PIECE.len()) - half.len()];
            let wanted = half.len() + piece.len();
            match output.write_through(&[IoSlice::new(half), IoSlice::new(piece)]) {
                Ok(taken) => {
                    session.through -= taken;
                    if taken < wanted {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }
}

impl Service for Lines {
    type Session = Session;

    fn begin_turn(&mut self, _now: Instant) {
        self.lines_in_turn = 0;
    }

    fn before_park(&mut self) {}

    fn open(&mut self, _peer: &Peer) -> Session {
        Session::default()
    }

    fn serve(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Flow {
        if std::mem::take(&mut session.waits) {
            output.buf().extend_from_slice(b"woken\n");
        }
        for served in 0.. {
            if !Self::go_on(session, output) {
                return Flow::Blocked;
            }
            let Some(end) = input.bytes().iter().position(|&byte| byte == b'\n') else { break };
            if served == FAIR_LINES {
                return Flow::Yield;
            }
            if output.is_full() && !output.flush() {
                return Flow::Blocked;
            }
            let line = &input.bytes()[..=end];
            input.consume(line.len());
            if let Some(flow) = self.line(line, session, output) {
                return flow;
            }
        }
        Flow::NeedInput
    }

    fn datagram(&mut self, _peer: &Peer, request: &[u8], reply: &mut Vec<u8>) -> DatagramFate {
        match std::str::from_utf8(request).unwrap().trim_end().split_once(' ') {
            Some(("big", count)) => {
                // Each byte is the number of its datagram, so that order shows.
                let count: usize = count.parse().unwrap();
                let number = |index| u8::try_from(index / net::DATAGRAM_BYTES).unwrap();
                reply.extend((0..count).map(number));
            }
            Some(("drop", _)) => return DatagramFate::Dropped,
            Some(("mute", _)) => return DatagramFate::TooLong,
            _ => reply.extend_from_slice(request),
        }
        DatagramFate::Replied
    }

    fn is_unauthenticated(&self, session: &Session) -> bool {
        !session.is_known
    }

    fn occupation(&self, session: &Session) -> Occupation {
        if session.listens { Occupation::Listening } else { Occupation::None }
    }

    fn may_move(&self, session: &Session) -> bool {
        *session == Session::default()
    }

    fn moved(&mut self, _session: Session) {
        self.seen.moved.fetch_add(1, Ordering::SeqCst);
    }

    fn close(&mut self, _session: Session, reason: CloseReason) {
        self.seen.closed.lock().unwrap().push(reason);
    }
}

/// A running server; stopped and joined when dropped.
pub struct Running {
    pub control: Control,
    pub seen: Arc<Seen>,
    handle: Option<Handle>,
}

impl Running {
    /// Serves on one ephemeral TCP port of loopback.
    pub fn start(config: &Config) -> Self {
        let tcp = vec!["127.0.0.1:0".parse().unwrap()];
        Self::listen(&Listen { tcp, backlog: 1024, ..Listen::default() }, config)
    }

    pub fn listen(listen: &Listen, config: &Config) -> Self {
        let seen = Arc::new(Seen::default());
        let for_workers = Arc::clone(&seen);
        let budget: Arc<dyn BufferBudget> = Arc::clone(&seen) as Arc<_>;
        let make = move |_, _: &Control| Lines { seen: Arc::clone(&for_workers), lines_in_turn: 0 };
        let handle = net::start(listen.bind().unwrap(), config, budget, make).unwrap();
        Self { control: handle.control().clone(), seen, handle: Some(handle) }
    }

    pub fn address(&self) -> SocketAddr {
        self.control.tcp_addresses().next().unwrap()
    }

    pub fn client(&self) -> Client {
        Client::to(self.address())
    }

    pub fn join(mut self) -> Arc<Seen> {
        self.handle.take().unwrap().join();
        Arc::clone(&self.seen)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.stop();
            handle.join();
        }
    }
}

/// A blocking client that gives up after ten seconds.
pub struct Client(pub TcpStream);

impl Client {
    pub fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self(stream)
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Reads exactly as many bytes as `want` has, and compares.
    #[track_caller]
    pub fn expect(&mut self, want: &[u8]) {
        let mut got = vec![0; want.len()];
        self.0.read_exact(&mut got).unwrap();
        assert_eq!(got.escape_ascii().to_string(), want.escape_ascii().to_string());
    }

    /// All bytes until the server closes.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut got = Vec::new();
        self.0.read_to_end(&mut got).unwrap();
        got
    }
}

/// Waits at most ten seconds until `holds`.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// One worker without effective limits.
pub fn one_worker() -> Config {
    Config { workers: 1, ..Config::default() }
}
