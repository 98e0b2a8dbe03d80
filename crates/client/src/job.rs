//! The jobs that callers hand to a driver.

use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::slot::Slot;
use routes::Plan;
use upstream::OwnedRequest;

/// The work of a driver.
#[derive(Debug)]
pub(crate) enum Job {
    /// Send it; the answer goes to this place of the slot.
    Ask { request: OwnedRequest, slot: Arc<Slot>, index: usize },
    /// Send it to every server; the worst answer goes to the slot.
    AskAll { request: OwnedRequest, slot: Arc<Slot> },
    /// Answer the slot when nothing is outstanding.
    AwaitIdle(Arc<Slot>),
    /// Fail the slot at this time.
    Expire { at: Instant, slot: Weak<Slot> },
    /// Take another tree.
    Replace(Arc<Plan>),
}

impl Job {
    /// The memory that it holds, and whether an answer is owed for it.
    pub(crate) fn weight(&self) -> (usize, usize) {
        match self {
            Self::Ask { request, .. } | Self::AskAll { request, .. } => (request.bytes(), 1),
            Self::AwaitIdle(_) | Self::Expire { .. } | Self::Replace(_) => (0, 0),
        }
    }

    /// The slot that waits for an answer.
    pub(crate) fn slot(&self) -> Option<&Arc<Slot>> {
        match self {
            Self::Ask { slot, .. } | Self::AskAll { slot, .. } | Self::AwaitIdle(slot) => {
                Some(slot)
            }
            Self::Expire { .. } | Self::Replace(_) => None,
        }
    }
}
