//! Hand-over of the driver between the background driver, the inbox's own thread, and a caller
//! driver, a thread that drives while it waits for its own reply.
//!
//! This is the leader/follower pattern. A lone caller sends, waits and reads by itself, without a
//! hand-over between threads. The background driver does everything else: requests that no thread
//! waits for in this way, and timers that expire while nobody calls.
//!
//! # Laws
//!
//! 1. There is one driver. It is free (here), or one thread has it. All changes are made under the
//!    inbox's lock.
//! 2. Before the thread with the driver sleeps, it checks the inbox under that lock. If it gives
//!    the driver back while there is work, it wakes the background driver.
//! 3. Before the background driver sleeps, it checks this state under that lock.
//! 4. Each of the two waits on its own eventfd, and only it drains that one. The thread that clears
//!    a sleeping flag must write that eventfd.
//!
//! After a caller has driven, the background driver pauses: it does not watch the servers for
//! [`BACKGROUND_PAUSE`], because each reply to the next caller would wake it.

use std::time::{Duration, Instant};

/// How long the background driver does not watch the servers after a caller driver.
pub(crate) const BACKGROUND_PAUSE: Duration = Duration::from_millis(10);

/// The two kinds of driving threads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DriverKind {
    Background,
    Caller,
}

/// The next step of the background driver.
#[derive(Debug)]
pub(crate) enum Next<D> {
    Drive(D),
    /// Sleep, until then or until it is notified.
    Pause(Instant),
    /// The same, or until a server speaks.
    Watch(Option<Instant>),
}

/// The driver while it is free, and the state of both threads. `D` is the driver.
#[derive(Debug)]
pub(crate) struct DriverHandoff<D> {
    free: Option<D>,
    /// The time at which a free driver has work.
    due: Option<Instant>,
    is_callers: bool,
    /// A caller has driven since the background driver's last check.
    was_callers: bool,
    caller_sleeps: bool,
    background_sleeps: bool,
    /// The time at which the background driver wakes without a notification.
    background_until: Option<Instant>,
}

impl<D> Default for DriverHandoff<D> {
    /// No driver; the background driver has yet to check.
    fn default() -> Self {
        Self {
            free: None,
            due: None,
            is_callers: false,
            was_callers: false,
            caller_sleeps: false,
            background_sleeps: false,
            background_until: None,
        }
    }
}

impl<D> DriverHandoff<D> {
    /// The driver for a caller driver, if it is free.
    pub(crate) fn take_for_caller(&mut self) -> Option<D> {
        let driver = self.free.take()?;
        self.is_callers = true;
        Some(driver)
    }

    /// Prepares the driving thread's sleep. Returns false if there is work.
    pub(crate) fn may_sleep(&mut self, has_work: bool) -> bool {
        *self.driver_sleeps() = !has_work;
        !has_work
    }

    /// The driving thread is awake.
    pub(crate) fn wake(&mut self) {
        *self.driver_sleeps() = false;
    }

    fn driver_sleeps(&mut self) -> &mut bool {
        if self.is_callers { &mut self.caller_sleeps } else { &mut self.background_sleeps }
    }

    /// There is work: returns the sleeping thread whose eventfd must be written.
    pub(crate) fn call(&mut self) -> Option<DriverKind> {
        let kind = if self.is_callers { DriverKind::Caller } else { DriverKind::Background };
        std::mem::take(self.driver_sleeps()).then_some(kind)
    }

    /// Returns the driver, which has work at `due`. True if the background driver must be notified:
    /// it is needed for `work`, or earlier than it would wake.
    #[must_use = "the background driver must be notified"]
    pub(crate) fn leave(&mut self, driver: D, due: Option<Instant>, has_work: bool) -> bool {
        self.was_callers |= std::mem::take(&mut self.is_callers);
        self.caller_sleeps = false;
        (self.free, self.due) = (Some(driver), due);
        let is_early = due.is_some_and(|due| self.background_until.is_none_or(|until| due < until));
        (has_work || is_early) && std::mem::take(&mut self.background_sleeps)
    }

