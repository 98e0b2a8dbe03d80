//! The failures that keep a proxy from starting, with mcrouter's exit statuses.

use std::fmt;
use std::io;

/// mcrouter's exit status for errors that a retry may fix.
pub(crate) const EXIT_TRANSIENT: u8 = 2;

/// mcrouter's exit status for other errors.
const EXIT_FATAL: u8 = 3;

/// The reason why the proxy did not start, or failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// The exit status.
    pub status: u8,
    /// A sentence for stderr.
    pub message: String,
}

impl Failure {
    pub(crate) fn fatal(error: impl fmt::Display) -> Self {
        Self { status: EXIT_FATAL, message: error.to_string() }
    }

    pub(crate) fn transient(what: &str, error: &io::Error) -> Self {
        Self { status: EXIT_TRANSIENT, message: format!("{what}: {error}") }
    }
}
