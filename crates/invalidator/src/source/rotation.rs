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
//!
//! A MariaDB or MySQL server that lacks the position may be a former primary that is up while the
//! primary restarts. Its log would be read from then on, and the primary's changes would be lost.
//! So this is no gap while another server, which cannot be followed now, may have the position.
//!
//! A server whose check failed may be repaired before the next attempt. Its log still lacks the
//! changes of that time, so the reason is kept until another commit was read. It is a loss at once
//! only if the check of every server failed: otherwise, the log of another one may have everything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::change_source::SourceError;

/// The time for which servers that cannot be followed hold back a gap. A restart of a host is
/// shorter.
const AWAITED_MAX: Duration = Duration::from_mins(5);

/// The time after which a server whose log did not reach back to the position is read again.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// The turns of a source's servers.
#[derive(Debug)]
pub(super) struct Rotation {
    servers: usize,
    turn: usize,
    /// The servers whose logs were opened.
    followed: BTreeSet<usize>,
    /// The servers whose open logs ended with a fault that a retry does not fix, since the last
    /// commit was read.
    unfit: BTreeSet<usize>,
    /// The servers whose open logs broke since there was progress.
    broken: BTreeSet<usize>,
    /// The servers whose open logs did not reach back to the position, since the last commit was
    /// read.
    purged: BTreeMap<usize, (Instant, String)>,
    /// The servers whose logs may lack changes after the last commit that was read.
    lacking: BTreeMap<usize, String>,
    /// The time since which servers that lack the position wait for one that may have it.
    awaited_since: Option<Instant>,
}

impl Rotation {
    /// Turns of this number of servers.
    pub(super) const fn new(servers: usize) -> Self {
        Self {
            servers,
            turn: 0,
            followed: BTreeSet::new(),
            unfit: BTreeSet::new(),
            broken: BTreeSet::new(),
            purged: BTreeMap::new(),
            lacking: BTreeMap::new(),
            awaited_since: None,
        }
    }

    /// The index of the server to try, or of the one that is followed.
    pub(super) const fn current(&self) -> usize {
        self.turn % self.servers
    }

    /// Begins to try each server once.
    pub(super) fn attempts(&self) -> Attempts {
        let (servers, is_first) = (self.servers, self.followed.is_empty());
        Attempts { servers, is_first, ..Attempts::default() }
    }

    /// The current server cannot be followed now.
    pub(super) const fn advance(&mut self) {
        self.turn = self.current() + 1;
    }

    /// Tries the list from this server on.
    pub(super) const fn turn_to(&mut self, server: usize) {
        self.turn = server;
    }

    /// Records why the current server cannot be followed.
    ///
    /// # Errors
    ///
    /// When the other servers must not be tried.
    pub(super) fn failed(
        &mut self,
        attempts: &mut Attempts,
        error: SourceError,
    ) -> Result<(), SourceError> {
        if let SourceError::Lacking(why) = &error {
            self.lacking.insert(self.current(), why.clone());
        }
        attempts.failed(error)
    }

    /// The log of the current server is open. Returns the reason why it may lack changes, if an
    /// earlier attempt found one.
    pub(super) fn opened(&mut self) -> Option<String> {
        self.followed.insert(self.current());
        // A server that lacked the position may lack it still.
        if !self.purged.contains_key(&self.current()) {
            self.awaited_since = None;
        }
        self.lacking.remove(&self.current())
    }

    /// The reason why the log of a server that was followed before may lack changes. A server that
    /// was never followed may be one that always lacks some, and is read only after a check.
    pub(super) fn lacking(&self) -> Option<String> {
        let (_, why) = self.lacking.iter().find(|(server, _)| self.followed.contains(server))?;
        Some(why.clone())
    }

    /// A commit was read.
    pub(super) fn read(&mut self) {
        self.unfit.clear();
        self.broken.clear();
        self.forget_position();
        self.lacking.clear();
    }

    /// The open log of the current server does not reach back to the position. Turns to the server
    /// to try next, and returns the source's error.
    pub(super) fn ended_without_position(&mut self, why: String) -> SourceError {
        self.purged.insert(self.current(), (Instant::now(), why.clone()));
        self.advance();
        if self.purged.len() < self.servers {
            return SourceError::Lost(why);
        }
        SourceError::Purged(why)
    }

