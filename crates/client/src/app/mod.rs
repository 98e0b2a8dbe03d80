//! The library for applications: a handle that any thread and any executor can ask, over trees of routes that threads of its
//! own drive, or a lone thread that waits for its answer.
//!
//! ```text
//!     caller -> Client (typed calls) -> Lane (inbox) -> Driver: Core -> servers
//!     caller <- Pending (waker)      <- Slot         <- Driver: Core <- servers
//! ```
//!
//! Everything that callers ask while somebody drives, or that one caller asks together ([`together()`]), leaves in one write for
//! each server. A caller that goes away, or whose deadline passes, leaves its slot behind: the answer is dropped there, and no
//! other caller can be given it.

mod block;
mod builder;
mod client;
mod codec;
mod commands;
mod driver;
mod error;
mod lane;
mod look_aside;
mod markers;
mod seat;
mod shift;
mod signal;
#[cfg(test)]
mod simulation;
mod slot;
mod together;
mod value;
mod watch;

pub use block::BlockingClient;
pub use builder::{BuildError, Builder, Compression};
pub use client::{CasOutcome, Client, Lease};
pub use codec::{FLAG_LZ4, FLAG_ZSTD};
pub use error::Error;
pub use look_aside::{LoadError, LookAside, LookAsideTotals};
pub use markers::{Markers, Source, Written};
pub use signal::block_on;
pub use together::{Together, together};
pub use value::{Decode, Encode, FLAG_INTEGER, FLAG_TEXT, Value};
