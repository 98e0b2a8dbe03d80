//! Lines on stderr.

use std::fmt::Display;
use std::io::{self, Write as _};

/// A failure, which is printed.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// A failure with its own exit status: docs/exit-status.md.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Refusal {
    text: String,
    pub(crate) status: u8,
}

impl Refusal {
    /// A flag has an unusable value.
    pub(crate) fn of_flag(flag: &str, why: impl Display) -> Self {
        Self { text: format!("{flag}: {why}"), status: usage::EXIT_USAGE }
    }

    /// The configuration lacks what the command needs.
    pub(crate) fn of_configuration(why: &str) -> Self {
        Self { text: why.to_owned(), status: EXIT_CONFIGURATION }
    }

    /// The system refuses a listening address.
    pub(crate) fn of_address(address: &str, why: impl Display) -> Self {
        Self { text: format!("cannot listen on {address}: {why}"), status: EXIT_SYSTEM }
    }
}

/// The configuration cannot be read, or is wrong.
pub(crate) const EXIT_CONFIGURATION: u8 = 2;

/// `EX_OSERR` of `sysexits.h`.
const EXIT_SYSTEM: u8 = 71;

/// Writes to the log of this process; prints the line if there is none, as in the short commands.
pub(crate) fn log(line: &str) {
    if logging::is_started() {
        logging::told(logging::Part::Invalidate, line);
        return;
    }
    // When stderr is closed, there is no other place to report to.
    let _ = writeln!(io::stderr(), "holdall invalidate: {line}");
}
