//! Times as numbers of microseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The system's time, in microseconds since 1970.
#[must_use]
pub fn system_now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    micros(since)
}

/// A time in microseconds; the maximum stands for 584,000 years and more.
pub(crate) fn micros(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(time.subsec_micros()))
}

/// The older of two times, where 0 is none.
pub(crate) const fn older(one: u64, other: u64) -> u64 {
    match (one, other) {
        (0, time) | (time, 0) => time,
        (one, other) if one < other => one,
        (_, other) => other,
    }
}
