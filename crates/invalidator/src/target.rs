//! A cluster as a delivery target, and the limits of its batches.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::delivery::OnGap;
use crate::kept::Kept;
use crate::stats::Stats;

/// Limits of batches and waits.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Keys per batch.
    pub batch_keys: usize,
    /// Bytes of keys per batch.
    pub batch_bytes: usize,
    /// The time for which a batch waits for more keys.
    pub batch_wait: Duration,
    /// The time limit for connecting, and for an answer.
    pub answer_within: Duration,
    /// The first pause after a failure; it doubles up to `retry_max`.
    pub retry_first: Duration,
    /// The longest pause.
    pub retry_max: Duration,
    /// The delay after which a delete is repeated; zero disables it.
    pub repeat_after: Duration,
    /// True when visible deletes are repeated, too.
    pub repeats_seen: bool,
    /// Maximum number of a cluster's keys in memory.
    pub window_keys: usize,
    /// The time without an acknowledgement after which a full window moves to the disk.
    pub away_after: Duration,
}

/// A cluster to deliver to.
#[derive(Debug)]
pub struct Target<N> {
    /// Makes its connections.
    pub network: Arc<N>,
    /// Addresses of its routers, tried in this order.
    pub routers: Vec<String>,
    /// True if batches are sent in blocks of zstd to routers that accept them.
    pub is_compressed: bool,
    /// Limits of batches and waits.
    pub limits: Limits,
    /// Receives the deletes that a router keeps for later.
    pub(crate) kept: mpsc::Sender<Kept>,
    /// The response to deliveries lost on the disk.
    pub on_gap: OnGap,
    /// The statistics of all clusters.
    pub stats: Arc<Stats>,
    /// The index of this cluster in `stats`.
    pub index: usize,
    /// Receives the lines for the operator.
    pub log: fn(&str),
}

/// Deliveries were lost on the disk, and the settings flush nothing for them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cluster {cluster}: a part of its spool is damaged and cannot be read")]
pub struct DamagedSpool {
    /// The cluster's name.
    pub cluster: String,
}
