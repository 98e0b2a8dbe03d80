//! The settings of a pipeline.

use std::time::Duration;

use changes::keys::Rules;

use crate::deliver::Limits;
use crate::delivery::OnGap;

/// A cluster and the addresses of its routers (or its one server).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Its name in stats.
    pub name: String,
    /// Tried in this order.
    pub routers: Vec<String>,
    /// True if batches are sent in blocks of zstd to routers that accept them.
    pub is_compressed: bool,
}

/// The settings of a pipeline, apart from its source.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The source's name, which the checkpoint records.
    pub name: String,
    /// The rules that turn changes into keys.
    pub rules: Rules,
    /// The clusters to delete from.
    pub clusters: Vec<Cluster>,
    /// Limits of batches and waits.
    pub limits: Limits,
    /// The response to a gap in the log.
    pub on_gap: OnGap,
    /// One key in this many is monitored; 0 for none.
    pub monitor_one_in: u32,
    /// Bytes of keys that a transaction may hold in memory.
    pub transaction_bytes_max: usize,
    /// True where another invalidator may take over, which cannot see this host's disk.
    pub is_shared: bool,
    /// The interval between saves of the checkpoint.
    pub checkpoint_every: Duration,
}
