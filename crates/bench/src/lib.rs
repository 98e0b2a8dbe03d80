//! Load generator and side-by-side comparison of servers.
//!
//! A ratio is worth more than a number: machines differ and drift, so servers are measured taking turns in one run,
//! and each round is compared with the same round of the others. The do-nothing server (`src/bin/do-nothing.rs`) shares
//! holdall's event loop and answers without looking anything up: what it reaches is the limit of this machine's sockets.
//!
//! ```text
//!     workload (bytes to send, bytes to expect) -> load (closed loop, one thread) -> rounds -> report
//! ```
#![forbid(unsafe_code)]

pub mod agents;
mod as_text;
pub mod cli;
pub mod compare;
pub mod expiry;
pub mod figures;
pub mod generator;
pub mod herd;
pub mod hitrate;
pub mod host;
pub mod instructions;
pub mod key_space;
pub mod listeners;
pub mod load;
pub mod lookaside;
pub mod memory;
pub mod memtier;
pub mod power;
pub mod process;
pub mod quota;
pub mod report;
pub mod restart;
pub mod result;
pub mod rng;
pub mod routed;
pub mod sampler;
pub mod score;
pub mod search;
pub mod seconds;
pub mod shift;
pub mod significance;
pub mod sla;
pub mod study;
pub mod sweep;
pub mod terminal;
pub mod transient;
pub mod udp;
pub mod udp_compare;
pub mod versus;
pub mod workload;
