//! Shared parts of the tests against live servers: generators of command streams, the comparison of
//! two servers' replies, a small client that records a history, the runner of client libraries, and
//! the soak.
//!
//! `cargo xtask e2e` runs all tests; docs/testing.md describes how to run a single one, or use
//! another server.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test stops where it fails"
)]

pub mod certificates;
pub mod clients;
pub mod compare;
pub mod console;
pub mod crowd;
pub mod dialect;
pub mod differences;
pub mod folder;
pub mod generate;
pub mod hostile;
pub mod invalidator;
pub mod load;
pub mod mix;
pub mod mutate;
pub mod replies;
pub mod rows;
pub mod soak;
pub mod suites;
pub mod values;
pub mod wall_clock;
