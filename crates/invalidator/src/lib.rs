//! Deletes cached keys by following the change log of the database that holds the truth.
//!
//! ```text
//!     ChangeSource -> Assembler -> VisibilityBarrier -> Backlog -> Destination -> router
//!      (the log)      (keys of      (until other       (one for     (batches of     |
//!                      committed     sessions see       each         quiet deletes) |
//!                      transac-      the commit)        cluster)                    |
//!                      tions)                            |                          |
//!                                    DiskQueue (while the cluster is away)          |
//!     checkpoint <- the oldest position that every cluster has acknowledged <-------+
//! ```
//!
//! The crate `changes` turns events into keys.
//!
//! Data flows one way. A position is saved after its keys are delivered, so a restart repeats
//! deletes and never skips one. *Scaling Memcache at Facebook* (2013), sections 4.1 and 5, calls
//! this daemon mcsqueal.
#![forbid(unsafe_code)]

pub mod backlog;
pub mod batch;
pub mod canary;
pub mod canary_stats;
pub mod change_source;
pub mod checkpoint;
mod checkpoint_writer;
pub mod checks;
pub mod cli;
mod clock;
mod compressed;
pub mod config;
mod deferred;
pub mod deliver;
pub mod delivery;
pub mod disk_queue;
mod dispatch;
mod ended;
mod export;
pub mod finding;
pub mod flush;
mod gap_pause;
mod json;
mod kept;
pub mod last_check;
pub mod log_room;
mod message;
pub mod monitor;
pub mod network;
mod notes;
pub mod pipeline;
pub mod plan;
mod positions;
mod progress;
mod reading;
mod reload;
mod restart_on_panic;
mod running;
mod setup;
mod signals;
pub mod source;
pub mod standby;
pub mod stats;
pub mod status;
mod status_socket;
mod target;
mod visibility;
