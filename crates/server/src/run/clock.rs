//! The server's clock: seconds since its start, and the Unix time of that start.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A clock that only goes forward. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started_at: Instant,
    zero_at_unix: u64,
}

impl Clock {
    /// Starts at second 2.
    #[must_use]
    pub fn start() -> Self {
        // A machine whose clock stands before 1970 has no sensible Unix time: absolute exptimes are all future then.
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { started_at: Instant::now(), zero_at_unix: unix.saturating_sub(u64::from(FIRST_SEC)) }
    }

    /// Seconds at `now`; never below 2.
    #[must_use]
    pub fn secs_at(&self, now: Instant) -> u32 {
        let since = now.saturating_duration_since(self.started_at).as_secs();
        u32::try_from(since).unwrap_or(u32::MAX).saturating_add(FIRST_SEC)
    }

    /// Seconds now.
    #[must_use]
    pub fn secs(&self) -> u32 {
        self.secs_at(Instant::now())
    }

    /// When the server started.
    #[must_use]
    pub fn started_at(&self) -> Instant {
        self.started_at
    }

    /// The Unix time, in seconds, at which this clock would have been zero.
    #[must_use]
    pub fn zero_at_unix(&self) -> u64 {
        self.zero_at_unix
    }
}

/// The first second: a deadline of 0 means never, and 1 is in the past of everybody.
const FIRST_SEC: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_clock_begins_after_the_reserved_deadlines() {
        let clock = Clock::start();
        assert_eq!(clock.secs_at(clock.started_at()), FIRST_SEC);
        assert_eq!(clock.secs_at(clock.started_at() + Duration::from_millis(1999)), FIRST_SEC + 1);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(unix.abs_diff(clock.zero_at_unix() + u64::from(clock.secs())) <= 1);
    }
}
