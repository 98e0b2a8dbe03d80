//! Exptimes as clients send them, and deadlines as the store keeps them.

use proto::exptime::{Exptime, resolve};

use narrow::saturating_u32;

/// A deadline that has passed for all our clocks: they start at 2 (see
/// [`crate::Settings::started_at_unix`]).
pub const DEAD: u32 = 1;

/// Converts a client's exptime to the store's deadline: the second since start at which the item is
/// dead, 0 for never.
///
/// `now_secs` is seconds since start, `started_at_unix` the Unix time at which it was zero. A
/// deadline past `u32::MAX` (136 years) becomes the latest one; nothing wraps.
#[must_use]
pub fn deadline_of(exptime: i64, now_secs: u32, started_at_unix: u64) -> u32 {
    match resolve(exptime, u64::from(now_secs), started_at_unix) {
        Exptime::AlreadyDead => DEAD,
        Exptime::At(second) => saturating_u32(second).max(DEAD),
        Exptime::Never => 0,
    }
}

/// Remaining seconds of an item with `deadline`, as meta's `t` shows them: `None` is never, and 0
/// means that the item died in this very command.
#[must_use]
pub fn ttl_of(deadline: u32, now_secs: u32) -> Option<u32> {
    (deadline != 0).then(|| deadline.saturating_sub(now_secs))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_700_000_000;

    #[test]
    fn thirty_days_is_the_last_offset() {
        assert_eq!(deadline_of(2_592_000, 10, START), 2_592_010);
        assert_eq!(deadline_of(2_592_001, 10, START), DEAD);
    }

    #[test]
    fn the_years_2038_and_2106_do_not_wrap() {
        assert_eq!(deadline_of(1 << 31, 10, START), (1u32 << 31) - 1_700_000_000);
        assert_eq!(deadline_of(1 << 32, 10, START), u32::try_from((1u64 << 32) - START).unwrap());
        assert_eq!(deadline_of(i64::MAX, 10, START), u32::MAX);
    }

    #[test]
    fn past_and_negative_times_expire_at_once() {
        assert_eq!(deadline_of(1_699_999_999, 10, START), DEAD);
        assert_eq!(deadline_of(-1, 10, START), DEAD);
        assert_eq!(deadline_of(0, 10, START), 0);
    }

    #[test]
    fn time_left_never_goes_below_zero() {
        assert_eq!(ttl_of(DEAD, 100), Some(0));
        assert_eq!(ttl_of(0, 100), None);
        assert_eq!(ttl_of(130, 100), Some(30));
    }
}
