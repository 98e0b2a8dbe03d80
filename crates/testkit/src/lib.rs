//! For tests only: real servers and databases as child processes, raw connections, process
//! readings, a seeded generator of random numbers, and a checker of concurrent histories.
//!
//! Only [`FakeElastiCache`] is a stand-in: a [`Server`] is the real program on a loopback port, a
//! [`Wire`] is a TCP connection that sends exactly the given bytes. A helper that meets an
//! unexpected result panics with it, because its caller is a test.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test stops where it fails"
)]

pub mod database;
pub mod elasticache;
mod eventually;
pub mod fault_proxy;
pub mod faulty_server;
pub mod history;
pub mod namespace;
pub mod process;
pub mod refused_allocations;
pub mod rng;
pub mod router;
pub mod server;
pub mod stale_reads;
pub mod start_error;
pub mod wire;

pub use elasticache::FakeElastiCache;
pub use eventually::eventually;
pub use fault_proxy::{FaultProxy, Mode};
pub use faulty_server::{Fault, FaultyServer};
pub use rng::{Rng, seeds};
pub use router::{Router, replace_file};
pub use server::{Kind, Launch, Server};
pub use staleness;
pub use wire::Wire;
