//! Replies that the kernel has taken and no client has read.
//!
//! They are memory of the server without a buffer in the server: a socket that took all bytes looks
//! as if its client had. A query of the kernel after each write would cost a call. So a connection
//! is listed once it has sent some bytes since the last check, and listed ones are checked after
//! some time or many bytes.
//!
//! ```text
//!     sent 4 KB or more -> listed, in front -> looked at -> nothing is left: not listed any more
//!                               ^-- at the end of the list <-- some is left: counted as held
//! ```

use std::collections::VecDeque;
use std::os::fd::AsFd;

use super::Worker;
use crate::conn::Conn;
use crate::conn_id::Token;
use crate::service::Service;
use crate::unsent::kept_by_kernel;

/// Bytes sent since the last check from which a connection is listed.
pub(super) const LISTED_BYTES: u64 = 4 * 1024;

/// Fewer bytes in the kernel are not counted.
const UNCOUNTED_BYTES: usize = 4 * 1024;

/// Sockets are checked when this many bytes were sent,
const LOOK_BYTES: u64 = 1 << 20;

/// or after this time, whichever comes first: at most these bytes are not counted yet.
const LOOK_MS: u64 = 100;

/// The maximum number of sockets checked in one turn.
const LOOKS_MAX: usize = 256;

/// The sockets that a worker has to check.
#[derive(Debug, Default)]
pub(super) struct Looks {
    listed: VecDeque<Token>,
    /// Bytes sent, and the time, since the last check.
    sent: u64,
    looked_ms: u64,
}

impl<S: Service> Worker<S> {
    /// Counts bytes that a connection has sent.
    #[inline]
    pub(super) fn count_sent(&mut self, token: Token, sent: u64) {
        if !self.config.counts_unread || sent == 0 {
            return;
        }
        let Some(conn) = self.conns.get_mut(token) else { return };
        self.looks.sent += sent;
        conn.unread.sent += sent;
        // Without memory for the list, a later write lists it.
        if conn.unread.sent >= LISTED_BYTES
            && !conn.unread.is_listed
            && self.looks.listed.try_reserve(1).is_ok()
        {
            conn.unread.is_listed = true;
            self.looks.listed.push_front(token);
        }
    }

    /// Queries the kernel for its bytes of the listed connections, if it is time.
    #[inline]
    pub(super) fn look_at_unread(&mut self) {
        let is_late = self.now_ms.saturating_sub(self.looks.looked_ms) >= LOOK_MS;
        if (is_late || self.looks.sent >= LOOK_BYTES) && !self.looks.listed.is_empty() {
            self.look(self.looks.listed.len().min(LOOKS_MAX));
        }
    }

    /// Queries the kernel for its bytes of all listed connections.
    pub(super) fn look_at_all_unread(&mut self) {
        self.look(self.looks.listed.len());
    }

    fn look(&mut self, count: usize) {
        (self.looks.sent, self.looks.looked_ms) = (0, self.now_ms);
        for _ in 0..count {
            let Some(token) = self.looks.listed.pop_front() else { break };
            let Some(conn) = self.conns.get_mut(token) else { continue };
            let before = conn.unread.bytes;
            // A failed socket keeps nothing for long: its next event closes it.
            let kept = kept_by_kernel(conn.as_fd()).unwrap_or(0);
            // Bytes in transit to a reading client are mostly few.
            let kept = if kept < UNCOUNTED_BYTES { 0 } else { kept };
            conn.unread.see(kept, self.now_ms);
            conn.unread.is_listed = kept > 0;
            if kept > 0 {
                self.looks.listed.push_back(token);
            }
            let was = conn.charged;
            conn.charged = was + kept - before;
            let is = conn.charged;
            self.charge_buffers(was, is);
        }
    }

    /// The time, in milliseconds, for which a connection has held its memory without progress.
    pub(super) fn held_ms(&self, conn: &Conn<S::Session>) -> u64 {
        let last_ms = conn.handle.last_ms();
        let since_ms = conn.unread.since_ms().map_or(last_ms, |since_ms| since_ms.min(last_ms));
        self.now_ms.saturating_sub(since_ms)
    }
}
