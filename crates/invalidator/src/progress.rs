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
    /// The position from which the log is open.
    from: Option<Position>,
    /// Events read since then.
    read: u64,
    /// The largest number of events that an earlier connection read from there.
    read_before: u64,
    /// True from a break until the log is followed again.
    has_broken: bool,
    /// True after a sign of life, until the next event of another kind.
    is_alive: bool,
}

impl Progress {
    /// The log is open from this position.
    pub(crate) fn opened(&mut self, from: &Position) {
        let is_same = self.from.as_ref() == Some(from);
        self.read_before = if is_same { self.read_before.max(self.read) } else { 0 };
        self.from = Some(from.clone());
        self.read = 0;
        self.is_alive = false;
    }

    /// The connection broke.
    pub(crate) const fn broke(&mut self) {
        self.has_broken = true;
    }

    /// True if the event shows that the log is followed.
    pub(crate) fn shows(&mut self, event: &Event) -> bool {
        let has_passed = match event {
            // A new connection begins with one of these. The next one shows that nothing came
            // between them.
            Event::Alive | Event::Idle { .. } => replace(&mut self.is_alive, true),
            // It is not from the log.
            Event::Lacking { .. } => false,
            _ => {
                self.is_alive = false;
                self.read += 1;
                self.read > self.read_before
            }
        };
        self.has_broken &= !has_passed;
        !self.has_broken
    }
}

#[cfg(test)]
mod tests {
    use changes::change::{Change, Mark};

    use super::*;

    const FROM: fn(u64) -> Position = Position::of_lsn;

    fn change() -> Event {
        Event::Change(Change::Keys(Vec::new()))
    }

    fn commit(lsn: u64) -> Event {
        Event::Commit { position: FROM(lsn), committed_us: 0, mark: Mark::Unknown }
    }

    fn idle(lsn: u64) -> Event {
        Event::Idle { position: FROM(lsn) }
    }

    fn opened(from: u64) -> Progress {
        let mut progress = Progress::default();
        progress.opened(&FROM(from));
        progress
    }

    /// The next connection, from the position of the last one.
    fn reopen(progress: &mut Progress) {
        progress.broke();
        progress.opened(&progress.from.clone().unwrap());
    }

    #[test]
    fn every_event_counts_before_the_first_break() {
        let mut progress = opened(1);
        assert!(progress.shows(&Event::Alive) && progress.shows(&change()));
        assert!(progress.shows(&idle(1)) && progress.shows(&commit(2)));
    }

    #[test]
    fn a_commit_before_a_stuck_transaction_is_no_progress_when_it_is_read_again() {
        let mut progress = opened(1);
        let read = [Event::Alive, change(), commit(2), idle(2), change()];
        assert!(read.iter().all(|event| progress.shows(event)));
        for _ in 0..5 {
            reopen(&mut progress);
            assert!(read.iter().all(|event| !progress.shows(event)));
        }
        // A connection that read less than the one before it does not lower the number.
        reopen(&mut progress);
        assert!(!progress.shows(&change()));
        reopen(&mut progress);
        assert!(read.iter().all(|event| !progress.shows(event)));
        assert!(progress.shows(&Event::Rollback), "it is beyond the place");
        assert!(progress.shows(&Event::Alive) && progress.shows(&change()));
    }

    #[test]
    fn another_position_is_progress() {
        let mut progress = opened(1);
        assert!(progress.shows(&change()) && progress.shows(&commit(2)));
        progress.broke();
        progress.opened(&FROM(2));
        assert!(!progress.shows(&Event::Alive), "the log may be stuck there");
        assert!(progress.shows(&change()));
        reopen(&mut progress);
        assert!(!progress.shows(&change()) && progress.shows(&change()));
    }

    #[test]
    fn a_large_transaction_is_progress_once_it_is_beyond_what_was_read_before() {
        let mut progress = opened(1);
        for _ in 0..1000 {
            assert!(progress.shows(&change()));
        }
        reopen(&mut progress);
        for _ in 0..1000 {
            assert!(!progress.shows(&change()) && !progress.shows(&Event::Alive));
        }
        assert!(progress.shows(&change()) && progress.shows(&Event::Alive));
    }

    #[test]
    fn a_quiet_server_is_followed() {
        let mut progress = opened(1);
        for _ in 0..3 {
            reopen(&mut progress);
            assert!(!progress.shows(&idle(1)), "it may break now");
        }
        let why = "a check found it".to_owned();
        assert!(!progress.shows(&Event::Lacking { why }));
        assert!(progress.shows(&idle(2)) && progress.shows(&Event::Alive));
    }
}
