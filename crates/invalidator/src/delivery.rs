//! What is on its way to a cluster, and what is done where it is not known what changed.

use bytes::Bytes;
use tokio::time::Instant;

/// One committed transaction on its way to every cluster.
#[derive(Debug)]
pub struct Delivery {
    /// Rises by one; the first is 1.
    pub seq: u64,
    /// What to do.
    pub work: Work,
    /// When it was committed, in microseconds since 1970; 0 when that is not known.
    pub committed_us: u64,
    /// When it was read; of one that others did not see yet, when they were last known not to.
    pub read_at: Instant,
    /// True when others were seen to see it.
    pub is_seen: bool,
}

/// What a cluster is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Delete these keys.
    Delete(Vec<Bytes>),
    /// Delete more than is known to have changed.
    Flush(Flush),
}

/// How much is deleted where it is not known what changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flush {
    /// Everything (`flush_all`).
    All,
    /// Every key that begins with one of these (`flush_prefix`).
    Prefixes(Vec<Bytes>),
}

/// What is done where the log cannot be understood or does not reach back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnGap {
    /// End with an error; nothing is skipped.
    Stop,
    /// Delete so much in every cluster, then go on.
    Flush(Flush),
}

impl Delivery {
    /// The keys to delete; none of a flush.
    #[must_use]
    pub fn keys(&self) -> &[Bytes] {
        match &self.work {
            Work::Delete(keys) => keys,
            Work::Flush(_) => &[],
        }
    }

    /// What it counts in a window of keys.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.keys().len().max(1)
    }
}
