//! The load generator: the load ([`spec`]), its keys ([`keys`], [`sizes`]), its protocol
//! ([`wire`]), and the results ([`record`]).
//!
//! ```text
//!     spec -> threads, each: draw op and keys -> wire (bytes) -> connections -> replies
//!         -> record -> outcome
//! ```
#![forbid(unsafe_code)]

pub mod bounds;
mod clients;
mod closed;
mod conn;
mod draw;
mod due;
pub mod keys;
pub mod number;
mod open;
pub mod packed;
pub mod parse_error;
mod permutation;
pub mod record;
mod run;
pub mod scatter;
mod security;
mod serde_text;
pub mod sizes;
pub mod spec;
mod transport;
mod waiting;
pub mod wire;
mod worker;

pub use run::{Latest, Outcome, Progress, Ready, connect, fill, run};
