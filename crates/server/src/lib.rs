//! The cache server: options, workers, sessions, admin commands.
#![forbid(unsafe_code)]
