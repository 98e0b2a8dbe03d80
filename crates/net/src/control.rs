//! Access to the running loops from other threads: counters, connections, and shutdown.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::io::send_slices;
use crate::mailbox::{EventFd, Mailbox, Message};
use crate::peer::{ListenAddress, Peer};
use crate::placement::Load;
use crate::sockets::Sockets;
use crate::tls::TlsAcceptor;

/// Observes and ends the running server; cheap to clone, usable from any thread, even a session's
/// own.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) shared: Arc<Shared>,
}

/// State of all loops together.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) started_at: Instant,
    pub(crate) workers: Vec<WorkerShared>,
    pub(crate) listeners: Vec<Arc<ListenAddress>>,
    /// The sockets behind them, by descriptor.
    sockets: BTreeMap<RawFd, Arc<ListenAddress>>,
    pub(crate) accept: AcceptShared,
    /// The counts at the last [`Control::reset_stats`], subtracted in [`Control::stats`].
    baseline: Mutex<Stats>,
}

/// State of the acceptor that other threads read.
#[derive(Debug)]
pub(crate) struct AcceptShared {
    pub(crate) eventfd: EventFd,
    pub(crate) is_ending: AtomicBool,
    /// The listeners are off until a connection closes: its worker then rings the eventfd.
    pub(crate) is_waiting: AtomicBool,
    pub(crate) max_connections: AtomicUsize,
    /// Sent to a client that is refused; see [`Config::rejection`].
    pub(crate) rejection: Option<&'static [u8]>,
    /// The TLS of the listeners, if any has it.
    tls: Option<Arc<TlsAcceptor>>,
    /// One for each listener of connections.
    by_listener: Vec<ListenerCounts>,
    pub(crate) disabled: AtomicU64,
    pub(crate) disabled_us: AtomicU64,
}

/// The alert `internal_error`, as a record of TLS 1.0, which every client reads: the server cannot
/// serve, for a reason that is not the client's. No alert names a limit.
const REFUSAL_ALERT: &[u8] = &[0x15, 3, 1, 0, 2, 2, 80];

/// Connections that came to one listener.
#[derive(Debug)]
pub(crate) struct ListenerCounts {
    address: Arc<ListenAddress>,
    pub(crate) accepted: AtomicU64,
    pub(crate) rejected: AtomicU64,
}

impl AcceptShared {
    /// The counts of this listener, of which there are few.
    pub(crate) fn counts(&self, listener: &Arc<ListenAddress>) -> Option<&ListenerCounts> {
        self.by_listener.iter().find(|counts| Arc::ptr_eq(&counts.address, listener))
    }

