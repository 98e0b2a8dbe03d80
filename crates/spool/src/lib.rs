//! Records kept on disk for destinations that cannot take them now, and given back in order when
//! they can.
//!
//! ```text
//!     append(destination, record) -> staged -> commit: one write a destination, fsync -> segments
//!     ack(destination, number)    <- deliverer <- read(destination): the oldest not acknowledged
//! ```
//!
//! A [`Spool`] is a folder with a folder for each destination, and in it segment files and the read
//! position. Nothing here knows what a record means; the router keeps failed deletes in it, the
//! invalidator can keep its batches.
//!
//! # What is promised
//!
//! 1. What [`Spool::commit`] did not name as failed is given by [`Spool::read`] until it is
//!    acknowledged or too old, also after the process was killed; after a failure of the machine as
//!    far as [`Fsync`] says.
//! 2. Records of a destination are given in the order in which they were appended.
//! 3. A record is given whole and unchanged, or not at all and counted as [`Damage`].
//! 4. The folder does not grow over [`Settings::bytes_max`]: more is refused with
//!    [`AppendError::Full`].
//!
//! A record may be given twice: the read position is written after the delivery, so a kill in
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

pub use record::BODY_BYTES_MAX;
pub use scan::Record;
pub use spool::{AppendError, Counts, Damage, Failed, Fsync, Settings, Spool};
