//! Saves the oldest position that every cluster has acknowledged.
//!
//! What waits on this host's disk counts as acknowledged: a restart here finds it. For others it
//! does not. So the database may forget its log, and another invalidator may take over, from the
//! last position at which the disk had nothing (`delivered_position`).
//!
//! The atomics here are counters for `stats`. Relaxed is enough: no other data depends on them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::checkpoint::{self, Keep, Kept};
use crate::position::Position;
use crate::stats::Stats;

/// The task that saves positions.
pub(crate) struct CheckpointWriter<K, H> {
    /// The source's name.
    pub(crate) name: String,
    /// The storage of the checkpoint.
    pub(crate) keep: Arc<K>,
    /// The last delivery that each cluster has acknowledged.
    pub(crate) acks: Vec<watch::Receiver<u64>>,
    /// The position after each delivery.
    pub(crate) positions: mpsc::UnboundedReceiver<(u64, Position)>,
    /// Receives each position that was saved.
    pub(crate) confirm: watch::Sender<Option<Position>>,
    /// Receives each position up to which everything was executed.
    pub(crate) delivered: watch::Sender<Option<Position>>,
    /// True while deletes of some cluster wait on the disk.
    pub(crate) has_on_disk: H,
    /// The pause between two looks at `acks`.
    pub(crate) every: Duration,
    /// Counts saves and failures.
    pub(crate) stats: Arc<Stats>,
    /// Reports failures.
    pub(crate) log: fn(&str),
}

impl<K: Keep, H: Fn() -> bool> CheckpointWriter<K, H> {
    /// Runs until the task of every cluster has ended.
    pub(crate) async fn run(mut self) {
        let mut waiting: VecDeque<(u64, Position)> = VecDeque::new();
        let mut saved: Option<Position> = None;
        loop {
            let is_over = self.acks.iter().all(|acked| acked.has_changed().is_err());
            let acked = self.acks.iter().map(|acked| *acked.borrow()).min().unwrap_or(0);
            while let Ok(next) = self.positions.try_recv() {
                waiting.push_back(next);
            }
            let done = waiting.partition_point(|(seq, _)| *seq <= acked);
            let last = waiting.drain(..done).next_back();
            if let Some((seq, position)) = last {
                if self.kept(&position).await {
                    saved = Some(position);
                } else {
                    waiting.push_front((seq, position));
                }
            }
            // Deletes are on the disk before they count as acknowledged, so what was acknowledged
            // above and is not there now was executed.
            if !(self.has_on_disk)()
                && let Some(position) = saved.take()
            {
                *self.stats.delivered_position.lock() = position.to_string();
                // At the end nothing listens any more.
                let _ = self.delivered.send(Some(position));
            }
            if is_over {
                return;
            }
            sleep(self.every).await;
        }
    }

    async fn kept(&self, position: &Position) -> bool {
        let kept = Kept { position: position.clone(), is_lacking: false };
        let text = checkpoint::text(&self.name, &kept);
        if let Err(error) = self.keep.replace(text.into_bytes()).await {
            self.stats.checkpoint_failures.fetch_add(1, Relaxed);
            (self.log)(&format!("checkpoint {}: {error}", self.keep.path().display()));
            return false;
        }
        self.stats.checkpoints.fetch_add(1, Relaxed);
        *self.stats.position.lock() = position.to_string();
        // At the end nothing listens any more.
        let _ = self.confirm.send(Some(position.clone()));
        true
    }
}
