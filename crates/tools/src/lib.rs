//! Daily work with cache servers: `holdall ping`, `latency`, `keys`, `bigkeys`, `dump`, `restore`
//! and `cp`.
//!
//! ```text
//!     Connection -> KeyDump -> keys, bigkeys
//!                        \ -> dump -> a stream -> restore -> Connection
//! ```
//!
//! They speak memcached's text and meta protocol, and work with memcached 1.6 as with holdall.
#![forbid(unsafe_code)]

mod bigkeys;
pub mod cli;
mod connection;
mod dump;
mod keys;
mod latency;
mod reading;

pub use bigkeys::{BigKeys, big_keys};
pub use connection::{Connection, Error, Options};
pub use dump::{Dumped, Pace, Restored, dump, restore};
pub use keys::{Entry, KeyDump, shown};
pub use latency::{latencies, round_trip};
pub use reading::{Reading, Role, Wanted, stats_group};
