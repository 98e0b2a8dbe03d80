//! `holdall top`: the members of a cache tier in one terminal.
//!
//! ```text
//!     addresses, topology, discovery -> Target -> Poller -> Reading -> Row -> table, JSON
//! ```
//!
//! Every member (a server, a proxy or an invalidator) answers memcached's `stats`; a thread asks it
//! once an interval. Rates are the differences of two readings.
#![forbid(unsafe_code)]

pub mod cli;
mod hot_keys;
mod number;
mod once;
mod order;
mod poller;
mod row;
mod view;
