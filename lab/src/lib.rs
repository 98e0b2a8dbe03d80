//! Compares servers side by side, for developers: speed, memory, restarts, leases, expiry.
//!
//! A ratio says more than a number, because machines differ and drift. Therefore one run measures
//! the servers in turn and compares each round with the same round of the others. The do-nothing
//! server (`src/bin/do-nothing.rs`) runs holdall's event loop without lookups: its figures are the
//! limit of this machine's sockets.
//!
//! ```text
//!     workload (bytes to send, bytes to expect) -> load (closed loop, one thread)
//!         -> compare (rounds in turn) -> report (Markdown, JSON)
//! ```
//!
//! `holdall bench`, the load generator for users, is in the separate crate `bench`.
#![forbid(unsafe_code)]

pub mod bystander;
pub mod compare;
pub mod expiry;
pub mod instructions;
pub mod key_space;
pub mod load;
pub mod lookaside;
pub mod memory;
pub mod report;
pub mod restart;
pub mod rng;
pub mod routed;
pub mod servers;
pub mod size_shift;
pub mod thundering_herd;
pub mod transient;
pub mod udp;
pub mod udp_compare;
pub mod workload;
