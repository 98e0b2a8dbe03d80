//! Pages of no class: resident and waiting for a class, returned to the system, or never used.

use super::ClassId;
use arena::qsbr::Qsbr;
use std::collections::VecDeque;

/// Asks for a free page whatever class it is promised to.
pub(super) const ANY: ClassId = ClassId::MAX;

/// Pages of no class.
#[derive(Debug, Default)]
pub(super) struct FreePages {
    /// Resident and still charged, in the order in which they became free.
    pub(super) resident: VecDeque<FreePage>,
    /// Pages whose memory went back to the system, uncharged.
    pub(super) returned: Vec<usize>,
    /// First page that was never used.
    pub(super) untouched: usize,
}

/// A resident page of no class.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreePage {
    pub(super) page: usize,
    /// The epoch in which it became free.
    epoch: u64,
    /// The class that is to get it; 0: the first that asks.
    pub(super) promised_to: ClassId,
    /// Times that [`FreePages::release_promises`] has passed it.
    looked_at: u32,
}

impl FreePages {
    /// The page that has been free for longest of those that the class may have, if its grace
    /// period is over. With `promised_only` these are the pages that were promised to it.
    pub(super) fn pop_resident(
        &mut self,
        qsbr: &Qsbr,
        id: ClassId,
        promised_only: bool,
    ) -> Option<usize> {
        let at = self.resident.iter().position(|free| free.is_for(id, promised_only))?;
        // Those behind it became free later, so they are not past their grace period either.
        qsbr.is_safe(self.resident[at].epoch)
            .then(|| self.resident.remove(at))?
            .map(|free| free.page)
    }

    /// `true` if there is a page that the class may have, now or after its grace period.
    pub(super) fn has_for(&self, id: ClassId, promised_only: bool) -> bool {
        self.resident.iter().any(|free| free.is_for(id, promised_only))
    }

    /// Frees a page for all if its class has not taken it within this many calls.
    pub(super) fn release_promises(&mut self, calls: u32) {
        for free in &mut self.resident {
            free.looked_at += 1;
            if free.looked_at > calls {
                free.promised_to = 0;
            }
        }
    }
}

impl FreePage {
    /// A page that becomes free in this epoch.
    pub(super) fn new(page: usize, epoch: u64, promised_to: ClassId) -> Self {
        Self { page, epoch, promised_to, looked_at: 0 }
    }

    /// A page that was free when the store was opened again. A new process holds no reference, so
    /// any grace period is over.
    #[cfg(not(miri))]
    pub(super) fn at_start(page: usize) -> Self {
        Self::new(page, 0, 0)
    }

    /// `true` if the class may have it.
    pub(super) fn is_for(&self, id: ClassId, promised_only: bool) -> bool {
        id == ANY || self.promised_to == id || self.promised_to == 0 && !promised_only
    }
}
