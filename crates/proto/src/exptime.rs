//! What a client's `exptime` means, in 64 bits: nothing wraps in 2038 or 2106.

/// The largest `exptime` that is an offset: thirty days, in seconds. A larger one is a Unix time.
pub const OFFSET_SECS_MAX: i64 = 60 * 60 * 24 * 30;

/// When an item dies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exptime {
    /// It does not.
    Never,
    /// At this second since the server's start: from then on it is not returned.
    At(u64),
    /// It is stored, counted, and never returned.
    AlreadyDead,
}

/// Converts a client's `exptime` (seconds, signed) to the second since start at which the item is dead.
///
/// `now_secs` is seconds since start; `started_at_unix` is the Unix time, in seconds, at which it was zero.
///
/// * `0`: never.
/// * negative: already dead.
/// * `1..=30 days`: an offset from `now_secs`.
/// * more than 30 days: a Unix time. One not after `started_at_unix` is already dead; so, to any reader, is one not
///   after now, which is returned as a past [`Exptime::At`].
///
/// Source: memcached `doc/protocol.txt`, "Expiration times". We keep 64 bits where memcached's 32 wrap.
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
