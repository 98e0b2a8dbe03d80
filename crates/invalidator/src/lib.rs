//! Deletes cached keys as the log of the database that holds the truth tells.
//!
//! ```text
//!     ChangeSource -> Assembler -> Gate -> a Backlog for each cluster -> Destination -> router
//!      (the log)     (keys of      (until    (memory, bounded; a          (batches of      |
//!                     committed     others    Shelf on disk while the      quiet deletes)  |
//!                     transactions) see it)   cluster is away)                             |
//!     checkpoint <- the oldest position that every cluster has acknowledged  <-------------+
//! ```
//!
//! Data flows one way. A position is kept after its keys are delivered, so a restart repeats deletes and never skips one.
//! *Scaling Memcache at Facebook* (2013), 4.1 and 5, calls this daemon mcsqueal.
#![forbid(unsafe_code)]

mod again;
pub mod assemble;
pub mod backlog;
pub mod batch;
pub mod change;
pub mod checkpoint;
pub mod cli;
pub mod comment;
pub mod config;
pub mod deliver;
pub mod delivery;
pub mod finding;
pub mod flush;
mod gate;
pub mod gtid;
mod keeper;
pub mod keys;
pub mod monitor;
pub mod network;
mod outlet;
pub mod pipeline;
pub mod position;
mod reading;
pub mod shelf;
pub mod source;
pub mod stats;
pub mod status;
pub mod template;
