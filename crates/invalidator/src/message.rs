//! Lines on stderr.

use std::io::{self, Write as _};

/// A failure, which is printed.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// Tells the log of this process; prints the line where there is none, as in the short commands.
pub(crate) fn log(line: &str) {
    if logging::is_started() {
        logging::told(logging::Part::Invalidate, line);
        return;
    }
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(io::stderr(), "holdall invalidate: {line}");
}
