//! Lines on stderr.

use std::io::{self, Write as _};

/// Says something, in one line whatever it has.
pub(crate) fn note(words: &str) {
    // Nobody is left to tell when the stream is closed.
    let _ = writeln!(io::stderr(), "holdall console: {}", words.escape_debug());
}
