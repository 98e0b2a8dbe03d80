//! A client of memcached servers for applications: a handle for any thread and any executor, over
//! trees of routes driven by the client's own threads, or by the waiting thread.
//!
//! ```text
//!     caller -> Client (typed calls) -> Inbox            -> Driver: routes::Core -> servers
//!     caller <- Pending (waker)      <- Slot         <- Driver: routes::Core <- servers
//! ```
//!
//! The requests that arrive while a driver runs, and those that one caller makes together
//! ([`together()`]), leave in one write for each server. A caller that gives up, or whose deadline
//! passes, leaves its slot behind: the reply is dropped there, and no other caller can get it.
#![forbid(unsafe_code)]

mod asking;
mod block;
mod builder;
mod client;
mod codec;
mod commands;
mod driver;
mod driver_guard;
mod driver_handoff;
mod early;
mod error;
mod exact_markers;
mod flights;
mod held_lease;
mod inbox;
mod job;
mod leases;
mod look_aside;
mod look_aside_counters;
mod markers;
mod own_sources;
mod polled;
mod position;
mod reader;
mod signal;
#[cfg(test)]
mod simulation;
mod slot;
mod together;
mod value;
mod waiting;
mod watch;

pub use block::BlockingClient;
pub use builder::{BuildError, Builder, Compression};
pub use client::{CasOutcome, Client, Lease};
pub use codec::{FLAG_LZ4, FLAG_ZSTD};
pub use discovery::AccessFiles;
pub use error::{Error, LoadError};
pub use exact_markers::ReadFrom;
pub use look_aside::LookAside;
pub use look_aside_counters::LookAsideTotals;
pub use markers::{Markers, Source, Written};
pub use position::{NotAPosition, Position};
pub use routes::DeleteCounts;
pub use together::{Together, together};
pub use upstream::{Command, Failure, Outcome, OwnedReply, Report, Request, TlsOptions, Window};
pub use value::{Decode, Encode, FLAG_INTEGER, FLAG_TEXT, Value};
pub use waiting::block_on;
