//! The cache server: options, workers, sessions, admin commands.
//!
//! ```text
//!     options -> run -> net's loops -> session (a worker's service) -> engine, admin
//! ```
#![forbid(unsafe_code)]

pub mod admin;
mod clock;
mod crawler;
mod entry;
mod key_text;
mod log;
pub mod options;
mod prefixes;
pub mod run;
pub mod session;
mod shared;

/// The memcached version that is reported where a memcached's version is expected: to clients that
/// ask for it, and by `-V` and `-h` under the name `memcached`. Clients take features from it.
pub const COMPATIBLE_VERSION: &str = "1.6.45";
