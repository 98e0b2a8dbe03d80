//! Meaning of a client's `exptime`, in 64 bits: nothing wraps in 2038 or 2106.

use crate::number::parse_i64;

/// The largest `exptime` that is an offset: thirty days, in seconds. A larger one is a Unix time.
pub const OFFSET_SECS_MAX: i64 = 60 * 60 * 24 * 30;

/// Parses an expiry time of text. 4294967295 is -1, as in memcached, which keeps 32 bits: it is a
/// client's negative time as an unsigned number.
#[inline]
#[must_use]
pub fn parse(text: &[u8]) -> Option<i64> {
    const MINUS_ONE: i64 = u32::MAX as i64;
    parse_i64(text).map(|exptime| if exptime == MINUS_ONE { -1 } else { exptime })
}

/// The time at which an item dies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exptime {
    /// It never dies.
    Never,
    /// At this second since the server's start: it is not returned from then on.
    At(u64),
    /// It is stored, counted, and never returned.
    AlreadyDead,
}

/// Converts a client's `exptime` (seconds, signed) to the second since start at which the item is
/// dead.
///
/// `now_secs` is seconds since start; `started_at_unix` is the Unix time, in seconds, at which it
/// was zero.
///
/// * `0`: never.
/// * negative: already dead.
/// * `1..=30 days`: an offset from `now_secs`.
/// * more than 30 days: a Unix time. One not after `started_at_unix` is already dead; for any
///   reader the same applies to one not after now, which is returned as a past [`Exptime::At`].
///
/// Source: memcached `doc/protocol.txt`, "Expiration times". holdall keeps 64 bits where
/// memcached's 32 wrap.
#[must_use]
pub fn resolve(exptime: i64, now_secs: u64, started_at_unix: u64) -> Exptime {
    let Ok(seconds) = u64::try_from(exptime) else {
        return Exptime::AlreadyDead;
    };
    if seconds == 0 {
        return Exptime::Never;
    }
    if exptime <= OFFSET_SECS_MAX {
        return Exptime::At(now_secs.saturating_add(seconds));
    }
    match seconds.checked_sub(started_at_unix) {
        None | Some(0) => Exptime::AlreadyDead,
        Some(since_start) => Exptime::At(since_start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1000;
    const STARTED: u64 = 1_700_000_000;

    fn check(exptime: i64, want: Exptime) {
        assert_eq!(resolve(exptime, NOW, STARTED), want, "exptime {exptime}");
    }

    #[test]
    fn only_the_largest_number_of_32_bits_is_negative() {
        assert_eq!(parse(b"4294967295"), Some(-1));
        for (text, want) in [("-1", -1), ("4294967294", 4_294_967_294), ("4294967296", 1 << 32)] {
            assert_eq!(parse(text.as_bytes()), Some(want));
        }
        assert_eq!(parse(b"+1"), None);
    }

    #[test]
    fn zero_never_expires_and_negative_times_are_expired() {
        check(0, Exptime::Never);
        check(-1, Exptime::AlreadyDead);
        check(i64::MIN, Exptime::AlreadyDead);
    }

    #[test]
    fn thirty_days_is_the_longest_relative_time() {
        check(1, Exptime::At(1001));
        check(OFFSET_SECS_MAX, Exptime::At(1000 + 2_592_000));
        check(OFFSET_SECS_MAX + 1, Exptime::AlreadyDead);
    }

    #[test]
    fn unix_times_are_converted_to_times_since_the_start() {
        check(1_700_000_000, Exptime::AlreadyDead);
        check(1_700_000_001, Exptime::At(1));
        check(1_700_005_000, Exptime::At(5000));
    }

    #[test]
    fn times_after_2038_and_2106_do_not_wrap() {
        check(1 << 31, Exptime::At((1 << 31) - STARTED));
        check(1 << 32, Exptime::At((1 << 32) - STARTED));
        check(i64::MAX, Exptime::At(i64::MAX.unsigned_abs() - STARTED));
    }

    #[test]
    fn expiration_times_saturate() {
        assert_eq!(resolve(2, u64::MAX - 1, STARTED), Exptime::At(u64::MAX));
        assert_eq!(resolve(i64::MAX, 0, 0), Exptime::At(i64::MAX.unsigned_abs()));
    }
}
