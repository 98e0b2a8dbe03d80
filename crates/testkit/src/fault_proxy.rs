//! A TCP proxy in front of a server, which fails on request of a test: refused connections, a black
//! hole, resets, slowness.
//!
//! It has a separate port and passes bytes on to the server's. The server keeps running with its
//! items, so a test can connect to it directly and see the bytes that arrived.
//!
//! Two other relays have other uses, and none could replace the others:
//!
//! * `demo::link` models a wide-area link. The delay of a piece does not hold up the next, and a
//!   cut loses nothing, which takes a task and a queue for each direction. It belongs to a
//!   published program, which uses no test support, and this crate has no runtime for it.
//! * `e2e/tests/invalidate/cut.rs` reads the packets of a database and changes one of them.
//!
//! This one refuses and resets connections, and a change is in force when [`FaultProxy::set`]
//! returns.
//!
//! `set` and `drop` write `epoch` and `is_ending` with SeqCst, and the accepting and passing
//! threads read them likewise: speed does not matter here, and a single total order is the easiest
//! to reason about.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt;

use crate::process::free_port;

/// The interval at which threads check the mode.
const TICK: Duration = Duration::from_millis(2);

/// The behaviour of a proxy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Passes everything on.
    Open,
    /// Passes everything on, each piece of a reply after this delay.
    Slow(Duration),
    /// Passes requests on, and keeps replies until the mode changes.
    Held,
    /// Accepts connections and bytes, and passes nothing on.
    BlackHole,
    /// Resets new connections.
    Reset,
    /// Does not listen, and closes existing connections.
    Refuse,
}

#[derive(Debug)]
struct State {
    mode: Mutex<Mode>,
    /// Its increase closes connections made before.
    epoch: AtomicU64,
    is_ending: AtomicBool,
}

/// A proxy in front of one server. Its threads end with it.
#[derive(Debug)]
pub struct FaultProxy {
    addr: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// An open proxy in front of `server`.
    #[must_use]
    pub fn before(server: SocketAddr) -> Self {
        // A port that the system gives to no connection while this proxy refuses. Another process
        // may take it first.
        let bound = (0..100).find_map(|_| {
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
            TcpListener::bind(addr).ok().map(|listener| (addr, listener))
        });
        let (addr, listener) = bound.expect("a free port");
        Self::start(addr, listener, server)
    }

    /// An open proxy at `addr`, for a client that knows the server by the same port at another
    /// address of this host.
    #[must_use]
    pub fn at(addr: SocketAddr, server: SocketAddr) -> Self {
        Self::start(addr, TcpListener::bind(addr).expect("a free address"), server)
    }

    fn start(addr: SocketAddr, listener: TcpListener, server: SocketAddr) -> Self {
        let state = Arc::new(State {
            mode: Mutex::new(Mode::Open),
            epoch: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&state);
        let thread = thread::spawn(move || accept(listener, addr, server, &theirs));
        Self { addr, state, thread: Some(thread) }
    }

    /// The address for clients.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the mode; it is in force when this returns. [`Mode::Reset`] and [`Mode::Refuse`] end
    /// every connection.
    pub fn set(&self, mode: Mode) {
        *self.state.mode.lock().unwrap() = mode;
        if matches!(mode, Mode::Reset | Mode::Refuse) {
            // SeqCst: partner of the loads in `is_over` and `accept`.
            self.state.epoch.fetch_add(1, Ordering::SeqCst);
        }
        while (TcpStream::connect(self.addr).is_err()) != (mode == Mode::Refuse) {
            thread::sleep(TICK);
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        // SeqCst: partner of the loads in `is_over` and `accept`.
        self.state.is_ending.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl State {
    fn mode(&self) -> Mode {
        *self.mode.lock().unwrap()
    }

    fn is_over(&self, epoch: u64) -> bool {
        // SeqCst: partner of the store in `drop` and of the addition in `set`.
        self.is_ending.load(Ordering::SeqCst) || self.epoch.load(Ordering::SeqCst) != epoch
    }
}

fn accept(first: TcpListener, addr: SocketAddr, server: SocketAddr, state: &Arc<State>) {
    let mut listener = Some(first);
    // SeqCst: partner of the store in `drop`.
    while !state.is_ending.load(Ordering::SeqCst) {
        let mode = state.mode();
        if mode == Mode::Refuse {
            listener = None;
            thread::sleep(TICK);
            continue;
        }
        let open = listener.get_or_insert_with(|| {
            TcpListener::bind(addr).expect("the proxy's own port, which was free a moment ago")
        });
        open.set_nonblocking(true).unwrap();
        let Ok((client, _)) = open.accept() else {
            thread::sleep(TICK);
            continue;
        };
        if mode == Mode::Reset {
            // The kernel answers with RST instead of FIN.
            sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
            continue;
        }
        let Ok(upstream) = TcpStream::connect(server) else { continue };
        // SeqCst: partner of the addition in `set`.
        let epoch = state.epoch.load(Ordering::SeqCst);
        for (from, to, is_reply) in [(&client, &upstream, false), (&upstream, &client, true)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let state = Arc::clone(state);
            thread::spawn(move || pass(from, to, is_reply, &state, epoch));
        }
    }
}

/// Passes bytes on in one direction.
fn pass(mut from: TcpStream, mut to: TcpStream, is_reply: bool, state: &State, epoch: u64) {
    from.set_nonblocking(false).unwrap();
    to.set_nonblocking(false).unwrap();
    from.set_nodelay(true).unwrap();
    from.set_read_timeout(Some(TICK)).unwrap();
    let mut bytes = vec![0; 64 * 1024];
    while !state.is_over(epoch) {
        match state.mode() {
            Mode::BlackHole => {
                thread::sleep(TICK);
                continue;
            }
            Mode::Slow(delay) if is_reply => thread::sleep(delay),
            Mode::Held | Mode::Open | Mode::Slow(_) | Mode::Reset | Mode::Refuse => {}
        }
        match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(len) => {
                while is_reply && state.mode() == Mode::Held && !state.is_over(epoch) {
                    thread::sleep(TICK);
                }
                if state.is_over(epoch) || to.write_all(&bytes[..len]).is_err() {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => {}
            Err(_) => break,
        }
    }
    if state.is_over(epoch) && state.mode() == Mode::Reset {
        let _ = sockopt::set_socket_linger(&to, Some(Duration::ZERO));
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
