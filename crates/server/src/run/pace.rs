//! The pace of the cleaner: steps with pauses while workers turn. While none does, it takes the
//! steps of a second in a row and sleeps until the next second.

use crate::activity::Woken;

/// The number of idle steps in a row after which the cleaner sleeps, and of steps after a sleep:
/// those of one second with pauses.
const STEPS_PER_SECOND: u32 = 100;

/// The action after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A short pause.
    Pause,
    /// The next step, at once.
    Step,
    /// A sleep until a worker turns, or the second changes.
    Sleep,
}

/// Counts idle steps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    idle_steps: u32,
    /// Remaining steps in a row after a sleep that no worker ended.
    steps_left: u32,
}

impl Pace {
    /// Returns the action after an idle or a busy step.
    pub(super) fn after_step(&mut self, is_idle: bool) -> Next {
        if !is_idle {
            *self = Self::default();
            return Next::Pause;
        }
        if self.steps_left > 0 {
            self.steps_left -= 1;
            return if self.steps_left == 0 { Next::Sleep } else { Next::Step };
        }
        self.idle_steps += 1;
        if self.idle_steps < STEPS_PER_SECOND { Next::Pause } else { Next::Sleep }
    }

    /// Notes the reason for the end of a sleep.
    pub(super) fn after_sleep(&mut self, woken: Woken) {
        let steps_left = if woken == Woken::InTime { STEPS_PER_SECOND } else { 0 };
        *self = Self { idle_steps: 0, steps_left };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The action after each of `count` idle steps.
    fn idle(pace: &mut Pace, count: u32) -> Vec<Next> {
        (0..count).map(|_| pace.after_step(true)).collect()
    }

    #[test]
    fn an_idle_thread_sleeps_after_a_second_and_catches_up() {
        let mut pace = Pace::default();
        let first = idle(&mut pace, STEPS_PER_SECOND);
        assert!(first[..99].iter().all(|next| *next == Next::Pause));
        assert_eq!(first[99], Next::Sleep);
        pace.after_sleep(Woken::InTime);
        let second = idle(&mut pace, STEPS_PER_SECOND);
        assert!(second[..99].iter().all(|next| *next == Next::Step));
        assert_eq!(second[99], Next::Sleep);
    }

    #[test]
    fn a_turn_or_work_restores_the_pauses() {
        let mut pace = Pace::default();
        pace.after_sleep(Woken::ByTurn);
        assert_eq!(pace.after_step(true), Next::Pause);
        pace.after_sleep(Woken::InTime);
        assert_eq!(pace.after_step(false), Next::Pause);
        assert!(idle(&mut pace, STEPS_PER_SECOND - 1).iter().all(|next| *next == Next::Pause));
        assert_eq!(pace.after_step(true), Next::Sleep);
    }
}
