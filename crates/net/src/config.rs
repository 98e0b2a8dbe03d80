//! Settings of the loops, and the budget for connections' memory.

use std::sync::Arc;
use std::time::Duration;

use crate::placement::Placement;
use crate::tls::{HANDSHAKE_PATIENCE, TlsAcceptor};

/// Settings of a server's loops.
#[derive(Clone, Debug)]
pub struct Config {
    /// Threads that serve, each with its own event loop; at least 1.
    pub workers: usize,
    /// Worker *n* runs only on core `affinity[n % len]`.
    pub affinity: Option<Vec<usize>>,
    /// The choice of the worker that serves a connection.
    pub placement: Placement,
    /// The maximum number of open connections, over all workers.
    pub max_connections: usize,
    /// At the limit, a new client receives this and is closed (memcached's `maxconns_fast`), unless
    /// a connection without a login gives it its place (see [`Self::login_timeout`]). A client of a
    /// listener with TLS receives a TLS alert instead. `None`: it waits unaccepted.
    pub rejection: Option<&'static [u8]>,
    /// TCP connections on which no byte moves for this long are closed, except those that listen
    /// ([`crate::Occupation::Listening`]).
    pub idle_timeout: Option<Duration>,
    /// Connections whose client has to log in ([`crate::Service::is_unauthenticated`]) and has not
    /// done so in this time are closed. At the limit of connections, those without a login for at
    /// least one second give way to new ones.
    pub login_timeout: Option<Duration>,
    /// Connections that do not take their replies for this long are closed.
    pub stall_timeout: Option<Duration>,
    /// The maximum bytes of unconsumed input and unsent output that one worker's connections may
    /// hold together. Above it, connections are closed until an eighth is free: first those without
    /// a login, then those that hold most for longest.
    pub buffer_bytes_max: usize,
    /// Replies that the kernel has taken and a client has not read count as that client's buffers.
    pub counts_unread: bool,
    /// The maximum bytes of the TLS sessions of one worker's connections together. Above it, the
    /// connections that were idle longest, at least one second, are closed; one in the middle of a
    /// request only after five. If there are none, the new one is closed. Connections without a
    /// login ([`crate::Service::is_unauthenticated`]) are closed first, and leave to the others at
    /// least seven eighths.
    pub session_bytes_max: usize,
    /// The maker of TLS sessions; `None`: every listener is plain.
    pub tls: Option<Arc<TlsAcceptor>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            workers: 4,
            affinity: None,
            placement: Placement::Even,
            max_connections: 1024,
            rejection: Some(b""),
            idle_timeout: None,
            login_timeout: None,
            stall_timeout: None,
            buffer_bytes_max: 16 << 20,
            counts_unread: false,
            session_bytes_max: usize::MAX,
            tls: None,
        }
    }
}

impl Config {
    /// Connections that each worker's table has room for from the start: at most some megabytes of
    /// address space.
    pub(crate) fn connections_expected(&self) -> usize {
        self.max_connections.min(CONNECTIONS_EXPECTED_MAX)
    }

    /// The shortest time after which a connection may be closed, of a worker that has TLS or not.
    pub(crate) fn shortest_timeout(&self, has_tls: bool) -> Option<Duration> {
        let handshake = has_tls.then_some(HANDSHAKE_PATIENCE);
        let timeouts = [self.idle_timeout, self.login_timeout, self.stall_timeout, handshake];
        timeouts.into_iter().flatten().min()
    }
}

/// The maximum number of connections that a table has room for from the start.
const CONNECTIONS_EXPECTED_MAX: usize = 16_384;

/// Connections that a full table grows by. Such a table needs more than the allocator's reserve
/// has, so that no part of one is ever allocated from it.
pub(crate) const CONNECTIONS_MORE: usize = 4096;

/// Counts connections' memory towards a limit.
pub trait BufferBudget: Send + Sync {
    /// Adds `delta` to the bytes that connections hold. Called by any worker at any time.
    fn charge(&self, delta: isize);
}

/// A budget that does not count.
#[derive(Clone, Copy, Debug)]
pub struct Unbudgeted;

impl BufferBudget for Unbudgeted {
    fn charge(&self, _delta: isize) {}
}
