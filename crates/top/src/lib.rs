//! `holdall top`: the members of a cache tier in one terminal. `holdall console` shows the same
//! rows.
//!
//! ```text
//!     addresses, topology, discovery -> Target -> Poller -> Reading -> Row -> table, JSON, console
//! ```
//!
//! Every member (a server, a proxy or an invalidator) answers memcached's `stats`; a thread queries
//! it once per interval. Rates are the differences of two readings.
#![forbid(unsafe_code)]

pub mod cli;
mod hot_keys;
mod number;
mod once;
mod order;
mod poller;
mod row;
mod view;

pub use hot_keys::{HotKey, hot_keys};
pub use number::Unit;
pub use once::json;
pub use poller::{Extras, Member, Poller};
pub use row::{Column, Health, Row, Total, columns, totals};
