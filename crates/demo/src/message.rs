//! Messages of the demo on stderr.

use std::io::{self, Write as _};

/// Writes a line on stderr, with the program's name in front.
pub(crate) fn eprint_error(line: &str) {
    // A closed stderr leaves nowhere to report this.
    let _ = writeln!(io::stderr(), "holdall demo: {line}");
}
