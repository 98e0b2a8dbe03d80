//! Lines on stderr.

use std::io::{self, Write as _};

/// A failure, which is printed.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// Prints a line.
pub(crate) fn log(line: &str) {
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(io::stderr(), "holdall invalidate: {line}");
}
