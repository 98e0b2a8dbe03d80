//! The order in which the servers of a source are tried, and the outcome when servers cannot be
//! followed.
//!
//! A fault that a retry does not fix, such as a missing right, ends the invalidator when it starts,
//! so that it is noticed. Later, such a fault of one server must not end it while another server
//! may be followed: a replica that became unfit is often tried only because the connection to a
//! healthy primary broke for a moment.

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
}

impl Rotation {
    /// Turns of this number of servers.
    pub(super) const fn new(servers: usize) -> Self {
        Self { servers, turn: 0, has_followed: false, unfit: BTreeSet::new() }
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

    /// The log of the current server is open.
    pub(super) const fn opened(&mut self) {
        self.has_followed = true;
    }

    /// A commit was read.
    pub(super) fn read(&mut self) {
        self.unfit.clear();
    }

    /// The open log of the current server ended with this error. Turns to the next server, and
    /// returns the source's error.
    pub(super) fn ended(&mut self, error: SourceError) -> SourceError {
        let SourceError::Wrong(why) = error else {
            self.advance();
            return error;
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
    fn an_open_log_that_ends_is_followed_elsewhere() {
        let mut rotation = Rotation::new(2);
        rotation.opened();
        assert_eq!(rotation.ended(lost("a")), lost("a"));
        assert_eq!(rotation.current(), 1);
        // The second server refuses each time, and the first one is idle in between.
        for _ in 0..3 {
            assert_eq!(rotation.ended(wrong("b")), lost("b"));
            assert_eq!(rotation.current(), 0);
            rotation.ended(lost("a"));
        }
        assert_eq!(rotation.ended(wrong("b")), lost("b"));
        assert_eq!(rotation.ended(wrong("a")), wrong("a"));
        rotation.read();
        assert_eq!(rotation.ended(wrong("b")), lost("b"));
        assert_eq!(Rotation::new(1).ended(wrong("a")), wrong("a"));
    }
}
