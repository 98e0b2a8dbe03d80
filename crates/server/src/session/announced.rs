//! A client announces of its next command that it belongs to a trace, or asks for its times.

use std::time::{Duration, Instant};

use spans::{Context, OpenSpan};

/// What a client has announced, and what became of it.
#[derive(Debug)]
pub(crate) enum Announced {
    /// A trace whose command is still to come.
    Waiting(Context),
    /// The command of the trace is being served.
    Running {
        span: OpenSpan,
        /// Where in the output its reply begins; `None` once that was looked at.
        reply_at: Option<usize>,
    },
    /// The times of the command that is still to come are asked for.
    Untimed,
    /// The command whose times are asked for is being served.
    Timing {
        /// From its arrival to `began`, if the kernel has stamped it.
        wait: Option<Duration>,
        began: Instant,
        parsed: Instant,
    },
    /// The times of a command, until they are asked for again.
    Timed(Times),
}

/// The times of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// The request came from the network, and is looked at: the server's stack and the wake-up.
    /// `None` if the kernel did not say when it came.
    pub(super) wait: Option<Duration>,
    /// The request is found in the input and its key hashed.
    pub(super) parse: Duration,
    /// The command is executed and its reply made.
    pub(super) execute: Duration,
    /// The reply is given to the kernel.
    pub(super) write: Duration,
}
