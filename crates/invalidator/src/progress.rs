//! Judges which events show that the log is followed.
//!
//! A log may break at the same place again and again, after each new connection has begun well. So
//! after a break, only an event that comes after that place counts, or a server that stays quiet.

use std::mem::replace;

use changes::change::Event;
use changes::position::Position;

/// The state between events, over all connections.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// True from a break until the log is followed again.
    has_broken: bool,
    /// True after a sign of life, until the next change.
    is_alive: bool,
    /// The position of the last idle log.
    idle_at: Option<Position>,
}

impl Progress {
    /// The connection broke.
    pub(crate) const fn broke(&mut self) {
        self.has_broken = true;
        self.is_alive = false;
    }

    /// True if the event shows that the log is followed.
    pub(crate) fn shows(&mut self, event: &Event) -> bool {
        let has_passed = match event {
            // Its transaction may be the place.
            Event::Change(_) => {
                self.is_alive = false;
                false
            }
            Event::Lacking { .. } => false,
            Event::Idle { position } if self.idle_at.as_ref() != Some(position) => {
                self.idle_at = Some(position.clone());
                true
            }
            // A new connection begins with one of these. The next one shows that nothing came
            // between them.
            Event::Alive | Event::Idle { .. } => replace(&mut self.is_alive, true),
            _ => true,
        };
        self.has_broken &= !has_passed;
        !self.has_broken
    }
}

#[cfg(test)]
mod tests {
    use changes::change::Change;

    use super::*;

    #[test]
    fn after_a_break_only_progress_shows_that_the_log_is_followed() {
        let change = || Event::Change(Change::Keys(Vec::new()));
        let idle = |lsn| Event::Idle { position: Position::of_lsn(lsn) };
        let mut progress = Progress::default();
        assert!(progress.shows(&Event::Alive) && progress.shows(&change()));
        assert!(progress.shows(&idle(1)));
        for _ in 0..3 {
            progress.broke();
            assert!(!progress.shows(&Event::Alive) && !progress.shows(&change()));
            progress.broke();
            assert!(!progress.shows(&idle(1)));
            assert!(!progress.shows(&change()) && !progress.shows(&Event::Alive));
        }
        assert!(progress.shows(&Event::Rollback) && progress.shows(&change()));
        progress.broke();
        assert!(!progress.shows(&Event::Alive) && progress.shows(&Event::Alive), "it is quiet");
        progress.broke();
        assert!(progress.shows(&idle(2)) && progress.shows(&change()));
    }
}
