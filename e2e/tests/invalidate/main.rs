//! `holdall invalidate` between real databases and real servers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test stops where it fails"
)]

mod address;
mod away;
mod canary;
mod compressed;
mod cut;
mod database;
mod decisions;
mod deleted_domain;
mod encrypted;
mod exact;
mod failed_check;
mod faulty;
mod figures;
mod fleet;
mod harness;
mod kills;
mod large;
mod large_rows;
mod lines;
mod lossy;
mod mysql;
mod names;
mod partitions;
mod postgres;
mod reload;
mod setup;
mod shifted;
mod standby;
mod statements;
mod substitute;
mod troubles;
mod unfit;
mod unseen;
