//! Pages without a class: resident and waiting for a class, returned to the system, or never used.

use super::ClassId;
use arena::qsbr::Qsbr;
use std::collections::VecDeque;

/// Instead of a class that a page is promised to: any needy class.
pub(crate) const NEEDY: ClassId = ClassId::MAX;

/// A class that requests a free page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taker {
    pub(super) class: ClassId,
    /// The class may take pages promised to needy ones.
    pub(super) is_needy: bool,
    /// The class may not take pages without a promise.
    pub(super) promised_only: bool,
}

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
    /// The class that will get it; 0: the first that asks; or [`NEEDY`].
    pub(super) promised_to: ClassId,
    /// Times that [`FreePages::release_promises`] has passed it.
    looked_at: u32,
}

impl FreePages {
    /// Of the pages that the taker may have, the one that has been free longest, if its grace
    /// period is over.
    pub(super) fn pop_for(&mut self, qsbr: &Qsbr, taker: Taker) -> Option<usize> {
        let at = self.resident.iter().position(|free| free.is_for(taker))?;
        self.pop(qsbr, at)
    }

    /// The page that has been free longest, if its grace period is over, whatever class it was
    /// promised to.
    pub(super) fn pop_any(&mut self, qsbr: &Qsbr) -> Option<usize> {
        self.pop(qsbr, 0)
    }

    fn pop(&mut self, qsbr: &Qsbr, at: usize) -> Option<usize> {
        // The pages behind it became free later, so they are not past their grace period either.
        let is_safe = qsbr.is_safe(self.resident.get(at)?.epoch);
        is_safe.then(|| self.resident.remove(at))?.map(|free| free.page)
    }

    /// `true` if there is a page that the taker may have, now or after its grace period.
    pub(super) fn has_for(&self, taker: Taker) -> bool {
        self.resident.iter().any(|free| free.is_for(taker))
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

    /// A page that was free when the store was reopened. A new process holds no reference, so any
    /// grace period is over.
    #[cfg(not(miri))]
    pub(super) fn at_start(page: usize) -> Self {
        Self::new(page, 0, 0)
    }

    fn is_for(&self, taker: Taker) -> bool {
        match self.promised_to {
            0 => !taker.promised_only,
            NEEDY => taker.is_needy,
            class => class == taker.class,
        }
    }
}
