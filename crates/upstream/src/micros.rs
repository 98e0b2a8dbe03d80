//! Durations in the unit of this crate's clocks.

use std::time::Duration;

/// Whole microseconds of `duration`, saturating.
#[inline]
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
