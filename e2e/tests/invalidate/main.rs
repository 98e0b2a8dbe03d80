//! `holdall invalidate` behind real databases, in front of real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod away;
mod cut;
mod figures;
mod harness;
mod kills;
mod load;
mod mariadb;
mod postgres;
