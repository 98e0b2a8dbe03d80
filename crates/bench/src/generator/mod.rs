//! The load generator: what is asked ([`spec`]), of which keys ([`keys`], [`sizes`]), in which
//! language ([`wire`]), when ([`worker`](self)), and what was seen ([`record`]).
//!
//! ```text
//!     spec -> threads, each: draw op and keys -> wire (bytes) -> connections -> replies
//!         -> record -> outcome
//! ```

mod closed;
mod conn;
mod draw;
pub mod keys;
mod open;
pub mod packed;
pub mod record;
mod run;
pub mod scatter;
mod security;
pub mod sizes;
pub mod spec;
mod transport;
mod waiting;
pub mod wire;
mod worker;

pub use run::{Latest, Outcome, Progress, Ready, connect, fill, run};
