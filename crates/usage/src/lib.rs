//! Wrong words of command lines and files: the name that was perhaps meant, the exit status, and
//! the use of colours in findings.
#![forbid(unsafe_code)]

#[cfg(feature = "clap")]
mod arguments;
mod nearest;

use std::env;
use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};

#[cfg(feature = "clap")]
pub use arguments::parse;
pub use nearest::{hint, nearest};

/// The exit status for a wrong command line: `EX_USAGE` of `sysexits.h`.
pub const EXIT_USAGE: u8 = 64;

/// True if output may have colours: it is a terminal, and `NO_COLOR` is unset or empty.
///
/// Source: <https://no-color.org>
#[must_use]
pub fn has_colours() -> bool {
    io::stdout().is_terminal() && !is_refused(env::var_os("NO_COLOR").as_deref())
}

/// True if this value of `NO_COLOR` disables colours.
fn is_refused(no_color: Option<&OsStr>) -> bool {
    no_color.is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_no_color_counts_as_unset() {
        for (value, is_refusing) in [(None, false), (Some(""), false), (Some("0"), true)] {
            assert_eq!(is_refused(value.map(OsStr::new)), is_refusing, "{value:?}");
        }
    }
}
