//! Daily work with cache servers: `holdall ping`, `latency`, `keys`, `bigkeys`, `dump`, `restore`
//! and `cp`.
//!
//! ```text
//!     Connection -> KeyDump -> keys, bigkeys
//!                        \ -> dump -> a stream -> restore -> Connection
//! ```
//!
//! They use memcached's text and meta protocol, and work with memcached 1.6 as with holdall. Dumps
//! of Redis and Valkey are also supported.
#![forbid(unsafe_code)]

mod bigkeys;
pub mod cli;
mod connection;
mod dump;
mod dump_redis;
mod keys;
mod latency;
mod reading;
mod redis;
mod values;

pub use bigkeys::{BigKeys, big_keys};
pub use connection::{Connection, Error, Options};
pub use dump::{Dumped, Pace, Restored, dump, restore};
pub use dump_redis::dump_redis;
pub use keys::{Entry, KeyDump, shown};
pub use latency::{latencies, round_trip};
pub use reading::{Reading, Role, Wanted, server_settings, stats_group};
pub use redis::{Redis, Reply, SCHEME as REDIS};
pub use values::{KeyForm, key_form};
