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
    /// The reading at `started_at`. Its fraction of a second counts: without it, each restart would
    /// delay every expiry.
    first: Duration,
    zero_at_unix: u64,
    boot_id: u128,
}

/// A moment on two clocks that outlive the process.
#[derive(Clone, Copy, Debug)]
struct Moment {
    boot_id: u128,
    since_boot: Duration,
    since_1970: Duration,
}

impl Clock {
    /// Starts at second 2.
    #[must_use]
    pub fn start() -> Self {
        Self::starting_at(FIRST, Moment::now())
    }

    /// Continues from the second of another process's note, plus the time that has passed since. In
    /// the same boot, the operating system's clock gives that time. Otherwise the wall clock gives
    /// it; if that is earlier than the note, no time has passed. `None` if this clock would show 34
    /// years or more, which only a wrong wall clock can cause.
    #[must_use]
    pub fn resume(note: &TimeNote) -> Option<Self> {
        let now = Moment::now();
        let reading = now.reading_after(note);
        (reading < RESUMED_END).then(|| Self::starting_at(reading, now))
    }

    fn starting_at(first: Duration, now: Moment) -> Self {
        let zero_at_unix = now.since_1970.saturating_sub(first).as_secs();
        Self { started_at: Instant::now(), first, zero_at_unix, boot_id: now.boot_id }
    }

    /// The present, for a later process that continues from it.
    #[must_use]
    pub fn note(&self) -> TimeNote {
        let now = Moment { boot_id: self.boot_id, ..Moment::without_boot_id() };
        now.note(self.reading_at(Instant::now()))
    }

    /// True if a note is known to be from the current boot.
    #[must_use]
    pub fn is_of_this_boot(note: &TimeNote) -> bool {
        Moment::now().is_in_boot_of(note)
    }

    /// Seconds at `now`; never below 2.
    #[must_use]
    pub fn secs_at(&self, now: Instant) -> u32 {
        whole_secs(self.reading_at(now))
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
        Duration::from_secs(1) - fraction(self.reading_at(Instant::now()))
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
        let own_ms = u64::try_from(self.reading_at(now).as_millis()).unwrap_or(u64::MAX);
        followed(unix, own_ms, known)
    }

    /// The time since this clock's zero.
    fn reading_at(&self, now: Instant) -> Duration {
        self.first.saturating_add(now.saturating_duration_since(self.started_at))
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
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let boot = Duration::try_from(clock_gettime(ClockId::Boottime));
        Self { boot_id: 0, since_boot: boot.unwrap_or_default(), since_1970 }
    }

    /// The note of a clock with this reading now. Its moment is the one at which the clock's second
    /// began, because a note has no field for a part of a second.
    fn note(&self, reading: Duration) -> TimeNote {
        let into_second = fraction(reading);
        let boot = self.since_boot.saturating_sub(into_second);
        // Rounded, so that the errors of many restarts cancel out.
        let boot_ms = boot.saturating_add(Duration::from_micros(500)).as_millis();
        TimeNote {
            boot_id: self.boot_id,
            boot_ms: u64::try_from(boot_ms).unwrap_or(u64::MAX),
            unix_secs: self.since_1970.saturating_sub(into_second).as_secs(),
            secs: whole_secs(reading),
        }
    }

    /// True if this and the note are known to be from the same boot.
    fn is_in_boot_of(&self, note: &TimeNote) -> bool {
        self.boot_id == note.boot_id && self.boot_id != 0
    }

    /// The present reading of the clock that made the note.
    fn reading_after(&self, note: &TimeNote) -> Duration {
        let passed = if self.is_in_boot_of(note) {
            self.since_boot.saturating_sub(Duration::from_millis(note.boot_ms))
        } else {
            Duration::from_secs(self.since_1970.as_secs().saturating_sub(note.unix_secs))
        };
        Duration::from_secs(note.secs.into()).saturating_add(passed).max(FIRST)
    }
}