    /// The reason why the current server's log does not reach back to the position, if reading it
    /// showed that a moment ago. Later, another server may have its address.
    pub(super) fn lacks_position(&self) -> Option<SourceError> {
        let (at, why) = self.purged.get(&self.current())?;
        (at.elapsed() < ASK_AGAIN).then(|| SourceError::Purged(why.clone()))
    }

    /// The position is no longer wanted.
    pub(super) fn forget_position(&mut self) {
        self.purged.clear();
        self.awaited_since = None;
    }

    /// The source's error after every server failed, where a server without the position may be a
    /// former primary.
    pub(super) fn gap_unless_awaited(&mut self, attempts: Attempts) -> SourceError {
        let others = [&attempts.lost[..], &attempts.wrong].concat().join("; ");
        let is_awaited = !others.is_empty() && !attempts.is_over();
        let Some(why) = attempts.purged.as_ref().filter(|_| is_awaited) else {
            self.awaited_since = None;
            return attempts.error();
        };
        let since = *self.awaited_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= AWAITED_MAX {
            self.awaited_since = None;
            return SourceError::Purged(format!(
                "{why}; {others}; for {AWAITED_MAX:?}, as after each start while it is in servers"
            ));
        }
        SourceError::Lost(format!(
            "{why}; another server may have the position: {others}; this is a gap only after {AWAITED_MAX:?}"
        ))
    }