    /// Counts a connection that a worker gets.
    pub(crate) fn accept(&self, listener: &Arc<ListenAddress>) {
        if let Some(counts) = self.counts(listener) {
            counts.accepted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Refuses a connection over the limit: sends the reason, if the socket takes it.
    pub(crate) fn refuse(&self, socket: &OwnedFd, listener: &Arc<ListenAddress>) {
        self.reject(listener);
        let is_encrypted = match (&**listener, &self.tls) {
            (ListenAddress::Tcp(_, place), Some(tls)) => tls.is_encrypted(*place),
            _ => false,
        };
        let text = self.rejection.unwrap_or_default();
        let reason = if is_encrypted { REFUSAL_ALERT } else { text };
        // A peer that does not read the reason is refused without it.
        let _ = send_slices(socket.as_fd(), &[IoSlice::new(reason)]);
    }

    /// Counts a rejected connection.
    pub(crate) fn reject(&self, listener: &Arc<ListenAddress>) {
        if let Some(counts) = self.counts(listener) {
            counts.rejected.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The sum of all listeners' counts.
    fn sum(&self, count: fn(&ListenerCounts) -> &AtomicU64) -> u64 {
        self.by_listener.iter().map(|counts| count(counts).load(Ordering::Relaxed)).sum()
    }
}

/// State of one worker that other threads read. The counters have one writer each, so they are
/// added to without a locked instruction.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerShared {
    pub(crate) mailbox: Arc<Mailbox>,
    /// Connections handed to this worker and not closed: the thread that hands one over adds, the
    /// worker subtracts.
    pub(crate) connections: AtomicUsize,
    pub(crate) conn_handles: Mutex<Vec<Option<Arc<ConnHandle>>>>,
    pub(crate) counters: Counters,
    /// Updated when connections are gathered.
    pub(crate) load: Load,
}

/// Adds to a counter that only this thread writes.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    // Relaxed: a reader may see it late, never torn; there is one writer.
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// The facts about one connection that `stats conns` shows; written by its worker.
#[derive(Debug)]
pub(crate) struct ConnHandle {
    pub(crate) peer: Peer,
    last_ms: AtomicU64,
    state: AtomicU8,
    is_mid_request: AtomicBool,
}

/// Relaxed throughout: the worker decides by its own writes, and the reader of `stats conns` may
/// see them a moment late.
impl ConnHandle {
    /// A connection that was opened at `now_ms`.
    pub(crate) fn new(peer: Peer, now_ms: u64) -> Self {
        let (last_ms, state) = (AtomicU64::new(now_ms), AtomicU8::new(0));
        Self { peer, last_ms, state, is_mid_request: AtomicBool::new(false) }
    }

    /// When a byte last moved, in milliseconds since the start.
    pub(crate) fn last_ms(&self) -> u64 {
        self.last_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn set_last_ms(&self, now_ms: u64) {
        self.last_ms.store(now_ms, Ordering::Relaxed);
    }

    fn state(&self) -> ConnState {
        ConnState::from_u8(self.state.load(Ordering::Relaxed))
    }

    pub(crate) fn set_state(&self, state: ConnState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    pub(crate) fn set_mid_request(&self, is_mid_request: bool) {
        self.is_mid_request.store(is_mid_request, Ordering::Relaxed);
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnState {
    /// Waits for input (memcached's `conn_read`).
    Reading = 0,
    /// Waits for its turn (`conn_parse_cmd`).
    Ready = 1,
    /// Waits for the peer to take its replies (`conn_mwrite`).
    Writing = 2,
    /// Sends its last replies (`conn_closing`).
    Closing = 3,
    /// Waits for answers from other servers (`conn_io_queue`).
    Waiting = 4,
    /// Has its last replies, and drops the input that its peer still sends (`conn_closing`).
    Leaving = 5,
}

impl ConnState {
    pub(crate) fn from_u8(bits: u8) -> Self {
        match bits {
            0 => Self::Reading,
            1 => Self::Ready,
            2 => Self::Writing,
            3 => Self::Closing,
            4 => Self::Waiting,
            _ => Self::Leaving,
        }
    }
}

impl fmt::Display for ConnState {
    /// memcached's name of the state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reading => "conn_read",
            Self::Ready => "conn_parse_cmd",
            Self::Writing => "conn_mwrite",
            Self::Closing | Self::Leaving => "conn_closing",
            Self::Waiting => "conn_io_queue",
        })
    }
}

/// One connection, at the time of [`Control::connections`].
#[derive(Clone, Debug)]
pub struct ConnInfo {
    /// Its descriptor number.
    pub fd: RawFd,
    /// The worker that serves it.
    pub worker: usize,
    /// The peer, and the listener that accepted it.
    pub peer: Peer,
    /// Its state.
    pub state: ConnState,
    /// True if the rest of a request is still to come.
    pub is_mid_request: bool,
    /// Time since bytes last moved on it.
    pub idle: Duration,
}

/// One listener of connections, at the time of [`Control::listener_stats`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerStats {
    /// Its address.
    pub address: Arc<ListenAddress>,
    /// Connections that are open.
    pub open: u64,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections rejected since the start.
    pub rejected: u64,
}

impl ListenerStats {
    /// The address as text, and the counts: open, accepted, rejected.
    #[must_use]
    pub fn named(&self) -> (String, [u64; 3]) {
        (self.address.to_string(), [self.open, self.accepted, self.rejected])
    }
}

/// Defines the counters of a worker, and their sums in [`Stats`].
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
            /// Not a count, but the present number.
            pub(crate) buffered_bytes: AtomicU64,
        }

        /// Counters of the whole server; each a sum over the workers. Names follow memcached's
        /// `stats` where it has one.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the names are memcached's")]
        pub struct Stats {
            pub curr_connections: u64,
            pub accepting_conns: bool,
            /// Bytes of unconsumed input and unsent output held now.
            pub buffered_bytes: u64,
            pub total_connections: u64,
            pub rejected_connections: u64,
            pub listen_disabled_num: u64,
            pub time_in_listen_disabled_us: u64,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Adds the numbers of one worker.
            fn add(&mut self, counters: &Counters) {
                // Relaxed: numbers for people, each from a moment ago.
                self.buffered_bytes += counters.buffered_bytes.load(Ordering::Relaxed);
                $(self.$name += counters.$name.load(Ordering::Relaxed);)*
            }

            /// The counts since `base`, and the present state.
            fn since(self, base: &Self) -> Self {
                Self {
                    total_connections: self.total_connections - base.total_connections,
                    rejected_connections: self.rejected_connections - base.rejected_connections,
                    listen_disabled_num: self.listen_disabled_num - base.listen_disabled_num,
                    time_in_listen_disabled_us: self.time_in_listen_disabled_us
                        - base.time_in_listen_disabled_us,
                    $($name: self.$name - base.$name,)*
                    ..self
                }
            }
        }
    };
}