fn whole_secs(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// The part of a second.
fn fraction(time: Duration) -> Duration {
    Duration::from_nanos(time.subsec_nanos().into())
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

/// The first reading: a deadline of 0 means never, and 1 is always in the past.
const FIRST: Duration = Duration::from_secs(2);

/// The end of the readings from which a clock continues: about 34 years. Deadlines, which have 32
/// bits, need room above a reading. A clock's zero must not be before 1970: otherwise Unix times
/// cannot be converted.
const RESUMED_END: Duration = Duration::from_secs(1 << 30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_begins_after_the_reserved_deadlines() {
        let clock = Clock::start();
        assert_eq!(clock.secs_at(clock.started_at()), 2);
        assert_eq!(clock.secs_at(clock.started_at() + Duration::from_millis(1999)), 3);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(unix.abs_diff(clock.zero_at_unix() + u64::from(clock.secs())) <= 1);
    }

    #[test]
    fn the_clock_follows_a_set_wall_clock_but_not_its_jitter() {
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
    fn the_clock_resumes_from_a_note() {
        let clock = Clock::resume(&TimeNote { secs: 500, ..Clock::start().note() }).unwrap();
        assert!((500..=501).contains(&clock.secs()));
        assert!(Clock::is_of_this_boot(&clock.note()));
    }

    #[test]
    fn a_clock_that_has_run_out_does_not_go_on() {
        let now = Clock::start().note();
        for secs in [1 << 30, u32::MAX - 10, u32::MAX] {
            assert!(Clock::resume(&TimeNote { secs, ..now }).is_none(), "{secs}");
        }
        let last_year = TimeNote { boot_id: 0, unix_secs: now.unix_secs - 31_536_000, ..now };
        let resume = |secs| Clock::resume(&TimeNote { secs, ..last_year });
        assert!(resume((1 << 30) - 31_536_000).is_none());
        let clock = resume((1 << 30) - 32_000_000).unwrap();
        let unix = clock.zero_at_unix() + u64::from(clock.secs());
        assert!(unix.abs_diff(now.unix_secs) <= 1, "Unix times can be converted");
    }

    #[test]
    fn an_unknown_boot_never_counts_as_the_current_one() {
        let note = |boot_id| TimeNote { boot_id, boot_ms: 10_000, unix_secs: 1_000_000, secs: 50 };
        let now = |boot_id| moment(boot_id, 13_900, 1_000_000);
        for (then, boot_id, want) in [(7, 7, true), (7, 8, false), (7, 0, false), (0, 7, false)] {
            assert_eq!(now(boot_id).is_in_boot_of(&note(then)), want, "{then}, {boot_id}");
        }
        assert!(!now(0).is_in_boot_of(&note(0)));
        assert!(!Clock::is_of_this_boot(&note(0)));
    }

    /// The wall clock may be changed arbitrarily across a restart of the process.
    #[test]
    fn the_wall_clock_is_ignored_within_a_boot() {
        let note = TimeNote { boot_id: 7, boot_ms: 10_000, unix_secs: 1_000_000, secs: 50 };
        for unix_secs in [0, 1, 999_990, 1_000_003, 90_000_000_000] {
            let reading = moment(7, 13_900, unix_secs).reading_after(&note);
            assert_eq!(reading, Duration::from_millis(53_900), "Unix time {unix_secs}");
        }
    }

    #[test]
    fn the_wall_clock_counts_across_boots_unless_it_went_back() {
        let note = TimeNote { boot_id: 7, boot_ms: 10_000, unix_secs: 1_000_000, secs: 50 };
        for (unix_secs, want) in [(1_000_100, 150), (1_000_000, 50), (999_000, 50), (0, 50)] {
            let reading = moment(8, 1, unix_secs).reading_after(&note);
            assert_eq!(reading, Duration::from_secs(want), "Unix time {unix_secs}");
        }
        let clock = Clock::starting_at(moment(8, 1, u64::MAX).reading_after(&note), Moment::now());
        assert_eq!(clock.secs(), u32::MAX);
    }

    #[test]
    fn restarts_within_a_second_do_not_stop_the_clock() {
        let mut reading = Duration::from_millis(2_950);
        for restart in 0..1000 {
            // It serves for 300.3 ms. The next process starts 101.4 ms later.
            let at = Duration::from_micros(7_000_000 + restart * 401_700);
            let end = at + Duration::from_micros(300_300);
            let note = Moment { since_boot: end, ..moment(7, 0, 1_000_000) }
                .note(reading + Duration::from_micros(300_300));
            let start = end + Duration::from_micros(101_400);
            reading = Moment { since_boot: start, ..moment(7, 0, 1_000_000) }.reading_after(&note);
        }
        let error = reading.abs_diff(Duration::from_micros(2_950_000 + 1000 * 401_700));
        assert!(error <= Duration::from_millis(50), "{reading:?} is {error:?} wrong");
    }

    #[test]
    fn a_note_is_of_the_moment_at_which_its_second_began() {
        let now =
            Moment { since_1970: Duration::from_millis(1_000_000_300), ..moment(7, 9_000, 0) };
        let note = now.note(Duration::from_millis(50_700));
        assert_eq!(note, TimeNote { boot_id: 7, boot_ms: 8_300, unix_secs: 999_999, secs: 50 });
    }

    fn moment(boot_id: u128, boot_ms: u64, unix_secs: u64) -> Moment {
        let (since_boot, since_1970) =
            (Duration::from_millis(boot_ms), Duration::from_secs(unix_secs));
        Moment { boot_id, since_boot, since_1970 }
    }
}
