//! The visibility probe for PostgreSQL: `pg_current_snapshot()` lists the running transactions.
//!
//! A commit that waits for a synchronous standby is in the log and still in that list.

use changes::change::Mark;

use super::connection::Connection;
use super::failure::Failure;
use super::settings::Settings;
use crate::change_source::{SourceError, VisibilityProbe};

/// The query for running transactions.
pub(super) const SNAPSHOT: &str = "SELECT pg_current_snapshot()::text";

/// A session at one server.
#[derive(Debug)]
pub struct PostgresProbe {
    settings: Settings,
    server: String,
    session: Option<Connection>,
    seen: Option<Snapshot>,
}

impl PostgresProbe {
    pub(super) const fn new(settings: Settings, server: String) -> Self {
        Self { settings, server, session: None, seen: None }
    }

    /// Queries the snapshot, and connects first if there is no session. A session is dropped when
    /// it fails, or when the wait for its answer is abandoned.
    async fn snapshot(&mut self) -> Result<Snapshot, Failure> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => Connection::open(&self.settings, &self.server, false).await?,
        };
        let text = session.text(SNAPSHOT).await?;
        self.session = Some(session);
        Snapshot::parse(&text).ok_or(Failure::Unexpected("a snapshot of another form"))
    }
}

impl VisibilityProbe for PostgresProbe {
    async fn refresh(&mut self) -> Result<(), SourceError> {
        let snapshot = self.snapshot().await.map_err(|failure| failure.at(&self.server))?;
        self.seen = Some(snapshot);
        Ok(())
    }

    fn is_visible(&self, mark: &Mark) -> Option<bool> {
        let Mark::Xid(xid) = mark else { return None };
        Some(self.seen.as_ref().is_some_and(|snapshot| snapshot.sees(*xid)))
    }
}

/// A `pg_snapshot` as text: `XMIN:XMAX:RUNNING,RUNNING,..`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    first: u64,
    next: u64,
    running: Vec<u64>,
}

impl Snapshot {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let first = parts.next()?.parse().ok()?;
        let next = parts.next()?.parse().ok()?;
        let running = parts.next()?.split(',').filter(|one| !one.is_empty()).map(str::parse);
        let running = running.collect::<Result<_, _>>().ok()?;
        Some(Self { first, next, running })
    }

    /// True for a committed transaction that no longer runs. Logs hold only the lower 32 bits of
    /// its number, which lies within 2^31 of the next one.
    pub(super) fn sees(&self, xid: u32) -> bool {
        let (round, half) = (1_u64 << 32, 1_u64 << 31);
        let xid = self.next & !(round - 1) | u64::from(xid);
        let xid = if xid + half < self.next {
            xid + round
        } else if xid > self.next + half {
            xid.saturating_sub(round)
        } else {
            xid
        };
        xid < self.first || xid < self.next && !self.running.contains(&xid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_finished_transactions() {
        let snapshot = Snapshot::parse("10:20:12,15").unwrap();
        let saw: Vec<u32> = (8..23).filter(|xid| snapshot.sees(*xid)).collect();
        assert_eq!(saw, [8, 9, 10, 11, 13, 14, 16, 17, 18, 19]);
        assert_eq!(Snapshot::parse("727:727:").unwrap().running, [0_u64; 0]);
        for text in ["", "1:2", "1:x:", "1:2:3,"] {
            assert_eq!(Snapshot::parse(text).is_some(), text == "1:2:3,", "{text}");
        }
    }

    #[test]
    fn transaction_ids_wrap_around() {
        let round = 1_u64 << 32;
        let snapshot = Snapshot { first: round + 1, next: round + 5, running: vec![round + 1] };
        let sees = |xid| snapshot.sees(xid);
        assert!(
            sees(u32::MAX) && sees(0) && !sees(1) && sees(2) && sees(4) && !sees(5) && !sees(1000)
        );
        let before = Snapshot { first: round - 2, next: round - 1, running: vec![round - 2] };
        assert!(!before.sees(u32::MAX - 1) && !before.sees(0) && before.sees(u32::MAX - 2));
    }
}
