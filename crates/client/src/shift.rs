//! Who drives: the *keeper*, the lane's own thread, or a *leader*, a caller that does it while it waits for its own answer.
//!
//! A lone caller that leads sends, waits and reads by itself, without a hand-over between threads. The keeper is for all else: requests
//! that nobody waits for in this way, and what is due when nobody calls.
//!
//! # Laws
//!
//! 1. There is one driver. It is free (here), or one thread's; all changes are made under the inbox's lock.
//! 2. Whoever has it looks at the inbox under that lock before it sleeps, and wakes the keeper if it gives the driver back while there is work.
//! 3. The keeper looks here under that lock before it sleeps.
//! 4. Each of the two sleeps at a bell of its own, which nobody else silences. So whoever finds that one sleeps, and says here that it does not any
//!    more, has to ring, and will be heard.
//!
//! After a leader the keeper *rests*: it does not watch the servers, since each answer to the next leader would wake it. It looks again
//! [`REST`] later.

use std::time::{Duration, Instant};

/// How long the keeper does not watch the servers after a leader.
pub(crate) const REST: Duration = Duration::from_millis(10);

/// Who may drive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Who {
    Keeper,
    Leader,
}

/// What the keeper does next.
#[derive(Debug)]
pub(crate) enum Next<D> {
    Drive(D),
    /// Sleep, until then or until it is rung.
    Rest(Instant),
    /// The same, or until a server speaks.
    Watch(Option<Instant>),
}

/// See the head of this file. `D` is the driver.
#[derive(Debug)]
pub(crate) struct Shift<D> {
    free: Option<D>,
    /// When a free driver has something to do.
    due: Option<Instant>,
    is_led: bool,
    /// Somebody has led since the keeper last looked.
    was_led: bool,
    leader_sleeps: bool,
    keeper_sleeps: bool,
    /// When the keeper wakes by itself.
    keeper_until: Option<Instant>,
}

impl<D> Default for Shift<D> {
    /// Without a driver; the keeper has yet to look.
    fn default() -> Self {
        Self {
            free: None,
            due: None,
            is_led: false,
            was_led: false,
            leader_sleeps: false,
            keeper_sleeps: false,
            keeper_until: None,
        }
    }
}

impl<D> Shift<D> {
    /// The driver for a leader, if it is free.
    pub(crate) fn lead(&mut self) -> Option<D> {
        let driver = self.free.take()?;
        self.is_led = true;
        Some(driver)
    }

    /// Whoever drives wants to sleep. False when there is work.
    pub(crate) fn may_sleep(&mut self, has_work: bool) -> bool {
        *self.driver_sleeps() = !has_work;
        !has_work
    }

    /// Whoever drives is awake.
    pub(crate) fn wake(&mut self) {
        *self.driver_sleeps() = false;
    }

    fn driver_sleeps(&mut self) -> &mut bool {
        if self.is_led { &mut self.leader_sleeps } else { &mut self.keeper_sleeps }
    }

    /// There is work: whose bell is to be rung.
    pub(crate) fn call(&mut self) -> Option<Who> {
        let who = if self.is_led { Who::Leader } else { Who::Keeper };
        std::mem::take(self.driver_sleeps()).then_some(who)
    }

    /// Gives the driver back, which has something to do when it is `due`. True when the keeper is to be rung: it is needed for `work`, or earlier
    /// than it would wake.
    #[must_use = "the keeper is to be rung"]
    pub(crate) fn leave(&mut self, driver: D, due: Option<Instant>, has_work: bool) -> bool {
        self.was_led |= std::mem::take(&mut self.is_led);
        self.leader_sleeps = false;
        (self.free, self.due) = (Some(driver), due);
        let is_early = due.is_some_and(|due| self.keeper_until.is_none_or(|until| due < until));
        (has_work || is_early) && std::mem::take(&mut self.keeper_sleeps)
    }

    /// Whoever had the driver has it no more, and nobody will. True when the keeper is to be rung.
    #[must_use = "the keeper is to be rung"]
    pub(crate) fn end(&mut self) -> bool {
        self.is_led = false;
        std::mem::take(&mut self.keeper_sleeps)
    }

    /// The keeper is awake: what it does next. `has_news`: it watched, and a server spoke.
    pub(crate) fn next(&mut self, now: Instant, has_work: bool, has_news: bool) -> Next<D> {
        let was_led = std::mem::take(&mut self.was_led);
        let is_due = self.due.is_some_and(|due| due <= now);
        let drives = has_work || is_due || (has_news && !was_led);
        match self.free.take() {
            Some(driver) if drives => {
                self.keeper_sleeps = false;
                return Next::Drive(driver);
            }
            free => self.free = free,
        }
        self.keeper_sleeps = true;
        if self.is_led || was_led {
            let until = self.due.into_iter().chain([now + REST]).min().unwrap_or(now);
            self.keeper_until = Some(until);
            return Next::Rest(until);
        }
        self.keeper_until = self.due;
        Next::Watch(self.due)
    }
}

#[cfg(test)]
#[path = "shift_loom_tests.rs"]
mod loom_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ms: u64, now: Instant) -> Option<Instant> {
        Some(now + Duration::from_millis(ms))
    }

    #[test]
    fn the_keeper_watches_rests_after_a_leader_and_watches_again() {
        let (mut shift, now) = (Shift::default(), Instant::now());
        assert!(!shift.leave('d', None, true), "an awake keeper is not rung");
        assert!(matches!(shift.next(now, false, false), Next::Watch(None)));
        assert_eq!(shift.lead(), Some('d'));
        assert_eq!(shift.lead(), None);
        assert!(
            matches!(shift.next(now, true, true), Next::Rest(_)),
            "what there is, is the leader's"
        );
        assert!(!shift.leave('d', after(1000, now), false), "it rests");
        assert!(matches!(shift.next(now, false, true), Next::Rest(_)));
        assert!(matches!(shift.next(now, false, false), Next::Watch(Some(_))));
        assert!(matches!(shift.next(now, false, true), Next::Drive('d')));
    }

    #[test]
    fn who_drives_is_called_once_and_at_its_own_bell() {
        let (mut shift, now) = (Shift::default(), Instant::now());
        assert!(!shift.leave('d', None, false));
        assert_eq!(shift.call(), None, "the keeper is awake");
        assert!(matches!(shift.next(now, false, false), Next::Watch(None)));
        assert_eq!((shift.call(), shift.call()), (Some(Who::Keeper), None));
        assert_eq!(shift.lead(), Some('d'));
        assert_eq!(shift.call(), None, "a leader that is awake looks by itself");
        assert!(shift.may_sleep(false) && !shift.may_sleep(true) && shift.may_sleep(false));
        assert_eq!((shift.call(), shift.call()), (Some(Who::Leader), None));
    }

    #[test]
    fn a_leader_that_leaves_wakes_the_keeper_for_work_and_for_what_is_due_early() {
        let (mut shift, now) = (Shift::default(), Instant::now());
        let led = |due, has_work| {
            let mut shift = Shift::default();
            assert!(!shift.leave('d', None, false));
            assert_eq!(shift.lead(), Some('d'));
            assert!(matches!(shift.next(now, false, false), Next::Rest(_)));
            shift.leave('d', due, has_work)
        };
        assert!(led(None, true));
        assert!(led(after(1, now), false));
        assert!(!led(after(60, now), false) && !led(None, false));
        assert!(!shift.leave('d', after(5, now), false));
        assert!(matches!(shift.next(now + REST, false, false), Next::Drive('d')), "it is due");
    }
}
