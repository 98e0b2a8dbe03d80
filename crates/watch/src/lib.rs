//! Live events of a server or router, and the program that shows them.
//!
//! ```text
//!     worker -> hub::Watchers -> each watcher's buffer -> its session -> socket
//!     socket -> line::Seen -> interval::Interval -> view -> terminal, or a line of JSON
//! ```
//!
//! [`hub`] is the server and proxy side (`watch`, as in memcached); the rest is `holdall watch`,
//! which shows their events.
#![forbid(unsafe_code)]

pub mod cli;
pub mod hub;
mod interval;
mod line;
mod view;
