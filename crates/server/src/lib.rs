//! The cache server: options, workers, sessions, admin commands.
#![forbid(unsafe_code)]

pub mod options;

/// The memcached version that is reported where a memcached's version is expected: to clients that ask for it, and
/// by `-V` and `-h` under the name `memcached`. Clients take features from it.
pub const COMPATIBLE_VERSION: &str = "1.6.45";