counters! {
    conn_yields,
    /// The number of moves of connections between workers.
    moved,
    idle_kicks,
    /// Connections closed because the peer did not take its replies.
    slow_kicks,
    /// Bytes from clients; with TLS, plain ones.
    bytes_read,
    /// Bytes that sockets or TLS sessions have taken; with TLS, plain ones.
    bytes_written,
    /// System calls that read from connections.
    reads,
    /// System calls that wrote to connections.
    writes,
    /// The number of times that a poller returned.
    turns,
    udp_requests,
    /// Datagrams that were not a whole request, or whose reply was over the limit.
    udp_dropped,
    /// TLS handshakes completed.
    tls_sessions,
    /// TLS handshakes that failed, or took too long.
    tls_handshake_errors,
    /// TLS sessions that broke after their handshake.
    tls_errors,
    /// TLS sessions that were closed because all together used too much memory.
    tls_kicks,
}

impl Shared {
    pub(crate) fn new(workers: usize, sockets: &Sockets, config: &Config) -> io::Result<Self> {
        let connections_expected = config.connections_expected();
        let worker = || {
            Ok(WorkerShared {
                mailbox: Arc::new(Mailbox::new()?),
                connections: AtomicUsize::new(0),
                conn_handles: Mutex::new(Vec::with_capacity(connections_expected)),
                counters: Counters::default(),
                load: Load::default(),
            })
        };
        Ok(Self {
            started_at: Instant::now(),
            workers: (0..workers).map(|_| worker()).collect::<io::Result<_>>()?,
            listeners: sockets.addresses().cloned().collect(),
            sockets: sockets.by_descriptor(),
            accept: AcceptShared {
                eventfd: EventFd::new()?,
                is_ending: AtomicBool::new(false),
                is_waiting: AtomicBool::new(false),
                max_connections: AtomicUsize::new(config.max_connections),
                rejection: config.rejection,
                tls: config.tls.clone(),
                by_listener: sockets
                    .streams
                    .iter()
                    .map(|listener| ListenerCounts {
                        address: Arc::clone(&listener.address),
                        accepted: AtomicU64::new(0),
                        rejected: AtomicU64::new(0),
                    })
                    .collect(),
                disabled: AtomicU64::new(0),
                disabled_us: AtomicU64::new(0),
            },
            baseline: Mutex::new(Stats::default()),
        })
    }

    pub(crate) fn connections(&self) -> usize {
        // SeqCst pairs with `is_waiting`: the acceptor sets it and then counts, a worker subtracts
        // itself and then reads it, so one of them sees the other.
        self.workers.iter().map(|worker| worker.connections.load(Ordering::SeqCst)).sum()
    }

    /// The load of each worker in thousandths of a processor.
    pub(crate) fn loads(&self, now_ms: u64) -> Vec<u32> {
        self.workers.iter().map(|worker| worker.load.get(now_ms)).collect()
    }

    /// Milliseconds from the start to `now`.
    pub(crate) fn ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.started_at).as_millis())
            .unwrap_or(u64::MAX)
    }

    pub(crate) fn stop_accepting(&self) {
        // SeqCst pairs with the acceptor's load at the start of its turn. The eventfd makes it turn
        // once more after the store.
        self.accept.is_ending.store(true, Ordering::SeqCst);
        self.accept.eventfd.notify();
    }
}

impl Control {
    /// Stops accepting, lets every connection finish its received requests and flush, and closes
    /// it; after `patience`, unfinished connections are closed anyway. The service's own work has
    /// the same time. Returns at once; [`crate::Handle::join`] waits.
    pub fn drain(&self, patience: Duration) {
        self.shared.stop_accepting();
        let deadline = Instant::now() + patience;
        for worker in &self.shared.workers {
            worker.mailbox.post(Message::Drain(deadline));
        }
    }

    /// Closes everything. Returns at once; [`crate::Handle::join`] waits.
    pub fn stop(&self) {
        self.shared.stop_accepting();
        for worker in &self.shared.workers {
            worker.mailbox.post(Message::Stop);
        }
    }

