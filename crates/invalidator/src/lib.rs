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
//! Data flows one way. A position is saved after its keys are delivered, so a restart repeats
//! deletes and never skips one. *Scaling Memcache at Facebook* (2013), sections 4.1 and 5, calls
//! this daemon mcsqueal.
#![forbid(unsafe_code)]

pub mod assemble;
pub mod backlog;
pub mod batch;
pub mod canary;
pub mod canary_rule;
pub mod canary_stats;
pub mod change;
pub mod checkpoint;
mod checkpoint_writer;
pub mod cli;
mod clock;
pub mod comment;
mod compressed;
pub mod config;
mod deferred;
pub mod deliver;
pub mod delivery;
pub mod disk_queue;
mod dispatch;
mod ended;
pub mod finding;
pub mod flush;
pub mod gtid;
mod json;

mod kept;
pub mod key_file;
pub mod keys;
mod message;
pub mod monitor;
pub mod network;

pub mod pipeline;
pub mod plan;
pub mod position;
mod reading;
mod restart_on_panic;
mod running;
mod setup;
mod signals;

pub mod source;
mod sql;
pub mod standby;
pub mod stats;
pub mod status;
mod status_socket;
mod target;
pub mod template;
mod visibility;
