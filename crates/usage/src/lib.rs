//! Wrong words of command lines and files: the name that was perhaps meant, the exit status, and
//! whether findings have colours.
#![forbid(unsafe_code)]

#[cfg(feature = "clap")]
mod arguments;
mod nearest;

use std::env;
use std::io::{self, IsTerminal as _};

#[cfg(feature = "clap")]
pub use arguments::parse;
pub use nearest::{hint, nearest};

/// The exit status for a wrong command line: `EX_USAGE` of `sysexits.h`.
pub const EXIT_USAGE: u8 = 64;

/// True if what is printed may have colours: the output is a terminal, and `NO_COLOR` is not set.
///
/// Source: <https://no-color.org>
#[must_use]
pub fn has_colours() -> bool {
    io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none()
}
