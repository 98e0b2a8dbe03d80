//! The time of the next request to a collector, and the wait after a failed one.

use std::time::{Duration, Instant};

/// The first wait after a failure.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// The longest wait.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The longest wait that a collector may ask for.
const ASKED_MAX: Duration = Duration::from_secs(300);

/// When one signal is due.
#[derive(Debug)]
pub(crate) struct Pace {
    pub(crate) due: Instant,
    /// The time between accepted requests.
    every: Duration,
    /// Failures in a row.
    pub(crate) failures: u32,
}

impl Pace {
    pub(crate) fn new(every: Duration, now: Instant) -> Self {
        Self { due: now + every, every, failures: 0 }
    }

    /// The collector has accepted everything.
    pub(crate) fn taken(&mut self, now: Instant) {
        (self.failures, self.due) = (0, now + self.every);
    }

    /// It has refused the data. Other data may follow at the usual time, but not sooner than after
    /// a failure.
    pub(crate) fn refused(&mut self, now: Instant) {
        self.failed(None, now);
        self.due = self.due.max(now + self.every);
    }

    /// It has not, and requests this wait, if any. The wait doubles each time, and its second half
    /// is random, so that many processes do not return at once.
    pub(crate) fn failed(&mut self, asked: Option<Duration>, now: Instant) {
        let doubled = WAIT_MIN.saturating_mul(1 << self.failures.min(16)).min(WAIT_MAX);
        self.failures = self.failures.saturating_add(1);
        let wait = doubled.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.due = now + wait.max(asked.unwrap_or_default().min(ASKED_MAX));
    }

    /// True while the wait after a failure is not over.
    pub(crate) fn waits(&self, now: Instant) -> bool {
        self.failures > 0 && now < self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_until_a_success() {
        let now = Instant::now();
        let mut pace = Pace::new(Duration::from_secs(60), now);
        assert!(!pace.waits(now));
        for secs in [1, 2, 4, 8, 16, 30, 30, 30] {
            pace.failed(None, now);
            let wait = pace.due - now;
            let longest = Duration::from_secs(secs);
            assert!(wait >= longest / 2 && wait <= longest, "{wait:?} for {longest:?}");
            assert!(pace.waits(now));
        }
        pace.failed(Some(Duration::from_secs(3600)), now);
        assert_eq!(pace.due - now, ASKED_MAX, "nobody makes it wait longer");
        let mut rare = Pace::new(Duration::from_secs(3600), now);
        rare.refused(now);
        assert_eq!(rare.due - now, Duration::from_secs(3600));
        pace.taken(now);
        assert!(!pace.waits(now));
        assert_eq!(pace.due - now, Duration::from_secs(60));
    }
}
