//! The server's clock: seconds that continue after a restart with kept items, and the Unix time of
//! their zero.

use std::fs;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use store::TimeNote;

/// A clock that only goes forward. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started_at: Instant,
    first_sec: u32,
    zero_at_unix: u64,
    boot_id: u128,
}

/// A moment on two clocks that outlive the process.
#[derive(Clone, Copy, Debug)]
struct Moment {
    boot_id: u128,
    boot_ms: u64,
    unix_secs: u64,
}

impl Clock {
    /// Starts at second 2.
    #[must_use]
    pub fn start() -> Self {
        Self::starting_at(FIRST_SEC, Moment::now())
    }

    /// Continues from the second of another process's note, plus the time that has passed since. In
    /// the same boot, the operating system's clock gives that time. Otherwise the wall clock gives
    /// it; if that is earlier than the note, no time has passed.
    #[must_use]
    pub fn resume(note: &TimeNote) -> Self {
        let now = Moment::now();
        Self::starting_at(now.secs_after(note), now)
    }

    fn starting_at(first_sec: u32, now: Moment) -> Self {
        let zero_at_unix = now.unix_secs.saturating_sub(u64::from(first_sec));
        Self { started_at: Instant::now(), first_sec, zero_at_unix, boot_id: now.boot_id }
    }

    /// The present, for a later process that continues from it.
    #[must_use]
    pub fn note(&self) -> TimeNote {
        let Moment { boot_ms, unix_secs, .. } = Moment::without_boot_id();
        TimeNote { boot_id: self.boot_id, boot_ms, unix_secs, secs: self.secs() }
    }

    /// True if a note is known to be from the current boot.
    #[must_use]
    pub fn is_of_this_boot(note: &TimeNote) -> bool {
        Moment::now().is_in_boot_of(note)
    }

    /// Seconds at `now`; never below 2.
    #[must_use]
    pub fn secs_at(&self, now: Instant) -> u32 {
        let since = now.saturating_duration_since(self.started_at).as_secs();
        u32::try_from(since).unwrap_or(u32::MAX).saturating_add(self.first_sec)
    }

    /// Milliseconds from the process's start to `now`.
    #[must_use]
    pub fn ms_at(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.started_at);
        since.as_secs().saturating_mul(1000).saturating_add(u64::from(since.subsec_millis()))
    }

    /// Seconds now.
    #[must_use]
    pub fn secs(&self) -> u32 {
        self.secs_at(Instant::now())
    }

    /// The time until [`Self::secs`] changes.
    #[must_use]
    pub(crate) fn until_next_second(&self) -> Duration {
        let since = self.started_at.elapsed();
        Duration::from_secs(1) - Duration::from_nanos(since.subsec_nanos().into())
    }

    /// The time at which the server started.
    #[must_use]
    pub fn started_at(&self) -> Instant {
        self.started_at
    }

    /// The Unix time, in seconds, at which this clock would have been zero, by the wall clock at
    /// the start.
    #[must_use]
    pub fn zero_at_unix(&self) -> u64 {
        self.zero_at_unix
    }

    /// The same by the wall clock at `now`, the present. `known` is the previous value.
    pub(crate) fn zero_at_unix_now(&self, now: Instant, known: u64) -> u64 {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let own_ms = u64::from(self.first_sec).saturating_mul(1000).saturating_add(self.ms_at(now));
        followed(unix, own_ms, known)
    }
}

impl Moment {
    fn now() -> Self {
        // Without this file, 0: then only the wall clock counts, and a file that was not closed in
        // order is of an unknown boot.
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot_id = u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(0);
        Self { boot_id, ..Self::without_boot_id() }
    }

    fn without_boot_id() -> Self {
        // On a machine whose clock is before 1970, Unix time is not sensible: all absolute exptimes
        // are in the future then.
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let boot = clock_gettime(ClockId::Boottime);
        let ms = boot.tv_sec * 1000 + boot.tv_nsec / 1_000_000;
        Self { boot_id: 0, boot_ms: u64::try_from(ms).unwrap_or(0), unix_secs: unix }
    }

    /// True if this and the note are known to be from the same boot.
    fn is_in_boot_of(&self, note: &TimeNote) -> bool {
        self.boot_id == note.boot_id && self.boot_id != 0
    }

    /// The present second of the clock that made the note.
    fn secs_after(&self, note: &TimeNote) -> u32 {
        let passed = if self.is_in_boot_of(note) {
            self.boot_ms.saturating_sub(note.boot_ms) / 1000
        } else {
            self.unix_secs.saturating_sub(note.unix_secs)
        };
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        note.secs.saturating_add(passed).max(FIRST_SEC)
    }
}

