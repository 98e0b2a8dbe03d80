//! The way out of the log's task: to every cluster's backlog, and to the keeper of positions.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::backlog::Backlog;
use crate::delivery::{Delivery, Work};
use crate::position::Position;
use crate::shelf::Shelf;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Outlet<S: Shelf> {
    pub(crate) backlogs: Vec<Arc<Backlog<S>>>,
    pub(crate) positions: mpsc::UnboundedSender<(u64, Position)>,
    /// The last delivery's number.
    pub(crate) seq: u64,
    /// Everything until here went out.
    pub(crate) passed: Option<Position>,
    /// True once it was said that something cannot be told.
    pub(crate) has_told: bool,
}

impl<S: Shelf> Drop for Outlet<S> {
    fn drop(&mut self) {
        self.backlogs.iter().for_each(|backlog| backlog.close());
    }
}

impl<S: Shelf> Outlet<S> {
    /// Hands work to every cluster. One that is interrupted counts for nothing: no position is kept for it.
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

    /// Everything until here was pushed.
    pub(crate) fn pass(&mut self, position: Position) {
        // The keeper ends with this.
        let _ = self.positions.send((self.seq, position.clone()));
        self.passed = Some(position);
    }
}
