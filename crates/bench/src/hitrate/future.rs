//! Caches that know the future, as a walk over a spooled trace serves them.

use super::Counts;

/// A request as a cache that knows the future meets it.
pub(super) struct Met {
    /// Its position. What the cache holds of this key is named by it.
    pub at: u64,
    pub is_get: bool,
    /// It is counted.
    pub counts: bool,
    /// The position of the key's next use, and the item's bytes, if it is of use then.
    pub keep: Option<(u64, u32)>,
}

/// A cache that knows the future.
pub(super) trait Future {
    fn meet(&mut self, met: &Met);
    fn counts(self) -> Counts;
}
