//! Sends work from the log's task to every cluster's backlog, and positions to the checkpoint
//! writer.

use std::sync::Arc;

use changes::position::Position;
use tokio::time::Instant;

use crate::backlog::Backlog;
use crate::delivery::{Delivery, Work};
use crate::disk_queue::DiskQueue;
use crate::positions::Positions;

/// Numbers deliveries and hands each to every backlog; closes the backlogs when dropped.
#[derive(Debug)]
pub(crate) struct Dispatcher<S: DiskQueue> {
    pub(crate) backlogs: Vec<Arc<Backlog<S>>>,
    pub(crate) positions: Positions,
    /// The last delivery's number.
    pub(crate) seq: u64,
    /// The number of flushes that left the visibility barrier.
    pub(crate) flushes: u64,
    /// Everything up to here was pushed.
    pub(crate) passed: Option<Position>,
    /// True once the warning was logged that visibility cannot be reported.
    pub(crate) has_warned: bool,
}

impl<S: DiskQueue> Drop for Dispatcher<S> {
    fn drop(&mut self) {
        self.backlogs.iter().for_each(|backlog| backlog.close());
    }
}

impl<S: DiskQueue> Dispatcher<S> {
    pub(crate) const fn new(backlogs: Vec<Arc<Backlog<S>>>, positions: Positions) -> Self {
        Self { backlogs, positions, seq: 0, flushes: 0, passed: None, has_warned: false }
    }

    /// Hands work to every backlog, and waits while one is full. If the call is dropped half way,
    /// no position was saved for the work, so a restart repeats it.
    pub(crate) async fn push(
        &mut self,
        work: Work,
        committed_us: u64,
        read_at: Instant,
        is_seen: bool,
    ) {
        self.seq += 1;
        let delivery = Arc::new(Delivery { seq: self.seq, work, committed_us, read_at, is_seen });
        for backlog in &self.backlogs {
            backlog.push(&delivery).await;
        }
    }

    /// Records that everything up to `position` was pushed.
    pub(crate) fn pass(&mut self, position: Position) {
        self.positions.push(self.seq, position.clone());
        self.passed = Some(position);
    }
}
