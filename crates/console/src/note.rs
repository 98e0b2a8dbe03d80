//! Lines on stderr.

use std::io::{self, Write as _};

/// Writes a message, always on one line.
pub(crate) fn note(words: &str) {
    // When the stream is closed, there is no other place to report to.
    let _ = writeln!(io::stderr(), "holdall console: {}", words.escape_debug());
}