/// The Unix time, in seconds, of the zero of a clock that shows `own_ms`. Returns `known` while
/// that is correct to half a second, so that the result does not alternate.
fn followed(unix: Duration, own_ms: u64, known: u64) -> u64 {
    let unix_ms = u64::try_from(unix.as_millis()).unwrap_or(u64::MAX);
    let zero_ms = unix_ms.saturating_sub(own_ms);
    // The seconds of both clocks were truncated, so up to one second more is correct.
    let least_ms = known.saturating_mul(1000);
    let is_true =
        zero_ms.saturating_add(500) >= least_ms && zero_ms < least_ms.saturating_add(1500);
    if is_true { known } else { zero_ms / 1000 }
}

/// The first second: a deadline of 0 means never, and 1 is always in the past.
const FIRST_SEC: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_begins_after_the_reserved_deadlines() {
        let clock = Clock::start();
        assert_eq!(clock.secs_at(clock.started_at()), FIRST_SEC);
        assert_eq!(clock.secs_at(clock.started_at() + Duration::from_millis(1999)), FIRST_SEC + 1);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(unix.abs_diff(clock.zero_at_unix() + u64::from(clock.secs())) <= 1);
    }

    #[test]
    fn the_wall_clock_is_followed_when_it_is_set_and_not_when_it_trembles() {
        let (zero, own_ms) = (1_000_000_000, 5_700);
        let at = |zero_ms: u64| followed(Duration::from_millis(zero_ms + own_ms), own_ms, zero);
        for trembling in [999_999_999_500, 1_000_000_000_000, 1_000_000_000_999, 1_000_000_001_400]
        {
            assert_eq!(at(trembling), zero, "{trembling}");
        }
        for (set, want) in [
            (999_999_999_400, 999_999_999),
            (1_000_000_001_500, 1_000_000_001),
            (1_000_003_600_000, 1_000_003_600),
            (965_440_000_000, 965_440_000),
            (0, 0),
        ] {
            assert_eq!(at(set), want);
        }
    }

    #[test]
    fn the_clock_goes_on_from_a_note() {
        let clock = Clock::resume(&TimeNote { secs: 500, ..Clock::start().note() });
        assert!((500..=501).contains(&clock.secs()));
        assert!(Clock::is_of_this_boot(&clock.note()));
    }

    #[test]
    fn an_unknown_boot_is_never_this_one() {
        let note = |boot_id| TimeNote { boot_id, boot_ms: 10_000, unix_secs: 1_000_000, secs: 50 };
        let now = |boot_id| Moment { boot_id, boot_ms: 13_900, unix_secs: 1_000_000 };
        for (then, boot_id, want) in [(7, 7, true), (7, 8, false), (7, 0, false), (0, 7, false)] {
            assert_eq!(now(boot_id).is_in_boot_of(&note(then)), want, "{then}, {boot_id}");
        }
        assert!(!now(0).is_in_boot_of(&note(0)));
        assert!(!Clock::is_of_this_boot(&note(0)));
    }

    /// The wall clock may be changed arbitrarily across a restart of the process.
    #[test]
    fn within_a_boot_the_clock_of_the_wall_does_not_count() {
        let note = TimeNote { boot_id: 7, boot_ms: 10_000, unix_secs: 1_000_000, secs: 50 };
        for unix_secs in [0, 1, 999_990, 1_000_003, 90_000_000_000] {
            let now = Moment { boot_id: 7, boot_ms: 13_900, unix_secs };
            assert_eq!(now.secs_after(&note), 53, "Unix time {unix_secs}");
        }
    }

    #[test]
    fn over_a_boot_the_clock_of_the_wall_counts_unless_it_stands_before_the_note() {
        let note = TimeNote { boot_id: 7, boot_ms: 10_000, unix_secs: 1_000_000, secs: 50 };
        for (unix_secs, want) in [(1_000_100, 150), (1_000_000, 50), (999_000, 50), (0, 50)] {
            let now = Moment { boot_id: 8, boot_ms: 1, unix_secs };
            assert_eq!(now.secs_after(&note), want, "Unix time {unix_secs}");
        }
        let now = Moment { boot_id: 8, boot_ms: 1, unix_secs: u64::MAX };
        assert_eq!(now.secs_after(&note), u32::MAX);
    }
}
