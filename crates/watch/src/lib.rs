//! Live events of a server or router, and the program that shows them.
//!
//! ```text
//!     worker -> hub::Watchers -> each watcher's buffer -> its session -> socket
//!     socket -> line::Seen -> interval::Interval -> view -> terminal, or a line of JSON
//! ```
//!
//! [`hub`] is the side of servers and proxies (`watch`, as memcached has it); the rest is `holdall
//! watch`, which shows what they tell.
#![forbid(unsafe_code)]

pub mod cli;
pub mod hub;
mod interval;
mod line;
mod view;