    /// Ends the inbox, whose driver is gone. Returns true if the background driver must be
    /// notified.
    #[must_use = "the background driver must be notified"]
    pub(crate) fn end(&mut self) -> bool {
        self.is_callers = false;
        std::mem::take(&mut self.background_sleeps)
    }

    /// The next step of the awake background driver. `has_news`: it watched, and a server sent
    /// data.
    pub(crate) fn next(&mut self, now: Instant, has_work: bool, has_news: bool) -> Next<D> {
        let was_callers = std::mem::take(&mut self.was_callers);
        let is_due = self.due.is_some_and(|due| due <= now);
        let drives = has_work || is_due || (has_news && !was_callers);
        match self.free.take() {
            Some(driver) if drives => {
                self.background_sleeps = false;
                return Next::Drive(driver);
            }
            free => self.free = free,
        }
        self.background_sleeps = true;
        if self.is_callers || was_callers {
            let until = self.due.into_iter().chain([now + BACKGROUND_PAUSE]).min().unwrap_or(now);
            self.background_until = Some(until);
            return Next::Pause(until);
        }
        self.background_until = self.due;
        Next::Watch(self.due)
    }
}

#[cfg(test)]
#[path = "driver_handoff_loom_tests.rs"]
mod loom_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ms: u64, now: Instant) -> Option<Instant> {
        Some(now + Duration::from_millis(ms))
    }

    #[test]
    fn the_background_driver_pauses_while_callers_drive_and_resumes() {
        let (mut handoff, now) = (DriverHandoff::default(), Instant::now());
        assert!(!handoff.leave('d', None, true), "an awake background driver is not notified");
        assert!(matches!(handoff.next(now, false, false), Next::Watch(None)));
        assert_eq!(handoff.take_for_caller(), Some('d'));
        assert_eq!(handoff.take_for_caller(), None);
        assert!(
            matches!(handoff.next(now, true, true), Next::Pause(_)),
            "what there is, is the caller's"
        );
        assert!(!handoff.leave('d', after(1000, now), false), "it rests");
        assert!(matches!(handoff.next(now, false, true), Next::Pause(_)));
        assert!(matches!(handoff.next(now, false, false), Next::Watch(Some(_))));
        assert!(matches!(handoff.next(now, false, true), Next::Drive('d')));
    }

    #[test]
    fn the_driving_thread_is_notified_once_at_its_own_eventfd() {
        let (mut handoff, now) = (DriverHandoff::default(), Instant::now());
        assert!(!handoff.leave('d', None, false));
        assert_eq!(handoff.call(), None, "the background driver is awake");
        assert!(matches!(handoff.next(now, false, false), Next::Watch(None)));
        assert_eq!((handoff.call(), handoff.call()), (Some(DriverKind::Background), None));
        assert_eq!(handoff.take_for_caller(), Some('d'));
        assert_eq!(handoff.call(), None, "a caller driver that is awake looks by itself");
        assert!(handoff.may_sleep(false) && !handoff.may_sleep(true) && handoff.may_sleep(false));
        assert_eq!((handoff.call(), handoff.call()), (Some(DriverKind::Caller), None));
    }

    #[test]
    fn a_leaving_caller_wakes_the_background_driver_if_needed() {
        let (mut handoff, now) = (DriverHandoff::default(), Instant::now());
        let led = |due, has_work| {
            let mut handoff = DriverHandoff::default();
            assert!(!handoff.leave('d', None, false));
            assert_eq!(handoff.take_for_caller(), Some('d'));
            assert!(matches!(handoff.next(now, false, false), Next::Pause(_)));
            handoff.leave('d', due, has_work)
        };
        assert!(led(None, true));
        assert!(led(after(1, now), false));
        assert!(!led(after(60, now), false) && !led(None, false));
        assert!(!handoff.leave('d', after(5, now), false));
        assert!(
            matches!(handoff.next(now + BACKGROUND_PAUSE, false, false), Next::Drive('d')),
            "it is due"
        );
    }
}
