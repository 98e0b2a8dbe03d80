//! The order in which the servers of a source are tried, and the outcome when servers cannot be
//! followed.
//!
//! A fault that a retry does not fix, such as a missing right, ends the invalidator when it starts,
//! so that it is noticed. Later, such a fault of one server must not end it while another server
//! may be followed: a replica that became unfit is often tried only because the connection to a
//! healthy primary broke for a moment.
//!
//! After such a break, the list is tried from its first server again. A server whose log breaks
//! twice without progress, or is damaged, makes way for the next one.

use std::collections::BTreeSet;

use crate::change_source::SourceError;

/// The turns of a source's servers.
#[derive(Debug)]
pub(super) struct Rotation {
    servers: usize,
    turn: usize,
    /// True once the log of a server was opened.
    has_followed: bool,
    /// The servers whose open logs ended with a fault that a retry does not fix, since the last
    /// commit was read.
    unfit: BTreeSet<usize>,
    /// The servers whose open logs broke since there was progress.
    broken: BTreeSet<usize>,
}

impl Rotation {
    /// Turns of this number of servers.
    pub(super) const fn new(servers: usize) -> Self {
        let unfit = BTreeSet::new();
        Self { servers, turn: 0, has_followed: false, unfit, broken: BTreeSet::new() }
    }

    /// The index of the server to try, or of the one that is followed.
    pub(super) const fn current(&self) -> usize {
        self.turn % self.servers
    }

    /// Begins to try each server once.
    pub(super) fn attempts(&self) -> Attempts {
        Attempts { is_first: !self.has_followed, ..Attempts::default() }
    }

    /// The current server cannot be followed now.
    pub(super) const fn advance(&mut self) {
        self.turn = self.current() + 1;
    }

    /// Tries the list from this server on.
    pub(super) const fn turn_to(&mut self, server: usize) {
        self.turn = server;
    }

    /// The log of the current server is open.
    pub(super) const fn opened(&mut self) {
        self.has_followed = true;
    }

    /// A commit was read.
    pub(super) fn read(&mut self) {
        self.unfit.clear();
        self.broken.clear();
    }

    /// The log was read up to its end.
    pub(super) fn reached_end(&mut self) {
        self.broken.clear();
    }

    /// The log of the current server is damaged at this place.
    pub(super) fn is_damaged(&mut self) {
        self.broken.insert(self.current());
    }

    /// The open log of the current server ended with this error. Turns to the server to try next,
    /// and returns the source's error.
    pub(super) fn ended(&mut self, error: SourceError) -> SourceError {
        let why = match error {
            SourceError::Lost(_) if self.broken.insert(self.current()) => {
                self.turn_to(0);
                return error;
            }
            SourceError::Wrong(why) => why,
            error => {
                self.advance();
                return error;
            }
        };
        self.unfit.insert(self.current());
        self.advance();
        if self.unfit.len() < self.servers {
            return SourceError::Lost(why);
        }
        SourceError::Wrong(why)
    }
}

/// The failures of servers that were tried in turn.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    is_first: bool,
    lost: Vec<String>,
    purged: Option<String>,
    wrong: Vec<String>,
}

impl Attempts {
    /// Records why a server cannot be followed.
    ///
    /// # Errors
    ///
    /// When the other servers must not be tried.
    pub(super) fn failed(&mut self, error: SourceError) -> Result<(), SourceError> {
        match error {
            SourceError::Lost(why) => self.lost.push(why),
            SourceError::Purged(why) => self.purged = Some(why),
            SourceError::Wrong(why) if !self.is_first => self.wrong.push(why),
            error => return Err(error),
        }
        Ok(())
    }

    /// The faults of servers that a retry does not fix, after another server could be followed.
    pub(super) fn faults(self) -> Vec<String> {
        self.wrong
    }

    /// The source's error after every server failed.
    pub(super) fn error(mut self) -> SourceError {
        if let Some(why) = self.purged {
            return SourceError::Purged(why);
        }
        let is_wrong = self.lost.is_empty() && !self.wrong.is_empty();
        self.lost.append(&mut self.wrong);
        let why = self.lost.join("; ");
        if is_wrong { SourceError::Wrong(why) } else { SourceError::Lost(why) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(why: &str) -> SourceError {
        SourceError::Lost(why.to_owned())
    }

    fn wrong(why: &str) -> SourceError {
        SourceError::Wrong(why.to_owned())
    }

    fn purged(why: &str) -> SourceError {
        SourceError::Purged(why.to_owned())
    }

    fn tried(rotation: &Rotation, errors: &[SourceError]) -> SourceError {
        let mut attempts = rotation.attempts();
        for error in errors {
            if let Err(error) = attempts.failed(error.clone()) {
                return error;
            }
        }
        attempts.error()
    }

    #[test]
    fn at_the_start_a_permanent_fault_ends_it() {
        let rotation = Rotation::new(2);
        assert_eq!(tried(&rotation, &[wrong("a"), lost("b")]), wrong("a"));
        assert_eq!(tried(&rotation, &[lost("a"), wrong("b")]), wrong("b"));
    }

    #[test]
    fn later_it_ends_it_only_at_every_server() {
        let mut rotation = Rotation::new(2);
        rotation.opened();
        assert_eq!(tried(&rotation, &[wrong("a"), lost("b")]), lost("b; a"));
        assert_eq!(tried(&rotation, &[wrong("a"), wrong("b")]), wrong("a; b"));
        assert_eq!(tried(&rotation, &[wrong("a"), purged("b")]), purged("b"));
        assert_eq!(tried(&rotation, &[purged("a"), lost("b")]), purged("a"));
    }

    #[test]
    fn a_server_that_refuses_is_left_and_ends_it_if_all_do() {
        let mut rotation = Rotation::new(2);
        rotation.opened();
        // The first server is idle, and the second one refuses each time.
        for _ in 0..3 {
            rotation.turn_to(1);
            assert_eq!(rotation.ended(wrong("b")), lost("b"));
            assert_eq!(rotation.current(), 0);
            rotation.reached_end();
        }
        assert_eq!(rotation.ended(wrong("a")), wrong("a"));
        rotation.read();
        assert_eq!(rotation.ended(wrong("b")), lost("b"));
        assert_eq!(Rotation::new(1).ended(wrong("a")), wrong("a"));
    }

    #[test]
    fn a_broken_connection_leads_to_the_first_server() {
        let mut rotation = Rotation::new(3);
        rotation.opened();
        for _ in 0..3 {
            assert_eq!(rotation.ended(lost("a")), lost("a"));
            assert_eq!(rotation.current(), 0);
            rotation.reached_end();
        }
        rotation.turn_to(2);
        rotation.ended(lost("c"));
        assert_eq!(rotation.current(), 0);
        rotation.read();
        rotation.ended(lost("a"));
        assert_eq!(rotation.current(), 0);
    }

    #[test]
    fn a_log_that_breaks_twice_without_progress_is_read_elsewhere() {
        let mut rotation = Rotation::new(2);
        rotation.opened();
        let mut turns = Vec::new();
        for _ in 0..6 {
            turns.push(rotation.current());
            rotation.ended(lost("broken"));
        }
        assert_eq!(turns, [0, 0, 1, 0, 1, 0]);
    }

    #[test]
    fn a_damaged_log_is_read_elsewhere_at_once() {
        let mut rotation = Rotation::new(2);
        rotation.opened();
        rotation.is_damaged();
        rotation.ended(lost("damaged"));
        assert_eq!(rotation.current(), 1);
        rotation.read();
        rotation.ended(lost("b"));
        assert_eq!(rotation.current(), 0);
    }
}
