//! A trace that a client has announced, and the span of its command.

use spans::{Context, OpenSpan};

/// A trace that a client has announced.
#[derive(Debug)]
pub(crate) enum Announced {
    /// Its command is still to come.
    Waiting(Context),
    /// Its command is being served.
    Running {
        span: OpenSpan,
        /// Where in the output its reply begins; `None` once that was looked at.
        reply_at: Option<usize>,
    },
}
