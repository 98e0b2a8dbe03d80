//! Settings of the balance between slab classes, and the page move that an operator requested.
//!
//! Relaxed: each setting is one word that guards nothing; the cleaner reads it at its next step.

use super::ClassId;
use crate::config::Automove;
use arena::sync::{AtomicU32, Mutex, Ordering};

/// The reason why a requested page move is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReassignError {
    /// No such class.
    BadClass,
    /// An earlier request is not done yet.
    Busy,
    /// The source has no page to give.
    NoSpare,
    /// Source and destination are the same.
    Same,
}

/// Settings of the balance, and a pending request.
#[derive(Debug)]
pub(crate) struct Balance {
    automove: AtomicU32,
    ratio_per_mille: AtomicU32,
    request: Mutex<Option<MoveRequest>>,
}

/// A page move requested by `slabs reassign`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MoveRequest {
    /// `None`: the class with the oldest item.
    pub from: Option<ClassId>,
    /// 0: the first class that needs a page.
    pub to: ClassId,
}

impl Balance {
    pub(crate) fn new(automove: Automove, ratio_per_mille: u32) -> Self {
        Self {
            automove: AtomicU32::new(automove as u32),
            ratio_per_mille: AtomicU32::new(ratio_per_mille),
            request: Mutex::new(None),
        }
    }

    pub(crate) fn automove(&self) -> Automove {
        match self.automove.load(Ordering::Relaxed) {
            0 => Automove::Off,
            1 => Automove::Age,
            _ => Automove::Eager,
        }
    }

    pub(crate) fn set_automove(&self, automove: Automove) {
        self.automove.store(automove as u32, Ordering::Relaxed);
    }

    pub(crate) fn ratio_per_mille(&self) -> u32 {
        self.ratio_per_mille.load(Ordering::Relaxed)
    }

    pub(crate) fn set_ratio_per_mille(&self, ratio: u32) {
        self.ratio_per_mille.store(ratio, Ordering::Relaxed);
    }

    /// The requested move, if it is not done yet.
    pub(crate) fn request(&self) -> Option<MoveRequest> {
        *self.request.lock()
    }

    /// Requests a move.
    ///
    /// # Errors
    ///
    /// `Busy` if another is pending.
    pub(crate) fn ask(&self, request: MoveRequest) -> Result<(), ReassignError> {
        let mut pending = self.request.lock();
        if pending.is_some() {
            return Err(ReassignError::Busy);
        }
        *pending = Some(request);
        Ok(())
    }

    /// The pending request is done, or cannot be done.
    pub(crate) fn finish_request(&self) {
        *self.request.lock() = None;
    }
}