    /// Makes every worker turn once, as if there were input.
    pub fn wake(&self) {
        for worker in &self.shared.workers {
            worker.mailbox.wake();
        }
    }

    /// The number of each worker's turns since the start.
    #[must_use]
    pub fn turns(&self) -> Vec<u64> {
        // Relaxed: a number that is compared with its own earlier value.
        let turns = |worker: &WorkerShared| worker.counters.turns.load(Ordering::Relaxed);
        self.shared.workers.iter().map(turns).collect()
    }

    /// Changes the maximum number of open connections.
    pub fn set_max_connections(&self, max: usize) {
        // SeqCst pairs with the load in the acceptor's `is_full`. The eventfd makes the acceptor
        // check again after the store.
        self.shared.accept.max_connections.store(max, Ordering::SeqCst);
        self.shared.accept.eventfd.notify();
    }

    /// The addresses of the listeners, as bound.
    #[must_use]
    pub fn listeners(&self) -> &[Arc<ListenAddress>] {
        &self.shared.listeners
    }

    /// The listening sockets, by descriptor.
    #[must_use]
    pub fn sockets(&self) -> &BTreeMap<RawFd, Arc<ListenAddress>> {
        &self.shared.sockets
    }

    /// The TCP addresses of the listeners, as bound.
    pub fn tcp_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.shared.listeners.iter().filter_map(|listener| match **listener {
            ListenAddress::Tcp(address, _) => Some(address),
            _ => None,
        })
    }

    /// Every open connection. Holds no lock when it returns.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnInfo> {
        let now_ms = self.shared.ms(Instant::now());
        let mut all = Vec::new();
        for (index, worker) in self.shared.workers.iter().enumerate() {
            let conn_handles = worker.conn_handles.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(conn_handles.iter().flatten().map(|handle| ConnInfo {
                fd: handle.peer.fd,
                worker: index,
                peer: handle.peer.clone(),
                state: handle.state(),
                is_mid_request: handle.is_mid_request.load(Ordering::Relaxed),
                idle: Duration::from_millis(now_ms.saturating_sub(handle.last_ms())),
            }));
        }
        all
    }

    /// Every listener of connections: TCP, then the unix socket.
    #[must_use]
    pub fn listener_stats(&self) -> Vec<ListenerStats> {
        let of = |counts: &ListenerCounts| ListenerStats {
            address: Arc::clone(&counts.address),
            open: 0,
            accepted: counts.accepted.load(Ordering::Relaxed),
            rejected: counts.rejected.load(Ordering::Relaxed),
        };
        let mut all: Vec<_> = self.shared.accept.by_listener.iter().map(of).collect();
        for worker in &self.shared.workers {
            let conn_handles = worker.conn_handles.lock().unwrap_or_else(PoisonError::into_inner);
            for handle in conn_handles.iter().flatten() {
                let listener = &handle.peer.listener;
                if let Some(one) = all.iter_mut().find(|one| Arc::ptr_eq(&one.address, listener)) {
                    one.open += 1;
                }
            }
        }
        all
    }

    /// The counters, since the start or the last [`Self::reset_stats`].
    #[must_use]
    pub fn stats(&self) -> Stats {
        let base = *self.shared.baseline.lock().unwrap_or_else(PoisonError::into_inner);
        self.totals().since(&base)
    }

    /// Restarts the counts from zero; states are kept.
    pub fn reset_stats(&self) {
        let mut baseline = self.shared.baseline.lock().unwrap_or_else(PoisonError::into_inner);
        *baseline = self.totals();
    }

    fn totals(&self) -> Stats {
        let accept = &self.shared.accept;
        // Relaxed: numbers for people, each from a moment ago. The SeqCst of the two flags has no
        // partner here: for `stats` any ordering would do.
        let is_off =
            accept.is_waiting.load(Ordering::SeqCst) || accept.is_ending.load(Ordering::SeqCst);
        let mut all = Stats {
            curr_connections: self.shared.connections() as u64,
            accepting_conns: !is_off,
            total_connections: accept.sum(|counts| &counts.accepted),
            rejected_connections: accept.sum(|counts| &counts.rejected),
            listen_disabled_num: accept.disabled.load(Ordering::Relaxed),
            time_in_listen_disabled_us: accept.disabled_us.load(Ordering::Relaxed),
            ..Stats::default()
        };
        self.shared.workers.iter().for_each(|worker| all.add(&worker.counters));
        all
    }
}
