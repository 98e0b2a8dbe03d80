//! The reasons why a pipeline ends.

use crate::checkpoint;
use crate::standby::WaitError;

/// The operator's remedies for a gap.
const ONCE: &str = "start once with --on-gap flush, which empties the caches and goes on, or with \
                    --on-gap prefixes, which empties them of what begins as your keys do";

/// The reason why a pipeline ended.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The checkpoint cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::CheckpointError),
    /// The log is unreadable and `on_gap` is stop.
    #[error("{0}; nothing after it was delivered. Repair it; or {ONCE}")]
    Gap(String),
    /// The wait for the group's lock ended.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// The log may lack changes that can no longer be read, and `on_gap` is stop. The checkpoint
    /// records it.
    #[error("{0}; changes may be missing from the log. Repair it, and then {ONCE}")]
    Lacking(String),
    /// The log does not reach back far enough and `on_gap` is stop.
    #[error("{0}; changes in between are lost to the caches: {ONCE}")]
    Purged(String),
    /// A fault that a retry does not fix.
    #[error("{0}")]
    Wrong(String),
    /// A task of the pipeline ended unexpectedly.
    #[error("a task of the pipeline ended")]
    Broken,
}
