//! Announcements by a client that its next command belongs to a trace, or that it wants its times.

use std::time::{Duration, Instant};

use spans::{Context, OpenSpan};

/// A client's announcement, and its state.
#[derive(Debug)]
pub(crate) enum Announced {
    /// A trace whose command is still to come.
    Waiting(Context),
    /// The command of the trace is being served.
    Running {
        span: OpenSpan,
        /// The offset of its reply in the output; `None` once the reply was examined.
        reply_at: Option<usize>,
    },
    /// The client wants the times of its next command.
    Untimed,
    /// The command whose times are wanted is being served.
    Timing {
        /// The time from its arrival to `began`, if the kernel has stamped it.
        wait: Option<Duration>,
        began: Instant,
        parsed: Instant,
    },
    /// The times of a command, until the client requests them.
    Timed(Times),
}

/// The times of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// From the request's arrival to its parsing: the server's stack and the wake-up. `None` if the
    /// kernel did not report the arrival.
    pub(super) wait: Option<Duration>,
    /// Finding the request in the input and hashing its key.
    pub(super) parse: Duration,
    /// Executing the command and building its reply.
    pub(super) execute: Duration,
    /// Passing the reply to the kernel.
    pub(super) write: Duration,
}
