//! Caches that know the future, served by a walk over a spooled trace.

use super::Counts;

/// A request seen by a cache that knows the future.
pub(super) struct FutureRequest {
    /// Its position, which names the cache's item for this key.
    pub at: u64,
    pub is_get: bool,
    /// It is counted.
    pub counts: bool,
    /// The position of the key's next use, and the item's bytes, if it is useful then.
    pub keep: Option<(u64, u32)>,
}

/// A cache that knows the future.
pub(super) trait Future {
    fn meet(&mut self, met: &FutureRequest);
    fn counts(self) -> Counts;
}
