//! Child processes: guards that end them, free ports, readings from `/proc`, shares of a processor,
//! limits of memory, and frozen threads.
//!
//! The bench, the demo, the lab and the tests start servers and databases. Each describes its own
//! programs; ends, ports and readings are here. The files exist only on Linux.
#![forbid(unsafe_code)]

mod child;
mod frozen_thread;
mod group;
mod memory_limit;
mod port;
mod quota;
pub mod usage;

pub use child::{ChildGuard, StartError, wait_until_accepts};
pub use frozen_thread::FrozenThread;
pub use memory_limit::MemoryLimit;
pub use port::free_port;
pub use quota::Quota;
