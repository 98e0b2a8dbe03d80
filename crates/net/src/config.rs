//! Settings of the loops, and the memory that connections count towards.

use std::sync::Arc;
use std::time::Duration;

use crate::placement::Placement;
use crate::tls::TlsAcceptor;

/// Settings of a server's loops.
#[derive(Clone, Debug)]
pub struct Config {
    /// Threads that serve, each with its own event loop; 1 or more.
    pub workers: usize,
    /// Worker *n* runs on core `affinity[n % len]` only.
    pub affinity: Option<Vec<usize>>,
    /// The choice of the worker that serves a connection.
    pub placement: Placement,
    /// Connections open at once, over all workers.
    pub max_connections: usize,
    /// At the limit, a new client is sent this and closed (memcached's `maxconns_fast`). `None`: it
    /// waits unaccepted.
    pub rejection: Option<&'static [u8]>,
    /// TCP connections on which no byte moves for this long are closed; those that listen
    /// ([`crate::Occupation::Listening`]) are not.
    pub idle_timeout: Option<Duration>,
    /// Connections whose client has to log in ([`crate::Service::is_unauthenticated`]) and has not
    /// for this long are closed.
    pub login_timeout: Option<Duration>,
    /// Connections that do not take their replies for this long are closed.
    pub stall_timeout: Option<Duration>,
    /// Bytes of unconsumed input and unsent output that one worker's connections may hold together.
    /// Above it connections are closed until an eighth is free: first those whose clients have not
    /// logged in, then those that hold most for longest.
    pub buffer_bytes_max: usize,
    /// Replies that the kernel has taken and a client has not read count as that client's buffers.
    pub counts_unread: bool,
    /// Bytes that the TLS sessions of one worker's connections may take together. Above it
    /// connections are closed that were idle for longest, for a second at least; one in the middle
    /// of a request only after five. If there are none, the newcomer is.
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
    /// Connections that each worker's table has room for from the start: some megabytes of address
    /// space at the most.
    pub(crate) fn connections_expected(&self) -> usize {
        self.max_connections.min(CONNECTIONS_EXPECTED_MAX)
    }
}

/// Most connections that a table has room for from the start.
const CONNECTIONS_EXPECTED_MAX: usize = 16_384;

/// Connections that a full table grows by. A table so large takes more than the allocator holds
/// back, so that no part of one is ever made of that.
pub(crate) const CONNECTIONS_MORE: usize = 4096;

/// Counts the bytes that connections hold towards a memory limit.
pub trait BufferBudget: Send + Sync {
    /// Connections hold `delta` bytes more than before (fewer, if negative). Called by any worker
    /// at any time.
    fn charge(&self, delta: isize);
}

/// A budget that does not count.
#[derive(Clone, Copy, Debug)]
pub struct Unbudgeted;

impl BufferBudget for Unbudgeted {
    fn charge(&self, _delta: isize) {}
}
