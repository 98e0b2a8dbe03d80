//! Work on its way to a cluster, and the response to a gap in the log.

use bytes::Bytes;
use tokio::time::Instant;

/// One committed transaction on its way to every cluster.
#[derive(Debug)]
pub struct Delivery {
    /// Increases by one; the first is 1.
    pub seq: u64,
    /// The work.
    pub work: Work,
    /// Commit time, in microseconds since 1970; 0 if unknown.
    pub committed_us: u64,
    /// The time of the read, or of the last finding that its commit is invisible to others.
    pub read_at: Instant,
    /// True when its commit was found to be visible to others.
    pub is_seen: bool,
}

/// Work for a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Delete these keys.
    Delete(Vec<Bytes>),
    /// Delete more keys than are known to have changed.
    Flush(Flush),
}

/// The scope of a flush, which compensates for unknown changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flush {
    /// Everything (`flush_all`).
    All,
    /// Every key that starts with one of these (`flush_prefix`).
    Prefixes(Vec<Bytes>),
}

/// The response to a log that is unreadable or does not reach back far enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnGap {
    /// Stop with an error; nothing is skipped.
    Stop,
    /// Flush this scope in every cluster, then continue.
    Flush(Flush),
}

impl Delivery {
    /// The keys to delete; none for a flush.
    #[must_use]
    pub fn keys(&self) -> &[Bytes] {
        match &self.work {
            Work::Delete(keys) => keys,
            Work::Flush(_) => &[],
        }
    }

    /// Its weight in a window of keys.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.work.weight()
    }
}

impl Work {
    /// Its weight in a window of keys.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::Delete(keys) => keys.len().max(1),
            Self::Flush(_) => 1,
        }
    }
}