    /// The log was read up to its end.
    pub(super) fn reached_end(&mut self) {
        self.broken.clear();
        if self.purged.remove(&self.current()).is_some() {
            self.awaited_since = None;
        }
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
    servers: usize,
    is_first: bool,
    lost: Vec<String>,
    purged: Option<String>,
    wrong: Vec<String>,
    /// The number of servers in `wrong` whose logs may lack changes.
    lacking: usize,
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
            SourceError::Lacking(why) => {
                self.wrong.push(why);
                self.lacking += 1;
            }
            error => return Err(error),
        }
        Ok(())
    }

    /// True after a failed check at the start, which ends the invalidator. The other servers are
    /// only checked: if one is fit or does not answer, its log may have all changes.
    pub(super) const fn is_over(&self) -> bool {
        self.is_first && self.lacking > 0
    }

    /// The faults of servers that a retry does not fix, after another server could be followed.
    pub(super) fn faults(self) -> Vec<String> {
        self.wrong
    }

    /// The source's error after every server failed.
    pub(super) fn error(mut self) -> SourceError {
        if self.lacking == self.servers {
            return SourceError::Lacking(self.wrong.join("; "));
        }
        if self.is_over() {
            return SourceError::Wrong(self.wrong.join("; "));
        }
        if let Some(why) = self.purged {
            return SourceError::Purged(why);
        }
        if self.lost.is_empty() {
            return SourceError::Wrong(self.wrong.join("; "));
        }
        self.lost.append(&mut self.wrong);
        SourceError::Lost(self.lost.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

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

    fn lacking(why: &str) -> SourceError {
        SourceError::Lacking(why.to_owned())
    }

    /// The error after these failures, where a server without the position may be a former primary.
    fn tried_in_turn(rotation: &mut Rotation, errors: &[SourceError]) -> SourceError {
        let mut attempts = rotation.attempts();
        for (server, error) in errors.iter().enumerate() {
            rotation.turn_to(server);
            rotation.failed(&mut attempts, error.clone()).unwrap();
        }
        rotation.gap_unless_awaited(attempts)
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
    fn a_failed_check_of_every_server_is_a_loss() {
        let rotation = Rotation::new(2);
        // The other one may have everything.
        assert_eq!(tried(&rotation, &[lacking("a"), lost("b")]), wrong("a"));
        assert_eq!(tried(&rotation, &[lost("a"), lacking("b")]), wrong("b"));
        assert_eq!(tried(&rotation, &[purged("a"), lacking("b")]), wrong("b"));
        // The second one is fit.
        assert_eq!(tried(&rotation, &[lacking("a")]), wrong("a"));
        assert_eq!(tried(&rotation, &[lacking("a"), lacking("b")]), lacking("a; b"));
        assert_eq!(tried(&Rotation::new(1), &[lacking("a")]), lacking("a"));
        let mut rotation = Rotation::new(2);
        rotation.opened();
        assert_eq!(tried(&rotation, &[lacking("a"), lost("b")]), lost("b; a"));
        assert_eq!(tried(&rotation, &[lacking("a"), wrong("b")]), wrong("a; b"));
        assert_eq!(tried(&rotation, &[lacking("a"), lacking("b")]), lacking("a; b"));
    }

    /// The first server may be a former primary, and the second one the primary, which restarts.
    #[tokio::test(start_paused = true)]
    async fn a_server_without_the_position_is_no_gap_while_another_may_have_it() {
        for other in [lost("b"), wrong("b")] {
            let mut rotation = Rotation::new(2);
            rotation.opened();
            let without = [purged("a"), other];
            for _ in 0..2 {
                let SourceError::Lost(why) = tried_in_turn(&mut rotation, &without) else {
                    panic!("it would be a gap");
                };
                assert!(why.starts_with("a; another server may have the position: b"), "{why}");
                advance(AWAITED_MAX - Duration::from_secs(1)).await;
                // Both lack it, or the second one can be followed.
                assert_eq!(tried_in_turn(&mut rotation, &[purged("a"), purged("b")]), purged("b"));
                assert!(matches!(tried_in_turn(&mut rotation, &without), SourceError::Lost(_)));
                rotation.opened();
            }
            assert!(matches!(tried_in_turn(&mut rotation, &without), SourceError::Lost(_)));
            advance(AWAITED_MAX).await;
            assert_eq!(
                tried_in_turn(&mut rotation, &without),
                purged("a; b; for 300s, as after each start while it is in servers")
            );
        }
    }

    /// A server without the position, which is asked again, does not end the wait for another.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_lacked_the_position_is_asked_again() {
        let mut rotation = Rotation::new(2);
        rotation.opened();
        let without = [purged("a"), lost("b")];
        let mut awaited = Duration::ZERO;
        loop {
            assert_eq!(rotation.ended_without_position("a".to_owned()), lost("a"));
            rotation.turn_to(0);
            assert_eq!(rotation.lacks_position(), Some(purged("a")));
            if let SourceError::Purged(_) = tried_in_turn(&mut rotation, &without) {
                break;
            }
            advance(ASK_AGAIN).await;
            awaited += ASK_AGAIN;
            rotation.turn_to(0);
            assert_eq!(rotation.lacks_position(), None);
            rotation.opened();
        }
        assert_eq!(awaited, AWAITED_MAX);
        // Another server has its address, and sends what follows the position.
        rotation.turn_to(0);
        rotation.ended_without_position("a".to_owned());
        rotation.turn_to(0);
        rotation.opened();
        rotation.reached_end();
        rotation.turn_to(1);
        assert_eq!(rotation.ended_without_position("b".to_owned()), lost("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_ends_before_the_position_is_a_gap_if_all_do() {
        let mut rotation = Rotation::new(2);
        rotation.opened();
        assert_eq!(rotation.ended_without_position("a".to_owned()), lost("a"));
        // The second server breaks. The first one is not followed meanwhile.
        assert_eq!(rotation.lacks_position(), None);
        rotation.advance();
        assert_eq!(rotation.lacks_position(), Some(purged("a")));
        rotation.advance();
        assert_eq!(rotation.ended_without_position("b".to_owned()), purged("b"));
        rotation.read();
        assert_eq!(rotation.lacks_position(), None);
        assert_eq!(Rotation::new(1).ended_without_position("a".to_owned()), purged("a"));
    }

    #[test]
    fn a_repaired_server_lacked_changes_until_then() {
        let mut rotation = Rotation::new(2);
        rotation.opened();
        tried_in_turn(&mut rotation, &[lacking("a"), lost("b")]);
        rotation.turn_to(1);
        assert_eq!(rotation.opened(), None);
        rotation.turn_to(0);
        assert_eq!(rotation.opened().as_deref(), Some("a"));
        assert_eq!(rotation.opened(), None);
        // The log of another server has the changes of that time.
        tried_in_turn(&mut rotation, &[lacking("a"), lost("b")]);
        rotation.read();
        rotation.turn_to(0);
        assert_eq!(rotation.opened(), None);
    }

    #[test]
    fn only_a_server_that_was_followed_can_have_lost_changes_at_the_end() {
        let mut rotation = Rotation::new(2);
        rotation.opened();
        // The second one always lacks some.
        tried_in_turn(&mut rotation, &[lost("a"), lacking("b")]);
        assert_eq!(rotation.lacking(), None);
        tried_in_turn(&mut rotation, &[lacking("a"), lost("b")]);
        assert_eq!(rotation.lacking().as_deref(), Some("a"));
        rotation.read();
        assert_eq!(rotation.lacking(), None);
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
