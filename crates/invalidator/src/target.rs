//! A cluster to deliver to, and the limits of its batches.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::delivery::OnGap;
use crate::kept::Kept;
use crate::stats::Stats;

/// Limits of batches and waits.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Keys a batch.
    pub batch_keys: usize,
    /// Bytes of keys a batch.
    pub batch_bytes: usize,
    /// The time for which a batch waits for more keys.
    pub batch_wait: Duration,
    /// The time limit for connecting, and for an answer.
    pub answer_within: Duration,
    /// The first pause after a failure; it doubles up to `retry_max`.
    pub retry_first: Duration,
    /// The longest pause.
    pub retry_max: Duration,
    /// The delay after which a delete is repeated; zero for never.
    pub repeat_after: Duration,
    /// True when those that others see are repeated, too.
    pub repeats_seen: bool,
    /// Keys of a cluster that may wait in memory.
    pub window_keys: usize,
    /// The time without an acknowledgement after which a full window moves to the disk.
    pub away_after: Duration,
}

/// A cluster that is to be delivered to.
#[derive(Debug)]
pub struct Target<N> {
    /// Makes its connections.
    pub network: Arc<N>,
    /// Addresses of its routers, tried in this order.
    pub routers: Vec<String>,
    /// True if they are sent batches in blocks of zstd, where they take them.
    pub is_compressed: bool,
    /// Limits of batches and waits.
    pub limits: Limits,
    /// Takes the deletes that a router keeps for later.
    pub(crate) kept: mpsc::Sender<Kept>,
    /// The response to deliveries lost on the disk.
    pub on_gap: OnGap,
    /// The statistics of all clusters.
    pub stats: Arc<Stats>,
    /// The index of this cluster in `stats`.
    pub index: usize,
    /// Takes the lines that an operator is to see.
    pub log: fn(&str),
}

/// Deliveries were lost on the disk, and nothing is to be flushed for them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cluster {cluster}: a part of its spool is damaged and cannot be read")]
pub struct DamagedSpool {
    /// The cluster's name.
    pub cluster: String,
}
