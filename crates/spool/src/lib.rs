//! Records stored on disk for destinations that cannot take them now, and returned in order when
//! they can.
//!
//! ```text
//!     append(destination, record) -> staged -> commit: one write a destination, fsync -> segments
//!     ack(destination, number)    <- deliverer <- read(destination): the oldest not acknowledged
//! ```
//!
//! A [`Spool`] is a folder with a folder for each destination, which holds segment files, the read
//! position, and the end of the records that are known to be on the disk. This crate does not
//! interpret records; the router stores failed deletes in it, the invalidator its batches.
//!
//! # What is promised
//!
//! 1. [`Spool::read`] returns every record that [`Spool::commit`] did not report as failed, until
//!    it is acknowledged or too old, even after the process was killed; after a failure of the
//!    machine, [`Fsync`] decides.
//! 2. Records of a destination are returned in the order in which they were appended.
//! 3. A record is returned whole and unchanged, or not at all and counted as [`Damage`]. This also
//!    holds if another program removes files, except for the newest ones while no program has the
//!    spool open.
//! 4. The folder does not grow beyond [`Settings::bytes_max`]: more is refused with
//!    [`AppendError::Full`].
//!
//! A record may be returned twice: the read position is written after the delivery, so a kill in
//! between repeats it.
//!
//! [`asynclog`] reads and writes mcrouter's files of failed deletes, [`cli`] is `holdall spool`.
#![forbid(unsafe_code)]

pub mod asynclog;
pub mod cli;
mod log;
mod record;
mod scan;
mod segment;
mod spool;
mod synced;

pub use record::BODY_BYTES_MAX;
pub use scan::Record;
pub use spool::{
    AppendError, Counts, Damage, Failed, Fsync, Settings, Spool, is_abandoned, is_unprepared,
};
