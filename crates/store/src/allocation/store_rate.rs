//! The rate at which a class's chunks are taken, which the cleaner provides for.

/// Steps of the cleaner for whose stores it keeps memory free.
const STEPS_AHEAD: u64 = 16;

/// The chunks that one class hands out in a step of the cleaner.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StoreRate {
    /// Chunks ever handed out for new items and pieces.
    stored: u64,
    /// Maximum number within one step; it falls by a sixteenth with each step.
    peak: u64,
}

impl StoreRate {
    /// Notes at a step how many chunks were ever handed out. Returns those since the last step.
    pub(super) fn note(&mut self, stored: u64) -> u64 {
        let new = stored - std::mem::replace(&mut self.stored, stored);
        self.peak = new.max(self.peak - self.peak.div_ceil(16));
        new
    }

    /// Chunks that the next steps will need at most, if each needs as many as the greatest of the
    /// last ones.
    pub(super) fn wanted(&self) -> u64 {
        self.peak * STEPS_AHEAD
    }
}
