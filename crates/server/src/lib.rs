//! The cache server: workers, sessions, admin commands, start and shutdown.
//!
//! ```text
//!     options -> run -> net's loops -> session (a worker's service) -> engine, admin
//! ```
#![forbid(unsafe_code)]

mod activity;
pub mod admin;
mod clock;
mod crawler;
mod entry;
mod eviction_reports;
mod key_text;
mod log;
mod namespaces;
mod prefixes;
mod reloads;
pub mod run;
pub mod session;
mod shared;
#[cfg(test)]
mod shared_lines_tests;
#[cfg(test)]
mod simulation;
mod status;
