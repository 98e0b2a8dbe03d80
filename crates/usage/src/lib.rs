//! Wrong words of command lines and files: the name that was perhaps meant, and the exit status.
#![forbid(unsafe_code)]

#[cfg(feature = "clap")]
mod arguments;
mod nearest;

#[cfg(feature = "clap")]
pub use arguments::parse;
pub use nearest::{hint, nearest};

/// The exit status for a wrong command line: `EX_USAGE` of `sysexits.h`.
pub const EXIT_USAGE: u8 = 64;
