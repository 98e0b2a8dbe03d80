//! Shared parts of the tests against live servers: generators of command streams, the comparison of
//! two servers' replies, a small client that keeps a history, the client libraries' runner, and the
//! soak.
//!
//! `cargo xtask e2e` runs them all; docs/testing.md says how to run one, or against which server.
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
